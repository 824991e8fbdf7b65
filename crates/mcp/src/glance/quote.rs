//! Where a string ends.

use memchr::memchr2;

/// After so many words without quote or backslash, the next one is expected to be far away.
const FAR: usize = 2;

/// The mark of the first byte of a word.
const FIRST: u64 = 0x80;

/// Where the string ends that the bytes begin in. None: not in these bytes.
///
/// `escaped` says whether a backslash escapes the first byte, and is told whether one escapes the first of the
/// next piece.
///
/// Long text is left to `memchr2`. But most strings are short, and text that is itself JSON has an escape every
/// few bytes: there a call costs more than a look at a word.
pub(super) fn past_quote(bytes: &[u8], escaped: &mut bool) -> Option<usize> {
    let mut carry = if std::mem::take(escaped) { FIRST } else { 0 };
    let (mut at, mut plain) = (0, 0);
    loop {
        if let Some(chunk) = bytes[at..].first_chunk::<8>().filter(|_| plain < FAR) {
            let word = u64::from_le_bytes(*chunk);
            let (quotes, backslashes) = (marks(word, b'"'), marks(word, b'\\'));
            let passed;
            (passed, carry) = escapes(backslashes, carry);
            let end = quotes & !passed;
            if end != 0 {
                return Some(at + end.trailing_zeros() as usize / 8 + 1);
            }
            plain = if quotes | backslashes == 0 { plain + 1 } else { 0 };
            at += 8;
            continue;
        }
        at += usize::from(carry != 0);
        let Some(rest) = bytes.get(at..) else {
            *escaped = true;
            return None;
        };
        at += memchr2(b'"', b'\\', rest)? + 1;
        if bytes[at - 1] == b'"' {
            return Some(at);
        }
        (carry, plain) = (FIRST, 0);
    }
}

/// The highest bit of every byte of `word` that is `byte`.
fn marks(word: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let word = word ^ u64::from_ne_bytes([byte; 8]);
    // No sum carries into the next byte, so each mark is exact.
    !(((word & LOW) + LOW) | word | LOW)
}

/// The marks of what is escaped in a word, and what of the next word is: nothing, or its first byte. `carry` is
/// that of this word.
fn escapes(backslashes: u64, carry: u64) -> (u64, u64) {
    let behind = (backslashes << 8) | carry;
    if backslashes & behind == 0 {
        return (behind, backslashes >> 56);
    }
    // A backslash behind another escapes nothing.
    let (mut passed, mut next, mut left) = (carry, 0, backslashes & !carry);
    while left != 0 {
        let first = left & left.wrapping_neg();
        passed |= first << 8;
        next = first >> 56;
        left &= !(first | (first << 8));
    }
    (passed, next)
}
