//! A box that takes all it can get meets its limits, and its neighbour does not notice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Lodging, outside, rig};
use crate::rig::{Client, TURN, bash};

const PROBE: &str = include_str!("probe.py");
/// More than the agent needs, and less than is taken.
const LIMITS: &str = "limits = { memory = \"1GiB\", pids = 96, cpus = 2, disk = \"1GiB\" }\n";
const PIDS: u64 = 96;
const MEMORY: u64 = 1 << 30;
#[test]
fn a_greedy_box_harms_no_neighbour() {
    let mut rig = rig("", LIMITS);
    rig.serve();
    let client = rig.client();
    let (greedy, neighbour) = (Lodging::new(&client, "greedy"), Lodging::new(&client, "neighbour"));
    for lodging in [&greedy, &neighbour] {
        client.complete(&lodging.id, json!([{ "text": "ready" }]));
    }
    println!("limits: {}", client.session(&greedy.id)["limits"]);
    // More processes than the limit, and more memory; outside nobody minds either.
    let bomb = json!([["bomb", "bomb", PIDS + 50]]);
    let hog = json!([["hog", "hog", MEMORY + (MEMORY >> 2)]]);
    let said = outside(rig.path(), &[], PROBE, &bomb);
    assert_eq!((&said["bomb"]["count"], &said["bomb"]["said"]), (&json!(PIDS + 50), &json!("no limit")));

    let work = beside(&client, &greedy, &neighbour, &bomb);
    let said = &work.expect("the bomb takes processes only")["bomb"];
    println!("the bomb: {said}");
    assert!(said["count"].as_u64().is_some_and(|count| (1..PIDS).contains(&count)), "{said}");
    assert_eq!(said["said"], "EAGAIN", "{said}");

    // The agent itself may be what the kernel chooses to end; then the run says so.
    if let Some(said) = beside(&client, &greedy, &neighbour, &hog) {
        println!("the hog: {}", said["hog"]);
        assert!(said["hog"]["took"].as_u64() < Some(MEMORY), "{said}");
        assert_eq!(said["hog"]["killed"], true, "{said}");
    }
    let said = outside(rig.path(), &[], PROBE, &hog);
    assert_eq!(said["hog"]["killed"], false, "{said}");
    let next = client.complete(&greedy.id, json!([{ "text": "still usable" }]));
    assert_eq!(next["final_output"], "still usable");
}

/// One takes what it can while the other works; what the first says, where it lived to say it.
fn beside(client: &Client, greedy: &Lodging, neighbour: &Lodging, input: &Value) -> Option<Value> {
    let work = "for i in 1 2 3 4 5; do seq 1 20000 | sort -R | sort -n | tail -1; sleep 1; done";
    let began = Instant::now();
    let working = client.submit(&neighbour.id, json!([bash(work), { "text": "undisturbed" }]));
    let command = greedy.place("probe", PROBE, input);
    let _none = std::fs::remove_file(greedy.workspace.join("probe.out"));
    let taking = client.submit(&greedy.id, json!([bash(&command), { "text": "took it" }]));
    let ended = client.wait(&neighbour.id, &working, TURN);
    assert_eq!(
        (&ended["status"], &ended["final_output"]),
        (&json!("completed"), &json!("undisturbed")),
        "{ended}"
    );
    println!("the neighbour was done after {:.1} s", began.elapsed().as_secs_f32());
    let ended = client.wait(&greedy.id, &taking, TURN);
    assert!(began.elapsed() < Duration::from_mins(2), "it takes too long: {ended}");
    if ended["status"] == "completed" {
        return Some(greedy.answers("probe"));
    }
    println!("the greedy one: {}", ended["error"]);
    assert_eq!(ended["error"]["code"], "out_of_memory", "{ended}");
    None
}
