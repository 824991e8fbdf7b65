//! Sessions with their subagents, and what each of them called.
//!
//! A session is a root; its threads stand beneath whoever started them. What hosts say of that is taken as far as it
//! makes a tree: a parent that made no call gets a place all the same, and one that leads in a circle, or too deep, is
//! replaced by the session.

use std::collections::HashMap;
use std::io::{self, Write};

use ledger::{Call, Outcome};
use serde::Serialize;

use super::table::{Cell, Column, Layout, More, Page, Tint};
use super::text::{self, plain};
use super::time;

/// Deeper ones are shown beneath their session.
const DEEPEST: usize = 32;

const COLUMNS: [Column; 6] = [
    Column::id("SESSION", 12),
    Column::id("HOST", 5),
    Column::number("CALLS"),
    Column::number("ERRORS"),
    Column::fixed("FIRST (UTC)"),
    Column::fixed("LAST (UTC)"),
];

#[derive(Debug, Default)]
pub(super) struct Tree {
    nodes: Vec<Node>,
    /// By session and thread. Calls of nobody have neither.
    places: HashMap<(Option<String>, Option<String>), usize>,
}

#[derive(Debug, Default)]
struct Node {
    session: Option<String>,
    thread: Option<String>,
    parent: Option<String>,
    hosts: Vec<String>,
    calls: u64,
    errors: u64,
    under_way: u64,
    first: Option<u64>,
    last: Option<u64>,
    /// Who it is beneath.
    above: Option<usize>,
    beneath: Vec<usize>,
}

/// What `--tree --json` prints: a root, with its subagents in it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    session: Option<&'a str>,
    thread: Option<&'a str>,
    parent: Option<&'a str>,
    hosts: &'a [String],
    calls: u64,
    errors: u64,
    under_way: u64,
    first: Option<String>,
    last: Option<String>,
    subagents: Vec<Self>,
}

impl Tree {
    pub(super) fn add(&mut self, call: &Call) {
        let place = self.place(call.session.as_deref(), call.thread.as_deref());
        let node = &mut self.nodes[place];
        node.calls += 1;
        match call.outcome {
            Some(Outcome::Ok | Outcome::Canceled) => {}
            Some(
                Outcome::ToolError | Outcome::Refused | Outcome::Timeout | Outcome::Failed | Outcome::Unknown,
            ) => node.errors += 1,
            None => node.under_way += 1,
        }
        node.first = Some(node.first.map_or(call.at, |first| first.min(call.at)));
        node.last = Some(node.last.map_or(call.at, |last| last.max(call.at)));
        if let Some(host) = call.host.as_ref()
            && !node.hosts.contains(host)
        {
            node.hosts.push(host.clone());
        }
        if node.parent.is_none() {
            node.parent.clone_from(&call.parent);
        }
    }

    /// A session that is known by its thread alone is the root of itself.
    fn place(&mut self, session: Option<&str>, thread: Option<&str>) -> usize {
        let thread = thread.or(session);
        let key = (session.map(str::to_owned), thread.map(str::to_owned));
        *self.places.entry(key).or_insert_with_key(|(session, thread)| {
            self.nodes.push(Node { session: session.clone(), thread: thread.clone(), ..Node::default() });
            self.nodes.len() - 1
        })
    }

    /// Puts each node beneath another, and returns the roots in the order of their first calls.
    fn link(&mut self) -> Vec<usize> {
        // Everybody who is named gets a place, calls or none.
        let mut at = 0;
        while at < self.nodes.len() {
            let Node { session, parent, .. } = &self.nodes[at];
            let (session, parent) = (session.clone(), parent.clone());
            if let Some(session) = session.as_deref() {
                self.place(Some(session), None);
                let elsewhere = self.is_root(at) || parent.is_none();
                if let Some(parent) = parent.filter(|_| !elsewhere) {
                    self.place(Some(session), Some(&parent));
                }
            }
            at += 1;
        }
        // A session can itself be started by a thread of another.
        let by_thread: HashMap<&str, usize> = self
            .nodes
            .iter()
            .enumerate()
            .rev()
            .filter_map(|(at, node)| Some((node.thread.as_deref()?, at)))
            .collect();
        let above: Vec<Option<usize>> = (0..self.nodes.len())
            .map(|at| {
                let node = &self.nodes[at];
                let root = self.root_of(at);
                let Some(parent) = node.parent.as_ref() else { return root };
                let here = self.places.get(&(node.session.clone(), Some(parent.clone())));
                here.or_else(|| by_thread.get(parent.as_str())).copied().filter(|above| *above != at).or(root)
            })
            .collect();
        for (node, above) in self.nodes.iter_mut().zip(above) {
            node.above = above;
        }
        for at in 0..self.nodes.len() {
            if self.is_lost(at) {
                self.nodes[at].above = self.root_of(at);
            }
            // The session itself was part of the circle.
            if self.is_lost(at) {
                self.nodes[at].above = None;
            }
        }
        let mut roots = Vec::new();
        for at in 0..self.nodes.len() {
            match self.nodes[at].above {
                Some(above) => self.nodes[above].beneath.push(at),
                None => roots.push(at),
            }
        }
        roots.sort_by_key(|root| self.nodes[*root].began(&self.nodes));
        roots
    }

    fn is_root(&self, at: usize) -> bool {
        self.nodes[at].session == self.nodes[at].thread
    }

    /// The node of the session itself, if that is another.
    fn root_of(&self, at: usize) -> Option<usize> {
        let session = &self.nodes[at].session;
        let root = self.places.get(&(session.clone(), session.clone())).copied();
        root.filter(|root| *root != at && session.is_some())
    }

    /// Whether the way up has no end, or a far one.
    fn is_lost(&self, at: usize) -> bool {
        let mut here = at;
        for _ in 0..DEEPEST {
            match self.nodes[here].above {
                Some(above) => here = above,
                None => return false,
            }
        }
        true
    }

    pub(super) fn json(mut self, out: &mut impl Write) -> io::Result<()> {
        for root in self.link() {
            writeln!(out, "{}", text::json(&self.shown(root))?)?;
        }
        out.flush()
    }

    fn shown(&self, at: usize) -> Shown<'_> {
        let node = &self.nodes[at];
        Shown {
            session: node.session.as_deref(),
            thread: node.thread.as_deref(),
            parent: node.parent.as_deref(),
            hosts: &node.hosts,
            calls: node.calls,
            errors: node.errors,
            under_way: node.under_way,
            first: node.first.map(time::rfc3339),
            last: node.last.map(time::rfc3339),
            subagents: node.beneath.iter().map(|beneath| self.shown(*beneath)).collect(),
        }
    }

    pub(super) fn text(mut self, out: &mut impl Write, page: Page) -> io::Result<()> {
        let mut rows = Vec::new();
        for root in self.link() {
            self.rows(root, "", "", &mut rows);
        }
        let layout = Layout::fit(&COLUMNS, &rows, page, More::No);
        if !rows.is_empty() {
            writeln!(out, "{}", layout.head())?;
        }
        for row in &rows {
            writeln!(out, "{}", layout.line(row))?;
        }
        out.flush()
    }

    /// `lead`: the lines before this node; `below`: those before what is beneath it.
    fn rows(&self, at: usize, lead: &str, below: &str, rows: &mut Vec<Vec<Cell>>) {
        let node = &self.nodes[at];
        let name = node.thread.as_deref().map_or("nobody".into(), plain);
        let moment = |at: Option<u64>| Cell::new(at.map(time::short).unwrap_or_default());
        rows.push(vec![
            Cell::led(lead.to_owned(), name),
            Cell::new(plain(&node.hosts.join(", "))),
            Cell::new(node.calls.to_string()),
            Cell::new(node.errors.to_string()).tinted((node.errors > 0).then_some(Tint::Bad)),
            moment(node.first),
            moment(node.last),
        ]);
        for (number, beneath) in node.beneath.iter().enumerate() {
            let (branch, bar) =
                if number + 1 < node.beneath.len() { ("├ ", "│ ") } else { ("└ ", "  ") };
            self.rows(*beneath, &format!("{below}{branch}"), &format!("{below}{bar}"), rows);
        }
    }
}

impl Node {
    /// When the first call was made, here or beneath.
    fn began(&self, nodes: &[Self]) -> u64 {
        let beneath = self.beneath.iter().map(|beneath| nodes[*beneath].began(nodes));
        beneath.chain(self.first).min().unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests;
