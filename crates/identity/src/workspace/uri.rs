//! `file:` URIs, as clients send them for roots (RFC 8089).

/// Whether a text is meant as one.
pub(super) fn is_file_uri(text: &str) -> bool {
    text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("file:"))
}

/// The path it names, with its escapes decoded. None where it is on another machine or badly written.
pub(super) fn path_of(uri: &str) -> Option<String> {
    let rest = uri.get(5..)?;
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let (host, _) = rest.split_at(rest.find('/')?);
            let is_here = host.is_empty() || host.eq_ignore_ascii_case("localhost");
            is_here.then(|| &rest[host.len()..])?
        }
        None => rest,
    };
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return None;
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' { hex(rest.next()?)? << 4 | hex(rest.next()?)? } else { byte });
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
