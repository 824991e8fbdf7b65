//! The seal: how our plugin for `OpenCode` says who calls, in an argument of the call.
//!
//! ```text
//! v1.<base64url of the JSON payload>.<base64url of HMAC-SHA-256(key, everything before the last dot)>
//! ```
//!
//! **Invariant:** nothing of a payload is looked at before its authentication code was found right, and a seal opens
//! once, for the tool it was made for.

mod memory;

use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use model::identity::{Id, check_title};
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::evidence::Claim;
use memory::{Memory, Recall};

/// How far the plugin's clock may be ahead of ours.
const SKEW_MS: u64 = 30_000;
/// A person may let a permission question wait for long.
const MAX_AGE_MS: u64 = 24 * 60 * 60 * 1000;
const MAX_LENGTH: usize = 16 * 1024;
const VERSION: &str = "v1.";

/// What the plugin and we share. Only the plugin's process and ours have it.
#[derive(Clone)]
pub struct SealKey(hmac::Key);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a seal key is 32 bytes in base64url without padding")]
pub struct BadKey;

/// What a seal says. The plugin writes it in JavaScript; here it is for tests and measurements.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// The session that calls.
    pub session: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The root of the chain of parents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// As [`tool_name`] gives it.
    pub tool: String,
    /// Unix milliseconds.
    pub at: u64,
    pub nonce: String,
}

/// What an opened seal says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The session that calls.
    pub session: Id,
    pub parent: Option<Id>,
    pub root: Option<Id>,
    pub call: Option<Id>,
    pub title: Option<Box<str>>,
    /// As it was said: a selector, not a path to trust.
    pub directory: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSeal {
    #[error("it is no seal")]
    Malformed,
    #[error("its authentication code is wrong")]
    Forged,
    #[error("it was made for another tool")]
    OtherTool,
    #[error("it is from the future")]
    Early,
    #[error("it is too old")]
    Late,
    #[error("it was used before")]
    Replayed,
}

/// Opens the seals of one server's calls, each once.
#[derive(Debug)]
pub struct Seals {
    key: SealKey,
    server: String,
    memory: Mutex<Memory>,
}

impl SealKey {
    /// `text`: what the environment variable `CALLSIGN_SEAL_KEY` holds.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let mut bytes = [0; 33];
        let length = BASE64.decode_slice(text, &mut bytes).map_err(|_| BadKey)?;
        if length != 32 {
            return Err(BadKey);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &bytes[..32])))
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

/// Makes a seal.
pub fn seal(key: &SealKey, payload: &Payload) -> Result<String, serde_json::Error> {
    let mut token = VERSION.to_owned();
    BASE64.encode_string(serde_json::to_vec(payload)?, &mut token);
    let code = hmac::sign(&key.0, token.as_bytes());
    token.push('.');
    BASE64.encode_string(code, &mut token);
    Ok(token)
}

/// What `OpenCode` calls a tool of a server.
pub fn tool_name(server: &str, tool: &str) -> String {
    let mut name = String::with_capacity(server.len() + 1 + tool.len());
    push_plain(&mut name, server);
    name.push('_');
    push_plain(&mut name, tool);
    name
}

fn push_plain(name: &mut String, text: &str) {
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '-') {
            name.push(character);
        } else {
            // OpenCode's pattern goes by UTF-16 code units.
            name.extend(std::iter::repeat_n('_', character.len_utf16()));
        }
    }
}

impl Seals {
    /// `server`: its name in the configuration of `OpenCode`.
    pub fn new(key: SealKey, server: &str) -> Self {
        Self { key, server: server.to_owned(), memory: Mutex::default() }
    }

    /// A seal that was refused may still be opened where it belongs.
    pub fn open(&self, token: &str, tool: &str, now_ms: u64) -> Result<Opened, BadSeal> {
        let payload = self.authenticate(token)?;
        if payload.tool != tool_name(&self.server, tool) {
            return Err(BadSeal::OtherTool);
        }
        if payload.at > now_ms.saturating_add(SKEW_MS) {
            return Err(BadSeal::Early);
        }
        if payload.at < now_ms.saturating_sub(MAX_AGE_MS) {
            return Err(BadSeal::Late);
        }
        let (nonce, at) = (payload.nonce.clone(), payload.at);
        let opened = Opened::from_payload(payload)?;
        // Nothing panics while it is held; a poisoned lock still guards a whole value.
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        match memory.recall(&nonce, at) {
            Recall::New => Ok(opened),
            Recall::Seen => Err(BadSeal::Replayed),
            Recall::Forgotten => Err(BadSeal::Late),
        }
    }

    /// [`Seals::open`], in the words of evidence.
    pub fn claim(&self, token: &str, tool: &str, now_ms: u64) -> Result<Claim, BadSeal> {
        let Opened { session, parent, root, call, title, directory } = self.open(token, tool, now_ms)?;
        Ok(Claim {
            session: Some(root.or_else(|| parent.clone()).unwrap_or_else(|| session.clone())),
            thread: Some(session),
            parent,
            call,
            title,
            workspace: directory,
            ..Claim::default()
        })
    }

    fn authenticate(&self, token: &str) -> Result<Payload, BadSeal> {
        if token.len() > MAX_LENGTH || !token.starts_with(VERSION) {
            return Err(BadSeal::Malformed);
        }
        let (signed, code) = token.rsplit_once('.').ok_or(BadSeal::Malformed)?;
        let payload = signed.strip_prefix(VERSION).ok_or(BadSeal::Malformed)?;
        let code = BASE64.decode(code).map_err(|_| BadSeal::Malformed)?;
        // Takes the same time wherever the codes differ.
        hmac::verify(&self.key.0, signed.as_bytes(), &code).map_err(|_| BadSeal::Forged)?;
        let payload = BASE64.decode(payload).map_err(|_| BadSeal::Malformed)?;
        serde_json::from_slice(&payload).map_err(|_| BadSeal::Malformed)
    }
}

impl Opened {
    /// What identifies must be right; what only describes is left out where it is not.
    fn from_payload(payload: Payload) -> Result<Self, BadSeal> {
        let Payload { session, parent, root, call, title, directory, tool: _, at: _, nonce } = payload;
        if !(16..=256).contains(&nonce.len()) {
            return Err(BadSeal::Malformed);
        }
        let id = |text: String| Id::new(text).map_err(|_| BadSeal::Malformed);
        Ok(Self {
            session: id(session)?,
            parent: parent.map(id).transpose()?,
            root: root.map(id).transpose()?,
            call: call.and_then(|call| Id::new(call).ok()),
            title: title.as_deref().and_then(check_title).map(Into::into),
            directory: directory.filter(|directory| !directory.trim().is_empty()).map(Into::into),
        })
    }
}

#[cfg(test)]
mod tests;
