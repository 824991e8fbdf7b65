use super::*;

const FACTS: CallFacts<'static> = CallFacts {
    trace: Some(Trace { trace_id: [1; 16], span: [2; 8], parent: Some([3; 8]), flags: 1 }),
    row: None,
    start_unix_nanos: 1_000_000_000,
    duration: Duration::from_millis(250),
    method: "tools/call",
    tool: Some("echo"),
    server: "clumsies",
    host: Some("opencode"),
    session: Some("ses_1"),
    thread: Some("ses_2"),
    parent: Some("ses_1"),
    run: Some("run_1"),
    turn: Some("turn_1"),
    call: Some("call_1"),
    workspace: Some("/srv/project"),
    trust: Some("bound"),
    source: Some("seal"),
    spoof: Some("_meta.callsign/session, x-callsign-host"),
    outcome: Outcome::Ok,
    reason: None,
    error_code: None,
    transport: None,
    target: Some("pid 4711"),
    protocol_version: Some("2025-11-25"),
    mcp_session: Some("mcp-1"),
    request_id: Some("7"),
    arguments_size: Some(12),
    result_size: Some(34),
};

/// Attributes as lines.
fn lines(span: &Span) -> Vec<String> {
    let line = |(key, value): &(Cow<'static, str>, Value)| match value {
        Value::Str(text) => format!("{key}={text}"),
        Value::Int(number) => format!("{key}={number}i"),
        Value::Bool(_) | Value::Float(_) => format!("{key}={value:?}"),
        Value::StrArray(texts) => format!("{key}={texts:?}"),
    };
    span.attributes.iter().map(line).collect()
}

#[track_caller]
fn check(facts: &CallFacts<'_>, name: &str, has: &[&str], lacks: &[&str]) {
    let span = facts.span();
    assert_eq!(span.name, name);
    let lines = lines(&span);
    for line in has {
        assert!(lines.iter().any(|other| other == line), "{line} is not in {lines:#?}");
    }
    for key in lacks {
        assert!(!lines.iter().any(|line| line.starts_with(key)), "{key} is in {lines:#?}");
    }
    let mut keys: Vec<_> = span.attributes.iter().map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), span.attributes.len(), "a key stands twice");
}

#[test]
fn everything_that_is_known_is_said() {
    let span = FACTS.span();
    assert_eq!(
        lines(&span),
        [
            "mcp.method.name=tools/call",
            "gen_ai.tool.name=echo",
            "gen_ai.operation.name=execute_tool",
            "mcp.session.id=mcp-1",
            "mcp.protocol.version=2025-11-25",
            "jsonrpc.request.id=7",
            "network.transport=pipe",
            "callsign.pid=4711i",
            "callsign.server=clumsies",
            "callsign.host=opencode",
            "callsign.session=ses_1",
            "callsign.thread=ses_2",
            "callsign.parent=ses_1",
            "callsign.run=run_1",
            "callsign.turn=turn_1",
            "callsign.call=call_1",
            "callsign.workspace=/srv/project",
            "callsign.trust=bound",
            "callsign.source=seal",
            "callsign.outcome=ok",
            "callsign.spoof=[\"_meta.callsign/session\", \"x-callsign-host\"]",
            "callsign.arguments.size=12i",
            "callsign.result.size=34i",
        ]
    );
    assert_eq!(
        (span.name.as_str(), span.kind, &span.status),
        ("tools/call echo", Kind::Client, &Status::Unset)
    );
    assert_eq!((span.start_unix_nanos, span.end_unix_nanos), (1_000_000_000, 1_250_000_000));
    assert_eq!(Some(span.trace), FACTS.trace);
}

#[test]
fn what_is_not_known_is_left_out() {
    let facts = CallFacts {
        method: "ping",
        server: "s",
        outcome: Outcome::Ok,
        spoof: Some(""),
        ..CallFacts::default()
    };
    let span = facts.span();
    assert_eq!(lines(&span), ["mcp.method.name=ping", "callsign.server=s", "callsign.outcome=ok"]);
    assert_eq!(span.name, "ping");
}

#[test]
fn the_subject_of_a_call_goes_where_the_conventions_want_it() {
    let of = |method, tool| CallFacts { method, tool: Some(tool), ..FACTS };
    check(
        &of("prompts/get", "review"),
        "prompts/get review",
        &["gen_ai.prompt.name=review"],
        &["gen_ai.tool", "gen_ai.operation", "mcp.resource"],
    );
    for method in ["resources/read", "resources/subscribe", "resources/unsubscribe"] {
        // There are too many uris to be names.
        check(
            &of(method, "file:///a"),
            method,
            &["mcp.resource.uri=file:///a"],
            &["gen_ai.tool", "gen_ai.prompt", "gen_ai.operation"],
        );
    }
    check(&of("tools/list", "x"), "tools/list", &[], &["gen_ai.", "mcp.resource"]);
}

#[test]
fn a_name_that_is_made_up_is_no_name_of_a_span() {
    let long = "x".repeat(129);
    for tool in ["", "a b", "a\nb", "\u{1b}[31m", &long] {
        check(&CallFacts { tool: Some(tool), ..FACTS }, "tools/call", &["mcp.method.name=tools/call"], &[]);
    }
    for method in ["", "a b", "a\0", &long] {
        check(&CallFacts { method, ..FACTS }, "_OTHER", &[], &["gen_ai."]);
    }
    check(&CallFacts { method: "acme/thing", ..FACTS }, "acme/thing", &["mcp.method.name=acme/thing"], &[]);
}

#[test]
fn long_texts_are_cut_between_letters() {
    let long = "é".repeat(2000);
    let facts = CallFacts {
        method: "resources/read",
        tool: Some(&long),
        outcome: Outcome::Failed,
        reason: Some(&long),
        ..FACTS
    };
    let span = facts.span();
    assert_eq!(span.status, Status::Error("é".repeat(512)));
    assert!(lines(&span).contains(&format!("mcp.resource.uri={}", "é".repeat(512))));
}

#[test]
fn every_outcome_has_its_status_and_type() {
    let error = |text: &str| Status::Error(text.to_owned());
    let rows = [
        (Outcome::Ok, None, Status::Unset, None),
        (Outcome::Canceled, None, Status::Unset, None),
        (Outcome::ToolError, None, error("why"), Some("tool_error")),
        (Outcome::Timeout, None, error("why"), Some("timeout")),
        (Outcome::Timeout, Some(-32001), error("why"), Some("timeout")),
        (Outcome::Refused, Some(-32003), error("why"), Some("refused")),
        (Outcome::Failed, Some(-32602), error("why"), Some("-32602")),
        (Outcome::Failed, None, error("why"), Some("_OTHER")),
        (Outcome::Unknown, None, error("why"), Some("unknown")),
    ];
    for (outcome, error_code, status, error_type) in rows {
        let facts = CallFacts { outcome, error_code, reason: Some("why"), ..FACTS };
        let span = facts.span();
        assert_eq!(span.status, status, "{outcome:?}");
        let kind = if outcome == Outcome::Refused { Kind::Server } else { Kind::Client };
        assert_eq!(span.kind, kind, "{outcome:?}");
        let found = lines(&span);
        let of = |key: &str| found.iter().find_map(|line| line.strip_prefix(key));
        assert_eq!(of("error.type="), error_type, "{outcome:?}");
        assert_eq!(of("rpc.response.status_code="), error_code.map(|code| code.to_string()).as_deref());
        assert_eq!(of("callsign.outcome="), Some(outcome.as_str()));
        assert_eq!(Outcome::parse(outcome.as_str()), Some(outcome));
    }
    assert_eq!(Outcome::parse("fine"), None);
}

#[test]
fn of_an_address_only_host_and_port_are_told() {
    let of = |target| CallFacts { target: Some(target), ..FACTS };
    let secret = of("https://user:canary@tracker.example/mcp/canary?token=canary#canary");
    check(
        &secret,
        "tools/call echo",
        &[
            "network.transport=tcp",
            "network.protocol.name=http",
            "server.address=tracker.example",
            "server.port=443i",
        ],
        &["callsign.pid"],
    );
    assert!(!format!("{:?}", secret.span()).contains("canary"));
    check(
        &of("http://[::1]:7171/mcp"),
        "tools/call echo",
        &["server.address=::1", "server.port=7171i"],
        &["callsign.pid"],
    );
    check(&of("http://127.0.0.1"), "tools/call echo", &["server.port=80i"], &[]);
    check(&of("http:// canary"), "tools/call echo", &["network.transport=tcp"], &["server.address"]);
    check(
        &of("4711"),
        "tools/call echo",
        &["network.transport=pipe", "callsign.pid=4711i"],
        &["server.address"],
    );
    check(&of("pid ?"), "tools/call echo", &["network.transport=pipe"], &["server.", "callsign.pid"]);
    let told = CallFacts { target: None, transport: Some(Transport::Http), ..FACTS };
    check(&told, "tools/call echo", &["network.transport=tcp"], &["server.address"]);
    check(&CallFacts { target: None, ..FACTS }, "tools/call echo", &[], &["network."]);
}

#[test]
fn a_row_gives_the_same_span_each_time() {
    let row = CallFacts { trace: None, row: Some((1, 2)), ..FACTS };
    assert_eq!(row.span(), row.span());
    assert_eq!(row.span().trace, Trace::derived(Some("ses_1"), "call_1", (1, 2)));
    let live = CallFacts { trace: None, ..FACTS };
    assert_ne!(live.span().trace.trace_id, live.span().trace.trace_id);
    let late = CallFacts { start_unix_nanos: u64::MAX, duration: Duration::MAX, ..FACTS };
    assert_eq!(late.span().end_unix_nanos, u64::MAX);
}

#[test]
fn labels_of_methods_are_few() {
    assert!(METHODS.is_sorted());
    for method in METHODS {
        assert_eq!(method_label(method), method);
    }
    for made_up in ["", "tools/call ", "Tools/call", "x"] {
        assert_eq!(method_label(made_up), "other");
    }
}
