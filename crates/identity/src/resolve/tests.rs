use std::collections::HashMap;

use model::host::Place;
use model::{Id, Placeholder};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::Headers;
use crate::seal::{Payload, SealKey, seal, tool_name};

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

#[derive(Default)]
struct Sent(HashMap<&'static str, String>);

impl Headers for Sent {
    fn header(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.get(name).map(|value| Cow::Borrowed(value.as_str()))
    }
}

#[expect(clippy::unnecessary_wraps, reason = "what it is compared with is one")]
fn id(text: &str) -> Option<Id> {
    Some(Id::new(text).unwrap())
}

fn resolve(resolver: &Resolver, standing: &Standing, meta: &Value) -> Resolved {
    let meta = serde_json::to_vec(meta).unwrap();
    let evidence = Evidence { meta: Some(&meta), tool: Some("t"), now_ms: 1_000_000, ..Evidence::default() };
    resolver.resolve(standing, &evidence)
}

/// Host, session, thread, parent, turn, call; an empty one is absent.
#[track_caller]
fn check(client: &str, meta: &Value, expected: [&str; 6]) {
    let resolver = Resolver::default();
    let standing = resolver.standing(Channel::Pipe, Some(client), None, &|_| None);
    let Resolved { identity, .. } = resolve(&resolver, &standing, meta);
    let text = |id: &Option<Id>| id.as_ref().map_or(String::new(), Id::to_string);
    let found = [
        text(&identity.host),
        text(&identity.session),
        text(&identity.thread),
        text(&identity.parent),
        text(&identity.turn),
        text(&identity.call),
    ];
    assert_eq!(found, expected, "{client} {meta}");
    let trust = if expected[1].is_empty() { Trust::None } else { Trust::Host };
    assert_eq!(identity.trust, trust, "{client} {meta}");
}

#[test]
fn every_version_of_codex_says_who_calls() {
    let codex = "codex-mcp-client";
    // 0.122: the session was the conversation.
    let meta = json!({"progressToken": 1, "x-codex-turn-metadata": {"session_id": "s", "turn_id": "u"}});
    check(codex, &meta, ["codex", "s", "s", "", "u", ""]);
    // 0.125
    let meta = json!({"threadId": "s", "x-codex-turn-metadata": {"session_id": "s", "turn_id": "u"}});
    check(codex, &meta, ["codex", "s", "s", "", "u", ""]);
    // 0.145
    let meta = json!({"threadId": "t", "x-codex-turn-metadata": {"session_id": "s", "thread_id": "t", "turn_id": "u", "model": "m"}});
    check(codex, &meta, ["codex", "s", "t", "", "u", ""]);
    // 0.153 and 0.154
    let meta = json!({"threadId": "t", "callId": "c", "itemId": "i", "x-codex-turn-metadata": {"session_id": "s", "thread_id": "t", "turn_id": "u"}});
    check(codex, &meta, ["codex", "s", "t", "", "u", "c"]);
    // 0.156 to 0.166, a subagent
    let meta = json!({"threadId": "t", "sessionId": "s", "windowId": "t:0", "callId": "c", "itemId": "i",
        "x-codex-turn-metadata": {"session_id": "s", "thread_id": "t", "turn_id": "u", "parent_thread_id": "p", "subagent_kind": "thread_spawn"}});
    check(codex, &meta, ["codex", "s", "t", "p", "u", "c"]);
    // A client of Codex's own calls a tool: only the thread is Codex's word.
    check(
        codex,
        &json!({"mine": 1, "threadId": "t", "sessionId": "x", "callId": "y"}),
        ["codex", "t", "t", "", "", ""],
    );
    let meta = json!({"threadId": "t", "sessionId": "x", "x-codex-turn-metadata": {"thread_id": "other", "session_id": "x", "parent_thread_id": "x"}});
    check(codex, &meta, ["codex", "t", "t", "", "", ""]);
    // resources/*, and what is no id.
    check(codex, &json!({"progressToken": 1}), [""; 6]);
    check(codex, &json!({"threadId": 7}), [""; 6]);
    check(codex, &json!({"threadId": "a b"}), [""; 6]);
}

#[test]
fn every_other_host_says_who_calls() {
    check("opencode", &json!({"sessionID": "ses_1"}), ["opencode", "ses_1", "ses_1", "", "", ""]);
    check("opencode", &json!({"progressToken": 3}), [""; 6]);
    check("goose", &json!({"agent-session-id": "g"}), ["goose", "g", "g", "", "", ""]);
    let meta = json!({"vscode.conversationId": "v", "vscode.requestId": "r"});
    check("Visual Studio Code - Insiders", &meta, ["vscode", "v", "v", "", "r", ""]);
    check(
        "openai-mcp",
        &json!({"openai/session": "o", "openai/subject": "u"}),
        ["chatgpt", "o", "o", "", "", ""],
    );
    // A client that calls itself something else is known by its keys.
    check("something", &json!({"agent-session-id": "g"}), ["goose", "g", "g", "", "", ""]);
    // One that calls itself Codex is read as Codex.
    check("codex-mcp-client", &json!({"agent-session-id": "g"}), [""; 6]);
}

#[test]
fn headers_are_declared_whatever_the_channel() {
    let resolver = Resolver::default();
    for (name, value, host, session) in [
        ("x-openwebui-chat-id", "c", "openwebui", Some("c")),
        ("x-openhands-conversation-id", "c", "openhands", Some("c")),
        ("x-librechat-conversation-id", "c", "librechat", Some("c")),
        ("x-librechat-conversation-id", "{{LIBRECHAT_BODY_CONVERSATIONID}}", "", None),
    ] {
        let headers = Sent(HashMap::from([(name, value.to_owned())]));
        let standing = Standing::new(Channel::Token { local: true });
        let evidence = Evidence { headers: Some(&headers), ..Evidence::default() };
        let found = resolver.resolve(&standing, &evidence).identity;
        assert_eq!(found.session, session.and_then(id), "{name}");
        if session.is_some() {
            assert_eq!((found.host, found.trust, found.source), (id(host), Trust::Declared, Source::Header));
        }
    }
}

#[test]
fn what_the_configuration_names_is_evidence() {
    let host = HostSpec {
        name: Id::new("acme").unwrap(),
        client: Some("acme-agent".into()),
        fields: vec![
            (Placeholder::SessionId, Place::Meta("acme/session".into())),
            (Placeholder::ThreadId, Place::Header("x-acme-thread".into())),
            (Placeholder::SessionTitle, Place::Meta("acme/title".into())),
        ],
    };
    let resolver = Resolver { configured: vec![host], ..Resolver::default() };
    let standing = resolver.standing(Channel::Pipe, Some("acme-agent"), None, &|_| None);
    let found = resolve(&resolver, &standing, &json!({"acme/session": "s", "acme/title": "Tïtle"}));
    assert_eq!((found.identity.host, found.identity.session), (id("acme"), id("s")));
    assert_eq!(found.identity.title.as_deref(), Some("Tïtle"));
    // Twice is not at all.
    let evidence =
        Evidence { meta: Some(br#"{"acme/session":"a","acme\/session":"b"}"#), ..Evidence::default() };
    assert_eq!(resolver.resolve(&standing, &evidence).identity.trust, Trust::None);
}

#[test]
fn an_inherited_session_holds_until_a_call_contradicts_it() {
    let state = tempfile::tempdir().unwrap();
    let announcements = Announcements::new(state.path());
    let resolver = Resolver { announcements: Some(announcements.clone()), ..Resolver::default() };
    let inherited = |name: &str| (name == "CLAUDE_CODE_SESSION_ID").then(|| "old".to_owned());
    let standing = resolver.standing(Channel::Pipe, Some("claude-code"), None, &inherited);
    let call =
        |tool_use: &str| resolve(&resolver, &standing, &json!({"claudecode/toolUseId": tool_use})).identity;
    let first = call("1");
    assert_eq!((first.session, first.trust, first.call), (id("old"), Trust::Declared, id("1")));
    let hook = json!({"session_id": "new", "tool_name": "mcp__s__t", "tool_use_id": "2"});
    announcements.record(&serde_json::to_vec(&hook).unwrap(), 1_000_000).unwrap();
    let second = call("2");
    assert_eq!((second.session, second.trust, second.source), (id("new"), Trust::Host, Source::Hook));
    assert_eq!(call("3").trust, Trust::None, "after that the old one is not believed any more");
    // Not from another principal, and not what was inherited by a daemon.
    announcements.record(&serde_json::to_vec(&hook).unwrap(), 1_000_000).unwrap();
    let other = resolver.standing(Channel::Token { local: false }, Some("claude-code"), None, &inherited);
    assert_eq!(resolve(&resolver, &other, &json!({"claudecode/toolUseId": "2"})).identity.trust, Trust::None);
}

#[test]
fn initialize_declares_and_codex_inherits_nothing() {
    let resolver = Resolver::default();
    let meta = br#"{"agent-session-id":"g","orbit":{"workspace":" /w "}}"#;
    let standing = resolver.standing(Channel::Open, Some("goose"), Some(meta), &|_| None);
    let found = resolve(&resolver, &standing, &json!({}));
    assert_eq!((found.identity.session, found.identity.trust), (id("g"), Trust::Declared));
    assert_eq!(found.identity.source, Source::Initialize);
    assert_eq!(found.workspace.as_deref(), Some("/w"));
    let found = resolve(&resolver, &standing, &json!({"orbit.workspace": "/x"}));
    assert_eq!(found.workspace.as_deref(), Some("/x"));
    let everything = |_: &str| Some("OUTER".to_owned());
    let standing = resolver.standing(Channel::Pipe, Some("codex-mcp-client"), None, &everything);
    assert_eq!(resolve(&resolver, &standing, &json!({})).identity.trust, Trust::None);
}

fn sealed(session: &str, nonce: &str) -> String {
    let payload = Payload {
        session: session.into(),
        tool: tool_name("srv", "t"),
        at: 1_000_000,
        nonce: format!("{nonce:0>16}"),
        ..Payload::default()
    };
    seal(&SealKey::parse(KEY).unwrap(), &payload).unwrap()
}

#[test]
fn a_seal_counts_once_and_a_bad_one_is_recorded() {
    let seals = Some(Seals::new(SealKey::parse(KEY).unwrap(), "srv"));
    let resolver = Resolver { seals, ..Resolver::default() };
    let standing = resolver.standing(Channel::Pipe, Some("opencode"), None, &|_| None);
    let token = sealed("ses_1", "a");
    let call = |seal: &str| {
        let evidence =
            Evidence { seal: Some(seal), tool: Some("t"), now_ms: 1_000_000, ..Evidence::default() };
        resolver.resolve(&standing, &evidence)
    };
    let found = call(&token);
    assert_eq!((found.identity.thread, found.identity.trust), (id("ses_1"), Trust::Host));
    assert_eq!(found.identity.source, Source::Seal);
    for bad in [token.as_str(), "v1.x.y", "", &token[..token.len() - 1]] {
        let found = call(bad);
        assert_eq!(found.identity, Identity::default(), "{bad}");
        assert_eq!(found.spoof.len(), 1, "{bad}");
    }
}

/// Metadata with anything in it, the keys of hosts and ours among it.
fn metas() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        Just("threadId"),
        Just("sessionId"),
        Just("sessionID"),
        Just("agent-session-id"),
        Just("vscode.conversationId"),
        Just("openai/session"),
        Just("claudecode/toolUseId"),
        Just("dev.callsign/identity"),
        Just("orbit.workspace"),
        Just("x"),
    ];
    let value = prop_oneof![
        "[ -~]{0,6}".prop_map(Value::from),
        Just(Value::Null),
        any::<i8>().prop_map(Value::from),
        Just(json!({"session": "forged", "trust": "bound", "thread_id": "x"})),
    ];
    proptest::collection::hash_map(key, value, 0..6)
        .prop_map(|map| Value::Object(map.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
}

fn channels() -> impl Strategy<Value = Channel> {
    prop_oneof![
        Just(Channel::Pipe),
        Just(Channel::Token { local: true }),
        Just(Channel::Token { local: false }),
        Just(Channel::Open)
    ]
}

fn clients() -> impl Strategy<Value = Option<&'static str>> {
    prop_oneof![
        Just(None),
        Just(Some("codex-mcp-client")),
        Just(Some("opencode")),
        Just(Some("goose")),
        Just(Some("claude-code")),
        Just(Some("unknown"))
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Rules 1 and 2: our own names and a seal that does not verify change nothing.
    #[test]
    fn what_is_forged_is_worth_nothing(
        meta in metas(), channel in channels(), client in clients(), seal in "[ -~]{0,40}",
    ) {
        let resolver = Resolver {
            seals: Some(Seals::new(SealKey::parse(KEY).unwrap(), "srv")),
            ..Resolver::default()
        };
        let standing = || resolver.standing(channel.clone(), client, None, &|_| None);
        let mut clean = meta.clone();
        clean.as_object_mut().unwrap().remove("dev.callsign/identity");
        let (meta, clean) = (serde_json::to_vec(&meta).unwrap(), serde_json::to_vec(&clean).unwrap());
        let evidence = Evidence { meta: Some(&clean), tool: Some("t"), now_ms: 1, ..Evidence::default() };
        let honest = resolver.resolve(&standing(), &evidence).identity;
        let forged = Evidence { meta: Some(&meta), seal: Some(&seal), ..evidence };
        let found = resolver.resolve(&standing(), &forged);
        prop_assert_eq!(&found.identity, &honest);
        prop_assert_eq!(found.spoof.len(), 1);
    }

    /// Rule 3: a client's name raises no trust, and nothing but a token or a pipe makes metadata the host's word.
    #[test]
    fn trust_comes_from_the_channel(meta in metas(), channel in channels(), client in clients()) {
        let resolver = Resolver::default();
        let standing = resolver.standing(channel.clone(), client, None, &|_| Some("inherited".to_owned()));
        let Identity { trust, source, session, thread, host, .. } = resolve(&resolver, &standing, &meta).identity;
        prop_assert!(trust <= channel.trust_in_metadata());
        prop_assert_eq!(trust == Trust::None, session.is_none());
        prop_assert_eq!(session.is_some(), thread.is_some() && host.is_some());
        prop_assert_eq!(trust == Trust::None, source == Source::None);
        if source == Source::Environment {
            prop_assert!(channel == Channel::Pipe && trust == Trust::Declared);
        }
    }

    /// Rule 4: whatever was said of the connection, a call's own evidence decides, and from a contradiction on what
    /// was said is not believed.
    #[test]
    fn a_calls_own_evidence_wins(said in "[a-c]", calls in proptest::collection::vec(proptest::option::of("[a-c]"), 1..8)) {
        let resolver = Resolver::default();
        let inherited = |_: &str| Some(said.clone());
        let standing = resolver.standing(Channel::Pipe, Some("goose"), None, &inherited);
        let mut contradicted = false;
        for call in calls {
            let meta = call.as_ref().map_or_else(|| json!({}), |call| json!({"agent-session-id": call}));
            let found = resolve(&resolver, &standing, &meta).identity;
            contradicted |= call.as_ref().is_some_and(|call| *call != said);
            let expected = match (&call, contradicted) {
                (Some(call), _) => (id(call), Trust::Host),
                (None, false) => (id(&said), Trust::Declared),
                (None, true) => (None, Trust::None),
            };
            prop_assert_eq!((found.session, found.trust), expected);
        }
    }
}
