//! What sessions need from outside besides the store: time, randomness, settings, and what a box is made of.

use std::fmt;

use model::ports::agent::Agent;
use model::ports::sandbox::{BoxSpec, Sandbox};
use model::session::{Session, Stamp, UnixMillis};
use model::settings::{Secret, SessionSettings};

use crate::layout::SessionDirs;

/// The clock and the dice.
pub trait World: Send + Sync + fmt::Debug {
    fn now(&self) -> UnixMillis;

    fn stamp(&self) -> Stamp;

    /// For a password: letters and digits, 32 of them, from the system's own randomness.
    fn password(&self) -> String;
}

/// How the agent in a box is reached. Kept with the session, where the box cannot read it, as long as the box runs.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Access {
    pub port: u16,
    pub password: String,
    /// Models besides the configured ones that the agent was told of at its start: it takes no others.
    #[serde(default)]
    pub models: Vec<String>,
    /// The agent has said that it listens there: since then the port is its own.
    #[serde(default)]
    pub heard: bool,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, password: _, models, heard: _ } = self;
        f.debug_struct("Access").field("port", port).field("models", models).finish_non_exhaustive()
    }
}

/// What a box is made of. Whoever implements it knows the agent program and the runtimes; nobody here does.
pub trait Rooms: Send + Sync + 'static {
    type Sandbox: Sandbox;
    type Agent: Agent;

    fn sandbox(&self) -> &Self::Sandbox;

    /// The settings that a session was made with, as they are now. `document` is [`Session::settings`].
    fn settings(&self, document: &str, key: Option<Secret>) -> Result<SessionSettings, String>;

    /// A way in for a box that is about to be made: a password of its own and a place to listen. No models yet.
    fn access(&self) -> Result<Access, String>;

    /// Why it cannot be made is said to a person: what to do about it.
    fn spec(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<BoxSpec, String>;

    /// What the agent prints once it listens. None: there is nothing to wait for.
    fn announcement(&self, access: &Access) -> Option<String>;

    fn agent(&self, access: &Access, settings: &SessionSettings) -> Self::Agent;
}
