//! Changes as a patch: what `git apply` and `patch -p1` take, and what people read.
//!
//! It is text throughout: a file that is no UTF-8 goes in as git's binary patch, and odd names are quoted.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use crate::binary::literal;
use crate::changes::{Change, Changes};
use crate::error::{CarryError, LeftOut, Listed, Why};
use crate::node::{Node, blob_name};
use crate::quote::quoted;

const CONTEXT: usize = 3;
const NO_BLOB: &str = "0000000000000000000000000000000000000000";

#[derive(Debug, Clone, Copy)]
pub struct PatchLimits {
    /// Of the whole patch.
    pub bytes: usize,
    /// Of one file that is no text, and of what it was before.
    pub binary: u64,
    /// For looking for the smallest difference. After that, what is found is right but longer.
    pub time: Duration,
}

impl Default for PatchLimits {
    fn default() -> Self {
        Self { bytes: 16 << 20, binary: 4 << 20, time: Duration::from_secs(10) }
    }
}

#[derive(Debug)]
pub struct Patch {
    pub text: String,
    /// Changes that are not in it. [`crate::apply`] carries them.
    pub left_out: Listed<LeftOut>,
}

impl Changes {
    pub fn patch(&self, limits: &PatchLimits) -> Result<Patch, CarryError> {
        let until = Instant::now() + limits.time;
        let mut patch = Patch { text: String::new(), left_out: Listed::default() };
        // What is removed comes first: a file may lie where a directory was.
        let (gone, rest): (Vec<_>, Vec<_>) = self.files.iter().partition(|change| change.after.is_none());
        for change in gone.into_iter().chain(rest) {
            let failed = |source| CarryError::system("make the patch", source);
            match self.one(change, limits, until).map_err(failed)? {
                Ok(text) if patch.text.len() + text.len() <= limits.bytes => patch.text.push_str(&text),
                Ok(_) => patch.left_out.add(LeftOut::new(change.path.as_bytes(), Why::PatchFull)),
                Err(why) => patch.left_out.add(LeftOut::new(change.path.as_bytes(), why)),
            }
        }
        Ok(patch)
    }

    fn one(
        &self,
        change: &Change,
        limits: &PatchLimits,
        until: Instant,
    ) -> std::io::Result<Result<String, Why>> {
        let Change { path, before, after } = change;
        let big = |node: &Option<Node>| matches!(node, Some(Node::File { size, .. }) if *size > limits.bytes as u64);
        if big(before) || big(after) {
            return Ok(Err(Why::PatchFull));
        }
        let (old, new) = (self.side(before.as_ref())?, self.side(after.as_ref())?);
        let part = |old, new| Part { path: path.as_bytes(), old, new, until };
        if let (Some(Side { mode: "120000", .. }), Some(_)) = (&old, &new) {
            // Another kind of thing: one goes, one comes.
            let text =
                part(old, None).text(limits).and_then(|gone| Ok(gone + &part(None, new).text(limits)?));
            return Ok(text);
        }
        Ok(part(old, new).text(limits))
    }

    fn side(&self, node: Option<&Node>) -> std::io::Result<Option<Side>> {
        Ok(match node {
            None => None,
            Some(node @ Node::File { digest, .. }) => {
                Some(Side::new(node.mode(), self.pack.content(digest)?))
            }
            Some(node @ Node::Link { target }) => Some(Side::new(node.mode(), target.clone())),
        })
    }
}

struct Side {
    mode: &'static str,
    content: Vec<u8>,
    blob: String,
}

impl Side {
    fn new(mode: &'static str, content: Vec<u8>) -> Self {
        let blob = blob_name(&content);
        Self { mode, content, blob }
    }
}

struct Part<'a> {
    path: &'a [u8],
    old: Option<Side>,
    new: Option<Side>,
    until: Instant,
}

impl Part<'_> {
    fn text(&self, limits: &PatchLimits) -> Result<String, Why> {
        let Self { path, old, new, until } = self;
        let (a, b) = (quoted("a/", path), quoted("b/", path));
        let mut text = format!("diff --git {a} {b}\n");
        let mut put = |line: std::fmt::Arguments<'_>| {
            let _strings_take_everything = text.write_fmt(format_args!("{line}\n"));
        };
        let mut mode = String::new();
        match (old, new) {
            (None, Some(new)) => put(format_args!("new file mode {}", new.mode)),
            (Some(old), None) => put(format_args!("deleted file mode {}", old.mode)),
            (Some(old), Some(new)) if old.mode != new.mode => {
                put(format_args!("old mode {}\nnew mode {}", old.mode, new.mode));
            }
            (Some(old), _) => mode = format!(" {}", old.mode),
            (None, None) => {}
        }
        let blob = |side: &Option<Side>| side.as_ref().map_or(NO_BLOB.to_owned(), |side| side.blob.clone());
        let (before, after) = (blob(old), blob(new));
        if before == after {
            return Ok(text);
        }
        put(format_args!("index {before}..{after}{mode}"));
        let content = |side: &'_ Option<Side>| side.as_ref().map_or(Vec::new(), |side| side.content.clone());
        let (before, after) = (content(old), content(new));
        let (Some(from), Some(to)) = (as_text(&before), as_text(&after)) else {
            if before.len().max(after.len()) as u64 > limits.binary {
                return Err(Why::Binary);
            }
            put(format_args!("GIT binary patch"));
            text.push_str(&literal(&after));
            text.push_str(&literal(&before));
            return Ok(text);
        };
        if before.is_empty() && after.is_empty() {
            return Ok(text);
        }
        put(format_args!("--- {}", if old.is_some() { &a } else { "/dev/null" }));
        put(format_args!("+++ {}", if new.is_some() { &b } else { "/dev/null" }));
        hunks(&mut text, from, to, *until);
        Ok(text)
    }
}

fn as_text(content: &[u8]) -> Option<&str> {
    if content.contains(&0) {
        return None;
    }
    str::from_utf8(content).ok()
}

fn hunks(text: &mut String, from: &str, to: &str, until: Instant) {
    // By newline alone: a patch knows no other end of a line.
    let (old, new): (Vec<&str>, Vec<&str>) =
        (from.split_inclusive('\n').collect(), to.split_inclusive('\n').collect());
    let ops = capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(until));
    for group in group_diff_ops(ops, CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let range = |start: usize, end: usize| match end - start {
            // A range without lines lies behind the line before it.
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            count => format!("{},{count}", start + 1),
        };
        let olds = range(first.old_range().start, last.old_range().end);
        let news = range(first.new_range().start, last.new_range().end);
        let _strings_take_everything = writeln!(text, "@@ -{olds} +{news} @@");
        for op in group {
            hunk_lines(text, op, &old, &new);
        }
    }
}

fn hunk_lines(text: &mut String, op: DiffOp, old: &[&str], new: &[&str]) {
    let mut put = |sign: char, lines: &[&str]| {
        for line in lines {
            text.push(sign);
            text.push_str(line);
            if !line.ends_with('\n') {
                text.push_str("\n\\ No newline at end of file\n");
            }
        }
    };
    match op.tag() {
        DiffTag::Equal => put(' ', &old[op.old_range()]),
        DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
            put('-', &old[op.old_range()]);
            put('+', &new[op.new_range()]);
        }
    }
}
