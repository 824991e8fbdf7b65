//! A host on a pipe: `callsign wrap`.

mod bridge;
mod pipe;

use std::future::Future as _;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use identity::Channel;
use mcp::stdio::{Line, LineReader};
use mcp::{Kind, Message};
use model::Principal;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::call;
use crate::caller::{Call, Caller};
use crate::connection::{Connection, Outlet};
use crate::front::http::MAX_INBOUND;
use crate::outbox::Outbox;
use crate::respond::CallError;
use crate::server::child::{LineEnds, write_all};
use crate::server::{Backend, Pipes, Server};
use bridge::Bridge;

pub use pipe::{standard_input, standard_output};

/// How long calls under way may take once the host has said its last word.
const LAST_ANSWERS: Duration = Duration::from_mins(1);
/// How long our processes may take to end.
const ENDING: Duration = Duration::from_secs(6);
/// How long the host may take to read what is still queued for it.
const LAST_WRITES: Duration = Duration::from_secs(2);

/// Serves one host until it closes its end, or `stop`. Returns when nothing of the server is left.
pub async fn serve(
    server: Arc<Server>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    tasks: TaskTracker,
    stop: CancellationToken,
) {
    let outbox = Arc::new(Outbox::new());
    let queue = Arc::clone(&outbox);
    let gone = stop.clone();
    let writer = tasks.spawn(async move {
        write_all(&queue, output, LineEnds::Added).await;
        gone.cancel(); // A host that does not read any more is gone.
    });
    let connection =
        Arc::new(Connection::new(Principal::local(), Outlet::Stdio(Arc::clone(&outbox)), Channel::Pipe));
    connection.set_standing(server.identification.standing(Channel::Pipe, None));
    let bridge = match &server.backend {
        Backend::Pipes(_) => None,
        Backend::Remote(remote) => Some(Bridge::new(remote, &connection, &outbox)),
    };
    let host = Host { server, connection, outbox, tasks: tasks.clone() };
    tokio::select! {
        () = host.read(input, bridge.as_ref()) => {
            tokio::select! {
                _ = tokio::time::timeout(LAST_ANSWERS, host.connection.all_answered()) => {}
                () = stop.cancelled() => {}
            }
        }
        () = stop.cancelled() => {}
    }
    if let Some(bridge) = &bridge {
        bridge.end().await;
    }
    if let Backend::Pipes(pipes) = &host.server.backend {
        // What is still under way is given up by its host, not by the processes that are ended next.
        for child in pipes.pool.children_of(&host.connection) {
            child.link.detach(&host.connection);
        }
    }
    host.server.close();
    host.connection.close();
    let _written_or_gone = tokio::time::timeout(LAST_WRITES, writer).await;
    tasks.close();
    if tokio::time::timeout(ENDING, tasks.wait()).await.is_err() {
        tracing::warn!("the server's processes did not end in time; their supervisors go on ending them");
    }
}

struct Host {
    server: Arc<Server>,
    connection: Arc<Connection>,
    outbox: Arc<Outbox>,
    tasks: TaskTracker,
}

impl Host {
    async fn read(&self, input: impl AsyncRead + Unpin, bridge: Option<&Bridge>) {
        let mut reader = LineReader::new(input, MAX_INBOUND);
        loop {
            let Ok(Some(line)) = reader.next().await else { return };
            let parsed = match line {
                Line::TooLong(ends) => Err((CallError::TooLarge { limit: MAX_INBOUND }, ends.id())),
                Line::Text(text) => {
                    Message::parse(text).map_err(|refused| (CallError::Refused(refused), None))
                }
            };
            match (parsed, bridge) {
                (Err((error, id)), _) => drop(self.outbox.push(error.to_message(id.as_deref()))),
                (Ok(message), Some(bridge)) => self.bridge(message, bridge).await,
                (Ok(message), None) => self.carry(message).await,
            }
            if !self.outbox.has_room() {
                self.outbox.room().await; // A host that asks faster than it reads is held back.
            }
        }
    }

    async fn carry(&self, message: Message) {
        let Backend::Pipes(pipes) = &self.server.backend else { return };
        let (id, kind) = (message.id(), message.kind());
        if kind == Kind::Request {
            match self.server.identify(&self.connection, None, message) {
                Ok(call) => {
                    if call::request_at_once(pipes, &self.connection, &call, &self.outbox).is_none() {
                        self.request(call).await;
                    }
                }
                Err(error) => drop(self.outbox.push(error.to_message(id.as_deref()))),
            }
            return;
        }
        let Ok(message) = self.server.identification.cleaned(message) else { return };
        match kind {
            Kind::Notification => call::notification(pipes, &self.connection, &message),
            Kind::Response | Kind::Request => call::response(&self.connection, &message),
        }
    }

    async fn bridge(&self, message: Message, bridge: &Bridge) {
        let (id, kind) = (message.id(), message.kind());
        let call = if kind == Kind::Request {
            self.server.identify(&self.connection, None, message)
        } else {
            let nobody = || Arc::new(Caller::nobody(self.connection.principal.clone()));
            self.server.identification.cleaned(message).map(|message| Call::new(message, nobody()))
        };
        match call {
            Ok(call) => bridge.carry(call).await,
            Err(error) if kind == Kind::Request => drop(self.outbox.push(error.to_message(id.as_deref()))),
            Err(error) => tracing::debug!(%error, "a message was not passed on"),
        }
    }

    /// Most requests go out at once. One that must wait, for a child to start, waits on its own.
    async fn request(&self, call: Call) {
        let (server, connection) = (Arc::clone(&self.server), Arc::clone(&self.connection));
        let reply = Arc::clone(&self.outbox);
        let mut carried = Box::pin(async move {
            if let Some(pipes) = pipes_of(&server) {
                call::request(pipes, &connection, call, reply).await;
            }
        });
        let done =
            std::future::poll_fn(|context| Poll::Ready(carried.as_mut().poll(context).is_ready())).await;
        if !done {
            self.tasks.spawn(carried);
        }
    }
}

fn pipes_of(server: &Server) -> Option<&Pipes> {
    match &server.backend {
        Backend::Pipes(pipes) => Some(pipes),
        Backend::Remote(_) => None,
    }
}
