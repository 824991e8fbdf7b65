//! A server's response on its way back to the client: its head, and its body as it comes, within its limits.

use std::borrow::Cow;
use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderName};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Incoming;
use mcp::{Kind, Message};
use tokio::time::{Instant, Sleep};

use super::PROTOCOL_VERSION;
use super::body::{Body, Error};
use super::observed::Observed;
use super::relay::UnderWay;
use crate::recorded::Record;
use crate::respond::CallError;
use crate::server::link::LinkOptions;
use crate::server::old_sse::is_stream;
use crate::server::remote::Remote;

/// How long a refusal may take to be told.
const REFUSING: Duration = Duration::from_mins(1);

/// What a server says that a client may want to know.
const PASSED_BACK: [HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::CACHE_CONTROL,
    header::RETRY_AFTER,
    PROTOCOL_VERSION,
    HeaderName::from_static("x-accel-buffering"),
];

pub(super) fn head_back(response: &Response<Incoming>) -> Response<Body> {
    let mut back = Response::new(Body::empty());
    *back.status_mut() = response.status();
    for name in &PASSED_BACK {
        if let Some(value) = response.headers().get(name) {
            back.headers_mut().insert(name.clone(), value.clone());
        }
    }
    back
}

pub(super) fn passed_back(
    remote: &Remote,
    response: Response<Incoming>,
    silence: Option<Duration>,
    watching: Watching,
) -> Response<Body> {
    let mut back = head_back(&response);
    let unit = if is_stream(&response) { Unit::Event } else { Unit::Body };
    let mut relay = Relay::new(response.into_body(), unit, remote, silence);
    relay.under_way = watching.under_way.map(UnderWay::unanswered);
    relay.observed = watching.observed.map(Box::new);
    if relay.inner.is_end_stream() {
        relay.answered(); // Nobody asks a body for more that says it has none.
    }
    *back.body_mut() = Body::relay(relay);
    back
}

/// What a server says of its refusal, without the secrets that it was asked with: some servers show what they got.
pub(super) async fn told_back(
    remote: &Remote,
    response: Response<Incoming>,
    record: Option<&Record>,
) -> Result<Response<Body>, CallError> {
    let (mut back, status) = (head_back(&response), response.status());
    let (server, limit) = (remote.name().to_owned(), remote.options.max_message);
    let wait = remote.options.timeout.unwrap_or(REFUSING);
    let collecting = Limited::new(response.into_body(), limit).collect();
    let body = match tokio::time::timeout(wait, collecting).await {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            return Err(CallError::AnswerTooLarge { server, limit });
        }
        Ok(Err(_)) => return Err(broken_off(&server)),
        Err(_late) => return Err(CallError::Timeout { server, seconds: wait.as_secs() }),
    };
    if let Some(record) = record {
        match Message::parse(body.clone()) {
            Ok(answer) if answer.kind() == Kind::Response => record.answered(&answer),
            _ => record.failed(&CallError::UpstreamStatus {
                server,
                status: status.as_u16(),
                body: String::new(),
            }),
        }
    }
    let shown =
        match std::str::from_utf8(&body).map(|text| remote.options.recorder.sinks.redactor.scrub(text)) {
            Ok(Cow::Owned(changed)) => Bytes::from(changed),
            Ok(Cow::Borrowed(_)) | Err(_) => body,
        };
    *back.body_mut() = Body::full(shown);
    Ok(back)
}

fn broken_off(server: &str) -> CallError {
    CallError::Unreachable { server: server.to_owned(), reason: "its answer broke off".to_owned() }
}

/// Who wants to know how a body goes on.
#[derive(Debug, Default)]
pub(super) struct Watching {
    pub(super) under_way: Option<UnderWay>,
    pub(super) observed: Option<Observed>,
}

/// What a limit is counted over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Body,
    Event,
}

/// A server's body on its way back, within its limits.
#[derive(Debug)]
pub struct Relay {
    inner: Incoming,
    unit: Unit,
    limit: usize,
    seen: usize,
    /// The length of the line we are in, which frames may cut anywhere.
    line: usize,
    silence: Option<Duration>,
    deadline: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    under_way: Option<UnderWay>,
    observed: Option<Box<Observed>>,
    options: Arc<LinkOptions>,
}

impl Relay {
    fn new(inner: Incoming, unit: Unit, remote: &Remote, silence: Option<Duration>) -> Self {
        Self {
            inner,
            unit,
            limit: remote.options.max_message,
            seen: 0,
            line: 0,
            silence,
            deadline: None,
            timer: None,
            under_way: None,
            observed: None,
            options: Arc::clone(&remote.options),
        }
    }

    fn fail(&mut self, error: impl FnOnce(String) -> CallError) {
        if let Some(mut observed) = self.observed.take() {
            observed.fail(&error(self.options.server.clone()));
        }
    }

    fn count(&mut self, data: &[u8]) -> Result<(), Error> {
        match self.unit {
            Unit::Body => self.seen += data.len(),
            Unit::Event => {
                for byte in data {
                    self.seen += 1;
                    match byte {
                        b'\n' if self.line == 0 => self.seen = 0, // A blank line ends an event.
                        b'\n' => self.line = 0,
                        b'\r' => {}
                        _ => self.line += 1,
                    }
                }
            }
        }
        if self.seen > self.limit { Err("the server's message is over the limit".into()) } else { Ok(()) }
    }

    /// The last of it is here; a cancel from now on is late.
    fn answered(&mut self) {
        if let Some(under_way) = self.under_way.take() {
            under_way.answered();
        }
        if let Some(mut observed) = self.observed.take() {
            observed.end();
        }
    }

    /// The timer is made when it is first waited for and moved only when it fires.
    fn silent_for_too_long(&mut self, context: &mut Context<'_>) -> bool {
        let Some(silence) = self.silence else { return false };
        let deadline = *self.deadline.get_or_insert_with(|| Instant::now() + silence);
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= deadline {
                return true;
            }
            timer.as_mut().reset(deadline);
        }
        false
    }
}

impl HttpBody for Relay {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match Pin::new(&mut self.inner).poll_frame(context) {
            Poll::Pending => {
                if self.silent_for_too_long(context) {
                    let seconds = self.silence.unwrap_or_default().as_secs();
                    self.fail(|server| CallError::Timeout { server, seconds });
                    return Poll::Ready(Some(Err("the server was silent for too long".into())));
                }
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                self.deadline = None;
                if let Some(data) = frame.data_ref() {
                    if let Some(observed) = &mut self.observed {
                        observed.feed(data);
                    }
                    let data = data.clone();
                    if let Err(error) = self.count(&data) {
                        let limit = self.limit;
                        self.fail(|server| CallError::AnswerTooLarge { server, limit });
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                if self.inner.is_end_stream() {
                    self.answered();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                if let Some(mut observed) = self.observed.take() {
                    observed.break_off(&broken_off(&self.options.server));
                }
                Poll::Ready(Some(Err(error.into())))
            }
            Poll::Ready(None) => {
                self.answered();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
