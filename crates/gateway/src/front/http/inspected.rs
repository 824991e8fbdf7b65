//! Answers of servers reached by HTTP that are looked at on their way back: lists of tools, and what hooks are for.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use mcp::glance::Seen;
use mcp::splice::Edit;
use mcp::{Kind, Message};

use super::body::Body;
use super::json;
use super::relay::UnderWay;
use super::returned::head_back;
use super::sessions::{Kept, Session};
use crate::ending::{Answered, Ending};
use crate::respond::CallError;
use crate::server::old_sse::{Events, Step, has_type, is_stream};
use crate::server::remote::Remote;

/// Who looks at a response.
pub(super) struct Inspection {
    pub(super) remote: Arc<Remote>,
    /// None: a stream that answers no request of its own.
    pub(super) request: Option<Message>,
    pub(super) ending: Ending,
    pub(super) session: Option<Arc<Session>>,
}

impl Inspection {
    pub(super) async fn pass_back(
        self,
        response: Response<Incoming>,
        under_way: Option<UnderWay>,
    ) -> Result<Response<Body>, CallError> {
        let limit = self.remote.options.max_message;
        let mut back = head_back(&response);
        if is_stream(&response) {
            let events = Events::new(response.into_body(), limit);
            let under_way = under_way.map(UnderWay::unanswered);
            let state = Reading { inspection: self, events, under_way, answered: false, resumable: false };
            *back.body_mut() = Body::stream(futures_util::stream::unfold(state, Reading::next));
            return Ok(back);
        }
        // What is no stream answers no request, or says that the answer comes on another stream.
        if self.request.is_none() || response.status() == StatusCode::ACCEPTED {
            return Ok(back);
        }
        if !response.status().is_success() && !has_type(&response, b"application/json") {
            // Hooks are told that the call failed, and what the server wrote about it is not theirs to see.
            let status = response.status();
            let error = self.remote.refusal(response).await;
            let answer = self.fail(&error).await;
            let kept = [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN].contains(&status);
            return Ok(json(if kept { status } else { error.status() }, answer));
        }
        let server = || self.remote.name().to_owned();
        let collecting = Limited::new(response.into_body(), limit).collect();
        let collected = match self.remote.options.timeout {
            Some(timeout) => tokio::time::timeout(timeout, collecting)
                .await
                .map_err(|_| CallError::Timeout { server: server(), seconds: timeout.as_secs() })?,
            None => collecting.await,
        };
        let body = collected.map_err(|_| CallError::AnswerTooLarge { server: server(), limit })?.to_bytes();
        let size = body.len() as u64;
        let looked = self.look(body).await.ok_or_else(|| {
            let reason = "hooks are to see it, and it cannot be read".to_owned();
            CallError::AnswerInvalid { server: server(), reason }
        })?;
        self.no_answer(size);
        *back.body_mut() = Body::full(looked);
        Ok(back)
    }

    /// Notes that what came back held no answer, if so.
    fn no_answer(&self, size: u64) {
        let Some(record) = self.ending.record.as_ref().filter(|record| !record.is_over()) else { return };
        record.saw(&Seen::Other, size);
        if let (Some(session), Some(id)) = (&self.session, self.id()) {
            session.let_go_of_after(&id);
        }
    }

    fn id(&self) -> Option<Bytes> {
        self.request.as_ref().and_then(Message::id)
    }

    /// A message as the client gets it. None: hooks should have seen it, and it cannot be read.
    async fn look(&self, data: Bytes) -> Option<Bytes> {
        let sees_answers = !self.ending.is_quick() || self.remote.options.hooks.sees_answers();
        let Ok(message) = Message::parse(data.clone()) else { return (!sees_answers).then_some(data) };
        let Some(id) = message.id().filter(|_| message.kind() == Kind::Response) else { return Some(data) };
        let data = self.catalogued(&message).unwrap_or(data);
        // What comes back on a request's own stream is its answer, however its id is spelled.
        let ending = if self.is_own() {
            self.ending.clone()
        } else {
            match self.session.as_ref().map(|session| session.after_of(&id)) {
                // Once more, on another stream.
                Some(Some(Kept { answer: Some(answer), .. })) => return Some(answer),
                Some(Some(kept)) => kept.ending,
                Some(None) => return Some(data),
                // Without a session nobody knows whose answer it is.
                None => return (self.request.is_some() || !sees_answers).then_some(data),
            }
        };
        let answer = ending.answer(Some(&id), Answered::By(&message, data)).await;
        if let Some(session) = &self.session {
            let asked = self.id().filter(|_| self.is_own());
            session.keep_answer(&asked.unwrap_or(id), &answer);
        }
        Some(answer)
    }

    /// Whether something is to be done with the answer to the request itself.
    fn is_own(&self) -> bool {
        !self.ending.is_quick() || self.ending.record.is_some()
    }

    /// The answer to a request that there is no other answer to.
    async fn fail(&self, error: &CallError) -> Bytes {
        let id = self.id();
        let answer = self.ending.answer(id.as_deref(), Answered::Failed(error)).await;
        if let (Some(session), Some(id), true) = (&self.session, &id, self.is_own()) {
            session.keep_answer(id, &answer);
        }
        answer
    }

    /// A list of tools as the catalogue passes it on. None: as it is.
    fn catalogued(&self, answer: &Message) -> Option<Bytes> {
        let result = answer.head().result.clone()?;
        let request = self.request.as_ref()?;
        if request.method() != "tools/list" || answer.id() != request.id() {
            return None;
        }
        match self.remote.options.catalogue.inspect(&answer.bytes()[result.clone()]) {
            Ok(changed) => changed.map(|changed| answer.with(&mut [Edit { span: result, with: &changed }])),
            Err(error) => Some(error.to_message(answer.id().as_deref())),
        }
    }
}

/// A stream of events on its way back.
struct Reading {
    inspection: Inspection,
    events: Events,
    under_way: Option<UnderWay>,
    /// The answer has passed. What the server still says is no second one.
    answered: bool,
    resumable: bool,
}

impl Reading {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        // A stream that answers nothing may be silent as long as nothing happens.
        let timeout = self.inspection.remote.options.timeout.filter(|_| self.inspection.request.is_some());
        loop {
            let step = match timeout {
                Some(timeout) => match tokio::time::timeout(timeout, self.events.step()).await {
                    Ok(step) => step,
                    Err(_late) if self.answered => return None,
                    Err(_late) => {
                        let (server, seconds) = (self.inspection.remote.name().to_owned(), timeout.as_secs());
                        return Some(self.failed(CallError::Timeout { server, seconds }).await);
                    }
                },
                None => self.events.step().await,
            };
            let mut event = match step {
                Step::Event(event) => event,
                // Whatever keeps the server's connection open keeps the client's open.
                Step::Part => return Some((Bytes::from_static(b":\n\n"), self)),
                Step::TooLarge if !self.answered && self.inspection.request.is_some() => {
                    let (server, limit) = (
                        self.inspection.remote.name().to_owned(),
                        self.inspection.remote.options.max_message,
                    );
                    return Some(self.failed(CallError::AnswerTooLarge { server, limit }).await);
                }
                Step::End | Step::TooLarge => {
                    // With an id, a client can come back for the answer.
                    if !(self.answered || self.resumable && self.inspection.session.is_some()) {
                        self.inspection.no_answer(0);
                    }
                    if let Some(under_way) = self.under_way.take() {
                        under_way.answered();
                    }
                    return None;
                }
            };
            self.resumable |= event.id.is_some();
            // Nobody could tell whose answer it is that comes on another stream.
            if !self.inspection.ending.is_quick() && self.inspection.session.is_none() {
                event.id = None;
            }
            // An event without data only says where a stream can be taken up again.
            if !event.data.is_empty() {
                self.answered |= Message::parse(event.data.clone()).is_ok_and(|message| {
                    message.kind() == Kind::Response && self.inspection.request.is_some()
                });
                let Some(data) = self.inspection.look(event.data).await else {
                    tracing::warn!(
                        server = self.inspection.remote.name(),
                        "an event was dropped: hooks should have seen it, and it cannot be read"
                    );
                    continue;
                };
                event.data = data;
            }
            let mut out = Vec::with_capacity(event.data.len() + 64);
            event.write(&mut out);
            return Some((Bytes::from(out), self));
        }
    }

    /// There will be no answer but this.
    async fn failed(mut self, error: CallError) -> (Bytes, Self) {
        let answer = self.inspection.fail(&error).await;
        self.answered = true;
        self.events.end();
        (mcp::sse::encode(&answer, None), self)
    }
}
