//! The variables of the environment that say how sessions run, as they were found.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use super::super::Environment;

pub(super) const RUNTIME_MODE: &str = "MCP_RUNTIME_MODE";
pub(super) const STATE_DIR: &str = "MCP_STATE_DIR";
pub(super) const RUNTIME_IMAGE: &str = "MCP_RUNTIME_IMAGE";
pub(super) const COMMAND: &str = "MCP_OPENCODE_COMMAND";
pub(super) const PROVIDER: &str = "MCP_OPENCODE_PROVIDER";
pub(super) const MODEL: &str = "MCP_OPENCODE_MODEL";
pub(super) const SMALL_MODEL: &str = "MCP_OPENCODE_SMALL_MODEL";
pub(super) const BASE_URL: &str = "MCP_OPENCODE_BASE_URL";
pub(super) const API_KEY: &str = "MCP_OPENCODE_API_KEY";
pub(super) const START_TIMEOUT: &str = "MCP_OPENCODE_SERVER_START_TIMEOUT";
pub(super) const REQUEST_TIMEOUT: &str = "MCP_OPENCODE_REQUEST_TIMEOUT";
pub(super) const OLLAMA_BASE_URL: &str = "MCP_OLLAMA_BASE_URL";
pub(super) const OLLAMA_API_KEY: &str = "MCP_OLLAMA_API_KEY";
pub(super) const POLL_INTERVAL: &str = "MCP_WORKER_POLL_INTERVAL";
pub(super) const EXTRAS_DIR: &str = "MCP_RUNTIME_EXTRAS_DIR";

/// Every variable there is.
pub const VARIABLES: [&str; 15] = [
    RUNTIME_MODE,
    STATE_DIR,
    RUNTIME_IMAGE,
    COMMAND,
    PROVIDER,
    MODEL,
    SMALL_MODEL,
    BASE_URL,
    API_KEY,
    START_TIMEOUT,
    REQUEST_TIMEOUT,
    OLLAMA_BASE_URL,
    OLLAMA_API_KEY,
    POLL_INTERVAL,
    EXTRAS_DIR,
];

/// Those whose value is a secret.
pub(super) const SECRETS: [&str; 2] = [API_KEY, OLLAMA_API_KEY];

const PREFIX: &str = "MCP_";

/// Of a name that is longer, the rest is not looked at and not shown.
const LONGEST_NAME: usize = 100;

/// So many slips of the hand are one name. All begin alike, so with more any would be near to any.
const SLIPS: usize = 2;

/// What begins this way is meant for us. Other programs have variables with `MCP_` too.
const FAMILIES: [&str; 4] = ["MCP_OPENCODE_", "MCP_OLLAMA_", "MCP_RUNTIME_", "MCP_WORKER_"];

/// The `MCP_*` variables of a process. Of those that are not ours there is only the name.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    known: BTreeMap<&'static str, String>,
    unknown: BTreeSet<String>,
}

impl Variables {
    /// Of all variables of a process, or those that one has handed over. What does not begin with `MCP_` is left.
    pub fn new(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut variables = Self::default();
        for (name, value) in all {
            if let Some(known) = VARIABLES.into_iter().find(|known| *known == name) {
                variables.known.insert(known, value);
            } else if name.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX)) {
                variables.unknown.insert(name);
            }
        }
        variables
    }

    /// Of the process we are. Only those that are ours: others cannot be found by name.
    pub fn of(environment: Environment<'_>) -> Self {
        Self::new(VARIABLES.into_iter().filter_map(|name| Some((name.to_owned(), environment.get(name)?))))
    }

    /// An empty one counts as not set, as shells have it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.known.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Set, to nothing.
    pub(super) fn is_empty(&self, name: &str) -> bool {
        self.known.get(name).is_some_and(String::is_empty)
    }

    pub(super) fn unknown(&self) -> impl Iterator<Item = Unknown<'_>> {
        self.unknown.iter().map(|name| Unknown { name })
    }
}

impl fmt::Debug for Variables {
    /// Without values: two are secrets, and any may hold one by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { known, unknown } = self;
        let names: Vec<_> = known.keys().collect();
        f.debug_struct("Variables").field("known", &names).field("unknown", unknown).finish()
    }
}

/// A variable that is none of ours.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unknown<'a> {
    name: &'a str,
}

impl Unknown<'_> {
    /// On one line, whatever is in it.
    pub(super) fn shown(self) -> String {
        self.name.escape_debug().take(LONGEST_NAME).collect()
    }

    /// Which one was meant; None where it is probably another program's.
    pub(super) fn meant(self) -> Option<String> {
        let upper: String = self.name.chars().take(LONGEST_NAME).collect();
        let upper = upper.to_ascii_uppercase();
        let distance = |known: &&str| strsim::osa_distance(&upper, known);
        let near = VARIABLES.into_iter().min_by_key(distance).filter(|near| distance(near) <= SLIPS);
        let ours = FAMILIES.iter().any(|family| upper.starts_with(family));
        match near {
            Some(near) => Some(format!("is no setting; did you mean {near}?")),
            None if ours => Some("is no setting; take it out".to_owned()),
            None => None,
        }
    }
}

/// Where state is kept by the word of [`VARIABLES`], as it is written: perhaps relative. It says nothing of a session.
pub fn state_dir(environment: Environment<'_>) -> Option<PathBuf> {
    environment.path(STATE_DIR)
}
