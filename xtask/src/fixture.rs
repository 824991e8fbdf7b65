//! The programs that tests and bench put around Callsign: test servers, and `callsign serve` itself.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::bench::usage;
use crate::process::{Ended, Program, alive};

/// How long a program may take to be ready.
pub(crate) const READY: Duration = Duration::from_secs(30);

/// A port of loopback that was free a moment ago, for programs that cannot choose one themselves.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// A test server that says `listening on URL` on its first line of stdout.
#[derive(Debug)]
pub(crate) struct HttpServer {
    _program: Program,
    pub(crate) url: String,
}

impl HttpServer {
    pub(crate) fn start(name: &str, command: &mut Command) -> Result<Self> {
        let mut program = Program::start(name, command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
        let stdout = program.child.stdout.take().context("no stdout")?;
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        // Reads on after the first line, so that a talkative server does not block; ends with the server.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                sender.try_send(line).ok();
            }
        });
        let line =
            receiver.recv_timeout(READY).with_context(|| format!("{name} did not say where it listens"))?;
        let url = line.strip_prefix("listening on ").with_context(|| format!("{name} said {line:?}"))?;
        Ok(Self { _program: program, url: url.trim().to_owned() })
    }
}

/// `callsign serve` with its configuration and its state below `home`. The suite and the bench show no token.
pub(crate) fn serve_command(callsign: &Path, home: &Path, address: &str, servers: &str) -> Result<Command> {
    let config = home.join("callsign.toml");
    std::fs::write(&config, format!("[serve]\nauth = \"none\"\n\n{servers}"))?;
    let mut command = Command::new(callsign);
    command.args(["serve", "--listen", address, "--config"]).arg(&config);
    command.arg("--state-dir").arg(home.join("state"));
    Ok(command)
}

/// A running `callsign serve` with a configuration and a state directory of its own.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) program: Program,
    /// Without a path: `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    home: TempDir,
}

impl Daemon {
    fn spawn(callsign: &Path, servers: &str) -> Result<Self> {
        let home = TempDir::with_prefix("callsign-xtask-")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = serve_command(callsign, home.path(), &address, servers)?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(home.path().join("stderr"))?);
        let program = Program::start("callsign serve", &mut command)?;
        Ok(Self { program, url: format!("http://{address}"), home })
    }

    pub(crate) fn start(callsign: &Path, servers: &str) -> Result<Self> {
        let mut daemon = Self::spawn(callsign, servers)?;
        let ready = daemon.home.path().join("state/daemon.json");
        let deadline = Instant::now() + READY;
        while !ready.is_file() {
            daemon.program.still_runs().with_context(|| daemon.said())?;
            if Instant::now() > deadline {
                bail!("callsign serve wrote no daemon.json; {}", daemon.said());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(daemon)
    }

    /// What it wrote to stderr, for an error.
    pub(crate) fn said(&self) -> String {
        said(&self.home.path().join("stderr"))
    }

    pub(crate) fn stop(mut self) -> Result<()> {
        stop_clean(&mut self.program).with_context(|| self.said())
    }
}

/// The end of a log, for an error.
pub(crate) fn said(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(20)..].join("\n");
    format!("its stderr: {tail}")
}

/// Stops one of ours, which must end by itself and leave no descendant behind.
pub(crate) fn stop_clean(program: &mut Program) -> Result<()> {
    let family = usage::family(program.pid());
    let ended = program.stop(Duration::from_secs(10))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    let mut left: Vec<i32> = family;
    while !left.is_empty() && Instant::now() < deadline {
        left.retain(|pid| alive(*pid));
        std::thread::sleep(Duration::from_millis(10));
    }
    if ended == Ended::Killed {
        bail!("it did not end within 10 s of SIGTERM");
    }
    if !left.is_empty() {
        bail!("it left {} descendants behind", left.len());
    }
    Ok(())
}

/// A TOML string.
pub(crate) fn quoted(path: &Path) -> String {
    toml::Value::String(path.to_string_lossy().into_owned()).to_string()
}

/// A preload for Node that keeps a server which would listen everywhere on loopback.
pub(crate) fn loopback_preload(directory: &Path) -> Result<PathBuf> {
    let path = directory.join("loopback.mjs");
    std::fs::write(
        &path,
        "import net from 'node:net';\n\
         const listen = net.Server.prototype.listen;\n\
         net.Server.prototype.listen = function (...args) {\n\
         \x20 if (typeof args[0] === 'object' && args[0] !== null && 'port' in args[0]) args[0].host = '127.0.0.1';\n\
         \x20 else if (args.length && !isNaN(Number(args[0]))) {\n\
         \x20   if (typeof args[1] === 'string') args[1] = '127.0.0.1'; else args.splice(1, 0, '127.0.0.1');\n\
         \x20 }\n\
         \x20 return listen.apply(this, args);\n\
         };\n",
    )?;
    Ok(path)
}
