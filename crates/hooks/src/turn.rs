//! The two moments at which hooks run: what each brings into the engine, and what comes out of it.

use bytes::Bytes;
use rquickjs::{Array, Value};

use crate::draft::{BeforeChanges, Change, Draft, Ended, Pairs};
use crate::pairs::MOST;
use crate::rules::{Kind, Rules};

/// What hooks can be written for. The numbers are those of the prelude.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Before = 0,
    After = 1,
}

impl Event {
    pub const ALL: [Self; 2] = [Self::Before, Self::After];

    pub fn name(self) -> &'static str {
        match self {
            Self::Before => "mcp.call.before",
            Self::After => "mcp.call.after",
        }
    }
}

/// Names and values of members that changed, at most.
const LONGEST: usize = 200_000;

/// Headers and variables, each only if they were written.
pub(crate) type Written = (Option<Pairs>, Option<Pairs>);

/// What a hook can ask for during its turn.
#[derive(Debug, Default)]
pub struct Given {
    pub headers: Pairs,
    pub env: Pairs,
    pub arguments: Option<Bytes>,
    pub meta: Option<Bytes>,
    pub result: Option<Bytes>,
}

/// What only `mcp.call.after` is told.
#[derive(Debug, Default)]
pub struct Outcome<'a> {
    pub failed: bool,
    pub ok: bool,
    pub duration_ms: f64,
    pub error: Option<&'a str>,
}

/// A call at one of the two moments.
pub trait Turn: sealed::Turn {}

impl Turn for Draft {}
impl Turn for Ended {}

pub(crate) mod sealed {
    use super::{Array, Event, Given, Outcome, Rules, Written};

    pub trait Turn: Clone + Send + 'static {
        const EVENT: Event;
        type Changes: Send;
        fn given(&self) -> Given;
        fn outcome(&self) -> Outcome<'_>;
        /// Bytes that the engine may have to look at.
        fn size(&self) -> usize;
        /// What the prelude collected; none: it is not what the prelude collects.
        fn read(collected: &Array<'_>, written: Written) -> Option<Self::Changes>;
        /// Whether every name and value can be. The prelude has seen to it, unless a hook has tampered with it.
        fn check(changes: &Self::Changes, rules: &Rules) -> Result<(), String>;
        /// `Err`: it cannot be done.
        fn accept(&mut self, changes: Self::Changes) -> Result<(), String>;
    }
}

impl sealed::Turn for Draft {
    const EVENT: Event = Event::Before;
    type Changes = BeforeChanges;

    fn given(&self) -> Given {
        let (arguments, meta) = (self.arguments.clone(), self.meta.clone());
        Given { headers: self.headers.clone(), env: self.env.clone(), arguments, meta, result: None }
    }

    fn outcome(&self) -> Outcome<'_> {
        Outcome::default()
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn read(collected: &Array<'_>, (headers, env): Written) -> Option<BeforeChanges> {
        let (meta, arguments) = (change(&collected.get(0).ok()?)?, change(&collected.get(1).ok()?)?);
        Some(BeforeChanges { headers, env, meta, arguments })
    }

    fn check(changes: &BeforeChanges, rules: &Rules) -> Result<(), String> {
        let of_pairs = [(Kind::Header, &changes.headers), (Kind::Variable, &changes.env)];
        for (kind, pairs) in of_pairs {
            if pairs.as_ref().is_some_and(|pairs| pairs.len() > MOST) {
                return Err(format!("there can be at most {MOST} headers or variables"));
            }
            for (name, value) in pairs.iter().flatten() {
                rules.check(kind, name, Some(value))?;
            }
        }
        if changes.meta == Some(Change::Removed) {
            return Err("`meta` as a whole is not for a hook to remove".to_owned());
        }
        for (kind, change) in [(Kind::Meta, &changes.meta), (Kind::Argument, &changes.arguments)] {
            if let Some(Change::Members(members)) = change {
                members.iter().try_for_each(|(name, value)| rules.check(kind, name, value.as_deref()))?;
            }
        }
        Ok(())
    }

    fn accept(&mut self, changes: BeforeChanges) -> Result<(), String> {
        self.apply(changes)
    }
}

impl sealed::Turn for Ended {
    const EVENT: Event = Event::After;
    type Changes = Option<Change>;

    fn given(&self) -> Given {
        Given { arguments: self.arguments.clone(), result: self.result.clone(), ..Given::default() }
    }

    fn outcome(&self) -> Outcome<'_> {
        Outcome {
            failed: self.result.is_none(),
            ok: self.ok,
            duration_ms: self.duration_ms,
            error: self.error.as_deref(),
        }
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn read(collected: &Array<'_>, _: Written) -> Option<Option<Change>> {
        change(&collected.get(0).ok()?)
    }

    fn check(_: &Option<Change>, _: &Rules) -> Result<(), String> {
        Ok(())
    }

    fn accept(&mut self, change: Option<Change>) -> Result<(), String> {
        self.apply(change)
    }
}

#[expect(clippy::option_option, reason = "nothing to say, and nothing that can be understood")]
fn change(value: &Value<'_>) -> Option<Option<Change>> {
    if value.is_undefined() {
        return Some(None);
    }
    if value.is_null() {
        return Some(Some(Change::Removed));
    }
    let flat = value.as_array()?;
    // Where built-in objects are not frozen, it may be any number, or none.
    let length: Value<'_> = flat.as_object().get("length").ok()?;
    let length = usize::try_from(length.as_int()?).ok().filter(|length| *length <= LONGEST)?;
    let mut members = Vec::new();
    for at in (0..length).step_by(2) {
        let value: Value<'_> = flat.get(at + 1).ok()?;
        let value = if value.is_null() { None } else { Some(json(&value)?) };
        members.push((text(&flat.get(at).ok()?)?, value));
    }
    Some(Some(Change::Members(members)))
}

fn text(value: &Value<'_>) -> Option<String> {
    value.as_string()?.to_string().ok()
}

/// Only what is JSON: a hook can have replaced what makes it.
fn json(value: &Value<'_>) -> Option<String> {
    let text = text(value)?;
    serde_json::from_str::<serde::de::IgnoredAny>(&text).ok().map(|_| text)
}
