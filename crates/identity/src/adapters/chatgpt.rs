//! ChatGPT. A call has an anonymous id of its conversation.

use super::{Adapter, PROBE, no_headers};
use crate::evidence::{Claim, Keys, id};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "chatgpt",
    client: |client| client == "openai-mcp" || client.eq_ignore_ascii_case("chatgpt"),
    meta,
    headers: no_headers,
    inherited: None,
    variables: &[],
    probe: PROBE,
};

fn meta(keys: &Keys<'_>) -> Claim {
    Claim { session: id(keys.chatgpt_session), ..Claim::default() }
}
