//! The recipes of docs/hooks.md: the page shows the files, and the files do what the page says.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use hooks::{Chain, Draft, Ended, Fault, Input, Limits};
use serde_json::{Value, json};

use crate::{draft, file, header, input, load, text};

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("recipes")
}

fn chain(name: &str) -> Chain {
    let path = directory().join(name);
    let hooks = load(vec![file(&path, name)], Limits::default()).unwrap();
    Chain::new(&hooks, &[path])
}

fn refusal(outcome: Result<Draft, Fault>) -> String {
    outcome.unwrap_err().to_string()
}

async fn answered(chain: &Chain, input: &Input<'_>, result: &Value) -> Value {
    let result = Some(Bytes::from(result.to_string()));
    let ended = chain.run(input, Ended { result, ok: true, ..Ended::default() }).await.unwrap();
    serde_json::from_str(text(ended.result.as_ref())).unwrap()
}

#[test]
fn the_page_shows_the_files_as_they_are() {
    let page = std::fs::read_to_string(directory().join("../../../docs/hooks.md")).unwrap();
    let mut shown: Vec<&str> =
        page.split("```js\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    shown.retain(|block| block.starts_with("// recipes/"));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(shown.len(), files.len());
    for path in files {
        let content = std::fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(content.starts_with(&format!("// recipes/{name}\n")), "{name} does not say its name");
        assert!(shown.contains(&content.as_str()), "docs/hooks.md does not show {name} as it is");
    }
}

#[tokio::test]
async fn session_header() {
    let chain = chain("session-header.js");
    let done = chain.run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Session-Id"), Some("ses_1"));
    assert_eq!(header(&done, "X-Call-Id"), Some("call_1"));
    assert_eq!(header(&done, "X-User-Id"), Some("u1"));
    assert_eq!(header(&done, "Authorization"), Some("Bearer x"));
    let other = Input { server: "other".into(), thread: None, ..input() };
    let done = chain.run(&other, draft()).await.unwrap();
    assert_eq!((header(&done, "X-Session-Id"), header(&done, "X-User-Id")), (None, None));
}

#[tokio::test]
async fn tenant_by_workspace() {
    let chain = chain("tenant-by-workspace.js");
    let at = |workspace: &'static str| Input { workspace: Some(workspace.into()), ..input() };
    let done = chain.run(&at("/srv/acme/x"), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Tenant"), Some("acme"));
    let meta: Value = serde_json::from_str(text(done.meta.as_ref())).unwrap();
    assert_eq!(meta["example.org/tenant"], "acme");
    assert_eq!(meta["progressToken"], 7);
    for elsewhere in ["/srv/acme-old", "/home/x"] {
        let refused = refusal(chain.run(&at(elsewhere), draft()).await);
        assert!(refused.contains("tenant-by-workspace.js:16: the workspace"), "{refused}");
    }
}

#[tokio::test]
async fn deny_tool() {
    let chain = chain("deny-tool.js");
    let call = |session: &'static str, trust: &'static str| Input {
        tool: Some("delete_database".into()),
        thread: Some(session.into()),
        trust: trust.into(),
        ..input()
    };
    assert!(chain.run(&call("ses_operator", "host"), draft()).await.is_ok());
    assert!(chain.run(&input(), draft()).await.is_ok());
    for (session, trust) in [("ses_1", "host"), ("ses_operator", "declared")] {
        let refused = refusal(chain.run(&call(session, trust), draft()).await);
        assert!(refused.ends_with("is not for this session; ask an operator to run it"), "{refused}");
    }
    let list = Input { method: "tools/list".into(), tool: None, takes_arguments: false, ..input() };
    let tools = json!({ "tools": [{ "name": "echo" }, { "name": "delete_database" }], "nextCursor": "x" });
    let seen = answered(&chain, &list, &tools).await;
    assert_eq!(seen, json!({ "tools": [{ "name": "echo" }], "nextCursor": "x" }));
    let nobody = Input { thread: None, trust: "none".into(), ..list };
    assert_eq!(answered(&chain, &nobody, &tools).await, tools);
}

#[tokio::test]
async fn redact_result() {
    let chain = chain("redact-result.js");
    let result = json!({
        "content": [{ "type": "text", "text": "key sk-CANARY-7f3a, mail jo.doe+x@example.org." }],
        "structuredContent": { "a@b.example": ["sk-12345678", 3, null, true] },
        "isError": false,
    });
    let seen = answered(&chain, &input(), &result).await;
    assert_eq!(
        seen,
        json!({
            "content": [{ "type": "text", "text": "key [key], mail [e-mail]." }],
            "structuredContent": { "[e-mail]": ["[key]", 3, null, true] },
            "isError": false,
        })
    );
}

#[tokio::test]
async fn traceparent() {
    let chain = chain("traceparent.js");
    let one = chain.run(&input(), draft()).await.unwrap();
    let two = chain.run(&input(), draft()).await.unwrap();
    let of = |draft: &Draft| header(draft, "traceparent").unwrap().to_owned();
    assert_eq!(of(&one).len(), 55);
    assert_ne!(of(&one), of(&two));
    let given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let meta = Some(Bytes::from(json!({ "traceparent": given }).to_string()));
    let kept = chain.run(&input(), Draft { meta, ..draft() }).await.unwrap();
    assert_eq!(of(&kept), given);
    assert!(!kept.meta_changed, "what is there already is not written again");
}

#[tokio::test]
async fn pin_arguments() {
    let chain = chain("pin-arguments.js");
    let search = Input { tool: Some("search".into()), ..input() };
    let arguments = |json: Value| Draft { arguments: Some(Bytes::from(json.to_string())), ..draft() };
    let done =
        chain.run(&search, arguments(json!({ "limit": 5000, "debug": true, "q": "x" }))).await.unwrap();
    assert_eq!(text(done.arguments.as_ref()), r#"{"limit":100,"q":"x","region":"eu-west-1"}"#);
    let done = chain.run(&search, arguments(json!({ "limit": 7, "region": "us" }))).await.unwrap();
    assert_eq!(text(done.arguments.as_ref()), r#"{"limit":7,"region":"eu-west-1"}"#);
    let done = chain.run(&search, Draft { arguments: None, ..draft() }).await.unwrap();
    assert_eq!(text(done.arguments.as_ref()), r#"{"limit":100,"region":"eu-west-1"}"#);
    assert!(!chain.run(&input(), draft()).await.unwrap().arguments_changed);
}

#[tokio::test]
async fn rate_limit() {
    let chain = chain("rate-limit.js");
    for _ in 0..30 {
        chain.run(&input(), draft()).await.unwrap();
    }
    let refused = refusal(chain.run(&input(), draft()).await);
    assert!(refused.contains("has made 30 calls within a minute; try again in"), "{refused}");
    let other = Input { thread: Some("ses_2".into()), ..input() };
    chain.run(&other, draft()).await.unwrap();
}
