//! Durations and sizes with their units.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::context::Context;
use super::table::Field;

/// Longer ones are typing errors, and would overflow clocks.
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// The same of ages.
const OLDEST: Duration = Duration::from_hours(36_500 * 24);

pub(super) fn duration(context: Context<'_>, field: &Field<'_>) -> Option<Duration> {
    let expected = "a duration such as \"10m\", \"30s\" or \"500ms\"";
    if !field.is_string() {
        return field.wrong(context, expected, "");
    }
    let text = field.string(context)?;
    let problem = match parse_duration(text) {
        Some(value) if value.is_zero() => format!("{} must be longer than nothing", field.label),
        Some(value) if value > LONGEST => format!("{} must be at most a year, \"8760h\"", field.label),
        Some(value) => return Some(value),
        None => format!("{} must be {expected}, not {text:?}", field.label),
    };
    context.mistake(field.at, problem);
    None
}

/// How long something is kept. `Some(None)`: without end.
#[expect(clippy::option_option, reason = "the outer is whether it is well written, the inner what it says")]
pub(super) fn age(context: Context<'_>, field: &Field<'_>) -> Option<Option<Duration>> {
    let expected = "an age such as \"90d\" or \"12h\", or \"forever\"";
    if !field.is_string() {
        return field.wrong(context, expected, "");
    }
    let text = field.string(context)?;
    if text == "forever" {
        return Some(None);
    }
    let days =
        text.strip_suffix('d').and_then(|number| split_unit(number)).filter(|(_, rest)| rest.is_empty());
    let value = match days {
        Some((days, _)) => Some(Duration::from_secs(days.saturating_mul(24 * 3600))),
        None => parse_duration(text),
    };
    let problem = match value {
        Some(value) if value.is_zero() => format!("{} must be longer than nothing", field.label),
        Some(value) if value > OLDEST => {
            format!("{} must be at most a century, \"36500d\"; \"forever\" is longer", field.label)
        }
        Some(value) => return Some(Some(value)),
        None => format!("{} must be {expected}, not {text:?}", field.label),
    };
    context.mistake(field.at, problem);
    None
}

/// `"16MiB"`, or a plain integer of bytes.
pub(super) fn size(context: Context<'_>, field: &Field<'_>) -> Option<usize> {
    let expected = "a size such as \"16MiB\" or \"4KiB\", or a number of bytes";
    let value = match field.integer() {
        Some(number) => number.ok(),
        None if !field.is_string() => return field.wrong(context, expected, ""),
        None => parse_size(field.string(context)?),
    };
    let value = value.and_then(|value| usize::try_from(value).ok());
    if value.is_none_or(|value| value == 0) {
        context.mistake(field.at, format!("{} must be {expected}", field.label));
        return None;
    }
    value
}

/// An integer of at least 1.
pub(super) fn count(context: Context<'_>, field: &Field<'_>) -> Option<usize> {
    let Some(number) = field.integer() else {
        return field.wrong(context, "a whole number", "");
    };
    let value = number.ok().and_then(|number| usize::try_from(number).ok()).filter(|value| *value > 0);
    if value.is_none() {
        context.mistake(field.at, format!("{} must be 1 or more", field.label));
    }
    value
}

/// An integer of `unit` in `range`.
pub(super) fn within(
    context: Context<'_>,
    field: &Field<'_>,
    range: RangeInclusive<u16>,
    unit: &str,
) -> Option<u16> {
    let Some(number) = field.integer() else {
        return field.wrong(context, &format!("a whole number of {unit}"), "");
    };
    let value = number.ok().and_then(|number| u16::try_from(number).ok()).filter(|it| range.contains(it));
    if value.is_none() {
        let (least, most) = (range.start(), range.end());
        context.mistake(field.at, format!("{} must be {least} to {most} {unit}", field.label));
    }
    value
}

/// An integer of seconds; 0 is one.
pub(super) fn seconds(context: Context<'_>, field: &Field<'_>) -> Option<Duration> {
    let Some(number) = field.integer() else {
        return field.wrong(context, "a whole number of seconds", "");
    };
    let value = number.ok().map(Duration::from_secs).filter(|value| *value <= LONGEST);
    if value.is_none() {
        let longest = LONGEST.as_secs();
        context.mistake(field.at, format!("{} must be 0 to {longest}, a year of seconds", field.label));
    }
    value
}

/// The largest number that fits stands for all beyond: it is refused as too long, not as badly written.
fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = split_unit(text)?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => Some(Duration::from_secs(number.saturating_mul(60))),
        "h" => Some(Duration::from_secs(number.saturating_mul(3600))),
        _ => None,
    }
}

fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = split_unit(text)?;
    let scale: u64 = match unit {
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(scale)
}

fn split_unit(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit))
}
