//! Calls, one a line: a table, or JSON.

use std::io::{self, Write};

use ledger::{Call, Outcome};

use super::row::{Row, forged};
use super::table::{Cell, Column, Layout, More, Page, Tint};
use super::text::{self, plain};
use super::time;

const COLUMNS: [Column; 9] = [
    Column::fixed("TIME (UTC)"),
    Column::id("HOST", 5),
    Column::id("SESSION", 7),
    Column::id("THREAD", 6).optional(),
    Column::id("SERVER", 6),
    Column::id("TOOL", 6),
    Column::fixed("OUTCOME"),
    Column::number("MS"),
    Column::rest("NOTE", 6),
];

/// Rows that are looked at before the widths of columns are settled. Those beyond are not kept in memory.
const LOOKED_AT: usize = 1000;

/// Prints calls as they come.
pub(super) struct List<W> {
    out: W,
    form: Form,
    pub(super) count: u64,
}

enum Form {
    Json,
    /// The first rows wait until it is known how wide they are.
    Waiting(Page, Vec<Vec<Cell>>),
    Table(Layout),
}

impl<W: Write> List<W> {
    /// `page`: none is for JSON.
    pub(super) fn new(out: W, page: Option<Page>) -> Self {
        let form = page.map_or(Form::Json, |page| Form::Waiting(page, Vec::new()));
        Self { out, form, count: 0 }
    }

    pub(super) fn add(&mut self, call: &Call) -> io::Result<()> {
        self.count += 1;
        match &mut self.form {
            Form::Json => writeln!(self.out, "{}", text::json(&Row::of(call))?),
            Form::Table(layout) => writeln!(self.out, "{}", layout.line(&cells(call))),
            Form::Waiting(_, rows) => {
                rows.push(cells(call));
                if rows.len() < LOOKED_AT { Ok(()) } else { self.settle(More::Perhaps) }
            }
        }
    }

    /// Prints what waits. With no more to come, an empty table is none.
    pub(super) fn settle(&mut self, more: More) -> io::Result<()> {
        if let Form::Waiting(page, rows) = &mut self.form {
            let (page, rows) = (*page, std::mem::take(rows));
            let layout = Layout::fit(&COLUMNS, &rows, page, more);
            if !rows.is_empty() || more == More::Perhaps {
                writeln!(self.out, "{}", layout.head())?;
            }
            for row in &rows {
                writeln!(self.out, "{}", layout.line(row))?;
            }
            self.form = Form::Table(layout);
        }
        self.out.flush()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn cells(call: &Call) -> Vec<Cell> {
    let or_none = |text: Option<&str>| Cell::new(text.map_or("–".into(), plain));
    // Without subagents a session and its thread are the same.
    let thread = call.thread.as_deref().filter(|thread| Some(*thread) != call.session.as_deref());
    let what = match (call.method.as_str(), call.tool.as_deref()) {
        ("tools/call", Some(tool)) => plain(tool).into_owned(),
        (method, Some(name)) => format!("{} {}", plain(method), plain(name)),
        (method, None) => plain(method).into_owned(),
    };
    let forged = forged(call);
    let forged = (!forged.is_empty()).then(|| format!("forged: {}", plain(&forged.join(", "))));
    let reason = call.reason.as_deref().map(|reason| plain(reason).into_owned());
    let note: Vec<String> = reason.into_iter().chain(forged).collect();
    vec![
        Cell::new(time::short(call.at)),
        or_none(call.host.as_deref()),
        or_none(call.session.as_deref()),
        Cell::new(thread.map_or("".into(), plain)),
        Cell::new(plain(&call.server)),
        Cell::new(what),
        Cell::new(call.outcome.map_or("under way", Outcome::as_str)).tinted(Some(tint(call.outcome))),
        Cell::new(call.duration_ms.map(|ms| format!("{ms:.1}")).unwrap_or_default()),
        Cell::new(note.join("; ")),
    ]
}

fn tint(outcome: Option<Outcome>) -> Tint {
    match outcome {
        Some(Outcome::Ok) => Tint::Good,
        Some(Outcome::ToolError | Outcome::Failed | Outcome::Timeout) => Tint::Bad,
        Some(Outcome::Refused | Outcome::Canceled | Outcome::Unknown) => Tint::Odd,
        None => Tint::Faint,
    }
}
