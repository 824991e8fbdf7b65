//! Sessions with their subagents.

use ledger::{Begin, Outcome};
use serde_json::json;

use super::rig::{Desk, begin, of_subagent};

async fn desk() -> Desk {
    let desk = Desk::new();
    let writer = desk.writer();
    writer.call(begin("c1", "ses_1", 0), Outcome::Ok).await;
    writer.call(of_subagent("c2", ("ses_1", "sub_1", "ses_1"), 1_000), Outcome::Ok).await;
    writer.call(of_subagent("c3", ("ses_1", "sub_2", "sub_1"), 2_000), Outcome::Timeout).await;
    writer.call(of_subagent("c4", ("ses_1", "sub_1", "ses_1"), 3_000), Outcome::Canceled).await;
    // Their session made no call itself, and one of them names a parent that did not either.
    writer.call(of_subagent("c5", ("ses_2", "sub_4", "sub_3"), 4_000), Outcome::Ok).await;
    // A circle.
    writer.call(of_subagent("c6", ("ses_3", "x", "y"), 5_000), Outcome::Ok).await;
    writer.call(of_subagent("c7", ("ses_3", "y", "x"), 6_000), Outcome::Ok).await;
    let nobody = Begin { host: None, session: None, thread: None, trust: "none", ..begin("c8", "", 7_000) };
    writer.call(nobody, Outcome::Refused).await;
    writer.close();
    desk
}

#[tokio::test]
async fn subagents_stand_beneath_their_sessions() {
    let desk = desk().await;
    let expected = "\
SESSION       HOST      CALLS  ERRORS  FIRST (UTC)          LAST (UTC)
ses_1         opencode      1       0  2026-11-16 12:00:00  2026-11-16 12:00:00
└ sub_1       opencode      2       0  2026-11-16 12:00:01  2026-11-16 12:00:03
  └ sub_2     opencode      1       1  2026-11-16 12:00:02  2026-11-16 12:00:02
ses_2                       0       0
└ sub_3                     0       0
  └ sub_4     opencode      1       0  2026-11-16 12:00:04  2026-11-16 12:00:04
ses_3                       0       0
└ x           opencode      1       0  2026-11-16 12:00:05  2026-11-16 12:00:05
  └ y         opencode      1       0  2026-11-16 12:00:06  2026-11-16 12:00:06
nobody                      1       1  2026-11-16 12:00:07  2026-11-16 12:00:07
";
    assert_eq!(desk.run(&["calls", "--tree"]).stdout, expected);
}

#[tokio::test]
async fn a_root_is_one_object_with_its_subagents_in_it() {
    let desk = desk().await;
    let roots = desk.run(&["calls", "--tree", "--json"]).json();
    assert_eq!(roots.len(), 4);
    let node = |thread: &str, parent: Option<&str>| {
        json!({
            "session": "ses_1", "thread": thread, "parent": parent, "hosts": ["opencode"],
            "calls": 1, "errors": 0, "under_way": 0, "subagents": [],
            "first": "2026-11-16T12:00:00.000Z", "last": "2026-11-16T12:00:00.000Z",
        })
    };
    let (mut root, mut first, mut second) =
        (node("ses_1", None), node("sub_1", Some("ses_1")), node("sub_2", Some("sub_1")));
    for moment in ["first", "last"] {
        second[moment] = "2026-11-16T12:00:02.000Z".into();
    }
    second["errors"] = 1.into();
    first["subagents"] = json!([second]);
    first["calls"] = 2.into();
    first["first"] = "2026-11-16T12:00:01.000Z".into();
    first["last"] = "2026-11-16T12:00:03.000Z".into();
    root["subagents"] = json!([first]);
    assert_eq!(roots[0], root);
    assert!(roots[3]["session"].is_null() && roots[3]["thread"].is_null(), "{}", roots[3]);
}

#[tokio::test]
async fn filters_hold_and_no_limit_does_unless_it_is_said() {
    let desk = desk().await;
    let roots = |arguments: &[&str]| {
        let roots = desk.run(&[&["calls", "--tree", "--json"], arguments].concat()).json();
        roots.iter().map(|root| root["thread"].as_str().unwrap_or("nobody").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roots(&["--session", "ses_2"]), ["ses_2"]);
    assert_eq!(roots(&["--outcome", "refused"]), ["nobody"]);
    assert_eq!(roots(&["--limit", "2"]), ["ses_3", "nobody"]);
    let writer = desk.writer();
    for number in 0..100 {
        writer.call(begin("c", "ses_4", 8_000 + number), Outcome::Ok).await;
    }
    writer.close();
    let last = desk.run(&["calls", "--tree", "--json"]).json().pop().expect("a root");
    assert_eq!((&last["thread"], &last["calls"]), (&json!("ses_4"), &json!(100)));
}
