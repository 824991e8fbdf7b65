//! `codex app-server` over its pipes, and `codex exec`.

use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::Home;
use super::installed::{Host, binary};
use super::process::Talk;
use crate::jsonrpc::quote;
use crate::llm::ScriptedModel;

const ANSWER: Duration = Duration::from_mins(1);
const TURN: Duration = Duration::from_secs(90);

/// `config.toml`, as a user has it.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    servers: String,
    features: Vec<String>,
    top: String,
}

impl Settings {
    pub fn new() -> Self {
        Self::default()
    }

    /// A stdio server; `more` are further lines of its table.
    #[must_use]
    pub fn stdio(self, name: &str, command: &[&str], more: &str) -> Self {
        let (program, arguments) = command.split_first().expect("a command");
        let list: Vec<String> = arguments.iter().map(|argument| quote(argument)).collect();
        self.server(name, &format!("command = {}\nargs = [{}]\n{more}", quote(program), list.join(", ")))
    }

    /// A server behind a URL.
    #[must_use]
    pub fn http(self, name: &str, url: &str, more: &str) -> Self {
        self.server(name, &format!("url = {}\n{more}", quote(url)))
    }

    fn server(mut self, name: &str, lines: &str) -> Self {
        // Nobody is there to approve a call.
        let approve = "default_tools_approval_mode = \"approve\"";
        let _ = write!(self.servers, "\n[mcp_servers.{name}]\n{lines}\n{approve}\n");
        self
    }

    /// Turns a feature on.
    #[must_use]
    pub fn feature(mut self, name: &str) -> Self {
        self.features.push(name.to_owned());
        self
    }

    /// Lines before the tables.
    #[must_use]
    pub fn toml(mut self, lines: &str) -> Self {
        self.top += lines;
        self.top.push('\n');
        self
    }

    pub fn write(&self, home: &Home, model: &ScriptedModel) {
        let Self { servers, features, top } = self;
        let features: Vec<String> = features.iter().map(|name| format!("{name} = true\n")).collect();
        let features = features.concat();
        let url = model.url();
        let text = format!(
            "model = \"one\"\nmodel_provider = \"scripted\"\napproval_policy = \"never\"\n\
             sandbox_mode = \"danger-full-access\"\n{top}\n\
             [model_providers.scripted]\nname = \"scripted\"\nbase_url = \"{url}/v1\"\nwire_api = \"responses\"\n\
             request_max_retries = 0\nstream_max_retries = 0\nsupports_websockets = false\n\n\
             [features]\n{features}{servers}"
        );
        std::fs::write(home.codex().join("config.toml"), text).expect("config.toml");
    }
}

/// A running app-server. Drop ends it.
#[derive(Debug)]
pub struct AppServer {
    talk: Talk,
    next: AtomicU64,
    home: Arc<Home>,
}

impl AppServer {
    pub async fn start(home: &Arc<Home>) -> Self {
        Self::start_with(home, &[]).await
    }

    /// As if it had been started where these variables are set.
    pub async fn start_with(home: &Arc<Home>, environment: &[(&str, &str)]) -> Self {
        let mut command = home.command(&binary(Host::Codex));
        command.arg("app-server").envs(environment.iter().copied());
        let talk = Talk::start(command, home.log("codex.err"));
        let server = Self { talk, next: AtomicU64::new(1), home: home.clone() };
        let client = json!({ "name": "testkit", "title": "testkit", "version": "0.1.0" });
        let capabilities = json!({ "experimentalApi": true });
        server.request("initialize", json!({ "clientInfo": client, "capabilities": capabilities })).await;
        server.talk.say(&json!({ "method": "initialized" })).await;
        server
    }

    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    pub fn pid(&self) -> u32 {
        self.talk.pid()
    }

    /// A request's result; an error ends the test.
    pub async fn request(&self, method: &str, params: Value) -> Value {
        match self.try_request(method, params).await {
            Ok(result) => result,
            Err(error) => panic!("codex refused {method}: {error}"),
        }
    }

    pub async fn try_request(&self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let start = self.talk.heard();
        self.talk.say(&json!({ "id": id, "method": method, "params": params })).await;
        let answered = |message: &Value| {
            (message["id"] == id && message["method"].is_null())
                .then(|| message.get("result").cloned().ok_or_else(|| message["error"].clone()))
        };
        self.talk.hear(method, start, ANSWER, answered).await
    }

    /// Starts a thread in the project's directory and gives its id.
    pub async fn thread(&self) -> String {
        let started = self.request("thread/start", json!({ "cwd": self.home.project() })).await;
        thread_id(&started)
    }

    /// A thread that goes on from another's history.
    pub async fn fork(&self, thread: &str) -> String {
        thread_id(&self.request("thread/fork", json!({ "threadId": thread })).await)
    }

    /// One turn to its end.
    pub async fn turn(&self, thread: &str, text: &str) {
        let started = self.begin(thread, text).await;
        self.finish(thread, &started).await;
    }

    /// Starts a turn and gives its id.
    pub async fn begin(&self, thread: &str, text: &str) -> String {
        let input = json!([{ "type": "text", "text": text }]);
        let started = self.request("turn/start", json!({ "threadId": thread, "input": input })).await;
        started["turn"]["id"].as_str().unwrap_or_else(|| panic!("no turn: {started}")).to_owned()
    }

    /// Waits for the end of a turn; one that failed ends the test.
    pub async fn finish(&self, thread: &str, turn: &str) {
        let over = |message: &Value| {
            let params = &message["params"];
            let same = params["threadId"] == thread && params["turn"]["id"] == turn;
            (message["method"] == "turn/completed" && same).then(|| params["turn"].clone())
        };
        let over = self.talk.hear("the end of a turn", 0, TURN, over).await;
        assert_eq!(over["status"], "completed", "a turn failed: {over}");
    }

    /// Codex's own view of its MCP servers: `[{name, tools: {…}, …}]`.
    pub async fn servers(&self) -> Vec<Value> {
        let answer = self.request("mcpServerStatus/list", json!({})).await;
        answer["data"].as_array().cloned().unwrap_or_else(|| panic!("no servers: {answer}"))
    }

    /// A call that the client of Codex makes itself.
    pub async fn call(&self, thread: &str, server: &str, tool: &str, arguments: Value) -> Value {
        let params = json!({ "threadId": thread, "server": server, "tool": tool, "arguments": arguments });
        self.request("mcpServer/tool/call", params).await
    }
}

fn thread_id(answer: &Value) -> String {
    answer["thread"]["id"].as_str().unwrap_or_else(|| panic!("no thread: {answer}")).to_owned()
}

/// What `codex exec --json` printed.
pub async fn exec(home: &Home, arguments: &[&str], environment: &[(&str, &str)]) -> Vec<Value> {
    let mut command = home.command(&binary(Host::Codex));
    command.args(["exec", "--skip-git-repo-check", "--json"]).args(arguments);
    // It reads its input to the end before it starts.
    command.envs(environment.iter().copied()).stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(TURN, command.output()).await.expect("codex exec ends").expect("codex exec runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "codex exec failed: {}\n{stdout}\n{stderr}", output.status);
    stdout.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}
