//! A host's process: what it says, and its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::harness::{alive, descendants, kill};

/// How long a host may take to end by itself.
const END: Duration = Duration::from_secs(5);

/// A process that is ended on drop, with all that it started.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pub(super) stderr: PathBuf,
}

impl Process {
    pub(super) fn spawn(mut command: Command, stderr: PathBuf) -> Self {
        let file = std::fs::File::create(&stderr).expect("a file for stderr");
        let child = command.stderr(file).kill_on_drop(true).spawn();
        Self { child: child.unwrap_or_else(|error| panic!("could not start {command:?}: {error}")), stderr }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id().unwrap_or_default()
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of what it complained about, for messages.
    pub(super) fn complaints(&self) -> String {
        tail(&self.stderr)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_running() {
            return;
        }
        // Before the end: orphans have another parent.
        let pid = self.pid();
        let below = descendants(pid);
        kill(pid, Signal::SIGTERM);
        let end = Instant::now() + END;
        while Instant::now() < end && (self.is_running() || below.iter().any(|pid| alive(*pid))) {
            std::thread::sleep(Duration::from_millis(10));
        }
        for pid in below.into_iter().chain([pid]).filter(|pid| alive(*pid)) {
            kill(pid, Signal::SIGKILL);
        }
        while self.is_running() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A process that is spoken to in lines of JSON.
#[derive(Debug)]
pub(super) struct Talk {
    input: tokio::sync::Mutex<Option<ChildStdin>>,
    heard: Arc<Heard>,
    _reader: JoinSet<()>,
    process: Process,
}

/// What the process said so far.
#[derive(Debug, Default)]
struct Heard {
    messages: Mutex<Vec<Value>>,
    more: Notify,
}

impl Talk {
    pub(super) fn start(mut command: Command, stderr: PathBuf) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Process::spawn(command, stderr);
        let input = tokio::sync::Mutex::new(process.child.stdin.take());
        let output = process.child.stdout.take().expect("piped");
        let heard = Arc::new(Heard::default());
        let mut reader = JoinSet::new();
        reader.spawn(read(output, heard.clone()));
        Self { input, heard, _reader: reader, process }
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) async fn say(&self, message: &Value) {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        let mut input = self.input.lock().await;
        let pipe = input.as_mut().expect("the input is open");
        if let Err(error) = pipe.write_all(&line).await {
            panic!("the host does not listen any more: {error}\n{}", self.process.complaints());
        }
    }

    /// How many messages there are so far: a mark for [`Self::hear`].
    pub(super) fn heard(&self) -> usize {
        self.lock().len()
    }

    /// Waits for the first message from `start` on that `wanted` takes.
    pub(super) async fn hear<T>(
        &self,
        what: &str,
        start: usize,
        deadline: Duration,
        wanted: impl Fn(&Value) -> Option<T>,
    ) -> T {
        let end = tokio::time::Instant::now() + deadline;
        let mut next = start;
        loop {
            let more = self.heard.more.notified();
            {
                let messages = self.lock();
                let fresh = messages.get(next..).unwrap_or_default();
                if let Some(found) = fresh.iter().find_map(&wanted) {
                    return found;
                }
                next = next.max(messages.len());
            }
            if tokio::time::timeout_at(end, more).await.is_err() {
                self.give_up(what, start);
            }
        }
    }

    fn give_up(&self, what: &str, start: usize) -> ! {
        let messages = self.lock();
        let fresh = messages.get(start..).unwrap_or_default();
        let last: Vec<String> =
            fresh.iter().rev().take(12).map(|message| cut(&message.to_string(), 400)).collect();
        let complaints = self.process.complaints();
        panic!(
            "waited in vain for {what}; the last messages, newest first:\n{}\n{complaints}",
            last.join("\n")
        );
    }

    /// Ends the input; the process should end by itself then.
    pub(super) async fn close(&self) {
        drop(self.input.lock().await.take());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Value>> {
        self.heard.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read(output: ChildStdout, heard: Arc<Heard>) {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let message = serde_json::from_str(&line).unwrap_or(Value::String(line));
        heard.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
        heard.more.notify_waiters();
    }
}

/// The last lines of a file.
pub(super) fn tail(path: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.len().saturating_sub(30);
    format!("{}:\n{}", path.display(), lines[last..].join("\n"))
}

fn cut(text: &str, length: usize) -> String {
    text.chars().take(length).collect()
}
