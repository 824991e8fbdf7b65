//! OpenCode. 1.x says nothing by itself: our plugin seals who calls into an argument (`seal.rs`). 2.x names the
//! calling session in `_meta`.

use model::Placeholder;

use super::{Adapter, PROBE, no_headers};
use crate::evidence::{Claim, Keys, id};

pub(super) static ADAPTER: Adapter = Adapter {
    name: "opencode",
    client: |client| client == "opencode",
    meta,
    headers: no_headers,
    inherited: None,
    variables: &[
        ("OPENCODE_SESSION_ID", Placeholder::ThreadId),
        ("OPENCODE_SESSION_TITLE", Placeholder::SessionTitle),
    ],
    probe: PROBE,
};

fn meta(keys: &Keys<'_>) -> Claim {
    Claim { thread: id(keys.opencode_session), ..Claim::default() }
}
