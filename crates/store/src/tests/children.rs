//! Other processes: this program again, with a role.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const ROLE: &str = "STORE_ROLE";

/// What a process was started for. The tests that are roles do nothing where there is none.
pub(super) fn role(role: &str) -> bool {
    std::env::var_os(ROLE).is_some_and(|given| given == role)
}

pub(super) fn given(name: &str) -> String {
    std::env::var_os(name).and_then(|value| value.into_string().ok()).unwrap_or_default()
}

/// This program as `role`, which is a test of this name.
pub(super) fn again(program: &[&str], test: &str, role: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match program {
        [] => Command::new(this),
        [first, rest @ ..] => {
            let mut command = Command::new(first);
            command.args(rest).arg(this);
            command
        }
    };
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

/// In a process with a role: one line for whoever started it.
pub(super) fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // The test harness may have begun a line.
    out.write_all(format!("\n{line}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Lines that a process says. The last may be half of one, and is left out then.
pub(super) fn lines(child: &mut Child) -> impl Iterator<Item = String> + use<> {
    let mut out = BufReader::new(child.stdout.take().unwrap());
    std::iter::from_fn(move || {
        let mut line = String::new();
        (out.read_line(&mut line).is_ok_and(|count| count > 0) && line.ends_with('\n'))
            .then(|| line.trim().to_owned())
    })
}

/// Runs a role where it can mount what it likes, and shows what it said. A machine that cannot fails the test.
#[track_caller]
pub(super) fn run_with_mounts(test: &str, name: &str, state: &Path) -> String {
    let ways: [&[&str]; 2] = [&["unshare", "-Urm", "--"], &["unshare", "-m", "--"]];
    let mut reasons = Vec::new();
    for way in ways {
        let probe = Command::new(way[0])
            .args(&way[1..])
            .args(["mount", "-t", "tmpfs", "tmpfs"])
            .arg(state)
            .stdin(Stdio::null())
            .output();
        match probe {
            Ok(output) if output.status.success() => {
                let output =
                    again(way, test, name).env("STORE_STATE", state).stdin(Stdio::null()).output().unwrap();
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                let errors = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{text}\n{errors}");
                return text;
            }
            Ok(output) => {
                reasons.push(format!("{}: {}", way.join(" "), String::from_utf8_lossy(&output.stderr)));
            }
            Err(error) => reasons.push(format!("{}: {error}", way.join(" "))),
        }
    }
    panic!("this test mounts a small file system of its own and cannot: {reasons:?}");
}

/// In a process that may: a small file system.
#[track_caller]
pub(super) fn mount(arguments: &[&str]) {
    let output = Command::new("mount").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}
