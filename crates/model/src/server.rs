//! What a server behind us is: how it is reached, and under which limits.

use std::path::PathBuf;
use std::time::Duration;

use crate::{Placeholder, ServerName, Template, Trust};

/// The default for `max_message`: what one message from a server may weigh.
pub const DEFAULT_MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// The default for `idle`.
pub const DEFAULT_IDLE: Duration = Duration::from_mins(10);
/// The default for `max_children`.
pub const DEFAULT_MAX_CHILDREN: usize = 64;

/// One `[servers.NAME]`, or what the command line of `wrap` says.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSpec {
    pub name: ServerName,
    pub transport: Transport,
    /// How long a call may be silent. Progress resets it. None: the caller has its own deadline.
    pub timeout: Option<Duration>,
    /// The largest message accepted from this server, in bytes.
    pub max_message: usize,
    /// A tool that changed is withheld until it is approved.
    pub pin: bool,
    /// What must be known of the caller before anything but discovery reaches the server.
    pub require: Trust,
    /// Arguments that are filled in where a tool takes them and the caller left them out.
    pub arguments: Vec<(String, Template)>,
    /// How much of its calls the ledger keeps.
    pub capture: Capture,
}

/// What the ledger keeps of a call beside who made it and how it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Capture {
    /// Digests and sizes.
    #[default]
    Digests,
    /// Also the arguments, redacted.
    Arguments,
    /// Also the result, redacted.
    Full,
}

impl Capture {
    /// As a configuration writes it.
    pub fn parse(written: &str) -> Option<Self> {
        match written {
            "digests" => Some(Self::Digests),
            "arguments" => Some(Self::Arguments),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    Stdio(StdioSpec),
    Http(HttpSpec),
}

/// A server that is a child process of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct StdioSpec {
    pub command: String,
    pub args: Vec<String>,
    /// Set for every child, after what is inherited.
    pub env: Vec<(String, Template)>,
    pub env_vars: Vec<EnvVar>,
    pub isolation: Isolation,
    /// None: the directory we are in ourselves.
    pub cwd: Option<Directory>,
    pub inherit_env: InheritEnv,
    /// A child without a call, a subscription or a task for this long is stopped.
    pub idle: Duration,
    pub max_children: usize,
}

/// Where a child is started.
#[derive(Debug, Clone, PartialEq)]
pub enum Directory {
    Fixed(PathBuf),
    /// Per caller. Without a value, `otherwise`.
    Template {
        path: Template,
        otherwise: Option<PathBuf>,
    },
}

/// A variable handed on by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvVar {
    pub name: String,
    pub source: EnvSource,
}

/// Where the value of a variable comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EnvSource {
    /// Our own environment.
    Local,
    /// The caller; absent where it is not known.
    Caller(Placeholder),
}

/// The names under which hosts tell a session apart, with what each stands for. Handed on by name they mean the
/// calling session, never the value that happened to be inherited.
pub const IDENTITY_VARIABLES: [(&str, Placeholder); 6] = [
    ("OPENCODE_SESSION_ID", Placeholder::ThreadId),
    ("OPENCODE_SESSION_TITLE", Placeholder::SessionTitle),
    ("CODEX_THREAD_ID", Placeholder::ThreadId),
    ("CODEX_SESSION_ID", Placeholder::SessionId),
    ("CLAUDE_CODE_SESSION_ID", Placeholder::SessionId),
    ("AGENT_SESSION_ID", Placeholder::SessionId),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A child per calling session.
    Session,
    /// One child for all.
    Shared,
}

/// Which variables of our own environment a child starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InheritEnv {
    /// A short list of names that programs need and that hold no secrets.
    Safe,
    /// What the host gave us, less its own secrets and ours.
    Host,
    Names(Vec<String>),
}

/// A server that is reached by HTTP.
#[derive(Debug, Clone, PartialEq)]
pub struct HttpSpec {
    pub url: String,
    pub headers: Vec<(String, Template)>,
    pub headers_command: Option<HeadersCommand>,
    /// The name may resolve to a loopback, private or link-local address.
    pub allow_private: bool,
}

/// A program whose stdout is a JSON object of headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadersCommand {
    pub program: String,
    pub args: Vec<String>,
    pub cwd: Option<PathBuf>,
    /// How long what it printed is used.
    pub cache: Duration,
}
