//! Claude Code in a stream-json session.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Home;
use super::installed::{Host, binary};
use super::process::Talk;
use crate::llm::ScriptedModel;

const TURN: Duration = Duration::from_secs(90);

/// What Claude Code is told about MCP servers and hooks.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    servers: Map<String, Value>,
    hooks: Map<String, Value>,
}

/// Where the settings lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// In files that are named on the command line, and in no others.
    Flags,
    /// In the user's own files, where `callsign install` looks.
    User,
}

impl Settings {
    pub fn new() -> Self {
        Self::default()
    }

    /// A stdio server.
    #[must_use]
    pub fn stdio(self, name: &str, command: &[&str], environment: &Value) -> Self {
        let (program, arguments) = command.split_first().expect("a command");
        let entry = json!({ "type": "stdio", "command": program, "args": arguments, "env": environment });
        self.entry(name, entry)
    }

    /// A server behind a URL.
    #[must_use]
    pub fn http(self, name: &str, url: &str) -> Self {
        self.entry(name, json!({ "type": "http", "url": url }))
    }

    fn entry(mut self, name: &str, entry: Value) -> Self {
        self.servers.insert(name.to_owned(), entry);
        self
    }

    /// A command that runs before every call of an MCP tool.
    #[must_use]
    pub fn before_mcp_calls(mut self, command: &str) -> Self {
        let hook = json!([{ "matcher": "mcp__.*", "hooks": [{ "type": "command", "command": command }] }]);
        self.hooks.insert("PreToolUse".to_owned(), hook);
        self
    }

    pub fn write(&self, home: &Home, scope: Scope) {
        let (servers, settings) = files(home, scope);
        let write = |path: std::path::PathBuf, value: Value| {
            std::fs::write(path, serde_json::to_string_pretty(&value).expect("JSON"))
                .expect("a settings file");
        };
        let mut all = json!({ "mcpServers": self.servers });
        if scope == Scope::User {
            // The user's file holds more than servers; a newcomer's would make Claude Code ask first.
            all["hasCompletedOnboarding"] = json!(true);
        }
        write(servers, all);
        write(settings, json!({ "hooks": self.hooks }));
    }
}

fn files(home: &Home, scope: Scope) -> (std::path::PathBuf, std::path::PathBuf) {
    match scope {
        Scope::Flags => (home.log("mcp.json"), home.log("settings.json")),
        Scope::User => (home.claude().join(".claude.json"), home.claude().join("settings.json")),
    }
}

/// A running session. Drop ends it.
#[derive(Debug)]
pub struct Claude {
    talk: Talk,
    home: Arc<Home>,
}

/// The end of a turn.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The session that Claude Code says this was: `/clear` makes a new one.
    pub session: String,
    pub result: String,
}

impl Claude {
    pub fn start(home: &Arc<Home>, model: &ScriptedModel, scope: Scope) -> Self {
        let mut command = home.command(&binary(Host::ClaudeCode));
        command.args(["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]);
        command.arg("--dangerously-skip-permissions");
        if scope == Scope::Flags {
            let (servers, settings) = files(home, scope);
            command.arg("--mcp-config").arg(servers).arg("--strict-mcp-config");
            command.arg("--settings").arg(settings);
        }
        command.env("ANTHROPIC_BASE_URL", model.url()).env("ANTHROPIC_API_KEY", "sk-scripted");
        // It would look for updates, send reports, hide tools behind a search, and refuse to run as root.
        for name in ["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER"] {
            command.env(name, "1");
        }
        command.env("ENABLE_TOOL_SEARCH", "false").env("IS_SANDBOX", "1");
        Self { talk: Talk::start(command, home.log("claude.err")), home: home.clone() }
    }

    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub fn pid(&self) -> u32 {
        self.talk.pid()
    }

    /// Says something and waits for the end of the turn.
    pub async fn say(&self, text: &str) -> Turn {
        let start = self.talk.heard();
        let message = json!({ "role": "user", "content": text });
        self.talk.say(&json!({ "type": "user", "message": message })).await;
        let over = |message: &Value| (message["type"] == "result").then(|| message.clone());
        let over = self.talk.hear("the end of a turn", start, TURN, over).await;
        assert_ne!(over["is_error"], true, "a turn failed: {over}");
        let text = |name: &str| over[name].as_str().unwrap_or_default().to_owned();
        Turn { session: text("session_id"), result: text("result") }
    }

    /// Forgets the conversation; what follows is another session.
    pub async fn clear(&self) -> Turn {
        self.say("/clear").await
    }

    /// Ends the session as its user does.
    pub async fn close(self) {
        self.talk.close().await;
    }
}
