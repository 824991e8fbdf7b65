//! What of its caller a server is told, and what it asks to be told.

use std::borrow::Cow;

use model::{Directory, EnvSource, EnvVar, Placeholder, ServerSpec, StdioSpec, Template, Transport, Trust};

use super::*;

/// `lines` after the header of a server that is started.
fn stdio(lines: &str) -> String {
    format!("[servers.a]\n{lines}\ncommand = \"x\"\n")
}

/// `lines` after the header of a server that is reached.
fn http(lines: &str) -> String {
    format!("[servers.a]\n{lines}\nurl = \"https://tracker.example/mcp\"\n")
}

#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
    // Also where another server is meant.
    let target = Some(Target::Command { command: "node".to_owned(), args: Vec::new() });
    let wrapped =
        Wrapped { name: ServerName::new("b").unwrap(), section: UseSection::Yes, target, inherit_env: None };
    assert_eq!(mistakes(text, Purpose::Wrap(&wrapped)), expected, "for wrap of another, for\n{text}");
}

#[track_caller]
fn server(text: &str) -> ServerSpec {
    let config = read(text, Purpose::Serve).unwrap_or_else(|errors| panic!("{errors}\nfor\n{text}"));
    config.servers[0].clone()
}

#[track_caller]
fn child(lines: &str) -> StdioSpec {
    match server(&stdio(lines)).transport {
        Transport::Stdio(stdio) => stdio,
        Transport::Http(_) => unreachable!(),
    }
}

fn named(name: &str, source: EnvSource) -> EnvVar {
    EnvVar { name: name.to_owned(), source }
}

fn of_caller(name: &str, placeholder: Placeholder) -> EnvVar {
    named(name, EnvSource::Caller(placeholder))
}

/// What a template becomes for a caller of whom everything is known.
fn rendered(template: &Template) -> String {
    template.render(&|placeholder| Some(Cow::Owned(format!("<{placeholder:?}>")))).unwrap().into_owned()
}

#[test]
fn what_must_be_known_of_a_caller() {
    for (written, trust) in
        [("none", Trust::None), ("declared", Trust::Declared), ("host", Trust::Host), ("bound", Trust::Bound)]
    {
        assert_eq!(server(&stdio(&format!("require = {written:?}"))).require, trust);
        assert_eq!(server(&http(&format!("require = {written:?}"))).require, trust);
    }
    let expected = "`require` must be \"none\", \"declared\", \"host\" or \"bound\", not";
    bad(&stdio("require = \"Host\""), &[&format!("2:11: {expected} \"Host\"")]);
    bad(&http("require = \"\""), &[&format!("2:11: {expected} \"\"")]);
    bad(&stdio("require = true"), &["2:11: `require` must be a string, not a boolean; put it in quotes"]);
    bad(&stdio("requrie = \"host\""), &["2:1: unknown key `requrie`; did you mean `require`?"]);
}

#[test]
fn arguments_take_every_placeholder_and_any_text() {
    let lines =
        "arguments = { workspace = \"{workspace}\", \"é\" = \"{tool}/{call.id} é\\u0000\", plain = \"x\" }";
    for text in [stdio(lines), http(lines)] {
        let arguments = server(&text).arguments;
        let shown: Vec<_> = arguments.iter().map(|(name, value)| (name.as_str(), rendered(value))).collect();
        let expected = [("workspace", "<Workspace>"), ("é", "<Tool>/<CallId> é\0"), ("plain", "x")];
        assert_eq!(shown, expected.map(|(name, value)| (name, value.to_owned())));
    }
}

#[test]
fn arguments_that_cannot_be_filled_in() {
    bad(&stdio("arguments = []"), &["2:13: `arguments` must be a table, not a list"]);
    bad(
        &stdio("arguments = { \"\" = \"x\", n = 1, w = \"{workspce}\" }"),
        &[
            "2:15: an argument has a name; put one in the quotes",
            "2:29: `arguments.n` must be a string, not an integer; put it in quotes",
            "2:36: `arguments.w`: unknown placeholder {workspce}; did you mean {workspace}?",
        ],
    );
    for name in ["__callsign", "__CallSign", "--callsign", " __callsign"] {
        bad(
            &http(&format!("arguments = {{ {name:?} = \"x\" }}")),
            &[&format!("2:15: `{name}` is callsign's own; take it out")],
        );
    }
}

#[test]
fn a_variable_by_its_bare_name_is_the_callers_where_it_says_who_calls() {
    let rows = [
        ("LANG", EnvSource::Local),
        ("OPENCODE_SESSION_ID", EnvSource::Caller(Placeholder::ThreadId)),
        ("OPENCODE_SESSION_TITLE", EnvSource::Caller(Placeholder::SessionTitle)),
        ("CODEX_THREAD_ID", EnvSource::Caller(Placeholder::ThreadId)),
        ("CODEX_SESSION_ID", EnvSource::Caller(Placeholder::SessionId)),
        ("CLAUDE_CODE_SESSION_ID", EnvSource::Caller(Placeholder::SessionId)),
        ("AGENT_SESSION_ID", EnvSource::Caller(Placeholder::SessionId)),
        ("CALLSIGN_HOST", EnvSource::Caller(Placeholder::Host)),
        ("CALLSIGN_SESSION_ID", EnvSource::Caller(Placeholder::SessionId)),
        ("CALLSIGN_THREAD_ID", EnvSource::Caller(Placeholder::ThreadId)),
        ("CALLSIGN_PARENT_ID", EnvSource::Caller(Placeholder::ParentId)),
        ("CALLSIGN_SESSION_TITLE", EnvSource::Caller(Placeholder::SessionTitle)),
        ("CALLSIGN_WORKSPACE", EnvSource::Caller(Placeholder::Workspace)),
    ];
    for (name, source) in rows {
        let expected = [named(name, source)];
        assert_eq!(child(&format!("env_vars = [{name:?}]")).env_vars, expected);
        assert_eq!(child(&format!("env_vars = [{{ name = {name:?} }}]")).env_vars, expected);
        let mut passed = child("");
        assert_eq!(pass_variable(&mut passed, name), Ok(()));
        assert_eq!(passed.env_vars, expected);
    }
}

#[test]
fn a_source_says_what_of_the_caller_a_variable_is() {
    let rows = [
        ("session", Placeholder::SessionId),
        ("thread", Placeholder::ThreadId),
        ("parent", Placeholder::ParentId),
        ("title", Placeholder::SessionTitle),
        ("workspace", Placeholder::Workspace),
        ("host", Placeholder::Host),
    ];
    for (source, placeholder) in rows {
        let lines = format!("env_vars = [{{ name = \"MY_SESSION\", source = {source:?} }}]");
        assert_eq!(child(&lines).env_vars, [of_caller("MY_SESSION", placeholder)]);
    }
    let lines = "env_vars = [{ name = \"CODEX_THREAD_ID\", source = \"thread\" }, \
                 { name = \"OPENCODE_SESSION_ID\", source = \"session\" }, \
                 { name = \"CALLSIGN_HOST\", source = \"host\" }, \"CODEX_THREAD_ID\", \
                 { name = \"EDITOR\", source = \"local\" }]";
    assert_eq!(
        child(lines).env_vars,
        [
            of_caller("CODEX_THREAD_ID", Placeholder::ThreadId),
            of_caller("OPENCODE_SESSION_ID", Placeholder::SessionId),
            of_caller("CALLSIGN_HOST", Placeholder::Host),
            of_caller("CODEX_THREAD_ID", Placeholder::ThreadId),
            named("EDITOR", EnvSource::Local),
        ]
    );
}

#[test]
fn sources_that_there_are_not() {
    bad(
        &stdio("env_vars = [{ name = \"A\", source = \"remote\" }]"),
        &[
            "2:36: `source = \"remote\"` is a variable of another machine, on which callsign starts nothing; use \
           \"local\" for one of this machine",
        ],
    );
    bad(
        &stdio("env_vars = [{ name = \"CODEX_THREAD_ID\", source = \"thread_id\" }]"),
        &[
            "2:50: `source` must be \"local\", \"session\", \"thread\", \"parent\", \"title\", \"workspace\" or \
           \"host\", not \"thread_id\"",
        ],
    );
    let inherited = |at: &str, name: &str, source: &str| {
        format!(
            "{at}: `{name}` says who calls, and what callsign inherited under that name is another session's; write \
             `source = \"{source}\"`, or leave it out"
        )
    };
    bad(
        &stdio("env_vars = [{ name = \"CODEX_THREAD_ID\", source = \"local\" }]"),
        &[&inherited("2:50", "CODEX_THREAD_ID", "thread")],
    );
    bad(
        &stdio("env_vars = [{ source = \"local\", name = \"OPENCODE_SESSION_TITLE\" }]"),
        &[&inherited("2:24", "OPENCODE_SESSION_TITLE", "title")],
    );
    for source in ["local", "session"] {
        bad(
            &stdio(&format!("env_vars = [{{ name = \"CALLSIGN_HOST\", source = {source:?} }}]")),
            &["2:48: `CALLSIGN_HOST` is callsign's own and has its meaning; leave `source` out"],
        );
    }
    bad(
        &stdio("env_vars = [\"A\", { name = \"A\", source = \"thread\" }]"),
        &["2:18: `A` is there already, with another source; keep one"],
    );
}

#[test]
fn variables_that_cannot_be_handed_on() {
    bad(&stdio("env_vars = [\"CALLSIGN_X\"]"), &["2:13: `CALLSIGN_X` is callsign's own; take it out"]);
    bad(
        &stdio("env_vars = [{ name = \"CALLSIGN_X\", source = \"thread\" }]"),
        &["2:22: `CALLSIGN_X` is callsign's own; take it out"],
    );
    bad(
        &stdio("env_vars = [{ nam = \"A\" }, 1]"),
        &[
            "2:13: each of `env_vars` needs a `name`",
            "2:15: unknown key `nam`; did you mean `name`?",
            "2:28: each of `env_vars` must be a name or { name = …, source = … }, not an integer",
        ],
    );
    let code = "makes a program load or run other code and cannot be given here; if it is meant, start the server \
                through a script that sets it";
    bad(
        &stdio("env_vars = [{ name = \"LD_PRELOAD\", source = \"workspce\" }]"),
        &[
            &format!("2:22: `LD_PRELOAD` {code}"),
            "2:45: `source` must be \"local\", \"session\", \"thread\", \"parent\", \"title\", \"workspace\" or \
             \"host\", not \"workspce\"",
        ],
    );
    bad(
        &stdio("inherit_env = [\"PATH\", \"CODEX_THREAD_ID\"]"),
        &[
            "2:24: `CODEX_THREAD_ID` says who calls, which what we inherited does not; name it in `env_vars` instead",
        ],
    );
    let mut passed = child("env_vars = [\"A\"]\nisolation = \"shared\"");
    // What the host's own entry gives its server is not ours to judge.
    assert_eq!(pass_variable(&mut passed.clone(), "LD_X"), Ok(()));
    assert!(pass_variable(&mut passed, "CALLSIGN_X").is_err());
    assert_eq!(
        pass_variable(&mut passed, "CODEX_THREAD_ID"),
        Err("`CODEX_THREAD_ID` differs per caller, and `isolation = \"shared\"` is one process for all; take one of \
             the two out"
            .to_owned())
    );
    assert_eq!(pass_variable(&mut passed, "A"), Ok(()));
    assert_eq!(passed.env_vars, [named("A", EnvSource::Local)]);
    let mut said = child("env_vars = [{ name = \"A\", source = \"thread\" }]");
    assert_eq!(pass_variable(&mut said, "A"), Ok(()));
    assert_eq!(said.env_vars, [of_caller("A", Placeholder::ThreadId)]);
}

#[test]
fn the_environment_takes_what_a_caller_has_for_long() {
    let written =
        "{session.id} {session.title} {thread.id} {parent.id} {host} {workspace} {server} {run.id} {user}";
    let env = child(&format!("env = {{ A = \"{written}\", CODEX_THREAD_ID = \"{{thread.id}}\" }}")).env;
    assert_eq!(
        rendered(&env[0].1),
        "<SessionId> <SessionTitle> <ThreadId> <ParentId> <Host> <Workspace> <Server> <RunId> <User>"
    );
    assert_eq!((env[1].0.as_str(), rendered(&env[1].1)), ("CODEX_THREAD_ID", "<ThreadId>".to_owned()));
}

#[test]
fn what_changes_from_call_to_call_cannot_be_in_an_environment() {
    let changes = |at: &str, label: &str, placeholder: &str, what: &str| {
        format!(
            "{at}: {label}: {placeholder} differs per call, and a process has its {what} from its start on; take it \
             out: every call has it in `_meta`"
        )
    };
    bad(
        &stdio("env = { A = \"{call.id}{turn.id}\", B = \"{tool}\" }"),
        &[
            &changes("2:13", "`env.A`", "{call.id}", "environment"),
            &changes("2:13", "`env.A`", "{turn.id}", "environment"),
            &changes("2:39", "`env.B`", "{tool}", "environment"),
        ],
    );
    bad(&stdio("cwd = \"/srv/{tool}\""), &[&changes("2:7", "`cwd`", "{tool}", "directory")]);
    let one = "isolation = \"shared\"\nenv = { A = \"{call.id}\" }";
    bad(&stdio(one), &[&changes("3:13", "`env.A`", "{call.id}", "environment")]);
}

#[test]
fn one_process_for_all_has_no_caller_of_its_own() {
    let shared = |subject: &str| {
        format!(
            "{subject} differs per caller, and `isolation = \"shared\"` is one process for all; take one of the two out"
        )
    };
    bad(
        &stdio(
            "env = { A = \"{server}/{thread.id}\", B = \"{user}\" }\nisolation = \"shared\"\n\
             env_vars = [\"LANG\", \"CODEX_THREAD_ID\", { name = \"W\", source = \"workspace\" }, \"CALLSIGN_HOST\"]\n\
             cwd = \"{workspace}\"",
        ),
        &[
            &shared("2:13: `env.A`: {thread.id}"),
            &shared("2:41: `env.B`: {user}"),
            &shared("4:21: `CODEX_THREAD_ID`"),
            &shared("4:40: `W`"),
            &shared("4:78: `CALLSIGN_HOST`"),
            &shared("5:7: `cwd`: {workspace}"),
        ],
    );
    // Headers and arguments are made anew for every call.
    child("isolation = \"shared\"\narguments = { workspace = \"{workspace}\" }\nenv = { A = \"{server}\" }");
}

#[test]
fn a_text_of_its_own_in_a_variable_that_says_who_calls_is_a_lie() {
    let lie = |at: &str, name: &str| {
        format!(
            "{at}: `{name}` says who calls, and a text of its own would be a lie; take it out and name it in `env_vars`"
        )
    };
    for value in ["x", "", "{server}", "x-{thread.id}"] {
        let lines = format!("env = {{ CODEX_THREAD_ID = \"{value}\" }}");
        bad(&stdio(&lines), &[&lie("2:9", "CODEX_THREAD_ID")]);
    }
    bad(
        &stdio("env = { OPENCODE_SESSION_TITLE = \"x\", AGENT_SESSION_ID = \"y\" }"),
        &[&lie("2:9", "OPENCODE_SESSION_TITLE"), &lie("2:39", "AGENT_SESSION_ID")],
    );
    bad(
        &stdio("env = { CALLSIGN_HOST = \"{host}\" }"),
        &["2:9: `CALLSIGN_HOST` is callsign's own; take it out"],
    );
}

#[test]
fn a_directory_per_caller_has_the_usual_one_behind_it() {
    for (written, expected) in [
        ("{workspace}", "<Workspace>"),
        ("{workspace}/sub", "<Workspace>/sub"),
        ("/srv/{server}", "/srv/<Server>"),
        ("~/of/{host}", "/home/ann/of/<Host>"),
    ] {
        let lines = format!("cwd = {written:?}");
        let Some(Directory::Template { path, otherwise }) = child(&lines).cwd else {
            panic!("{written} is no template");
        };
        assert_eq!((rendered(&path).as_str(), otherwise), (expected, Some("/etc".into())));
    }
    assert_eq!(child("cwd = \"sub/..\"").cwd, Some(Directory::Fixed("/etc/sub/..".into())));
    // The host's own directory, for `wrap`.
    let wrapped = Wrapped {
        name: ServerName::new("a").unwrap(),
        section: UseSection::Yes,
        target: None,
        inherit_env: None,
    };
    let config = read(&stdio("cwd = \"{workspace}\""), Purpose::Wrap(&wrapped)).unwrap();
    let Transport::Stdio(of_wrap) = &config.servers[0].transport else { unreachable!() };
    assert!(matches!(of_wrap.cwd, Some(Directory::Template { otherwise: None, .. })));
}

#[test]
fn a_directory_per_caller_that_depends_on_where_we_are() {
    for written in ["sub/{workspace}", "{host}", "{server}/x"] {
        let message = "2:7: `cwd`: a path with placeholders is absolute; begin it with {workspace}, / or ~/";
        let text = stdio(&format!("cwd = {written:?}"));
        assert_eq!(mistakes(&text, Purpose::Serve), [message], "{written}");
    }
}

#[test]
fn headers_take_every_placeholder() {
    let every: Vec<_> = model::template::PLACEHOLDERS.iter().map(|(name, _)| format!("{{{name}}}")).collect();
    let spec = server(&http(&format!("headers = {{ X = \"{}\" }}", every.join(","))));
    let Transport::Http(spec) = spec.transport else { unreachable!() };
    let expected: Vec<_> =
        model::template::PLACEHOLDERS.iter().map(|(_, placeholder)| format!("<{placeholder:?}>")).collect();
    assert_eq!(rendered(&spec.headers[0].1), expected.join(","));
}

#[test]
fn a_command_that_mints_headers() {
    let command = |lines: &str| {
        let Transport::Http(spec) = server(&http(lines)).transport else { unreachable!() };
        let command = spec.headers_command.unwrap();
        assert_eq!(command.cwd, Some("/etc".into()));
        (command.program, command.args, command.cache.as_secs())
    };
    let rows: [(_, _, &[&str], _); 5] = [
        ("headers_command = [\"mint\"]", "mint", &[], 60),
        ("headers_command = [\"./mint\", \"a\", \"\"]\ncache_seconds = 300", "/etc/mint", &["a", ""], 300),
        ("cache_seconds = 0\nheaders_command = [\"bin/mint\"]", "/etc/bin/mint", &[], 0),
        ("headers_command = [\"~/mint\"]", "/home/ann/mint", &[], 60),
        ("headers_command = [\"/bin/sh\", \"{server}\"]", "/bin/sh", &["{server}"], 60),
    ];
    for (lines, program, args, seconds) in rows {
        let args: Vec<_> = args.iter().map(|&arg| arg.to_owned()).collect();
        assert_eq!(command(lines), (program.to_owned(), args, seconds));
    }
    let warnings =
        read(&http("headers_command = [\"./mint\", \"{server}\"]"), Purpose::Serve).unwrap().warnings;
    let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "callsign.toml:2:20: `headers_command` is not a file: /etc/mint",
            "callsign.toml:2:30: `headers_command` is run as it is written, with {server} in it",
        ]
    );
}

#[test]
fn commands_that_cannot_mint_headers() {
    bad(
        &http("headers_command = \"./mint\""),
        &["2:19: `headers_command` must be a list of strings, not a string"],
    );
    bad(&http("headers_command = []"), &["2:19: `headers_command` is empty; name a program"]);
    bad(
        &http("headers_command = [\"\", 1, \"\\u0000\"]"),
        &[
            "2:20: each of `headers_command` is empty",
            "2:24: each of `headers_command` must be a string, not an integer; put it in quotes",
            "2:27: each of `headers_command` holds a NUL character; take it out",
        ],
    );
    bad(
        &http("cache_seconds = 5"),
        &["2:1: `cache_seconds` is for what `headers_command` prints, and there is none; take it out"],
    );
    for (written, problem) in [
        ("\"5m\"", "a whole number of seconds, not a string"),
        ("1.5", "a whole number of seconds, not a float"),
        ("-1", "0 to 31536000, a year of seconds"),
        ("31536001", "0 to 31536000, a year of seconds"),
    ] {
        bad(
            &http(&format!("headers_command = [\"mint\"]\ncache_seconds = {written}")),
            &[&format!("3:17: `cache_seconds` must be {problem}")],
        );
    }
}

#[test]
fn a_header_of_a_hosts_own_entry_keeps_its_braces() {
    let environment = Environment::new(&variable);
    for (written, expected) in [
        ("Bearer {env:TRACKER_TOKEN}", "Bearer sk-CANARY-7f3a"),
        ("{env:HOME}{env:HOME}", "/home/ann/home/ann"),
        ("{\"a\": {thread.id}} {file:/etc/passwd}", "{\"a\": {thread.id}} {file:/etc/passwd}"),
        ("{env:} {env:a b} {env:{env:HOME} {env:HOME", "{env:} {env:a b} {env:/home/ann {env:HOME"),
        ("", ""),
    ] {
        assert_eq!(
            entry_header_value(written, environment),
            Ok(Some(Template::literal(expected))),
            "{written}"
        );
    }
    assert_eq!(entry_header_value("Bearer {env:NOT_SET}", environment), Ok(None), "hosts leave it out");
    for (written, problem) in [
        ("{env:CALLSIGN_KEY}", "{env:CALLSIGN_KEY}: `CALLSIGN_KEY` is callsign's own; take it out"),
        ("{env:TWO_LINES}", "it holds '\\r'; a header takes visible ASCII characters only"),
        ("é", "it holds 'é'; a header takes visible ASCII characters only"),
    ] {
        assert_eq!(entry_header_value(written, environment), Err(problem.to_owned()), "{written}");
    }
}
