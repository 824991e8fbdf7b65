//! What is not started, what does not answer, and what is said about it.

use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};
use std::{fs, thread};

use model::ports::sandbox::{Bind, User};
use serde_json::{Value, json};

use crate::harness::{IMAGE, Kind, Scene, World, play};

const SCENES: [Scene; 2] = [
    a_missing_image_is_refused_with_the_reason_or_the_command,
    a_command_that_is_not_there_is_named_and_leaves_nothing,
];

#[test]
fn refusals_say_why_on_docker() {
    play(Kind::Docker, &SCENES);
}

#[test]
fn refusals_say_why_on_podman() {
    play(Kind::Podman, &SCENES);
}

fn a_missing_image_is_refused_with_the_reason_or_the_command(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    spec.image = Some("opencode-as-mcp-runtime:latest".to_owned());
    let error = daemon.refused(&spec);
    assert!(
        error.contains("opencode-as-mcp-runtime:latest is not there")
            && error.contains("callsign image build"),
        "{kind:?}: {error}"
    );
    assert_eq!(daemon.ask(&json!("Told")), json!([]), "{kind:?}: our own image was sought elsewhere");
    // A registry that nobody runs: the reason is the engine's own.
    spec.image = Some("127.0.0.1:1/acme/tools:7".to_owned());
    let error = daemon.refused(&spec);
    assert!(
        error.contains("cannot be fetched") && error.contains("127.0.0.1:1") && error.contains("refused"),
        "{kind:?}: {error}"
    );
    let missing = daemon.ask(&json!({ "MissingImage": "acme/tools" }));
    assert!(missing.as_str().unwrap().contains("docker pull acme/tools"), "{missing}");
    assert_eq!(daemon.ask(&json!({ "MissingImage": IMAGE })), Value::Null);
    daemon.ask(&json!({ "Forget": "one" }));
    world.clear(daemon);
}

fn a_command_that_is_not_there_is_named_and_leaves_nothing(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    spec.command = "/opt/opencode".into();
    let error = daemon.refused(&spec);
    assert!(error.contains("/opt/opencode") && error.contains("no such file"), "{kind:?}: {error}");
    spec.command = "/bin/sh".into();
    spec.args = vec!["-c".to_owned(), "echo not today; exit 9".to_owned()];
    // It is as fast as we are: either nobody saw it run, or it is known how it ended.
    let answer = daemon.ask(&json!({ "Start": spec }));
    if let Some(error) = answer["error"].as_str() {
        assert!(error.contains("exit code 9: not today"), "{kind:?}: {error}");
    }
    assert!(daemon.ended("one").message.unwrap().contains("not today"), "{kind:?}");
    world.clear(daemon);
}

#[test]
fn what_would_undo_a_wall_is_refused() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    for target in ["/", "/proc", "/proc/sys", "/sys/fs", "/workspace", "relative", "/opt/../etc"] {
        let mut spec = world.spec("one", "");
        spec.binds.push(Bind { source: "/usr".into(), target: target.into() });
        assert!(daemon.refused(&spec).contains("nothing can be bound"), "{target}");
    }
    let mut spec = world.spec("one", "");
    spec.user = User { uid: 0, gid: 0 };
    assert!(daemon.refused(&spec).contains("its user is root"));
    let mut spec = world.spec("one", "");
    spec.image = None;
    assert!(daemon.refused(&spec).contains("MCP_RUNTIME_IMAGE"));
    let mut spec = world.spec("one", "");
    spec.workspace = world.at("nowhere");
    let error = daemon.refused(&spec);
    assert!(error.contains("nowhere") && !world.at("nowhere").exists(), "{error}");
    world.finish_unstarted(daemon);
}

#[test]
fn a_runtime_that_the_engine_lacks_is_named() {
    for (kind, words) in [
        (Kind::Docker, "has no runtime runsc, but io.containerd"),
        (Kind::Podman, "runs every container with"),
    ] {
        let world = World::new(kind);
        let mut daemon = world.daemon();
        let mut spec = world.spec("one", "");
        spec.oci_runtime = Some("runsc".to_owned());
        let error = daemon.refused(&spec);
        assert!(error.contains(words) && error.contains("isolation"), "{kind:?}: {error}");
        // Its own is fine by either name.
        spec.oci_runtime = Some("runc".to_owned());
        daemon.start(&spec);
        daemon.ask(&json!({ "Kill": "one" }));
        world.clear(daemon);
    }
}

#[test]
fn a_user_who_may_not_use_the_engine_is_told_how() {
    let world = World::new(Kind::Docker);
    let socket = world.at("engine.sock");
    fs::set_permissions(world.at(""), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o660)).unwrap();
    let mut daemon = world.daemon_of("nobody", &socket, Some(65534));
    let probe = daemon.ask(&json!("Probe"));
    assert_eq!(probe["can_start"], json!(false));
    assert!(probe["missing"][0].as_str().unwrap().contains("usermod -aG docker"), "{probe}");
    let error = daemon.refused(&world.spec("one", ""));
    assert!(
        error.contains("may not use the container engine") && error.contains("usermod -aG docker"),
        "{error}"
    );
    let none = world.at("none.sock");
    let mut daemon = world.daemon_of("nobody", &none, None);
    let error = daemon.refused(&world.spec("one", ""));
    assert!(error.contains("there is no container engine") && error.contains("apt-get install"), "{error}");
}

#[test]
fn an_engine_that_hangs_is_an_error_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("mute.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mute = thread::spawn(move || {
        // Takes what it is told and says nothing, until whoever asks gives up.
        for connection in listener.incoming().take(3).flatten() {
            let mut connection = connection;
            let _all = connection.read_to_end(&mut Vec::new());
        }
    });
    let mut daemon = crate::harness::Daemon::alone(directory.path(), &socket);
    let since = Instant::now();
    let error = daemon.error(&json!({ "State": "one" }));
    assert!(error.contains("did not answer within 20 s") && error.contains("systemctl restart"), "{error}");
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
    drop(daemon);
    drop(std::os::unix::net::UnixStream::connect(&socket));
    mute.join().unwrap();
}
