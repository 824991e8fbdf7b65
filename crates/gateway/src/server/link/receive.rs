//! What a server says, and where it goes.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bytes::Bytes;
use mcp::splice::Edit;
use mcp::{Kind, Message};

use super::state::Pending;
use super::{Link, Reply, Role};
use crate::connection::{Connection, Outlet, ServerRequest};
use crate::ending::Answered;
use crate::outbox::{Outbox, Taken};
use crate::respond::CallError;
use crate::server::answer;

impl Link {
    /// Takes a message from the server. Returns a queue that is full: read on when it has room.
    pub fn receive(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        match message.kind() {
            Kind::Response => self.receive_response(message),
            Kind::Request => self.receive_request(message),
            Kind::Notification => self.receive_notification(message),
        }
    }

    fn receive_response(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        let id = head.id.clone()?;
        let key = std::str::from_utf8(&message.bytes()[id.clone()]).ok().and_then(|text| text.parse().ok());
        let mut state = self.lock();
        let Some(pending) = key.and_then(|key: u64| state.pending.remove(&key)) else {
            drop(state);
            self.options.counters.stray.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(server = self.server(), "an answer to nothing that was asked was dropped");
            return None;
        };
        state.last_used = Instant::now();
        state.answered = true;
        let task = state.note_answer(message, &pending);
        drop(state);
        if let Some(task) = task {
            pending.connection.record_handle(self, task);
        }
        if pending.given_up.is_some() {
            pending.release();
            return None;
        }
        match pending.reply {
            Reply::Internal(sender) => {
                let _gone = sender.send(message.clone());
                None
            }
            Reply::Stream(ref outbox, ref ending) => {
                let bytes = match self.inspect(message, &pending) {
                    Ok(changed) => {
                        let as_it_is = || message.with(&mut [Edit { span: id, with: &pending.id }]);
                        Ok(changed.unwrap_or_else(as_it_is))
                    }
                    Err(error) => Err(error),
                };
                let answered = match &bytes {
                    Ok(bytes) => Answered::By(message, bytes.clone()),
                    Err(error) => Answered::Failed(error),
                };
                if let Ok(bytes) = &bytes {
                    self.remember(&pending, bytes);
                }
                ending.finish(answered, pending.asker(outbox));
                hold_back(&pending.connection, outbox)
            }
        }
    }

    /// Looks into the few answers that concern us. Some: what to send instead.
    fn inspect(self: &Arc<Self>, message: &Message, pending: &Pending) -> Result<Option<Bytes>, CallError> {
        let Some(result) = message.head().result.clone() else { return Ok(None) };
        let mut edits: Vec<(mcp::Span, Bytes)> = Vec::new();
        if mcp::meta::is_list(&pending.method) {
            if let Some(next) = answer::next_cursor(&message.bytes()[result.clone()]) {
                pending.connection.record_cursor(self, pending.about.as_ref(), next)?;
            }
            // What a lobby lists is read elsewhere: nothing runs under a placeholder.
            if &*pending.method == "resources/list" && self.role == Role::Serving {
                for uri in answer::listed_uris(&message.bytes()[result.clone()]) {
                    pending.connection.record_handle(self, uri);
                }
            }
            if &*pending.method == "tools/list" {
                let changed = self.options.catalogue.inspect(&message.bytes()[result.clone()])?;
                edits.extend(changed.map(|changed| (result.clone(), changed)));
            }
        }
        if &*pending.method == "subscriptions/listen" {
            let own = answer::subscription_id(message, &result);
            edits.extend(own.map(|span| (span, pending.id.clone())));
        }
        if edits.is_empty() {
            return Ok(None);
        }
        edits.extend(message.head().id.clone().map(|span| (span, pending.id.clone())));
        let mut edits: Vec<Edit<'_>> =
            edits.iter().map(|(span, with)| Edit { span: span.clone(), with }).collect();
        Ok(Some(message.with(&mut edits)))
    }

    fn remember(&self, pending: &Pending, answer: &Bytes) {
        let Some(question) = &pending.question else { return };
        match Message::parse(answer.clone()) {
            Ok(answer) if answer.head().result.is_some() => {
                self.options.catalogue.remember(question.clone(), answer);
            }
            _ => {}
        }
    }

    /// The server asks its client something.
    fn receive_request(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        let (Some(id_span), Some(id)) = (head.id.clone(), message.id()) else { return None };
        let recipient = self.lock().recipient();
        let placed =
            recipient.and_then(|(connection, stream)| Some((place(&connection, stream)?, connection)));
        let Some((outbox, connection)) = placed else {
            self.send(&CallError::NoSingleCaller.to_message(Some(&id)));
            return None;
        };
        let token = head.progress_token.as_ref().map(|span| message.slice(span));
        let key = connection.register_server_request(ServerRequest { link: Arc::downgrade(self), id, token });
        let written = key.to_string();
        let mut edits = vec![Edit { span: id_span, with: written.as_bytes() }];
        edits.extend(head.progress_token.clone().map(|span| Edit { span, with: written.as_bytes() }));
        let asked = message.with(&mut edits);
        if matches!(connection.outlet, Outlet::Stdio(_)) {
            outbox.push(asked);
            return hold_back(&connection, &outbox);
        }
        // A stream nobody reads must not grow, nor hold up the server's other callers.
        if outbox.offer(asked) != Taken::Yes
            && let Some(asked) = connection.take_server_request(written.as_bytes())
        {
            self.send(&CallError::NoSingleCaller.to_message(Some(&asked.id)));
        }
        None
    }

    fn receive_notification(self: &Arc<Self>, message: &Message) -> Option<Arc<Outbox>> {
        let head = message.head();
        match message.method() {
            "notifications/progress" => self.forward_progress(message),
            "notifications/cancelled" => {
                self.forward_withdrawal(message);
                None
            }
            _ if head.subscription_id.is_some() => self.forward_event(message),
            "notifications/resources/updated" => {
                for connection in self.lock().subscribers(message) {
                    self.offer(&connection, None, message.bytes().clone());
                }
                None
            }
            method if method.ends_with("/list_changed") => {
                self.options.catalogue.forget();
                for connection in self.lock().everyone() {
                    if connection.list_changed(self, method)
                        && !self.offer(&connection, None, message.bytes().clone())
                    {
                        connection.not_told(method);
                    }
                }
                None
            }
            _ => {
                let recipient = self.lock().recipient();
                match recipient {
                    Some((connection, stream)) => {
                        self.offer(&connection, stream, message.bytes().clone());
                    }
                    None => self.count_dropped(),
                }
                None
            }
        }
    }

    fn forward_progress(&self, message: &Message) -> Option<Arc<Outbox>> {
        let span = message.head().progress_token.clone()?;
        let key = std::str::from_utf8(&message.bytes()[span.clone()]).ok()?.parse::<u64>().ok();
        let mut state = self.lock();
        let timeout = self.options.timeout;
        let pending = key.and_then(|key| state.pending.get_mut(&key));
        let Some(pending) = pending.filter(|pending| pending.given_up.is_none()) else {
            drop(state);
            self.count_dropped();
            return None;
        };
        pending.deadline = timeout.map(|timeout| Instant::now() + timeout);
        let (Reply::Stream(outbox, _), Some(token)) = (&pending.reply, &pending.token) else { return None };
        let taken = outbox.offer(message.with(&mut [Edit { span, with: token }]));
        drop(state);
        if taken == Taken::Dropped {
            self.count_dropped();
        }
        None
    }

    /// An event of a `subscriptions/listen` goes to that request's own stream.
    fn forward_event(&self, message: &Message) -> Option<Arc<Outbox>> {
        let span = message.head().subscription_id.clone()?;
        let raw = message.slice(&span);
        let raw = raw.strip_prefix(b"\"").and_then(|raw| raw.strip_suffix(b"\"")).unwrap_or(&raw);
        let key = std::str::from_utf8(raw).ok()?.parse::<u64>().ok();
        let state = self.lock();
        let Some(pending) = key.and_then(|key| state.pending.get(&key)) else {
            drop(state);
            self.count_dropped();
            return None;
        };
        let Reply::Stream(outbox, _) = &pending.reply else { return None };
        let taken = outbox.offer(message.with(&mut [Edit { span, with: &pending.id }]));
        drop(state);
        if taken == Taken::Dropped {
            self.count_dropped();
        }
        None
    }

    /// The server withdraws a request it made of a client.
    fn forward_withdrawal(&self, message: &Message) {
        let Some(span) = message.head().request_id.clone() else { return };
        let id = message.slice(&span);
        for connection in self.lock().everyone() {
            if let Some(key) = connection.withdraw_server_request(self, &id) {
                let written = key.to_string();
                let bytes = message.with(&mut [Edit { span, with: written.as_bytes() }]);
                self.offer(&connection, None, bytes);
                return;
            }
        }
    }

    /// Returns whether it was taken.
    fn offer(&self, connection: &Arc<Connection>, stream: Option<Arc<Outbox>>, bytes: Bytes) -> bool {
        match place(connection, stream).map(|outbox| outbox.offer(bytes)) {
            Some(Taken::Yes) => true,
            Some(Taken::Dropped | Taken::Closed) | None => {
                self.count_dropped();
                false
            }
        }
    }

    fn count_dropped(&self) {
        self.options.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// The queue to wait for before more is read: a host's pipe only. Others are served by the same child, and must not
/// wait for one that does not read.
fn hold_back(connection: &Connection, outbox: &Arc<Outbox>) -> Option<Arc<Outbox>> {
    let alone = matches!(connection.outlet, Outlet::Stdio(_));
    (alone && !outbox.has_room()).then(|| Arc::clone(outbox))
}

/// Where a message for this client goes, given the stream of its newest call.
fn place(connection: &Connection, stream: Option<Arc<Outbox>>) -> Option<Arc<Outbox>> {
    match &connection.outlet {
        Outlet::Stdio(outbox) => Some(Arc::clone(outbox)),
        Outlet::Session(standing) => stream.or_else(|| Some(Arc::clone(standing))),
        Outlet::Stateless => stream,
    }
}
