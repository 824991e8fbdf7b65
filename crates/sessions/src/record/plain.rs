//! Texts and figures as they stand in a line for people.

use model::session::UnixMillis;

const DAY: u64 = 86_400_000;
/// The year 9999, which is as far as a date of four digits goes.
const LATEST: u64 = 253_402_300_799_999;

/// One line that drives no terminal, whoever made the text: at most `most` bytes, never empty, and without two spaces in
/// a row. What cannot be shown is replaced by something that can: nothing is hidden.
pub(super) fn plain(text: &str, most: usize) -> String {
    const CUT: char = '…';
    let room = most.saturating_sub(CUT.len_utf8());
    let mut line = String::new();
    let mut gap = false;
    for character in text.chars() {
        // Ends of lines are among them, in every spelling.
        if character.is_whitespace() {
            gap = !line.is_empty();
            continue;
        }
        let character = shown(character);
        if line.len() + usize::from(gap) + character.len_utf8() > room {
            line.push(CUT);
            return line;
        }
        if gap {
            line.push(' ');
            gap = false;
        }
        line.push(character);
    }
    if line.is_empty() { "-".to_owned() } else { line }
}

fn shown(character: char) -> char {
    match character {
        '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(character)).unwrap_or(char::REPLACEMENT_CHARACTER),
        '\x7f' => '␡',
        // The second set of control characters: some terminals take them for escapes.
        '\u{80}'..='\u{9f}' => char::REPLACEMENT_CHARACTER,
        // What turns the direction of text around, and what is there without being seen. Joiners stay: scripts need them.
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' => {
            char::REPLACEMENT_CHARACTER
        }
        '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}' => {
            char::REPLACEMENT_CHARACTER
        }
        other => other,
    }
}

/// `12:34:56.789`, UTC.
pub(super) fn clock(at: UnixMillis) -> String {
    let of_day = at.0 % DAY;
    let (hours, minutes) = (of_day / 3_600_000, of_day / 60_000 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", of_day / 1000 % 60, of_day % 1000)
}

/// `2026-11-16`, UTC.
pub(super) fn date(at: UnixMillis) -> String {
    let mut days = at.0.min(LATEST) / DAY;
    let mut year = 1970;
    while days >= 365 + leap(year) {
        days -= 365 + leap(year);
        year += 1;
    }
    let mut month = 1;
    for length in [31, 28 + leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

fn leap(year: u64) -> u64 {
    u64::from(year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400))
}

/// `12.3 s`, `2 min 05 s`, `1 h 02 min`.
pub(super) fn took(millis: u64) -> String {
    let seconds = millis / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600.. => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// `300 B`, `1.2 kB`, `3.4 MB`.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1000 => format!("{count} B"),
        1000..1_000_000 => format!("{}.{} kB", count / 1000, count % 1000 / 100),
        1_000_000.. => format!("{}.{} MB", count / 1_000_000, count % 1_000_000 / 100_000),
    }
}

/// `1,234`.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(plain(text, 60), expected);
    }

    #[test]
    fn what_drives_a_terminal_is_shown_instead() {
        check("ls -la", "ls -la");
        check("", "-");
        check(" \n\t ", "-");
        check("one\r\n\ttwo   three\u{2028}four\u{85}five ", "one two three four five");
        check("\x1b[31mred\x1b[0m", "␛[31mred␛[0m");
        check("\x1b]52;c;cm0gLXJm\x07", "␛]52;c;cm0gLXJm␇");
        check("\u{9b}2J\u{9d}0;title\u{9c}", "\u{fffd}2J\u{fffd}0;title\u{fffd}");
        check("a\0b\x7f\x08", "a␀b␡␈");
        check("evil\u{202e}txt.exe\u{2066}\u{feff}", "evil\u{fffd}txt.exe\u{fffd}\u{fffd}");
        check("größe 大きさ 👩\u{200d}💻", "größe 大きさ 👩\u{200d}💻");
        check(&"x".repeat(100), &format!("{}…", "x".repeat(57)));
        check(&"ü".repeat(100), &format!("{}…", "ü".repeat(28)));
    }

    #[test]
    fn figures_are_written_for_people() {
        let row = |at| format!("{} {}", date(UnixMillis(at)), clock(UnixMillis(at)));
        assert_eq!(row(0), "1970-01-01 00:00:00.000");
        assert_eq!(row(951_782_399_999), "2000-02-28 23:59:59.999");
        assert_eq!(row(951_868_799_999), "2000-02-29 23:59:59.999");
        assert_eq!(row(951_868_800_000), "2000-03-01 00:00:00.000");
        assert_eq!(row(1_798_761_599_001), "2026-12-31 23:59:59.001");
        assert_eq!(row(4_107_542_400_000), "2100-03-01 00:00:00.000");
        assert_eq!(date(UnixMillis(u64::MAX)), "9999-12-31");
        let all = [0, 12_345, 59_999, 60_000, 125_000, 3_600_000, 3_725_000].map(took);
        assert_eq!(
            all,
            ["0.0 s", "12.3 s", "59.9 s", "1 min 00 s", "2 min 05 s", "1 h 00 min", "1 h 02 min"]
        );
        assert_eq!([999, 1234, 999_999, 3_456_789].map(bytes), ["999 B", "1.2 kB", "999.9 kB", "3.4 MB"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    proptest! {
        #[test]
        fn any_text_is_one_line_within_its_length(text in any::<String>(), most in 4_usize..50) {
            let line = plain(&text, most);
            prop_assert!(!line.is_empty() && line.len() <= most);
            prop_assert!(!line.chars().any(char::is_control));
            prop_assert!(!line.contains("  ") && line.trim() == line);
            prop_assert_eq!(plain(&line, most + 3), line);
        }
    }
}
