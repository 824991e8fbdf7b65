//! Names that stand twice in one object.

use std::collections::HashSet;
use std::str::Chars;

/// A name that is there twice in some object of this text, which is JSON. Numbers and characters that few readers can
/// take are passed over: what stands behind them counts.
pub(crate) fn repeated(json: &str) -> Option<String> {
    let mut open: Vec<Open> = Vec::new();
    let mut characters = json.chars();
    while let Some(character) = characters.next() {
        match character {
            '{' => open.push(Open::Object { names: HashSet::new(), name_is_next: true }),
            '[' => open.push(Open::List),
            '}' | ']' => drop(open.pop()),
            ',' => {
                if let Some(Open::Object { name_is_next, .. }) = open.last_mut() {
                    *name_is_next = true;
                }
            }
            '"' => {
                let text = string(&mut characters);
                if let Some(Open::Object { names, name_is_next: next @ true }) = open.last_mut() {
                    *next = false;
                    if names.contains(&text) {
                        return Some(String::from_utf16_lossy(&text));
                    }
                    names.insert(text);
                }
            }
            _ => {}
        }
    }
    None
}

enum Open {
    Object { names: HashSet<Vec<u16>>, name_is_next: bool },
    List,
}

/// The rest of a string, behind its first quote. In units of 16 bits: half a character is one of them.
fn string(characters: &mut Chars<'_>) -> Vec<u16> {
    let mut text = Vec::new();
    while let Some(character) = characters.next() {
        match character {
            '"' => break,
            '\\' => text.extend(escaped(characters)),
            plain => text.extend_from_slice(plain.encode_utf16(&mut [0; 2])),
        }
    }
    text
}

fn escaped(characters: &mut Chars<'_>) -> Option<u16> {
    let character = characters.next()?;
    let plain = match character {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'u' => {
            let digits: String = characters.by_ref().take(4).collect();
            return u16::from_str_radix(&digits, 16).ok();
        }
        other => other,
    };
    u16::try_from(u32::from(plain)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_twice_is_found_at_any_depth_and_in_any_spelling() {
        let check =
            |json: &str, expected: Option<&str>| assert_eq!(repeated(json).as_deref(), expected, "{json}");
        check(r#"{"a":{"b":[{"c":1,"\u0063":2}]},"d":null}"#, Some("c"));
        check(r#"{"x":1e400,"path":"/ok","path":"/etc"}"#, Some("path"));
        check(r#"{"x":"\ud800","\udc00":1,"path":"/ok","path":"/etc"}"#, Some("path"));
        check(r#"{"\ud800":1,"\uD800":2}"#, Some("\u{fffd}"));
        check(r#"{"a":{"a":[1.5,-2,true,"a","a"]},"b":{"a":1},"c":"a\",\"a"}"#, None);
        check(r#"[{"a":1},{"a":1}]"#, None);
        let many: Vec<String> = (0..100).map(|number| format!("\"m{number}\":0")).collect();
        check(&format!("{{{}}}", many.join(",")), None);
        check(&format!("{{{},\"m77\":1}}", many.join(",")), Some("m77"));
    }
}
