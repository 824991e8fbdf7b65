//! Words of others on a page: shown, never obeyed.
//!
//! Three things can go wrong with a text: it is markup, it changes how its neighbours look, or it does not end. Markup is escaped by the
//! template; the other two are seen to here, so that no page can forget it.

use std::fmt;

use maud::{Escaper, Render};

/// How many characters stand on a line of a page.
const LINE: usize = 160;
/// How many stand in a block.
pub(crate) const BLOCK: usize = 60_000;

/// A text from outside: a host, a server, a model, a file. Rendered as one line, cut where it is long.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Text(String);

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it came. For addresses and for looking things up, not for showing.
    pub(crate) fn raw(&self) -> &str {
        &self.0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.trim().is_empty()
    }

    /// On one line, in at most so many characters.
    pub(crate) fn line(&self, most: usize) -> Shown<'_> {
        Shown { text: &self.0, most, lines: false, counts: true }
    }

    /// Its beginning, where the rest can be seen elsewhere.
    pub(crate) fn start(&self, most: usize) -> Shown<'_> {
        Shown { counts: false, ..self.line(most) }
    }

    /// On as many lines as it has.
    pub(crate) fn block(&self) -> Shown<'_> {
        Shown { text: &self.0, most: BLOCK, lines: true, counts: true }
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Render for Text {
    fn render_to(&self, out: &mut String) {
        self.line(LINE).render_to(out);
    }
}

/// A part of a text that is long or has lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shown<'a> {
    text: &'a str,
    most: usize,
    lines: bool,
    /// Says how much is left out.
    counts: bool,
}

impl<'a> Shown<'a> {
    /// One line of a text that was taken apart by others.
    pub(crate) fn of_line(text: &'a str, most: usize) -> Self {
        Self { text, most, lines: false, counts: true }
    }
}

impl Render for Shown<'_> {
    fn render_to(&self, out: &mut String) {
        use fmt::Write as _;
        let end = self.text.char_indices().nth(self.most).map_or(self.text.len(), |(at, _)| at);
        let (shown, rest) = self.text.split_at(end);
        let mut escaper = Escaper::new(out);
        for character in shown.chars() {
            let _infallible = match character {
                '\n' | '\t' if self.lines => escaper.write_char(character),
                '\n' | '\r' | '\t' => write!(escaper, "{}", character.escape_default()),
                _ if acts(character) => write!(escaper, "{}", character.escape_unicode()),
                _ => escaper.write_char(character),
            };
        }
        let _infallible = match rest.chars().count() as u64 {
            0 => Ok(()),
            left if self.counts => write!(escaper, "… {} more", grouped(left)),
            _ => escaper.write_char('…'),
        };
    }
}

/// Whether a character changes how its neighbours look, or cannot be seen.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0d}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// `12,345`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1.5 KB`.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["B", "KB", "MB", "GB"];
    let (mut whole, mut tenths, mut unit) = (number, 0, 0);
    while whole >= 1000 && unit + 1 < units.len() {
        tenths = whole % 1000 / 100;
        whole /= 1000;
        unit += 1;
    }
    if unit == 0 || whole >= 100 {
        format!("{} {}", grouped(whole), units[unit])
    } else {
        format!("{whole}.{tenths} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(shown: &impl Render, expected: &str) {
        assert_eq!(shown.render().into_string(), expected);
    }

    #[test]
    fn what_would_act_is_seen_instead() {
        check(&Text::new("a <b> \"c\" & 日本"), "a &lt;b&gt; &quot;c&quot; &amp; 日本");
        check(&Text::new("user\u{202e}txt.exe\u{200b}"), "user\\u{202e}txt.exe\\u{200b}");
        check(&Text::new("\u{1b}[2J\r\n\t\0"), "\\u{1b}[2J\\r\\n\\t\\u{0}");
        check(&Text::new("a\n\tb\r\u{7}").block(), "a\n\tb\\r\\u{7}");
        let all: String = (0..=0x1_0ffff).filter_map(char::from_u32).collect();
        let all = Text::new(all);
        assert!(
            !Shown { text: all.raw(), most: usize::MAX, lines: false, counts: true }
                .render()
                .into_string()
                .contains(acts)
        );
    }

    #[test]
    fn what_is_long_is_cut_and_says_by_how_much() {
        check(&Text::new("日本語日本語").line(2), "日本… 4 more");
        check(&Text::new("ab").line(2), "ab");
        check(&Text::new("abc").start(2), "ab…");
        let long = Text::new("x".repeat(5000));
        check(&long, &format!("{}… 4,840 more", "x".repeat(160)));
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0, 999, 1500, 123_456, 5_250_000].map(bytes),
            ["0 B", "999 B", "1.5 KB", "123 KB", "5.2 MB"]
        );
    }
}
