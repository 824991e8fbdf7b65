//! Who starts a daemon, and what ends it.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use testkit::harness::{alive, kill, wait_until};

use super::rig::{Host, KEY, Place};
use crate::support::SOON;

fn healthz(socket: &std::path::Path) -> String {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

#[test]
fn twenty_at_once_start_one_daemon() {
    let place = Place::new();
    let mut hosts: Vec<Host> = (0..20).map(|_| place.mcp()).collect();
    let mut pids = Vec::new();
    for host in &mut hosts {
        host.initialize();
        pids.push(place.daemon_pid());
    }
    pids.dedup();
    assert_eq!((pids.len(), place.daemons()), (1, pids.clone()), "{}", place.log());
    let starts = place.log().lines().filter(|line| line.contains("listening on")).count();
    assert_eq!(starts, 1, "{}", place.log());
    assert!(!place.log().contains("already runs"), "nobody tried in vain:\n{}", place.log());
}

#[test]
fn it_is_on_its_socket_only_and_says_so() {
    let place = Place::new();
    let mut host = place.mcp();
    host.initialize();
    let daemon = place.daemon();
    assert_eq!(daemon["url"], serde_json::Value::Null);
    assert_eq!(daemon["socket"].as_str(), place.socket().to_str());
    let socket = std::fs::metadata(place.socket()).expect("it is there");
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(place.state().join("daemon.log")).expect("a log").mode() & 0o777, 0o600);
    let answer = healthz(&place.socket());
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok\n"), "{answer}");
}

#[test]
fn it_has_nothing_of_the_host_that_came_first() {
    let place = Place::new();
    let mut host = place.mcp();
    host.initialize();
    let pid = place.daemon_pid();
    let environment = std::fs::read(format!("/proc/{pid}/environ")).expect("its environment");
    let names: Vec<&str> = environment
        .split(|byte| *byte == 0)
        .filter_map(|entry| std::str::from_utf8(entry).ok()?.split('=').next())
        .collect();
    for gone in ["MCP_STATE_DIR", "MCP_OPENCODE_API_KEY", "CODEX_THREAD_ID", "CLAUDECODE"] {
        assert!(!names.contains(&gone), "{gone} in {names:?}");
    }
    for kept in ["HOME", "PATH", "KEPT_FOR_THE_DAEMON"] {
        assert!(names.contains(&kept), "{kept} in {names:?}");
    }
    assert_eq!(
        std::fs::read_link(format!("/proc/{pid}/cwd")).expect("its directory"),
        std::path::Path::new("/")
    );
    for entry in std::fs::read_dir(place.state()).expect("the state directory").flatten() {
        let bytes = std::fs::read(entry.path()).unwrap_or_default();
        let found = bytes.windows(KEY.len()).any(|window| window == KEY.as_bytes());
        assert!(!found, "the key is in {}", entry.path().display());
    }
}

#[test]
fn no_end_of_a_host_ends_it() {
    let place = Place::new();
    let mut killed = place.mcp();
    killed.initialize();
    let pid = place.daemon_pid();
    killed.kill_group();
    assert!(alive(pid), "it is in no group of the host's");
    assert!(healthz(&place.socket()).starts_with("HTTP/1.1 200"));

    let mut second = place.mcp();
    second.initialize();
    assert_eq!(second.end(), Some(0));
    assert!(alive(pid) && place.daemon_pid() == pid, "an end of input is none of its business");
    assert_eq!(place.daemons(), [pid]);
}

#[tokio::test]
async fn one_that_was_killed_comes_back_with_the_next_call() {
    let place = Place::new();
    let mut host = place.mcp();
    host.initialize();
    let first = place.daemon_pid();
    kill(first, Signal::SIGKILL);
    // Its first thread may be gone before its last one lets the socket go.
    let nobody = || std::os::unix::net::UnixStream::connect(place.socket()).is_err();
    assert!(wait_until(SOON, || !alive(first) && nobody()).await);
    assert!(place.socket().exists(), "it was killed: nobody took the socket away");
    host.initialize();
    let second = place.daemon_pid();
    assert!(second != first && alive(second), "{}", place.log());
    assert!(healthz(&place.socket()).starts_with("HTTP/1.1 200"));

    kill(second, Signal::SIGTERM);
    assert!(wait_until(SOON * 3, || !alive(second)).await, "{}", place.log());
    assert!(!place.socket().exists(), "it ended in order");
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(place.daemons(), [0_u32; 0], "who is stopped stays stopped until somebody calls");
    host.initialize();
    assert!(alive(place.daemon_pid()));
}

#[test]
fn one_that_cannot_start_says_why_to_the_host() {
    let place = Place::new();
    let config = place.path().join("broken.toml");
    std::fs::write(&config, "").expect("a file");
    let mut command = place.command(&["mcp"]);
    // The daemon's own, and no mistake of ours.
    command.env("CALLSIGN_CONFIG", &config).env("CALLSIGN_LISTEN", "192.0.2.1:1");
    let begun = Instant::now();
    let answer = Host::start(command).initialize();
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("could not listen on 192.0.2.1:1"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(10), "nobody waits for what has ended");
    assert_eq!(place.daemons(), [0_u32; 0]);
}

#[test]
fn a_long_path_is_no_obstacle() {
    let place = Place::new();
    let long = place.state().join("a".repeat(100)).join("b".repeat(100));
    let mut command = place.command(&["mcp"]);
    command.env("MCP_STATE_DIR", &long);
    Host::start(command).initialize();
    let text = std::fs::read_to_string(long.join("daemon.json")).expect("a daemon runs");
    let daemon: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let pid = u32::try_from(daemon["pid"].as_u64().expect("a pid")).expect("a pid");
    assert!(alive(pid));
    kill(pid, Signal::SIGTERM);
    let deadline = Instant::now() + SOON * 2;
    while alive(pid) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!alive(pid) && !long.join("daemon.sock").exists());
}

/// Only root can become somebody else.
#[test]
fn another_user_is_not_let_in() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let place = Place::new();
    place.mcp().initialize();
    // Open the way: what keeps them out is then the daemon alone.
    for directory in [place.path(), &place.state()] {
        std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o711)).expect("ours");
    }
    std::fs::set_permissions(place.socket(), std::fs::Permissions::from_mode(0o666)).expect("ours");
    let knock = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
                 s.sendall(b'GET /healthz HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n')\nprint(s.recv(100))\n";
    let ask = |user: Option<u32>| {
        use std::os::unix::process::CommandExt as _;
        let mut command = Command::new("python3");
        command.args(["-c", knock]).arg(place.socket()).stdin(Stdio::null());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let output = command.output().expect("python3 runs");
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    assert!(ask(None).contains("200 OK"), "{}", ask(None));
    let theirs = ask(Some(65534));
    assert!(!theirs.contains("200 OK"), "{theirs}");
    assert!(theirs.contains("b''") || theirs.contains("Broken pipe") || theirs.contains("reset"), "{theirs}");
    assert!(place.log().contains("it is another user's"), "{}", place.log());
}
