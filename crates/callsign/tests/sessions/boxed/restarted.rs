//! A daemon that is killed in the middle of everything, and the next one: boxes, runs, policy, key and identity go on.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::{Value, json};
use testkit::engine::EngineSocket;
use testkit::harness::{CANARY, alive};

use super::servers::{NAMED, Servers, identity, ledger};
use super::{Lodging, daemon_address, rig};
use crate::rig::{BoxProcess, Rig, TURN, bash, text};
use crate::trial::full;

const PROBE: &str = include_str!("probe.py");
/// How long the model and a tool hold their answers: longer than the daemon is away.
const HELD: u64 = 12_000;

/// One that is in the middle of its turn.
struct Working {
    lodging: Lodging,
    marker: String,
    run: String,
}

/// Somebody else's processes: a box that is not ours, and a plain one. With an engine, containers of others in it: one
/// that has nothing to do with us, and one of another state directory.
struct Strangers {
    processes: [Child; 2],
    engine: Option<EngineSocket>,
    /// Each with what the engine said of it in the beginning.
    containers: Vec<(String, Value)>,
}

impl Strangers {
    fn start(rig: &Rig) -> Self {
        let start = |command: &mut Command| {
            let nothing = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            nothing.spawn().expect("a process")
        };
        let boxed =
            ["--unshare-user", "--unshare-pid", "--ro-bind", "/", "/", "--die-with-parent", "sleep", "600"];
        let processes = [start(Command::new("bwrap").args(boxed)), start(Command::new("sleep").arg("600"))];
        let mut strangers = Self { processes, engine: None, containers: Vec::new() };
        if let Some(engine) = rig.engine() {
            let engine = strangers.engine.insert(engine.socket.clone());
            let another = json!({ "dev.callsign.owner": "0123456789abcdef", "dev.callsign.box": "another" });
            for (number, labels) in [json!({}), another].iter().enumerate() {
                let id = engine.stranger(&format!("stranger-{}-{number}", std::process::id()), labels);
                let state = state_of(engine, &id);
                strangers.containers.push((id, state));
            }
        }
        strangers
    }

    #[track_caller]
    fn are_untouched(&self) {
        assert!(self.processes.iter().all(|child| alive(child.id())), "a process was ended that is nobody's");
        for (id, before) in &self.containers {
            let now = self.engine.as_ref().map(|engine| state_of(engine, id));
            assert_eq!(now.as_ref(), Some(before), "somebody else's container was touched");
        }
    }
}

/// When it was started, its process, and whether it runs.
fn state_of(engine: &EngineSocket, id: &str) -> Value {
    let state = engine.get(&format!("/containers/{id}/json"))["State"].clone();
    assert_eq!(state["Running"], true, "{state}");
    json!([state["Pid"], state["StartedAt"], state["Paused"]])
}

impl Drop for Strangers {
    fn drop(&mut self) {
        for child in &mut self.processes {
            drop(child.kill());
            drop(child.wait());
        }
        for (id, _) in &self.containers {
            self.engine.iter().for_each(|engine| engine.remove(id));
        }
    }
}
#[test]
fn boxes_go_on_when_the_daemon_is_killed() {
    let count = if full() { 8 } else { 4 };
    let servers = Servers::start();
    let mut rig = rig(&servers.tables(), &format!("{NAMED}max_hot = {count}\n"));
    rig.serve();
    let strangers = Strangers::start(&rig);
    let client = rig.client();
    let lodgings: Vec<Lodging> =
        (0..count).map(|number| Lodging::new(&client, &format!("restarted-{number}"))).collect();
    let first: Vec<String> =
        lodgings.iter().map(|lodging| client.submit(&lodging.id, json!([{ "text": "ready" }]))).collect();
    for (lodging, run) in lodgings.iter().zip(&first) {
        assert_eq!(client.wait(&lodging.id, run, TURN * 2)["status"], "completed");
    }
    let before = boxes(&rig);
    assert_eq!(before.len(), count, "{before:?}");

    let working: Vec<Working> = lodgings
        .into_iter()
        .enumerate()
        .map(|(number, lodging)| {
            let marker = format!("restarted {number}.");
            let run = client.submit(&lodging.id, steps(&rig, &lodging, number, &marker));
            Working { lodging, marker, run }
        })
        .collect();
    let tools_held = || {
        let held = servers.called("std");
        held.iter().filter(|call| call.message["params"]["name"] == "sleep").count()
    };
    rig.until(TURN, "everybody to be in the middle", || {
        working.iter().all(|one| rig.begun(&one.marker) > 0) && tools_held() == count / 2
    });
    // The ledger has them as well: what it was told in the last moments goes with a daemon that is killed.
    rig.until(TURN, "the calls to be in the ledger", || of_tool(&rig, "sleep").len() == count / 2);
    let asked_before = rig.model().asked().len();
    let killed = Instant::now();
    rig.kill();
    assert_eq!(boxes(&rig), before, "boxes end with their daemon");
    rig.serve();
    println!("the next daemon was there after {:.1} s", killed.elapsed().as_secs_f32());

    // A request that was under way is asked again, and a call that was is told to have failed: nobody has to come.
    let mut going_on: BTreeMap<usize, f32> = BTreeMap::new();
    rig.until(TURN, "every turn to go on", || {
        for (number, one) in working.iter().enumerate() {
            if !going_on.contains_key(&number) && requests(&rig, &one.marker, asked_before).1 > 0 {
                going_on.insert(number, killed.elapsed().as_secs_f32());
            }
        }
        going_on.len() == count
    });
    for (number, after) in going_on {
        let marker = &working[number].marker;
        println!("{marker} goes on after {after:.1} s; {}", last_told(&rig, marker, number));
    }
    for one in &working {
        let ended = client.wait(&one.lodging.id, &one.run, TURN * 2);
        let after = killed.elapsed().as_secs_f32();
        let (earlier, later) = requests(&rig, &one.marker, asked_before);
        println!("{}: {after:.1} s, model asked {earlier} + {later} times, {}", one.marker, ended["usage"]);
        assert_eq!(ended["status"], "completed", "{ended}\n{}", client.log(&one.run));
        assert_eq!(ended["final_output"], one.marker, "{ended}");
        assert!(ended["usage"]["input_tokens"].as_u64() >= Some(1), "nothing was metered: {ended}");
        check_policy(&one.lodging.answers("probe"));
    }
    assert_eq!(boxes(&rig), before, "a box was made anew");
    strangers.are_untouched();
    for asked in rig.model().asked().iter().skip(asked_before) {
        assert_eq!(asked.header("authorization"), Some(format!("Bearer {CANARY}").as_str()), "{asked:?}");
        let offered = asked.body["tools"].as_array().into_iter().flatten();
        let offered: BTreeSet<&str> = offered
            .filter_map(|tool| tool["function"]["name"].as_str()?.split_once('_').map(|(name, _)| name))
            .collect();
        assert!(!offered.contains("hidden"), "{offered:?}");
        assert!(offered.is_empty() || (offered.contains("std") && offered.contains("web")), "{offered:?}");
    }
    check_calls(&servers, &working);
    // Nobody can say how those ended that were under way.
    let cut_off = of_tool(&rig, "sleep");
    assert_eq!(cut_off.len(), count / 2, "{cut_off:?}");
    assert!(cut_off.iter().all(|row| row["outcome"] == "unknown"), "{cut_off:?}");
    rig.check_canary();
}

/// What the ledger has of calls of a tool.
fn of_tool(rig: &Rig, tool: &str) -> Vec<Value> {
    let mut rows = ledger(rig);
    rows.retain(|row| row["tool"] == tool);
    rows
}

fn boxes(rig: &Rig) -> BTreeMap<String, BoxProcess> {
    rig.boxes().into_iter().map(|found| (found.session.clone(), found)).collect()
}

/// Every second one waits for the model when the daemon is killed, the others for a tool of a server.
fn steps(rig: &Rig, lodging: &Lodging, number: usize, marker: &str) -> Value {
    let model = rig.model().address();
    let input = json!([
        ["interfaces", "interfaces"],
        ["the model", "tcp", "127.0.0.1", model.port()],
        ["an address", "tcp", "1.1.1.1", 443],
        ["the daemon", "proxied", 4099, daemon_address(rig)],
        ["the proxy to the model", "proxied", 4099, model.to_string()],
        ["files", "write", "/run/callsign"],
    ]);
    let mut probe = bash(&lodging.place("probe", PROBE, &input));
    let calls =
        ["std", "web"].map(|server| json!({ "tool": format!("{server}/echo"), "args": { "text": marker } }));
    let end = json!({ "text": marker });
    if number.is_multiple_of(2) {
        probe["delay"] = json!(HELD);
        json!([probe, { "calls": calls }, end])
    } else {
        let wait = json!({ "tool": "std/sleep", "args": { "ms": HELD * 2 } });
        json!([wait, probe, { "calls": calls }, end])
    }
}

fn check_policy(said: &Value) {
    assert_eq!(said["interfaces"], json!(["lo"]), "{said}");
    for way in ["the model", "an address", "the daemon", "the proxy to the model"] {
        assert!(said[way].to_string().starts_with("\"not reached"), "{way}: {said}");
    }
    assert_ne!(said["files"], "done", "{said}");
}

/// Requests of the turn that has this marker: before the kill, and after.
fn requests(rig: &Rig, marker: &str, before: usize) -> (usize, usize) {
    let asked = rig.model().asked();
    let of_turn = |body: &Value| {
        let tools = body["tools"].as_array().is_some_and(|tools| !tools.is_empty());
        tools && body["messages"].to_string().contains(marker)
    };
    let count = |some: &[testkit::llm::Asked]| some.iter().filter(|asked| of_turn(&asked.body)).count();
    (count(&asked[..before]), count(&asked[before..]))
}

/// What the agent tells the model of the call that was under way, where one was.
fn last_told(rig: &Rig, marker: &str, number: usize) -> String {
    if number.is_multiple_of(2) {
        return "the model is asked again".to_owned();
    }
    let asked = rig.model().asked();
    let told = asked.iter().rev().find_map(|asked| {
        let messages = asked.body["messages"].as_array()?;
        let prompt = messages.iter().rposition(|message| message["role"] == "user")?;
        let of_turn = messages[prompt].to_string().contains(marker);
        messages[prompt..].iter().find(|message| of_turn && message["role"] == "tool").cloned()
    });
    told.map_or_else(|| "no tool has said anything".to_owned(), |told| told["content"].to_string())
}

/// The calls that were made once the next daemon was there.
fn check_calls(servers: &Servers, working: &[Working]) {
    for server in ["std", "web"] {
        let called = servers.called(server);
        for one in working {
            let of_run: Vec<_> =
                called.iter().filter(|call| call.arguments()["text"] == one.marker.as_str()).collect();
            let [call] = of_run.as_slice() else { panic!("{} calls of {}", of_run.len(), one.marker) };
            let said = identity(call);
            for (field, value) in [("session", &one.lodging.id), ("run", &one.run)] {
                assert_eq!(said[field], value.as_str(), "{}: {said}", one.marker);
            }
            assert_eq!(said["trust"], "bound", "{said}");
            assert!(text(&said["thread"]).starts_with("ses_"), "{said}");
        }
    }
}
