//! What the daemon answers, for people: tables, times, and texts that others wrote.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};

use serde_json::Value;

use super::super::calls::table::{Cell, Column, Layout, More, Page, Tint};
use super::super::calls::time::{self, When};
use super::super::calls::{json, plain};
use crate::config::Environment;
use crate::output;

/// A member that is a text; what is none is empty.
pub(in crate::commands) fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// One object on a line, such that a terminal obeys nothing in it.
pub(in crate::commands) fn json_line(value: &Value) -> io::Result<()> {
    output::line(&json(value)?)
}

pub(in crate::commands) fn rows(columns: &'static [Column], rows: &[Vec<Cell>]) -> io::Result<()> {
    let layout = Layout::fit(columns, rows, Page::of_stdout(Environment::of_process()), More::No);
    let mut out = BufWriter::new(io::stdout().lock());
    let written = std::iter::once(layout.head())
        .chain(rows.iter().map(|row| layout.line(row)))
        .try_for_each(|line| writeln!(out, "{line}"))
        .and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// How a session or a run is.
pub(in crate::commands) fn status_cell(status: &str) -> Cell {
    let tint = match status {
        "ready" | "busy" | "running" | "completed" => Some(Tint::Good),
        "failed" => Some(Tint::Bad),
        "starting" | "stopping" | "terminating" | "queued" | "canceled" => Some(Tint::Odd),
        "stopped" | "terminated" => Some(Tint::Faint),
        _ => None,
    };
    Cell::new(plain(status).into_owned()).tinted(tint)
}

/// A time as the daemon writes it, for a column that says which zone it is in.
pub(in crate::commands) fn time_cell(value: &Value) -> Cell {
    Cell::new(moment(value).map(time::short).unwrap_or_default())
}

/// Unix milliseconds of a time as the daemon writes it.
pub(in crate::commands) fn moment(value: &Value) -> Option<u64> {
    match When::parse(value.as_str()?).ok()? {
        When::At(at) => Some(at),
        When::Ago(_) => None,
    }
}

/// `0.4 s`, `12 s`, `3 min 12 s`, `2 h 5 min`.
pub(in crate::commands) fn span(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..10 => format!("{seconds}.{} s", millis % 1000 / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// `1 step`, `2 steps`.
pub(in crate::commands) fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

/// A text of several lines that an agent wrote. A terminal shows it and does nothing else; a program gets it as it is.
pub(in crate::commands) fn text(text: &str) -> io::Result<()> {
    if io::stdout().is_terminal() { output::line(&lines(text)) } else { output::line(text) }
}

/// As [`plain`], but lines stay lines, and tabs tabs.
pub(in crate::commands) fn lines(text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    let mut shown = String::with_capacity(text.len());
    for piece in text.split_inclusive(['\n', '\t']) {
        let end = piece.strip_suffix(['\n', '\t']).map_or(piece.len(), str::len);
        shown.push_str(&plain(&piece[..end]));
        shown.push_str(&piece[end..]);
    }
    shown
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_stay_lines_and_nothing_is_obeyed() {
        for (text, shown) in [
            ("a\nb\n\tc", "a\nb\n\tc"),
            ("a\r\nb", "a\nb"),
            ("\u{1b}[2Ja\rb\u{7}\n", "\\u{1b}[2Ja\\rb\\u{7}\n"),
            ("", ""),
        ] {
            assert_eq!(lines(text), shown);
        }
    }

    #[test]
    fn times_and_spans_are_short() {
        assert_eq!(moment(&json!("2026-11-16T07:00:00.000Z")), Some(1_794_812_400_000));
        assert_eq!((moment(&json!(null)), moment(&json!("10m")), moment(&json!(7))), (None, None, None));
        for (millis, text) in [
            (0, "0.0 s"),
            (420, "0.4 s"),
            (9_999, "9.9 s"),
            (12_345, "12 s"),
            (192_000, "3 min 12 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(span(millis), text);
        }
        assert_eq!((count(1, "step"), count(0, "tool call")), ("1 step".into(), "0 tool calls".into()));
    }
}
