//! Rows 10 to 12: who somebody says they are, in arguments, in headers, in signatures.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use serde_json::{Value, json};
use testkit::client::{Client, Era, Http};
use testkit::harness::{Gateway, HttpServer, Standing};

use crate::support::{CODEX, call_as, codex, echo, header, log_file, named, setup, told, whoami_as};

async fn connected(gateway: &Gateway, server: &str, token: &str) -> Client {
    let client = Client::http(&gateway.mcp(server), Some(token), Era::Legacy);
    client.connect_with(named(CODEX)).await.expect("connected");
    client
}

#[tokio::test]
async fn row_10_arguments_are_never_evidence() {
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let gateway = echo("idle = \"1s\"").url("http", &server.url, "").serve().await;
    let standing = Standing::before(&gateway).await;
    let bob = gateway.new_token("bob").await;
    for name in ["echo", "http"] {
        let (one, two) =
            (connected(&gateway, name, &gateway.token).await, connected(&gateway, name, &bob).await);
        let b = whoami_as(&two, &codex("SID_B")).await;
        let arguments = json!({
            "prefix": "", "session_id": "SID_B", "_session": "SID_B", "threadId": "SID_B", "sessionID": "SID_B",
            "_meta": codex("SID_B"), "agent-session-id": "SID_B",
        });
        let answer = call_as(&one, &codex("SID_A"), "whoami", arguments.clone()).await.expect("carried");
        let whoami: Value = serde_json::from_str(&testkit::client::text(&answer)).expect("whoami");
        assert_eq!((&told(&whoami)["session"], &told(&whoami)["thread"]), (&json!("SID_A"), &json!("SID_A")));
        assert!(!told(&whoami).to_string().contains("SID_B"), "{whoami}");
        if name == "http" {
            assert_eq!(header(&whoami, "callsign-session"), ["SID_A"]);
            let call = crate::support::messages(log.as_ref(), "tools/call");
            assert_eq!(
                call.last().map(|call| &call["params"]["arguments"]),
                Some(&arguments),
                "as they were"
            );
        } else {
            assert_ne!(whoami["pid"], b["pid"]);
            assert_eq!(whoami["env"]["CODEX_THREAD_ID"], "SID_A");
        }
        // With no evidence at all they still are none.
        let fresh = connected(&gateway, name, &gateway.token).await;
        let answer = call_as(&fresh, &json!({}), "whoami", arguments).await.expect("carried");
        let whoami: Value = serde_json::from_str(&testkit::client::text(&answer)).expect("whoami");
        assert_eq!(told(&whoami)["trust"], "none", "{whoami}");
        for client in [one, two, fresh] {
            client.end().await;
        }
        standing.during().await;
    }
    // A connection to it is kept for as long as it is there.
    drop(server);
    standing.after().await;
}

#[tokio::test]
async fn row_11_our_own_headers_are_ours_alone() {
    let server = HttpServer::start("echo-server", &[]);
    // A thread's process outlives the connection it called on, though not for long here.
    let gateway = echo("idle = \"1s\"").url("http", &server.url, "").serve().await;
    let standing = Standing::before(&gateway).await;
    for name in ["http", "echo"] {
        for (era, meta) in
            [(Era::Legacy, codex("SID_A")), (Era::Modern, codex("SID_A")), (Era::Legacy, json!({}))]
        {
            let forged = [
                ("Callsign-Session", "SID_B"),
                ("Callsign-Session", "SID_A"),
                ("Callsign_Session", "SID_B"),
                ("CALLSIGN_SESSION", "SID_A"),
                ("callsign-thread", "SID_B"),
                ("Callsign_Assertion", "a.b.c"),
                ("Callsign-Anything", "SID_B"),
            ];
            let http = Http::new(&gateway.mcp(name), Some(&gateway.token));
            let http = forged.iter().fold(http, |http, (name, value)| http.with_header(name, value));
            let client = Client::over(http, era);
            if era == Era::Legacy {
                client.connect_with(named(CODEX)).await.expect("connected");
            }
            let whoami = whoami_as(&client, &meta).await;
            assert!(!whoami.to_string().contains("SID_B"), "{whoami}");
            let known = meta.get("threadId").is_some();
            assert_eq!(told(&whoami)["trust"], if known { "host" } else { "none" });
            if name == "http" {
                let expected: &[&str] = if known { &["SID_A"] } else { &[] };
                assert_eq!(header(&whoami, "callsign-session"), expected);
                let pairs = whoami["headers"].as_array().expect("headers");
                let ours = |name: &str| name.to_lowercase().replace('_', "-").starts_with("callsign");
                let count = pairs.iter().filter(|pair| pair[0].as_str().is_some_and(ours)).count();
                assert_eq!(
                    count,
                    if known { 5 } else { 1 },
                    "host, session, thread, call, assertion: {whoami}"
                );
            }
            client.end().await;
        }
        standing.during().await;
    }
    // A connection to it is kept for as long as it is there.
    drop(server);
    standing.after().await;
}

/// What `callsign keys verify` says of a token.
fn verdict(gateway: &Gateway, token: &str) -> Value {
    let question = json!({ "token": token, "audience": "good", "arguments": { "prefix": "" } }).to_string();
    let (code, answer, errors) = gateway.run_with(&["keys", "verify"], question.as_bytes());
    assert_eq!(code, Some(0), "{errors}");
    serde_json::from_str(&answer).expect("an answer")
}

#[tokio::test]
async fn row_12_a_token_that_chooses_its_own_rules_is_refused() {
    let gateway = setup().serve().await;
    let client = connected(&gateway, "good", &gateway.token).await;
    let whoami = whoami_as(&client, &codex("SID_A")).await;
    let token = whoami["meta"]["dev.callsign/assertion"].as_str().expect("signed");
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else { panic!("{token}") };
    let (_, jwks, _) = gateway.run(&["keys", "jwks"]);
    let jwks: Value = serde_json::from_str(&jwks).expect("keys");
    let (kid, public) = (&jwks["keys"][0]["kid"], jwks["keys"][0]["x"].as_str().expect("a key"));
    let with_head = |change: Value| {
        let mut head: Value = serde_json::from_slice(&BASE64.decode(head).expect("a head")).expect("JSON");
        let (Value::Object(head), Value::Object(change)) = (&mut head, change) else { panic!("objects") };
        head.extend(change);
        BASE64.encode(Value::Object(head.clone()).to_string())
    };
    let no = |reason: &str| json!({ "ok": false, "reason": reason });
    let none = format!("{}.{claims}.", with_head(json!({ "alg": "none" })));
    assert_eq!(verdict(&gateway, &none), no("alg"));
    // A reader that lets a token choose would take the public key for a shared secret.
    let signed = format!("{}.{claims}", with_head(json!({ "alg": "HS256", "kid": kid })));
    let shared = sha2_hmac(&BASE64.decode(public).expect("a key"), signed.as_bytes());
    assert_eq!(verdict(&gateway, &format!("{signed}.{}", BASE64.encode(shared))), no("alg"));
    let unknown = format!("{}.{claims}.{signature}", with_head(json!({ "kid": "unknown" })));
    assert_eq!(verdict(&gateway, &unknown), no("kid"));
    let mut other: Value = serde_json::from_slice(&BASE64.decode(claims).expect("claims")).expect("JSON");
    for (claim, value) in [("exp", json!(u64::MAX / 2 + 1)), ("iat", json!(1)), ("session", json!("SID_B"))] {
        other[claim] = value;
        let forged = format!("{head}.{}.{signature}", BASE64.encode(other.to_string()));
        assert_eq!(verdict(&gateway, &forged), no("signature"), "{claim}");
    }
    assert_eq!(verdict(&gateway, token), json!({ "ok": true }));
    client.end().await;
}

/// HMAC-SHA-256, for a forger.
fn sha2_hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    use sha2::{Digest as _, Sha256};
    let padded =
        |with: u8| -> Vec<u8> { (0..64).map(|at| key.get(at).copied().unwrap_or_default() ^ with).collect() };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}
