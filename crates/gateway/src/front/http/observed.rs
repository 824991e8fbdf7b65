//! Answers that pass by unread: how a call ended is seen in passing, so that it can be noted.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use hyper::body::Incoming;
use mcp::glance::{Answer, EventGlance, Glance, Seen};

use super::sessions::Session;
use crate::recorded::Record;
use crate::respond::CallError;
use crate::server::old_sse::{has_type, is_stream};
use crate::server::remote::Remote;

/// Watches a body on its way back.
#[derive(Debug)]
pub(super) struct Observed {
    whose: Whose,
    look: Look,
    seen: u64,
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
        let waits = session.zip(id).map(|(session, id)| Waits { session: Arc::clone(session), id });
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
        Self { whose: Whose::Call(record, waits), look, seen: 0 }
    }

    /// What comes on a stream that answers no request of its own.
    pub(super) fn stream(session: Arc<Session>) -> Self {
        Self { whose: Whose::Session(session), look: Look::Events(Box::default()), seen: 0 }
    }

    pub(super) fn feed(&mut self, data: &[u8]) {
        self.seen += data.len() as u64;
        let (whose, seen) = (&mut self.whose, self.seen);
        match &mut self.look {
            Look::Body(glance) => glance.feed(data),
            Look::Events(glance) => glance.feed(data, &mut |answer| whose.answered(&answer, seen)),
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
            Look::Events(_) | Look::Elsewhere => match waits {
                Some(waits) => waits.go_on(record),
                None => record.saw(&Seen::Other, self.seen),
            },
        }
    }

    pub(super) fn fail(&mut self, error: &CallError) {
        if let Whose::Call(record, _) = std::mem::replace(&mut self.whose, Whose::Nobodys) {
            record.failed(error);
        }
    }
}

impl Whose {
    fn answered(&mut self, answer: &Answer, size: u64) {
        if matches!(answer.seen, Seen::Other) {
            return;
        }
        match self {
            // What comes back on a request's own stream is its answer, however its id is spelled.
            Self::Call(record, _) => {
                record.saw(&answer.seen, size);
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

impl Waits {
    /// A client of the old era that goes away has not cancelled: it may come back for the answer.
    fn go_on(self, record: Arc<Record>) {
        if self.session.connection.is_cancelled(&self.id) {
            record.canceled();
        } else {
            self.session.keep_record(&self.id, record);
        }
    }
}

impl Drop for Observed {
    /// Who asked has gone before the end. In the new era that is a cancel.
    fn drop(&mut self) {
        if let Whose::Call(record, Some(waits)) = std::mem::replace(&mut self.whose, Whose::Nobodys)
            && matches!(self.look, Look::Events(_) | Look::Elsewhere)
        {
            waits.go_on(record);
        }
    }
}
