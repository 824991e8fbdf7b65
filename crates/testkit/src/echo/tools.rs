//! The tools.

use std::io::BufRead as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::{Call, ok_line};
use super::session::{Change, Legacy};
use super::{Outlet, Reply, Slow};
use crate::jsonrpc::{self, quote};

/// How long a server request waits for the client's answer.
const ASK_DEADLINE: Duration = Duration::from_secs(30);

pub(super) struct Tool {
    name: &'static str,
    description: &'static str,
    properties: &'static str,
}

pub(super) const TOOLS: &[Tool] = &[
    Tool { name: "echo", description: "Gives the text back.", properties: r#""text":{"type":"string"}"# },
    Tool {
        name: "whoami",
        description: "Says what this process was given; `prefix` selects environment names (\"\": all).",
        properties: r#""prefix":{"type":"string"}"#,
    },
    Tool { name: "sleep", description: "Waits.", properties: r#""ms":{"type":"integer"}"# },
    Tool {
        name: "progress",
        description: "Reports progress, then answers.",
        properties: r#""steps":{"type":"integer"},"ms":{"type":"integer"}"#,
    },
    Tool {
        name: "ask",
        description: "Asks the client and gives its answer back.",
        properties: r#""method":{"type":"string"},"params":{"type":"object"}"#,
    },
    Tool {
        name: "touch",
        description: "Says that a resource changed.",
        properties: r#""uri":{"type":"string"}"#,
    },
    Tool {
        name: "log",
        description: "Sends a log message.",
        properties: r#""level":{"type":"string"},"text":{"type":"string"}"#,
    },
    Tool { name: "grow", description: "Adds a tool.", properties: "" },
    Tool {
        name: "exit",
        description: "Ends the process without an answer.",
        properties: r#""code":{"type":"integer"}"#,
    },
    Tool { name: "spawn_orphan", description: "Leaves a detached process behind.", properties: "" },
    Tool {
        name: "raw",
        description: "Writes a line as it is, then answers.",
        properties: r#""json":{"type":"string"}"#,
    },
];

/// Gives its arguments back as they came.
pub(super) const WORKSPACE_TOOL: &str = r#"{"name":"task","description":"Adds a task.","inputSchema":{"type":"object","properties":{"title":{"type":"string"},"workspace":{"type":"string"}},"required":["title","workspace"]}}"#;

impl Tool {
    pub(super) fn json(&self) -> String {
        let Self { name, description, properties } = self;
        let description = quote(description);
        format!(
            r#"{{"name":"{name}","description":{description},"inputSchema":{{"type":"object","properties":{{{properties}}}}},"x-vendor":{{"kept":true}}}}"#
        )
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    prefix: Option<String>,
    ms: u64,
    steps: u64,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    uri: Option<String>,
    level: Option<String>,
    code: i32,
    json: Option<String>,
}

pub(super) fn call(call: &Call<'_>) -> Reply {
    let raw = call.params.arguments.map_or("{}", |raw| raw.get());
    let Ok(arguments) = serde_json::from_str::<Arguments<'_>>(raw) else {
        return call.refuse(-32602, "arguments do not fit");
    };
    match call.params.name.as_deref() {
        Some("echo") => text(call, arguments.text.map_or("\"\"", |raw| raw.get())),
        Some("whoami") => {
            let prefix = arguments.prefix.as_deref().unwrap_or("CALLSIGN_");
            text(call, &quote(&whoami(call, prefix).to_string()))
        }
        Some("task") if call.session.options.workspace_tool => text(call, &quote(raw)),
        Some("sleep") => sleep(call, &arguments),
        Some("progress") => progress(call, &arguments),
        Some("ask") => ask(call, &arguments),
        Some("touch") => change(call, Change::Resource(arguments.uri.unwrap_or_default())),
        Some("grow") => {
            call.session.state().grown += 1;
            change(call, Change::Tools)
        }
        Some("log") => log(call, &arguments),
        Some("exit") => std::process::exit(arguments.code),
        Some("spawn_orphan") => match spawn_orphan() {
            Ok(pid) => text(call, &quote(&pid)),
            Err(error) => call.refuse(-32603, &error.to_string()),
        },
        Some("raw") => {
            let line = arguments.json.unwrap_or_default().into_bytes();
            let done = call.ok_line(CONTENT_OK);
            Reply::Stream(Slow::new(move |outlet| {
                outlet.send(line);
                Some(done)
            }))
        }
        Some(grown) if grown.starts_with("grown-") => text(call, &quote(grown)),
        _ => call.refuse(-32602, "no such tool"),
    }
}

const CONTENT_OK: &str = r#""content":[{"type":"text","text":"ok"}]"#;

fn content(quoted: &str) -> String {
    format!(r#""content":[{{"type":"text","text":{quoted}}}]"#)
}

fn text(call: &Call<'_>, quoted: &str) -> Reply {
    call.ok(&content(quoted))
}

/// What this process was given, and what came with the call.
pub(super) fn whoami(call: &Call<'_>, prefix: &str) -> Value {
    let env: serde_json::Map<String, Value> = std::env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned()))
        .filter(|(name, _)| name.starts_with(prefix))
        .map(|(name, value)| (name, Value::from(value)))
        .collect();
    let raw = |text: Option<&str>| text.and_then(|text| serde_json::from_str::<Value>(text).ok());
    let state = call.session.state();
    json!({
        "pid": std::process::id(),
        "ppid": std::os::unix::process::parent_id(),
        "args": std::env::args().collect::<Vec<_>>(),
        "cwd": std::env::current_dir().ok(),
        "env": env,
        "meta": raw(call.params.meta.map(RawValue::get)),
        "headers": call.headers,
        "initialize": raw(state.initialize.as_deref()),
        "level": state.level,
        "subscriptions": state.subscriptions,
        "cancelled": state.cancelled,
        "late_cancels": state.late_cancels,
    })
}

fn sleep(call: &Call<'_>, arguments: &Arguments<'_>) -> Reply {
    let time = Duration::from_millis(arguments.ms);
    let running = call.session.start(call.id);
    let (session, done) = (call.session.clone(), call.ok_line(CONTENT_OK));
    Reply::Later(Slow::cancellable(running.clone(), move |_| {
        let cancelled = running.wait(time);
        session.finish(&running);
        (!cancelled).then_some(done)
    }))
}

fn progress(call: &Call<'_>, arguments: &Arguments<'_>) -> Reply {
    let (steps, pause) = (arguments.steps, Duration::from_millis(arguments.ms));
    let token = call.meta.progress_token.map(|token| token.get().to_owned());
    let running = call.session.start(call.id);
    let (session, done) = (call.session.clone(), call.ok_line(CONTENT_OK));
    Reply::Stream(Slow::cancellable(running.clone(), move |outlet| {
        for step in 1..=steps {
            if running.wait(pause) {
                return None;
            }
            if let Some(token) = &token {
                let params = format!(
                    r#"{{"progressToken":{token},"progress":{step},"total":{steps},"message":"step {step}"}}"#
                );
                // Nobody reading is no cancel: in the modern era the transport says so by itself.
                outlet.send(jsonrpc::notification("notifications/progress", &params));
            }
        }
        session.finish(&running);
        Some(done)
    }))
}

/// Legacy: a request of ours to the client. Modern: the same question as `input_required`.
fn ask(call: &Call<'_>, arguments: &Arguments<'_>) -> Reply {
    let method = arguments.method.clone().unwrap_or_else(|| "ping".to_owned());
    let params = arguments.params.map_or("{}", |raw| raw.get()).to_owned();
    if call.modern() {
        if let Some(answers) = call.params.input_responses {
            return text(call, &quote(answers.get()));
        }
        let question = format!(r#"{{"method":{},"params":{params}}}"#, quote(&method));
        let state = quote(&format!("state of {}", std::process::id()));
        let result = format!(
            r#"{{"resultType":"input_required","inputRequests":{{"q":{question}}},"requestState":{state}}}"#
        );
        return Reply::Now(jsonrpc::result(call.id, &result));
    }
    let (session, id) = (call.session.clone(), call.id.to_owned());
    Reply::Stream(Slow::new(move |outlet| {
        let (number, answer) = session.ask();
        outlet.send(jsonrpc::request(&format!("\"ask-{number}\""), &method, &params));
        let answer = answer.recv_timeout(ASK_DEADLINE);
        session.forget_ask(number);
        Some(match answer {
            Ok(answer) => ok_line(&id, false, &content(&quote(&answer))),
            Err(_) => jsonrpc::error(&id, -32603, "the client did not answer"),
        })
    }))
}

fn change(call: &Call<'_>, change: Change) -> Reply {
    let (session, modern, done) = (call.session.clone(), call.modern(), call.ok_line(CONTENT_OK));
    Reply::Stream(Slow::new(move |outlet: &Arc<dyn Outlet>| {
        session.tell(&change, if modern { Legacy::No } else { Legacy::Yes(outlet) });
        Some(done)
    }))
}

fn log(call: &Call<'_>, arguments: &Arguments<'_>) -> Reply {
    let level = quote(arguments.level.as_deref().unwrap_or("info"));
    let data = arguments.text.map_or("\"\"", |raw| raw.get());
    let params = format!(r#"{{"level":{level},"logger":"echo","data":{data}}}"#);
    let message = jsonrpc::notification("notifications/message", &params);
    let done = call.ok_line(CONTENT_OK);
    Reply::Stream(Slow::new(move |outlet| {
        outlet.send(message);
        Some(done)
    }))
}

/// Starts the first stage, which starts the second in a session of its own and is gone; gives its pid.
fn spawn_orphan() -> std::io::Result<String> {
    let mut first = Command::new(std::env::current_exe()?)
        .arg("--orphan-first")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut pid = String::new();
    if let Some(stdout) = first.stdout.take() {
        std::io::BufReader::new(stdout).read_line(&mut pid)?;
    }
    first.wait()?;
    Ok(pid.trim().to_owned())
}

/// The two stages of `spawn_orphan`, by hidden flags of the same program.
pub(super) fn orphan_first() -> std::io::Result<()> {
    use std::io::Write as _;
    let second = Command::new(std::env::current_exe()?)
        .arg("--orphan-second")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    writeln!(std::io::stdout(), "{}", second.id())
}

pub(super) fn orphan_second() {
    let _ = nix::unistd::setsid();
    std::thread::sleep(Duration::from_secs(1000));
}
