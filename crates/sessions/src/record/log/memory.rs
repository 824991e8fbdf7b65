//! What a log's lines say: which there are, and what they come to.
//!
//! A line is remembered the same way whether it was just written or is found in a file. So whoever opens a log knows what
//! its writer knew.

use std::collections::{BTreeMap, HashMap, HashSet};

use model::ports::agent::{About, Decision, Progress, Question, Status};
use model::session::{RunUsage, UnixMillis};

use super::super::plain::{clock, plain, took};
use super::line::{END, Kind, Line, digest, parse_usage, short, usage};

/// Ids that are remembered; a log that is not full has fewer. Past that nothing is told apart, so nothing is counted.
const MOST_IDS: usize = 400_000;
/// Tools that are counted by name.
const MOST_TOOLS: usize = 100;
/// Subagents that have a label of their own.
const MOST_LABELS: u32 = 999;
/// An agent that tells of something this much later was not listened to when it happened.
const LATE: u64 = 2000;

/// How much of a text has room in a line. Together they are shorter than a line may be.
const NAME: usize = 100;
const TITLE: usize = 700;
const MESSAGE: usize = 900;
const LAST: usize = 200;

/// The note behind which there are only notes.
pub(super) const FULL: &str = "full";

/// What a log comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogTotals {
    /// How often the model was asked, subagents aside.
    pub steps: u32,
    /// Calls by the name of the tool, those of subagents among them.
    pub tools: BTreeMap<String, u32>,
    pub subagents: u32,
    /// Of all steps that have ended, those of subagents among them.
    pub tokens: RunUsage,
    /// What the last line says, without its time. Empty: there is none.
    pub last: String,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Digests of kinds and ids.
    seen: HashSet<u64>,
    /// Numbers by message.
    steps: HashMap<u64, u32>,
    last_step: u32,
    /// Labels by thread.
    subagents: HashMap<u64, u32>,
    /// The step that each label is in.
    current: HashMap<u32, u32>,
    /// In which step a tool that runs was called: providers are known to use the id of a call again in the next.
    running: HashMap<(u32, u64), u32>,
    status: Option<Kind>,
    full: bool,
    totals: LogTotals,
}

impl Memory {
    pub(super) fn totals(&self) -> &LogTotals {
        &self.totals
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// 0: it is the conversation itself.
    pub(super) fn label(&self, thread: &str) -> u32 {
        self.subagents.get(&key(Kind::Agent, &short(thread))).copied().unwrap_or(0)
    }

    /// What is to be written of this. None: it was, or it is a text, which is counted by others.
    pub(super) fn line(&mut self, at: UnixMillis, progress: &Progress) -> Option<Line> {
        if self.seen.len() >= MOST_IDS {
            return None;
        }
        let line = match progress {
            Progress::Text { .. } => return None,
            Progress::Status(status) => return self.status_line(at, status),
            Progress::StepStarted { thread, message } => {
                let (label, number, message) = self.step(thread, message);
                self.current.insert(label, number);
                Line::new(Kind::Step, label)
                    .column(&number.to_string(), NAME)
                    .column("started", NAME)
                    .id(message)
            }
            Progress::StepFinished { thread, message, finish, usage: used } => {
                let (label, number, message) = self.step(thread, message);
                let line =
                    Line::new(Kind::Step, label).column(&number.to_string(), NAME).column(finish, NAME);
                line.column(&usage(*used), TITLE).id(message + END)
            }
            Progress::ToolStarted { thread, call, tool, at: _ } => {
                let (label, call) = (self.label(thread), short(call));
                let step = self.current.get(&label).copied().unwrap_or(0);
                self.running.insert((label, digest(call.as_bytes())), step);
                let line = Line::new(Kind::Tool, label).column(tool, NAME).column("started", NAME);
                line.id(format!("{step}/{call}"))
            }
            Progress::ToolFinished { thread, call, tool, title, error, started_at, at: ended } => {
                let (label, call) = (self.label(thread), short(call));
                let started = self.running.remove(&(label, digest(call.as_bytes())));
                let step = started.or_else(|| self.current.get(&label).copied()).unwrap_or(0);
                let outcome =
                    outcome(error.as_deref(), &took(ended.0.saturating_sub(started_at.0)), *ended, at);
                let line = Line::new(Kind::Tool, label).column(tool, NAME).column(title, TITLE);
                line.column(&outcome, MESSAGE).id(format!("{step}/{call}{END}"))
            }
            Progress::Subagent { thread, parent, title } => {
                let label = u32::try_from(self.subagents.len() + 1).unwrap_or(MOST_LABELS).min(MOST_LABELS);
                let parent = match self.label(parent) {
                    0 => "started".to_owned(),
                    parent => format!("started by s{parent}"),
                };
                let line = Line::new(Kind::Agent, 0).column(&format!("s{label}"), NAME).column(&parent, NAME);
                line.column(title, TITLE).id(short(thread))
            }
            Progress::Asked(question) => {
                self.question_line(question, Decision::Surface).id(short(&question.id.id))
            }
            Progress::Decided { question, decision } => {
                self.question_line(question, *decision).id(short(&question.id.id) + END)
            }
        };
        let known = line.id.as_ref().is_some_and(|id| self.seen.contains(&key(line.kind, id)));
        (!known).then_some(line)
    }

    /// That the agent works has no id: it is said when it was not so before.
    fn status_line(&self, at: UnixMillis, status: &Status) -> Option<Line> {
        match status {
            Status::Busy => (self.status != Some(Kind::State))
                .then(|| Line::new(Kind::State, 0).column("the agent works", NAME).id("busy".to_owned())),
            Status::Retry { attempt, message, next_at } => {
                let id = format!("{attempt}.{}", next_at.0);
                let next = took(next_at.0.saturating_sub(at.0));
                let line = Line::new(Kind::Retry, 0).column(&format!("attempt {attempt} failed"), NAME);
                let line = line.column(message, MESSAGE).column(&format!("again in {next}"), NAME);
                (!self.seen.contains(&key(Kind::Retry, &id))).then(|| line.id(id))
            }
        }
    }

    fn question_line(&self, question: &Question, decision: Decision) -> Line {
        let (asked, answer) = match (&question.about, decision) {
            (About::Permission { .. }, Decision::Allow) => ("may it use", "yes"),
            (About::Permission { .. }, Decision::Deny) => ("may it use", "no"),
            (About::Permission { .. }, Decision::Surface) => ("may it use", "waits for an answer"),
            (About::Question { .. }, Decision::Allow) => ("it asks", "told to choose itself"),
            (About::Question { .. }, Decision::Deny) => ("it asks", "told that nobody answers"),
            (About::Question { .. }, Decision::Surface) => ("it asks", "waits for an answer"),
        };
        let what = match &question.about {
            About::Permission { permission, patterns } => {
                format!("{asked} {}: {}", plain(permission, NAME), patterns.join("; "))
            }
            About::Question { texts } => format!("{asked}: {}", texts.join("; ")),
        };
        Line::new(Kind::Asked, self.label(&question.thread)).column(&what, MESSAGE).column(answer, NAME)
    }

    /// Label, number and short id of a step.
    fn step(&self, thread: &str, message: &str) -> (u32, u32, String) {
        let message = short(message);
        let number = self.steps.get(&key(Kind::Step, &message)).copied();
        (self.label(thread), number.unwrap_or(self.last_step.saturating_add(1)), message)
    }

    pub(super) fn absorb(&mut self, line: &Line) {
        self.totals.last = plain(&line.said(), LAST);
        let Some(id) = &line.id else { return };
        if line.kind == Kind::Note {
            self.full |= id == FULL;
            return;
        }
        let fresh = self.seen.len() < MOST_IDS && self.seen.insert(key(line.kind, id));
        let begun = id.strip_suffix(END);
        let number = || line.columns.first()?.trim_start_matches('s').parse::<u32>().ok();
        match line.kind {
            Kind::Note | Kind::Text | Kind::Asked => {}
            Kind::State | Kind::Retry => self.status = Some(line.kind),
            Kind::Step => {
                let message = key(Kind::Step, begun.unwrap_or(id));
                let number = number().unwrap_or(self.last_step);
                if self.steps.insert(message, number).is_none() && line.label == 0 {
                    self.totals.steps += 1;
                }
                self.last_step = self.last_step.max(number);
                match begun {
                    None => {
                        self.current.insert(line.label, number);
                    }
                    Some(_) if fresh => {
                        let used = line.columns.get(2).map(|text| parse_usage(text)).unwrap_or_default();
                        add(&mut self.totals.tokens, used);
                    }
                    Some(_) => {}
                }
            }
            Kind::Tool => self.absorb_tool(line, id, fresh),
            Kind::Agent => {
                self.subagents.insert(key(Kind::Agent, id), number().unwrap_or(MOST_LABELS));
                self.totals.subagents += u32::from(fresh);
            }
        }
    }

    fn absorb_tool(&mut self, line: &Line, id: &str, fresh: bool) {
        let begun = id.strip_suffix(END);
        // An end whose beginning nobody saw counts as both.
        let first = match begun {
            None => fresh,
            Some(begun) => fresh && self.seen.insert(key(Kind::Tool, begun)),
        };
        if let Some((step, call)) = begun.unwrap_or(id).split_once('/') {
            let call = (line.label, digest(call.as_bytes()));
            match begun {
                None => self.running.insert(call, step.parse().unwrap_or(0)),
                Some(_) => self.running.remove(&call),
            };
        }
        if first {
            let name = line.columns.first().map_or("-", String::as_str);
            let tools = &mut self.totals.tools;
            let name = if tools.len() < MOST_TOOLS || tools.contains_key(name) { name } else { "others" };
            *tools.entry(name.to_owned()).or_default() += 1;
        }
    }
}

fn outcome(error: Option<&str>, took: &str, ended: UnixMillis, told: UnixMillis) -> String {
    let late = ended.0 > 0 && ended.0.saturating_add(LATE) < told.0;
    let late = if late { format!(" at {}", clock(ended)) } else { String::new() };
    match error {
        None => format!("ok, {took}{late}"),
        Some(error) => format!("failed after {took}{late}: {error}"),
    }
}

fn add(total: &mut RunUsage, more: RunUsage) {
    *total = total.plus(more);
}

fn key(kind: Kind, id: &str) -> u64 {
    digest(format!("{} {id}", kind.as_str()).as_bytes())
}
