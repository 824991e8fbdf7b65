//! Changes of the lists, and the clients that listen to them.
//!
//! The lists never change in fact: the suite wants the notification, and asks elsewhere that two
//! lists taken one after the other are equal.

use std::time::Duration;

use rmcp::model::{NotificationNoParam, ServerNotification, SubscriptionFilter};
use rmcp::service::{Peer, RoleServer, SubscriptionContext, SubscriptionSendError};
use rmcp::{ErrorData, ServiceError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Tools,
    Prompts,
}

impl Change {
    fn notification(self) -> ServerNotification {
        match self {
            Self::Tools => ServerNotification::ToolListChangedNotification(NotificationNoParam::default()),
            Self::Prompts => {
                ServerNotification::PromptListChangedNotification(NotificationNoParam::default())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Changes(broadcast::Sender<Change>);

impl Changes {
    pub(super) fn new() -> Self {
        Self(broadcast::Sender::new(16))
    }

    /// Tells every `subscriptions/listen` stream of this process, a moment later: rmcp acknowledges a listen
    /// before its handler runs, and the suite makes a change as soon as it sees the acknowledgement.
    pub(super) async fn announce(&self, change: Change) {
        tokio::time::sleep(Duration::from_millis(100)).await;
        // An error here means that nobody listens.
        drop(self.0.send(change));
    }

    /// Tells the one client of a legacy session, which has no subscriptions for lists.
    pub(super) async fn announce_to(peer: &Peer<RoleServer>, change: Change) -> Result<(), ServiceError> {
        peer.send_notification(change.notification()).await
    }

    /// Runs one listen stream until its client goes away.
    pub(super) async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.subscribe();
        loop {
            let change = tokio::select! {
                () = subscription.cancelled() => return Ok(()),
                change = changes.recv() => change,
            };
            let change = match change {
                Ok(change) => change,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return Ok(()),
            };
            if !wants(subscription.accepted(), change) {
                continue;
            }
            match subscription.sink().send(change.notification()).await {
                Ok(()) => {}
                Err(SubscriptionSendError::SubscriptionClosed) => return Ok(()),
                Err(error) => return Err(ErrorData::internal_error(error.to_string(), None)),
            }
        }
    }
}

fn wants(filter: &SubscriptionFilter, change: Change) -> bool {
    let asked = match change {
        Change::Tools => filter.tools_list_changed,
        Change::Prompts => filter.prompts_list_changed,
    };
    asked == Some(true)
}
