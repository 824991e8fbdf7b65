//! A child and its three pipes.

use std::process::Stdio as Pipe;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::JoinSet;

use super::{Shared, lock};

/// How much of stderr is kept.
const STDERR: usize = 1024 * 1024;

pub(super) struct Stdio {
    pub(super) pid: u32,
    child: tokio::sync::Mutex<Child>,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
}

impl Stdio {
    pub(super) fn spawn(mut command: Command, shared: &Arc<Shared>, tasks: &mut JoinSet<()>) -> Self {
        let mut child = command
            .stdin(Pipe::piped())
            .stdout(Pipe::piped())
            .stderr(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("could not start {command:?}: {error}"));
        let input = Arc::new(tokio::sync::Mutex::new(child.stdin.take()));
        let stderr = Arc::new(Mutex::new(Vec::new()));
        let (output, errors) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        tasks.spawn(read(BufReader::new(output), shared.clone(), input.clone()));
        tasks.spawn(keep(errors, stderr.clone()));
        let pid = child.id().expect("just started");
        Self { pid, child: tokio::sync::Mutex::new(child), input, stderr }
    }

    pub(super) async fn send(&self, message: &Value) -> bool {
        let mut line = message.to_string().into_bytes();
        line.push(b'\n');
        self.send_bytes(&line).await
    }

    pub(super) async fn send_bytes(&self, bytes: &[u8]) -> bool {
        write(&self.input, bytes).await
    }

    pub(super) fn stderr(&self) -> String {
        String::from_utf8_lossy(&lock(&self.stderr)).into_owned()
    }

    /// Ends the input and waits for the exit code. None: a signal ended it, or it did not end at all.
    pub(super) async fn end(&self, deadline: Duration) -> Option<i32> {
        drop(self.input.lock().await.take());
        let mut child = self.child.lock().await;
        let status = tokio::time::timeout(deadline, child.wait()).await.ok()?.ok()?;
        status.code()
    }
}

async fn write(input: &tokio::sync::Mutex<Option<ChildStdin>>, bytes: &[u8]) -> bool {
    let mut input = input.lock().await;
    let Some(input) = input.as_mut() else { return false };
    input.write_all(bytes).await.is_ok() && input.flush().await.is_ok()
}

async fn read(
    mut output: BufReader<tokio::process::ChildStdout>,
    shared: Arc<Shared>,
    input: Arc<tokio::sync::Mutex<Option<ChildStdin>>>,
) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match output.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        match serde_json::from_slice(&line) {
            Ok(message) => {
                if let Some(answer) = shared.take(message) {
                    let mut line = answer.to_string().into_bytes();
                    line.push(b'\n');
                    write(&input, &line).await;
                }
            }
            // Kept as a stray: a proxy must never write what is no message.
            Err(_) => lock(&shared.strays).push(Value::from(String::from_utf8_lossy(&line).into_owned())),
        }
    }
    shared.fail_all();
}

async fn keep(mut errors: tokio::process::ChildStderr, kept: Arc<Mutex<Vec<u8>>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = errors.read(&mut buffer).await {
        let mut kept = lock(&kept);
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * STDERR {
            let start = kept.len() - STDERR;
            drop(kept.drain(..start));
        }
    }
}
