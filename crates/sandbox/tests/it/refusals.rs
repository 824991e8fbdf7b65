//! What is not started, and what is said about it.

use model::ports::sandbox::Bind;
use serde_json::json;

use crate::harness::{Who, World};

#[test]
fn without_bubblewrap_the_refusal_names_the_command() {
    let mut world = World::new(Who::Nobody);
    world.path = vec![world.at("nowhere")];
    let mut daemon = world.daemon();
    let error = daemon.refused(&world.spec("one", ""));
    for part in ["bubblewrap is not installed", "apt-get install bubblewrap", "dnf install", "pacman -S"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(daemon.ask(&json!("Probe"))["can_start"], json!(false));
    daemon.ask(&json!({ "Forget": "one" }));
    world.finish(daemon);
}

#[test]
fn a_command_that_is_not_there_is_named() {
    let world = World::new(Who::Nobody);
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    spec.command = "/opt/opencode".to_owned();
    let error = daemon.refused(&spec);
    assert!(error.contains("/opt/opencode") && error.contains("No such file"), "{error}");
    world.finish(daemon);
}

#[test]
fn what_would_undo_a_wall_is_refused() {
    let world = World::new(Who::Nobody);
    let mut daemon = world.daemon();
    for target in ["/", "/proc", "/workspace", "relative", "/opt/../etc"] {
        let mut spec = world.spec("one", "");
        spec.binds.push(Bind { source: "/usr".into(), target: target.into() });
        assert!(daemon.refused(&spec).contains("nothing can be bound"), "{target}");
    }
    let mut spec = world.spec("one", "");
    spec.env.0.insert("A\0B".to_owned(), String::new());
    assert!(daemon.refused(&spec).contains("NUL"));
    daemon.ask(&json!({ "Forget": "one" }));
    world.finish(daemon);
}
