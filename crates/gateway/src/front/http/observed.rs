//! Answers that pass by unread: how a call ended is seen in passing, so that it can be noted.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use mcp::glance::{Answer, EventGlance, Glance, Seen};

use super::sessions::{Session, same_id};
use crate::recorded::Record;
use crate::respond::CallError;
use crate::server::old_sse::{has_type, is_stream};
use crate::server::remote::Remote;

/// Watches a body on its way back.
#[derive(Debug)]
pub(super) struct Observed {
    whose: Whose,
    look: Look,
    /// Of the request, to tell its answer from others.
    id: Option<Bytes>,
    seen: u64,
    /// Its events have ids, so a client can come back for the rest.
    resumable: bool,
}

#[derive(Debug)]
enum Whose {
    /// The answer to this call.
    Call(Arc<Record>, Option<Waits>),
    /// Answers to whatever this session still waits for.
    Session(Arc<Session>),
    Nobodys,
}

/// A call of the old era, whose answer may come on another stream.
#[derive(Debug)]
struct Waits {
    session: Arc<Session>,
    id: Bytes,
}

#[derive(Debug)]
enum Look {
    Body(Box<Glance>),
    Events(Box<EventGlance>),
    /// There is no answer in it.
    Status(CallError),
    /// The answer comes on another stream.
    Elsewhere,
}

impl Observed {
    /// What comes back for a call.
    pub(super) fn call(
        remote: &Remote,
        response: &Response<Incoming>,
        record: Arc<Record>,
        session: Option<&Arc<Session>>,
        id: Option<Bytes>,
    ) -> Self {
        let waits = session.zip(id.clone()).map(|(session, id)| Waits { session: Arc::clone(session), id });
        let (server, status) = (remote.name().to_owned(), response.status());
        let look = if is_stream(response) {
            Look::Events(Box::default())
        } else if status == StatusCode::ACCEPTED {
            Look::Elsewhere
        } else if has_type(response, b"application/json") {
            Look::Body(Box::default())
        } else if status.is_success() {
            let reason = "it is no JSON".to_owned();
            Look::Status(CallError::AnswerInvalid { server, reason })
        } else {
            Look::Status(CallError::UpstreamStatus { server, status: status.as_u16(), body: String::new() })
        };
        Self { whose: Whose::Call(record, waits), look, id, seen: 0, resumable: false }
    }

    /// What comes on a stream that answers no request of its own.
    pub(super) fn stream(session: Arc<Session>) -> Self {
        Self {
            whose: Whose::Session(session),
            look: Look::Events(Box::default()),
            id: None,
            seen: 0,
            resumable: false,
        }
    }

    pub(super) fn feed(&mut self, data: &[u8]) {
        self.seen += data.len() as u64;
        if matches!(self.look, Look::Events(_)) {
            // The word may also stand in a text, which then waits for an answer that does not come.
            self.resumable = self.resumable || memchr::memmem::find(data, b"id:").is_some();
        }
        let (whose, seen) = (&mut self.whose, self.seen);
        match &mut self.look {
            Look::Body(glance) => glance.feed(data),
            Look::Events(glance) => {
                glance.feed(data, &mut |answer| whose.answered(&answer, self.id.as_ref(), seen));
            }
            Look::Status(_) | Look::Elsewhere => {}
        }
    }

    /// The body is over.
    pub(super) fn end(&mut self) {
        let whose = std::mem::replace(&mut self.whose, Whose::Nobodys);
        let Whose::Call(record, waits) = whose else { return };
        match std::mem::replace(&mut self.look, Look::Elsewhere) {
            Look::Body(glance) => match glance.finish() {
                Some(answer) => record.saw(&answer.seen, self.seen),
                None => record.saw(&Seen::Other, self.seen),
            },
            Look::Status(error) => record.failed(&error),
            Look::Elsewhere => {}
            Look::Events(_) if self.resumable && waits.is_some() => {}
            Look::Events(_) => {
                record.saw(&Seen::Other, self.seen);
            }
        }
        if let Some(waits) = waits {
            waits.forget_if_over(&record);
        }
    }

    /// The connection to the server is gone. A client of the old era may come back for the rest.
    pub(super) fn break_off(&mut self, error: &CallError) {
        if !self.may_come_back() {
            self.fail(error);
        }
    }

    fn may_come_back(&self) -> bool {
        let elsewhere = match self.look {
            Look::Events(_) => self.resumable,
            Look::Elsewhere => true,
            Look::Body(_) | Look::Status(_) => false,
        };
        elsewhere && matches!(self.whose, Whose::Call(_, Some(_)))
    }

    pub(super) fn fail(&mut self, error: &CallError) {
        if let Whose::Call(record, waits) = std::mem::replace(&mut self.whose, Whose::Nobodys) {
            record.failed(error);
            if let Some(waits) = waits {
                waits.forget_if_over(&record);
            }
        }
    }
}

impl Whose {
    fn answered(&mut self, answer: &Answer, asked: Option<&Bytes>, size: u64) {
        if matches!(answer.seen, Seen::Other) {
            return;
        }
        match self {
            // A client takes no notice of an answer to something else.
            Self::Call(..) if !is_answer_to(answer, asked) => {}
            Self::Call(record, waits) => {
                record.saw(&answer.seen, size);
                if let Some(waits) = waits {
                    waits.forget_if_over(record);
                }
                *self = Self::Nobodys;
            }
            Self::Session(session) => {
                if let Some(record) = answer.id.as_deref().and_then(|id| session.take_record(id)) {
                    record.saw(&answer.seen, size);
                }
            }
            Self::Nobodys => {}
        }
    }
}

/// However its id is spelled. One without an id says that the request could not be read.
fn is_answer_to(answer: &Answer, asked: Option<&Bytes>) -> bool {
    match (answer.id.as_deref().filter(|id| *id != b"null"), asked) {
        (Some(id), Some(asked)) => same_id(id) == same_id(asked),
        (Some(_) | None, _) => true,
    }
}

impl Waits {
    /// The session keeps it for as long as an answer may come.
    fn forget_if_over(&self, record: &Arc<Record>) {
        if record.is_over() {
            self.session.forget_record(&self.id, record);
        }
    }
}

impl Drop for Observed {
    /// Who asked has gone before the end. In the new era that is a cancel; a client of the old one may come back for
    /// the answer, where that can be.
    fn drop(&mut self) {
        let may_come_back = self.may_come_back();
        let Whose::Call(record, waits) = std::mem::replace(&mut self.whose, Whose::Nobodys) else { return };
        if !may_come_back {
            record.canceled();
        }
        if let Some(waits) = waits {
            waits.forget_if_over(&record);
        }
    }
}
