//! One message from a client, carried to a server on a pipe. Read this first.
//!
//! ```text
//! request → begin → route (handle, lobby, caller's child, shared child) → handshake → stamp → link.call → answer
//! ```
//!
//! Who calls has been found out before ([`crate::caller`]); here it decides which process is asked.
//!
//! The answer does not come back up this path: the link hands it to the caller's own queue.

use std::sync::Arc;

use bytes::Bytes;
use mcp::{Kind, Message, meta};
use model::Isolation;

use crate::caller::{Call, Caller};
use crate::connection::{Callers, Connection, Outlet};
use crate::ending::{Answered, Asker, Ending};
use crate::outbox::Outbox;
use crate::respond::CallError;
use crate::server::Pipes;
use crate::server::child::{Child, SLOW_READER, as_answer_to};
use crate::server::link::{Asked, Link, Reply};
use crate::server::pool::{CallerKey, ChildKey, Owner};

/// Carries a request. Whatever happens, exactly one answer goes to `reply`, unless the caller cancels.
pub async fn request(pipes: &Pipes, connection: &Arc<Connection>, call: Call, reply: Arc<Outbox>) -> Sent {
    let hooks = pipes.pool.hooks_of(&call.message);
    if hooks.is_none()
        && let Some(sent) = request_at_once(pipes, connection, &call, &reply)
    {
        return sent;
    }
    let id = call.message.id().unwrap_or_default();
    // If the first request with this id is still under way, nothing of it may be touched.
    if let Err(error) = connection.begin(&id) {
        call.failed(&error);
        reply.finish(error.to_message(Some(&id)));
        return Sent::Answered;
    }
    if call.message.method() == "subscriptions/listen" {
        connection.will_last(&id);
    }
    let mut under_way = UnderWay { connection, id: &id, sent: false };
    let (error, ending) = match pipes.pool.ready(hooks, call).await {
        Err(error) => (error, Ending::default()),
        Ok(call) => match carry(pipes, connection, &call, &reply).await {
            Ok(sent) => {
                under_way.sent = matches!(sent, Sent::To(..));
                return sent;
            }
            Err(error) => (error, call.ending()),
        },
    };
    reply.finish(Box::pin(ending.answer(Some(&id), Answered::Failed(&error))).await);
    drop(under_way);
    Sent::Answered
}

/// Forgets a request that never reached a server, also when whoever carried it went away.
struct UnderWay<'a> {
    connection: &'a Connection,
    id: &'a Bytes,
    sent: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.sent {
            self.connection.end(self.id);
        }
    }
}

/// The short way for a call whose child is there and ready, which is almost every one.
///
/// A legacy child in the connection's memory has been initialized; one of the new era needs no more.
pub fn request_at_once(
    pipes: &Pipes,
    connection: &Arc<Connection>,
    call: &Call,
    reply: &Arc<Outbox>,
) -> Option<Sent> {
    let message = &call.message;
    if pipes.pool.hooks_of(message).is_some() {
        return None;
    }
    if message.method() != "tools/call" || pipes.catalogue.check_call(&message.name()?).is_err() {
        return None;
    }
    let id = message.id()?;
    let (caller_key, _) = caller_of(connection, call);
    let (child, key) = connection.begin_at_once(&caller_key, &id)?;
    if !call.begin_at_once() {
        connection.end(&id);
        return None;
    }
    let sent = (pipes.pool.stamp(call)).and_then(|stamp| {
        let asked = Asked { message, stamp: &stamp, question: None };
        child.link.call_as(key, connection, asked, Reply::Stream(Arc::clone(reply), call.ending()))
    });
    if sent.is_err() {
        // Nothing was sent; the long way finds or starts another child.
        connection.end(&id);
        return None;
    }
    // A cancel on another thread may have come before the call was there to be cancelled.
    if !matches!(connection.outlet, Outlet::Stdio(_)) && connection.is_cancelled(&id) {
        child.link.cancel(key, None);
    }
    Some(Sent::To(child, key))
}

/// Where a request went.
#[derive(Debug)]
pub enum Sent {
    Answered,
    To(Arc<Child>, u64),
}

async fn carry(
    pipes: &Pipes,
    connection: &Arc<Connection>,
    call: &Call,
    reply: &Arc<Outbox>,
) -> Result<Sent, CallError> {
    let message = &call.message;
    let id = message.id().unwrap_or_default();
    if message.method() == "initialize" {
        let answer = initialize(pipes, connection, message).await?;
        reply.finish(as_answer_to(&answer, &id));
        return Ok(Sent::Answered);
    }
    if message.method() == "tools/call" {
        pipes.catalogue.check_call(&message.name().unwrap_or_default())?;
    }
    let question = call.question();
    let mut tries = 0;
    loop {
        tries += 1;
        let child = match route(pipes, connection, call, question.as_ref()).await? {
            Route::Child(child) => child,
            Route::StandIn(answer) => {
                let answered = Answered::By(&answer, as_answer_to(&answer, &id));
                reply.finish(Box::pin(call.ending().answer(Some(&id), answered)).await);
                return Ok(Sent::Answered);
            }
        };
        match send(pipes, connection, call, reply, child).await {
            // It was stopped for being idle just now. Nothing was sent, so another can be asked.
            Err(CallError::Restarting { .. }) if tries < 3 => {}
            sent => return sent,
        }
    }
}

async fn send(
    pipes: &Pipes,
    connection: &Arc<Connection>,
    call: &Call,
    reply: &Arc<Outbox>,
    child: Arc<Child>,
) -> Result<Sent, CallError> {
    let message = &call.message;
    let id = message.id().unwrap_or_default();
    if connection.is_closed() {
        // The session ended while its child was being started.
        pipes.pool.connection_closed(connection);
        return Err(CallError::NoSuchSession);
    }
    if message.method() == "resources/unsubscribe"
        && let Some(uri) = message.head().name.as_ref().map(|span| message.slice(span))
        && child.link.leave_subscription(&uri, connection)
    {
        let text = String::from_utf8_lossy(&id);
        let left = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{text},"result":{{}}}}"#));
        let answer = Message::parse(left.clone())?;
        reply.finish(Box::pin(call.ending().answer(Some(&id), Answered::By(&answer, left))).await);
        return Ok(Sent::Answered);
    }
    if !child.link.outbox.has_room()
        && tokio::time::timeout(SLOW_READER, child.link.outbox.room()).await.is_err()
    {
        let (server, seconds) = (child.link.server().to_owned(), SLOW_READER.as_secs());
        return Err(CallError::Timeout { server, seconds });
    }
    if message.method() == "logging/setLevel" {
        connection.record_level(message);
    }
    if connection.is_cancelled(&id) {
        reply.close_unless_shared(connection);
        return Ok(Sent::Answered);
    }
    let stamp = pipes.pool.stamp(call)?;
    let asked = Asked { message, stamp: &stamp, question: call.question() };
    let key = child.link.call(connection, asked, Reply::Stream(Arc::clone(reply), call.ending()))?;
    if !connection.sent(&id, &child.link, key) {
        child.link.cancel(key, None);
    }
    if message.method() == "tools/call" {
        connection.remember_child(caller_of(connection, call).0, &child);
    }
    Ok(Sent::To(child, key))
}

/// For whom a request is made, as far as it decides which process is asked, and who that is.
///
/// In the old era a request that names nobody belongs to the only one who has ever called on its connection: there
/// the host keeps a connection a thread. It goes to that process and carries no identity. In the new era a request
/// stands alone.
fn caller_of(connection: &Connection, call: &Call) -> (CallerKey, Arc<Caller>) {
    if let Some(known) = call.caller.known() {
        return (CallerKey::Known(known), Arc::clone(&call.caller));
    }
    if !call.message.is_modern()
        && let Callers::One(one) = connection.callers()
        && let Some(known) = one.known()
    {
        return (CallerKey::Known(known), one);
    }
    (CallerKey::Connection(connection.id, call.caller.workspace.clone()), Arc::clone(&call.caller))
}

enum Route {
    Child(Arc<Child>),
    /// The lobby has stopped and nothing has changed since: its answer still holds.
    StandIn(Box<Message>),
}

/// Finds the process a request belongs to and makes it ready.
async fn route(
    pipes: &Pipes,
    connection: &Arc<Connection>,
    call: &Call,
    question: Option<&Bytes>,
) -> Result<Route, CallError> {
    let message = &call.message;
    let from = child_of_handle(connection, call).and_then(|link| pipes.pool.child_of(&link));
    if let Some(child) = from.filter(|child| child.is_alive()) {
        return Ok(Route::Child(child));
    }
    let child = match pipes.pool.isolation() {
        Isolation::Shared => pipes.pool.child(&ChildKey::Shared, Owner::Everybody).await?,
        Isolation::Session => {
            let (key, caller) = caller_of(connection, call);
            let key = ChildKey::Caller(key);
            if !meta::is_discovery(message.method()) || pipes.pool.find(&key).is_some() {
                pipes.pool.child(&key, Owner::Caller(&caller, call.env())).await?
            } else {
                let lobby = ChildKey::lobby(connection);
                if let (None, Some(question)) = (pipes.pool.find(&lobby), question)
                    && let Some(answer) = pipes.catalogue.recall(question)
                {
                    return Ok(Route::StandIn(Box::new(answer)));
                }
                pipes.pool.child(&lobby, pipes.pool.asking(connection)).await?
            }
        }
    };
    prepare(&child, connection, message).await?;
    Ok(Route::Child(child))
}

/// The pipe a handle came from: a cursor, a task, a listed resource, or a list that has changed. Who names somebody
/// by evidence of its own is served by that one's process, whatever handle it holds.
fn child_of_handle(connection: &Connection, call: &Call) -> Option<Arc<Link>> {
    let (message, head) = (&call.message, call.message.head());
    let method = message.method();
    let changed = meta::is_list(method).then(|| connection.asks_for_list(method)).flatten();
    if let Some(cursor) = &head.cursor {
        return connection.link_of_cursor(&message.bytes()[cursor.clone()]);
    }
    if call.caller.known().is_some() {
        return None;
    }
    let is_handle = method.starts_with("tasks/") || method.starts_with("resources/");
    let name = head.name.as_ref().filter(|_| is_handle);
    changed.or_else(|| connection.link_of_handle(&message.bytes()[name?.clone()]))
}

/// A server of the old era must be initialized before its first call; one of the new era must not be.
async fn prepare(
    child: &Arc<Child>,
    connection: &Arc<Connection>,
    message: &Message,
) -> Result<(), CallError> {
    if child.is_ready() || message.is_modern() || connection.recorded().initialize.is_none() {
        return Ok(());
    }
    let answer = child.handshake(connection).await?;
    match &answer.head().error {
        None => Ok(()),
        Some(error) => Err(CallError::AnswerInvalid {
            server: child.link.server().to_owned(),
            reason: format!(
                "it refused initialize: {}",
                String::from_utf8_lossy(&answer.bytes()[error.clone()])
            ),
        }),
    }
}

async fn initialize(
    pipes: &Pipes,
    connection: &Arc<Connection>,
    message: &Message,
) -> Result<Message, CallError> {
    if connection.record_initialize(message) {
        pipes.pool.connection_closed(connection);
    }
    let key = match pipes.pool.isolation() {
        Isolation::Shared => ChildKey::Shared,
        Isolation::Session => {
            let question = stand_in_question(message);
            if let Some(answer) = question.as_ref().and_then(|question| pipes.catalogue.recall(question)) {
                return Ok(answer);
            }
            ChildKey::lobby(connection)
        }
    };
    let owner = if key == ChildKey::Shared { Owner::Everybody } else { pipes.pool.asking(connection) };
    let child = pipes.pool.child(&key, owner).await?;
    let answer = child.handshake(connection).await?;
    if answer.head().error.is_none()
        && let Some(question) = stand_in_question(message)
    {
        pipes.catalogue.remember(question, answer.clone());
    }
    Ok(answer)
}

/// Carries a notification.
pub fn notification(pipes: &Pipes, connection: &Arc<Connection>, message: &Message) {
    let children = pipes.pool.children_of(connection);
    if message.method() == "notifications/initialized" {
        connection.record_initialized(message);
        for child in children.iter().filter(|child| child.is_ready()) {
            child.pass_initialized(connection);
        }
        return;
    }
    let links: Vec<Arc<Link>> = children.iter().map(|child| Arc::clone(&child.link)).collect();
    notify(&links, connection, message);
}

/// Carries a notification to whom it concerns among `links`.
pub fn notify(links: &[Arc<Link>], connection: &Connection, message: &Message) {
    let head = message.head();
    match message.method() {
        "notifications/cancelled" => {
            // A cancel for what is answered already is common and means nothing.
            let id = head.request_id.as_ref().map(|span| message.slice(span));
            if let Some((link, key)) = id.and_then(|id| connection.cancel(&id)) {
                link.cancel(key, Some(message));
            }
        }
        "notifications/progress" => {
            let span = head.progress_token.clone();
            let asked =
                span.as_ref().and_then(|span| connection.server_request_of_token(&message.slice(span)));
            if let (Some(span), Some(asked)) = (span, asked)
                && let (Some(link), Some(token)) = (asked.link.upgrade(), asked.token)
            {
                link.send_with(message, span, &token);
            }
        }
        _ => {
            for link in links {
                link.send(message.bytes());
            }
        }
    }
}

/// Carries a request over one given link. It must have begun ([`Connection::begin`]).
pub fn over_link(link: &Arc<Link>, connection: &Arc<Connection>, call: &Call, reply: &Arc<Outbox>) {
    let (id, message) = (call.message.id().unwrap_or_default(), &call.message);
    if connection.is_cancelled(&id) {
        connection.end(&id);
        return reply.close_unless_shared(connection);
    }
    let to = Reply::Stream(Arc::clone(reply), call.ending());
    let sent = link
        .stamp(call)
        .and_then(|stamp| link.call(connection, Asked { message, stamp: &stamp, question: None }, to));
    match sent {
        Ok(key) => drop(connection.sent(&id, link, key)),
        Err(error) => {
            let (outbox, connection) = (Arc::clone(reply), Arc::clone(connection));
            call.ending().finish(Answered::Failed(&error), Asker { outbox, connection, id });
        }
    }
}

/// Carries the client's answer to a server's request.
pub fn response(connection: &Arc<Connection>, message: &Message) {
    let (Some(span), Some(id)) = (message.head().id.clone(), message.id()) else { return };
    if let Some(asked) = connection.take_server_request(&id)
        && let Some(link) = asked.link.upgrade()
    {
        link.send_with(message, span, &asked.id);
    }
}

/// Whether this message is for [`request`].
pub fn is_request(message: &Message) -> bool {
    message.kind() == Kind::Request
}

/// What an answer stands for: the method and its parameters, less what differs from request to request.
pub fn stand_in_question(message: &Message) -> Option<Bytes> {
    let method = message.method();
    let stands = meta::is_list(method) || matches!(method, "initialize" | "server/discover");
    if !stands {
        return None;
    }
    let head = message.head();
    let mut question = method.as_bytes().to_vec();
    question.push(b'\n');
    if let Some(params) = &head.params {
        let skip = head.progress_token.clone().unwrap_or(params.end..params.end);
        question.extend_from_slice(&message.bytes()[params.start..skip.start]);
        question.extend_from_slice(&message.bytes()[skip.end..params.end]);
    }
    Some(Bytes::from(question))
}
