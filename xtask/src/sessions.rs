//! The tests of sessions on one runtime: `cargo xtask sessions --runtime docker`, and a part of `cargo xtask test`.
//!
//! ```text
//! private-engine ── unix://… ─▶ CALLSIGN_TEST_RUNTIME, DOCKER_HOST ─▶ cargo nextest run --test sessions
//!       ▲ its input, held as long as the tests run                      every rig: boxes of that engine
//! ```
//!
//! One engine serves the whole run: to start one and give it an image takes longer than most tests. What does not run on
//! an engine stands in [`LOCAL_ONLY`], and is said each time.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};

use crate::process::{Program, run as run_command};
use crate::prove::at_full_size;
use crate::workspace::{Profile, Workspace};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What makes the boxes
    #[arg(long)]
    runtime: Runtime,
    /// At full size, as `prove` runs them
    #[arg(long)]
    full: bool,
    /// Only tests with one of these in their names; on Podman too, where there are fewer otherwise
    filter: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Runtime {
    Local,
    Docker,
    Podman,
}

impl Runtime {
    fn word(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// Tests that no engine runs, and why.
const LOCAL_ONLY: [(&str, &str); 4] = [
    (
        "test(/^users::an_unprivileged_user_/)",
        "whom the daemon runs as decides what holds a local box; the engine of the tests is root's alone",
    ),
    ("test(/^engines::/)", "it starts engines of its own, for whoever runs the tests without one"),
    (
        "test(/^workflow::inspector::/)",
        "the inspector tells the server that it starts nothing of DOCKER_HOST",
    ),
    ("test(/^extras::/)", "each names its runtime, and one of them starts an engine of its own"),
];

/// What Podman, which is reached by the same code as Docker, is asked to show again.
const CORE: &str = "test(/^lifecycle::(an_idle_box|terminate_ends|a_run_goes_on|boxes_without)/) | test(/^killed::/) \
                    | test(/^boxed::(inside|restarted)::/)";

/// By hand, what is built included.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    // With the tests: without them the features are others, and everything would be built twice.
    run_command(workspace.cargo().args(["build", "--quiet", "--workspace", "--bins", "--test", "sessions"]))?;
    tests(workspace, options).map(|summary| println!("{summary}"))
}

/// As a part of `cargo xtask test`, which has built everything.
pub(crate) fn on(workspace: &Workspace, runtime: Runtime) -> Result<String> {
    tests(workspace, &Options { runtime, full: false, filter: Vec::new() })
}

fn tests(workspace: &Workspace, options: &Options) -> Result<String> {
    let Options { runtime, full, filter } = options;
    let engine = match runtime {
        Runtime::Local => None,
        Runtime::Docker | Runtime::Podman => Some(Engine::start(workspace, *runtime)?),
    };
    let mut command = workspace.cargo();
    // The workspace's: the same features, so that nothing is built anew.
    command.args([
        "nextest",
        "run",
        "--workspace",
        "--test",
        "sessions",
        "--cargo-quiet",
        "--no-fail-fast",
        "-E",
    ]);
    command.arg(filterset(*runtime, filter)).env("CALLSIGN_TEST_RUNTIME", runtime.word());
    if let Some(engine) = &engine {
        command.env("DOCKER_HOST", &engine.host);
        for (tests, reason) in LOCAL_ONLY {
            println!("left out on {}: {tests}: {reason}", runtime.word());
        }
    }
    run_command(if *full { at_full_size(workspace, &mut command) } else { &mut command })?;
    engine.map_or(Ok(()), Engine::end)?;
    Ok(match runtime {
        Runtime::Local => String::new(),
        Runtime::Docker => "all but what is said above to be local".to_owned(),
        Runtime::Podman => format!("the core: {CORE}"),
    })
}

/// Which tests run, as nextest is told. Whoever names some gets these.
fn filterset(runtime: Runtime, wanted: &[String]) -> String {
    let named: Vec<String> = wanted.iter().map(|name| format!("test({name})")).collect();
    let usual = match runtime {
        Runtime::Podman => CORE,
        Runtime::Local | Runtime::Docker => "all()",
    };
    let chosen = if named.is_empty() { usual.to_owned() } else { named.join(" | ") };
    let left_out = match runtime {
        Runtime::Local => String::new(),
        Runtime::Docker | Runtime::Podman => {
            LOCAL_ONLY.iter().fold(String::new(), |all, (tests, _)| format!("{all} - {tests}"))
        }
    };
    format!("({chosen}){left_out}")
}

/// An engine of this run alone.
struct Engine {
    program: Program,
    host: String,
}

impl Engine {
    fn start(workspace: &Workspace, runtime: Runtime) -> Result<Self> {
        let mut command = workspace.command(workspace.binary(Profile::Dev, "private-engine")?);
        command.arg(runtime.word()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = Program::start("private-engine", &mut command)?;
        let stdout = program.child.stdout.take().context("it has no output")?;
        let mut host = String::new();
        BufReader::new(stdout).read_line(&mut host)?;
        if !host.starts_with("unix://") {
            bail!("there is no engine to run on; what it said stands above");
        }
        Ok(Self { program, host: host.trim().to_owned() })
    }

    /// It clears up first.
    fn end(mut self) -> Result<()> {
        drop(self.program.child.stdin.take());
        let deadline = std::time::Instant::now() + Duration::from_mins(1);
        while self.program.child.try_wait()?.is_none() {
            if std::time::Instant::now() > deadline {
                bail!("the engine of the tests does not end");
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_runs_and_what_is_local_does_not_run_on_an_engine() {
        let named = ["inside".to_owned(), "limits".to_owned()];
        assert_eq!(filterset(Runtime::Local, &named), "(test(inside) | test(limits))");
        assert_eq!(filterset(Runtime::Local, &[]), "(all())");
        let docker = filterset(Runtime::Docker, &named[..1]);
        assert!(docker.starts_with("(test(inside)) - ") && docker.contains("engines"), "{docker}");
        assert!(filterset(Runtime::Podman, &[]).contains("restarted"));
    }
}
