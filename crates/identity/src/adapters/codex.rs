//! Codex. Every `tools/call` has its thread; since subagents share a session, `sessionId` is the root.
//!
//! | versions | what they send |
//! |---|---|
//! | 0.122 | turn metadata with `session_id` (then the conversation itself) and `turn_id` |
//! | 0.123 … | `threadId` as well |
//! | 0.145 … | `thread_id` in the turn metadata |
//! | 0.153 … | `callId` |
//! | 0.156 … | `sessionId` |
//!
//! A `CODEX_THREAD_ID` in our own environment is an outer Codex's, never the caller's: it is not evidence.

use std::borrow::Cow;

use model::{Id, Placeholder};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Adapter, no_headers};
use crate::evidence::{Claim, Keys, id};

/// Servers may check that it is a UUID.
const NIL: &str = "00000000-0000-0000-0000-000000000000";

pub(super) static ADAPTER: Adapter = Adapter {
    name: "codex",
    client: |client| client == "codex-mcp-client",
    meta,
    headers: no_headers,
    inherited: None,
    variables: &[("CODEX_THREAD_ID", Placeholder::ThreadId), ("CODEX_SESSION_ID", Placeholder::SessionId)],
    probe: NIL,
};

#[derive(Default, Deserialize)]
struct Turn<'a> {
    #[serde(borrow, default, rename = "session_id")]
    session: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "thread_id")]
    thread: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "turn_id")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default, rename = "parent_thread_id")]
    parent: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Sandbox<'a> {
    #[serde(borrow, rename = "sandboxCwd")]
    cwd: Option<Cow<'a, str>>,
}

fn meta(keys: &Keys<'_>) -> Claim {
    let as_id = |said: Option<Cow<'_, str>>| said.and_then(|said| Id::new(said.into_owned()).ok());
    let turn: Turn<'_> =
        keys.codex_turn.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let own = id(keys.codex_thread);
    // Codex writes `threadId` over whatever a client of its own put there; the rest such a client may have made up.
    let said = turn.thread.as_deref();
    let contradicts = own.as_ref().is_some_and(|own| said.is_some_and(|said| said != own.as_str()));
    if contradicts {
        return Claim { thread: own, ..Claim::default() };
    }
    let of_turn = as_id(turn.thread);
    let session = id(keys.codex_session).or_else(|| as_id(turn.session));
    Claim {
        // Before 0.123 the session was the conversation that calls.
        thread: own.or(of_turn).or_else(|| keys.codex_turn.and(session.clone())),
        session: session.filter(|_| keys.codex_turn.is_some()),
        parent: as_id(turn.parent),
        turn: as_id(turn.id),
        call: id(keys.codex_call).filter(|_| keys.codex_turn.is_some()),
        workspace: sandbox(keys.codex_sandbox).or_else(|| sandbox(keys.codex_sandbox_meta)),
        ..Claim::default()
    }
}

fn sandbox(raw: Option<&RawValue>) -> Option<Box<str>> {
    let sandbox: Sandbox<'_> = serde_json::from_str(raw?.get()).ok()?;
    sandbox.cwd.map(Into::into)
}
