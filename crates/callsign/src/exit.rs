//! How a command ends: the only table from errors to messages and exit codes.
//!
//! | code | what happened |
//! |---|---|
//! | 0 | all is well |
//! | 1 | something unexpected: a bug of ours, or of the machine |
//! | 2 | the command line is wrong (clap's own code) |
//! | 3 | the configuration is wrong |
//! | 4 | the state directory cannot be used, a daemon already runs on it, or the ledger cannot be read |
//! | 5 | a server, the daemon or a container engine could not be started or reached, or did not do as it was asked |
//! | 6 | the address to listen on is taken or not ours |
//! | 7 | the ledger is not what was written, or there is no key to tell |
//! | 8 | `submit --wait`: the run failed |
//! | 9 | `submit --wait`: the run was canceled |
//! | 130 | `submit --wait`: somebody stopped waiting, and the run goes on |
//!
//! An expected error prints `error: …`, and `hint: …` where we know what to do about it.

use std::io::{self, Write};

use identity::notary::NotaryError;
use ledger::LedgerError;

use crate::config::{ConfigErrors, OpenToOthers};
use crate::state::StateError;
use crate::tokens::TokenError;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Ok = 0,
    Unexpected = 1,
    Usage = 2,
    Configuration = 3,
    State = 4,
    Server = 5,
    Listen = 6,
    Unverified = 7,
    RunFailed = 8,
    RunCanceled = 9,
    /// As shells have it for Ctrl-C.
    Interrupted = 130,
}

impl From<Code> for std::process::ExitCode {
    fn from(code: Code) -> Self {
        Self::from(code as u8)
    }
}

/// An error that can happen to anybody, in words for the person at the terminal. For errors that have no type
/// of their own in the table below.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: Code,
    pub message: String,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// What others wrote may be in it, and a terminal would obey.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() && !matches!(character, '\n' | '\t') {
            shown.extend(character.escape_unicode());
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Prints what went wrong to `out`, which is stderr but for tests, and says which code to end with.
pub fn report(error: &anyhow::Error, out: &mut dyn Write) -> io::Result<Code> {
    let (code, hint) = classify(error);
    if let Some(ConfigErrors(mistakes)) = find(error) {
        for mistake in mistakes {
            writeln!(out, "error: {mistake}")?;
        }
    } else {
        // The whole chain on one line: each error says what was being done, its source why that failed.
        writeln!(out, "error: {}", shown(&format!("{error:#}")))?;
    }
    if let Some(hint) = hint {
        writeln!(out, "hint: {hint}")?;
    }
    Ok(code)
}

fn classify(error: &anyhow::Error) -> (Code, Option<String>) {
    if let Some(failure) = find::<Failure>(error) {
        return (failure.code, failure.hint.clone());
    }
    if find::<ConfigErrors>(error).is_some() || find::<OpenToOthers>(error).is_some() {
        return (Code::Configuration, None);
    }
    if let Some(error) = find::<TokenError>(error) {
        return of_tokens(error);
    }
    if let Some(error) = find::<LedgerError>(error) {
        return (Code::State, of_ledger(error));
    }
    if find::<NotaryError>(error).is_some() {
        return (Code::State, None);
    }
    find::<StateError>(error).map_or((Code::Unexpected, None), |error| (Code::State, of_state(error)))
}

fn of_tokens(error: &TokenError) -> (Code, Option<String>) {
    match error {
        TokenError::Exists(name) => (Code::Usage, Some(format!("callsign token revoke {name}"))),
        TokenError::Reserved => (Code::Usage, Some("choose another name".to_owned())),
        TokenError::Unknown(_) => (Code::Usage, Some("callsign token list".to_owned())),
        TokenError::Random(_) => (Code::Unexpected, None),
        TokenError::State(error) => (Code::State, of_state(error)),
    }
}

fn of_state(error: &StateError) -> Option<String> {
    match error {
        StateError::Nowhere | StateError::NotOurs { .. } => {
            Some("choose one with --state-dir or CALLSIGN_STATE_DIR".to_owned())
        }
        StateError::Create { .. }
        | StateError::Read { .. }
        | StateError::Write { .. }
        | StateError::Lock { .. } => None,
        StateError::TooOpen { path } => Some(format!("chmod 700 {}", path.display())),
        StateError::Garbled { path, .. } => Some(format!("put {} right, or remove it", path.display())),
        StateError::AlreadyRuns { .. } => {
            Some("use that one, stop it, or choose another --state-dir".to_owned())
        }
    }
}

fn of_ledger(error: &LedgerError) -> Option<String> {
    match error {
        LedgerError::Absent(_) => Some(
            "calls are written down when a host calls through `callsign wrap` or `callsign serve`".to_owned(),
        ),
        // These say it themselves: a process that writes has nothing but its log.
        LedgerError::NoDirectory(_)
        | LedgerError::Newer { .. }
        | LedgerError::Damaged { .. }
        | LedgerError::Full
        | LedgerError::Locked(_)
        | LedgerError::Unwritable { .. }
        | LedgerError::Failed { .. }
        | LedgerError::Behind(_)
        | LedgerError::Closed => None,
    }
}

/// The first error of that type in the chain.
fn find<E: std::error::Error + Send + Sync + 'static>(error: &anyhow::Error) -> Option<&E> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

#[cfg(test)]
mod tests;
