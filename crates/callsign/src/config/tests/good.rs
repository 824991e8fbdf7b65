//! Good configurations and exactly what they mean.

use model::{
    Capture, Directory, EnvSource, EnvVar, HeadersCommand, HookFile, HostSpec, HttpSpec, Id, InheritEnv,
    Isolation, Place, Placeholder, StdioSpec, Template, Transport, Trust,
};

use super::*;

#[track_caller]
fn check(text: &str, purpose: Purpose<'_>, expected: &Config) {
    assert_eq!(read(text, purpose).as_ref(), Ok(expected), "for\n{text}");
}

fn template(text: &str) -> Template {
    Template::parse(text, &|_| Err("nothing to load".to_owned())).unwrap()
}

fn loaded(text: &str, value: &str) -> Template {
    Template::parse(text, &|_| Ok(value.to_owned())).unwrap()
}

fn name(name: &str) -> ServerName {
    ServerName::new(name).unwrap()
}

fn config(servers: Vec<ServerSpec>) -> Config {
    Config {
        servers,
        serve: ServeConfig::default(),
        roots: vec!["/home/ann".into()],
        hosts: Vec::new(),
        hooks: HooksConfig::default(),
        ledger: LedgerConfig::default(),
        telemetry: None,
        sessions: SessionSettings::default(),
        path: None,
        warnings: Vec::new(),
    }
}

fn plain_stdio(command: &str) -> StdioSpec {
    StdioSpec {
        command: command.to_owned(),
        args: Vec::new(),
        env: Vec::new(),
        env_vars: Vec::new(),
        isolation: Isolation::Session,
        cwd: Some(Directory::Fixed("/etc".into())),
        inherit_env: InheritEnv::Safe,
        idle: Duration::from_mins(10),
        max_children: 64,
    }
}

fn server(called: &str, transport: Transport) -> ServerSpec {
    ServerSpec {
        name: name(called),
        transport,
        timeout: Some(Duration::from_mins(10)),
        max_message: 16 << 20,
        pin: false,
        require: Trust::None,
        arguments: Vec::new(),
        capture: Capture::Digests,
    }
}

const EVERY_KEY: &str = r#"
[servers.tracker]
url = "https://tracker.example/mcp"
headers = { "X-Session-Id" = "{session.id}", Authorization = "Bearer {env:TRACKER_TOKEN}" }
headers_command = ["./mint-token", "--for", ""]
cache_seconds = 300
require = "bound"
timeout = "500ms"
pin = true
max_message = 4096

[servers.clumsies]
command = "clumsies"
args = ["mcp", "serve", ""]
env = { LOG = "info", WHO = "{host}/{thread.id}" }
env_vars = ["LANG", { name = "EDITOR", source = "local" }, { name = "CODEX_THREAD_ID", source = "thread" }]
isolation = "session"
cwd = "{workspace}"
require = "host"
arguments = { workspace = "{workspace}", "by whom" = "{host}: é" }
inherit_env = ["PATH", "HOME"]
timeout = "1h"
idle = "30s"
max_children = 3
max_message = "4KiB"
capture = "arguments"

[servers.here]
url = "http://10.0.0.1:8080/mcp"
allow_private = true

[servers.one]
command = "one"
env = { NAME = "{server}" }
isolation = "shared"
cwd = "~/work"
hooks = ["~/hooks/one.mjs"]

[workspace]
roots = ["/", "~/work", "here"]

[hosts.acme]
client = "acme-agent"
session = { meta = "acme/session" }
workspace = { header = "X-Acme-Workspace" }

[serve]
listen = "[::1]:0"
auth = "none"
allowed_origins = ["https://App.example:8443", "vscode-webview://abc"]

[hooks]
files = ["hooks/all.js", { path = "/opt/x.js", optional = true }]
env = ["TRACKER_TOKEN", "NOT_SET"]
timeout_ms = 20
memory_mb = 8

[ledger]
enabled = true
strict = true
keep = "7d"
max_size = "64MiB"
redact = ['case-[0-9]+']

[telemetry]
otlp = "https://collector.example"
headers = { Authorization = "Bearer {env:TRACKER_TOKEN}" }
service = "mine"

[sessions]
max_hot = 3
"#;

fn tracker() -> ServerSpec {
    let http = HttpSpec {
        url: "https://tracker.example/mcp".to_owned(),
        headers: vec![
            ("X-Session-Id".to_owned(), template("{session.id}")),
            ("Authorization".to_owned(), loaded("Bearer {env:TRACKER_TOKEN}", "sk-CANARY-7f3a")),
        ],
        headers_command: Some(HeadersCommand {
            program: "/etc/mint-token".to_owned(),
            args: vec!["--for".to_owned(), String::new()],
            cwd: Some("/etc".into()),
            cache: Duration::from_mins(5),
        }),
        allow_private: false,
    };
    ServerSpec {
        name: name("tracker"),
        transport: Transport::Http(http),
        timeout: Some(Duration::from_millis(500)),
        max_message: 4096,
        pin: true,
        require: Trust::Bound,
        arguments: Vec::new(),
        capture: Capture::Digests,
    }
}

fn clumsies() -> ServerSpec {
    let env_var = |name: &str, source| EnvVar { name: name.to_owned(), source };
    let stdio = StdioSpec {
        command: "clumsies".to_owned(),
        args: vec!["mcp".to_owned(), "serve".to_owned(), String::new()],
        env: vec![("LOG".to_owned(), template("info")), ("WHO".to_owned(), template("{host}/{thread.id}"))],
        env_vars: vec![
            env_var("LANG", EnvSource::Local),
            env_var("EDITOR", EnvSource::Local),
            env_var("CODEX_THREAD_ID", EnvSource::Caller(Placeholder::ThreadId)),
        ],
        isolation: Isolation::Session,
        cwd: Some(Directory::Template { path: template("{workspace}"), otherwise: Some("/etc".into()) }),
        inherit_env: InheritEnv::Names(vec!["PATH".to_owned(), "HOME".to_owned()]),
        idle: Duration::from_secs(30),
        max_children: 3,
    };
    ServerSpec {
        name: name("clumsies"),
        transport: Transport::Stdio(stdio),
        timeout: Some(Duration::from_hours(1)),
        max_message: 4096,
        pin: false,
        require: Trust::Host,
        arguments: vec![
            ("workspace".to_owned(), template("{workspace}")),
            ("by whom".to_owned(), template("{host}: é")),
        ],
        capture: Capture::Arguments,
    }
}

fn every_hook() -> HooksConfig {
    let file =
        |path: &str, shown: &str, optional| HookFile { path: path.into(), shown: shown.to_owned(), optional };
    HooksConfig {
        files: vec![file("/etc/hooks/all.js", "hooks/all.js", false), file("/opt/x.js", "/opt/x.js", true)],
        of_server: vec![(name("one"), vec![file("/home/ann/hooks/one.mjs", "~/hooks/one.mjs", false)])],
        env: vec![("TRACKER_TOKEN".to_owned(), "sk-CANARY-7f3a".to_owned())],
        timeout: Duration::from_millis(20),
        memory: 8 << 20,
    }
}

#[test]
fn every_key_arrives() {
    let here = HttpSpec {
        url: "http://10.0.0.1:8080/mcp".to_owned(),
        headers: Vec::new(),
        headers_command: None,
        allow_private: true,
    };
    let one = StdioSpec {
        env: vec![("NAME".to_owned(), template("{server}"))],
        isolation: Isolation::Shared,
        cwd: Some(Directory::Fixed("/home/ann/work".into())),
        ..plain_stdio("one")
    };
    let acme = HostSpec {
        name: Id::new("acme").unwrap(),
        client: Some("acme-agent".to_owned()),
        fields: vec![
            (Placeholder::SessionId, Place::Meta("acme/session".to_owned())),
            (Placeholder::Workspace, Place::Header("x-acme-workspace".to_owned())),
        ],
    };
    let warning = |line, column, message: &str| Mistake {
        file: "callsign.toml".into(),
        line,
        column,
        message: message.to_owned(),
    };
    let (here, one) = (server("here", Transport::Http(here)), server("one", Transport::Stdio(one)));
    let expected = Config {
        servers: vec![tracker(), clumsies(), here, one],
        serve: ServeConfig {
            listen: "[::1]:0".parse().unwrap(),
            is_chosen: true,
            auth: Auth::None,
            allowed_origins: vec!["https://app.example:8443".to_owned(), "vscode-webview://abc".to_owned()],
        },
        roots: vec!["/".into(), "/home/ann/work".into(), "/etc/here".into()],
        hosts: vec![acme],
        hooks: every_hook(),
        ledger: LedgerConfig {
            enabled: true,
            strict: true,
            keep: Some(Duration::from_hours(7 * 24)),
            max_size: 64 << 20,
            redact: vec!["case-[0-9]+".to_owned()],
        },
        telemetry: Some(TelemetryConfig {
            otlp: "https://collector.example/v1/traces".to_owned(),
            headers: vec![("Authorization".to_owned(), "Bearer sk-CANARY-7f3a".to_owned())],
            service: "mine".to_owned(),
        }),
        sessions: SessionSettings { max_hot: 3, ..SessionSettings::default() },
        path: None,
        warnings: vec![
            warning(5, 20, "`headers_command` is not a file: /etc/mint-token"),
            warning(36, 7, "`cwd` is not a directory: /home/ann/work"),
            warning(40, 15, "no workspace can lie there, it is not a directory: /home/ann/work"),
            warning(40, 25, "no workspace can lie there, it is not a directory: /etc/here"),
            warning(
                54,
                25,
                "`NOT_SET` is not set, so no hook sees it; some hosts clear the environment and must be told to pass it",
            ),
        ],
    };
    check(EVERY_KEY, Purpose::Serve, &expected);
}

#[test]
fn no_damage_to_a_file_makes_us_panic() {
    for (at, character) in EVERY_KEY.char_indices() {
        let (before, after) = (&EVERY_KEY[..at], &EVERY_KEY[at + character.len_utf8()..]);
        for put in ["", "[", "\"", "{", "=", "\n", "\u{0}", "é", "."] {
            let outcome = read(&format!("{before}{put}{after}"), Purpose::Serve);
            assert!(outcome.is_ok() || outcome.is_err_and(|errors| !errors.0.is_empty()));
        }
        // Cut off there.
        drop(read(before, Purpose::Serve));
    }
}

#[test]
fn defaults_hold_where_the_file_says_nothing() {
    check("", Purpose::Serve, &config(Vec::new()));
    let expected = config(vec![
        server("b", Transport::Stdio(plain_stdio("x"))),
        server("a", Transport::Stdio(plain_stdio("y"))),
    ]);
    check("[servers.b]\ncommand = \"x\"\n[servers.a]\ncommand = \"y\"\n", Purpose::Serve, &expected);
}

#[test]
fn what_is_probably_not_meant_is_a_warning() {
    let text = "[servers.a]\ncommand = \"x\"\nargs = [\"--key\", \"{env:KEY}\", \"{\\\"json\\\": 1}\"]\n\
                [servers.b]\nurl = \"http://tracker.example/\"\n";
    let warnings = read(text, Purpose::Serve).unwrap().warnings;
    let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "callsign.toml:3:18: `args` are passed on as they are, {env:KEY} too; use `env` for it",
            "callsign.toml:5:7: `url` is http: what is sent, headers too, can be read on the way; use https",
        ]
    );
}

fn wrapped(called: &str, section: UseSection, target: Option<Target>) -> Wrapped {
    Wrapped { name: name(called), section, target, inherit_env: None }
}

fn node() -> Target {
    Target::Command { command: "node".to_owned(), args: vec!["x.js".to_owned()] }
}

#[test]
fn the_command_line_of_wrap_wins_and_the_file_supplies_the_rest() {
    // The other server's secret is not there, which is no business of this one's.
    let text = "[servers.a]\ncommand = \"x\"\nargs = [\"y\"]\nidle = \"1s\"\n\
                [servers.b]\nurl = \"https://b.example\"\nheaders = { X = \"{env:NOT_SET}\" }\n\
                [servers.half]\ntimeout = \"1s\"\n";
    let stdio = StdioSpec { cwd: None, ..plain_stdio("node") };
    let stdio = StdioSpec { args: vec!["x.js".to_owned()], ..stdio };
    let of_file = StdioSpec { idle: Duration::from_secs(1), ..stdio.clone() };
    let spec = |called: &str, stdio: StdioSpec| {
        config(vec![ServerSpec { timeout: None, ..server(called, Transport::Stdio(stdio)) }])
    };
    check(text, Purpose::Wrap(&wrapped("a", UseSection::Yes, Some(node()))), &spec("a", of_file.clone()));
    check(text, Purpose::Wrap(&wrapped("a", UseSection::No, Some(node()))), &spec("a", stdio.clone()));
    check(text, Purpose::Wrap(&wrapped("new", UseSection::Yes, Some(node()))), &spec("new", stdio.clone()));
    let only_file = StdioSpec { command: "x".to_owned(), args: vec!["y".to_owned()], ..of_file };
    check(text, Purpose::Wrap(&wrapped("a", UseSection::Yes, None)), &spec("a", only_file));
    let half = wrapped("half", UseSection::Yes, Some(node()));
    let mut expected = spec("half", stdio);
    expected.servers[0].timeout = Some(Duration::from_secs(1));
    check(text, Purpose::Wrap(&half), &expected);
}

#[test]
fn what_is_wrong_with_the_command_line_of_wrap() {
    let url = |url: &str| Some(Target::Url(url.to_owned()));
    let bad = wrapped("a", UseSection::Yes, url("http://10.0.0.1/"));
    let private =
        "10.0.0.1 is not a public address; set `allow_private = true` for this server if it is meant";
    assert_eq!(mistakes("", Purpose::Wrap(&bad)), [format!("--url: {private}")]);
    let allowed = "[servers.a]\nallow_private = true\n";
    assert!(mistakes(allowed, Purpose::Wrap(&bad)).is_empty());
    let nothing = wrapped("a", UseSection::Yes, None);
    assert_eq!(
        mistakes("", Purpose::Wrap(&nothing)),
        ["1:1: there is no [servers.a]; add it, or give a command after -- or a --url"]
    );
    let other_kind = wrapped("a", UseSection::Yes, Some(node()));
    assert_eq!(
        mistakes("[servers.a]\nurl = \"https://a.example\"\nheaders = {}\n", Purpose::Wrap(&other_kind)),
        ["3:1: `headers` is for a server with a `url`; take it out"]
    );
}

#[test]
fn listen_from_the_command_line_is_held_to_the_same_rule() {
    let open: std::net::SocketAddr = "0.0.0.0:1".parse().unwrap();
    let none = ServeConfig { auth: Auth::None, ..ServeConfig::default() };
    assert_eq!(none.listening_on(open), Err(OpenToOthers(open)));
    assert_eq!(ServeConfig::default().listening_on(open).map(|config| config.listen), Ok(open));
}
