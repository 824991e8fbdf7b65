//! Times as clients see them.

use model::session::UnixMillis;

const DAY: u64 = 86_400_000;

/// `2026-11-16T12:00:00.000Z`.
pub(super) fn rfc3339(at: UnixMillis) -> String {
    let UnixMillis(at) = at;
    let (year, month, day) = date(at / DAY);
    let (hour, minute) = (at % DAY / 3_600_000, at / 60_000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", at / 1000 % 60, at % 1000)
}

fn date(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // 400 years are the same number of days wherever they begin.
    let mut year = 1970 + days / 146_097 * 400;
    days %= 146_097;
    loop {
        let length = if leap(year) { 366 } else { 365 };
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let february = if leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_794_830_400_123, "2026-11-16T12:00:00.123Z"),
            (1_798_761_599_000, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(UnixMillis(at)), expected);
        }
    }
}
