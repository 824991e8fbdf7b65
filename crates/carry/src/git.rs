//! The user's own git, in the user's own directory, where all it may do is look.
//!
//! What a repository can make git run is turned off on the command line, which is stronger than any configuration in it.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{CarryError, text};

/// What git may say before it is stopped.
const MOST_SAID: u64 = 64 << 20;
const MOST_COMPLAINED: u64 = 4 << 10;

/// Variables that would lead git to another repository, or make it run or write something.
const UNSET: [&str; 22] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_DIR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_TEMPLATE_DIR",
    "GIT_TRACE",
    "GIT_TRACE2",
    "GIT_TRACE2_EVENT",
    "GIT_WORK_TREE",
];

#[derive(Debug, Clone)]
pub struct Git {
    pub program: PathBuf,
    /// For each time it is run.
    pub deadline: Duration,
}

impl Default for Git {
    fn default() -> Self {
        Self { program: "git".into(), deadline: Duration::from_mins(1) }
    }
}

/// Which of git's settings count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settings {
    /// The user's own: they say what is ignored and which directories are trusted.
    User,
    /// None but those we give: for repositories of ours.
    None,
}

#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) success: bool,
    pub(crate) out: Vec<u8>,
    pub(crate) complaint: String,
}

/// What git is asked to do, in the words of a message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) doing: &'static str,
    pub(crate) within: &'a Path,
    pub(crate) settings: Settings,
    pub(crate) arguments: &'a [&'a str],
}

type Feed<'a> = &'a mut (dyn FnMut(&mut dyn Write) -> io::Result<()> + Send);

impl Git {
    pub(crate) fn run(&self, ask: Ask<'_>) -> Result<Said, CarryError> {
        self.feed(ask, &mut |_| Ok(()))
    }

    /// As [`Self::run`], where success is all there is to know.
    pub(crate) fn must(&self, ask: Ask<'_>) -> Result<Vec<u8>, CarryError> {
        let said = self.run(ask)?;
        if said.success {
            Ok(said.out)
        } else {
            Err(CarryError::Git { doing: ask.doing, said: said.complaint })
        }
    }

    pub(crate) fn feed(&self, ask: Ask<'_>, feed: Feed<'_>) -> Result<Said, CarryError> {
        let failed = |source| CarryError::NoGit { path: text(ask.within), source };
        let mut child = self.command(ask).spawn().map_err(failed)?;
        let result = attend(&mut child, self.deadline, feed);
        let status = child.wait().map_err(failed)?;
        match result {
            Ok((out, complaint)) => Ok(Said { success: status.success(), out, complaint }),
            Err(Gave::UpWaiting) => {
                Err(CarryError::GitTooSlow { doing: ask.doing, seconds: self.deadline.as_secs() })
            }
            Err(Gave::TooMuch) => Err(CarryError::Git {
                doing: ask.doing,
                said: format!("it said more than {MOST_SAID} bytes"),
            }),
        }
    }

    fn command(&self, ask: Ask<'_>) -> Command {
        let mut command = Command::new(&self.program);
        for name in UNSET {
            command.env_remove(name);
        }
        command
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            // Older ones do not know that: nothing is fetched by any way, whatever the repository allows.
            .env("GIT_ALLOW_PROTOCOL", "")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("LC_ALL", "C");
        if ask.settings == Settings::None {
            command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
            command.env("GIT_CEILING_DIRECTORIES", ask.within);
        }
        command
            .arg("--no-pager")
            .args([
                "-c",
                "core.fsmonitor=false",
                "-c",
                "core.hooksPath=/dev/null",
                "-c",
                "core.untrackedCache=false",
            ])
            .args(["-c", "protocol.allow=never", "-c", "gc.auto=0", "-c", "maintenance.auto=false"])
            .args(ask.arguments)
            .current_dir(ask.within)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

enum Gave {
    UpWaiting,
    TooMuch,
}

/// Feeds and reads at once, so that neither side waits for the other, until git has closed its output.
fn attend(child: &mut Child, deadline: Duration, feed: Feed<'_>) -> Result<(Vec<u8>, String), Gave> {
    let until = Instant::now() + deadline;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    thread::scope(|scope| {
        let (done, wait) = mpsc::sync_channel(3);
        let fed = done.clone();
        scope.spawn(move || {
            // A git that does not want it all says why.
            if let Some(mut stdin) = stdin {
                let _closed_early = feed(&mut stdin);
            }
            let _nobody_waits = fed.send(());
        });
        let read = done.clone();
        let out = scope.spawn(move || {
            let bytes = stdout.map(|stdout| said(stdout, MOST_SAID)).unwrap_or_default();
            let _nobody_waits = read.send(());
            bytes
        });
        let complaint = scope.spawn(move || {
            let bytes = stderr.map(|stderr| said(stderr, MOST_COMPLAINED)).unwrap_or_default();
            let _nobody_waits = done.send(());
            bytes
        });
        for _ in 0..3 {
            if wait.recv_timeout(until.saturating_duration_since(Instant::now())).is_err() {
                // The pipes close when it and what it started are gone, and so the threads end.
                let _ended_already = kill_process_group(Pid::from_child(child), Signal::KILL);
                return Err(Gave::UpWaiting);
            }
        }
        let out = out.join().unwrap_or_default();
        let complaint = complaint.join().unwrap_or_default();
        if out.len() as u64 > MOST_SAID {
            return Err(Gave::TooMuch);
        }
        Ok((out, text(String::from_utf8_lossy(&complaint).trim())))
    })
}

/// Up to the cap and one byte more; the rest is read and forgotten.
fn said(mut from: impl Read, most: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _as_far_as_it_went = (&mut from).take(most + 1).read_to_end(&mut bytes);
    let _nowhere = io::copy(&mut from, &mut io::sink());
    bytes
}
