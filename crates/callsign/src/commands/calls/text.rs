//! Words of others on a terminal: shown, and never obeyed.
//!
//! Ids, names and reasons in the ledger were written by hosts, servers and models.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::Serialize;

/// The text such that a terminal shows it and does nothing else.
pub(in crate::commands) fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' | '\r' | '\t' => shown.extend(character.escape_default()),
            _ if acts(character) => shown.extend(character.escape_unicode()),
            _ => shown.push(character),
        }
    }
    Cow::Owned(shown)
}

/// One line of JSON. What JSON itself would leave as it is and a terminal would not is escaped too: such characters
/// stand in strings only, so this changes no value.
pub(in crate::commands) fn json(value: &impl Serialize) -> serde_json::Result<String> {
    serde_json::to_string(value).map(escape)
}

/// The same for JSON that is written already.
pub(in crate::commands) fn escape(text: String) -> String {
    if !text.contains(acts) {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        if acts(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                let _infallible = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// Whether a terminal does something at this character, or it changes how its neighbours look, or cannot be seen.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// How many columns of a terminal a text takes.
pub(super) fn width(text: &str) -> usize {
    text.chars().map(columns).sum()
}

/// The text in so many columns. Both ends of an id tell it from others, so the middle goes.
pub(super) fn shorten(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    let room = most.saturating_sub(1);
    let head = take(text.chars(), room.div_ceil(2));
    let tail = take(text.chars().rev(), room - width(&head).min(room));
    Cow::Owned(head + "…" + &tail.chars().rev().collect::<String>())
}

/// The same for what is read from its beginning.
pub(super) fn shorten_end(text: &str, most: usize) -> Cow<'_, str> {
    if width(text) <= most {
        return Cow::Borrowed(text);
    }
    Cow::Owned(take(text.chars(), most.saturating_sub(1)) + "…")
}

fn take(characters: impl Iterator<Item = char>, room: usize) -> String {
    let mut taken = 0;
    characters
        .take_while(|character| {
            taken += columns(*character);
            taken <= room
        })
        .collect()
}

/// Marks take none, and what is written in East Asia or drawn takes two. Rough: a table that is a column off is all
/// that depends on it.
fn columns(character: char) -> usize {
    match character {
        '\u{300}'..='\u{36f}' | '\u{fe00}'..='\u{fe0f}' | '\u{20d0}'..='\u{20ff}' => 0,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1faff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        for (text, shown) in [
            ("ses_1", "ses_1"),
            ("żółw 日本", "żółw 日本"),
            ("\u{1b}[2J\u{7}x", "\\u{1b}[2J\\u{7}x"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("user\u{202e}txt.exe\u{200b}", "user\\u{202e}txt.exe\\u{200b}"),
        ] {
            assert_eq!(plain(text), shown);
        }
        let all: String = (0..=0x1_0ffff).filter_map(char::from_u32).collect();
        assert!(!plain(&all).contains(acts));
        let written = json(&all).unwrap();
        assert!(!written.contains(acts));
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), all);
    }

    #[test]
    fn an_id_keeps_both_ends_and_its_place() {
        assert_eq!(shorten("ses_0123456789", 14), "ses_0123456789");
        assert_eq!(shorten("ses_0123456789", 9), "ses_…6789");
        assert_eq!(shorten("ses_0123456789", 6), "ses…89");
        assert_eq!(shorten("ses_0123456789", 1), "…");
        assert_eq!(shorten_end("because of it", 8), "because…");
        assert_eq!(width(&shorten("日本語日本語日本語", 8)), 7);
    }
}
