//! The box in which an agent session lives, whatever makes it: bubblewrap, Docker, a cluster.
//!
//! A box is known by its name alone, and the name is the session's: whoever starts it again after a crash finds it.
//! Boxes outlive the process that started them; one that nobody owns ends itself after `orphan_grace`.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Starts boxes, finds them again and ends them. Every method may be called again after any failure.
///
/// Dropping a future stops the waiting, not what was asked for.
pub trait Sandbox: Send + Sync {
    /// What boxes here are held by, and what is missing. Never fails for what is merely missing: that is the answer.
    fn probe(&self) -> impl Future<Output = Result<Ability, SandboxError>> + Send;

    /// Idempotent by name: a box that runs under this name is returned as it is, whatever `spec` says otherwise.
    /// One that has ended is started anew, and its old ending is forgotten.
    fn start(&self, spec: BoxSpec) -> impl Future<Output = Result<Started, SandboxError>> + Send;

    /// Every box of this owner that anything is known of, ended ones included. Never a stranger's. Whoever keeps some and
    /// does not answer is not waited for: these are [`BoxState::Unknown`].
    fn find_all(&self) -> impl Future<Output = Result<Vec<(BoxName, BoxState)>, SandboxError>> + Send;

    /// [`SandboxError::Away`] where whoever keeps it does not answer: that is no news of the box.
    fn state(&self, name: &BoxName) -> impl Future<Output = Result<BoxState, SandboxError>> + Send;

    /// Asks the command to end and, after `grace`, ends everything. Returns when no process of the box is left; one
    /// that has ended already keeps its ending.
    fn stop(
        &self,
        name: &BoxName,
        grace: Duration,
    ) -> impl Future<Output = Result<BoxState, SandboxError>> + Send;

    /// As `stop`, without asking.
    fn kill(&self, name: &BoxName) -> impl Future<Output = Result<BoxState, SandboxError>> + Send;

    /// None if the box does not run.
    fn usage(&self, name: &BoxName) -> impl Future<Output = Result<Option<Usage>, SandboxError>> + Send;

    /// Removes what is known of a box that does not run; the session's directories stay. Refuses one that runs.
    fn forget(&self, name: &BoxName) -> impl Future<Output = Result<(), SandboxError>> + Send;
}

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the name of a box is 1 to 64 of the characters a-z A-Z 0-9 _ - and starts with a letter or digit")]
pub struct BadBoxName;

/// Names a box, its directory, its control group and its container: one path component everywhere.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BoxName(String);

impl BoxName {
    pub fn new(name: impl Into<String>) -> Result<Self, BadBoxName> {
        let name = name.into();
        let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let all_well = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        if starts_well && all_well && name.len() <= 64 { Ok(Self(name)) } else { Err(BadBoxName) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for BoxName {
    type Error = BadBoxName;

    fn try_from(name: String) -> Result<Self, BadBoxName> {
        Self::new(name)
    }
}

impl From<BoxName> for String {
    fn from(name: BoxName) -> Self {
        name.0
    }
}

impl fmt::Display for BoxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for BoxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// What to start. Paths are the host's, but for `command` and the targets of `binds`, which are the box's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxSpec {
    pub name: BoxName,
    pub command: String,
    pub args: Vec<String>,
    /// The whole environment: nothing is inherited.
    pub env: Environment,
    /// Seen at [`Inside::workspace`]; the command starts there.
    pub workspace: PathBuf,
    /// Seen at [`Inside::meta`].
    pub meta: PathBuf,
    /// Made by the daemon, seen read-only at [`Inside::sockets`].
    pub sockets: Option<PathBuf>,
    /// Read-only, beside the system's own.
    pub binds: Vec<Bind>,
    /// The container's image. A local box has the host's system and takes none.
    pub image: Option<String>,
    /// What the engine is to run the container with, where that is not its own choice: `runsc`, `kata-runtime`.
    pub oci_runtime: Option<String>,
    /// The size of the box's private `/tmp`, in bytes.
    pub tmp: u64,
    pub limits: Limits,
    pub strictness: Strictness,
    pub network: Network,
    /// Whom the box runs as where the daemon may choose, that is, as root.
    pub user: User,
    /// How long a box without an owner goes on.
    pub orphan_grace: Duration,
    /// Handed back by `find_all`. Not for secrets: a container engine shows them to everyone.
    pub labels: BTreeMap<String, String>,
}

/// Variables of a box. Its `Debug` shows names only.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment(pub BTreeMap<String, String>);

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bind {
    pub source: PathBuf,
    pub target: PathBuf,
}

/// None is no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Threads count.
    pub pids: Option<u32>,
    /// Thousandths of a processor.
    pub cpus: Option<u32>,
    /// Bytes of workspace and meta together.
    pub disk: Option<u64>,
}

/// What to do where a limit that is asked for cannot be enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strictness {
    /// Start all the same; [`BoxInfo::holds`] says what holds.
    Lenient,
    /// Refuse.
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// The host's own.
    Host,
    /// A loopback device of its own and nothing else.
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl User {
    /// Owns nothing on any system.
    pub const NOBODY: Self = Self { uid: 65534, gid: 65534 };
}

/// How well something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Hold {
    Absent,
    /// Looked at now and then: a fast offender gets further before it is ended.
    Watched,
    /// By the kernel, at once.
    Enforced,
}

impl Hold {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Watched => "watched",
            Self::Enforced => "enforced",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holds {
    pub memory: Hold,
    pub pids: Hold,
    pub cpus: Hold,
    pub disk: Hold,
    /// Kernel interfaces that no agent needs are closed.
    pub syscalls: Hold,
}

impl Holds {
    /// Each by its name and its word.
    pub fn words(self) -> [(&'static str, &'static str); 5] {
        let Self { memory, pids, cpus, disk, syscalls } = self;
        [("memory", memory), ("pids", pids), ("cpus", cpus), ("disk", disk), ("syscalls", syscalls)]
            .map(|(name, hold)| (name, hold.as_str()))
    }
}

/// What stands between the box and the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    Bubblewrap,
    Container,
    /// Only ever when asked for by name.
    Nothing,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    pub level: Level,
    pub holds: Holds,
    pub missing: Vec<Missing>,
}

impl Ability {
    pub fn can_start(&self) -> bool {
        self.missing.iter().all(|missing| missing.gravity != Gravity::Refuses)
    }
}

/// Something that is not there, and what a person does about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub what: String,
    /// A command where one helps.
    pub fix: String,
    pub gravity: Gravity,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.fix)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gravity {
    /// No box starts without it.
    Refuses,
    /// Boxes start, and hold less.
    Weakens,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub info: BoxInfo,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    Made,
    /// It ran already: its environment is the one it was started with.
    Found,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxInfo {
    pub name: BoxName,
    pub level: Level,
    pub holds: Holds,
    pub inside: Inside,
    /// What the command prints. Capped; written where the box cannot write.
    pub log: PathBuf,
    pub labels: BTreeMap<String, String>,
    pub hits: Hits,
}

/// Where things lie as the command sees them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inside {
    pub workspace: PathBuf,
    pub meta: PathBuf,
    pub sockets: Option<PathBuf>,
}

/// How often a limit was hit. What the kernel does not count is counted when it is seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hits {
    pub memory: u64,
    pub pids: u64,
    pub disk: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum BoxState {
    /// Nothing is known under this name.
    Absent,
    Starting,
    Running(BoxInfo),
    Ended(Ending),
    /// Something was begun under this name, and whoever keeps it does not answer. It may run.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ending {
    pub cause: Cause,
    pub exit: Exit,
    pub hits: Hits,
    /// For a person: what it printed last, or why it could not start.
    pub message: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// The command ended by itself.
    Exited,
    /// `stop` or `kill`.
    Asked,
    /// No owner for `orphan_grace`.
    Orphaned,
    /// The kernel or the watch ended it for its memory.
    Memory,
    Pids,
    Disk,
    /// The command never ran.
    NotStarted,
    /// Whatever held the box is gone without a word: killed, or the machine went down. The box went with it.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    Signal(i32),
    Unknown,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes.
    pub memory: u64,
    /// Threads count.
    pub pids: u64,
    /// Processor time since the start.
    pub cpu: Duration,
    /// Bytes, as of the last look; None before the first.
    pub disk: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    #[error("no box can be started here: {}", list(.0))]
    Unable(Vec<Missing>),
    #[error("strict_limits is set, and these limits cannot be enforced here: {}", .0.join(", "))]
    NotEnforced(Vec<&'static str>),
    #[error("the box cannot be made as it was asked for: {0}")]
    BadSpec(String),
    #[error("the box did not start: {0}")]
    NotStarted(String),
    #[error("the box did not get ready within {} s", .0.as_secs())]
    TooSlow(Duration),
    #[error("the box runs; stop it first")]
    Runs,
    /// Whoever keeps boxes does not answer now. Nothing is known of the box by that: it may run, and be there again.
    #[error("could not {doing}")]
    Away {
        doing: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// Another keeps the box than the one at hand, and does not answer: where it is, and what a person does about it.
    #[error("{0}")]
    Elsewhere(String),
    #[error("could not {doing}")]
    System {
        doing: String,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
}

fn list(missing: &[Missing]) -> String {
    missing.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_path_component_everywhere() {
        for bad in ["", ".", "..", "a/b", "-a", "a.b", "a b", "ü", "a\0", &"a".repeat(65)] {
            assert_eq!(BoxName::new(bad), Err(BadBoxName), "{bad:?}");
        }
        for good in ["a", "ses_01-X", &"a".repeat(64)] {
            assert!(BoxName::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn values_of_variables_are_not_in_debug() {
        let env = Environment(BTreeMap::from([("KEY".to_owned(), "sk-CANARY-7f3a".to_owned())]));
        assert_eq!(format!("{env:?}"), r#"{"KEY"}"#);
    }
}
