//! Contents that are no text, as git's patches carry them: deflated, in lines of base 85.

use miniz_oxide::deflate::compress_to_vec_zlib;

const ALPHABET: &[u8; 85] =
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
/// Bytes in one line.
const LINE: usize = 52;
const LEVEL: u8 = 6;

/// One direction: the whole content.
pub(crate) fn literal(content: &[u8]) -> String {
    let mut text = format!("literal {}\n", content.len());
    for line in compress_to_vec_zlib(content, LEVEL).chunks(LINE) {
        text.push(length(line.len()));
        for word in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..word.len()].copy_from_slice(word);
            let mut rest = u32::from_be_bytes(bytes);
            let mut digits = ['0'; 5];
            for digit in digits.iter_mut().rev() {
                *digit = char::from(ALPHABET[(rest % 85) as usize]);
                rest /= 85;
            }
            text.extend(digits);
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// A to Z for 1 to 26, a to z for 27 to 52.
fn length(count: usize) -> char {
    let count = u8::try_from(count).unwrap_or(52);
    char::from(if count <= 26 { b'A' + count - 1 } else { b'a' + count - 27 })
}
