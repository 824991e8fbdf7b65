//! OpenHands. Its requests have the conversation as a header.

use super::{Adapter, PROBE, id_header, no_client, no_meta};
use crate::evidence::{Claim, Headers};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "openhands",
    client: no_client,
    meta: no_meta,
    headers,
    inherited: None,
    variables: &[],
    probe: PROBE,
};

fn headers(headers: &dyn Headers) -> Claim {
    Claim { session: id_header(headers, "x-openhands-conversation-id"), ..Claim::default() }
}
