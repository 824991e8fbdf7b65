//! Sessions of the legacy era, with one thing more than the library's: the server can close the
//! stream of a call in progress, which `test_reconnection` does to make its client poll.
//!
//! The library can close a stream by a number that it never tells a handler; the wrapper learns the
//! number where the stream is made and keeps it until the tool asks.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::{Stream, stream};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, RequestId, ServerJsonRpcMessage};
use rmcp::transport::common::server_side_http::ServerSseMessage;
use rmcp::transport::streamable_http_server::SessionId;
use rmcp::transport::streamable_http_server::session::SessionManager;
use rmcp::transport::streamable_http_server::session::local::{
    LocalSessionManager, LocalSessionManagerError,
};

use super::catalogue::RECONNECTION_TOOL;

/// How soon the client is told to come back for the rest.
const COME_BACK_AFTER: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Streams {
    sessions: LocalSessionManager,
    /// Streams of calls that will ask to be closed. Each is taken out by its call.
    closable: Mutex<HashMap<(SessionId, RequestId), u64>>,
}

impl Streams {
    /// Closes the stream of this call; its result waits for a client that resumes. Does nothing
    /// for a call that has no stream of its own.
    pub(super) async fn close(&self, session: &str, request: &RequestId) {
        let key = (SessionId::from(session), request.clone());
        let Some(number) = self.closable.lock().unwrap_or_else(PoisonError::into_inner).remove(&key) else {
            return;
        };
        let Some(handle) = self.sessions.sessions.read().await.get(&key.0).cloned() else {
            return;
        };
        // Fails when the client has gone, and then there is nothing to close.
        drop(handle.close_sse_stream(number, Some(COME_BACK_AFTER)).await);
    }
}

impl SessionManager for Streams {
    type Error = LocalSessionManagerError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        self.sessions.create_session().await
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        self.sessions.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        self.sessions.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.closable.lock().unwrap_or_else(PoisonError::into_inner).retain(|(session, _), _| session != id);
        self.sessions.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let handle = self.sessions.sessions.read().await.get(id).cloned();
        let handle = handle.ok_or_else(|| LocalSessionManagerError::SessionNotFound(id.clone()))?;
        let receiver = handle.establish_request_wise_channel().await?;
        // Remember before the message is handed on: the tool may run at once.
        if let (Some(request), Some(number)) = (closable(&message), receiver.http_request_id) {
            self.closable
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert((id.clone(), request), number);
        }
        handle.push_message(message, receiver.http_request_id).await?;
        let mut events = receiver.inner;
        Ok(stream::poll_fn(move |context| events.poll_recv(context)))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        self.sessions.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        self.sessions.resume(id, last_event_id).await
    }
}

fn closable(message: &ClientJsonRpcMessage) -> Option<RequestId> {
    if let ClientJsonRpcMessage::Request(request) = message
        && let ClientRequest::CallToolRequest(call) = &request.request
        && call.params.name == RECONNECTION_TOOL
    {
        return Some(request.id.clone());
    }
    None
}
