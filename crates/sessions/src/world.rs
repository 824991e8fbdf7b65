//! What sessions need from outside besides the store: time, randomness, settings, and what a box is made of.

use std::fmt;
use std::future::Future;

use model::ports::agent::Agent;
use model::ports::sandbox::{BoxSpec, Sandbox};
use model::session::{Session, SessionId, Stamp, UnixMillis};
use model::settings::{Secret, SessionSettings};

use crate::extras::Unfit;
use crate::layout::SessionDirs;

/// The clock and the dice.
pub trait World: Send + Sync + fmt::Debug {
    fn now(&self) -> UnixMillis;

    fn stamp(&self) -> Stamp;

    /// For a password: letters and digits, 32 of them, from the system's own randomness.
    fn password(&self) -> String;
}

/// How a box is reached, and what it shows where it reaches out. Kept with the session, as long as the box runs.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Access {
    pub ports: Ports,
    pub password: String,
    /// What the agent shows the broker and the gateway. It is worth nothing but on the sockets of its own box.
    pub token: String,
    /// What the plugin in the box seals with, in base64url.
    pub seal: String,
    /// [`Rooms::policy`] of when the box was made.
    pub policy: String,
    /// Models besides the configured ones that the agent was told of at its start: it takes no others.
    #[serde(default)]
    pub models: Vec<String>,
    /// The agent has said that it listens there: since then the port is its own.
    #[serde(default)]
    pub heard: bool,
}

/// Ports on the loopback that the box sees: its own, or the host's where it shares that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ports {
    pub agent: u16,
    pub model: u16,
    pub mcp: u16,
    pub egress: u16,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ports, models, password: _, token: _, seal: _, policy: _, heard: _ } = self;
        f.debug_struct("Access").field("ports", ports).field("models", models).finish_non_exhaustive()
    }
}

/// For whom extras are installed, and where.
#[derive(Clone, Copy)]
pub struct Fitting<'a> {
    pub session: &'a Session,
    pub settings: &'a SessionSettings,
    pub directories: &'a SessionDirs,
    pub tell: &'a (dyn Fn(&str) + Send + Sync),
}

impl fmt::Debug for Fitting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fitting").field("session", &self.session.id).finish_non_exhaustive()
    }
}

/// What a box is made of. Whoever implements it knows the agent program and the runtimes; nobody here does.
pub trait Rooms: Send + Sync + 'static {
    type Sandbox: Sandbox;
    type Agent: Agent;

    fn sandbox(&self) -> &Self::Sandbox;

    /// The settings that a session was made with, as they are now. `document` is [`Session::settings`].
    fn settings(&self, document: &str, key: Option<Secret>) -> Result<SessionSettings, String>;

    /// What a box is told at its start and cannot be told later, in short: one that was told something else is made
    /// anew before the next run.
    fn policy(&self, settings: &SessionSettings) -> String;

    /// A way in and out for a box that is about to be made: secrets of its own and places to listen. No models yet.
    fn access(&self, settings: &SessionSettings) -> Result<Access, String>;

    /// From now on the box of this session is reached, and reaches what it may. To be called before a box is made, and
    /// before one that was found is asked anything. Idempotent.
    fn moor(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<(), String>;

    /// The agent's own conversation of a session: from now on no other session's box may speak for it. False: it is
    /// another session's.
    fn converses(&self, session: &SessionId, conversation: &str) -> bool;

    /// The session is over, and nothing of it is asked for any more.
    fn forget(&self, session: &SessionId);

    /// Nothing of the session is reached any more. Idempotent.
    fn unmoor(&self, session: &SessionId);

    /// Sees to it that a session has its extras, before a box is made: once they are there, nothing is done. `tell` is
    /// told how far it is. Whoever lets the future go ends what it began; [`Self::unfit`] waits for that.
    fn fit(&self, fitting: Fitting<'_>) -> impl Future<Output = Result<(), Unfit>> + Send {
        let Fitting { .. } = fitting;
        async { Ok(()) }
    }

    /// Returns when nothing is being installed for a session. Idempotent.
    fn unfit(&self, _: &SessionId) -> impl Future<Output = ()> + Send {
        async {}
    }

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

    /// Of a session that is moored.
    fn agent(
        &self,
        session: &SessionId,
        access: &Access,
        settings: &SessionSettings,
    ) -> Result<Self::Agent, String>;
}
