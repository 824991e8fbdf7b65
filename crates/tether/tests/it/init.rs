use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Bridge, Daemon, SOON, comes, directory, holds, marked, port};

#[track_caller]
fn check(command: &[&str], expected: i32, complaint: &str) {
    let (code, out, err) = Bridge::start(&["--agent", "1"], command).ended(SOON);
    assert_eq!((code, out.as_str()), (expected, ""), "{command:?}: {err}");
    assert!(err.contains(complaint) && err.is_empty() == complaint.is_empty(), "{command:?}: {err:?}");
    assert!(err.lines().count() <= 1, "{err:?}");
}

#[test]
fn it_ends_as_its_command_does() {
    check(&["true"], 0, "");
    check(&["sh", "-c", "exit 7"], 7, "");
    check(&["sh", "-c", "exit 255"], 255, "");
    check(&["sh", "-c", "kill -KILL $$"], 137, "");
    check(&["sh", "-c", "kill -TERM $$"], 143, "");
}

#[test]
fn a_command_that_cannot_be_started_is_named() {
    check(&["/there/is/nothing"], 127, "could not start /there/is/nothing: No such file");
    check(&["there-is-no-such-program"], 127, "could not start there-is-no-such-program");
    check(&["/etc/passwd"], 126, "could not start /etc/passwd: Permission denied");
    check(&["/etc"], 126, "could not start /etc");
}

#[test]
fn a_wrong_line_starts_nothing() {
    let (code, out, err) = Bridge::start(&["--agent", "x"], &["echo", "started"]).ended(SOON);
    assert_eq!((code, out.as_str()), (64, ""));
    assert!(err.contains("x is no port") && err.contains("usage: callsign-bridge"), "{err}");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_starts() {
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let number = taken.local_addr().unwrap().port();
    let args = ["--agent", "1", "--carry", &format!("{number}=model")];
    let (code, out, err) = Bridge::start(&args, &["echo", "started"]).ended(SOON);
    assert_eq!((code, out.as_str()), (98, ""));
    assert!(err.contains(&format!("127.0.0.1:{number} for model")), "{err}");
}

#[test]
fn a_command_has_what_the_bridge_was_given() {
    let mut bridge =
        Bridge::start_with(&["--agent", "1"], &["sh", "-c", "echo $MARK; cat; echo end >&2"], |command| {
            command.env("MARK", "seen");
        });
    bridge.child().stdin.as_mut().unwrap().write_all(b"said\n").unwrap();
    let (code, out, err) = bridge.ended(SOON);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "seen\nsaid\n", "end\n"));
}

#[test]
fn nothing_of_the_bridge_is_open_in_its_command() {
    // What this test itself was left with is there too.
    let before = std::process::Command::new("ls").arg("/proc/self/fd").output().unwrap();
    let carried = format!("{}=model", port());
    let (_, out, _) =
        Bridge::start(&["--agent", "1", "--carry", &carried], &["ls", "/proc/self/fd"]).ended(SOON);
    assert_eq!(out.as_bytes(), before.stdout);
}

#[test]
fn a_command_keeps_its_limits() {
    let script = "ulimit -Sn; sleep 0.2; grep files /proc/$PPID/limits";
    let mut bridge = Bridge::start_with(&["--agent", "1"], &["sh", "-c", script], |command| {
        let args: Vec<_> = command.get_args().map(std::borrow::ToOwned::to_owned).collect();
        let program = command.get_program().to_owned();
        *command = std::process::Command::new("sh");
        command.args(["-c", "ulimit -Sn 512; exec \"$0\" \"$@\""]).arg(program).args(args);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
    });
    let (_, out, _) = bridge.ended(SOON);
    let words: Vec<_> = out.split_whitespace().collect();
    assert_eq!(words[..5], ["512", "Max", "open", "files", "4096"], "{out}");
}

#[test]
fn signals_are_passed_on() {
    let script =
        "for s in TERM INT HUP QUIT USR1 USR2; do trap \"echo $s\" $s; done; trap 'exit 3' WINCH; echo ready
                  while :; do sleep 0.02; done";
    let mut bridge = Bridge::start(&["--agent", "1"], &["sh", "-c", script]);
    assert_eq!(bridge.line(), "ready");
    for (signal, name) in [
        (Signal::TERM, "TERM"),
        (Signal::INT, "INT"),
        (Signal::HUP, "HUP"),
        (Signal::QUIT, "QUIT"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        bridge.send(signal);
        assert_eq!(bridge.line(), name);
    }
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", bridge.pid())).unwrap();
    crate::harness::send(children.trim().parse().unwrap(), Signal::WINCH);
    assert_eq!(bridge.code(SOON), 3);
}

/// What a command says that leaves a thousand processes to whoever reaps: how many zombies there are in the end.
pub(crate) const THOUSAND: &str = r#"
    i=0; while [ $i -lt 1000 ]; do (true & ) ; i=$((i+1)); done
    tries=0
    while [ $tries -lt 100 ]; do
        zombies=0
        for status in /proc/[0-9]*/status; do
            while read -r key value rest; do
                case $key in State:) state=$value ;; PPid:) parent=$value; break ;; esac
            done 2>/dev/null < $status || continue
            [ "$state" = Z ] && [ "$parent" = "$PPID" ] && zombies=$((zombies+1))
        done
        [ $zombies = 0 ] && break
        tries=$((tries+1)); sleep 0.05
    done
    echo zombies $zombies"#;

#[test]
fn orphans_are_reaped() {
    let (code, out, err) =
        Bridge::start(&["--agent", "1"], &["sh", "-c", THOUSAND]).ended(Duration::from_mins(1));
    assert_eq!((code, out.as_str()), (0, "zombies 0\n"), "{err}");
}

#[test]
fn what_the_command_leaves_behind_ends_with_it() {
    let mark = format!("6{}.25", std::process::id());
    let script =
        format!("setsid sleep {mark} & (setsid sh -c 'sleep {mark} & sleep {mark}' &) ; sleep 0.2; exit 4");
    let mut bridge = Bridge::start_with(&["--agent", "1"], &["sh", "-c", &script], |command| {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    });
    holds(SOON, || (marked(&format!("sleep {mark}")).len() >= 4).then_some(()));
    assert_eq!(bridge.code(SOON), 4);
    assert_eq!(marked(&format!("sleep {mark}")), [0; 0]);
}

#[test]
fn a_box_that_nobody_owns_ends() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", "1", "--orphan", "0.5"];
    let began = Instant::now();
    let mut bridge =
        Bridge::start(&args, &["sh", "-c", "trap 'echo asked; exit 0' TERM; while :; do sleep 0.02; done"]);
    let (code, out, _) = bridge.ended(SOON);
    assert_eq!((code, out.as_str()), (75, "asked\n"));
    assert!(began.elapsed() > Duration::from_millis(500));
}

#[test]
fn a_command_that_does_not_listen_is_killed_then() {
    let args = ["--sockets", "/there/is/nothing", "--agent", "1", "--orphan", "0.1"];
    let began = Instant::now();
    let script = "trap '' TERM; while :; do sleep 0.05; done";
    assert_eq!(Bridge::start(&args, &["sh", "-c", script]).code(SOON), 75);
    assert!(began.elapsed() > Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_daemon_that_comes_back_in_time_keeps_its_box() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let args = ["--sockets", sockets.to_str().unwrap(), "--agent", "1", "--orphan", "4"];
    let mut bridge = Bridge::start(&args, &["sleep", "600"]);
    for _ in 0..3 {
        let daemon = Daemon::start(&sockets);
        comes(SOON, || (daemon.hub.idle_count() == 2).then_some(())).await;
        // As long as there is one, no time passes.
        tokio::time::sleep(Duration::from_millis(700)).await;
        drop(daemon);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert!(bridge.child().try_wait().unwrap().is_none(), "it has ended");
    }
    let gone = Instant::now();
    assert_eq!(bridge.code(SOON), 75);
    assert!(gone.elapsed() > Duration::from_secs(1), "{:?}", gone.elapsed());
}
