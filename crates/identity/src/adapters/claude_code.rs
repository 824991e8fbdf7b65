//! Claude Code. A call has only the id of its tool use; who uses the tool is what its `PreToolUse` hook announced
//! (`announce.rs`). The session in our environment is the one that started us, which `/clear` replaces.

use model::Placeholder;

use super::{Adapter, PROBE, no_headers};
use crate::evidence::{Claim, Keys, id};

pub(super) const NAME: &str = "claude-code";

pub(super) static ADAPTER: Adapter = Adapter {
    name: NAME,
    client: |client| client == NAME,
    meta,
    headers: no_headers,
    inherited: Some("CLAUDE_CODE_SESSION_ID"),
    variables: &[("CLAUDE_CODE_SESSION_ID", Placeholder::SessionId)],
    probe: PROBE,
};

fn meta(keys: &Keys<'_>) -> Claim {
    Claim { call: id(keys.claude_tool_use), ..Claim::default() }
}
