//! `callsign image build`, on real engines that are the test's own.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Kind, PrivateEngine};

const CALLSIGN: &str = env!("CARGO_BIN_EXE_callsign");
/// Stands in for OpenCode: a program for this machine that every base can run.
const PROGRAM: &str = "/bin/true";

fn build(home: &Path, engine: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(CALLSIGN);
    command.args(["image", "build"]).args(arguments).current_dir(home).env_clear();
    command.env("HOME", home).env("PATH", "/nowhere").env("DOCKER_HOST", engine);
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Its exit code and what it said. Nothing is on stdout of one that failed.
fn failed(output: &Output) -> (Option<i32>, String) {
    assert_eq!(text(&output.stdout), "");
    (output.status.code(), text(&output.stderr))
}

/// What a container of this image prints.
fn printed(engine: &PrivateEngine, image: &str, script: &str) -> String {
    let limit = |name: &str| json!({ "Name": name, "Soft": 1024, "Hard": 1024 });
    let body = json!({ "Image": image, "Entrypoint": ["/bin/sh", "-c", script], "User": "65534",
        "HostConfig": { "NetworkMode": "none", "ReadonlyRootfs": true, "Ulimits": [limit("nofile"), limit("nproc")] } });
    let file = engine.at("container.json");
    fs::write(&file, body.to_string()).unwrap();
    let made = engine.api("POST", "/containers/create", Some(&file));
    let made: Value = serde_json::from_str(&made).unwrap();
    let id = made["Id"].as_str().unwrap_or_else(|| panic!("{made}"));
    engine.api("POST", &format!("/containers/{id}/start"), None);
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let log = engine.api("GET", &format!("/containers/{id}/logs?stdout=1&stderr=1"), None);
        if log.contains("the end") {
            return log;
        }
        assert!(Instant::now() < deadline, "{log}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_image_is_made_for_docker() {
    an_image_has_the_agent_the_bridge_and_the_plugin_and_is_made_without_a_network(Kind::Docker);
}

#[test]
fn an_image_is_made_for_podman() {
    an_image_has_the_agent_the_bridge_and_the_plugin_and_is_made_without_a_network(Kind::Podman);
}

fn an_image_has_the_agent_the_bridge_and_the_plugin_and_is_made_without_a_network(kind: Kind) {
    let home = tempfile::tempdir().unwrap();
    let engine = PrivateEngine::start(kind);
    let output = build(home.path(), &engine.host(), &["--base", IMAGE, "--opencode", PROGRAM, "--json"]);
    let (out, told) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{kind:?}: {told}");
    assert!(told.starts_with("making ") && told.contains("COPY root/ /"), "{kind:?}: {told}");
    assert_eq!(out.lines().count(), 1, "{kind:?}: {out}");
    let report: Value = serde_json::from_str(&out).unwrap();
    // The name that a session looks for which names none.
    assert_eq!(report["image"], "opencode-as-mcp-runtime:latest");
    assert_eq!((&report["base"], &report["opencode"]["version"]), (&json!(IMAGE), &Value::Null));
    assert!(report["id"].as_str().unwrap().starts_with("sha256:") && report["size"].as_u64() > Some(1 << 20));
    let script = "cd /opt/callsign; /opt/callsign/opencode && echo it runs; ./bridge 2>&1; \
                  head -c 4000 config/opencode/plugin/callsign.js; touch config/x; echo the end";
    let log = printed(&engine, "opencode-as-mcp-runtime:latest", script);
    assert!(
        log.contains("it runs") && log.contains("bridge") && log.contains("CALLSIGN_SEAL_KEY"),
        "{kind:?}: {log}"
    );
    assert!(log.contains("Read-only file system"), "{kind:?}: {log}");
    // Again, under another name, for a person.
    let output = build(
        home.path(),
        &engine.host(),
        &["--base", IMAGE, "--opencode", PROGRAM, "--tag", "localhost/b:2"],
    );
    assert_eq!(text(&output.stdout), "localhost/b:2\n", "{kind:?}: {}", text(&output.stderr));
    let (code, told) = failed(&build(
        home.path(),
        &engine.host(),
        &["--base", "127.0.0.1:1/no/base:1", "--opencode", PROGRAM],
    ));
    assert_eq!(code, Some(5), "{kind:?}: {told}");
    assert!(
        told.contains(
            "error: the base image 127.0.0.1:1/no/base:1 is not there, and the engine could not fetch it"
        ) && told.contains("hint: ")
            && told.contains("--base"),
        "{kind:?}: {told}"
    );
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let home = tempfile::tempdir().unwrap();
    let nowhere = format!("unix://{}/none.sock", home.path().display());
    for (engine, arguments, code, words) in [
        (&*nowhere, &["--opencode", PROGRAM][..], 5, "there is no container engine at"),
        ("tcp://127.0.0.1:2375", &["--opencode", PROGRAM], 5, "only unix:// sockets"),
        (&*nowhere, &["--opencode", "./nothing"], 2, "is not there, or is no program"),
        (&*nowhere, &[], 2, "npm install"),
        (&*nowhere, &["--opencode", PROGRAM, "--tag", "Not An Image"], 2, "--tag \"Not An Image\""),
        (&*nowhere, &["--opencode", PROGRAM, "--base=-x"], 2, "--base"),
    ] {
        let (found, told) = failed(&build(home.path(), engine, arguments));
        assert_eq!(found, Some(code), "{arguments:?}: {told}");
        assert!(told.contains(words), "{arguments:?}: {told}");
    }
}
