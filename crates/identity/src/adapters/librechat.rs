//! LibreChat. It has no header of its own: its configuration fills placeholders into headers that the user names.
//! We read `X-LibreChat-Conversation-Id: {{LIBRECHAT_BODY_CONVERSATIONID}}` and
//! `X-LibreChat-Message-Id: {{LIBRECHAT_BODY_MESSAGEID}}`.

use super::{Adapter, PROBE, id_header, no_meta};
use crate::evidence::{Claim, Headers};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "librechat",
    client: |client| client.starts_with("@librechat/"),
    meta: no_meta,
    headers,
    inherited: None,
    variables: &[],
    probe: PROBE,
};

fn headers(headers: &dyn Headers) -> Claim {
    // A placeholder it does not know stays as it is written.
    let filled = |name: &str| id_header(headers, name).filter(|id| !id.as_str().starts_with("{{"));
    Claim {
        session: filled("x-librechat-conversation-id"),
        turn: filled("x-librechat-message-id"),
        ..Claim::default()
    }
}
