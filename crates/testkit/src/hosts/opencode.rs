//! `opencode serve` and its HTTP API.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::Home;
use super::installed::{Host, binary, opencode_plugin};
use super::process::{Process, tail};
use crate::client::{Events, Http};
use crate::llm::ScriptedModel;

/// On two busy cores it takes up to 25 s.
const BOOT: Duration = Duration::from_mins(1);
const TURN: Duration = Duration::from_secs(90);

/// `opencode.json`, as a user has it.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    mcp: Map<String, Value>,
    more: Map<String, Value>,
}

impl Settings {
    pub fn new() -> Self {
        Self::default()
    }

    /// A stdio server.
    #[must_use]
    pub fn local(self, name: &str, command: &[&str], environment: &Value) -> Self {
        self.entry(name, json!({ "type": "local", "command": command, "environment": environment }))
    }

    /// A server behind a URL; without OAuth, which no test server has.
    #[must_use]
    pub fn remote(self, name: &str, url: &str, headers: &Value) -> Self {
        self.entry(name, json!({ "type": "remote", "url": url, "headers": headers, "oauth": false }))
    }

    /// An entry of `mcp` as it is.
    #[must_use]
    pub fn entry(mut self, name: &str, entry: Value) -> Self {
        self.mcp.insert(name.to_owned(), entry);
        self
    }

    /// A further key of the file.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }

    /// Writes the file, and what `OpenCode` would otherwise fetch from npm at its first start.
    pub fn write(&self, home: &Home, model: &ScriptedModel) {
        let directory = home.opencode();
        let mut all = json!({
            "$schema": "https://opencode.ai/config.json",
            "autoupdate": false,
            "share": "disabled",
            "model": "scripted/one",
            "small_model": "scripted/one",
            "enabled_providers": ["scripted"],
            "provider": { "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Scripted",
                "options": { "baseURL": format!("{}/v1", model.url()), "apiKey": "none" },
                "models": { "one": {
                    "name": "One", "tool_call": true, "limit": { "context": 200_000, "output": 8000 },
                } },
            } },
            "mcp": self.mcp,
        });
        if let Value::Object(all) = &mut all {
            all.extend(self.more.clone());
        }
        let text = serde_json::to_string_pretty(&all).expect("JSON");
        std::fs::write(directory.join("opencode.json"), text).expect("opencode.json");
        let plugin = opencode_plugin();
        // A link instead of 63 MB: OpenCode only looks whether the lock file and the directory agree.
        std::os::unix::fs::symlink(plugin.join("node_modules"), directory.join("node_modules"))
            .expect("a link");
        for file in ["package.json", "package-lock.json"] {
            std::fs::copy(plugin.join(file), directory.join(file)).expect("a copy");
        }
    }
}

/// A running server. Drop ends it.
#[derive(Debug)]
pub struct OpenCode {
    process: Process,
    url: String,
    home: Arc<Home>,
}

impl OpenCode {
    /// Starts it in this home and waits until it answers.
    pub async fn start(home: &Arc<Home>) -> Self {
        let stdout = home.log("opencode.out");
        let mut command = home.command(&binary(Host::OpenCode));
        command.args([
            "serve",
            "--hostname",
            "127.0.0.1",
            "--port",
            "0",
            "--print-logs",
            "--log-level",
            "INFO",
        ]);
        // Three identical calls in a row raise a question that nobody here would answer.
        command.env("OPENCODE_PERMISSION", r#"{"doom_loop":"allow"}"#);
        command.env("OPENCODE_DISABLE_MODELS_FETCH", "1").env("OPENCODE_DISABLE_AUTOUPDATE", "1");
        command.stdin(Stdio::null()).stdout(std::fs::File::create(&stdout).expect("a file"));
        let mut process = Process::spawn(command, home.log("opencode.err"));
        let end = Instant::now() + BOOT;
        // The port accepts before the server listens, and a request that comes then is never answered.
        let url = loop {
            if let Some(url) = listening(&stdout) {
                break url;
            }
            assert!(
                process.is_running() && Instant::now() < end,
                "opencode did not come up\n{}\n{}",
                tail(&stdout),
                process.complaints()
            );
            sleep(Duration::from_millis(20)).await;
        };
        let opencode = Self { process, url, home: home.clone() };
        let healthy = || async {
            let health = opencode.send(Method::GET, "/global/health", None, Duration::from_secs(1)).await;
            health.is_some_and(|(status, _)| status == 200)
        };
        while !healthy().await {
            assert!(Instant::now() < end, "opencode is not healthy\n{}", opencode.process.complaints());
        }
        opencode
    }

    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.process.stderr).unwrap_or_default()
    }

    /// Creates a session and gives its id.
    pub async fn session(&self, title: &str) -> String {
        let made = self.ask(Method::POST, "/session", Some(json!({ "title": title }))).await;
        made["id"].as_str().unwrap_or_else(|| panic!("no session: {made}")).to_owned()
    }

    /// Prompts and waits for the end of the turn: the last message, `{info, parts}`.
    pub async fn prompt(&self, session: &str, text: &str) -> Value {
        let path = format!("/session/{session}/message");
        let answer = self.ask(Method::POST, &path, Some(prompt(text))).await;
        assert!(
            answer["info"]["error"].is_null(),
            "the turn failed: {answer}\n{}",
            self.process.complaints()
        );
        answer
    }

    /// Prompts and does not wait.
    pub async fn prompt_async(&self, session: &str, text: &str) {
        self.ask(Method::POST, &format!("/session/{session}/prompt_async"), Some(prompt(text))).await;
    }

    pub async fn rename(&self, session: &str, title: &str) {
        let renamed =
            self.ask(Method::PATCH, &format!("/session/{session}"), Some(json!({ "title": title }))).await;
        assert_eq!(renamed["title"], title, "the session was not renamed");
    }

    /// The stored history.
    pub async fn messages(&self, session: &str) -> Vec<Value> {
        let messages = self.ask(Method::GET, &format!("/session/{session}/message"), None).await;
        messages.as_array().cloned().unwrap_or_else(|| panic!("no messages: {messages}"))
    }

    /// The sessions of subagents.
    pub async fn children(&self, session: &str) -> Vec<Value> {
        let children = self.ask(Method::GET, &format!("/session/{session}/children"), None).await;
        children.as_array().cloned().unwrap_or_else(|| panic!("no children: {children}"))
    }

    pub async fn config(&self) -> Value {
        self.ask(Method::GET, "/config", None).await
    }

    /// The states of the MCP servers.
    pub async fn mcp(&self) -> Value {
        self.ask(Method::GET, "/mcp", None).await
    }

    pub async fn abort(&self, session: &str) {
        self.ask(Method::POST, &format!("/session/{session}/abort"), Some(json!({}))).await;
    }

    /// What happens from now on.
    pub async fn events(&self) -> Events {
        let (status, events) = Http::new(&self.at("/event"), None).get_stream(&[]).await;
        assert_eq!(status, 200, "no event stream");
        events
    }

    /// Any request of the API, in the project's directory; anything but a success ends the test.
    pub async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Value {
        let Some((status, answer)) = self.send(method.clone(), path, body, TURN).await else {
            panic!("{method} {path} was not answered\n{}", self.process.complaints());
        };
        assert!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}\n{}",
            self.process.complaints()
        );
        answer
    }

    /// None where no answer came in time.
    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
        deadline: Duration,
    ) -> Option<(u16, Value)> {
        // A connection each: one that was opened while the server started may stay mute.
        let http = Http::new(&self.at(path), None);
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let response = timeout(deadline, http.exchange_raw(method, &[], body)).await.ok()?;
        (response.status != 0).then(|| (response.status, response.json()))
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}?directory={}", self.url, self.home.project().display())
    }
}

fn prompt(text: &str) -> Value {
    json!({ "parts": [{ "type": "text", "text": text }] })
}

fn listening(stdout: &Path) -> Option<String> {
    let text = std::fs::read_to_string(stdout).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("opencode server listening on "))?;
    // The line may be half written: an address has a port.
    let url = line.trim();
    (text.ends_with('\n') && url.rsplit_once(':').is_some()).then(|| url.to_owned())
}
