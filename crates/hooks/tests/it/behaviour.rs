//! What hooks can rely on.

use std::time::Duration;

use bytes::Bytes;
use hooks::{Draft, Ended, FaultKind, Input, Limits};

use crate::{Files, draft, header, input, load, text};

/// A hook of one handler before a call.
fn before(body: &str) -> String {
    format!("export default {{\n  \"mcp.call.before\": async (input, output) => {{\n{body}\n  }},\n}}\n")
}

async fn run(body: &str) -> Draft {
    let files = Files::new(&[("a.js", &before(body))]);
    files.load(&[]).unwrap().run(&input(), draft()).await.unwrap()
}

#[tokio::test]
async fn three_files_add_override_and_remove_in_their_order() {
    let files = Files::new(&[
        (
            "a.js",
            &before("output.headers['X-A'] = '1'; output.headers['X-STATIC'] = 'a'; output.env.E = 'a'"),
        ),
        (
            "b.js",
            &before(
                "output.headers['x-a'] += output.headers['x-static']; delete output.headers.AUTHORIZATION",
            ),
        ),
        (
            "c.js",
            &before(
                "output.headers['X-B'] = Object.keys(output.headers).join(); output.env.E = output.env.E + 'c'",
            ),
        ),
    ]);
    let done = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap();
    let expected = [("X-STATIC", "a"), ("x-a", "1a"), ("X-B", "X-STATIC,x-a")];
    let expected: Vec<(String, String)> =
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    assert_eq!(done.headers, expected);
    assert_eq!(done.env, [("E".to_owned(), "ac".to_owned())]);
    let turned = files.load(&["c.js", "b.js"]).unwrap().run(&input(), draft()).await.unwrap();
    assert_eq!(header(&turned, "X-B"), Some("Authorization,X-Static"));
    assert_eq!(header(&turned, "x-a"), Some("undefined1"));
}

#[tokio::test]
async fn what_is_not_touched_stays_byte_for_byte() {
    let done =
        run("input.arguments.n; output.arguments.n; output.meta['example.org/a'].b; output.headers").await;
    let begun = draft();
    assert!(!done.arguments_changed && !done.meta_changed);
    assert_eq!((done.headers, done.meta, done.arguments), (begun.headers, begun.meta, begun.arguments));
    let done = run(
        "output.arguments.text = 'x'; output.arguments.deep.a.push(3); output.meta['example.org/a'] = null",
    )
    .await;
    assert_eq!(
        text(done.arguments.as_ref()),
        r#"{"text":"x","n":12345678901234567890,"deep":{"a":[1,2,3]}}"#
    );
    assert_eq!(text(done.meta.as_ref()), r#"{"progressToken":7}"#);
    let done = run("output.arguments = { n: 1 }; output.meta = undefined").await;
    assert_eq!(
        (text(done.arguments.as_ref()), text(done.meta.as_ref())),
        (r#"{"n":1}"#, r#"{"progressToken":7}"#)
    );
    let done = run("output.arguments = null").await;
    assert_eq!(done.arguments, None);
}

#[tokio::test]
async fn nothing_of_a_call_is_there_in_the_next() {
    let text = "let calls = 0\nconst seen = new Map()\n".to_owned()
        + &before("calls++; seen.set(calls, 1); output.headers['X-Calls'] = `${calls} ${seen.size}`");
    let sibling = "let calls = 0\nexport const count = () => ++calls\n";
    let imports = "import { count } from './sibling.js'\n".to_owned()
        + &before("output.headers['X-Calls'] = `${count()} 1`");
    let files = Files::new(&[("plain.js", &text), ("sibling.js", sibling), ("imports.js", &imports)]);
    for name in ["plain.js", "imports.js"] {
        let chain = files.load(&[name]).unwrap();
        for _ in 0..3 {
            let done = chain.run(&input(), draft()).await.unwrap();
            assert_eq!(header(&done, "X-Calls"), Some("1 1"), "{name}");
        }
    }
}

#[tokio::test]
async fn state_is_kept_for_one_file_and_not_for_another() {
    let counts = before(
        "state.calls = (state.calls ?? 0) + 1; output.headers['X-Calls'] = `${output.headers['X-Calls'] ?? ''}${state.calls}`",
    );
    let files = Files::new(&[("a.js", &counts), ("b.js", &counts)]);
    let chain = files.load(&[]).unwrap();
    let only_a = hooks::Chain::new(chain.hooks(), &[files.path("a.js")]);
    only_a.run(&input(), draft()).await.unwrap();
    let done = chain.run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Calls"), Some("21"));
    let fresh = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap();
    assert_eq!(header(&fresh, "X-Calls"), Some("11"), "it is gone on reload");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_file_with_state_runs_one_call_at_a_time() {
    let text = before(
        "state.inside = (state.inside ?? 0) + 1; const seen = state.inside\n\
         for (let i = 0; i < 20000; i++) await null\n\
         state.inside--; state.calls = (state.calls ?? 0) + 1; output.headers['X-Seen'] = `${seen} ${state.calls}`",
    );
    let files = Files::new(&[("a.js", &text)]);
    let chain = files.load(&[]).unwrap();
    let mut calls = Vec::new();
    for _ in 0..8 {
        let chain = chain.clone();
        #[expect(clippy::disallowed_methods, reason = "every one is awaited below")]
        calls.push(tokio::spawn(async move { chain.run(&input(), draft()).await }));
    }
    let mut counted = Vec::new();
    for call in calls {
        let done = call.await.unwrap().unwrap();
        let (inside, count) = header(&done, "X-Seen").unwrap().split_once(' ').unwrap();
        assert_eq!(inside, "1", "two calls were in it at once");
        counted.push(count.parse::<u32>().unwrap());
    }
    counted.sort_unstable();
    assert_eq!(counted, (1..=8).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_file_that_runs_too_long_does_not_forget_its_state() {
    let text = before(
        "state.calls = (state.calls ?? 0) + 1\nif (input.tool === 'loop') for (;;) {}\noutput.headers['X-Calls'] = `${state.calls}`",
    );
    let files = Files::new(&[("a.js", &text)]);
    let chain = files.load(&[]).unwrap();
    let looping = Input { tool: Some("loop".into()), ..input() };
    assert_eq!(chain.run(&looping, draft()).await.unwrap_err().kind, FaultKind::Cpu);
    let done = chain.run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Calls"), Some("2"));
}

#[tokio::test]
async fn state_that_fills_the_memory_is_given_up() {
    let text = before(
        "state.all ??= []\nif (input.tool === 'fill') for (;;) state.all.push(new Array(1000).fill(0))\noutput.headers['X-All'] = `${state.all.length}`",
    );
    let files = Files::new(&[("a.js", &text)]);
    let paths = [files.path("a.js")];
    let limits = Limits::new(Duration::from_secs(2), 8 << 20);
    let hooks = load(vec![crate::file(&paths[0], "a.js")], limits).unwrap();
    let chain = hooks::Chain::new(&hooks, &paths);
    let fill = Input { tool: Some("fill".into()), ..input() };
    assert_eq!(chain.run(&fill, draft()).await.unwrap_err().kind, FaultKind::Memory);
    let done = chain.run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-All"), Some("0"));
}

#[tokio::test]
async fn a_failing_optional_file_is_skipped_with_all_it_did() {
    let files = Files::new(&[
        ("a.js", &before("output.headers['X-A'] = 'a'")),
        ("optional.js", &before("output.headers['X-A'] = 'b'; throw new Error('no')")),
        ("optional-broken.js", "export default {"),
        ("c.js", &before("output.headers['X-C'] = output.headers['X-A']")),
    ]);
    let done = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap();
    assert_eq!((header(&done, "X-A"), header(&done, "X-C")), (Some("a"), Some("a")));
}

#[tokio::test]
async fn what_is_wrong_is_said_with_file_and_line() {
    let rows = [
        ("\n    throw new Error('not today')", "hooks/a.js:4: not today"),
        ("await null\n    throw 'a string'", "hooks/a.js:2: a string"),
        ("\n\n    missing.call()", "hooks/a.js:5: ReferenceError: missing is not defined"),
        (
            "\n    output.headers['X-A'] = 1",
            "hooks/a.js:4: the header `X-A` must be a string, not a value of type number",
        ),
        ("output.headers['Host'] = 'x'", "hooks/a.js:3: `Host` is reserved"),
        ("output.env['LD_PRELOAD'] = 'x'", "hooks/a.js:3: `LD_PRELOAD` is reserved"),
        (
            "output.headers['X-A'] = 'a\\r\\nb'",
            "hooks/a.js:3: the value of the header `X-A` has a line break or a zero byte in it",
        ),
        (
            "await new Promise(() => {})",
            "hooks/a.js:2: its promise never settles: there is no timer and no network that could do it",
        ),
        (
            "for (;;) {}",
            "hooks/a.js:2: it used more than 50 ms of CPU time; raise timeout_ms in [hooks], or do less",
        ),
        ("throw new RangeError('far')", "hooks/a.js:3: RangeError: far"),
    ];
    for (body, expected) in rows {
        let files = Files::new(&[("a.js", &before(body))]);
        let fault = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap_err();
        assert_eq!(fault.to_string(), expected);
    }
    let rows = [
        (
            "export default {\n  x: 1,\n}",
            "hooks/a.js:1: x is not an event; there are mcp.call.before and mcp.call.after",
        ),
        (
            "export default {\n  'mcp.call.before': 1,\n}",
            "hooks/a.js:1: mcp.call.before must be a function, not a value of type number",
        ),
        (
            "export default 1",
            "hooks/a.js: the default export must be an object of hooks: export default { \"mcp.call.before\": … }",
        ),
        ("\n\nexport default { ] }", "hooks/a.js:3: SyntaxError: invalid property name"),
        (
            "\nimport './gone.js'\nexport default {}",
            "hooks/a.js:2: ReferenceError: `hooks/gone.js` cannot be imported: No such file or directory (os error 2)",
        ),
    ];
    for (whole, expected) in rows {
        let files = Files::new(&[("a.js", whole)]);
        let faults = files.load(&[]).unwrap_err();
        let said = faults[0].to_string();
        let (said, expected) = (said.split_once(": ").unwrap(), expected.split_once(": ").unwrap());
        assert_eq!(said.1, expected.1);
        assert!(said.0.starts_with("hooks/a.js"), "{said:?}");
    }
}

#[tokio::test]
async fn after_a_call_the_result_can_be_changed_and_a_failure_cannot() {
    let text = "export default {\n  'mcp.call.after'(input, output) {\n    if (!input.ok) { output.result = {}; return }\n    output.result.seen = [input.ok, input.error ?? null, input.arguments.q, input.durationMs]\n  },\n}\n";
    let files = Files::new(&[("a.js", text)]);
    let chain = files.load(&[]).unwrap();
    let ended = Ended {
        result: Some(Bytes::from_static(br#"{"big":12345678901234567890}"#)),
        ok: true,
        duration_ms: 1.5,
        arguments: Some(Bytes::from_static(br#"{"q":"x"}"#)),
        ..Ended::default()
    };
    let done = chain.run(&input(), ended).await.unwrap();
    assert_eq!(
        super::text(done.result.as_ref()),
        r#"{"big":12345678901234567890,"seen":[true,null,"x",1.5]}"#
    );
    let failed = Ended { error: Some("gone".to_owned()), ..Ended::default() };
    let fault = chain.run(&input(), failed).await.unwrap_err();
    assert_eq!(fault.to_string(), "hooks/a.js:3: the call failed: there is no result to change");
}

#[tokio::test]
async fn common_ways_of_writing_work_although_everything_is_frozen() {
    let text = "class Denied extends Error {\n  constructor(why) { super(why); this.name = 'Denied' }\n}\n"
        .to_owned()
        + &before(
            "const error = new Error('x'); error.name = 'Mine'; error.message = 'y'\n\
             const own = { a: 1 }; own.toString = () => 'own'; own.constructor = 1\n\
             const list = [3, 1, 2]; list.sort(); list.extra = 1\n\
             const date = new Date(0); date.setFullYear(2020)\n\
             output.headers['X-Own'] = `${own} ${error.name} ${list} ${date.getFullYear()} ${'a-b'.replace(/-/g, '+')}`\n\
             const { headers } = output; Object.assign(headers, { 'X-More': 'm' })\n\
             try { throw new Denied('no') } catch (error) { headers['X-Error'] = String(error) }\n\
             headers['X-Uuid'] = crypto.randomUUID(); headers['X-All'] = String('x-own' in headers && Object.keys({ ...headers }).length)",
        );
    let files = Files::new(&[("a.js", &text)]);
    let done = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Own"), Some("own Mine 1,2,3 2020 a+b"));
    assert_eq!(header(&done, "X-Error"), Some("Denied: no"));
    assert_eq!(header(&done, "X-Uuid").map(str::len), Some(36));
    assert_eq!(header(&done, "X-All"), Some("6"));
}

#[tokio::test]
async fn every_engine_has_its_files_in_the_same_order() {
    // As a function it throws, because what it changes is frozen; as a module it works.
    let polyfill = "Array.prototype.mine ??= 1\n".to_owned() + &before("output.headers['X-First'] = '1'");
    let deny = before("if (input.tool === 'bad') throw new Error('denied')");
    let tag = before("output.headers['X-Tag'] = '1'; if (input.tool === 'loop') for (;;) {}");
    let files = Files::new(&[
        ("polyfill.js", &polyfill),
        ("optional.js", "export default {"),
        ("deny.js", &deny),
        ("tag.js", &tag),
    ]);
    let chain = files.load(&[]).unwrap();
    let call = |tool: &'static str| Input { tool: Some(tool.into()), ..input() };
    assert_eq!(chain.run(&call("bad"), draft()).await.unwrap_err().message, "denied");
    // Its engine is given up; those that come after it are new.
    assert_eq!(chain.run(&call("loop"), draft()).await.unwrap_err().kind, FaultKind::Cpu);
    for _ in 0..3 {
        assert_eq!(chain.run(&call("bad"), draft()).await.unwrap_err().message, "denied");
        let done = chain.run(&call("good"), draft()).await.unwrap();
        assert_eq!((header(&done, "X-First"), header(&done, "X-Tag")), (Some("1"), Some("1")));
    }
}

#[tokio::test]
async fn no_way_leads_past_the_checks() {
    for body in [
        "const C = output.constructor; const list = C.collect(output)[0] ?? []; list.push('host', 'Host', 'x')",
        "output.headers.constructor.collect(output)",
        "Object.getPrototypeOf(output).constructor.collect(output)",
        "[1].values().map((x) => x)",
        "Iterator.from([1])",
    ] {
        let files = Files::new(&[("a.js", &before(body))]);
        let fault = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Thrown, "{body}");
    }
    // Where built-in objects can be changed, what is written is checked all the same.
    let tampers = "import './empty.js'\n".to_owned()
        + &before(
            "Array.prototype.splice = function () {}; Object.keys = () => ['dev.callsign/identity']; output.meta = { 'dev.callsign/identity': 1 }",
        );
    let many = "import './empty.js'\n".to_owned()
        + &before(
            "Object.defineProperty(Array.prototype, 'length', { get: () => 0 }); for (let i = 0; i < 300; i++) output.headers['X-' + i] = 'x'",
        );
    let files = Files::new(&[("empty.js", "export {}"), ("tampers.js", &tampers), ("many.js", &many)]);
    for name in ["tampers.js", "many.js"] {
        let outcome = files.load(&[name]).unwrap().run(&input(), draft()).await;
        assert_eq!(outcome.unwrap_err().kind, FaultKind::Thrown, "{name}");
    }
}

#[tokio::test]
async fn a_name_that_cannot_be_written_again_keeps_the_call_from_being_changed() {
    let files = Files::new(&[("a.js", &before("output.arguments.q = 1"))]);
    let chain = files.load(&[]).unwrap();
    let half = Draft { arguments: Some(Bytes::from_static(br#"{"\ud800":1,"path":"x"}"#)), ..draft() };
    let fault = chain.run(&input(), half).await.unwrap_err();
    assert!(fault.message.contains("half a character"), "{fault}");
}

#[tokio::test]
async fn state_and_imports_do_not_go_together() {
    let uses = "import './empty.js'\n".to_owned() + &before("globalThis.state.x = 1");
    let mentions = "import './empty.js'\n// no state here\n".to_owned() + &before("");
    let files = Files::new(&[("empty.js", "export {}"), ("uses.js", &uses), ("mentions.js", &mentions)]);
    let faults = files.load(&["uses.js"]).unwrap_err();
    assert!(faults[0].message.contains("cannot keep globalThis.state"), "{:?}", faults[0]);
    assert!(files.load(&["mentions.js"]).is_ok());
}

#[tokio::test]
async fn a_caller_cannot_make_a_file_forget() {
    let text = before(
        "state.calls = (state.calls ?? 0) + 1\nif (input.tool === 'fill') { const all = []; for (;;) all.push(new Array(1000).fill(0)) }\noutput.headers['X-Calls'] = `${state.calls}`",
    );
    let files = Files::new(&[("a.js", &text)]);
    let paths = [files.path("a.js")];
    let hooks =
        load(vec![crate::file(&paths[0], "a.js")], Limits::new(Duration::from_secs(2), 8 << 20)).unwrap();
    let chain = hooks::Chain::new(&hooks, &paths);
    let fill = Input { tool: Some("fill".into()), ..input() };
    assert_eq!(chain.run(&fill, draft()).await.unwrap_err().kind, FaultKind::Memory);
    let done = chain.run(&input(), draft()).await.unwrap();
    assert_eq!(header(&done, "X-Calls"), Some("2"));
}

#[tokio::test]
async fn what_could_not_be_parsed_is_not_quoted() {
    let files =
        Files::new(&[("a.js", &before("JSON.parse('{\"a\": ghp_16C7e42F292c6912E7710c838347Ae178B4a}')"))]);
    let fault = files.load(&[]).unwrap().run(&input(), draft()).await.unwrap_err();
    assert!(fault.message.starts_with("SyntaxError") && !fault.message.contains("ghp"), "{fault}");
}

#[test]
fn a_broken_edit_of_an_optional_file_keeps_the_old_one() {
    let files = Files::new(&[("optional.js", &before(""))]);
    let spec = |files: &Files| hooks::Spec {
        files: vec![crate::file(&files.path("optional.js"), "optional.js")],
        env: Vec::new(),
        limits: Limits::default(),
        rules: crate::rules(),
    };
    let old = hooks::Hooks::load(&spec(&files)).unwrap();
    std::fs::write(files.path("optional.js"), "export default {").unwrap();
    let new = hooks::Hooks::reload(&spec(&files), Some(&old)).unwrap();
    assert_eq!(new.files().next().unwrap().events.len(), 1);
    let fresh = hooks::Hooks::load(&spec(&files)).unwrap();
    assert!(fresh.files().next().unwrap().events.is_empty());
}
