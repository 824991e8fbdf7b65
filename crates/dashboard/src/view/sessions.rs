//! Hosts and sessions.

use model::identity::Trust;

use super::calls::CallRow;
use super::runs::RunRow;
use crate::route::Key;
use crate::text::Text;

/// The first page.
#[derive(Debug, Clone, Default)]
pub struct Overview {
    /// Of the last hour, the newest last. At most 60 are shown.
    pub minutes: Vec<Minute>,
    pub under_way: u64,
    /// Hosts that have called, the latest first.
    pub hosts: Vec<HostSeen>,
    /// Sessions that are at work now.
    pub sessions: Vec<SessionRow>,
    /// Calls that did not end well, newest first.
    pub errors: Vec<CallRow>,
    pub runs: Vec<RunRow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Minute {
    pub fine: u32,
    pub errors: u32,
}

#[derive(Debug, Clone)]
pub struct HostSeen {
    pub name: Text,
    pub version: Option<Text>,
    /// In the last hour.
    pub calls: u64,
    pub sessions: u64,
    /// The best that is known of its last calls.
    pub trust: Trust,
    pub last_at: Option<u64>,
}

#[derive(Debug, Clone)]
pub struct SessionRow {
    pub host: Text,
    pub id: Text,
    pub title: Option<Text>,
    /// One of our words: `busy`, `ready`, `stopped`, `seen` …
    pub status: Text,
    pub trust: Trust,
    pub threads: u64,
    /// None: nobody counts them.
    pub calls: Option<u64>,
    pub last_at: Option<u64>,
}

/// A session with its threads and some of its calls.
#[derive(Debug, Clone)]
pub struct Session {
    pub row: SessionRow,
    pub workspace: Option<Text>,
    /// How it is boxed, where it is one of ours.
    pub runtime: Option<Text>,
    pub image: Option<Text>,
    /// What its box is held to: `memory`, `enforced`.
    pub limits: Vec<(Text, Text)>,
    /// In any order. One whose parent is not among them stands at the root.
    pub threads: Vec<Thread>,
    /// Newest first.
    pub calls: Vec<CallRow>,
    pub older: Option<Key>,
    pub runs: Vec<RunRow>,
}

#[derive(Debug, Clone)]
pub struct Thread {
    pub id: Text,
    pub parent: Option<Text>,
    pub title: Option<Text>,
    pub calls: u64,
    pub errors: u64,
    pub last_at: Option<u64>,
}
