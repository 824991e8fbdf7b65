//! HTTP+SSE, the transport of 2024-11-05: one stream that stays open, and an address to post to.
//!
//! It is a pipe in two halves, so a [`Link`] serves it like a process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, Uri};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use mcp::{Message, sse};

use super::child::SLOW_READER;
use super::link::{Link, Role};
use super::remote::{Outgoing, Remote, post_headers};
use crate::respond::CallError;

/// How long the server may take to say where to post.
const ENDPOINT: Duration = Duration::from_secs(10);
/// How often deadlines are looked at.
const SWEEP: Duration = Duration::from_millis(500);

/// Opens the stream and waits for the address. The link lives until the stream ends.
pub async fn connect(remote: &Arc<Remote>) -> Result<Arc<Link>, CallError> {
    // Our own server speaks what it speaks; and here nobody would be named as the principal.
    if remote.is_behind_a_door() {
        let reason = "it does not speak HTTP+SSE".to_owned();
        return Err(CallError::Unreachable { server: remote.name().to_owned(), reason });
    }
    let mut headers = HeaderMap::new();
    headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    let outgoing = Outgoing {
        method: Method::GET,
        uri: None,
        headers,
        body: bytes::Bytes::new(),
        stamp: None,
        principal: None,
        wait: Some(ENDPOINT),
    };
    let response = remote.send(outgoing).await?;
    if !response.status().is_success() || !is_stream(&response) {
        return Err(remote.refusal(response).await);
    }
    let mut events = Events::new(response.into_body(), remote.options.max_message);
    let first = tokio::time::timeout(ENDPOINT, events.next()).await;
    let server = || remote.name().to_owned();
    let invalid = |reason: &str| CallError::AnswerInvalid { server: server(), reason: reason.to_owned() };
    let endpoint = match first {
        Ok(Some(event)) if event.name == "endpoint" => resolve(remote.uri(), &event.data),
        _ => return Err(invalid("its stream did not begin with an endpoint")),
    };
    let endpoint = endpoint.ok_or_else(|| invalid("its endpoint is not an address of the same server"))?;
    let link = Arc::new(Link::new(Arc::clone(&remote.options), Role::Posting));
    if let Some(target) = remote.target.get() {
        let _just_made = link.target.set(target.clone());
    }
    remote.tasks.spawn(read(Arc::clone(&link), events));
    remote.tasks.spawn(write(Arc::clone(&link), Arc::clone(remote), endpoint));
    Ok(link)
}

pub fn is_stream(response: &Response<Incoming>) -> bool {
    has_type(response, b"text/event-stream")
}

/// Whether a response says that it is of this media type. Those are the same in upper and lower case.
pub fn has_type(response: &Response<Incoming>, wanted: &[u8]) -> bool {
    let kind = response.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    let kind = kind.trim_ascii_start();
    kind.get(..wanted.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(wanted))
}

/// The address to post to. One of another origin is refused: our credentials go there.
fn resolve(base: &Uri, endpoint: &[u8]) -> Option<Uri> {
    let text = std::str::from_utf8(endpoint).ok()?.trim();
    if text.starts_with("http://") || text.starts_with("https://") {
        let uri: Uri = text.parse().ok()?;
        let same = uri.scheme() == base.scheme() && uri.authority() == base.authority();
        return same.then_some(uri);
    }
    let path = if text.starts_with('/') {
        text.to_owned()
    } else {
        let directory = base.path().rsplit_once('/').map_or("", |(directory, _)| directory);
        format!("{directory}/{text}")
    };
    let builder = Uri::builder().scheme(base.scheme_str()?).authority(base.authority()?.as_str());
    builder.path_and_query(path).build().ok()
}

/// Reads until the stream or the link ends, and keeps the deadlines of the calls on it.
async fn read(link: Arc<Link>, mut events: Events) {
    let mut tick = tokio::time::interval(SWEEP);
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = link.outbox.closed() => break,
            _ = tick.tick() => {
                // A server that ignores a cancel is not ours to end; its late answer goes nowhere.
                let _not_ours = link.sweep(Instant::now());
                continue;
            }
        };
        let Some(event) = event else { break };
        match Message::parse(event.data) {
            Ok(message) => {
                if let Some(full) = link.receive(&message)
                    && tokio::time::timeout(SLOW_READER, full.room()).await.is_err()
                {
                    full.close();
                }
            }
            Err(refused) => tracing::debug!(server = link.server(), %refused, "an event was skipped"),
        }
    }
    let reason = "its event stream ended".to_owned();
    link.end(&CallError::Unreachable { server: link.server().to_owned(), reason });
}

async fn write(link: Arc<Link>, remote: Arc<Remote>, endpoint: Uri) {
    while let Some(outgoing) = link.outbox.pop().await {
        let posted = Outgoing {
            method: Method::POST,
            uri: Some(&endpoint),
            headers: post_headers(),
            body: outgoing.bytes.slice(..outgoing.bytes.len().saturating_sub(1)),
            stamp: outgoing.stamp.as_deref(),
            principal: None,
            wait: Some(ENDPOINT),
        };
        let failed = match remote.send(posted).await {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(remote.refusal(response).await),
            Err(error) => Some(error),
        };
        if let Some(error) = failed {
            link.end(&error);
            return;
        }
    }
}

/// The events of a body.
#[derive(Debug)]
pub struct Events {
    body: Incoming,
    decoder: sse::Decoder,
    ended: bool,
}

/// What came next of a stream.
#[derive(Debug)]
pub enum Step {
    Event(sse::Event),
    /// A part of an event, or a comment.
    Part,
    /// An event over the limit.
    TooLarge,
    End,
}

impl Events {
    pub fn new(body: Incoming, limit: usize) -> Self {
        Self { body, decoder: sse::Decoder::new(limit), ended: false }
    }

    /// None at the end of the stream, and where it breaks or an event is over the limit.
    pub async fn next(&mut self) -> Option<sse::Event> {
        loop {
            match self.step().await {
                Step::Event(event) => return Some(event),
                Step::Part => {}
                Step::TooLarge | Step::End => return None,
            }
        }
    }

    /// The same, a frame at a time.
    pub async fn step(&mut self) -> Step {
        if let Some(event) = self.decoder.event() {
            return Step::Event(event);
        }
        if self.ended {
            return Step::End;
        }
        let Some(Ok(frame)) = self.body.frame().await else { return Step::End };
        match frame.data_ref().map(|data| self.decoder.push(data)) {
            Some(Err(_)) => Step::TooLarge,
            Some(Ok(())) | None => self.decoder.event().map_or(Step::Part, Step::Event),
        }
    }

    /// Nothing more is wanted.
    pub fn end(&mut self) {
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_of_another_origin_is_refused() {
        let base: Uri = "http://127.0.0.1:9/a/sse?x=1".parse().unwrap();
        let rows = [
            ("/messages?s=1", Some("http://127.0.0.1:9/messages?s=1")),
            ("messages?s=1", Some("http://127.0.0.1:9/a/messages?s=1")),
            ("http://127.0.0.1:9/m", Some("http://127.0.0.1:9/m")),
            ("http://127.0.0.1:10/m", None),
            ("https://127.0.0.1:9/m", None),
            ("http://evil.example/m", None),
        ];
        for (endpoint, expected) in rows {
            let resolved = resolve(&base, endpoint.as_bytes()).map(|uri| uri.to_string());
            assert_eq!(resolved.as_deref(), expected, "{endpoint}");
        }
    }
}
