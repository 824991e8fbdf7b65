//! Who shares a process, and in whose box they are.

use model::Id;

use crate::caller::Known;
use crate::connection::{Connection, ConnectionId};

/// Processes that serve one box at once: its callers, and whoever in it asks what the server is.
const BOX_CALLERS: usize = 8;
const BOX_LOBBIES: usize = 2;

/// Who shares a process.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ChildKey {
    /// Answers what the server is, before it is known who calls. With the session in whose box that is.
    Lobby(ConnectionId, Option<Id>),
    /// Serves one caller.
    Caller(CallerKey),
    /// Serves everybody.
    Shared,
}

/// A caller.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerKey {
    /// Nobody knows who; all that is known is where it came from.
    /// The workspace, too, since it is in the environment.
    Connection(ConnectionId, Option<Box<str>>),
    Known(Known),
}

impl ChildKey {
    pub fn lobby(connection: &Connection) -> Self {
        Self::Lobby(connection.id, connection.channel.bound_to().cloned())
    }

    /// The session in whose box everybody is whom it serves.
    pub fn bound_to(&self) -> Option<&Id> {
        match self {
            Self::Lobby(_, session) => session.as_ref(),
            Self::Caller(CallerKey::Known(known)) => known.bound_to(),
            Self::Caller(CallerKey::Connection(..)) | Self::Shared => None,
        }
    }

    /// Lobbies and others do not take one another's places.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        matches!(self, Self::Lobby(..)) == matches!(other, Self::Lobby(..))
    }

    /// How many of its kind one box may have.
    pub(super) fn most_of_a_box(&self) -> usize {
        match self {
            Self::Lobby(..) => BOX_LOBBIES,
            Self::Caller(_) | Self::Shared => BOX_CALLERS,
        }
    }

    /// Whether it is a caller's of whom nothing is known.
    pub fn is_unknown(&self) -> bool {
        matches!(self, Self::Caller(CallerKey::Connection(..)))
    }

    /// Whether nobody else can ever ask for it.
    pub(super) fn belongs_to(&self, connection: &Connection) -> bool {
        match self {
            Self::Lobby(id, _) | Self::Caller(CallerKey::Connection(id, _)) => *id == connection.id,
            Self::Caller(CallerKey::Known(_)) | Self::Shared => false,
        }
    }
}
