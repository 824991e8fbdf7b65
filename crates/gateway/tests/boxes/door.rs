//! What a box tries and is not let in with is noted all the same.

use std::sync::Arc;

use serde_json::json;
use supervise::Spawner;

use crate::rig::{OTHER, Request, Rig, call, guest};

pub(crate) async fn what_is_turned_away_at_the_door_is_noted(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let (one, other) = (guest("door_a"), guest("door_b"));
    let theirs = rig.open(&other, "client").await.unwrap();
    let shown = Request { token: Some(other.token.clone()), ..call("ses_1", "echo") };
    assert_eq!(rig.answer(&one, shown).await.status, 401);
    let named = Request {
        headers: vec![("Mcp-Session-Id", theirs)],
        body: json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string().into_bytes(),
        ..Request::default()
    };
    assert_eq!(rig.answer(&one, named).await.status, 404);
    let wanted = Request { server: Some(OTHER), ..call("ses_1", "echo") };
    assert_eq!(rig.answer(&one, wanted).await.status, 404);
    let calls = rig.calls("door_a");
    let noted: Vec<_> = calls
        .iter()
        .map(|call| {
            (call.server.as_str(), call.spoof.as_deref().unwrap_or(""), call.reason.as_deref().unwrap_or(""))
        })
        .collect();
    assert_eq!(
        noted,
        [
            ("srv", "token: it is not this box's", "wrong_token"),
            ("srv", "mcp-session-id: it is another's", "no_such_session"),
            ("other", "server: it is not this box's to call", "no_such_server"),
        ]
    );
    assert!(
        calls.iter().all(|call| call.trust == "bound" && call.run.as_deref() == Some("run_1")),
        "{calls:?}"
    );
    assert!(!format!("{calls:?}").contains("token-of"), "no token is written down");
    rig.close().await;
}

pub(crate) async fn those_who_knock_without_end_are_counted(spawner: Arc<Spawner>) {
    let rig = Rig::new(spawner, 10);
    let one = guest("door_c");
    for _ in 0..50 {
        let shown = Request { token: Some("wrong".to_owned()), ..call("ses_1", "echo") };
        assert_eq!(rig.answer(&one, shown).await.status, 401);
    }
    // What was not noted one by one is noted as a number when the box is gone.
    rig.front.end_bound("door_c");
    let calls = rig.calls("door_c");
    assert_eq!(calls.len(), 21);
    let last = calls.last().and_then(|call| call.spoof.as_deref());
    assert_eq!(last, Some("30 more that were turned away"));
    rig.close().await;
}
