//! Whose process is it, how long does it live, and what is left when everything is over: nothing.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::{Gateway, Standing, alive, descendants, wait_until, zombies};

use crate::support::{SOON, echo, name_of, setup};

async fn pid(client: &Client) -> u32 {
    let pid = client.whoami("X").await["pid"].as_u64().expect("a pid");
    u32::try_from(pid).expect("a pid")
}

async fn orphan(client: &Client) -> u32 {
    client.tool_text("spawn_orphan", json!({})).await.parse().expect("a pid")
}

#[tokio::test]
async fn each_session_has_a_child_of_its_own() {
    let gateway = echo("").serve().await;
    let (one, two) = (gateway.connect("echo", Era::Legacy).await, gateway.connect("echo", Era::Legacy).await);
    let (first, second) = (pid(&one).await, pid(&two).await);
    assert_ne!(first, second);
    assert_eq!((pid(&one).await, pid(&two).await), (first, second), "and keeps it");
    one.end().await;
    assert!(wait_until(SOON, || !alive(first)).await, "gone with its session");
    assert_eq!(pid(&two).await, second, "the other one stays");
}

#[tokio::test]
async fn a_shared_server_has_one_child() {
    let gateway = echo("isolation = \"shared\"").serve().await;
    let mut pids = Vec::new();
    for _ in 0..5 {
        let client = gateway.connect("echo", Era::Legacy).await;
        pids.push(pid(&client).await);
        client.end().await;
    }
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
    assert!(alive(pids[0]), "it outlives its sessions");
}

#[tokio::test]
async fn a_new_child_is_told_what_the_client_said() {
    let gateway = echo("").serve().await;
    let client = gateway.client("echo", Era::Legacy);
    client.connect_with(json!({ "x-vendor": "kept" })).await.expect("connected");
    client.request("logging/setLevel", json!({ "level": "notice" })).await.expect("set");
    let before = pid(&client).await;
    assert!(client.try_tool("exit", json!({ "code": 3 })).await.is_err());
    let whoami = client.whoami("X").await;
    assert_ne!(whoami["pid"], before, "a new one");
    assert_eq!(whoami["initialize"]["x-vendor"], "kept", "{whoami}");
    assert_eq!(whoami["level"], "notice", "{whoami}");
}

#[tokio::test]
async fn a_child_that_ends_during_a_call_is_reported_and_replaced() {
    let gateway = echo("").serve().await;
    let standing = Standing::before(&gateway).await;
    let client = gateway.connect("echo", Era::Legacy).await;
    for code in [0, 3] {
        let before = pid(&client).await;
        let other =
            client.start("tools/call", json!({ "name": "sleep", "arguments": { "ms": 20_000 } })).await;
        let start = Instant::now();
        let failure = client.try_tool("exit", json!({ "code": code })).await.expect_err("no answer");
        assert_eq!(name_of(&failure), "server_exited", "{failure:?}");
        let failure = other.wait(SOON).await.expect_err("nor for others");
        assert_eq!(name_of(&failure), "server_exited", "{failure:?}");
        assert!(start.elapsed() < SOON, "at once, not at the deadline");
        assert_ne!(pid(&client).await, before);
    }
    client.end().await;
    drop(client);
    standing.after().await;
}

#[tokio::test]
async fn an_idle_child_is_stopped_and_comes_back() {
    let gateway = echo("idle = \"1s\"").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let first = pid(&client).await;
    let busy = json!({ "name": "sleep", "arguments": { "ms": 2500 } });
    assert!(client.request("tools/call", busy).await.is_ok());
    assert_eq!(pid(&client).await, first, "a child with a call is not idle");
    assert!(wait_until(Duration::from_secs(4), || !alive(first)).await, "idle for more than a second");
    assert_ne!(pid(&client).await, first, "started again for the next call");
}

#[tokio::test]
async fn there_are_never_more_children_than_allowed() {
    let gateway =
        setup().server("echo", &[&bin("echo-server"), "--stdio", "--mine"], "max_children = 4").serve().await;
    let mut most = 0;
    let mut sessions = Vec::new();
    for number in 0..8 {
        let client = gateway.connect("echo", Era::Legacy).await;
        let text = format!("session {number}");
        assert_eq!(client.tool_text("echo", json!({ "text": text })).await, text);
        most = most.max(mine(&gateway));
        sessions.push(client);
    }
    // The first ones had to go; they come back for their sessions.
    for client in &sessions {
        assert_eq!(client.tool_text("echo", json!({ "text": "again" })).await, "again");
        most = most.max(mine(&gateway));
    }
    assert!((1..=4).contains(&most), "{most} children at once");
}

/// How many echo servers run that were started with `--mine` for a caller; lobbies are counted apart.
fn mine(gateway: &Gateway) -> usize {
    let words = |pid: &u32, file: &str| {
        let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).split('\0').map(str::to_owned).collect::<Vec<_>>()
    };
    let is_mine = |pid: &u32| {
        let command = words(pid, "cmdline");
        command[0].ends_with("echo-server")
            && command.iter().any(|word| word == "--mine")
            && !words(pid, "environ").iter().any(|variable| variable == "CALLSIGN_PROBE=1")
    };
    descendants(gateway.pid()).iter().filter(|pid| is_mine(pid)).count()
}

#[tokio::test]
async fn with_every_child_busy_a_call_waits_its_deadline() {
    let gateway = echo("max_children = 1\ntimeout = \"2s\"").serve().await;
    let one = gateway.connect("echo", Era::Legacy).await;
    // Progress resets the deadline, so this one is busy for 8 s.
    let busy = json!({ "name": "progress", "arguments": { "steps": 40, "ms": 200 }, "_meta": { "progressToken": 1 } });
    let busy = one.start("tools/call", busy).await;
    one.notification("notifications/progress", SOON).await.expect("it runs");
    let two = gateway.client("echo", Era::Legacy);
    let start = Instant::now();
    let failure = match two.connect().await {
        Err(failure) => failure,
        Ok(_) => two.try_tool("echo", json!({ "text": "x" })).await.expect_err("no place"),
    };
    assert_eq!(name_of(&failure), "server_busy", "{failure:?}");
    assert!(start.elapsed() < Duration::from_secs(5), "waited {:?}", start.elapsed());
    assert!(busy.wait(SOON * 3).await.is_ok(), "nobody is thrown out of a call");
}

#[tokio::test]
async fn a_call_past_its_deadline_is_cancelled_and_a_patient_child_lives_on() {
    let gateway = echo("timeout = \"1s\"").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let before = pid(&client).await;
    let start = Instant::now();
    let failure = client.try_tool("sleep", json!({ "ms": 20_000 })).await.expect_err("too slow");
    assert_eq!(name_of(&failure), "timeout", "{failure:?}");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    let whoami = client.whoami("X").await;
    assert_eq!(whoami["pid"], before, "it heeded the cancel, so it lives");
    assert_eq!(whoami["cancelled"].as_array().map(Vec::len), Some(1), "{whoami}");
    let slow = json!({ "name": "progress", "arguments": { "steps": 10, "ms": 300 }, "_meta": { "progressToken": 1 } });
    assert!(client.request("tools/call", slow).await.is_ok(), "progress resets the deadline");
}

#[tokio::test]
async fn nothing_is_left_when_a_session_ends() {
    let gateway = echo("").serve().await;
    let standing = Standing::before(&gateway).await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let (child, orphan) = (pid(&client).await, orphan(&client).await);
    assert!(alive(orphan));
    client.end().await;
    assert!(wait_until(SOON, || !alive(child) && !alive(orphan)).await, "detached ones too");
    drop(client);
    standing.after().await;
}

#[tokio::test]
async fn nothing_is_left_when_a_child_ends_by_itself() {
    let gateway = echo("").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let orphan = orphan(&client).await;
    assert!(client.try_tool("exit", json!({ "code": 1 })).await.is_err());
    assert!(wait_until(SOON, || !alive(orphan)).await);
}

#[tokio::test]
async fn nothing_is_left_when_the_daemon_ends_or_is_killed() {
    for how in ["SIGTERM", "SIGKILL"] {
        let mut gateway = echo("").serve().await;
        let mut pids = Vec::new();
        for _ in 0..3 {
            let client = gateway.connect("echo", Era::Legacy).await;
            pids.extend([pid(&client).await, orphan(&client).await]);
        }
        pids.extend(descendants(gateway.pid()));
        if how == "SIGKILL" {
            gateway.kill();
        } else {
            assert_eq!(
                gateway.terminate(Duration::from_secs(10)).await,
                Some(0),
                "a clean end:\n{}",
                gateway.log()
            );
        }
        let gone = wait_until(SOON, || !pids.iter().any(|pid| alive(*pid))).await;
        let left: Vec<&u32> = pids.iter().filter(|pid| alive(**pid)).collect();
        assert!(gone, "{how}: {left:?} of {pids:?} are left");
        if how == "SIGTERM" {
            assert!(!gateway.files.state().join("daemon.json").exists(), "nobody is misled");
        }
    }
}

#[tokio::test]
async fn nothing_is_left_of_a_wrap_however_it_ends() {
    for how in ["end of input", "SIGTERM", "SIGKILL"] {
        let (client, _files) = setup().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
        client.connect().await.expect("connected");
        let mut pids = vec![pid(&client).await, orphan(&client).await];
        pids.extend(descendants(client.pid()));
        match how {
            "end of input" => assert_eq!(client.end().await, Some(0), "{}", client.stderr()),
            "SIGTERM" => testkit::harness::kill(client.pid(), nix::sys::signal::Signal::SIGTERM),
            _ => testkit::harness::kill(client.pid(), nix::sys::signal::Signal::SIGKILL),
        }
        let gone = wait_until(SOON, || !pids.iter().any(|pid| alive(*pid))).await;
        let left: Vec<&u32> = pids.iter().filter(|pid| alive(**pid)).collect();
        assert!(gone, "{how}: {left:?} of {pids:?} are left");
    }
}

#[tokio::test]
async fn a_client_that_just_goes_away_leaves_no_child_for_ever() {
    let gateway = echo("idle = \"1s\"").serve().await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let (child, orphan) = (pid(&client).await, orphan(&client).await);
    drop(client);
    assert!(wait_until(SOON, || !alive(child) && !alive(orphan)).await);
    // Its supervisor waits for it a moment after it has ended.
    assert!(wait_until(SOON, || zombies(gateway.pid()).is_empty()).await);
}

#[tokio::test]
async fn a_server_that_can_run_only_once_says_what_to_do() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = directory.path().join("lock");
    let program = bin("hostile-server");
    let command = [program.as_str(), "--stdio", "--mode", "lock", lock.to_str().expect("UTF-8")];
    let gateway = setup().server("once", &command, "").serve().await;
    let (one, two) = (gateway.client("once", Era::Legacy), gateway.client("once", Era::Legacy));
    let mut failures: Vec<Value> = Vec::new();
    for client in [&one, &two] {
        let answer = match client.connect().await {
            Ok(_) => client.try_tool("echo", json!({ "text": "x" })).await,
            failed => failed,
        };
        failures.extend(answer.err().map(|failure| Value::from(failure.text())));
    }
    let said = failures.iter().any(|failure| {
        failure.as_str().is_some_and(|text| text.contains("isolation") && text.contains("shared"))
    });
    assert!(said, "names isolation = \"shared\": {failures:?}");
}

#[tokio::test]
async fn a_server_that_can_run_only_once_works_when_shared() {
    let directory = tempfile::tempdir().expect("a directory");
    let lock = directory.path().join("lock");
    let program = bin("hostile-server");
    let command = [program.as_str(), "--stdio", "--mode", "lock", lock.to_str().expect("UTF-8")];
    let gateway = setup().server("once", &command, "isolation = \"shared\"").serve().await;
    for _ in 0..2 {
        let client = gateway.connect("once", Era::Legacy).await;
        assert_eq!(client.tool_text("echo", json!({ "text": "x" })).await, "x", "as it says");
    }
}
