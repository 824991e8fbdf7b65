//! Answers of servers reached by HTTP that are looked at on their way back: lists of tools, and what hooks are for.

use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use mcp::splice::Edit;
use mcp::{Kind, Message};

use super::body::Body;
use super::relay::{UnderWay, head_back};
use super::sessions::Session;
use crate::hooked::After;
use crate::respond::CallError;
use crate::server::old_sse::{Events, is_stream};
use crate::server::remote::Remote;

/// Who looks at a response.
pub(super) struct Inspection {
    pub(super) remote: Arc<Remote>,
    /// None: a stream that answers no request of its own.
    pub(super) request: Option<Message>,
    pub(super) after: Option<Arc<After>>,
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
            // A client that loses this stream may come back for the answer on another.
            let resumable = match (&self.session, self.id(), &self.after) {
                (Some(session), Some(id), Some(after)) => session.keep_after(id, after),
                _ => true,
            };
            let events = Events::new(response.into_body(), limit);
            let under_way = under_way.map(UnderWay::unanswered);
            let state = Reading { inspection: self, events, under_way, resumable };
            *back.body_mut() = Body::stream(futures_util::stream::unfold(state, Reading::next));
            return Ok(back);
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
        *back.body_mut() = Body::full(self.look(body).await);
        Ok(back)
    }

    fn id(&self) -> Option<Bytes> {
        self.request.as_ref().and_then(Message::id)
    }

    /// A message as the client gets it.
    async fn look(&self, data: Bytes) -> Bytes {
        let Ok(message) = Message::parse(data.clone()) else { return data };
        let Some(id) = message.id().filter(|_| message.kind() == Kind::Response) else { return data };
        let answers = self.id().as_ref() == Some(&id);
        let data = if answers { self.catalogued(&message).unwrap_or(data) } else { data };
        let kept = self.session.as_ref().and_then(|session| session.take_after(&id));
        match kept.or_else(|| self.after.clone().filter(|_| answers)) {
            Some(after) => after.answer(data).await,
            None => data,
        }
    }

    /// A list of tools as the catalogue passes it on. None: as it is.
    fn catalogued(&self, answer: &Message) -> Option<Bytes> {
        let result = answer.head().result.clone()?;
        if self.request.as_ref()?.method() != "tools/list" {
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
    resumable: bool,
}

impl Reading {
    async fn next(mut self) -> Option<(Bytes, Self)> {
        // A stream that answers nothing may be silent as long as nothing happens.
        let timeout = self.inspection.remote.options.timeout.filter(|_| self.inspection.request.is_some());
        let event = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, self.events.next()).await.ok().flatten(),
            None => self.events.next().await,
        };
        let Some(mut event) = event else {
            if let Some(under_way) = self.under_way.take() {
                under_way.answered();
            }
            return None;
        };
        event.id = event.id.filter(|_| self.resumable);
        event.data = self.inspection.look(event.data).await;
        let mut out = Vec::with_capacity(event.data.len() + 64);
        event.write(&mut out);
        Some((Bytes::from(out), self))
    }
}
