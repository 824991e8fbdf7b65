//! The load generator's process, as `bench` sees it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::load::{Outcome, Plan, Report};
use crate::process::{Namespace, Program};

pub(super) struct Worker {
    program: Program,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Worker {
    pub(super) fn start(plan: &Plan, namespace: Option<&Namespace>) -> Result<Self> {
        let xtask = own_program()?;
        let mut command = match namespace {
            Some(namespace) => namespace.command(&xtask),
            None => Command::new(&xtask),
        };
        command.arg("bench-worker").arg(serde_json::to_string(plan)?);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = Program::start("bench-worker", &mut command)?;
        let stdin = program.child.stdin.take();
        let stdout = program.child.stdout.take().context("no stdout")?;
        let (sender, lines) = sync_channel(16);
        // Ends with the worker, whose stdout it reads.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { program, stdin, lines })
    }

    /// A probe says when it is about to try, so that its own start does not count.
    pub(super) fn trying(&mut self) -> Result<()> {
        match self.next(Duration::from_secs(10))? {
            Report::Trying => Ok(()),
            other @ (Report::Ready | Report::Result(_)) => unexpected(&other),
        }
    }

    pub(super) fn ready(&mut self, patience: Duration) -> Result<()> {
        match self.next(patience)? {
            Report::Ready => Ok(()),
            other @ (Report::Trying | Report::Result(_)) => unexpected(&other),
        }
    }

    pub(super) fn go(&mut self, patience: Duration) -> Result<Outcome> {
        self.stdin.as_mut().context("closed")?.write_all(b"go\n")?;
        match self.next(patience)? {
            Report::Result(outcome) => Ok(outcome),
            other @ (Report::Trying | Report::Ready) => unexpected(&other),
        }
    }

    /// Lets it end its sessions and waits for that.
    pub(super) fn finish(mut self) -> Result<()> {
        self.stdin = None;
        let status = self.program.child.wait()?;
        if !status.success() {
            bail!("the load generator failed: {}", self.said());
        }
        Ok(())
    }

    fn next(&mut self, patience: Duration) -> Result<Report> {
        match self.lines.recv_timeout(patience) {
            Ok(line) => {
                serde_json::from_str(&line).with_context(|| format!("the load generator said {line}"))
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("the load generator still waits after {} s", patience.as_secs())
            }
            Err(RecvTimeoutError::Disconnected) => {
                self.program.child.wait()?;
                bail!("{}", self.said())
            }
        }
    }

    /// Its stderr. Only for one that has ended.
    fn said(&mut self) -> String {
        self.program
            .child
            .stderr
            .take()
            .and_then(|stderr| std::io::read_to_string(stderr).ok())
            .unwrap_or_default()
            .trim()
            .to_owned()
    }
}

fn unexpected<T>(report: &Report) -> Result<T> {
    bail!("the load generator said {report:?}")
}

/// Cargo may have replaced us on disk since we started; the new one is as good.
fn own_program() -> Result<PathBuf> {
    let path = std::env::current_exe()?;
    let text = path.to_string_lossy();
    Ok(text.strip_suffix(" (deleted)").map(PathBuf::from).unwrap_or(path.clone()))
}
