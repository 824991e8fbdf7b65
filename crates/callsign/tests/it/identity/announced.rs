//! Claude Code: its hook announces who is about to call, and the call is joined with it, once.

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era};
use testkit::harness::{Files, Setup};

use crate::support::{named, setup, told, whoami_as};

fn hook(session: &str, tool_use: &str) -> Value {
    json!({
        "session_id": session, "transcript_path": "/nowhere", "cwd": "/nowhere", "prompt_id": "prompt-1",
        "permission_mode": "default", "hook_event_name": "PreToolUse", "tool_name": "mcp__srv__whoami",
        "tool_input": { "prefix": "" }, "tool_use_id": tool_use,
    })
}

fn uses(tool_use: &str) -> Value {
    json!({ "claudecode/toolUseId": tool_use })
}

struct Rig {
    setup: Setup,
    client: Client,
    files: Files,
}

impl Rig {
    async fn new(setup: Setup) -> Self {
        let (client, files) = setup.wrap(Era::Legacy, &["--name", "srv"], &[&bin("echo-server")]);
        client.connect_with(named("claude-code")).await.expect("connected");
        Self { setup, client, files }
    }

    fn announce(&self, hook: &Value) {
        let (code, out, errors) =
            self.setup.run_with(&self.files, &["announce"], hook.to_string().as_bytes());
        assert_eq!((code, out.as_str()), (Some(0), ""), "{errors}");
    }

    async fn whoami(&self, tool_use: &str) -> Value {
        whoami_as(&self.client, &uses(tool_use)).await
    }
}

#[tokio::test]
async fn a_call_belongs_to_the_session_whose_hook_announced_it_and_only_once() {
    let rig = Rig::new(setup()).await;
    rig.announce(&hook("session-1", "toolu_1"));
    let first = rig.whoami("toolu_1").await;
    let expected = json!({
        "host": "claude-code", "session": "session-1", "thread": "session-1", "turn": "prompt-1",
        "call": "toolu_1", "server": "srv", "tool": "whoami", "trust": "host", "source": "hook",
    });
    assert_eq!(*told(&first), expected);
    assert_eq!(first["env"]["CLAUDE_CODE_SESSION_ID"], "session-1");
    let again = rig.whoami("toolu_1").await;
    assert_eq!(told(&again)["trust"], "none", "used before: {again}");
    assert_eq!(told(&again)["call"], "toolu_1", "the host's own id of the call is still there");
    // After `/clear` the same pipe serves another session.
    rig.announce(&hook("session-2", "toolu_2"));
    let cleared = rig.whoami("toolu_2").await;
    assert_eq!(told(&cleared)["session"], "session-2");
    assert_ne!(cleared["pid"], first["pid"]);
}

#[tokio::test]
async fn a_subagent_calls_as_itself_for_its_session() {
    let rig = Rig::new(setup()).await;
    let mut announced = hook("session-1", "toolu_1");
    announced["agent_id"] = "agent-7".into();
    announced["agent_type"] = "general-purpose".into();
    rig.announce(&announced);
    rig.announce(&hook("session-1", "toolu_2"));
    let agent = rig.whoami("toolu_1").await;
    let said = told(&agent);
    assert_eq!((&said["session"], &said["thread"]), (&json!("session-1"), &json!("agent-7")));
    assert_eq!(said["parent"], "session-1");
    assert_eq!(agent["env"]["CLAUDE_CODE_SESSION_ID"], "session-1");
    let main = rig.whoami("toolu_2").await;
    assert_ne!(main["pid"], agent["pid"]);
    assert!(told(&main).get("parent").is_none(), "{main}");
}

#[tokio::test]
async fn an_announcement_is_for_one_tool_and_two_that_disagree_are_none() {
    let rig = Rig::new(setup()).await;
    let mut other = hook("session-1", "toolu_1");
    other["tool_name"] = "mcp__srv__echo".into();
    rig.announce(&other);
    assert_eq!(told(&rig.whoami("toolu_1").await)["trust"], "none");
    let echo = json!({ "name": "echo", "arguments": { "text": "x" }, "_meta": uses("toolu_1") });
    assert!(rig.client.request("tools/call", echo).await.is_ok());
    rig.announce(&hook("session-1", "toolu_2"));
    rig.announce(&hook("session-2", "toolu_2"));
    assert_eq!(told(&rig.whoami("toolu_2").await)["trust"], "none");
    // The same hook in two of the host's settings files says the same thing twice.
    rig.announce(&hook("session-1", "toolu_3"));
    rig.announce(&hook("session-1", "toolu_3"));
    assert_eq!(told(&rig.whoami("toolu_3").await)["session"], "session-1");
    // Nothing was said of this one.
    assert_eq!(told(&rig.whoami("toolu_4").await)["trust"], "none");
}

#[tokio::test]
async fn without_an_announcement_the_session_that_started_us_is_declared() {
    let rig = Rig::new(setup().env("CLAUDE_CODE_SESSION_ID", "session-at-start")).await;
    let declared = rig.whoami("toolu_1").await;
    assert_eq!(told(&declared)["session"], "session-at-start");
    let said = told(&declared);
    assert_eq!((&said["trust"], &said["source"]), (&json!("declared"), &json!("environment")));
    assert_eq!(said["call"], "toolu_1");
    rig.announce(&hook("session-after-clear", "toolu_2"));
    assert_eq!(told(&rig.whoami("toolu_2").await)["session"], "session-after-clear");
    // It has been shown to be stale.
    assert_eq!(told(&rig.whoami("toolu_3").await)["trust"], "none");
}

#[tokio::test]
async fn over_http_an_announcement_is_for_the_user_who_made_it() {
    let gateway = setup().server("srv", &[&bin("echo-server")], "").serve().await;
    let (mallory, url) = (gateway.new_token("mallory").await, gateway.mcp("srv"));
    let announced = hook("session-1", "toolu_1").to_string();
    let (code, _, errors) = gateway.run_with(&["announce"], announced.as_bytes());
    assert_eq!(code, Some(0), "{errors}");
    for era in Era::BOTH {
        let client = Client::http(&url, Some(&mallory), era);
        client
            .connect_with(if era == Era::Legacy { named("claude-code") } else { json!({}) })
            .await
            .expect("connected");
        assert_eq!(told(&whoami_as(&client, &uses("toolu_1")).await)["trust"], "none", "{era:?}");
    }
    let client = gateway.client("srv", Era::Legacy);
    client.connect_with(named("claude-code")).await.expect("connected");
    let whoami = whoami_as(&client, &uses("toolu_1")).await;
    assert_eq!(told(&whoami)["session"], "session-1", "she has not used it up");
    assert_eq!(told(&whoami)["trust"], "host");
    // Where there are no tokens, everybody would be that user.
    let open =
        setup().toml("[serve]\nauth = \"none\"").server("srv", &[&bin("echo-server")], "").serve().await;
    open.run_with(&["announce"], announced.as_bytes());
    let client = Client::http(&open.mcp("srv"), None, Era::Legacy);
    client.connect_with(named("claude-code")).await.expect("connected");
    assert_eq!(told(&whoami_as(&client, &uses("toolu_1")).await)["trust"], "none");
}

#[tokio::test]
async fn what_is_no_hook_is_an_error_that_stops_no_call() {
    let rig = Rig::new(setup()).await;
    let mut bad_id = hook("session 1", "toolu_1");
    bad_id["agent_id"] = "x".into();
    for input in ["", "{", "null", "[]", r#"{"session_id":1}"#, &bad_id.to_string()] {
        let (code, _, errors) = rig.setup.run_with(&rig.files, &["announce"], input.as_bytes());
        assert!(
            code.is_some_and(|code| code != 0 && code != 2),
            "{input}: {code:?}, 2 would refuse the call"
        );
        assert!(!errors.is_empty(), "{input}");
    }
    let (code, _, _) = rig.setup.run_with(&rig.files, &["announce"], &vec![b'x'; 1 << 20]);
    assert_ne!(code, Some(2));
    assert_eq!(told(&rig.whoami("toolu_1").await)["trust"], "none");
}
