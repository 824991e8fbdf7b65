//! Row 21: a configuration that would run somebody else's code.

use testkit::bin;
use testkit::client::Era;

use crate::support::setup;

#[tokio::test]
async fn row_21_loader_and_interpreter_variables_are_refused_by_name() {
    let echo = bin("echo-server");
    let cases = [
        (
            r#"env = { LD_PRELOAD = "/opt/x.so", NODE_OPTIONS = "--require /opt/x.js", BASH_ENV = "/opt/x" }"#,
            vec!["LD_PRELOAD", "NODE_OPTIONS", "BASH_ENV"],
        ),
        (r#"env_vars = ["LD_LIBRARY_PATH", "PYTHONSTARTUP"]"#, vec!["LD_LIBRARY_PATH", "PYTHONSTARTUP"]),
        (r#"inherit_env = ["LD_AUDIT", "PERL5OPT"]"#, vec!["LD_AUDIT", "PERL5OPT"]),
    ];
    for (line, names) in cases {
        let setup = setup().server("evil", &[&echo], line);
        let log = match setup.try_serve().await {
            Err(log) => log,
            Ok(gateway) => panic!("served with {line}:\n{}", gateway.log()),
        };
        for name in &names {
            assert!(log.contains(name), "{name} is not named:\n{log}");
        }
        let (code, stdout, stderr) = setup.run_alone(&["config", "check"]);
        assert_ne!(code, Some(0), "{line}");
        for name in names {
            assert!(format!("{stdout}{stderr}").contains(name), "{name} is not named:\n{stdout}{stderr}");
        }
    }
}

#[tokio::test]
async fn what_a_host_has_in_its_environment_does_not_reach_a_child_by_accident() {
    let setup =
        setup().env("LD_BIND_NOW", "1").env("NODE_OPTIONS", "--no-warnings").env("BASH_ENV", "/nowhere");
    for inherit in ["safe", "host"] {
        let gateway = setup
            .clone()
            .server("echo", &[&bin("echo-server")], &format!("inherit_env = \"{inherit}\""))
            .serve()
            .await;
        let client = gateway.connect("echo", Era::Legacy).await;
        let env = client.whoami("").await["env"].clone();
        if inherit == "safe" {
            for name in ["LD_BIND_NOW", "NODE_OPTIONS", "BASH_ENV", "OPENAI_API_KEY"] {
                assert!(env.get(name).is_none(), "{inherit}: {name} in {env}");
            }
        }
        assert!(env.get("PATH").is_some(), "{inherit}: {env}");
        client.end().await;
    }
}

#[tokio::test]
async fn every_mistake_is_reported_at_once_with_its_line() {
    let broken = "[serve]\nlisten = 7\n[servers.a]\ncommand = \"x\"\nisolation = \"none\"\ntimeout = \"soon\"\n[servers.b]\nurl = \"ftp://x\"\nunknown_key = 1\n";
    let log = match setup().toml(broken).try_serve().await {
        Err(log) => log,
        Ok(gateway) => panic!("served:\n{}", gateway.log()),
    };
    for word in ["listen", "isolation", "timeout", "url", "unknown_key"] {
        assert!(log.contains(word), "{word} is not named:\n{log}");
    }
}
