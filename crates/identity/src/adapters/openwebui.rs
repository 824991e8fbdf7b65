//! Open WebUI. Where it is told to forward who asks, its requests have the chat and the message as headers.

use super::{Adapter, PROBE, id_header, no_client, no_meta};
use crate::evidence::{Claim, Headers};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "openwebui",
    client: no_client,
    meta: no_meta,
    headers,
    inherited: None,
    variables: &[],
    probe: PROBE,
};

fn headers(headers: &dyn Headers) -> Claim {
    Claim {
        session: id_header(headers, "x-openwebui-chat-id"),
        turn: id_header(headers, "x-openwebui-message-id"),
        ..Claim::default()
    }
}
