//! Numbers: as a script prints the double they are read as.

use super::Fidelity;

/// From here on neighbouring integers share a double.
const LAST_INTEGER: u64 = 1 << 53;

/// The number that `text` begins with, by JSON's grammar.
pub(super) fn scan(text: &str) -> Option<&str> {
    let bytes = text.as_bytes();
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(bytes.first() == Some(&b'-'));
    let whole = digits(at);
    if whole == 0 || (whole > 1 && bytes[at] == b'0') {
        return None;
    }
    at += whole;
    if bytes.get(at) == Some(&b'.') {
        let fraction = digits(at + 1);
        if fraction == 0 {
            return None;
        }
        at += 1 + fraction;
    }
    if matches!(bytes.get(at), Some(b'e' | b'E')) {
        at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
        let exponent = digits(at);
        if exponent == 0 {
            return None;
        }
        at += exponent;
    }
    Some(&text[..at])
}

/// Writes the canonical spelling of a literal that [`scan`] found.
pub(super) fn write(literal: &str, out: &mut Vec<u8>) -> Fidelity {
    if let Some(fidelity) = write_integer(literal, out) {
        return fidelity;
    }
    match literal.parse::<f64>() {
        Ok(value) if value.is_finite() => {
            let start = out.len();
            out.extend_from_slice(print(value, &mut ryu_js::Buffer::new()).as_bytes());
            let same = Decimal::of(literal.as_bytes()) == Decimal::of(&out[start..]);
            if same { Fidelity::Exact } else { Fidelity::Lossy }
        }
        Ok(_) | Err(_) => {
            out.extend_from_slice(literal.as_bytes());
            Fidelity::Lossy
        }
    }
}

/// The common case. None: this is no integer, or one that wants a closer look.
fn write_integer(literal: &str, out: &mut Vec<u8>) -> Option<Fidelity> {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if digits == "0" {
        out.push(b'0');
        return Some(Fidelity::Exact);
    }
    let fits = digits.len() < 16 || digits.parse::<u64>().is_ok_and(|value| value <= LAST_INTEGER);
    if fits {
        out.extend_from_slice(literal.as_bytes());
        return Some(Fidelity::Exact);
    }
    // Even one that a double happens to hold: other readers keep it as an integer, and its neighbours too.
    let value = literal.parse::<f64>().ok().filter(|value| value.is_finite())?;
    out.extend_from_slice(print(value, &mut ryu_js::Buffer::new()).as_bytes());
    Some(Fidelity::Lossy)
}

fn print(value: f64, buffer: &mut ryu_js::Buffer) -> &str {
    if value == 0.0 { "0" } else { buffer.format_finite(value) }
}

/// A decimal value: 0.d₁d₂d₃… × 10^magnitude, without zeros at either end of the digits.
struct Decimal<'a> {
    negative: bool,
    /// May have the point in it.
    digits: &'a [u8],
    magnitude: i64,
}

impl<'a> Decimal<'a> {
    /// `literal`: a number by JSON's grammar.
    fn of(literal: &'a [u8]) -> Self {
        let (negative, unsigned) = match literal {
            [b'-', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let end = unsigned.iter().position(|byte| matches!(byte, b'e' | b'E'));
        let (mantissa, exponent) = unsigned.split_at(end.unwrap_or(unsigned.len()));
        let point = mantissa.iter().position(|byte| *byte == b'.').unwrap_or(mantissa.len());
        let is_significant = |byte: &u8| !matches!(byte, b'0' | b'.');
        let (Some(first), Some(last)) =
            (mantissa.iter().position(is_significant), mantissa.iter().rposition(is_significant))
        else {
            // Zero has no sign and no magnitude.
            return Self { negative: false, digits: &[], magnitude: 0 };
        };
        // 12.5 has its first digit two places before the point, 0.05 one place behind it.
        let places = if first < point { distance(first, point) } else { -distance(point + 1, first) };
        let magnitude = exponent_of(exponent).saturating_add(places);
        Self { negative, digits: &mantissa[first..=last], magnitude }
    }
}

impl PartialEq for Decimal<'_> {
    fn eq(&self, other: &Self) -> bool {
        fn digits<'a>(decimal: &Decimal<'a>) -> impl Iterator<Item = &'a u8> {
            decimal.digits.iter().filter(|byte| **byte != b'.')
        }
        let Self { negative, digits: _, magnitude } = self;
        *negative == other.negative && *magnitude == other.magnitude && digits(self).eq(digits(other))
    }
}

fn distance(from: usize, to: usize) -> i64 {
    i64::try_from(to - from).unwrap_or(i64::MAX)
}

/// `text`: empty, or `e`, a sign or none, and digits. Saturates where no double reaches.
fn exponent_of(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [_, b'-', digits @ ..] => (true, digits),
        [_, b'+', digits @ ..] | [_, digits @ ..] => (false, digits),
        [] => return 0,
    };
    let value = digits
        .iter()
        .fold(0_i64, |value, digit| value.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if negative { -value } else { value }
}
