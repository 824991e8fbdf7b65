use super::*;

/// At, session, thread, parent.
type Made<'a> = (u64, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn tree(calls: &[Made<'_>]) -> Tree {
    let mut tree = Tree::default();
    for (at, session, thread, parent) in calls {
        let own = |text: Option<&str>| text.map(str::to_owned);
        tree.add(&Call {
            at: *at,
            host: Some("codex".to_owned()),
            session: own(*session),
            thread: own(*thread),
            parent: own(*parent),
            outcome: Some(Outcome::Ok),
            ..call()
        });
    }
    tree
}

fn call() -> Call {
    Call {
        writer: 1,
        seq: 1,
        at: 0,
        host: None,
        session: None,
        thread: None,
        parent: None,
        run: None,
        turn: None,
        call: "c".to_owned(),
        server: "s".to_owned(),
        tool: None,
        method: "tools/call".to_owned(),
        workspace: None,
        trust: "none".to_owned(),
        source: None,
        digest: None,
        size: 0,
        arguments: None,
        spoof: None,
        outcome: None,
        reason: None,
        target: None,
        duration_ms: None,
        result_size: None,
        result: None,
        trace: None,
    }
}

/// Names with counts of calls, as they stand beneath each other.
#[track_caller]
fn check(calls: &[Made<'_>], expected: &[&str]) {
    let mut tree = tree(calls);
    let mut rows = Vec::new();
    for root in tree.link() {
        outline(&tree, root, 0, &mut rows);
    }
    assert_eq!(rows, expected);
}

fn outline(tree: &Tree, at: usize, depth: usize, rows: &mut Vec<String>) {
    let node = &tree.nodes[at];
    let name = node.thread.as_deref().unwrap_or("nobody");
    rows.push(format!("{}{name} {}", "  ".repeat(depth), node.calls));
    node.beneath.iter().for_each(|beneath| outline(tree, *beneath, depth + 1, rows));
}

#[test]
fn subagents_stand_beneath_whoever_started_them() {
    check(
        &[
            (5, Some("b"), Some("b"), None),
            (1, Some("a"), Some("a"), None),
            (2, Some("a"), Some("a1"), Some("a")),
            (3, Some("a"), Some("a2"), Some("a1")),
            (4, Some("a"), Some("a1"), Some("a")),
            (6, None, None, None),
        ],
        &["a 1", "  a1 2", "    a2 1", "b 1", "nobody 1"],
    );
}

#[test]
fn who_made_no_call_has_a_place_if_somebody_names_them() {
    check(&[(1, Some("a"), Some("a1"), Some("a"))], &["a 0", "  a1 1"]);
    check(&[(1, Some("a"), Some("a2"), Some("a1"))], &["a 0", "  a1 0", "    a2 1"]);
    check(&[(1, Some("a"), Some("a1"), None)], &["a 0", "  a1 1"]);
    // Where only the thread is known, it is a root of its own.
    check(&[(1, None, Some("x"), None), (2, None, Some("y"), Some("x"))], &["x 1", "  y 1"]);
    check(&[(1, None, Some("y"), Some("gone"))], &["y 1"]);
    // A session whose parent is a thread of another stands there; one whose parent nobody knows does not.
    check(
        &[
            (1, Some("a"), Some("a"), None),
            (2, Some("b"), Some("b"), Some("a")),
            (3, Some("c"), None, Some("gone")),
        ],
        &["a 1", "  b 1", "c 1"],
    );
}

#[test]
fn a_circle_is_opened() {
    check(&[(1, Some("a"), Some("a"), Some("a"))], &["a 1"]);
    check(&[(1, Some("a"), Some("x"), Some("x"))], &["a 0", "  x 1"]);
    check(
        &[(1, Some("a"), Some("x"), Some("y")), (2, Some("a"), Some("y"), Some("x"))],
        &["a 0", "  x 1", "    y 1"],
    );
    check(&[(1, Some("a"), Some("a"), Some("x")), (2, Some("a"), Some("x"), Some("a"))], &["a 1", "  x 1"]);
    check(&[(1, Some("a"), Some("a"), Some("b")), (2, Some("b"), Some("b"), Some("a"))], &["a 1", "  b 1"]);
}

fn count(node: &serde_json::Value) -> u64 {
    node["calls"].as_u64().unwrap() + node["subagents"].as_array().unwrap().iter().map(count).sum::<u64>()
}

#[test]
fn however_deep_it_is_it_ends() {
    let names: Vec<String> = (0..5000).map(|number| format!("t{number}")).collect();
    let calls: Vec<Made<'_>> = names
        .windows(2)
        .map(|pair| (1, Some("t0"), Some(pair[1].as_str()), Some(pair[0].as_str())))
        .collect();
    let mut out = Vec::new();
    tree(&calls).json(&mut out).unwrap();
    let root: serde_json::Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(count(&root), 4999);
}

#[test]
fn the_table_shows_the_lines_of_the_tree_and_no_escapes() {
    let mut out = Vec::new();
    let calls = [
        (1000, Some("a"), Some("a"), None),
        (2000, Some("a"), Some("\u{1b}[2J"), Some("a")),
        (3000, Some("a"), Some("z"), Some("a")),
    ];
    tree(&calls).text(&mut out, Page::default()).unwrap();
    let text = String::from_utf8(out).unwrap();
    let expected = "\
SESSION       HOST   CALLS  ERRORS  FIRST (UTC)          LAST (UTC)
a             codex      1       0  1970-01-01 00:00:01  1970-01-01 00:00:01
├ \\u{1b}[2J   codex      1       0  1970-01-01 00:00:02  1970-01-01 00:00:02
└ z           codex      1       0  1970-01-01 00:00:03  1970-01-01 00:00:03
";
    assert_eq!(text, expected);
}
