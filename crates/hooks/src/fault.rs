//! What goes wrong with a hook, said so that its author finds the place.

use std::fmt;
use std::sync::Arc;

use rquickjs::{Ctx, Object, Value};

use crate::limits::{Guard, Limits, Over};

/// How much of a hook's own words is shown.
const SHOWN: usize = 500;

/// Why a hook did not do its work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// As the configuration names it.
    pub file: Arc<str>,
    /// 0: unknown.
    pub line: u32,
    pub kind: FaultKind,
    pub message: String,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// The file cannot be used at all.
    Load,
    /// It threw: on purpose, or by a mistake.
    Thrown,
    Cpu,
    Wall,
    Memory,
    /// Its promise can never settle.
    Settle,
}

impl FaultKind {
    /// Whether the engine it happened in is to be used again.
    pub(crate) fn spoils(self) -> bool {
        match self {
            Self::Thrown => false,
            Self::Load | Self::Cpu | Self::Wall | Self::Memory | Self::Settle => true,
        }
    }
}

impl std::error::Error for Fault {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

/// Where a failure is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) file: &'a Arc<str>,
    /// Where the handler begins: the line that is named where there is no better.
    pub(crate) line: u32,
}

impl Place<'_> {
    pub(crate) fn fault(self, kind: FaultKind, message: impl Into<String>) -> Fault {
        Fault { file: Arc::clone(self.file), line: self.line, kind, message: message.into() }
    }

    pub(crate) fn over(self, over: Over, limits: &Limits) -> Fault {
        match over {
            Over::Cpu => {
                let limit = limits.cpu.as_millis();
                let message = format!(
                    "it used more than {limit} ms of CPU time; raise timeout_ms in [hooks], or do less"
                );
                self.fault(FaultKind::Cpu, message)
            }
            Over::Wall => {
                let limit = limits.wall.as_millis();
                let message =
                    format!("it took longer than {limit} ms; raise timeout_ms in [hooks], or do less");
                self.fault(FaultKind::Wall, message)
            }
        }
    }

    /// The exception that is pending in `ctx`, as a fault.
    pub(crate) fn exception(self, ctx: &Ctx<'_>, guard: &Guard, kind: FaultKind) -> Fault {
        let thrown = ctx.catch();
        let (message, stack) = read(ctx, &thrown);
        let limits = guard.limits();
        let mut fault = match guard.over() {
            Some(over) => self.over(over, limits),
            None if message == "out of memory" => {
                let limit = limits.memory >> 20;
                let message = format!(
                    "it needed more than {limit} MB of memory; raise memory_mb in [hooks], or hold less"
                );
                self.fault(FaultKind::Memory, message)
            }
            // Without memory there is nothing left to say it with.
            None if thrown.is_null() => {
                let message = "it threw null, or had no memory left for saying what is wrong";
                self.fault(FaultKind::Memory, message)
            }
            None if message.ends_with("Maximum call stack size exceeded")
                || message.ends_with("stack overflow") =>
            {
                self.fault(FaultKind::Thrown, "it calls itself too deeply")
            }
            // Of a call's data what could not be parsed is quoted there, and may be what must not be seen.
            None if kind != FaultKind::Load && message.starts_with("SyntaxError: ") => {
                self.fault(FaultKind::Thrown, "SyntaxError: what it parsed cannot be parsed")
            }
            None => self.fault(FaultKind::Thrown, message),
        };
        if let Some((file, line)) = stack.as_deref().and_then(first_frame) {
            (fault.file, fault.line) = (file.into(), line);
        }
        fault
    }
}

/// What was thrown, and the stack where it was made. Reading it can run code of the hook, under the same limits.
fn read(ctx: &Ctx<'_>, thrown: &Value<'_>) -> (String, Option<String>) {
    let text = |object: &Object<'_>, name: &str| {
        let read = object.get::<_, Value<'_>>(name);
        if read.is_err() {
            drop(ctx.catch());
        }
        read.ok()?.as_string()?.to_string().ok()
    };
    let message = match (thrown.as_object(), thrown.as_string()) {
        (Some(object), _) => text(object, "message"),
        (None, Some(said)) => said.to_string().ok(),
        (None, None) => Some(plain(thrown)),
    };
    let stack = thrown.as_object().filter(|_| thrown.is_error()).and_then(|error| text(error, "stack"));
    let name = thrown.as_object().and_then(|object| text(object, "name")).filter(|name| {
        // `Error: no` says no more than `no`; a `TypeError` says what to look for.
        name != "Error" && name != "TypeError" && name != "InternalError"
    });
    let message = message.unwrap_or_else(|| "it threw something that cannot be shown".to_owned());
    let message = if message.is_empty() { "it threw without a word".to_owned() } else { message };
    let message = match name {
        Some(name) if thrown.is_error() => format!("{name}: {message}"),
        _ => message,
    };
    let visible = |character: char| if character.is_control() { ' ' } else { character };
    (message.chars().map(visible).take(SHOWN).collect(), stack)
}

fn plain(value: &Value<'_>) -> String {
    if value.is_undefined() {
        "undefined".to_owned()
    } else if value.is_null() {
        "null".to_owned()
    } else if let Some(number) = value.as_number() {
        number.to_string()
    } else if let Some(flag) = value.as_bool() {
        flag.to_string()
    } else {
        format!("it threw a value of type {}", value.type_name())
    }
}

/// The file and line of the innermost frame that is a hook's.
fn first_frame(stack: &str) -> Option<(String, u32)> {
    stack.lines().find_map(|frame| {
        let frame = frame.trim().strip_prefix("at ")?;
        // `name (file:line:column)`, or the place alone.
        let place = match frame.rsplit_once(" (") {
            Some((_, place)) => place.strip_suffix(')')?,
            None => frame,
        };
        let (rest, _column) = place.rsplit_once(':')?;
        let (file, line) = rest.rsplit_once(':')?;
        let line = line.parse().ok()?;
        let is_ours =
            file == crate::engine::PRELUDE || file.is_empty() || file == "native" || file.starts_with('<');
        (!is_ours).then(|| (file.to_owned(), line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_frame_of_a_hook_is_named() {
        let stack = "    at put (callsign:3:9)\n    at set (callsign:9:1)\n    at <anonymous> (hooks/a b.js:4:15)\n    at x (y.js:1:1)\n";
        assert_eq!(first_frame(stack), Some(("hooks/a b.js".to_owned(), 4)));
        assert_eq!(first_frame("    at hooks/a.js:7:1\n"), Some(("hooks/a.js".to_owned(), 7)));
        assert_eq!(first_frame("    at call (native)\n"), None);
    }
}
