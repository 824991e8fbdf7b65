//! Names as git quotes them.

/// In quotes where it has anything but plain characters, as git and patch read it back.
pub(crate) fn quoted(prefix: &str, name: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\') || *byte >= 0x80;
    if let Ok(text) = str::from_utf8(name)
        && name.iter().all(plain)
    {
        return format!("{prefix}{text}");
    }
    let mut text = format!("\"{prefix}");
    for &byte in name {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            other => {
                text.push('\\');
                text.extend([other >> 6, other >> 3 & 7, other & 7].map(|digit| char::from(b'0' + digit)));
            }
        }
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_are_quoted() {
        assert_eq!(quoted("a/", b"src/x.rs"), "a/src/x.rs");
        assert_eq!(quoted("a/", "ü".as_bytes()), "a/ü");
        assert_eq!(quoted("a/", b"with space"), "\"a/with space\"");
        assert_eq!(quoted("b/", b"\"\\\n\xff"), "\"b/\\\"\\\\\\012\\377\"");
    }
}
