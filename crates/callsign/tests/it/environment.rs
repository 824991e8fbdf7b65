//! What a child gets: its environment and its directory.

use serde_json::Value;
use testkit::bin;
use testkit::client::Era;
use testkit::harness::CANARY;

use crate::support::setup;

/// The environment of a child with these lines in its table, in a gateway that has FOO, BAR and a secret.
async fn environment(more: &str) -> Value {
    let gateway = setup()
        .env("FOO", "foo")
        .env("BAR", "bar")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("CALLSIGN_LOG", "info")
        .server("echo", &[&bin("echo-server")], more)
        .serve()
        .await;
    let client = gateway.connect("echo", Era::Legacy).await;
    let env = client.whoami("").await["env"].clone();
    client.end().await;
    env
}

#[track_caller]
fn check(env: &Value, there: &[(&str, &str)], absent: &[&str]) {
    for (name, value) in there {
        assert_eq!(env[*name], *value, "{name} in {env}");
    }
    for name in absent {
        assert!(env.get(*name).is_none(), "{name} in {env}");
    }
}

#[tokio::test]
async fn safe_is_the_default_and_holds_no_secrets() {
    for more in ["", "inherit_env = \"safe\""] {
        let env = environment(more).await;
        let path = "/usr/local/bin:/usr/bin:/bin";
        check(
            &env,
            &[("PATH", path), ("LANG", "C.UTF-8"), ("HTTPS_PROXY", "http://127.0.0.1:9")],
            &["FOO", "BAR", "OPENAI_API_KEY", "CALLSIGN_LOG", "CALLSIGN_STATE_DIR", "CALLSIGN_PROBE"],
        );
        assert!(env["HOME"].is_string(), "{env}");
        assert!(!env.to_string().contains(CANARY), "{env}");
    }
}

#[tokio::test]
async fn host_passes_on_what_the_host_gave() {
    let env = environment("inherit_env = \"host\"").await;
    check(&env, &[("FOO", "foo"), ("BAR", "bar")], &["CALLSIGN_LOG", "CALLSIGN_STATE_DIR", "CALLSIGN_PROBE"]);
}

#[tokio::test]
async fn a_list_passes_on_what_it_names() {
    let env = environment("inherit_env = [\"FOO\", \"NOT_THERE\"]").await;
    check(&env, &[("FOO", "foo")], &["BAR", "NOT_THERE", "OPENAI_API_KEY"]);
}

#[tokio::test]
async fn what_the_table_says_comes_on_top() {
    let env = environment(
        "env = { FOO = \"mine\", NEW = \"{env:BAR}/x\", LITERAL = \"{server}\" }\nenv_vars = [\"BAR\"]",
    )
    .await;
    check(
        &env,
        &[("FOO", "mine"), ("BAR", "bar"), ("NEW", "bar/x"), ("LITERAL", "echo")],
        &["OPENAI_API_KEY"],
    );
    let named = environment("env_vars = [\"OPENAI_API_KEY\"]").await;
    check(&named, &[("OPENAI_API_KEY", CANARY)], &[]);
}

#[tokio::test]
async fn without_identity_there_is_no_identity_variable() {
    let env = environment("").await;
    let names: Vec<&String> = env.as_object().map(|env| env.keys().collect()).unwrap_or_default();
    let identity = names.iter().filter(|name| **name != "CALLSIGN_JWKS_FILE").any(|name| {
        name.starts_with("CALLSIGN_") || name.ends_with("_SESSION_ID") || name.ends_with("_THREAD_ID")
    });
    assert!(!identity, "{names:?}");
}

#[tokio::test]
async fn the_lobby_says_that_it_is_one() {
    let program = bin("hostile-server");
    let command = [program.as_str(), "--mode", "needs-env", "CALLSIGN_PROBE"];
    let gateway = setup().server("needy", &command, "").serve().await;
    let client = gateway.connect("needy", Era::Legacy).await;
    let tools = client.request("tools/list", serde_json::json!({})).await.expect("discovery works");
    assert_eq!(tools["tools"].as_array().map(Vec::len), Some(2));
    let call = client.try_tool("echo", serde_json::json!({ "text": "x" })).await;
    assert!(call.is_err(), "the lobby answers discovery and nothing else");
}

#[tokio::test]
async fn a_child_starts_in_the_directory_that_was_meant() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    let gateway = setup()
        .server("file", &[&bin("echo-server")], "")
        .server("named", &[&bin("echo-server")], &format!("cwd = {:?}", elsewhere.path()))
        .serve()
        .await;
    for (name, directory) in [("file", gateway.files.path()), ("named", elsewhere.path())] {
        let client = gateway.connect(name, Era::Legacy).await;
        let cwd = client.whoami("X").await["cwd"].clone();
        let cwd = std::fs::canonicalize(cwd.as_str().expect("a path")).expect("a path");
        assert_eq!(cwd, std::fs::canonicalize(directory).expect("a path"), "{name}");
    }
}

#[tokio::test]
async fn wrap_hands_on_what_the_entry_of_the_host_needs() {
    let setup = setup().env("ENTRY_TOKEN", "t").env("OTHER", "o");
    let (client, files) = setup.wrap(Era::Legacy, &["--pass-env", "ENTRY_TOKEN"], &[&bin("echo-server")]);
    client.connect().await.expect("connected");
    let whoami = client.whoami("").await;
    check(&whoami["env"], &[("ENTRY_TOKEN", "t")], &["OTHER", "OPENAI_API_KEY"]);
    let cwd = std::fs::canonicalize(whoami["cwd"].as_str().expect("a path")).expect("a path");
    assert_eq!(cwd, std::fs::canonicalize(files.path()).expect("a path"), "the host's directory");
}

#[tokio::test]
async fn wrap_takes_from_the_configuration_what_the_command_line_leaves_out() {
    let setup = setup().env("FOO", "foo").server(
        "named",
        &[&bin("echo-server"), "--named"],
        "inherit_env = [\"FOO\"]\nenv = { X = \"1\" }",
    );
    let files_of_another_start = tempfile::tempdir().expect("a directory");
    let config = files_of_another_start.path().join("c.toml");
    std::fs::write(&config, setup.config()).expect("written");
    let config = config.to_str().expect("UTF-8");
    let (client, _files) = setup.wrap(Era::Legacy, &["--name", "named", "--config", config], &[]);
    client.connect().await.expect("connected");
    let whoami = client.whoami("").await;
    check(&whoami["env"], &[("FOO", "foo"), ("X", "1")], &[]);
    assert!(whoami["args"].to_string().contains("--named"), "{whoami}");
    let (client, _files) = setup.wrap(
        Era::Legacy,
        &["--name", "named", "--config", config],
        &[&bin("echo-server"), "--command-line"],
    );
    client.connect().await.expect("connected");
    let whoami = client.whoami("").await;
    check(&whoami["env"], &[("FOO", "foo"), ("X", "1")], &[]);
    assert!(whoami["args"].to_string().contains("--command-line"), "the command line wins: {whoami}");
}
