//! `[hooks]`, and the `hooks` of a server.

use model::HookFile;

use super::*;

fn name(name: &str) -> ServerName {
    ServerName::new(name).unwrap()
}

fn wrapped(called: &str, section: UseSection) -> Wrapped {
    let target = Some(Target::Command { command: "node".to_owned(), args: Vec::new() });
    Wrapped { name: name(called), section, target, inherit_env: None }
}

/// For the daemon, for `wrap` of another server, and for `wrap` without a section.
#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
    for section in [UseSection::Yes, UseSection::No] {
        let wrapped = wrapped("other", section);
        assert_eq!(mistakes(text, Purpose::Wrap(&wrapped)), expected, "for wrap, {section:?}, for\n{text}");
    }
}

/// `line` as the second of `[hooks]`.
#[track_caller]
fn bad_hooks(line: &str, expected: &[&str]) {
    bad(&format!("[hooks]\n{line}\n"), expected);
}

/// `line` as the second of a server, whichever way it is reached.
#[track_caller]
fn bad_server(line: &str, expected: &[&str]) {
    bad(&format!("[servers.a]\n{line}\ncommand = \"x\"\n"), expected);
    bad(&format!("[servers.a]\n{line}\nurl = \"https://a.example/mcp\"\n"), expected);
}

#[track_caller]
fn hooks(text: &str, purpose: Purpose<'_>) -> HooksConfig {
    read(text, purpose).unwrap_or_else(|errors| panic!("{errors}\nfor\n{text}")).hooks
}

fn file(path: &str, shown: &str) -> HookFile {
    HookFile { path: path.into(), shown: shown.to_owned(), optional: false }
}

fn optional(path: &str, shown: &str) -> HookFile {
    HookFile { optional: true, ..file(path, shown) }
}

#[test]
fn files_come_in_both_shapes_and_keep_their_order() {
    let text = r#"
[servers.b]
url = "https://b.example"
hooks = [{ path = "b.js" }, { path = "./a.js", optional = false }]

[servers.none]
command = "x"
hooks = []

[servers.a]
command = "x"
hooks = ["~/a.mjs", "../all.js"]

[hooks]
files = ["z.js", { path = "hooks/all.js", optional = true }, "/opt/a.b/no.min.js"]
"#;
    let expected = HooksConfig {
        files: vec![
            file("/etc/z.js", "z.js"),
            optional("/etc/hooks/all.js", "hooks/all.js"),
            file("/opt/a.b/no.min.js", "/opt/a.b/no.min.js"),
        ],
        of_server: vec![
            (name("b"), vec![file("/etc/b.js", "b.js"), file("/etc/a.js", "./a.js")]),
            (name("a"), vec![file("/home/ann/a.mjs", "~/a.mjs"), file("/etc/../all.js", "../all.js")]),
        ],
        ..HooksConfig::default()
    };
    assert_eq!(hooks(text, Purpose::Serve), expected);
    let tables = "[[hooks.files]]\npath = \"z.js\"\n[[hooks.files]]\npath = \"y.js\"\noptional = true\n";
    let expected = vec![file("/etc/z.js", "z.js"), optional("/etc/y.js", "y.js")];
    assert_eq!(hooks(tables, Purpose::Serve).files, expected);
}

#[test]
fn defaults_and_limits() {
    for text in ["", "[hooks]\n", "[hooks]\nfiles = []\nenv = []\n"] {
        let HooksConfig { files, of_server, env, timeout, memory } = hooks(text, Purpose::Serve);
        assert!(files.is_empty() && of_server.is_empty() && env.is_empty(), "for\n{text}");
        assert_eq!((timeout, memory), (Duration::from_millis(50), 16 << 20), "for\n{text}");
    }
    for (written, timeout) in [("1", 1), ("0x32", 50), ("10_000", 10_000)] {
        let text = format!("[hooks]\ntimeout_ms = {written}\n");
        assert_eq!(hooks(&text, Purpose::Serve).timeout, Duration::from_millis(timeout));
    }
    for (written, memory) in [(4, 4 << 20), (1024, 1 << 30)] {
        assert_eq!(hooks(&format!("[hooks]\nmemory_mb = {written}\n"), Purpose::Serve).memory, memory);
    }
}

/// Loaders' variables too: a hook that reads one runs nothing.
#[test]
fn the_environment_of_hooks_is_what_is_named_and_set() {
    let lookup = |name: &str| match name {
        "EMPTY" => Some(String::new()),
        "LD_PRELOAD" => Some("/opt/x.so".to_owned()),
        other => variable(other),
    };
    let text =
        "[hooks]\nenv = [\"TRACKER_TOKEN\", \"NOT_SET\", \"EMPTY\", \"LD_PRELOAD\", \"TRACKER_TOKEN\"]\n";
    let source = Source { text, shown: Path::new("callsign.toml"), directory: Path::new("/etc") };
    let config = parse(source, Purpose::Serve, Environment::new(&lookup)).unwrap();
    let expected = [("TRACKER_TOKEN", "sk-CANARY-7f3a"), ("EMPTY", ""), ("LD_PRELOAD", "/opt/x.so")];
    assert_eq!(config.hooks.env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let shown = format!("{config:?}");
    assert!(shown.contains("TRACKER_TOKEN") && !shown.contains("CANARY"), "{shown}");
}

#[test]
fn wrap_takes_the_hooks_for_all_and_those_of_the_section_it_uses() {
    let text = "[hooks]\nfiles = [\"all.js\"]\nenv = [\"HOME\"]\ntimeout_ms = 5\nmemory_mb = 5\n\
                [servers.a]\ncommand = \"x\"\nhooks = [\"a.js\"]\n\
                [servers.b]\ncommand = \"x\"\nhooks = [\"b.js\"]\n\
                [servers.half]\nhooks = [\"half.js\"]\n";
    let rows: [(_, _, &[_]); 5] = [
        ("a", UseSection::Yes, &[("a", "/etc/a.js", "a.js")]),
        ("b", UseSection::Yes, &[("b", "/etc/b.js", "b.js")]),
        ("half", UseSection::Yes, &[("half", "/etc/half.js", "half.js")]),
        ("new", UseSection::Yes, &[]),
        ("a", UseSection::No, &[]),
    ];
    for (called, section, expected) in rows {
        let of_server = expected.iter().map(|(of, path, shown)| (name(of), vec![file(path, shown)]));
        let expected = HooksConfig {
            files: vec![file("/etc/all.js", "all.js")],
            of_server: of_server.collect(),
            env: vec![("HOME".to_owned(), "/home/ann".to_owned())],
            timeout: Duration::from_millis(5),
            memory: 5 << 20,
        };
        let found = hooks(text, Purpose::Wrap(&wrapped(called, section)));
        assert_eq!(found, expected, "for {called}, {section:?}");
    }
}

/// The daemon starts a server anew where its specification is another.
#[test]
fn hooks_are_no_part_of_a_server() {
    let servers = |line: &str| {
        let config = read(&format!("[servers.a]\ncommand = \"x\"\n{line}\n"), Purpose::Serve).unwrap();
        config.servers
    };
    assert_eq!(servers("hooks = [\"a.js\"]"), servers(""));
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let text = "[hooks]\nfiles = [\"{env:HOME}/a.js\", \"{b}.js\"]\n";
    let warnings = read(text, Purpose::Serve).unwrap().warnings;
    let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    let expected = "callsign.toml:2:10: the path of a file of hooks is taken as it is, {env:HOME} too";
    assert_eq!(shown, [expected]);
}

#[test]
fn keys_and_shapes() {
    bad("hooks = [\"a.js\"]\n", &["1:9: `hooks` must be a table, not a list"]);
    bad("[[hooks]]\n", &["1:1: `hooks` must be a table, not a list"]);
    bad("[hook]\n", &["1:2: unknown key `hook`; did you mean `hooks`?"]);
    bad_hooks("file = []", &["2:1: unknown key `file`; did you mean `files`?"]);
    bad_hooks("timeoutms = 5", &["2:1: unknown key `timeoutms`; did you mean `timeout_ms`?"]);
    bad_hooks("x = 5", &["2:1: unknown key `x`; this table takes files, env, timeout_ms, memory_mb"]);
    bad_hooks("files = \"a.js\"", &["2:9: `hooks.files` must be a list of files, not a string"]);
    bad_hooks("env = { A = \"b\" }", &["2:7: `hooks.env` must be a list of names, not a table"]);
    bad_server("hooks = \"a.js\"", &["2:9: `hooks` must be a list of files, not a string"]);
    bad_server("hooks = { files = [] }", &["2:9: `hooks` must be a list of files, not a table"]);
    bad_server("hook = 1", &["2:1: unknown key `hook`; did you mean `hooks`?"]);
}

#[test]
fn files_that_cannot_be_hooks() {
    for (line, label) in [("files", "hooks.files"), ("hooks", "hooks")] {
        let check = if line == "files" { bad_hooks } else { bad_server };
        check(
            &format!("{line} = [1, \"\", \"a\\u0000.js\", [\"a.js\"]]"),
            &[
                &format!(
                    "2:10: each of `{label}` must be a path or {{ path = …, optional = … }}, not an integer"
                ),
                &format!("2:13: each of `{label}` is empty"),
                &format!("2:17: each of `{label}` holds a NUL character; take it out"),
                &format!(
                    "2:31: each of `{label}` must be a path or {{ path = …, optional = … }}, not a list"
                ),
            ],
        );
        check(
            &format!("{line} = [{{ optional = true }}, {{ path = 1, optional = \"yes\", optinal = 1 }}]"),
            &[
                &format!("2:10: each of `{label}` needs a `path`"),
                "2:40: `path` must be a string, not an integer; put it in quotes",
                "2:54: `optional` must be true or false, not a string",
                "2:61: unknown key `optinal`; did you mean `optional`?",
            ],
        );
        for written in ["a.ts", "a", "a.JS", ".js", "a.js.txt", "hooks/"] {
            let expected = format!("{written:?} is no file of hooks; its name ends in .js or .mjs");
            check(&format!("{line} = [\"{written}\"]"), &[&format!("2:10: {expected}")]);
            check(&format!("{line} = [{{ path = \"{written}\" }}]"), &[&format!("2:19: {expected}")]);
        }
        check(
            &format!("{line} = [\"a.js\", \"b.js\", \"a.js\", {{ path = \"./a.js\" }}, \"/etc/b.js\"]"),
            &[
                "2:26: `a.js` is there already; keep one",
                "2:43: `./a.js` is there already, as `a.js`; keep one",
                "2:55: `/etc/b.js` is there already, as `b.js`; keep one",
            ],
        );
    }
}

#[test]
fn a_file_may_be_in_two_lists() {
    let text = "[hooks]\nfiles = [\"a.js\"]\n[servers.a]\ncommand = \"x\"\nhooks = [\"a.js\"]\n";
    let found = hooks(text, Purpose::Serve);
    assert_eq!(found.of_server, [(name("a"), found.files)]);
}

#[test]
fn a_tilde_leads_nowhere_without_a_home() {
    let text = "[hooks]\nfiles = [\"~/a.js\", { path = \"~/b.js\" }]\n";
    let source = Source { text, shown: Path::new("callsign.toml"), directory: Path::new("/etc") };
    let errors = parse(source, Purpose::Serve, Environment::new(&|_| None)).unwrap_err();
    assert_eq!(
        errors.to_string(),
        "callsign.toml:2:10: each of `hooks.files`: HOME is not set, so ~ leads nowhere\n\
         callsign.toml:2:29: `path`: HOME is not set, so ~ leads nowhere"
    );
}

#[test]
fn variables_that_hooks_are_not_shown() {
    let no_name = "is not the name of a variable; use letters, digits and _, and no digit first";
    bad_hooks(
        "env = [\"A-B\", \"\", \"USER_ID=ann\", 1]",
        &[
            &format!("2:8: \"A-B\" {no_name}"),
            &format!("2:15: \"\" {no_name}"),
            &format!("2:19: \"USER_ID=ann\" {no_name}"),
            "2:34: each of `hooks.env` must be a string, not an integer; put it in quotes",
        ],
    );
    for name in ["CALLSIGN_SEAL_KEY", "CALLSIGN_SESSION_ID", "CALLSIGN_"] {
        bad_hooks(
            &format!("env = [\"{name}\"]"),
            &[&format!("2:8: `{name}` is callsign's own; take it out")],
        );
    }
    for (name, _) in model::server::IDENTITY_VARIABLES {
        let expected = format!(
            "2:8: `{name}` says who calls, which what we inherited does not; take it out, a hook finds who calls in \
             `input`"
        );
        bad_hooks(&format!("env = [\"{name}\"]"), &[&expected]);
    }
}

#[test]
fn limits_out_of_bounds() {
    for written in ["0", "-1", "10001", "99999999999999999999"] {
        bad_hooks(
            &format!("timeout_ms = {written}"),
            &["2:14: `hooks.timeout_ms` must be 1 to 10000 milliseconds"],
        );
    }
    for written in ["\"50ms\"", "\"50\""] {
        let expected = "2:14: `hooks.timeout_ms` must be a whole number of milliseconds, not a string";
        bad_hooks(&format!("timeout_ms = {written}"), &[expected]);
    }
    for written in ["0", "1", "3", "-4", "1025", "65540"] {
        bad_hooks(
            &format!("memory_mb = {written}"),
            &["2:13: `hooks.memory_mb` must be 4 to 1024 megabytes"],
        );
    }
    let expected = "2:13: `hooks.memory_mb` must be a whole number of megabytes, not a float";
    bad_hooks("memory_mb = 16.5", &[expected]);
}
