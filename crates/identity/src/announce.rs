//! What a host's hook announced of a call that is about to come.
//!
//! ```text
//! hook → `callsign announce` → <state>/announce/<SHA-256 of the tool use> ← the call, once
//! ```
//!
//! An announcement counts for one call of the tool it names, for ten minutes. Two for the same tool use that
//! disagree count as none.
//!
//! **Invariant:** the file's name is a digest, so nothing a host wrote becomes a path.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use model::Id;
use ring::digest;
use serde::{Deserialize, Serialize};

use crate::evidence::Claim;

/// How long an announcement counts.
pub const LIFETIME_MS: u64 = 10 * 60 * 1000;
/// How far ahead another process's clock may be.
const SKEW_MS: u64 = 30 * 1000;
/// What one announcement may weigh, and how much of a file is read.
const MOST: usize = 16 * 1024;
/// How many old announcements one run clears away.
const CLEARED: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum AnnounceError {
    #[error("this is not the JSON of a hook: {0}")]
    NotAHook(String),
    #[error("could not write to {0}")]
    Write(PathBuf, #[source] io::Error),
}

/// What Claude Code gives its `PreToolUse` hook, as far as it concerns us.
#[derive(Debug, Deserialize)]
struct Hook {
    #[serde(rename = "hook_event_name")]
    event: Option<String>,
    session_id: String,
    agent_id: Option<String>,
    prompt_id: Option<String>,
    tool_name: String,
    tool_use_id: String,
    cwd: Option<String>,
}

/// One line of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Announcement {
    at_ms: u64,
    tool: String,
    session: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    directory: Option<String>,
}

/// The announcements of a state directory.
#[derive(Debug, Clone)]
pub struct Announcements {
    directory: PathBuf,
}

impl Announcements {
    pub fn new(state: &Path) -> Self {
        Self { directory: state.join("announce") }
    }

    /// Writes down what the hook said. Tools that are no MCP server's are none of our business.
    pub fn record(&self, hook: &[u8], now_ms: u64) -> Result<(), AnnounceError> {
        let not_a_hook = |why: &dyn std::fmt::Display| AnnounceError::NotAHook(why.to_string());
        let hook: Hook = serde_json::from_slice(hook).map_err(|error| not_a_hook(&error))?;
        if hook.event.is_some_and(|name| name != "PreToolUse") || !hook.tool_name.starts_with("mcp__") {
            return Ok(());
        }
        for id in
            [Some(&hook.session_id), Some(&hook.tool_use_id), hook.agent_id.as_ref()].into_iter().flatten()
        {
            Id::new(id.as_str()).map_err(|error| not_a_hook(&error))?;
        }
        let line = Announcement {
            at_ms: now_ms,
            tool: hook.tool_name,
            session: hook.session_id,
            agent: hook.agent_id,
            turn: hook.prompt_id,
            directory: hook.cwd,
        };
        let mut line = serde_json::to_vec(&line).map_err(|error| not_a_hook(&error))?;
        line.push(b'\n');
        if line.len() > MOST {
            return Err(not_a_hook(&"it is too long"));
        }
        let file = self.file(&hook.tool_use_id);
        self.append(&file, &line).map_err(|error| AnnounceError::Write(file, error))
    }

    /// One write, so that two announcements at once are two lines.
    fn append(&self, file: &Path, line: &[u8]) -> io::Result<()> {
        let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(file);
        let mut output = match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.directory)?;
                open()?
            }
            opened => opened?,
        };
        output.write_all(line)
    }

    /// Who uses the tool. The announcement is gone afterwards.
    pub fn take(&self, tool_use: &Id, tool: &str, now_ms: u64) -> Option<Claim> {
        let file = self.file(tool_use.as_str());
        let text = read(&file)?;
        let suffix = format!("__{}", as_claude_writes(tool));
        let mut lines = text.lines().map(serde_json::from_str::<Announcement>);
        let first = lines.next()?.ok()?;
        let agree =
            lines.all(|other| other.is_ok_and(|other| Announcement { at_ms: first.at_ms, ..other } == first));
        // A tool that is another one's does not use the announcement up.
        if !first.tool.ends_with(&suffix) {
            return None;
        }
        // Whoever removes it has it.
        fs::remove_file(&file).ok()?;
        let age = now_ms.saturating_sub(first.at_ms);
        let fresh = age <= LIFETIME_MS && first.at_ms <= now_ms.saturating_add(SKEW_MS);
        if !agree || !fresh {
            return None;
        }
        let id = |text: String| Id::new(text).ok();
        let session = id(first.session);
        let agent = first.agent.and_then(id);
        Some(Claim {
            thread: agent.clone().or_else(|| session.clone()),
            parent: agent.and_then(|_| session.clone()),
            session,
            turn: first.turn.and_then(id),
            call: Some(tool_use.clone()),
            workspace: first.directory.map(Into::into),
            ..Claim::default()
        })
    }

    /// Removes what no call came for.
    pub fn clear_old(&self, now_ms: u64) {
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.take(CLEARED).flatten() {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            let at_ms = modified.ok().and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            let old = at_ms
                .is_some_and(|at| u64::try_from(at.as_millis()).is_ok_and(|at| at + LIFETIME_MS < now_ms));
            if old {
                let _gone_already = fs::remove_file(entry.path());
            }
        }
    }

    fn file(&self, tool_use: &str) -> PathBuf {
        let digest = digest::digest(&digest::SHA256, tool_use.as_bytes());
        let mut name = String::with_capacity(64);
        for byte in digest.as_ref() {
            let _infallible = write!(name, "{byte:02x}");
        }
        self.directory.join(name)
    }
}

/// Claude Code's spelling of a name within a tool's name.
fn as_claude_writes(name: &str) -> String {
    let allowed = |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
    name.chars().map(|character| if allowed(character) { character } else { '_' }).collect()
}

fn read(file: &Path) -> Option<String> {
    use io::Read as _;
    let mut text = String::new();
    let mut input = fs::File::open(file).ok()?.take(MOST as u64);
    input.read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(session: &str, agent: Option<&str>, tool: &str, tool_use: &str) -> Vec<u8> {
        let mut value = serde_json::json!({
            "session_id": session, "transcript_path": "/t", "cwd": "/w", "prompt_id": "p1",
            "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": {"x": 1}, "tool_use_id": tool_use,
        });
        if let Some(agent) = agent {
            value["agent_id"] = agent.into();
        }
        serde_json::to_vec(&value).unwrap()
    }

    fn id(text: &str) -> Id {
        Id::new(text).unwrap()
    }

    #[test]
    fn an_announcement_counts_once_for_the_tool_it_names() {
        let state = tempfile::tempdir().unwrap();
        let all = Announcements::new(state.path());
        all.record(&hook("s", Some("a"), "mcp__srv__who_ami", "t/../1"), 1_000).unwrap();
        assert_eq!(all.take(&id("t/../1"), "other", 1_000), None);
        let claim = all.take(&id("t/../1"), "who.ami", 2_000).unwrap();
        assert_eq!((claim.session, claim.thread), (Some(id("s")), Some(id("a"))));
        assert_eq!((claim.parent, claim.call), (Some(id("s")), Some(id("t/../1"))));
        assert_eq!(claim.workspace.as_deref(), Some("/w"));
        assert_eq!(all.take(&id("t/../1"), "who.ami", 2_000), None, "used twice");
        let left = fs::read_dir(state.path().join("announce")).unwrap().count();
        assert_eq!(left, 0);
    }

    #[test]
    fn late_future_and_contradicting_announcements_count_as_none() {
        let state = tempfile::tempdir().unwrap();
        let all = Announcements::new(state.path());
        all.record(&hook("s", None, "mcp__srv__t", "1"), 1_000).unwrap();
        assert_eq!(all.take(&id("1"), "t", 1_001 + LIFETIME_MS), None);
        all.record(&hook("s", None, "mcp__srv__t", "2"), 1_000_000).unwrap();
        assert_eq!(all.take(&id("2"), "t", 1_000), None);
        all.record(&hook("s", None, "mcp__srv__t", "3"), 1_000).unwrap();
        all.record(&hook("other", None, "mcp__srv__t", "3"), 1_000).unwrap();
        assert_eq!(all.take(&id("3"), "t", 1_000), None);
        // The same hook in two settings files is one announcement.
        all.record(&hook("s", None, "mcp__srv__t", "4"), 1_000).unwrap();
        all.record(&hook("s", None, "mcp__srv__t", "4"), 1_005).unwrap();
        assert_eq!(all.take(&id("4"), "t", 1_010).unwrap().session, Some(id("s")));
    }

    #[test]
    fn what_is_no_hook_of_an_mcp_tool_is_not_written_down() {
        let state = tempfile::tempdir().unwrap();
        let all = Announcements::new(state.path());
        assert!(all.record(b"{", 1).is_err());
        assert!(all.record(&hook("a b", None, "mcp__s__t", "1"), 1).is_err());
        all.record(&hook("s", None, "Bash", "1"), 1).unwrap();
        assert!(!state.path().join("announce").exists());
    }
}
