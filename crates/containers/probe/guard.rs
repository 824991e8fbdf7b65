//! A private engine: everything it has lies in one directory, and whoever started it can be killed at any moment.
//!
//! It is told one word a line: `kill` ends the engine as a crash would, `start` starts it again, `freeze` and `thaw` let it
//! hang and go on. When its input ends,
//! because it was closed or because its owner died, everything is ended and the directory goes.

use std::fs::{self, File};
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, setsid, wait};

pub(crate) fn main(kind: &str, directory: &Path) -> ExitCode {
    // Whoever ends the tests' process group does not end us.
    let _already = setsid();
    // What an engine leaves behind becomes ours, and is no zombie that the next engine takes for a living one.
    let _older = set_child_subreaper(Some(getpid()));
    let mut engine = begun(kind, directory);
    for line in io::stdin().lock().lines().map_while(Result::ok) {
        match line.as_str() {
            "kill" => {
                end(&mut engine, Signal::KILL);
                // Its own helper as well: the next one could not open what that has open. Shims stay.
                let text = directory.display().to_string();
                processes(|pid| named(pid, &["containerd"], &text)).into_iter().for_each(kill);
                sleep(Duration::from_millis(100));
                reap();
            }
            "start" => engine = begun(kind, directory),
            "freeze" => tell(engine.as_ref(), Signal::STOP),
            "thaw" => tell(engine.as_ref(), Signal::CONT),
            _ => {}
        }
    }
    clean(directory, &mut engine);
    ExitCode::SUCCESS
}

/// One that cannot even be started says so where it would say everything else.
fn begun(kind: &str, directory: &Path) -> Option<Child> {
    let started = start(kind, directory);
    started
        .inspect_err(|error| {
            let _lost = fs::write(directory.join("engine.log"), format!("{kind} cannot be run: {error}"));
        })
        .ok()
}

fn start(kind: &str, directory: &Path) -> io::Result<Child> {
    let at = |name: &str| directory.join(name).display().to_string();
    let socket = format!("unix://{}", at("engine.sock"));
    let log = File::options().create(true).append(true).open(directory.join("engine.log"))?;
    let mut command = if kind == "podman" {
        let mut command = Command::new("podman");
        // crun refuses machines with both layouts of control groups; runc takes them.
        command.args(["--root", &at("data"), "--runroot", &at("run"), "--tmpdir", &at("tmp")]);
        command.args([
            "--cgroup-manager",
            "cgroupfs",
            "--runtime",
            "/usr/sbin/runc",
            "--events-backend",
            "file",
        ]);
        command.args(["system", "service", "--time=0", &socket]);
        command
    } else {
        let mut command = Command::new("dockerd");
        command.args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")]);
        // The same under another name: to see which one is used.
        command.args(["--add-runtime", "second=/usr/sbin/runc"]);
        command.args(["-H", &socket, "--bridge=none", "--iptables=false", "--ip6tables=false"]);
        if kind == "docker-live" {
            command.arg("--live-restore");
        }
        command.args(["--cgroup-parent", &format!("/{}", parent(directory))]);
        command
    };
    // A pid file of one that was killed keeps the next from starting.
    let _none = fs::remove_file(directory.join("pid"));
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env_clear().env("PATH", path).env("HOME", directory);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

/// The name of the control groups of its boxes.
fn parent(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn tell(engine: Option<&Child>, signal: Signal) {
    let pid = engine.and_then(|child| Pid::from_raw(i32::try_from(child.id()).unwrap_or(0)));
    if let Some(pid) = pid {
        let _gone = kill_process(pid, signal);
    }
}

fn end(engine: &mut Option<Child>, signal: Signal) {
    tell(engine.as_ref(), Signal::CONT);
    tell(engine.as_ref(), signal);
    let Some(mut child) = engine.take() else { return };
    for _ in 0..200 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
    let _gone = child.kill();
    let _reaped = child.wait();
}

fn clean(directory: &Path, engine: &mut Option<Child>) {
    let text = directory.display().to_string();
    // Boxes first: an engine waits for them, and shims start nothing again.
    for _ in 0..50 {
        let boxes = processes(|pid| inside(pid, &text));
        if boxes.is_empty() {
            break;
        }
        boxes.into_iter().for_each(kill);
        sleep(Duration::from_millis(20));
    }
    end(engine, Signal::TERM);
    for _ in 0..100 {
        let left = processes(|pid| inside(pid, &text) || helps(pid, &text));
        if left.is_empty() {
            break;
        }
        left.into_iter().for_each(kill);
        sleep(Duration::from_millis(20));
        reap();
    }
    for mount in mounts(&text) {
        let _busy = Command::new("umount").args(["-l", &mount]).stderr(Stdio::null()).status();
    }
    for group in groups(&parent(directory), directory) {
        let _busy = fs::remove_dir(group);
    }
    let _busy = fs::remove_dir_all(directory);
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _gone = kill_process(pid, Signal::KILL);
    }
}

fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

fn processes(which: impl Fn(i32) -> bool) -> Vec<i32> {
    let us = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(|pid| *pid != us && which(*pid)).collect()
}

/// In a container whose root lies in this directory.
fn inside(pid: i32, directory: &str) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let text = pid.to_string();
    namespace(&text).is_some_and(|other| Some(other) != namespace("self"))
        && fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .is_ok_and(|mounts| mounts.lines().any(|line| line.contains(" / / ") && line.contains(directory)))
}

/// A shim or a monitor, whose arguments name this directory.
fn helps(pid: i32, directory: &str) -> bool {
    named(pid, &["containerd", "containerd-shim-runc-v2", "conmon", "runc", "podman", "dockerd"], directory)
}

fn named(pid: i32, names: &[&str], directory: &str) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line);
    let first = line.split('\0').next().unwrap_or_default();
    names.contains(&first.rsplit('/').next().unwrap_or_default()) && line.contains(directory)
}

/// Innermost first.
fn mounts(directory: &str) -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<String> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|mount| mount.starts_with(directory))
        .map(str::to_owned)
        .collect();
    found.sort_by_key(|mount| std::cmp::Reverse(mount.len()));
    found
}

/// Those of Docker have our name; those of Podman the ids of its containers.
fn groups(parent: &str, directory: &Path) -> Vec<PathBuf> {
    let ids: Vec<String> = fs::read_dir(directory.join("data/overlay-containers"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.len() == 64)
        .collect();
    let mut found = Vec::new();
    let mut waiting = vec![(PathBuf::from("/sys/fs/cgroup"), 0)];
    while let Some((at, depth)) = waiting.pop() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            let path = entry.path();
            if depth < 6 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let text = path.to_string_lossy();
                if text.contains(parent) || ids.iter().any(|id| text.contains(id.as_str())) {
                    found.push(path.clone());
                }
                waiting.push((path, depth + 1));
            }
        }
    }
    found.sort_by_key(|path| std::cmp::Reverse(path.components().count()));
    found
}
