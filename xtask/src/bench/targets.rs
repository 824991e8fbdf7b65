//! What is measured: how each target is started, in front of which server, and in which version.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::fixture::{HttpServer, free_port, quoted, said, serve_command, stop_clean};
use crate::process::{Namespace, Program};
use crate::tools::{installed_npm_version, pypi_version};
use crate::workspace::Workspace;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    HttpToHttp,
    HttpToStdio,
    Stdio,
}

impl Section {
    pub(super) const ALL: [Self; 3] = [Self::HttpToHttp, Self::HttpToStdio, Self::Stdio];

    /// As `cargo xtask bench NAME` says it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::HttpToHttp => "http-http",
            Self::HttpToStdio => "http-stdio",
            Self::Stdio => "wrap",
        }
    }

    pub(super) fn targets(self) -> &'static [Target] {
        match self {
            Self::HttpToHttp => &[
                Target::Direct,
                Target::Nginx,
                Target::McpProxy,
                Target::Callsign,
                Target::CallsignUnnoted,
                Target::CallsignHooked,
            ],
            Self::HttpToStdio => &[
                Target::McpProxy,
                Target::Supergateway,
                Target::NpmMcpProxy,
                Target::PypiMcpProxy,
                Target::CallsignShared,
                Target::CallsignSession,
            ],
            Self::Stdio => &[
                Target::Direct,
                Target::CallsignWrap,
                Target::CallsignKnown,
                Target::CallsignSigned,
                Target::CallsignSealed,
            ],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The server itself.
    Direct,
    Nginx,
    /// The Rust crate; one child for all sessions.
    McpProxy,
    /// A child for each session.
    Supergateway,
    NpmMcpProxy,
    PypiMcpProxy,
    Callsign,
    /// Nothing is noted.
    CallsignUnnoted,
    /// With a hook that sets two headers.
    CallsignHooked,
    CallsignShared,
    CallsignSession,
    /// Bare: nothing in a call says who makes it.
    CallsignWrap,
    /// The caller is known by the call's metadata, and nothing is signed.
    CallsignKnown,
    CallsignSigned,
    /// The caller is known by a seal, and the call signed.
    CallsignSealed,
}

impl Target {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Nginx => "nginx",
            Self::McpProxy => "mcp-proxy (crate)",
            Self::Supergateway => "supergateway",
            Self::NpmMcpProxy => "mcp-proxy (npm)",
            Self::PypiMcpProxy => "mcp-proxy (PyPI)",
            Self::Callsign => "callsign serve",
            Self::CallsignUnnoted => "serve: no ledger",
            Self::CallsignHooked => "serve: hook",
            Self::CallsignShared => "callsign shared",
            Self::CallsignSession => "callsign session",
            Self::CallsignWrap => "callsign wrap",
            Self::CallsignKnown => "wrap: identity",
            Self::CallsignSigned => "wrap: and assertion",
            Self::CallsignSealed => "wrap: seal, assertion",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        self >= Self::Callsign
    }

    /// Smoke measures these only: no peer needs to be installed for it.
    pub(super) fn is_peer(self) -> bool {
        !self.is_ours() && self != Self::Direct
    }
}

/// What every start needs.
pub(super) struct Rig<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) callsign: PathBuf,
    pub(super) echo: PathBuf,
    /// For targets that cannot be told to stay on loopback.
    pub(super) namespace: Option<Namespace>,
}

/// What must be there before the clock of the start runs.
pub(super) struct Prepared {
    target: Target,
    section: Section,
    home: TempDir,
    port: u16,
    upstream: Option<HttpServer>,
    pub(super) url: String,
    pub(super) tool: &'static str,
    /// It runs, and is to be spoken to, in the private namespace.
    pub(super) namespaced: bool,
}

pub(super) fn prepare(rig: &Rig<'_>, target: Target, section: Section) -> Result<Prepared> {
    let behind = section == Section::HttpToHttp && target != Target::Direct;
    let upstream = behind
        .then(|| HttpServer::start("echo-server", Command::new(&rig.echo).args(["--http", "127.0.0.1:0"])))
        .transpose()?;
    let (path, tool) = match target {
        Target::McpProxy => ("/", "echo/echo"),
        Target::Callsign
        | Target::CallsignUnnoted
        | Target::CallsignHooked
        | Target::CallsignShared
        | Target::CallsignSession => ("/mcp/echo", "echo"),
        Target::Direct
        | Target::Nginx
        | Target::Supergateway
        | Target::NpmMcpProxy
        | Target::PypiMcpProxy
        | Target::CallsignWrap
        | Target::CallsignKnown
        | Target::CallsignSigned
        | Target::CallsignSealed => ("/mcp", "echo"),
    };
    let port = free_port()?;
    let url = format!("http://127.0.0.1:{port}{path}");
    let home = TempDir::with_prefix("callsign-bench-")?;
    Ok(Prepared {
        target,
        section,
        home,
        port,
        upstream,
        url,
        tool,
        namespaced: target == Target::Supergateway,
    })
}

/// A target that was started and may not be ready yet.
pub(super) struct Running {
    pub(super) prepared: Prepared,
    program: Program,
}

pub(super) fn start(rig: &Rig<'_>, prepared: Prepared) -> Result<Running> {
    let mut command = command(rig, &prepared)?;
    let log = File::create(prepared.home.path().join("stderr"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    let program = Program::start(prepared.target.name(), &mut command)?;
    Ok(Running { prepared, program })
}

impl Running {
    pub(super) fn target(&self) -> Target {
        self.prepared.target
    }

    /// The process whose descendants, servers aside, are the target. None where the target is the server.
    pub(super) fn pid(&self) -> Option<i32> {
        (self.prepared.target != Target::Direct).then(|| self.program.pid())
    }

    /// For an error: whether it still runs, and the end of its stderr.
    pub(super) fn said(&mut self) -> String {
        let state = self.program.still_runs().err().map(|error| format!("{error}; ")).unwrap_or_default();
        format!("{state}{}", said(&self.prepared.home.path().join("stderr")))
    }

    pub(super) fn stop(mut self) -> Result<()> {
        if self.prepared.target.is_ours() {
            stop_clean(&mut self.program).with_context(|| self.said())?;
        }
        Ok(())
    }
}

fn command(rig: &Rig<'_>, prepared: &Prepared) -> Result<Command> {
    let Prepared { target, section, home, port, upstream, .. } = prepared;
    let port = port.to_string();
    let upstream = upstream.as_ref().map_or("", |server| server.url.as_str());
    let stdio = format!("command = {}\nargs = [\"--stdio\"]\n", quoted(&rig.echo));
    let mut command = match target {
        Target::Direct => Command::new(&rig.echo),
        Target::Nginx => nginx(rig, home.path(), &port, upstream)?,
        Target::McpProxy => {
            let backend = match section {
                Section::HttpToHttp => format!("transport = \"http\"\nurl = \"{upstream}\"\n"),
                Section::HttpToStdio | Section::Stdio => format!("transport = \"stdio\"\n{stdio}"),
            };
            mcp_proxy(rig, home.path(), &port, &backend)?
        }
        Target::Supergateway => {
            let namespace = rig.namespace.as_ref().context("supergateway needs the namespace")?;
            let mut command = namespace.command(rig.workspace.node());
            command.arg(rig.workspace.tool("npm-peers/node_modules/supergateway/dist/index.js"));
            command.arg("--stdio").arg(format!("{} --stdio", rig.echo.display()));
            command.args(["--outputTransport", "streamableHttp", "--stateful", "--logLevel", "none"]);
            command
        }
        Target::NpmMcpProxy => {
            let mut command = Command::new(rig.workspace.node());
            command.arg(rig.workspace.tool("npm-peers/node_modules/mcp-proxy/dist/bin/mcp-proxy.mjs"));
            command.args(["--host", "127.0.0.1", "--server", "stream"]);
            command
        }
        Target::PypiMcpProxy => {
            let mut command = Command::new(rig.workspace.tool("pypi/bin/mcp-proxy"));
            command.args(["--host", "127.0.0.1", "--log-level", "ERROR"]);
            command
        }
        Target::Callsign => serve(rig, home.path(), &port, &format!("url = \"{upstream}\"\n"))?,
        Target::CallsignUnnoted => {
            serve(rig, home.path(), &port, &format!("url = \"{upstream}\"\n[ledger]\nenabled = false\n"))?
        }
        Target::CallsignHooked => {
            std::fs::write(home.path().join("hook.js"), TWO_HEADERS)?;
            serve(rig, home.path(), &port, &format!("url = \"{upstream}\"\nhooks = [\"hook.js\"]\n"))?
        }
        Target::CallsignShared => {
            serve(rig, home.path(), &port, &format!("{stdio}isolation = \"shared\"\n"))?
        }
        Target::CallsignSession => {
            // One more than the sessions: the lobby may still be there.
            serve(rig, home.path(), &port, &format!("{stdio}isolation = \"session\"\nmax_children = 128\n"))?
        }
        Target::CallsignWrap | Target::CallsignKnown | Target::CallsignSigned | Target::CallsignSealed => {
            anyhow::bail!("wrap has no port")
        }
    };
    match target {
        Target::Direct => command.args(["--http", &format!("127.0.0.1:{port}")]),
        Target::Supergateway => command.args(["--port", &port]),
        Target::NpmMcpProxy | Target::PypiMcpProxy => {
            command.args(["--port", &port, "--"]).arg(&rig.echo).arg("--stdio")
        }
        Target::Nginx
        | Target::McpProxy
        | Target::Callsign
        | Target::CallsignUnnoted
        | Target::CallsignHooked
        | Target::CallsignShared
        | Target::CallsignSession
        | Target::CallsignWrap
        | Target::CallsignKnown
        | Target::CallsignSigned
        | Target::CallsignSealed => &mut command,
    };
    Ok(command)
}

const TWO_HEADERS: &str = r#"export default {
  "mcp.call.before": async (input, output) => {
    output.headers["X-Session-Id"] = input.sessionID ?? "none"
    output.headers["X-Call-Id"] = input.callID
  },
}
"#;

fn serve(rig: &Rig<'_>, home: &Path, port: &str, server: &str) -> Result<Command> {
    serve_command(&rig.callsign, home, &format!("127.0.0.1:{port}"), &format!("[servers.echo]\n{server}"))
}

/// As many workers as cores, kept-alive connections upstream, no buffering: what one would put before MCP.
fn nginx(rig: &Rig<'_>, home: &Path, port: &str, upstream: &str) -> Result<Command> {
    let server = upstream.trim_start_matches("http://").trim_end_matches("/mcp");
    let user = if nix::unistd::geteuid().is_root() { "user root;" } else { "" };
    let config = format!(
        "{user} worker_processes auto; daemon off; pid nginx.pid; error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  access_log off; keepalive_requests 100000000; tcp_nodelay on;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  upstream echo {{ server {server}; keepalive 128; keepalive_requests 100000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://echo; proxy_http_version 1.1; proxy_buffering off;
      proxy_set_header Connection \"\"; proxy_set_header Host $http_host;
    }}
  }}
}}
"
    );
    let file = home.join("nginx.conf");
    std::fs::write(&file, config)?;
    let mut command = Command::new(rig.workspace.which("nginx").context("nginx is not installed")?);
    command.arg("-p").arg(home).arg("-c").arg(&file).args(["-e", "stderr"]);
    Ok(command)
}

fn mcp_proxy(rig: &Rig<'_>, home: &Path, port: &str, backend: &str) -> Result<Command> {
    let file = home.join("proxy.toml");
    let config = format!(
        "[proxy]\nname = \"bench\"\nseparator = \"/\"\n\n[proxy.listen]\nhost = \"127.0.0.1\"\nport = {port}\n\n\
         [[backends]]\nname = \"echo\"\n{backend}\n[observability]\nlog_level = \"error\"\n"
    );
    std::fs::write(&file, config)?;
    let version = rig.workspace.pins.crates.get("mcp-proxy").context("tools.toml pins no crate mcp-proxy")?;
    let mut command = Command::new(rig.workspace.tool(&format!("mcp-proxy-{version}/bin/mcp-proxy")));
    command.arg("--config").arg(&file);
    Ok(command)
}

/// What runs here, as the programs and packages themselves say it.
pub(super) fn version(rig: &Rig<'_>, target: Target) -> Result<String> {
    let npm = |name| {
        installed_npm_version(&rig.workspace.tool("npm-peers"), name)
            .with_context(|| format!("no npm {name}"))
    };
    match target {
        Target::Direct => Ok("–".to_owned()),
        Target::Nginx => {
            let program = rig.workspace.which("nginx").context("nginx is not installed")?;
            let output = Command::new(program).arg("-v").output()?;
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            Ok(text.trim().rsplit('/').next().unwrap_or_default().to_owned())
        }
        Target::McpProxy => rig.workspace.pins.crates.get("mcp-proxy").cloned().context("no pin"),
        Target::Supergateway => npm("supergateway"),
        Target::NpmMcpProxy => npm("mcp-proxy"),
        Target::PypiMcpProxy => pypi_version(rig.workspace, "mcp-proxy"),
        Target::Callsign
        | Target::CallsignUnnoted
        | Target::CallsignHooked
        | Target::CallsignShared
        | Target::CallsignSession
        | Target::CallsignWrap
        | Target::CallsignKnown
        | Target::CallsignSigned
        | Target::CallsignSealed => Ok(env!("CARGO_PKG_VERSION").to_owned()),
    }
}
