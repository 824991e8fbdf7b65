//! Rows in columns that fit a terminal.

use std::io::IsTerminal as _;

use super::text::{shorten, shorten_end, width};
use crate::config::Environment;

/// Narrower terminals wrap lines; a table with less in it would say nothing.
const NARROWEST: usize = 80;

/// What is known of where a table goes.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::commands) struct Page {
    /// None: as wide as it gets. Programs that read it want whole ids.
    pub(in crate::commands) width: Option<usize>,
    pub(in crate::commands) colour: bool,
}

impl Page {
    pub(in crate::commands) fn of_stdout(environment: Environment<'_>) -> Self {
        let stdout = std::io::stdout();
        let terminal = stdout.is_terminal();
        let said = environment.get("COLUMNS").and_then(|columns| columns.trim().parse().ok());
        let asked = || {
            let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|_| terminal)?;
            Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
        };
        let plain =
            |name, value: &str| environment.get(name).is_some_and(|is| value.is_empty() || is == value);
        Self {
            width: said.or_else(asked).map(|width: usize| width.max(NARROWEST)),
            colour: terminal && !plain("NO_COLOR", "") && !plain("TERM", "dumb"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(in crate::commands) struct Column {
    title: &'static str,
    /// How narrow it may become. None: what is in it is never cut.
    least: Option<usize>,
    /// Left out where no row has anything in it.
    optional: bool,
    align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Align {
    Left,
    Right,
    /// The rest of the line: read from its beginning, and nothing follows.
    Rest,
}

impl Column {
    pub(in crate::commands) const fn fixed(title: &'static str) -> Self {
        Self { title, least: None, optional: false, align: Align::Left }
    }

    pub(in crate::commands) const fn number(title: &'static str) -> Self {
        Self { align: Align::Right, ..Self::fixed(title) }
    }

    pub(in crate::commands) const fn id(title: &'static str, least: usize) -> Self {
        Self { least: Some(least), ..Self::fixed(title) }
    }

    pub(in crate::commands) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    pub(in crate::commands) const fn rest(title: &'static str, least: usize) -> Self {
        Self { align: Align::Rest, ..Self::id(title, least).optional() }
    }
}

#[derive(Debug, Clone, Default)]
pub(in crate::commands) struct Cell {
    /// The lines of a tree, which are never cut.
    lead: String,
    text: String,
    tint: Option<Tint>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Tint {
    Good,
    Bad,
    Odd,
    Faint,
}

impl Tint {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Odd => "33",
            Self::Faint => "2",
        }
    }
}

impl Cell {
    pub(in crate::commands) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    pub(in crate::commands) fn led(lead: String, text: impl Into<String>) -> Self {
        Self { lead, text: text.into(), tint: None }
    }

    pub(in crate::commands) fn tinted(self, tint: Option<Tint>) -> Self {
        Self { tint, ..self }
    }

    fn width(&self) -> usize {
        width(&self.lead) + width(&self.text)
    }
}

/// How wide each column is.
#[derive(Debug)]
pub(in crate::commands) struct Layout {
    columns: &'static [Column],
    /// None: it is left out.
    widths: Vec<Option<usize>>,
    gap: usize,
    page: Page,
}

/// Whether rows may come that were not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum More {
    No,
    Perhaps,
}

impl Layout {
    /// Fits the columns to these rows, the widest first.
    pub(in crate::commands) fn fit(
        columns: &'static [Column],
        rows: &[Vec<Cell>],
        page: Page,
        more: More,
    ) -> Self {
        let widths = columns.iter().enumerate().map(|(at, column)| {
            let widest = rows.iter().filter_map(|row| row.get(at)).map(Cell::width).max().unwrap_or(0);
            if widest == 0 && column.optional && more == More::No {
                return None;
            }
            Some(widest.max(width(column.title)).max(column.least.unwrap_or(0)))
        });
        let mut layout = Self { columns, widths: widths.collect(), gap: 2, page };
        if let Some(most) = page.width {
            layout.shrink(most);
        }
        layout
    }

    fn shrink(&mut self, most: usize) {
        // Nothing is shown wider than the page, so no column needs to be taken down from further up.
        for width in self.widths.iter_mut().flatten() {
            *width = (*width).min(most);
        }
        while self.total() > most {
            let shrinkable = self.columns.iter().zip(&mut self.widths).filter_map(|(column, width)| {
                let (least, width) = (column.least?, width.as_mut()?);
                (*width > least).then_some(width)
            });
            if let Some(widest) = shrinkable.max_by_key(|width| **width) {
                *widest -= 1;
            } else if self.gap > 1 {
                self.gap = 1;
            } else {
                break;
            }
        }
    }

    fn total(&self) -> usize {
        let shown = self.widths.iter().flatten();
        shown.clone().sum::<usize>() + self.gap * shown.count().saturating_sub(1)
    }

    pub(in crate::commands) fn head(&self) -> String {
        let titles: Vec<Cell> = self.columns.iter().map(|column| Cell::new(column.title)).collect();
        self.line(&titles)
    }

    pub(in crate::commands) fn line(&self, row: &[Cell]) -> String {
        let mut line = String::new();
        let mut owed = 0;
        let shown = self.columns.iter().zip(&self.widths).zip(row);
        for ((column, width), cell) in
            shown.filter_map(|((column, width), cell)| Some(((column, (*width)?), cell)))
        {
            let room = width.saturating_sub(self::width(&cell.lead));
            let text = match (self.page.width, column.align) {
                (None, _) => cell.text.as_str().into(),
                (Some(_), Align::Rest) => shorten_end(&cell.text, room),
                (Some(_), Align::Left | Align::Right) if column.least.is_some() => shorten(&cell.text, room),
                (Some(_), Align::Left | Align::Right) => cell.text.as_str().into(),
            };
            let spare = room.saturating_sub(self::width(&text));
            let before = if column.align == Align::Right { spare } else { 0 };
            // Blanks are written when something follows them.
            if cell.lead.is_empty() && text.is_empty() {
                owed += spare;
            } else {
                line.extend(std::iter::repeat_n(' ', owed + before));
                line.push_str(&cell.lead);
                self.tint(&mut line, &text, cell.tint);
                owed = spare - before;
            }
            owed += self.gap;
        }
        line
    }

    fn tint(&self, line: &mut String, text: &str, tint: Option<Tint>) {
        match tint.filter(|_| self.page.colour) {
            Some(tint) => line.extend(["\u{1b}[", tint.code(), "m", text, "\u{1b}[0m"]),
            None => line.push_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 5] = [
        Column::fixed("TIME"),
        Column::id("SESSION", 6),
        Column::id("THREAD", 5).optional(),
        Column::number("MS"),
        Column::rest("NOTE", 6),
    ];

    fn row(texts: [&str; 5]) -> Vec<Cell> {
        texts.map(Cell::new).to_vec()
    }

    #[track_caller]
    fn check(rows: &[Vec<Cell>], width: Option<usize>, expected: &[&str]) {
        let layout = Layout::fit(&COLUMNS, rows, Page { width, colour: false }, More::No);
        let lines: Vec<String> =
            std::iter::once(layout.head()).chain(rows.iter().map(|row| layout.line(row))).collect();
        assert_eq!(lines, expected);
    }

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        check(
            &[row(["12:00", "ses_1", "", "1.5", ""]), row(["12:01", "ses_22222", "", "100.0", "why"])],
            None,
            &["TIME   SESSION       MS  NOTE", "12:00  ses_1        1.5", "12:01  ses_22222  100.0  why"],
        );
    }

    #[test]
    fn the_widest_gives_way_and_nothing_is_wider_than_the_page() {
        let rows = [row(["12:00", "ses_0123456789", "t", "1.5", "a long story of this"])];
        check(
            &rows,
            Some(45),
            &["TIME   SESSION       THREAD   MS  NOTE", "12:00  ses_01…56789  t       1.5  a long sto…"],
        );
        let layout = Layout::fit(&COLUMNS, &rows, Page { width: Some(30), colour: false }, More::No);
        assert!(width(&layout.line(&rows[0])) <= 30, "{}", layout.line(&rows[0]));
    }

    #[test]
    fn colours_take_no_room() {
        let cells = |tint| vec![Cell::new("ok").tinted(tint), Cell::new("x")];
        let page = Page { width: None, colour: true };
        let layout = Layout::fit(&COLUMNS, &[cells(None)], page, More::No);
        assert_eq!(layout.line(&cells(Some(Tint::Good))), "\u{1b}[32mok\u{1b}[0m    x");
        assert_eq!(layout.line(&cells(None)), "ok    x");
    }
}
