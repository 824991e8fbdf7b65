//! A box that knows everything of another one, its token and its key for seals as well, cannot speak for it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use testkit::client::modern_meta;
use testkit::hosts::Arrived;
use testkit::llm::script;

use super::servers::{NAMED, Servers, identity, ledger};
use super::{Lodging, daemon_address, outside, rig};
use crate::rig::{Client, Rig, text};

const FORGE: &str = include_str!("forge.py");
const OPEN: &str = include_str!("open.py");
const PROBE: &str = include_str!("probe.py");
#[test]
fn a_box_cannot_speak_for_another() {
    let servers = Servers::start();
    let mut rig = rig(&servers.tables(), NAMED);
    rig.serve();
    let client = rig.client();
    let (victim, forger) = (Lodging::new(&client, "victim"), Lodging::new(&client, "forger"));
    let (thread, subagent) = introduce(&client, &servers, &victim);
    let (own_thread, _) = introduce(&client, &servers, &forger);
    let opened = victim.run(&client, "open", OPEN, &json!({}));
    assert_eq!(opened["called"], "HTTP/1.1 200 OK", "whose session it is can call in it: {opened}");
    let access = victim.access(&rig);
    let of_victim = json!({
        "session": victim.id, "thread": thread, "subagent": subagent, "workspace": victim.workspace,
        "token": access["token"], "seal": access["seal"], "mcp_session": text(&opened["session"]),
    });
    let daemon: Value =
        serde_json::from_slice(&std::fs::read(rig.state().join("daemon.json")).expect("a daemon"))
            .expect("JSON");
    let daemon_token =
        std::fs::read_to_string(rig.state().join(text(&daemon["token_file"]))).expect("its token");
    let input = json!({
        "victim": of_victim, "own": { "thread": own_thread }, "meta": modern_meta(),
        "daemon": daemon_address(&rig), "daemon_token": daemon_token.trim(),
    });
    let before = ledger(&rig).len();
    let said = forger.run(&client, "forge", FORGE, &input);
    assert_eq!(said["knows_its_key"], true, "it forges with a key that it has: {said}");
    let run = text(&client.call("get_status", json!({ "session_id": forger.id }))["run"]["id"]);
    let rows = ledger(&rig).split_off(before);
    let scene = Scene { victim: of_victim, forger, run, own_thread, rows };
    scene.check(&said["attempts"], &servers);
    the_victim_is_still_itself(&client, &rig, &servers, &victim, &thread);
    // What no box reaches is there, for whoever may call it.
    let asked = json!([[
        "hidden",
        "call_tool",
        daemon_address(&rig),
        "/mcp/hidden",
        daemon_token.trim(),
        modern_meta()
    ]]);
    let said = outside(rig.path(), &[], PROBE, &asked);
    assert!(text(&said["hidden"]).starts_with("HTTP/1.1 200"), "{said}");
    assert_eq!(servers.called("hidden").len(), 1);
}

/// A call of the session and one of its subagent: their conversations.
fn introduce(client: &Client, servers: &Servers, lodging: &Lodging) -> (String, String) {
    let call = |place: &str| {
        let marker = format!("{} {place}", lodging.id);
        json!({ "tool": "std/echo", "args": { "text": marker } })
    };
    let below = script(&json!([call("below"), { "text": "below" }]));
    client.complete(&lodging.id, json!([call("above"), { "spawn": below }, { "text": "introduced" }]));
    let called = servers.called("std");
    let thread = |place: &str| {
        let marker = format!("{} {place}", lodging.id);
        let found = called.iter().find(|arrived| arrived.arguments()["text"] == marker.as_str());
        text(&identity(found.unwrap_or_else(|| panic!("no call of {marker}")))["thread"])
    };
    (thread("above"), thread("below"))
}

struct Scene {
    victim: Value,
    forger: Lodging,
    run: String,
    own_thread: String,
    /// What the ledger has since the forger began.
    rows: Vec<Value>,
}

impl Scene {
    fn check(&self, attempts: &Value, servers: &Servers) {
        let attempts: BTreeMap<String, Value> = serde_json::from_value(attempts.clone()).expect("attempts");
        let mut arrived: BTreeMap<String, Vec<Arrived>> = BTreeMap::new();
        for server in ["std", "web"] {
            for call in servers.called(server) {
                if let Some(name) = text(&call.message["params"]["name"]).strip_prefix("forge-") {
                    arrived.entry(name.to_owned()).or_default().push(call.clone());
                }
            }
        }
        assert!(servers.called("hidden").is_empty(), "a server was reached that no box may call");
        let (mut served, mut refused) = (Vec::new(), Vec::new());
        for (name, attempt) in &attempts {
            // It only begins a session, in which the attempt after it calls.
            if name == "initialize" {
                continue;
            }
            println!("{name}: {} {}", attempt["status"], attempt["said"].as_str().unwrap_or_default().trim());
            if arrived.contains_key(name) { served.push(name.as_str()) } else { refused.push(name.as_str()) }
        }
        for (name, calls) in &arrived {
            for call in calls {
                self.is_its_own(name, call);
            }
        }
        // Seals that are made here open where they should: what is refused above is so for its own reason.
        let once: Vec<&str> =
            arrived["seal-replayed"].iter().filter_map(|call| identity(call)["thread"].as_str()).collect();
        assert_eq!(once, [self.own_thread.as_str(), self.forger.id.as_str()], "a seal opens once");
        self.is_recorded(&attempts, &served);
        for name in &refused {
            let status = attempts[*name]["status"].as_u64().expect("a status");
            assert!(!(200..300).contains(&status), "{name}: {}", attempts[*name]);
        }
        for name in MUST_REFUSE {
            assert!(refused.contains(&name), "{name} reached a server: {}", attempts[name]);
        }
        assert!(served.contains(&"control"), "nothing was forged at all: {attempts:?}");
        println!(
            "{} attempts: {} served as the forger itself, {} refused, 0 as another",
            attempts.len(),
            served.len(),
            refused.len()
        );
    }

    /// It arrived, and is taken for who it is.
    fn is_its_own(&self, name: &str, call: &Arrived) {
        let said = identity(call);
        assert_eq!(said["session"], self.forger.id.as_str(), "{name} was taken for another: {said}");
        assert_eq!((&said["run"], &said["trust"]), (&json!(self.run), &json!("bound")), "{name}: {said}");
        assert_eq!(said["workspace"], self.forger.workspace.to_str().expect("UTF-8"), "{name}: {said}");
        let assertion = text(&call.meta()["dev.callsign/assertion"]);
        let claims = assertion.split('.').nth(1).expect("claims");
        let claims = BASE64_URL_SAFE_NO_PAD.decode(claims).expect("base64");
        let claims: Value = serde_json::from_slice(&claims).expect("JSON");
        assert_eq!(claims["sub"], format!("callsign:{}", self.forger.id), "{name}: {claims}");
        let told = [said.to_string(), claims.to_string(), call.start["env"].to_string()].concat();
        let headers = call.headers.iter().filter(|(header, _)| header.starts_with("callsign-"));
        let told = headers.fold(told, |told, (_, value)| told + value);
        for field in ["session", "thread", "subagent", "workspace", "token", "seal"] {
            let secret = text(&self.victim[field]);
            assert!(!told.contains(&secret), "{name}: the server is told the other's {field}: {told}");
        }
        // A seal that was forged with the own key may name a conversation of its own.
        let own = [self.own_thread.as_str(), self.forger.id.as_str()];
        assert!(own.contains(&said["thread"].as_str().unwrap_or_default()), "{name}: {said}");
    }

    /// Each has its row, under its own session, with what was forged.
    fn is_recorded(&self, attempts: &BTreeMap<String, Value>, served: &[&str]) {
        let mut forged = 0;
        for row in &self.rows {
            let name = text(&row["tool"]);
            assert_eq!(row["session"], self.forger.id.as_str(), "{name}: {row}");
        }
        for name in served {
            let tool = format!("forge-{name}");
            let rows: Vec<&Value> = self.rows.iter().filter(|row| row["tool"] == tool.as_str()).collect();
            assert!(!rows.is_empty(), "{name} is not recorded");
            if attempts.get(*name).is_some_and(|attempt| attempt["forged"] == true) {
                forged += 1;
                assert!(rows.iter().all(|row| is_spoof(row)), "{name} was not seen to be forged: {rows:?}");
            }
        }
        let replayed: Vec<bool> =
            self.rows.iter().filter(|row| row["tool"] == "forge-seal-replayed").map(is_spoof).collect();
        assert_eq!(replayed.iter().filter(|spoof| **spoof).count(), 1, "a seal opens once: {replayed:?}");
        println!("{} rows, {forged} of attempts that forged something", self.rows.len());
    }
}

fn is_spoof(row: &Value) -> bool {
    row["spoof"].as_array().is_some_and(|all| !all.is_empty())
}

/// These are not to reach any server at all.
const MUST_REFUSE: [&str; 20] = [
    "token-of-the-victim",
    "token-of-the-daemon",
    "token-of-nobody",
    "token-none",
    "token-none-by-the-socket",
    "token-of-the-victim-by-the-socket",
    "token-in-the-path",
    "mcp-session",
    "mcp-session-and-token",
    "server-hidden",
    "server-sessions",
    "server-none",
    "server-around",
    "server-slashes",
    "server-escaped",
    "server-absolute",
    "by-control.sock",
    "by-model.sock",
    "by-egress.sock",
    "smuggled",
];

fn the_victim_is_still_itself(client: &Client, rig: &Rig, servers: &Servers, victim: &Lodging, thread: &str) {
    let call = json!({ "tool": "std/echo", "args": { "text": "still myself" } });
    client.complete(&victim.id, json!([call, { "text": "done" }]));
    let called = servers.called("std");
    let last = called.iter().rfind(|call| call.arguments()["text"] == "still myself").expect("its call");
    let said = identity(last);
    assert_eq!((&said["session"], &said["thread"]), (&json!(victim.id), &json!(thread)), "{said}");
    let rows = ledger(rig);
    let row = rows.last().expect("a row");
    assert_eq!((&row["session"], &row["spoof"]), (&json!(victim.id), &json!([])), "{row}");
}
