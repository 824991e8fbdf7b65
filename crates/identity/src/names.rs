//! Our own names on the wire. Whatever a caller sends under them is removed before ours is written.

/// `params._meta`: who calls.
pub const META_IDENTITY: &str = "dev.callsign/identity";
/// `params._meta`: the same, signed.
pub const META_ASSERTION: &str = "dev.callsign/assertion";
/// The argument in which our plugin seals who calls.
pub const ARGUMENT: &str = "__callsign";

pub const HEADER_HOST: &str = "callsign-host";
pub const HEADER_SESSION: &str = "callsign-session";
pub const HEADER_THREAD: &str = "callsign-thread";
pub const HEADER_PARENT: &str = "callsign-parent";
pub const HEADER_CALL: &str = "callsign-call";
pub const HEADER_WORKSPACE: &str = "callsign-workspace";
pub const HEADER_ASSERTION: &str = "callsign-assertion";

const HEADERS: [&str; 7] = [
    HEADER_HOST,
    HEADER_SESSION,
    HEADER_THREAD,
    HEADER_PARENT,
    HEADER_CALL,
    HEADER_WORKSPACE,
    HEADER_ASSERTION,
];

/// What every name of ours has in it, in lower case.
const MARK: &[u8] = b"callsign";
/// The same with a long s.
const LONG_MARK: &[u8] = "call\u{17f}ign".as_bytes();

/// Whether a member of a request is called by a name of ours, in any spelling a reader could take for it.
///
/// `inside`: the names of the members it lies in, from the parameters down.
pub fn is_ours(inside: &[impl AsRef<str>], name: &str) -> bool {
    if name.len() < MARK.len() {
        return false;
    }
    let in_meta = inside.first().is_some_and(|first| first.as_ref() == "_meta");
    let is_key = match strip(name, "dev.callsign") {
        Some(rest) => rest.is_empty() || rest.starts_with(['/', '.', ':']),
        None => false,
    };
    is_key || is(name, ARGUMENT) || in_meta && HEADERS.iter().any(|header| is(name, header))
}

/// Whether a header is ours. Many servers read `_` and `-` as the same.
pub fn is_our_header(name: &str) -> bool {
    is(name, "callsign") || strip(name, "callsign-").is_some()
}

/// Whether JSON may have a name of ours in it, as it is or in escapes. Quick, and often wrong in one direction only.
pub fn may_name_us(json: &[u8]) -> bool {
    let mut at = 0;
    // No letter of the mark is rarer in text than its `g`.
    while let Some(next) = json[at..].iter().position(|byte| matches!(byte, b'g' | b'G' | b'\\')) {
        let here = at + next;
        let found = if json[here] == b'\\' {
            // A letter of ours in escapes is `\u00..`, the long s `\u017f`.
            json[here..].starts_with(b"\\u00") || json[here..].starts_with(b"\\u017")
        } else {
            let stands = |mark: &[u8]| {
                let start = here.checked_sub(mark.len() - 2);
                let word = start.and_then(|start| json.get(start..here + 2));
                word.is_some_and(|word| word.eq_ignore_ascii_case(mark))
            };
            stands(MARK) || stands(LONG_MARK)
        };
        if found {
            return true;
        }
        // Both bytes of an escape are behind us, so that `\\u00` is not taken for one.
        at = here + if json[here] == b'\\' { 2 } else { 1 };
        if at > json.len() {
            return false;
        }
    }
    false
}

/// What a reader who ignores case takes a character for, `_` and `-` being one.
fn plain(character: char) -> char {
    match character {
        '_' => '-',
        // The only letter beyond ASCII that folds to one of ours.
        '\u{17f}' => 's',
        other => other.to_ascii_lowercase(),
    }
}

fn is(name: &str, ours: &str) -> bool {
    strip(name, ours) == Some("")
}

/// What follows `ours` in `name`.
fn strip<'a>(name: &'a str, ours: &str) -> Option<&'a str> {
    let mut rest = name.trim().chars();
    for expected in ours.chars() {
        if plain(rest.next()?) != plain(expected) {
            return None;
        }
    }
    Some(rest.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_ours_and_a_flights_callsign_is_not() {
        let nowhere: [&str; 0] = [];
        for ours in [
            "__callsign",
            "__CallSign",
            "--callsign",
            "_-CALLSIGN",
            " __callsign ",
            "dev.callsign/identity",
            "DEV.CALLSIGN/IDENTITY",
            "dev.callsign",
            "dev.callsign.identity",
            "dev.callsign/anything",
            "dev.call\u{17f}ign/identity",
            "__CALL\u{17f}IGN",
        ] {
            assert!(is_ours(&nowhere, ours), "{ours}");
            assert!(is_ours(&["arguments", "deep"], ours), "{ours}");
        }
        for other in
            ["callsign", "callsign_id", "_callsign", "__callsigns", "dev.callsigns/x", "mydev.callsign", ""]
        {
            assert!(!is_ours(&nowhere, other), "{other}");
        }
        assert!(is_ours(&["_meta"], "Callsign_Session"));
        assert!(!is_ours(&["arguments"], "callsign_session"));
        assert!(
            is_our_header("Callsign_Session")
                && is_our_header("CALLSIGN-x")
                && !is_our_header("x-callsign-x")
        );
    }

    #[test]
    fn the_quick_look_misses_no_name() {
        for text in [
            r#"{"__callsign":1}"#,
            r#"{"a":"g","DEV.callsign/x":1}"#,
            r#"{"\u005f_callsi\u0067n":1}"#,
            r#"{"dev.c\u0061llsign":1}"#,
            r#"{"x":"\\","__CALLSIGN":1}"#,
            "{\"__call\u{17f}ign\":1}",
            r#"{"__call\u017fign":1}"#,
        ] {
            assert!(may_name_us(text.as_bytes()), "{text}");
        }
        for text in ["", "g", "sign", r#"{"a":"goose gg callsig n"}"#, r#""\\u0041""#, r#""\\"#, "\\"] {
            assert!(!may_name_us(text.as_bytes()), "{text}");
        }
    }
}
