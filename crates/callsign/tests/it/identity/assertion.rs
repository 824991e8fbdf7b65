//! What servers are told is signed, so that they need not trust the way it came.

use std::path::PathBuf;
use std::time::Duration;

use callsign::identification::now_ms;
use identity::assertion::{Reject, Verified, Verifier};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Http};
use testkit::harness::{Files, HttpServer};

use crate::support::{CODEX, codex, log_file, messages, name_of, named, setup, told, whoami_as};

async fn wrapped(command: &[&str]) -> (Client, Files) {
    let (client, files) = setup().wrap(Era::Legacy, &[], command);
    client.connect_with(named(CODEX)).await.expect("connected");
    (client, files)
}

fn token(whoami: &Value) -> &str {
    whoami["meta"]["dev.callsign/assertion"].as_str().expect("it is signed")
}

fn jwks_file(whoami: &Value) -> PathBuf {
    whoami["env"]["CALLSIGN_JWKS_FILE"].as_str().expect("a server is told where the keys are").into()
}

/// Which key signed.
fn kid(token: &str) -> String {
    use base64::Engine as _;
    let head = token.split('.').next().expect("a head");
    let head = base64::prelude::BASE64_URL_SAFE_NO_PAD.decode(head).expect("base64url");
    let head: Value = serde_json::from_slice(&head).expect("JSON");
    assert_eq!((&head["alg"], &head["typ"]), (&json!("EdDSA"), &json!("agent-identity+jwt")));
    head["kid"].as_str().expect("a key").to_owned()
}

const ARGUMENTS: &[u8] = br#"{"prefix":""}"#;

fn verify(verifier: &Verifier, token: &str, arguments: &[u8]) -> Result<Verified, Reject> {
    verifier.verify_for("echo-server", token, Some(arguments), now_ms() / 1000)
}

#[tokio::test]
async fn a_server_verifies_what_it_was_told_with_the_crate() {
    let (client, _files) = wrapped(&[&bin("echo-server")]).await;
    let whoami = whoami_as(&client, &codex("thread")).await;
    let (token, verifier) = (token(&whoami), || Verifier::from_file(jwks_file(&whoami)).expect("keys"));
    let once = verifier();
    let verified = verify(&once, token, ARGUMENTS).expect("it verifies");
    assert!(verified.is_about("tools/call", Some("whoami")));
    assert!(!verified.is_about("tools/call", Some("echo")));
    let said = told(&whoami);
    let field = |id: &Option<identity::Id>| json!(id.as_ref().map(identity::Id::as_str));
    let identity = &verified.identity;
    assert_eq!(field(&identity.session), said["session"]);
    assert_eq!(field(&identity.thread), said["thread"]);
    assert_eq!(field(&identity.host), said["host"]);
    assert_eq!(json!(verified.call), said["call"]);
    assert_eq!(identity.trust.as_str(), said["trust"]);
    assert_eq!(verify(&once, token, ARGUMENTS), Err(Reject::Replay));
    assert_eq!(verify(&verifier(), token, br#"{"prefix":"X"}"#), Err(Reject::Arguments));
    let elsewhere = verifier().verify_for("other", token, Some(ARGUMENTS), now_ms() / 1000);
    assert_eq!(elsewhere, Err(Reject::Audience));
    // In a minute, and a moment, it is worth nothing.
    let late = verifier().verify_for("echo-server", token, Some(ARGUMENTS), now_ms() / 1000 + 61);
    assert_eq!(late, Err(Reject::Expired));
}

#[tokio::test]
async fn the_command_line_verifies_what_arrived_with_the_arguments_as_they_arrived() {
    let (_directory, log) = log_file();
    let setup = setup();
    let (client, files) =
        setup.wrap(Era::Legacy, &["--name", "srv"], &[&bin("logging-server"), "--log", &log]);
    client.connect_with(named(CODEX)).await.expect("connected");
    // Once its process runs, calls go out in their order.
    whoami_as(&client, &codex("thread")).await;
    // Spacing, order, escapes and numbers are the server's to read, not ours to keep.
    let arguments = [
        "{}",
        r#"{ "b" : 1.0, "a" : [ 1e2 , "\u00fc" ] }"#,
        r#"{"n":9007199254740993,"m":12345678901234567890123}"#,
        r#"{"deep":{"\/":null,"x":[{},[]]}}"#,
    ];
    for (number, arguments) in arguments.iter().enumerate() {
        let meta = codex("thread");
        let line = format!(
            r#"{{"jsonrpc":"2.0","id":"raw-{number}","method":"tools/call","params":{{"name":"echo","_meta":{meta},"arguments":{arguments}}}}}"#
        );
        assert!(client.send_bytes(format!("{line}\n").as_bytes()).await);
    }
    whoami_as(&client, &codex("thread")).await;
    let calls = messages(log.as_ref(), "tools/call");
    assert_eq!(calls.len(), arguments.len() + 2);
    let mut questions = Vec::new();
    for (call, sent) in calls[1..].iter().zip(arguments) {
        let token = &call["params"]["_meta"]["dev.callsign/assertion"];
        let question = |audience: &str, sent: &str| {
            let sent: Box<RawValue> = serde_json::from_str(sent).expect("JSON");
            let sent = sent.get();
            format!(r#"{{"token":{token},"audience":"{audience}","arguments":{sent}}}"#)
        };
        questions.extend([question("other", sent), question("srv", r#"{"b":2}"#), question("srv", sent)]);
        questions.push(question("srv", sent));
    }
    let verify = |arguments: &[&str]| {
        let (code, answers, errors) = setup.run_with(&files, arguments, questions.join("\n").as_bytes());
        assert_eq!(code, Some(0), "{errors}");
        let answers: Vec<Value> =
            answers.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        answers
    };
    let no = |reason: &str| json!({ "ok": false, "reason": reason });
    let answers = verify(&["keys", "verify"]);
    let expected = [no("audience"), no("args_digest"), json!({ "ok": true }), no("replay")];
    assert_eq!(answers, expected.iter().cycle().take(answers.len()).cloned().collect::<Vec<_>>());
    assert_eq!(answers.len(), questions.len());
    let answers = verify(&["keys", "verify", "--require", "bound"]);
    assert!(
        answers.iter().filter(|answer| **answer == no("trust")).count() >= arguments.len(),
        "{answers:?}"
    );
}

#[tokio::test]
async fn a_rotation_is_taken_notice_of_by_a_wrap_that_runs() {
    let (client, files) = wrapped(&[&bin("echo-server")]).await;
    let before = whoami_as(&client, &codex("thread")).await;
    let keys_of_the_start = Verifier::from_file(jwks_file(&before)).expect("keys");
    let (code, rotated, errors) = setup().run(&files, &["keys", "rotate", "--json"]);
    assert_eq!(code, Some(0), "{errors}");
    let rotated: Value = serde_json::from_str(&rotated).expect("JSON");
    // Within a second, says the file; a second call is needed to see it.
    let mut after = whoami_as(&client, &codex("thread")).await;
    for _ in 0..30 {
        if kid(token(&after)) != kid(token(&before)) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        after = whoami_as(&client, &codex("thread")).await;
    }
    assert_eq!(json!(kid(token(&after))), rotated["kid"], "the new key signs");
    assert_eq!(after["pid"], before["pid"], "and nothing was started again for it");
    // Who read the keys before verifies both: the old one stays published, the new one is looked up.
    assert!(verify(&keys_of_the_start, token(&before), ARGUMENTS).is_ok());
    assert!(verify(&keys_of_the_start, token(&after), ARGUMENTS).is_ok());
}

#[tokio::test]
async fn the_public_keys_are_for_everybody_and_as_new_as_any_signature() {
    let gateway = setup().serve().await;
    let http = Http::new(&gateway.at("/.well-known/jwks.json"), None);
    let published = http.get(&[]).await;
    assert_eq!((published.status, published.header("content-type")), (200, Some("application/json")));
    let (_, printed, _) = gateway.run(&["keys", "jwks"]);
    let printed: Value = serde_json::from_str(&printed).expect("JSON");
    assert_eq!(published.json(), printed);
    assert_eq!(printed["keys"].as_array().map(Vec::len), Some(1));
    assert!(printed["keys"][0].get("d").is_none(), "the public half: {printed}");
    // Another process signs with a new key before this one signs anything.
    let (code, _, errors) = gateway.run(&["keys", "rotate"]);
    assert_eq!(code, Some(0), "{errors}");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(http.get(&[]).await.json()["keys"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn arguments_that_two_readers_would_read_differently_are_refused() {
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let gateway = setup()
        .server("pipe", &[&bin("logging-server"), "--log", &log], "")
        .url("http", &server.url, "")
        .serve()
        .await;
    let twice = [r#"{"a":1,"a":2}"#, r#"{"a":1,"\u0061":1}"#, r#"{"x":[{"deep":{"b":1,"b":2}}]}"#];
    for name in ["pipe", "http"] {
        let client = gateway.client(name, Era::Legacy);
        client.connect_with(named(CODEX)).await.expect("connected");
        for arguments in twice {
            let meta = codex("thread");
            let body = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"echo","_meta":{meta},"arguments":{arguments}}}}}"#
            );
            let answer = client.raw().post(body, &[("mcp-protocol-version", "2025-11-25")]).await;
            let error = testkit::client::Failure::Rpc(answer.json()["error"].clone());
            assert_eq!(name_of(&error), "arguments_invalid", "{name}: {}", answer.text());
        }
    }
    assert_eq!(messages(log.as_ref(), "tools/call").len(), 0, "no server was called");
}
