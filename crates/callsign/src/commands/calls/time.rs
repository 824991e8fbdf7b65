//! Times as people write and read them: RFC 3339, dates, and how long ago.

use std::time::Duration;

const DAY: u64 = 86_400;
/// Days from the year 0, beginning in March, to 1970.
const EPOCH: u64 = 719_468;

/// A moment that somebody named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum When {
    /// Unix milliseconds.
    At(u64),
    Ago(Duration),
}

impl When {
    pub(in crate::commands) fn parse(text: &str) -> Result<Self, String> {
        let found = ago(text).map(Self::Ago).or_else(|| moment(text).map(Self::At));
        let expected =
            "write a time such as 2026-11-16T12:00:00Z, a date, or how long ago, such as 10m, 2h or 3d";
        found.ok_or_else(|| expected.to_owned())
    }

    /// Unix milliseconds. `now` is the same.
    pub(in crate::commands) fn resolve(self, now: u64) -> u64 {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

/// `2026-11-16T12:00:00.000Z`.
pub(in crate::commands) fn rfc3339(at: u64) -> String {
    let (date, time) = parts(at);
    format!("{date}T{time}.{:03}Z", at % 1000)
}

/// `2026-11-16 12:00:00`, for a table that says which zone that is in.
pub(in crate::commands) fn short(at: u64) -> String {
    let (date, time) = parts(at);
    format!("{date} {time}")
}

fn parts(at: u64) -> (String, String) {
    let seconds = at / 1000;
    let (year, month, day) = date(seconds / DAY);
    let (hour, minute, second) = (seconds % DAY / 3600, seconds / 60 % 60, seconds % 60);
    (format!("{year:04}-{month:02}-{day:02}"), format!("{hour:02}:{minute:02}:{second:02}"))
}

/// Year, month and day of a day since 1970. Years begin in March here, so that the odd day comes last.
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

/// The day since 1970 of a date; none where there is no such day, or it is before.
fn day_of(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (of_march, month_of_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (of_march / 400, of_march % 400);
    let of_year = (153 * month_of_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    // A 30th of February has a number too, and that of another day.
    days.checked_sub(EPOCH).filter(|days| date(*days) == (year, month, day))
}

fn moment(text: &str) -> Option<u64> {
    let Some((day, rest)) = text.split_once(['T', 't', ' ']) else { return Some(midnight(text)? * 1000) };
    let (clock, east) = zone(rest)?;
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, rest)| (clock, Some(rest)));
    let mut fields = clock.split(':');
    let (hour, minute) = (two(fields.next()?)?, two(fields.next()?)?);
    let second = fields.next().map_or(Some(0), two)?;
    if fields.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let millis = fraction.map_or(Some(0), thousandths)?;
    let seconds = (midnight(day)? + hour * 3600 + minute * 60 + second).checked_add_signed(-east)?;
    Some(seconds * 1000 + millis)
}

/// The seconds since 1970 in which a date begins.
fn midnight(text: &str) -> Option<u64> {
    let mut fields = text.split('-');
    let (year, month, day) = (fields.next()?, two(fields.next()?)?, two(fields.next()?)?);
    let year = digits(year).filter(|_| year.len() == 4 && fields.next().is_none())?;
    Some(day_of(year, month, day)? * DAY)
}

/// What is before the zone, and how many seconds the zone is east. None said: UTC.
fn zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.rfind(['+', '-']) else { return Some((text, 0)) };
    let (hours, minutes) = text[at + 1..].split_once(':')?;
    let (hours, minutes) =
        (two(hours).filter(|hours| *hours < 24)?, two(minutes).filter(|minutes| *minutes < 60)?);
    let east = i64::try_from(hours * 3600 + minutes * 60).ok()?;
    Some((&text[..at], if text[at..].starts_with('-') { -east } else { east }))
}

fn thousandths(text: &str) -> Option<u64> {
    digits(text)?;
    digits(format!("{text:0<3}").get(..3)?)
}

fn two(text: &str) -> Option<u64> {
    digits(text).filter(|_| text.len() == 2)
}

fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if plain { text.get(..text.len().min(18))?.parse().ok() } else { None }
}

fn ago(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => DAY,
        'w' => 7 * DAY,
        _ => return None,
    };
    let count = digits(text.strip_suffix(unit)?)?;
    Some(Duration::from_secs(count.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_and_read_alike() {
        for (at, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_794_812_400_000, "2026-11-16T07:00:00.000Z"),
            (4_102_444_800_000, "2100-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(at), text);
            assert_eq!(When::parse(text), Ok(When::At(at)));
        }
        assert_eq!(short(1_709_251_199_999), "2024-02-29 23:59:59");
        for days in (0..2_932_896).step_by(97) {
            let (year, month, day) = date(days);
            assert_eq!(day_of(year, month, day), Some(days));
        }
    }

    #[test]
    fn people_write_times_in_many_ways() {
        for (text, at) in [
            ("2024-02-29", 1_709_164_800_000),
            ("2024-02-29T12:30Z", 1_709_209_800_000),
            ("2024-02-29 12:30", 1_709_209_800_000),
            ("2024-02-29t12:30:00.5z", 1_709_209_800_500),
            ("2024-02-29T12:30:00.123456789Z", 1_709_209_800_123),
            ("2024-02-29T14:30:00+02:00", 1_709_209_800_000),
            ("2024-02-29T07:00:00-05:30", 1_709_209_800_000),
        ] {
            assert_eq!(When::parse(text), Ok(When::At(at)), "{text}");
        }
        let now = 1_709_209_800_000;
        for (text, seconds) in [("30s", 30), ("10m", 600), ("2h", 7200), ("3d", 259_200), ("1w", 604_800)] {
            assert_eq!(When::parse(text).unwrap().resolve(now), now - seconds * 1000, "{text}");
        }
        assert_eq!(When::parse("99999999d").unwrap().resolve(now), 0);
    }

    #[test]
    fn what_is_no_time_is_said_to_be_none() {
        for bad in [
            "",
            "m",
            "10",
            "-1h",
            "+1h",
            "10y",
            "1.5h",
            "yesterday",
            "2023-02-29",
            "2024-13-01",
            "2024-1-1",
            "24-01-01",
            "1969-12-31",
            "2024-01-01T25:00:00Z",
            "2024-01-01T12Z",
            "2024-01-01T12:00:00.Z",
            "2024-01-01T12:00:00+2",
            "2024-01-01T12:00:00+24:00",
            "2024-01-01T1:00:00Z",
            "1970-01-01T00:00:00+01:00",
            "99999999999999999999d",
            "2024-01-01-01",
            "日",
            "2024-01-01T日",
        ] {
            assert!(When::parse(bad).is_err(), "{bad}");
        }
    }
}
