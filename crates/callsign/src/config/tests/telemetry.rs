//! `[telemetry]`.

use super::*;

fn node() -> Wrapped {
    let target = Some(Target::Command { command: "node".to_owned(), args: Vec::new() });
    Wrapped { name: ServerName::new("a").unwrap(), section: UseSection::No, target, inherit_env: None }
}

/// For the daemon and for `wrap`.
#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
    assert_eq!(mistakes(text, Purpose::Wrap(&node())), expected, "for wrap, for\n{text}");
}

/// `lines` behind a good `otlp`.
#[track_caller]
fn bad_lines(lines: &str, expected: &[&str]) {
    bad(&format!("[telemetry]\notlp = \"http://127.0.0.1:4318\"\n{lines}\n"), expected);
}

#[track_caller]
fn bad_url(url: &str, expected: &str) {
    bad(&format!("[telemetry]\notlp = \"{url}\"\n"), &[&format!("2:8: `telemetry.otlp`: {expected}")]);
}

#[track_caller]
fn telemetry(text: &str, purpose: Purpose<'_>) -> (Option<TelemetryConfig>, Vec<String>) {
    let config = read(text, purpose).unwrap_or_else(|errors| panic!("{errors}\nfor\n{text}"));
    (config.telemetry, config.warnings.iter().map(ToString::to_string).collect())
}

#[test]
fn spans_go_behind_the_base_url() {
    for (written, expected) in [
        ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
        ("http://127.0.0.1:4318/", "http://127.0.0.1:4318/v1/traces"),
        ("http://localhost:4318/v1/traces", "http://localhost:4318/v1/traces"),
        ("http://[::1]:4318/v1/traces/", "http://[::1]:4318/v1/traces"),
        ("https://api.example/otlp", "https://api.example/otlp/v1/traces"),
        ("http://10.0.0.7:4318", "http://10.0.0.7:4318/v1/traces"),
        ("http://collector:4318", "http://collector:4318/v1/traces"),
    ] {
        for purpose in [Purpose::Serve, Purpose::Wrap(&node())] {
            let (found, warnings) = telemetry(&format!("[telemetry]\notlp = \"{written}\"\n"), purpose);
            let (otlp, headers, service) = (expected.to_owned(), Vec::new(), "callsign".to_owned());
            assert_eq!(found, Some(TelemetryConfig { otlp, headers, service }));
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }
    assert_eq!(telemetry("", Purpose::Serve), (None, Vec::new()));
}

#[test]
fn headers_are_resolved_and_not_shown() {
    let text = "[telemetry]\notlp = \"https://api.example\"\nservice = \"mine\"\n[telemetry.headers]\n\
                Authorization = \"Bearer {env:TRACKER_TOKEN}\"\nX-Tenant = \"t\"\n";
    for purpose in [Purpose::Serve, Purpose::Wrap(&node())] {
        let found = telemetry(text, purpose).0.unwrap();
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let expected = [header("Authorization", "Bearer sk-CANARY-7f3a"), header("X-Tenant", "t")];
        assert_eq!(found.headers, expected);
        let shown = format!("{found:?}");
        assert!(shown.contains("X-Tenant") && shown.contains("mine") && !shown.contains("CANARY"), "{shown}");
    }
}

/// A host that clears the environment must not break every server.
#[test]
fn what_cannot_be_loaded_is_a_mistake_for_serve_and_a_warning_for_wrap() {
    let text = "[telemetry]\notlp = \"https://api.example\"\nheaders = { X = \"{env:NOT_SET}\", Y = \"{file:/nowhere/x}\" }\n";
    let set = "3:17: `telemetry.headers.X`: {env:NOT_SET}: the variable NOT_SET is not set";
    let file = "3:38: `telemetry.headers.Y`: {file:/nowhere/x}: could not read /nowhere/x: No such file or directory \
                (os error 2)";
    assert_eq!(mistakes(text, Purpose::Serve), [set, file]);
    let (found, warnings) = telemetry(text, Purpose::Wrap(&node()));
    assert_eq!(found, None);
    let expected = [set, file].map(|problem| format!("callsign.toml:{problem}; no spans are sent from here"));
    assert_eq!(warnings, expected);
}

#[test]
fn secrets_on_an_open_line_are_a_warning() {
    let text =
        |url: &str| format!("[telemetry]\notlp = \"{url}\"\nheaders = {{ X = \"{{env:TRACKER_TOKEN}}\" }}\n");
    let expected =
        "callsign.toml:2:8: `telemetry.otlp` is http: the headers can be read on the way; use https"
            .to_owned();
    for purpose in [Purpose::Serve, Purpose::Wrap(&node())] {
        let (found, warnings) = telemetry(&text("http://collector.example"), purpose);
        assert!(found.is_some());
        assert_eq!(warnings, std::slice::from_ref(&expected));
        for url in ["https://collector.example", "http://127.0.0.1:4318", "http://localhost:4318"] {
            assert_eq!(telemetry(&text(url), purpose).1, Vec::<String>::new());
        }
    }
}

#[test]
fn keys_and_shapes() {
    bad("telemetry = \"x\"\n", &["1:13: `telemetry` must be a table, not a string"]);
    bad("[telemetri]\n", &["1:2: unknown key `telemetri`; did you mean `telemetry`?"]);
    bad("[telemetry]\n", &["1:2: `telemetry` needs `otlp`, the url of a collector"]);
    bad(
        "[telemetry]\nurl = \"http://127.0.0.1:4318\"\n",
        &[
            "1:2: `telemetry` needs `otlp`, the url of a collector",
            "2:1: unknown key `url`; this table takes otlp, headers, service",
        ],
    );
    bad_lines("header = {}", &["3:1: unknown key `header`; did you mean `headers`?"]);
    bad(
        "[telemetry]\notlp = 4318\n",
        &["2:8: `telemetry.otlp` must be a string, not an integer; put it in quotes"],
    );
    bad("[telemetry]\notlp = \"\"\n", &["2:8: `telemetry.otlp` is empty"]);
    bad_lines("service = \"\"", &["3:11: `telemetry.service` is empty"]);
    bad_lines(
        "service = 1",
        &["3:11: `telemetry.service` must be a string, not an integer; put it in quotes"],
    );
    bad_lines("headers = []", &["3:11: `telemetry.headers` must be a table, not a list"]);
    bad_lines(
        "headers = { X = 1 }",
        &["3:17: `telemetry.headers.X` must be a string, not an integer; put it in quotes"],
    );
}

#[test]
fn urls() {
    let example = "give it in full, such as http://127.0.0.1:4318";
    bad_url("127.0.0.1:4318", example);
    bad_url("/v1/traces", example);
    bad_url("grpc://127.0.0.1:4317", "grpc: is not supported; use http or https");
    bad_url(
        "http://ann:sk-CANARY-7f3a@127.0.0.1/",
        "credentials do not go in the url; put them in `headers`",
    );
    bad_url(
        "http://127.0.0.1/?key=sk-CANARY-7f3a",
        "a query does not go here; put what it says in `headers`",
    );
    bad_url("http://127.0.0.1/#x", "such a url has no fragment; take out what starts with #");
    bad_url("http://{env:HOME}/", "placeholders are filled in for `headers`, not for the url");
    bad_url("http://127.0.0.1:0/", "its port must be a number from 1 to 65535");
    let never = "is a link-local or metadata address, to which callsign never connects";
    bad_url("http://169.254.169.254/", &format!("169.254.169.254 {never}"));
}

#[test]
fn headers_that_cannot_be_sent() {
    bad_lines(
        "headers = { X = \"{env:TRACKER_TOKEN}\", Y = \"{session.id} {host}\" }",
        &[
            "3:44: `telemetry.headers.Y`: {session.id} is a caller's, and spans of many are sent together; use \
           {env:NAME} or {file:PATH}",
        ],
    );
    bad_lines(
        "headers = { Content-Type = \"x\", \"X Y\" = \"x\", X-A = \"1\", x-a = \"2\" }",
        &[
            "3:13: `Content-Type` is written by the transport; take it out",
            "3:33: \"X Y\" is not the name of a header; use letters, digits and -",
            "3:57: `x-a` is there already, as `X-A`; keep one",
        ],
    );
    bad_lines(
        "headers = { X = \"é\" }",
        &[
            "3:17: `telemetry.headers.X` cannot be sent: it holds 'é'; a header takes visible ASCII characters only",
        ],
    );
    bad_lines(
        "headers = { X = \"{nonsense}\" }",
        &[
            "3:17: `telemetry.headers.X`: unknown placeholder {nonsense}; text with braces of its own goes in a \
           {file:PATH}",
        ],
    );
    // Whoever `wrap` serves without it learns why, and sees no secret.
    let text = "[telemetry]\notlp = \"http://127.0.0.1:4318\"\nheaders = { X = \"{env:TWO_LINES}\" }\n";
    let problem = "3:17: `telemetry.headers.X`: {env:TWO_LINES}: it holds '\\r'; a header takes visible ASCII characters only";
    assert_eq!(mistakes(text, Purpose::Serve), [problem]);
    let warnings = telemetry(text, Purpose::Wrap(&node())).1;
    assert_eq!(warnings, [format!("callsign.toml:{problem}; no spans are sent from here")]);
}
