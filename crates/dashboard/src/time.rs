//! Times and durations as people read them. All times are UTC.

use maud::{Markup, html};

const DAY: u64 = 86_400_000;
/// Days from the year 0, beginning in March, to 1970.
const EPOCH: u64 = 719_468;

/// `12:00:00`, with the date in front where that is not today's. The exact time is in the title.
pub(crate) fn at(at: u64, now: u64) -> Markup {
    let (date, clock) = parts(at);
    let exact = format!("{date}T{clock}.{:03}Z", at % 1000);
    html! {
        time datetime=(exact) title=(exact) {
            @if at / DAY != now / DAY { span.date { (date) } " " }
            (clock)
        }
    }
}

fn parts(at: u64) -> (String, String) {
    let seconds = at / 1000;
    let (year, month, day) = date(at / DAY);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60),
    )
}

/// Years begin in March here, so that the odd day comes last.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next, month, day)
}

/// `850 µs`, `12.3 ms`, `4.56 s`, `3 min 20 s`.
pub(crate) fn took(ms: f64) -> String {
    match ms {
        ms if !ms.is_finite() || ms < 0.0 => "?".to_owned(),
        ms if ms < 1.0 => format!("{:.0} µs", ms * 1000.0),
        ms if ms < 100.0 => format!("{ms:.1} ms"),
        ms if ms < 1000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.2} s", ms / 1000.0),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is not negative, and cut on purpose"
        )]
        ms => between((ms as u64).min(u64::MAX / 2)),
    }
}

/// The same of whole milliseconds, coarser.
pub(crate) fn between(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {:02} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (at, date, clock) in [
            (0, "1970-01-01", "00:00:00"),
            (951_782_400_123, "2000-02-29", "00:00:00"),
            (1_709_251_199_999, "2024-02-29", "23:59:59"),
            (4_102_444_800_000, "2100-01-01", "00:00:00"),
        ] {
            assert_eq!(parts(at), (date.to_owned(), clock.to_owned()));
        }
        let now = 1_709_251_199_999;
        assert!(!at(now - 1000, now).into_string().contains("span"));
        assert!(at(now - DAY, now).into_string().contains("2024-02-28</span>"));
    }

    #[test]
    fn durations_have_their_unit() {
        for (ms, expected) in [
            (0.85, "850 µs"),
            (12.34, "12.3 ms"),
            (345.6, "346 ms"),
            (4560.0, "4.56 s"),
            (200_000.0, "3 min 20 s"),
            (f64::NAN, "?"),
            (-1.0, "?"),
        ] {
            assert_eq!(took(ms), expected);
        }
        assert_eq!(between(90_061_000), "1 d 01 h");
        assert_eq!(between(3_661_000), "1 h 01 min");
    }
}
