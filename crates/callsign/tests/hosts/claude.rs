//! Claude Code with our hook: calls belong to the session of the moment, and to the agent that makes them.

use serde_json::{Value, json};
use testkit::hosts::claude::{Claude, Scope, Settings};
use testkit::hosts::{Arrived, Home};
use testkit::llm::{ScriptedModel, script};

use crate::support::{Servers, check_env, check_headers, check_identity, identity, install, words};

#[tokio::test]
async fn five_calls_over_a_clear_and_a_subagent_belong_to_the_session_and_agent_of_the_moment() {
    let (home, model) = (Home::new(), ScriptedModel::start());
    let servers = Servers::new(&home);
    let command = servers.command();
    Settings::new()
        .stdio("std", &words(&command), &json!({}))
        .http("rem", &servers.http.url)
        .write(&home, Scope::User);
    install(&home, "claude-code");
    let claude = Claude::start(&home, &model, Scope::User);
    let turn = script(&json!([one_each(), { "text": "end" }]));
    let twice = script(&json!([one_each(), one_each(), { "text": "end" }]));
    let before = claude.say(&turn).await.session;
    claude.clear().await;
    let after = claude.say(&twice).await.session;
    assert_ne!(before, after, "/clear made no new session");
    claude.say(&script(&json!([{ "spawn": turn }, { "text": "end" }]))).await;
    claude.say(&turn).await;

    let (stdio, http) = servers.calls(5).await;
    let agents: Vec<&Value> = [&stdio[3], &http[3]].map(|call| &identity(call)["thread"]).into();
    assert_eq!(agents[0], agents[1], "one subagent made both calls");
    assert!(agents[0].is_string() && *agents[0] != json!(after), "the subagent has no thread of its own");
    let agent = agents[0].clone();
    for (index, (stdio, http)) in stdio.iter().zip(&http).enumerate() {
        let session = json!(if index == 0 { &before } else { &after });
        let (thread, parent) =
            if index == 3 { (agent.clone(), session.clone()) } else { (session.clone(), Value::Null) };
        for call in [stdio, http] {
            check_call(call, &session, &thread, &parent);
        }
        check_env(
            stdio,
            &json!({
                "CLAUDE_CODE_SESSION_ID": session, "CALLSIGN_SESSION_ID": session,
                "CALLSIGN_THREAD_ID": thread, "CALLSIGN_PARENT_ID": parent,
                // Secrets of the host stay with the host.
                "ANTHROPIC_API_KEY": null, "CLAUDE_CODE_MESSAGING_TOKEN": null,
            }),
        );
        check_headers(
            http,
            &json!({ "callsign-session": session, "callsign-thread": thread, "callsign-parent": parent }),
        );
    }
    claude.close().await;
}

fn check_call(call: &Arrived, session: &Value, thread: &Value, parent: &Value) {
    check_identity(
        call,
        &json!({
            "host": "claude-code", "session": session, "thread": thread, "parent": parent,
            "call": call.meta()["claudecode/toolUseId"], "tool": "whoami", "trust": "host", "source": "hook",
        }),
    );
}

fn one_each() -> Value {
    json!({ "calls": [{ "tool": "std/whoami" }, { "tool": "rem/whoami" }] })
}
