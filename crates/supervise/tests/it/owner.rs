//! The probe as an owner: see `probe/owner.rs` for its commands.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::process::{children_of, eventually, is_alive, marked, signal};

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_supervise-probe");

/// All that the owner made must have ended this long after its death.
pub(crate) const LIMIT: Duration = Duration::from_secs(5);

pub(crate) struct Owner {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    pub(crate) spawner: i32,
}

impl Owner {
    /// In a process group of its own.
    pub(crate) fn start() -> Self {
        Self::start_as(Command::new(PROBE).arg("own"))
    }

    pub(crate) fn start_as(command: &mut Command) -> Self {
        let mut process = command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the probe is built");
        let stdin = process.stdin.take().unwrap();
        let stdout = BufReader::new(process.stdout.take().unwrap());
        let mut owner = Self { process, stdin, stdout, spawner: 0 };
        owner.ask("descriptors");
        owner.spawner = children_of(owner.pid())[0];
        owner
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.process.id()).unwrap()
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        writeln!(self.stdin, "{command}").unwrap();
        let mut answer = String::new();
        self.stdout.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "the owner died over {command:?}");
        answer.trim_end().to_owned()
    }

    /// Starts `family MARK FLAGS` as child number `index`, and returns when its orphaned leaf runs.
    pub(crate) fn start_family(&mut self, index: usize, mark: &str, flags: &str) {
        let answer = self.ask(&format!("spawn\t\t\t{PROBE}\tfamily\t{mark}\t{flags}"));
        assert!(answer.starts_with("started "), "{answer}");
        assert_eq!(self.ask(&format!("line\t{index}")), "ready");
    }

    pub(crate) fn supervisors(&self) -> Vec<i32> {
        children_of(self.spawner)
    }

    pub(crate) fn kill(&mut self) {
        signal(self.pid(), Signal::SIGKILL);
    }

    /// Returns when the last process that holds the owner's stdout has closed it.
    pub(crate) fn wait_for_stdout_to_close(&mut self) -> Duration {
        let begin = Instant::now();
        self.stdout.read_to_end(&mut Vec::new()).unwrap();
        begin.elapsed()
    }

    /// Asserts that all is gone in time: the marked ones, the supervisors and the spawner. The owner is dead.
    #[track_caller]
    pub(crate) fn assert_no_survivors(&self, mark: &str, supervisors: &[i32]) -> Duration {
        let begin = Instant::now();
        eventually("no marked process is left", LIMIT, || marked(mark).is_empty());
        let took = begin.elapsed();
        let ours = || supervisors.iter().chain([&self.spawner]);
        eventually("no supervisor is left", LIMIT.saturating_sub(took), || !ours().any(|&pid| is_alive(pid)));
        took
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
