//! `[sessions]` in the file.

use super::*;

#[track_caller]
fn bad_file(text: &str, expected: &[&str]) {
    let errors = from_file(text).expect_err("there is a mistake").to_string();
    assert!(!errors.contains("CANARY"), "a secret in a message: {errors}");
    let lines: Vec<_> =
        errors.lines().map(|line| line.strip_prefix("callsign.toml:").unwrap_or(line)).collect();
    assert_eq!(lines, expected, "for\n{text}");
}

/// `line` as the second of `[sessions]`.
#[track_caller]
fn bad_line(line: &str, expected: &[&str]) {
    bad_file(&format!("[sessions]\n{line}\n"), expected);
}

#[test]
fn without_a_word_it_is_ollama_in_a_local_box() {
    let expected = SessionSettings {
        runtime: Runtime::Local,
        image: Image::new("opencode-as-mcp-runtime:latest").unwrap(),
        command: "opencode".to_owned(),
        model: model_name(Provider::Ollama, "ollama/gpt-oss:20b"),
        small_model: None,
        base_url: "http://127.0.0.1:11434/v1".to_owned(),
        api_key: None,
        idle: Duration::from_mins(30),
        max_hot: 8,
        limits: Limits { memory: 2 << 30, pids: 512, millicpus: 2000, disk: 5 << 30 },
        budget: Budget::default(),
        egress: Egress::None,
        mcp_servers: Vec::new(),
        start_timeout: Duration::from_secs(90),
        request_timeout: Duration::from_mins(5),
        poll_interval: Duration::from_millis(200),
        extras_dir: None,
        isolation: BoxIsolation::Bubblewrap,
        warm: 0,
        orphan_grace: Duration::from_mins(10),
        strict_limits: false,
    };
    for text in ["", "[sessions]\n", "[servers.a]\ncommand = \"x\"\n"] {
        assert_eq!(from_file(text).unwrap(), FromFile { settings: expected.clone(), warnings: Vec::new() });
    }
}

#[test]
fn every_key_arrives() {
    let found = settings(
        r#"runtime = "docker"
image = "ghcr.io/boxes/opencode:1.2"
command = "/opt/my tools/opencode"
provider = "openai"
model = "openai/gpt-4.1"
small_model = "openai/gpt-4.1-mini"
base_url = "https://Models.Example/v1/"
api_key_env = "TRACKER_TOKEN"
idle = "5m"
max_hot = 20
limits = { memory = "1GiB", pids = 100, cpus = "0.5", disk = "10GiB" }
budget = { requests = 50, tokens = 2_000_000 }
egress = ["pack.org", "Files.Example.org"]
mcp_servers = ["tracker"]
start_timeout = "20s"
request_timeout = "2m"
poll_interval = "500ms"
extras_dir = "/usr"
isolation = "none"
warm = 2
orphan_grace = "1m"
strict_limits = true"#,
    );
    let expected = SessionSettings {
        runtime: Runtime::Docker,
        image: Image::new("ghcr.io/boxes/opencode:1.2").unwrap(),
        command: "/opt/my tools/opencode".to_owned(),
        model: model_name(Provider::OpenAi, "openai/gpt-4.1"),
        small_model: Some(model_name(Provider::OpenAi, "openai/gpt-4.1-mini")),
        base_url: "https://models.example/v1".to_owned(),
        api_key: Some(ApiKey::Variable("TRACKER_TOKEN".to_owned())),
        idle: Duration::from_mins(5),
        max_hot: 20,
        limits: Limits { memory: 1 << 30, pids: 100, millicpus: 500, disk: 10 << 30 },
        budget: Budget { requests: Some(50), tokens: Some(2_000_000) },
        egress: Egress::Hosts(vec!["pack.org".to_owned(), "files.example.org".to_owned()]),
        mcp_servers: vec![ServerName::new("tracker").unwrap()],
        start_timeout: Duration::from_secs(20),
        request_timeout: Duration::from_mins(2),
        poll_interval: Duration::from_millis(500),
        extras_dir: Some("/usr".into()),
        isolation: BoxIsolation::None,
        warm: 2,
        orphan_grace: Duration::from_mins(1),
        strict_limits: true,
    };
    assert_eq!(found, expected);
}

#[test]
fn each_provider_has_its_url() {
    for provider in Provider::ALL {
        let found = settings(&format!("provider = \"{provider}\"\nmodel = \"{}\"", provider.example()));
        assert_eq!((found.provider(), found.base_url.as_str()), (provider, provider.base_url()));
        assert_eq!(found.small_model(), &found.model);
    }
}

#[test]
fn values_in_their_spellings() {
    let millicpus = |written: &str| settings(&format!("limits = {{ cpus = {written} }}")).limits.millicpus;
    for (written, expected) in
        [("1", 1000), ("16", 16_000), ("\"1.5\"", 1500), ("\"0.1\"", 100), ("\".25\"", 250)]
    {
        assert_eq!(millicpus(written), expected, "{written}");
    }
    for (written, expected) in [
        ("\"none\"", Egress::None),
        ("[]", Egress::None),
        ("\"open\"", Egress::Open),
        ("[\"10.0.0.7\"]", Egress::Hosts(vec!["10.0.0.7".to_owned()])),
    ] {
        assert_eq!(settings(&format!("egress = {written}")).egress, expected);
    }
    assert_eq!(settings("extras_dir = \"../usr\"").extras_dir, Some("/etc/../usr".into()));
    let of_docker = settings("base_url = \"http://host.docker.internal:11434/v1\"");
    assert_eq!(of_docker, settings(""));
}

#[test]
fn a_key_is_in_the_environment_and_not_in_the_file() {
    bad_line(
        "api_key = \"sk-CANARY-7f3a\"",
        &[
            "2:1: a key does not go in the file; put it in a variable, and the variable's name in `api_key_env`",
        ],
    );
    let name = "2:15: `sessions.api_key_env` must be the name of the variable that holds the key, such as \
                \"OPENAI_API_KEY\"";
    bad_line("api_key_env = \"sk-CANARY-7f3a\"", &[name]);
    bad_line("api_key_env = \"CALLSIGN_X\"", &[name]);
    bad_line("api_key_env = \"\"", &["2:15: `sessions.api_key_env` is empty"]);
    let found = from_file("[sessions]\napi_key_env = \"NOT_SET\"\n").unwrap();
    assert_eq!(
        found.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["callsign.toml:2:15: `NOT_SET` is not set, so there is no key; set it for the daemon"]
    );
}

#[test]
fn doubts_are_said_and_allowed() {
    let doubts = |lines: &str| {
        let found = from_file(&format!("[sessions]\n{lines}\n")).unwrap_or_else(|errors| panic!("{errors}"));
        found.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        doubts("base_url = \"http://models.example\"\napi_key_env = \"TRACKER_TOKEN\""),
        [
            "callsign.toml:2:12: `sessions.base_url` is http: the key can be read on the way; use https",
            "callsign.toml:2:12: `sessions.base_url` has no path; most providers answer beneath one, such as /v1",
        ]
    );
    assert_eq!(doubts("base_url = \"http://models.example/v1\""), Vec::<String>::new());
    assert_eq!(
        doubts("base_url = \"http://10.0.0.7:8000/v1\"\napi_key_env = \"TRACKER_TOKEN\""),
        Vec::<String>::new()
    );
    assert_eq!(
        doubts("extras_dir = \"extras\""),
        ["callsign.toml:2:14: `sessions.extras_dir` is not a directory: /etc/extras"]
    );
}

#[test]
fn models_and_providers() {
    bad_line(
        "provider = \"opnai\"",
        &[
            "2:12: `sessions.provider` must be one of ollama, openrouter, gemini, openai, mistral, deepseek, qwen, not \
           \"opnai\"; did you mean \"openai\"?",
        ],
    );
    bad_line(
        "provider = \"openai\"",
        &["2:12: openai needs a model; add `model`, such as \"openai/gpt-4.1\""],
    );
    bad_line(
        "model = \"openai/gpt-4.1\"\nsmall_model = \"llama3\"",
        &[
            "2:9: `sessions.model` must begin with \"ollama/\", as the provider is ollama; write \
           \"ollama/openai/gpt-4.1\", or set `sessions.provider` to openai",
            "3:15: `sessions.small_model` must begin with \"ollama/\", as the provider is ollama; write \
           \"ollama/llama3\"",
        ],
    );
    // What does not depend on the provider is found all the same.
    bad_line(
        "provider = 1\nmodel = 2\nbase_url = 3",
        &[
            "2:12: `sessions.provider` must be a string, not an integer; put it in quotes",
            "3:9: `sessions.model` must be a string, not an integer; put it in quotes",
            "4:12: `sessions.base_url` must be a string, not an integer; put it in quotes",
        ],
    );
}

#[test]
fn everything_else_that_can_be_wrong() {
    bad_file("sessions = 1\n", &["1:12: `sessions` must be a table, not an integer"]);
    bad_line("modell = \"x\"", &["2:1: unknown key `modell`; did you mean `model`?"]);
    bad_line(
        "runtime = \"podman\"",
        &["2:11: `sessions.runtime` must be \"local\" or \"docker\", not \"podman\""],
    );
    bad_line(
        "isolation = \"bubblewrap\"",
        &["2:13: `sessions.isolation` must be \"bwrap\" or \"none\", not \"bubblewrap\""],
    );
    bad_line(
        "isolation = \"runsc\"",
        &[
            "2:13: `sessions.isolation` must be \"bwrap\" or \"none\", not \"runsc\"; that one needs `runtime = \"docker\"`",
        ],
    );
    bad_line(
        "runtime = \"docker\"\nisolation = \"/usr/bin/runsc\"",
        &[
            "3:13: `sessions.isolation` must be the name of a runtime of the engine, such as \"runsc\", not \"/usr/bin/runsc\"",
        ],
    );
    bad_line(
        "image = \"--privileged\"",
        &[
            "2:9: `sessions.image` cannot be used: an image is a name in lower case with an optional tag, such as \
           \"boxes/opencode:1.2\"",
        ],
    );
    let command = "2:11: `sessions.command` must be the name of one program, or its absolute path; arguments go in a \
                   script that it names";
    for written in ["npx opencode-ai", "./opencode", "bin/opencode", "-x"] {
        bad_line(&format!("command = \"{written}\""), &[command]);
    }
    bad_line(
        "idle = 30",
        &["2:8: `sessions.idle` must be a duration such as \"10m\", \"30s\" or \"500ms\", not an integer"],
    );
    bad_line("start_timeout = \"500ms\"", &["2:17: `sessions.start_timeout` must be \"1s\" to \"3600s\""]);
    bad_line("request_timeout = \"25h\"", &["2:19: `sessions.request_timeout` must be \"1s\" to \"86400s\""]);
    bad_line("poll_interval = \"1ms\"", &["2:17: `sessions.poll_interval` must be \"10ms\" to \"60s\""]);
    bad_line("max_hot = 0", &["2:11: `sessions.max_hot` must be 1 to 10000 boxes"]);
    bad_line("warm = 9", &["2:8: `sessions.warm` must be at most `max_hot`, 8"]);
    bad_line("strict_limits = 1", &["2:17: `sessions.strict_limits` must be true or false, not an integer"]);
    bad_line("extras_dir = \"\"", &["2:14: `sessions.extras_dir` is empty"]);
    bad_line(
        "mcp_servers = [\"tracker\", \"a/b\", \"sessions\"]",
        &[
            "2:16: there is no [servers.tracker]; add it, or take the name out",
            "2:27: \"a/b\" is not the name of a server",
            "2:34: there is no [servers.sessions]; add it, or take the name out",
        ],
    );
    bad_line(
        "egress = [\"https://pack.org\", \"pack.org:443\", \"169.254.169.254\", \"a.b\", \"A.b\"]",
        &[
            "2:11: \"https://pack.org\" is neither a host name nor an address; a host is a name or an address alone, \
           without scheme, port and path",
            "2:31: \"pack.org:443\" is neither a host name nor an address; a host is a name or an address alone, \
           without scheme, port and path",
            "2:47: 169.254.169.254 is a link-local or metadata address, to which callsign never connects; a host is a \
           name or an address alone, without scheme, port and path",
            "2:73: `A.b` is there already; keep one",
        ],
    );
    bad_line(
        "egress = \"all\"",
        &["2:10: `sessions.egress` must be \"none\", \"open\" or a list of hosts, not \"all\""],
    );
}

#[test]
fn limits_that_nothing_can_run_in() {
    let cores = "a number of cores from \"0.1\" to 1024; a fraction goes in quotes";
    bad_line(
        "limits = { memory = \"64MiB\", pids = 1, cpus = 0.5, disk = \"1MiB\", gpus = 1 }",
        &[
            "2:21: `sessions.limits.memory` must be at least \"256MiB\"",
            "2:37: `sessions.limits.pids` must be 16 to 65535 processes",
            &format!("2:47: `sessions.limits.cpus` must be {cores}, not a float"),
            "2:59: `sessions.limits.disk` must be at least \"16MiB\"",
            "2:67: unknown key `gpus`; did you mean `cpus`?",
        ],
    );
    for written in ["0", "1025", "\"0.05\"", "\"two\"", "\"1e3\"", "\"-1\"", "\".\""] {
        bad_line(
            &format!("limits = {{ cpus = {written} }}"),
            &[&format!("2:19: `sessions.limits.cpus` must be {cores}")],
        );
    }
}

#[test]
fn a_budget_is_something_or_left_out() {
    let expected = "a whole number from 1 on; leave it out for no limit";
    bad_line(
        "budget = { requests = 0, tokens = \"many\", money = 5 }",
        &[
            &format!("2:23: `sessions.budget.requests` must be {expected}"),
            &format!("2:35: `sessions.budget.tokens` must be {expected}, not a string"),
            "2:43: unknown key `money`; this table takes requests, tokens",
        ],
    );
    assert_eq!(settings("budget = { tokens = 9 }").budget, Budget { requests: None, tokens: Some(9) });
}
