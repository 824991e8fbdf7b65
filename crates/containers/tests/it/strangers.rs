//! Containers that are not ours: whatever their names and labels say, nothing happens to them.

use std::time::Duration;

use model::ports::sandbox::BoxState;
use serde_json::json;

use crate::harness::{BOTH, World};

#[test]
fn containers_of_others_are_neither_told_of_nor_touched() {
    for kind in BOTH {
        let world = World::new(kind);
        let mut daemon = world.daemon();
        daemon.start(&world.spec("mine", ""));
        let named = |name: &str| world.container(name);
        // All that a box of ours has, but for what is said otherwise.
        let like = |owner: &str, name: &str| {
            let mut labels = world.inspect(&world.container("mine"))["Config"]["Labels"].clone();
            labels["dev.callsign.owner"] = json!(owner);
            labels["dev.callsign.box"] = json!(name);
            labels
        };
        let strangers = [
            ("somebody".to_owned(), "somebody", json!({})),
            // Our name, and no labels.
            (named("unlabelled"), "unlabelled", json!({})),
            // Our name, and the labels of another owner.
            (named("foreign"), "foreign", like("another", "foreign")),
            // Our name, our owner, and the label of another box.
            (named("mixed"), "mixed", like(&world.owner, "mine")),
            // Our labels, and another name: made of an image that was made of a box.
            ("copied".to_owned(), "copied", like(&world.owner, "copied")),
            // The name of another owner whose name and box read the same together.
            (format!("callsign-{}-a-b", world.owner), "a-b", like(&format!("{}-a", world.owner), "b")),
        ];
        let ids: Vec<String> =
            strangers.iter().map(|(name, _, labels)| world.stranger(name, labels)).collect();
        let found = daemon.found();
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["mine"], "{kind:?}");
        for (_, name, _) in &strangers {
            assert_eq!(daemon.state(name), BoxState::Absent, "{kind:?}: {name}");
            daemon.ask(&json!({ "Stop": [name, Duration::from_millis(100)] }));
            daemon.ask(&json!({ "Kill": name }));
            assert_eq!(daemon.ask(&json!({ "Usage": name })), json!(null), "{kind:?}: {name}");
            assert_eq!(daemon.ask(&json!({ "Properties": name })), json!(null), "{kind:?}: {name}");
            daemon.ask(&json!({ "Forget": name }));
        }
        for name in ["unlabelled", "foreign", "mixed", "a-b"] {
            let error = daemon.refused(&world.spec(name, ""));
            assert!(error.contains("not ours"), "{kind:?}: {name}: {error}");
            daemon.ask(&json!({ "Forget": name }));
        }
        for id in ids {
            assert_eq!(world.inspect(&id)["State"]["Running"], json!(true), "{kind:?}: a stranger was ended");
            world.api("DELETE", &format!("/containers/{id}?force=1"), None);
        }
        world.finish(daemon);
    }
}

#[test]
fn two_owners_have_boxes_of_one_name() {
    let world = World::new(crate::harness::Kind::Docker);
    let (mut one, mut other) = (world.daemon(), world.daemon_of("other", &world.at("engine.sock"), None));
    let spec = world.spec("same", "");
    one.start(&spec);
    assert_eq!(other.state("same"), BoxState::Absent);
    other.start(&spec);
    let state: BoxState = other.get(&json!({ "Kill": "same" }));
    assert!(matches!(state, BoxState::Ended(_)), "{state:?}");
    assert!(matches!(one.state("same"), BoxState::Running(_)));
    other.ask(&json!({ "Forget": "same" }));
    assert!(matches!(one.state("same"), BoxState::Running(_)));
    world.finish(one);
}
