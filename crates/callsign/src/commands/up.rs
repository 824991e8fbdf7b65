//! `callsign up`: the newcomer's command.

use anyhow::Context as _;
use model::server::{DEFAULT_IDLE, DEFAULT_MAX_CHILDREN, DEFAULT_MAX_MESSAGE};
use model::{Capture, InheritEnv, Isolation, ServerName, ServerSpec, StdioSpec, Transport, Trust};

use crate::app::{Global, ServeArgs};
use crate::daemon::{self, Mode, Plan, Running};
use crate::logging;
use crate::output;

pub fn run(global: &Global, arguments: &ServeArgs) -> anyhow::Result<()> {
    let spawner = daemon::start_spawner()?;
    logging::start(global)?;
    let mut plan = Plan::load(global, arguments, Mode::Http)?;
    let example = example()?;
    if !plan.config.servers.iter().any(|server| server.name == example.name) {
        plan.always.push(example);
    }
    daemon::run(plan, spawner, |running| Ok(output::line(&how_to_call(running))?))
}

/// A small server inside this binary, so that there is something to call.
fn example() -> anyhow::Result<ServerSpec> {
    let program = std::env::current_exe().context("could not find the program's own path")?;
    Ok(ServerSpec {
        name: ServerName::new("example")?,
        transport: Transport::Stdio(StdioSpec {
            command: program.to_string_lossy().into_owned(),
            args: vec!["example-server".to_owned()],
            env: Vec::new(),
            env_vars: Vec::new(),
            isolation: Isolation::Session,
            cwd: None,
            inherit_env: InheritEnv::Safe,
            idle: DEFAULT_IDLE,
            max_children: DEFAULT_MAX_CHILDREN,
        }),
        timeout: Some(DEFAULT_IDLE),
        max_message: DEFAULT_MAX_MESSAGE,
        pin: false,
        require: Trust::None,
        arguments: Vec::new(),
        capture: Capture::default(),
    })
}

fn how_to_call(running: &Running) -> String {
    let Running { url, socket: _, token_file, servers } = running;
    let url = url.as_deref().unwrap_or_default();
    let token = match token_file {
        Some(file) => format!(" \\\n    -H \"Authorization: Bearer $(cat {})\"", file.display()),
        None => String::new(),
    };
    let listed: Vec<String> = servers.iter().map(|name| format!("  {url}/mcp/{name}")).collect();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"whoami","arguments":{{}},{meta}}}}}"#
    );
    format!(
        "callsign is up. Servers:\n{}\n\nCall the example's tool `whoami`:\n\n  curl -s {url}/mcp/example{token} \\\n    -H 'Content-Type: application/json' -H 'Accept: application/json, text/event-stream' \\\n    -H 'MCP-Protocol-Version: 2026-07-28' -H 'Mcp-Method: tools/call' -H 'Mcp-Name: whoami' \\\n    -d '{body}'\n\nPoint a host at a server of yours: see the README. Ctrl-C ends it.",
        listed.join("\n")
    )
}
