//! What the servers of a host are told about who calls, and how it is known.

use hosts::Host;
use serde::Serialize;

use super::version::Version;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Expected {
    pub(super) what: &'static str,
    pub(super) trust: &'static str,
    pub(super) why: &'static str,
}

/// The first version of Codex that names the calling thread with each call.
const CODEX_THREAD_ID: Version = Version(0, 123, 0);

/// What is installed in a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Installed {
    /// We stand before none of its servers.
    No,
    /// We stand before its servers.
    Servers,
    /// So we do, and the piece is there by which the host says who calls.
    ServersAndHook,
}

pub(super) fn expected(host: Host, version: Option<Version>, installed: Installed) -> Expected {
    let row = |what, trust, why| Expected { what, trust, why };
    let nothing = "nothing";
    if installed == Installed::No {
        return row(nothing, "none", "callsign does not stand before its servers");
    }
    match host {
        Host::Opencode if version.is_some_and(|version| version >= Version(2, 0, 0)) => {
            // Its own word would do, but nothing of ours stands where it could be heard.
            row(
                nothing,
                "none",
                "the plugin is for OpenCode 1; put `callsign wrap` into the entries of OpenCode 2 by hand, and its \
                 session comes with each call",
            )
        }
        Host::Opencode => row("session, parent, title, directory", "host", "the plugin seals each call"),
        Host::Codex if version.is_some_and(|version| version < CODEX_THREAD_ID) => row(
            "session",
            "host",
            "this version sends it in the turn's metadata; 0.123 and later name the thread",
        ),
        Host::Codex => row("thread, session, parent", "host", "Codex sends them with each call"),
        Host::ClaudeCode if installed == Installed::ServersAndHook => {
            row("session, subagent", "host", "the PreToolUse hook announces each call")
        }
        Host::ClaudeCode => row(
            "session",
            "declared",
            "without the PreToolUse hook there is only the environment, which is stale after /clear",
        ),
        Host::Goose => row("session, directory", "host", "Goose sends them with each call"),
        Host::Vscode => row("conversation", "host", "VS Code sends it with each call"),
        Host::Cursor => row(nothing, "none", "Cursor sends nothing that tells its sessions apart"),
        Host::Gemini => row(nothing, "none", "Gemini CLI sends nothing that tells its sessions apart"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trust_depends_on_the_host_its_version_and_what_is_installed() {
        let check = |host, version: Option<&str>, installed, trust, what: &str| {
            let version = version.and_then(Version::parse);
            let found = expected(host, version, installed);
            assert_eq!(found.trust, trust, "{host} {version:?}");
            assert!(found.what.contains(what), "{found:?}");
        };
        let (no, servers, both) = (Installed::No, Installed::Servers, Installed::ServersAndHook);
        check(Host::Codex, Some("codex-cli 0.166.0"), servers, "host", "thread");
        check(Host::Codex, Some("codex-cli 0.122.0"), servers, "host", "session");
        check(Host::Codex, None, servers, "host", "thread");
        check(Host::Codex, None, no, "none", "nothing");
        check(Host::Opencode, Some("1.18.33"), servers, "host", "title");
        check(Host::Opencode, Some("1.18.33"), no, "none", "nothing");
        // The plugin is all that install gives OpenCode, and the next version knows none of its hooks.
        check(Host::Opencode, Some("2.0.1"), servers, "none", "nothing");
        check(Host::ClaudeCode, Some("2.1.325 (Claude Code)"), both, "host", "subagent");
        check(Host::ClaudeCode, Some("2.1.325 (Claude Code)"), servers, "declared", "session");
        check(Host::ClaudeCode, Some("2.1.325 (Claude Code)"), no, "none", "nothing");
        check(Host::Goose, None, servers, "host", "session");
        check(Host::Vscode, None, servers, "host", "conversation");
        check(Host::Cursor, None, servers, "none", "nothing");
        check(Host::Gemini, None, servers, "none", "nothing");
    }
}
