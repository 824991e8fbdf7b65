//! Whoever the daemon runs as: a run completes, limits are what they say, and the box sees and writes what it may.

use std::path::PathBuf;

use serde_json::{Value, json};
use testkit::harness::CANARY;

use crate::rig::{Client, Rig, TURN, Who, bash, text};

/// More than the agent needs, and less than the hog takes.
const LIMITS: &str = "limits = { memory = \"1GiB\", pids = 96, cpus = 2, disk = \"1GiB\" }";
const HOG: u64 = 3 << 30;

#[test]
fn an_unprivileged_user_without_a_control_group() {
    // Whoever runs the tests as a user is that user.
    let who = if nix::unistd::geteuid().is_root() { Who::Nobody } else { Who::Myself };
    check(who, "watched", "absent");
}

#[test]
fn an_unprivileged_user_with_a_control_group_of_its_own() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: only root can delegate a control group");
        return;
    }
    check(Who::Delegated, "enforced", "enforced");
}

#[test]
fn root() {
    if !nix::unistd::geteuid().is_root() {
        println!("SKIPPED: the tests do not run as root");
        return;
    }
    check(Who::Myself, "enforced", "enforced");
}

fn check(who: Who, memory: &str, cpus: &str) {
    let mut rig = Rig::run_by(who, LIMITS);
    rig.serve();
    // Root speaks on anybody's socket; the sessions are the daemon's own principal's.
    let client = rig.client();
    let session = client.create("who");
    let ended = client.complete(&session, json!([bash("id -u; pwd"), { "text": "it runs" }]));
    assert_eq!(ended["final_output"], "it runs", "{ended}");
    let limits = client.session(&session)["limits"].clone();
    let expected = json!({ "memory": memory, "pids": "enforced", "cpus": cpus, "disk": "watched", "syscalls": "enforced" });
    assert_eq!(limits, expected, "{who:?}");
    the_box_is_closed(&rig, &client, &session);
    limits_hold(&client, &session);
}

/// Runs this in the box; what it printed.
fn inside(rig: &Rig, client: &Client, session: &str, command: &str) -> String {
    let command = format!("({command}) > /workspace/said.txt 2>&1; echo over");
    let run = client.submit(session, json!([bash(&command), { "text": "said" }]));
    let ended = client.wait(session, &run, TURN);
    let workspace = PathBuf::from(text(&client.session(session)["workspace"]));
    let said = std::fs::read(workspace.join("said.txt")).unwrap_or_default();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert_eq!(ended["status"], "completed", "{ended}\n{said}\n{}", rig.log());
    said
}

fn the_box_is_closed(rig: &Rig, client: &Client, session: &str) {
    let state = rig.state();
    let root = state.join("sessions").join(session);
    // What must not be read is there, or not reading it proves nothing.
    let daemon: Value =
        serde_json::from_slice(&std::fs::read(state.join("daemon.json")).expect("a daemon")).expect("JSON");
    let token = state.join(text(&daemon["token_file"]));
    let (key, access) = (root.join("key"), root.join("access.json"));
    let secrets = [&token, &key, &access].map(|path| {
        let text =
            std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        text.trim().to_owned()
    });
    assert_eq!(secrets[1], CANARY, "the key is kept apart");
    let paths: Vec<String> = [&token, &key, &access, &state, &root, &state.join("sessions.db")]
        .map(|path| path.display().to_string())
        .into();
    let said =
        inside(rig, client, session, &format!("for p in {}; do ls -la $p; cat $p; done", paths.join(" ")));
    for secret in &secrets {
        assert!(!said.contains(secret.as_str()), "the box read a secret: {said}");
    }
    assert!(!said.contains("total "), "the box listed a directory of ours: {said}");

    let name = format!("callsign-probe-{}", std::process::id());
    let places = "/ /bin /boot /dev /etc /home /lib /mnt /opt /proc /root /run /srv /sys /usr /usr/bin /var /var/lib /var/tmp";
    let own = rig.path().display();
    let command = format!(
        "for d in {places} {own} {own}/state /workspace /session-meta /tmp; do if echo x > $d/{name}; then echo \"WROTE $d\"; fi; done; touch /workspace/.. /usr/bin/env"
    );
    let said = inside(rig, client, session, &command);
    let wrote: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("WROTE ")).collect();
    // Its /tmp, /dev and /run are its own, if it has some; what counts is that nothing of it is here.
    for place in &wrote {
        let private = ["/workspace", "/session-meta", "/tmp", "/var/tmp", "/dev", "/run", "/home"];
        assert!(private.contains(place), "the box wrote to {place}: {said}");
        let here = PathBuf::from(place).join(&name);
        assert!(!here.exists(), "the box wrote to {} of this machine", here.display());
    }
    assert!(wrote.contains(&"/workspace") && wrote.contains(&"/session-meta"), "{said}");
    let workspace = PathBuf::from(text(&client.session(session)["workspace"]));
    assert!(workspace.join(&name).is_file(), "what it wrote is with the session");
    // Nobody else's processes are there, and it is nobody special.
    let said = inside(
        rig,
        client,
        session,
        "id -u; ls /proc | grep -c '^[0-9]'; cat /proc/self/status | grep CapEff",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_ne!(lines.first(), Some(&"0"), "root in the box: {said}");
    assert!(
        lines.get(1).and_then(|count| count.parse::<u32>().ok()).is_some_and(|count| count < 30),
        "{said}"
    );
    assert!(said.contains("CapEff:\t0000000000000000"), "{said}");
}

/// Where a limit is said to hold or to be watched, it does something.
fn limits_hold(client: &Client, session: &str) {
    // This shell ends where it cannot start another process.
    let many = "i=0; while [ $i -lt 300 ]; do sleep 3 & i=$((i+1)); echo $i > /workspace/count.txt; done";
    let run = client
        .submit(session, json!([bash(&format!("sh -c '{many}'; sleep 4")), { "text": "after the bomb" }]));
    let ended = client.wait(session, &run, TURN);
    println!("the bomb's run: {ended}");
    let workspace = PathBuf::from(text(&client.session(session)["workspace"]));
    let count = std::fs::read_to_string(workspace.join("count.txt")).unwrap_or_default();
    let count: u32 = count.trim().parse().unwrap_or_else(|_| panic!("nothing was started: {ended}"));
    assert!((1..96).contains(&count), "{count} processes, and the limit is 96");
    client.complete(session, json!([{ "text": "after the bomb" }]));

    // All of it in memory at once, if it may.
    let hog =
        format!("head -c {HOG} /dev/zero | tail -c {HOG} | wc -c > /workspace/hog.txt; sleep 2; echo ended");
    let run = client.submit(session, json!([bash(&hog), { "text": "after the hog" }]));
    let ended = client.wait(session, &run, TURN);
    println!("the hog's run: {ended}");
    let took = std::fs::read_to_string(workspace.join("hog.txt")).unwrap_or_default();
    assert_ne!(took.trim(), HOG.to_string(), "it took three times the limit");
    match ended["status"].as_str() {
        Some("completed") => {}
        Some("failed") => {
            assert_eq!(ended["error"]["code"], "out_of_memory", "{ended}");
        }
        _ => panic!("{ended}"),
    }
    let next = client.complete(session, json!([{ "text": "still usable" }]));
    assert_eq!(next["final_output"], "still usable");
}
