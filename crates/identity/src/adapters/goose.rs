//! Goose. Its session and directory are in the `_meta` of every request, lists included.

use model::Placeholder;

use super::{Adapter, PROBE, no_headers};
use crate::evidence::{Claim, Keys, id, text};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "goose",
    client: |client| client == "goose" || client.starts_with("goose-"),
    meta,
    headers: no_headers,
    inherited: Some("AGENT_SESSION_ID"),
    variables: &[("AGENT_SESSION_ID", Placeholder::SessionId)],
    probe: PROBE,
};

fn meta(keys: &Keys<'_>) -> Claim {
    let workspace = text(keys.goose_directory).map(Into::into);
    Claim { session: id(keys.goose_session), workspace, ..Claim::default() }
}
