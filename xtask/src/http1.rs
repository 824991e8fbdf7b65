//! As much of HTTP/1.1 and SSE as a client on loopback needs, and no more: it must cost next to nothing, for the
//! load generator shares its two cores with what it measures.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// `http://127.0.0.1:PORT/PATH`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) address: SocketAddr,
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(url: &str) -> Result<Self> {
        let rest = url.strip_prefix("http://").with_context(|| format!("{url} is no http:// URL"))?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let address: SocketAddr = host.parse().with_context(|| format!("{url} has no address"))?;
        anyhow::ensure!(address.ip().is_loopback(), "{url} is not on loopback");
        Ok(Self { address, path: if path.is_empty() { "/".into() } else { path.into() } })
    }

    pub(crate) fn connect(&self, read_timeout: Duration) -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(read_timeout))?;
        Ok(stream)
    }
}

/// The first lines of every POST of one session, up to the value of Content-Length.
pub(crate) fn post_head(url: &Url, session: Option<&str>, version: Option<&str>) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    // Writing to a Vec does not fail.
    write!(head, "POST {} HTTP/1.1\r\nHost: {}\r\n", url.path, url.address).ok();
    head.extend_from_slice(b"Content-Type: application/json\r\n");
    head.extend_from_slice(b"Accept: application/json, text/event-stream\r\n");
    if let Some(version) = version {
        write!(head, "MCP-Protocol-Version: {version}\r\n").ok();
    }
    if let Some(session) = session {
        write!(head, "Mcp-Session-Id: {session}\r\n").ok();
    }
    head.extend_from_slice(b"Content-Length: ");
    head
}

/// A request without a body.
pub(crate) fn bare(method: &str, url: &Url, session: &str, version: &str) -> Vec<u8> {
    format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: {version}\r\n\
         Mcp-Session-Id: {session}\r\n\r\n",
        url.path, url.address
    )
    .into_bytes()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    pub(crate) session: Option<String>,
    pub(crate) events: bool,
    /// How many bytes of the buffer the head takes.
    pub(crate) length: usize,
    body: Body,
    /// The server will not read another request from this connection.
    pub(crate) closes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    Length(usize),
    Chunked,
    UntilClose,
}

/// None as long as the head is not complete.
pub(crate) fn head(buffer: &[u8]) -> Result<Option<Head>> {
    let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&buffer[..end]).context("the head of the answer is no text")?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5))
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("not an HTTP answer: {status_line:?}"))?;
    let mut head =
        Head { status, session: None, events: false, length: end + 4, body: Body::UntilClose, closes: false };
    if status == 204 || status == 304 {
        head.body = Body::Length(0);
    }
    for line in lines {
        let Some((name, value)) = line.split_once(':') else { continue };
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            head.body = Body::Length(value.parse().context("Content-Length is no number")?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            head.body = Body::Chunked;
        } else if name.eq_ignore_ascii_case("content-type") {
            head.events = value.starts_with("text/event-stream");
        } else if name.eq_ignore_ascii_case("mcp-session-id") {
            head.session = Some(value.to_owned());
        } else if name.eq_ignore_ascii_case("connection") {
            head.closes = value.eq_ignore_ascii_case("close");
        }
    }
    Ok(Some(head))
}

/// As much of the body as is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Part<'a> {
    pub(crate) bytes: Cow<'a, [u8]>,
    pub(crate) complete: bool,
}

pub(crate) fn body<'a>(head: &Head, buffer: &'a [u8]) -> Result<Part<'a>> {
    let rest = buffer.get(head.length..).unwrap_or_default();
    match head.body {
        Body::Length(length) => {
            let there = rest.len().min(length);
            Ok(Part { bytes: Cow::Borrowed(&rest[..there]), complete: there == length })
        }
        Body::UntilClose => Ok(Part { bytes: Cow::Borrowed(rest), complete: false }),
        Body::Chunked => chunks(rest),
    }
}

fn chunks(mut rest: &[u8]) -> Result<Part<'_>> {
    let mut bytes = Vec::new();
    while let Some(end) = memchr::memmem::find(rest, b"\r\n") {
        let size = std::str::from_utf8(&rest[..end])?.split(';').next().unwrap_or_default().trim();
        let Ok(size) = usize::from_str_radix(size, 16) else { bail!("{size:?} is no size of a chunk") };
        let Some(chunk) = rest.get(end + 2..end + 2 + size + 2) else {
            // Of a large chunk hand out what is there: an event may be complete in it.
            if size > 0 {
                bytes.extend_from_slice(rest.get(end + 2..).unwrap_or_default());
            }
            break;
        };
        if size == 0 {
            return Ok(Part { bytes: Cow::Owned(bytes), complete: true });
        }
        bytes.extend_from_slice(&chunk[..size]);
        rest = &rest[end + 2 + size + 2..];
    }
    Ok(Part { bytes: Cow::Owned(bytes), complete: false })
}

/// The data of every complete event. An event of several data lines is joined, as the standard says.
pub(crate) fn events(body: &[u8]) -> Vec<Cow<'_, [u8]>> {
    let mut found = Vec::new();
    let mut data: Option<Cow<'_, [u8]>> = None;
    for line in body.split_inclusive(|byte| *byte == b'\n') {
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            found.extend(data.take().filter(|data| !data.is_empty()));
        } else if let Some(value) = line.strip_prefix(b"data:") {
            let value = value.strip_prefix(b" ").unwrap_or(value);
            data = Some(match data {
                None => Cow::Borrowed(value),
                Some(before) => Cow::Owned([&before, &b"\n"[..], value].concat()),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Url, body, events, head};

    #[track_caller]
    fn check_body(answer: &str, expected: &str, complete: bool) {
        let head = head(answer.as_bytes()).unwrap().unwrap();
        let part = body(&head, answer.as_bytes()).unwrap();
        assert_eq!(String::from_utf8_lossy(&part.bytes), expected);
        assert_eq!(part.complete, complete);
    }

    #[test]
    fn bodies_are_read_by_length_by_chunks_and_to_the_end() {
        check_body("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "{}", true);
        check_body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}", "{}", false);
        check_body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "{}", true);
        check_body("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}", "{}", false);
        check_body("HTTP/1.0 200 OK\r\n\r\nabc", "abc", false);
        check_body("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n", "", true);
    }

    #[test]
    fn a_head_waits_for_its_end() {
        assert_eq!(head(b"HTTP/1.1 200 OK\r\nContent-").unwrap(), None);
        assert!(head(b"nonsense\r\n\r\n").is_err());
        let whole = head(b"HTTP/1.1 200 OK\r\nMCP-Session-Id: s\r\ncontent-type: text/event-stream\r\n\r\n");
        let whole = whole.unwrap().unwrap();
        assert_eq!((whole.session.as_deref(), whole.events), (Some("s"), true));
    }

    #[test]
    fn events_end_with_an_empty_line_and_empty_ones_do_not_count() {
        let found = events(b": hello\nid: 1\ndata:\n\nevent: message\r\ndata: {\"a\":1}\r\n\r\ndata: late");
        assert_eq!(found, [&b"{\"a\":1}"[..]]);
        assert_eq!(events(b"data: a\ndata: b\n\n"), [&b"a\nb"[..]]);
    }

    #[test]
    fn only_loopback_is_spoken_to() {
        assert_eq!(Url::parse("http://127.0.0.1:80").unwrap().path, "/");
        assert!(Url::parse("http://10.0.0.1:80/mcp").is_err());
        assert!(Url::parse("https://127.0.0.1/").is_err());
    }
}
