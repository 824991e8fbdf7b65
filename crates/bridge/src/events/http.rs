//! As much of HTTP/1.1 as one response takes.

use std::io::{self, ErrorKind};

use httparse::{EMPTY_HEADER, Response, Status, parse_chunk_size};

/// More than any agent sends.
const HEADERS: usize = 64;
/// A chunk's size with its extensions, or a line behind the last chunk.
const LONGEST_LINE: usize = 1024;

/// How far a body is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// Until the connection ends.
    Plain,
    /// So many bytes are left of this chunk, its line's end included.
    Chunk(u64),
    /// A chunk's size is next; what has come of it.
    Size(Vec<u8>),
}

/// The length of a head and the body behind it, if the head is whole. Anything but 200 is an error.
pub(super) fn head(bytes: &[u8]) -> io::Result<Option<(usize, Body)>> {
    let mut headers = [EMPTY_HEADER; HEADERS];
    let mut response = Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(Status::Complete(length)) => length,
        Ok(Status::Partial) => return Ok(None),
        Err(error) => return Err(io::Error::new(ErrorKind::InvalidData, error)),
    };
    if response.code != Some(200) {
        return Err(io::Error::new(ErrorKind::InvalidData, "the agent gives no events"));
    }
    let chunked = response.headers.iter().any(|header| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            && header.value.to_ascii_lowercase().ends_with(b"chunked")
    });
    Ok(Some((length, if chunked { Body::Size(Vec::new()) } else { Body::Plain })))
}

impl Body {
    /// Calls `data` with what is content. Returns whether more is to come.
    pub(super) fn decode(&mut self, mut bytes: &[u8], mut data: impl FnMut(&[u8])) -> io::Result<bool> {
        while !bytes.is_empty() {
            match self {
                Self::Plain => {
                    data(bytes);
                    return Ok(true);
                }
                Self::Chunk(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    // The last two are the line's end.
                    let content = usize::try_from(left.saturating_sub(2)).unwrap_or(usize::MAX).min(here);
                    if content > 0 {
                        data(&bytes[..content]);
                    }
                    *left -= here as u64;
                    bytes = &bytes[here..];
                    if *left == 0 {
                        *self = Self::Size(Vec::new());
                    }
                }
                Self::Size(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                    line.extend_from_slice(&bytes[..end]);
                    bytes = &bytes[end..];
                    match parse_chunk_size(line) {
                        Ok(Status::Complete((_, 0))) => return Ok(false),
                        Ok(Status::Complete((_, size))) => *self = Self::Chunk(size.saturating_add(2)),
                        Ok(Status::Partial) if line.len() <= LONGEST_LINE => {}
                        Ok(Status::Partial) | Err(_) => return Err(ErrorKind::InvalidData.into()),
                    }
                }
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::{Body, head};

    #[test]
    fn a_head_tells_how_its_body_comes() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\n";
        assert_eq!(head(chunked).unwrap(), Some((chunked.len() - 3, Body::Size(Vec::new()))));
        let plain = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
        assert_eq!(head(plain).unwrap(), Some((plain.len(), Body::Plain)));
        assert_eq!(head(&plain[..20]).unwrap(), None);
        assert!(head(b"HTTP/1.1 401 Unauthorized\r\n\r\n").is_err());
        assert!(head(b"SSH-2.0-x\r\n").is_err());
    }

    #[test]
    fn chunks_are_taken_apart_wherever_they_are_torn() {
        let body = b"5\r\nhello\r\n1;ext=1\r\n \r\n6\r\nworld!\r\n0\r\n\r\nrest";
        for size in 1..body.len() {
            let (mut state, mut content) = (Body::Size(Vec::new()), Vec::new());
            let mut goes_on = true;
            for part in body.chunks(size) {
                if goes_on {
                    goes_on = state.decode(part, |data| content.extend_from_slice(data)).unwrap();
                }
            }
            assert_eq!(content, b"hello world!", "in parts of {size}");
            assert!(!goes_on);
        }
    }

    #[test]
    fn what_is_no_chunk_is_an_error() {
        for bad in [&b"hello\r\n"[..], b"-1\r\n", b"fffffffffffffffff\r\n", &[b'1'; 2000]] {
            assert!(Body::Size(Vec::new()).decode(bad, |_| {}).is_err(), "{bad:?}");
        }
    }
}
