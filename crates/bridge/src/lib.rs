//! The init of a box, and the words it shares with the daemon.
//!
//! ```text
//!            box: loopback only                                │ daemon
//!
//!  COMMAND ◀─ started, reaped, signalled ─┐                    │
//!  agent :PORT ◀── dialled ── control.rs ─┴── dials, idles ───▶│ control.sock   `AGENT` ▸ `OK`, then bytes both ways
//!  agent :PORT ◀── GET ────── events.rs ──── the same ────────▶│ control.sock   `EVENTS path`, `FRESH path` ▸ `OK`, then events
//!  anybody ─▶ :PORT ───────── carry.rs ───── dials ───────────▶│ NAME.sock      bytes both ways
//! ```
//!
//! The box has no way out but these sockets, and the daemon no way in: so the bridge dials, also where the daemon is
//! the one who asks. It keeps connections lying at `control.sock` for that, and the daemon takes one by a word.
//!
//! A daemon comes and goes. What is asked of it meanwhile waits, what the agent tells is kept, and a box that nobody
//! comes back for ends.
//!
//! **Invariants**
//!
//! - Ports are bound before COMMAND starts: whoever is there first in the box cannot take them.
//! - No queue, buffer or number of connections is without a bound, and no event is passed on in parts.
//! - A request is sent a second time only where the daemon cannot have read all of it, or where it is for a model and no
//!   answer has begun.
//! - The bridge decides nothing: whoever is in the box may speak to its ports, or to the sockets in its place. The
//!   daemon believes neither more than "this session".
//! - The bridge ends when COMMAND does, and nothing in the box outlives it.
//!
//! Read `init.rs` first, then `control.rs`.
#![forbid(unsafe_code)]

/// The sockets of a session, by name: the file is `NAME.sock`.
pub const CONTROL: &str = "control";
pub const MODEL: &str = "model";
pub const MCP: &str = "mcp";
pub const EGRESS: &str = "egress";

/// Where a box finds them.
pub const DIRECTORY: &str = "/run/callsign";

/// The daemon asks for a connection to the agent.
pub const AGENT: &str = "AGENT";
/// The daemon asks for the agent's events, first those that nobody took; a space and a path follow.
pub const EVENTS: &str = "EVENTS";
/// The same, without those that nobody took: they are of a turn before.
pub const FRESH: &str = "FRESH";
/// What was asked for follows.
pub const OK: &str = "OK";
/// It does not; a space and the reason follow.
pub const NO: &str = "NO";

/// Among the events, a comment: so many older ones than the next were not kept. A number follows.
pub const DROPPED: &str = ": dropped ";
/// Among the events, a comment: whoever took them before did not read all that it was handed.
pub const LOST: &str = ": lost";

/// A word and what belongs to it, in bytes.
pub const LONGEST_LINE: usize = 1024;

/// Exit codes besides those of COMMAND.
pub mod code {
    /// The command line is wrong.
    pub const USAGE: u8 = 64;
    /// The system refused something.
    pub const SYSTEM: u8 = 71;
    /// No daemon came back.
    pub const ORPHANED: u8 = 75;
    /// A port that is to be carried is taken.
    pub const TAKEN: u8 = 98;
    /// COMMAND is there and cannot be started.
    pub const NOT_STARTED: u8 = 126;
    /// There is no COMMAND.
    pub const NOT_FOUND: u8 = 127;
}

/// The file of a socket in its directory.
pub fn file_name(name: &str) -> String {
    format!("{name}.sock")
}

/// Whether something can be the path of a request: it is written into one, and into a line.
pub fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() < LONGEST_LINE - 16
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::is_path;

    #[test]
    fn a_path_cannot_end_a_line_or_a_request() {
        for fine in ["/event", "/global/event", "/event?directory=%2Fworkspace&x=1"] {
            assert!(is_path(fine), "{fine}");
        }
        for bad in
            ["", "event", "/a b", "/a\r\nHost: b", "/a\n", "/\u{e9}", &format!("/{}", "a".repeat(1024))]
        {
            assert!(!is_path(bad), "{bad:?}");
        }
    }
}
