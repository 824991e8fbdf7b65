//! VS Code. A call has the conversation and the request that made it.

use super::{Adapter, PROBE, no_headers};
use crate::evidence::{Claim, Keys, id};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "vscode",
    client: |client| client.starts_with("Visual Studio Code") || client == "vscode",
    meta,
    headers: no_headers,
    inherited: None,
    variables: &[],
    probe: PROBE,
};

fn meta(keys: &Keys<'_>) -> Claim {
    Claim { session: id(keys.vscode_conversation), turn: id(keys.vscode_request), ..Claim::default() }
}
