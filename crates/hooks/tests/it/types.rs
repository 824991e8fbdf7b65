//! The type declarations name what the engine gives to a hook, and nothing else.

use std::collections::BTreeSet;

use bytes::Bytes;
use hooks::Ended;

use crate::{Files, draft, input};

/// The members of an interface of the declarations.
fn declared(name: &str) -> BTreeSet<String> {
    let body = hooks::TYPES.split(&format!("export interface {name} ")).nth(1).unwrap();
    let body = body.split_once('{').unwrap().1.split("\n}").next().unwrap();
    let member = |line: &str| {
        let line = line.trim().trim_start_matches("readonly ");
        let (name, _) = line.split_once(':')?;
        let name = name.trim_matches('"').trim_end_matches(['?', '"']).to_owned();
        name.chars().all(|character| character.is_alphanumeric() || character == '.').then_some(name)
    };
    body.lines().filter(|line| !line.trim().starts_with(['/', '*'])).filter_map(member).collect()
}

const LOOKS: &str = r#"
const keys = (object) => { const found = []; for (const key in object) found.push(key); return found }
const globals = () => [...Object.keys(console), ...Object.keys(process), ...Object.keys(crypto)]
export default {
  "mcp.call.before": (input, output) => {
    const frozen = [globalThis, console, process, process.env, crypto, Array.prototype].every(Object.isFrozen)
    output.meta.seen = { input: keys(input), output: keys(output), globals: globals(), frozen }
  },
  "mcp.call.after": (input, output) => {
    output.result.seen = { input: keys(input), output: keys(output) }
  },
}
"#;

#[tokio::test]
async fn what_is_declared_is_what_there_is() {
    let files = Files::new(&[("looks.js", LOOKS)]);
    let chain = files.load(&[]).unwrap();
    let set = |value: &serde_json::Value| -> BTreeSet<String> {
        value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    };
    let before = chain.run(&input(), draft()).await.unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&before.meta.unwrap()).unwrap();
    let seen = &meta["seen"];
    assert_eq!(set(&seen["input"]), declared("BeforeInput"));
    assert_eq!(set(&seen["output"]), declared("BeforeOutput"));
    assert_eq!(seen["frozen"], true);
    let result = Some(Bytes::from_static(b"{}"));
    let after = chain.run(&input(), Ended { result, ..Ended::default() }).await.unwrap();
    let result: serde_json::Value = serde_json::from_slice(&after.result.unwrap()).unwrap();
    let extended: BTreeSet<String> =
        declared("BeforeInput").into_iter().chain(declared("AfterInput")).collect();
    assert_eq!(set(&result["seen"]["input"]), extended);
    assert_eq!(set(&result["seen"]["output"]), declared("AfterOutput"));
    assert_eq!(declared("Hooks"), ["mcp.call.before", "mcp.call.after"].map(str::to_owned).into());
    for name in set(&seen["globals"]) {
        assert!(
            hooks::TYPES.contains(&format!("    {name}")) || hooks::TYPES.contains(&format!(" {name}:")),
            "{name}"
        );
    }
}
