//! The `MCP_*` variables over what the file says.

use super::*;
use crate::config::sessions::{VARIABLES, key, state_dir};

fn defaults() -> SessionSettings {
    SessionSettings::default()
}

/// A file with a provider, a url and a key of its own.
fn of_openai() -> SessionSettings {
    settings(
        "provider = \"openai\"\nmodel = \"openai/gpt-4.1\"\nsmall_model = \"openai/gpt-4.1-mini\"\n\
         base_url = \"https://models.example/v1\"\napi_key_env = \"TRACKER_TOKEN\"",
    )
}

/// One row a variable: what it does to the defaults. `MCP_STATE_DIR` says nothing of a session.
#[test]
fn each_variable_has_its_effect() {
    let seconds = Duration::from_secs;
    let rows: [(&str, &str, SessionSettings); 14] = [
        ("MCP_RUNTIME_MODE", "docker", SessionSettings { runtime: Runtime::Docker, ..defaults() }),
        (
            "MCP_OPENCODE_COMMAND",
            "/opt/opencode",
            SessionSettings { command: "/opt/opencode".to_owned(), ..defaults() },
        ),
        ("MCP_OPENCODE_PROVIDER", "ollama", defaults()),
        (
            "MCP_OPENCODE_MODEL",
            "ollama/llama3",
            SessionSettings { model: model_name(Provider::Ollama, "ollama/llama3"), ..defaults() },
        ),
        (
            "MCP_OPENCODE_SMALL_MODEL",
            "ollama/tiny",
            SessionSettings { small_model: Some(model_name(Provider::Ollama, "ollama/tiny")), ..defaults() },
        ),
        (
            "MCP_OPENCODE_BASE_URL",
            "http://10.0.0.7:11434/v1",
            SessionSettings { base_url: "http://10.0.0.7:11434/v1".to_owned(), ..defaults() },
        ),
        ("MCP_OPENCODE_API_KEY", "ollama", SessionSettings { api_key: Some(given("ollama")), ..defaults() }),
        (
            "MCP_OPENCODE_SERVER_START_TIMEOUT",
            "20",
            SessionSettings { start_timeout: seconds(20), ..defaults() },
        ),
        (
            "MCP_OPENCODE_REQUEST_TIMEOUT",
            "600",
            SessionSettings { request_timeout: seconds(600), ..defaults() },
        ),
        (
            "MCP_OLLAMA_BASE_URL",
            "http://localhost:11434/v1",
            SessionSettings { base_url: "http://localhost:11434/v1".to_owned(), ..defaults() },
        ),
        ("MCP_OLLAMA_API_KEY", "mine", SessionSettings { api_key: Some(given("mine")), ..defaults() }),
        (
            "MCP_WORKER_POLL_INTERVAL",
            "0.25",
            SessionSettings { poll_interval: Duration::from_millis(250), ..defaults() },
        ),
        (
            "MCP_RUNTIME_EXTRAS_DIR",
            "/srv/extras",
            SessionSettings { extras_dir: Some("/srv/extras".into()), ..defaults() },
        ),
        ("MCP_STATE_DIR", "relative/state", defaults()),
    ];
    for (name, value, expected) in &rows {
        assert_eq!(&good(&defaults(), &[(name, value)]), expected, "{name}");
        // An empty one is as good as none.
        assert_eq!(good(&defaults(), &[(name, "")]), defaults(), "{name}");
    }
    let image = [("MCP_RUNTIME_MODE", "docker"), ("MCP_RUNTIME_IMAGE", "boxes/opencode:1")];
    assert_eq!(good(&defaults(), &image).image, Image::new("boxes/opencode:1").unwrap());
    for name in VARIABLES {
        assert!(
            name == "MCP_RUNTIME_IMAGE" || rows.iter().any(|(row, ..)| *row == name),
            "{name} has no row"
        );
    }
}

/// Settings as people have them, for each of the seven.
#[test]
fn each_provider_as_its_example_has_it() {
    let rows = [
        ("ollama", "ollama/gpt-oss:20b", "ollama/gpt-oss:20b", "http://host.docker.internal:11434/v1"),
        (
            "openrouter",
            "openrouter/openai/gpt-4o",
            "openrouter/openai/gpt-4o-mini",
            "https://openrouter.ai/api/v1",
        ),
        (
            "gemini",
            "gemini/gemini-2.5-pro",
            "gemini/gemini-2.5-flash",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("openai", "openai/gpt-4.1", "openai/gpt-4.1-mini", "https://api.openai.com/v1"),
        (
            "mistral",
            "mistral/mistral-large-latest",
            "mistral/mistral-small-latest",
            "https://api.mistral.ai/v1",
        ),
        ("deepseek", "deepseek/deepseek-chat", "deepseek/deepseek-chat", "https://api.deepseek.com/v1"),
        (
            "qwen",
            "qwen/qwen-plus",
            "qwen/qwen-flash",
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        ),
    ];
    for ((name, model, small_model, url), provider) in rows.into_iter().zip(Provider::ALL) {
        let variables = [
            ("MCP_OPENCODE_PROVIDER", name),
            ("MCP_OPENCODE_MODEL", model),
            ("MCP_OPENCODE_SMALL_MODEL", small_model),
            ("MCP_OPENCODE_API_KEY", "sk-CANARY-7f3a"),
            ("MCP_OPENCODE_BASE_URL", url),
        ];
        let expected = SessionSettings {
            model: model_name(provider, model),
            small_model: Some(model_name(provider, small_model)),
            base_url: provider.base_url().to_owned(),
            api_key: Some(given("sk-CANARY-7f3a")),
            ..defaults()
        };
        assert_eq!(good(&defaults(), &variables), expected, "{name}");
        // The same without the url; and whatever the file says of another provider.
        assert_eq!(good(&defaults(), &variables[..4]), expected, "{name}");
        if provider != Provider::OpenAi {
            assert_eq!(good(&of_openai(), &variables[..4]), expected, "{name}");
        }
    }
}

#[test]
fn what_the_file_says_holds_where_no_variable_does() {
    let file = of_openai();
    assert_eq!(good(&file, &[]), file);
    assert_eq!(good(&file, &[("MCP_OPENCODE_PROVIDER", "openai")]), file);
    let model = model_name(Provider::OpenAi, "openai/o3");
    let expected = SessionSettings { model, ..file.clone() };
    assert_eq!(good(&file, &[("MCP_OPENCODE_MODEL", "openai/o3")]), expected);
    let expected = SessionSettings { api_key: Some(given("mine")), ..file.clone() };
    assert_eq!(good(&file, &[("MCP_OPENCODE_API_KEY", "mine")]), expected);
}

#[test]
fn a_key_of_the_file_is_sent_to_its_own_url_only() {
    let file = of_openai();
    assert_eq!(good(&file, &[("MCP_OPENCODE_BASE_URL", "https://MODELS.example/v1/")]), file);
    let (found, warnings) = resolved(&file, &[("MCP_OPENCODE_BASE_URL", "https://elsewhere.example/v1")]);
    assert_eq!(found.settings.api_key, None);
    assert_eq!(
        warnings,
        ["MCP_OPENCODE_BASE_URL: leads elsewhere than the configuration, whose key is not sent there; set \
          MCP_OPENCODE_API_KEY"]
    );
    let both = [("MCP_OPENCODE_BASE_URL", "https://elsewhere.example/v1"), ("MCP_OPENCODE_API_KEY", "mine")];
    assert_eq!(good(&file, &both).api_key, Some(given("mine")));
    // Nor to another provider.
    let other = [("MCP_OPENCODE_PROVIDER", "ollama"), ("MCP_OPENCODE_MODEL", "ollama/x")];
    let found = good(&file, &other);
    assert_eq!(
        (found.api_key, found.small_model, found.base_url.as_str()),
        (None, None, "http://127.0.0.1:11434/v1")
    );
    // A key that a layer of variables gave is held to the same.
    let base = good(&defaults(), &[("MCP_OPENCODE_API_KEY", "sk-CANARY-7f3a")]);
    let (found, _) = resolved(&base, &[("MCP_OPENCODE_BASE_URL", "http://127.0.0.1:9/v1")]);
    assert_eq!(found.settings.api_key, None);
}

#[test]
fn loopback_is_this_host_whatever_the_box() {
    for (written, expected) in [
        ("http://host.docker.internal:11434/v1", "http://127.0.0.1:11434/v1"),
        ("http://HOST.docker.internal.:11434/v1/", "http://127.0.0.1:11434/v1"),
        ("https://host.docker.internal/v1", "https://127.0.0.1/v1"),
        ("http://host.docker.internal.example/v1", "http://host.docker.internal.example/v1"),
        ("http://[::1]:11434/v1", "http://[::1]:11434/v1"),
        ("HTTP://LocalHost:11434/V1", "http://localhost:11434/V1"),
    ] {
        for name in ["MCP_OPENCODE_BASE_URL", "MCP_OLLAMA_BASE_URL"] {
            assert_eq!(good(&defaults(), &[(name, written)]).base_url, expected);
        }
    }
}

#[test]
fn the_older_names_are_for_ollama() {
    let general = ("MCP_OPENCODE_BASE_URL", "http://127.0.0.1:1/v1");
    let same = ("MCP_OLLAMA_BASE_URL", "http://127.0.0.1:1/v1");
    assert_eq!(good(&defaults(), &[general, same]).base_url, "http://127.0.0.1:1/v1");
    let (found, warnings) = resolved(
        &defaults(),
        &[
            general,
            ("MCP_OLLAMA_BASE_URL", "http://127.0.0.1:2/v1"),
            ("MCP_OPENCODE_API_KEY", "a"),
            ("MCP_OLLAMA_API_KEY", "sk-CANARY-7f3a"),
        ],
    );
    assert_eq!(
        (found.settings.base_url.as_str(), found.settings.api_key),
        ("http://127.0.0.1:1/v1", Some(given("a")))
    );
    assert_eq!(
        warnings,
        [
            "MCP_OLLAMA_BASE_URL: is not used: MCP_OPENCODE_BASE_URL is set to something else; keep one",
            "MCP_OLLAMA_API_KEY: is not used: MCP_OPENCODE_API_KEY is set to something else; keep one",
        ]
    );
    let (found, warnings) = resolved(
        &of_openai(),
        &[("MCP_OLLAMA_BASE_URL", "not a url"), ("MCP_OLLAMA_API_KEY", "sk-CANARY-7f3a")],
    );
    assert_eq!(found.settings, of_openai());
    assert_eq!(
        warnings,
        [
            "MCP_OLLAMA_BASE_URL: is for ollama, and the provider is openai; use MCP_OPENCODE_BASE_URL",
            "MCP_OLLAMA_API_KEY: is for ollama, and the provider is openai; use MCP_OPENCODE_API_KEY",
        ]
    );
}

#[test]
fn models_and_providers() {
    let list = "must be one of ollama, openrouter, gemini, openai, mistral, deepseek, qwen";
    for (written, rest) in [
        ("opnai", ", not \"opnai\"; did you mean \"openai\"?"),
        ("OpenAI", ", not \"OpenAI\"; did you mean \"openai\"?"),
        ("anthropic", ", not \"anthropic\""),
        ("sk-CANARY-7f3a", ""),
        ("CANARYCANARYCANARYCANARYCANARY00", ""),
    ] {
        let expected = format!("MCP_OPENCODE_PROVIDER: {list}{rest}");
        bad(&defaults(), &[("MCP_OPENCODE_PROVIDER", written)], &[&expected]);
    }
    let key =
        "MCP_OPENCODE_API_KEY: is not set, and gemini needs a key; set it, or `api_key_env` in [sessions]";
    bad(
        &defaults(),
        &[("MCP_OPENCODE_PROVIDER", "gemini")],
        &[
            "MCP_OPENCODE_MODEL: is not set, and gemini needs a model; set it, such as to gemini/gemini-2.5-pro",
            key,
        ],
    );
    let empty =
        "MCP_OPENCODE_API_KEY: is empty, and gemini needs a key; set it, or `api_key_env` in [sessions]";
    let gemini = [("MCP_OPENCODE_PROVIDER", "gemini"), ("MCP_OPENCODE_MODEL", "gemini/x")];
    bad(&defaults(), &gemini, &[key]);
    bad(&defaults(), &[gemini[0], gemini[1], ("MCP_OPENCODE_API_KEY", "")], &[empty]);
    // A server of one's own may want none.
    let own = [gemini[0], gemini[1], ("MCP_OPENCODE_BASE_URL", "http://127.0.0.1:8000/v1")];
    assert_eq!(good(&defaults(), &own).api_key, None);
    let begins = "must begin with \"ollama/\", as the provider is ollama;";
    for (written, advice) in [
        ("gpt-oss:20b", "write \"ollama/gpt-oss:20b\""),
        ("Ollama/x", "write \"ollama/x\""),
        ("meta/llama", "write \"ollama/meta/llama\""),
        ("qwen/qwen-plus", "write \"ollama/qwen/qwen-plus\", or set MCP_OPENCODE_PROVIDER to qwen"),
        ("two words", "write it like \"ollama/gpt-oss:20b\""),
        ("sk-CANARY-7f3a", "write it like \"ollama/gpt-oss:20b\""),
    ] {
        for name in ["MCP_OPENCODE_MODEL", "MCP_OPENCODE_SMALL_MODEL"] {
            bad(&defaults(), &[(name, written)], &[&format!("{name}: {begins} {advice}")]);
        }
    }
    for (written, problem) in [
        ("ollama/", "nothing stands behind the prefix"),
        ("ollama/a b", "it holds ' '; a model's name is of visible ASCII characters"),
        ("ollama/a\u{1b}", "it holds '\\u{1b}'; a model's name is of visible ASCII characters"),
    ] {
        let expected =
            format!("MCP_OPENCODE_MODEL: must be a model such as \"ollama/gpt-oss:20b\"; {problem}");
        bad(&defaults(), &[("MCP_OPENCODE_MODEL", written)], &[&expected]);
    }
}

#[test]
fn urls() {
    let in_full = "must be a url in full, such as http://127.0.0.1:11434/v1";
    for (written, problem) in [
        ("127.0.0.1:11434/v1", in_full),
        ("sk-CANARY-7f3a", in_full),
        (
            "http://ann:CANARY@127.0.0.1/v1",
            "must be without credentials; the key goes in MCP_OPENCODE_API_KEY",
        ),
        ("http://127.0.0.1/v1?key=CANARY", "must be without a query; take out what starts with ?"),
        ("http://{env:HOME}/v1", "must be the url itself; placeholders are not filled in here"),
        ("ftp://127.0.0.1/v1", "cannot be used: ftp: is not supported; use http or https"),
        ("http://127.0.0.1/v1#x", "cannot be used: such a url has no fragment; take out what starts with #"),
        ("http://127.0.0.1:0/v1", "cannot be used: its port must be a number from 1 to 65535"),
        (
            "http://169.254.169.254/v1",
            "cannot be used: 169.254.169.254 is a link-local or metadata address, to which callsign never connects",
        ),
        (
            "http://0x7f000001/v1",
            "cannot be used: 0x7f000001 is an odd spelling of 127.0.0.1; write 127.0.0.1",
        ),
    ] {
        for name in ["MCP_OPENCODE_BASE_URL", "MCP_OLLAMA_BASE_URL"] {
            bad(&defaults(), &[(name, written)], &[&format!("{name}: {problem}")]);
        }
    }
    let (_, warnings) = resolved(
        &defaults(),
        &[("MCP_OPENCODE_BASE_URL", "http://models.example"), ("MCP_OPENCODE_API_KEY", "sk-CANARY-7f3a")],
    );
    assert_eq!(
        warnings,
        [
            "MCP_OPENCODE_BASE_URL: is http: the key can be read on the way; use https",
            "MCP_OPENCODE_BASE_URL: has no path; most providers answer beneath one, such as /v1",
        ]
    );
}

#[test]
fn keys_that_cannot_be_one() {
    let unfilled = "names a variable that nobody has filled in; write the key itself";
    for (written, problem) in [
        ("$OPENAI_API_KEY", unfilled),
        ("${OPENAI_API_KEY}", unfilled),
        ("{env:OPENAI_API_KEY}", unfilled),
        ("sk-CANARY-7f3a\n", "cannot be sent: it holds '\\n'; a header takes visible ASCII characters only"),
        ("sk-CANARY-é", "cannot be sent: it holds 'é'; a header takes visible ASCII characters only"),
        ("sk-CANARY-7f3a ", "must be without a space before or after it"),
    ] {
        for name in ["MCP_OPENCODE_API_KEY", "MCP_OLLAMA_API_KEY"] {
            bad(&defaults(), &[(name, written)], &[&format!("{name}: {problem}")]);
        }
    }
}

#[test]
fn numbers_of_seconds() {
    let start = "must be a number of seconds from 1 to 3600";
    for written in
        ["0", "0.9", "3601", "20s", "-1", "1e3", "inf", "nan", ".", "20,5", " 20", "99999999999999999999"]
    {
        let expected = format!("MCP_OPENCODE_SERVER_START_TIMEOUT: {start}, not {written:?}");
        bad(&defaults(), &[("MCP_OPENCODE_SERVER_START_TIMEOUT", written)], &[&expected]);
    }
    for (name, range) in
        [("MCP_OPENCODE_REQUEST_TIMEOUT", "1 to 86400"), ("MCP_WORKER_POLL_INTERVAL", "0.01 to 60")]
    {
        let expected = format!("{name}: must be a number of seconds from {range}, not \"0\"");
        bad(&defaults(), &[(name, "0")], &[&expected]);
    }
    for (written, expected) in [("20", 20_000), ("1.5", 1500), ("20.", 20_000), ("1.23456", 1234)] {
        let found = good(&defaults(), &[("MCP_OPENCODE_SERVER_START_TIMEOUT", written)]);
        assert_eq!(found.start_timeout, Duration::from_millis(expected));
    }
}

#[test]
fn everything_else_that_can_be_wrong() {
    let command =
        "must be the name of one program, or its absolute path; arguments go in a script that it names";
    for (name, written, problem) in [
        ("MCP_RUNTIME_MODE", "podman", "must be \"local\" or \"docker\", not \"podman\""),
        (
            "MCP_RUNTIME_IMAGE",
            "-v",
            "cannot be used: an image is a name in lower case with an optional tag, such as \"boxes/opencode:1.2\"",
        ),
        ("MCP_OPENCODE_COMMAND", "npx opencode-ai", command),
        ("MCP_OPENCODE_COMMAND", "./opencode", command),
        ("MCP_RUNTIME_EXTRAS_DIR", "extras", "must be an absolute path"),
        ("MCP_RUNTIME_EXTRAS_DIR", "~/extras", "must be an absolute path"),
        ("MCP_RUNTIME_EXTRAS_DIR", "/srv/\0", "must be an absolute path"),
    ] {
        bad(&defaults(), &[(name, written)], &[&format!("{name}: {problem}")]);
    }
    let long = "x".repeat(4097);
    for name in VARIABLES.into_iter().filter(|name| *name != "MCP_STATE_DIR") {
        bad(&defaults(), &[(name, &long)], &[&format!("{name}: must be at most 4 KiB long")]);
    }
    let (found, warnings) = resolved(&defaults(), &[("MCP_RUNTIME_IMAGE", "x")]);
    assert_eq!(found.settings.runtime, Runtime::Local);
    assert_eq!(
        warnings,
        [
            "MCP_RUNTIME_IMAGE: is for docker, and the runtime is local; set MCP_RUNTIME_MODE=docker to have it used"
        ]
    );
}

#[test]
fn names_that_are_no_setting() {
    for (name, problem) in [
        ("MCP_OPENCODE_MODELL", "is no setting; did you mean MCP_OPENCODE_MODEL?"),
        ("MCP_OPENCOD_API_KEY", "is no setting; did you mean MCP_OPENCODE_API_KEY?"),
        ("mcp_opencode_model", "is no setting; did you mean MCP_OPENCODE_MODEL?"),
        ("MCP_STATEDIR", "is no setting; did you mean MCP_STATE_DIR?"),
        ("MCP_OPENCODE_TEMPERATURE_OF_MODEL", "is no setting; take it out"),
        ("MCP_WORKER_X", "is no setting; take it out"),
        ("MCP_OPENCODE_TOKEN", "is no setting; take it out"),
        ("MCP_OPENCODE_\n\u{1b}[31m", "is no setting; take it out"),
    ] {
        let shown: String = name.escape_debug().collect();
        bad(&defaults(), &[(name, "sk-CANARY-7f3a")], &[&format!("{shown}: {problem}")]);
    }
    let others =
        [("MCP_TIMEOUT", "sk-CANARY-7f3a"), ("PATH", "/bin"), ("XMCP_A", "1"), ("mcp", "1"), ("MCPé_", "1")];
    let (found, warnings) = resolved(&defaults(), &others);
    assert_eq!(found.settings, defaults());
    assert_eq!(warnings, ["MCP_TIMEOUT: is no setting of sessions, and is not used"]);
}

#[test]
fn every_mistake_at_once() {
    bad(
        &defaults(),
        &[
            ("MCP_OPENCODE_PROVIDER", "x"),
            ("MCP_RUNTIME_MODE", "x"),
            ("MCP_RUNTIME_IMAGE", "X"),
            ("MCP_OPENCODE_COMMAND", "a b"),
            ("MCP_OPENCODE_BASE_URL", "x"),
            ("MCP_OPENCODE_API_KEY", "$X"),
            ("MCP_OPENCODE_SERVER_START_TIMEOUT", "x"),
            ("MCP_OPENCODE_REQUEST_TIMEOUT", "x"),
            ("MCP_WORKER_POLL_INTERVAL", "x"),
            ("MCP_RUNTIME_EXTRAS_DIR", "x"),
            ("MCP_OPENCODE_X", "x"),
        ],
        &[
            "MCP_RUNTIME_MODE: must be \"local\" or \"docker\", not \"x\"",
            "MCP_RUNTIME_IMAGE: cannot be used: an image is a name in lower case with an optional tag, such as \
             \"boxes/opencode:1.2\"",
            "MCP_OPENCODE_COMMAND: must be the name of one program, or its absolute path; arguments go in a script that \
             it names",
            "MCP_OPENCODE_PROVIDER: must be one of ollama, openrouter, gemini, openai, mistral, deepseek, qwen, not \"x\"",
            "MCP_OPENCODE_BASE_URL: must be a url in full, such as http://127.0.0.1:11434/v1",
            "MCP_OPENCODE_API_KEY: names a variable that nobody has filled in; write the key itself",
            "MCP_OPENCODE_SERVER_START_TIMEOUT: must be a number of seconds from 1 to 3600, not \"x\"",
            "MCP_OPENCODE_REQUEST_TIMEOUT: must be a number of seconds from 1 to 86400, not \"x\"",
            "MCP_WORKER_POLL_INTERVAL: must be a number of seconds from 0.01 to 60, not \"x\"",
            "MCP_RUNTIME_EXTRAS_DIR: must be an absolute path",
            "MCP_OPENCODE_X: is no setting; take it out",
        ],
    );
}

#[test]
fn where_the_key_is() {
    let of_process = Environment::new(&variable);
    let found = |settings: &SessionSettings| key(settings, of_process).map_err(|mistake| mistake.to_string());
    assert_eq!(found(&defaults()), Ok(None));
    assert_eq!(found(&of_openai()), Ok(Some(Secret::new("sk-CANARY-7f3a"))));
    let given = SessionSettings { api_key: Some(given("mine")), ..defaults() };
    assert_eq!(found(&given), Ok(Some(Secret::new("mine"))));
    let named =
        |name: &str| SessionSettings { api_key: Some(ApiKey::Variable(name.to_owned())), ..defaults() };
    let not_set = "NOT_SET: is not set, and `sessions.api_key_env` names it for the key of ollama; set it for the daemon";
    assert_eq!(found(&named("NOT_SET")), Err(not_set.to_owned()));
    let lines = "TWO_LINES: cannot be sent: it holds '\\r'; a header takes visible ASCII characters only";
    assert_eq!(found(&named("TWO_LINES")), Err(lines.to_owned()));
}

#[test]
fn the_environment_of_a_process() {
    let lookup = |name: &str| match name {
        "MCP_STATE_DIR" => Some("state".to_owned()),
        "MCP_OPENCODE_MODEL" => Some("ollama/x".to_owned()),
        _ => None,
    };
    let environment = Environment::new(&lookup);
    let expected = set(&[("MCP_STATE_DIR", "state"), ("MCP_OPENCODE_MODEL", "ollama/x")]);
    assert_eq!(Variables::of(environment), expected);
    assert_eq!(state_dir(environment), Some("state".into()));
    assert_eq!(state_dir(Environment::new(&|name| (name == "MCP_STATE_DIR").then(String::new))), None);
}
