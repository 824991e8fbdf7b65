//! A state directory with a ledger in it, and the real binary to look at it.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use ledger::{Begin, End, Entry, Ledger, Options, Outcome, Place, Retention};
use nix::sys::signal::Signal;
use serde_json::Value;
use testkit::harness::{Files, Setup, kill};

use crate::support::{CALLSIGN, SOON, setup};

/// 2026-11-16T12:00:00Z.
pub(super) const NOON: u64 = 1_794_830_400_000;

pub(super) struct Desk {
    pub(super) files: Files,
    setup: Setup,
}

pub(super) struct Printed {
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Printed {
    /// What was printed, a value a line.
    #[track_caller]
    pub(super) fn json(&self) -> Vec<Value> {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        self.stdout.lines().map(parse).collect()
    }
}

impl Desk {
    /// A state directory without a ledger.
    pub(super) fn new() -> Self {
        let setup = setup();
        let (_, files) = setup.wrap_command(&[], &["true"]);
        std::fs::create_dir(files.state()).expect("a state directory");
        Self { files, setup }
    }

    /// The same for a terminal of this width.
    pub(super) fn of_width(mut self, columns: &str) -> Self {
        self.setup = self.setup.env("COLUMNS", columns);
        self
    }

    pub(super) fn place(&self) -> Place {
        Place::of(&self.files.state())
    }

    pub(super) fn state(&self, name: &str) -> PathBuf {
        self.files.state().join(name)
    }

    pub(super) fn writer(&self) -> Writer {
        let options =
            Options { place: self.place(), strict: false, retention: Retention::default(), kind: "wrap" };
        let seal = callsign::notary::of(&self.files.state());
        Writer(Ledger::open(options, seal).expect("a ledger"))
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Printed {
        let (code, stdout, stderr) = self.setup.run(&self.files, arguments);
        Printed { code, stdout, stderr }
    }

    /// The ids of calls that `callsign calls` shows.
    #[track_caller]
    pub(super) fn calls(&self, arguments: &[&str]) -> Vec<String> {
        let rows = self.run(&[&["calls", "--json"], arguments].concat()).json();
        rows.iter().map(|row| row["call"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Changes the file behind the ledger's back.
    pub(super) fn tamper(&self, sql: &str) {
        let file = ledger::Connection::open(self.place().file).expect("the file");
        file.execute_batch(sql).expect("a change");
    }

    /// Starts a command that goes on.
    pub(super) fn start(&self, arguments: &[&str]) -> Running {
        let mut command = Command::new(CALLSIGN);
        command.args(arguments).arg("--state-dir").arg(self.files.state());
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("callsign runs");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        Running { child, stdout: Some(stdout), lines: None }
    }
}

pub(super) struct Writer(pub(super) Ledger);

impl Writer {
    /// A call that goes on.
    pub(super) async fn begin(&self, begin: Begin) -> Entry {
        self.0.begin(Box::new(begin)).await.expect("a row")
    }

    /// A call from its beginning to its end.
    pub(super) async fn call(&self, begin: Begin, outcome: Outcome) {
        let at = begin.at;
        let entry = self.begin(begin).await;
        self.0.end(entry, End { at: at + 2, outcome, ..end() });
    }

    /// Everything is in the file when this returns.
    pub(super) fn close(self) {
        assert!(self.0.close(SOON), "{:?}", self.0.failure());
    }

    /// Waits until everything is in the file.
    pub(super) async fn settled(&self) {
        let deadline = Instant::now() + SOON;
        while self.0.depth().waiting > 0 {
            assert!(Instant::now() < deadline, "{:?}", self.0.failure());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(super) fn end() -> End {
    End { at: NOON, outcome: Outcome::Ok, reason: None, target: None, micros: 1_500, size: 9, result: None }
}

/// A call of a session that has no subagents.
pub(super) fn begin(call: &str, session: &str, at: u64) -> Begin {
    Begin {
        at: NOON + at,
        host: Some("opencode".into()),
        session: Some(session.into()),
        thread: Some(session.into()),
        call: call.into(),
        server: "tracker".into(),
        tool: Some("search".into()),
        method: "tools/call".into(),
        trust: "host",
        source: Some("seal"),
        size: 12,
        ..Begin::default()
    }
}

/// The same of a subagent.
pub(super) fn of_subagent(call: &str, (session, thread, parent): (&str, &str, &str), at: u64) -> Begin {
    Begin { thread: Some(thread.into()), parent: Some(parent.into()), ..begin(call, session, at) }
}

/// A command that goes on. Drop kills it.
pub(super) struct Running {
    pub(super) child: Child,
    stdout: Option<BufReader<ChildStdout>>,
    lines: Option<Receiver<String>>,
}

impl Running {
    /// The next line of stdout.
    #[track_caller]
    pub(super) fn line(&mut self) -> String {
        match self.line_within(SOON) {
            Some(line) => line,
            None => panic!("no line came"),
        }
    }

    /// The same, if one comes.
    pub(super) fn line_within(&mut self, time: Duration) -> Option<String> {
        if let Some(stdout) = self.stdout.take() {
            let (send, receive) = sync_channel(1024);
            self.lines = Some(receive);
            // It ends with the child.
            std::thread::spawn(move || {
                stdout.lines().map_while(Result::ok).try_for_each(|line| send.send(line).ok())
            });
        }
        self.lines.as_ref()?.recv_timeout(time).ok()
    }

    /// The next call, as JSON.
    #[track_caller]
    pub(super) fn row(&mut self) -> Value {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Nobody reads any more.
    pub(super) fn close_stdout(&mut self) {
        assert!(self.lines.is_none(), "it is being read");
        self.stdout = None;
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill(self.child.id(), signal);
    }

    /// How it ended.
    #[track_caller]
    pub(super) fn wait(&mut self) -> Option<i32> {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            self.signal(Signal::SIGKILL);
            drop(self.child.wait());
        }
    }
}
