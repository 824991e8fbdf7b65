//! `[hosts.NAME]` and `[workspace]`.

use model::{HostSpec, Id, Place, Placeholder};

use super::*;

#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
    let target = Some(Target::Command { command: "node".to_owned(), args: Vec::new() });
    let wrapped =
        Wrapped { name: ServerName::new("b").unwrap(), section: UseSection::No, target, inherit_env: None };
    assert_eq!(mistakes(text, Purpose::Wrap(&wrapped)), expected, "for wrap, for\n{text}");
}

fn meta(key: &str) -> Place {
    Place::Meta(key.to_owned())
}

#[test]
fn every_word_of_a_host_arrives() {
    let text = "[hosts.acme]\nclient = \"Acme Agent\"\nrun = { meta = \"r\" }\nsession = { meta = \"acme/session\" }\n\
                thread = { header = \"X-Acme_Thread\" }\nparent = { meta = \"p\" }\nturn = { meta = \"t\" }\n\
                call = { meta = \"c\" }\ntitle = { meta = \"orbit.title\" }\nworkspace = { meta = \"é\" }\n\
                [hosts.other]\nthread.meta = \"mydev.callsign\"\n";
    let acme = HostSpec {
        name: Id::new("acme").unwrap(),
        client: Some("Acme Agent".to_owned()),
        fields: vec![
            (Placeholder::SessionId, meta("acme/session")),
            (Placeholder::ThreadId, Place::Header("x-acme_thread".to_owned())),
            (Placeholder::ParentId, meta("p")),
            (Placeholder::TurnId, meta("t")),
            (Placeholder::CallId, meta("c")),
            (Placeholder::SessionTitle, meta("orbit.title")),
            (Placeholder::Workspace, meta("é")),
            (Placeholder::RunId, meta("r")),
        ],
    };
    let other = HostSpec {
        name: Id::new("other").unwrap(),
        client: None,
        fields: vec![(Placeholder::ThreadId, meta("mydev.callsign"))],
    };
    assert_eq!(read(text, Purpose::Serve).map(|config| config.hosts), Ok(vec![acme, other]));
}

#[test]
fn names_of_hosts() {
    let rule = "a name is 1 to 64 of the characters a-z A-Z 0-9 . _ - and starts with a letter or digit";
    bad(
        "[hosts.\"a b\"]\nsession = { meta = \"s\" }\n",
        &[&format!("1:8: \"a b\" is not the name of a host: {rule}")],
    );
    for name in [
        "opencode",
        "codex",
        "claude-code",
        "goose",
        "vscode",
        "chatgpt",
        "openwebui",
        "openhands",
        "librechat",
        "callsign",
        "Codex",
    ] {
        bad(
            &format!("[hosts.{name}]\nsession = {{ meta = \"s\" }}\n"),
            &[&format!("1:8: callsign knows `{name}` itself; choose another name for a host of your own")],
        );
    }
}

#[test]
fn hosts_of_the_wrong_shape() {
    bad("hosts = 1\n", &["1:9: `hosts` must be a table, not an integer"]);
    bad("[hosts]\nacme = \"x\"\n", &["2:8: `hosts.acme` must be a table, not a string"]);
    bad(
        "[hosts.acme]\nclient = \"\"\ntitle = { meta = \"t\" }\n",
        &[
            "1:8: `acme` says nothing about who calls; give it `session` or `thread`",
            "2:10: `client` is empty",
        ],
    );
    bad(
        "[hosts.acme]\nsesion = { meta = \"s\" }\nthread = \"t\"\nclient = 1\n",
        &[
            "2:1: unknown key `sesion`; did you mean `session`?",
            "3:10: `thread` must be { meta = \"KEY\" } or { header = \"NAME\" }, not a string",
            "4:10: `client` must be a string, not an integer; put it in quotes",
        ],
    );
    bad(
        "[hosts.acme]\nsession = {}\nthread = { meta = \"a\", header = \"b\" }\ncall = { metta = \"c\" }\n\
         turn = { meta = 1 }\nrun = { header = \"\" }\n",
        &[
            "2:11: `session` must be { meta = \"KEY\" } or { header = \"NAME\" }",
            "3:10: `thread` has both `meta` and `header`; keep one",
            "4:8: `call` must be { meta = \"KEY\" } or { header = \"NAME\" }",
            "4:10: unknown key `metta`; did you mean `meta`?",
            "5:17: `meta` must be a string, not an integer; put it in quotes",
            "6:18: `header` is empty",
        ],
    );
}

#[test]
fn names_under_which_nobody_can_say_who_calls() {
    for key in [
        "dev.callsign",
        "dev.callsign/identity",
        "DEV.CALLSIGN/x",
        "dev.callsign.x",
        "__callsign",
        "Callsign-Session",
    ] {
        let message = format!(
            "2:20: `{key}` is callsign's own, and removed from what a caller sends; name another key"
        );
        bad(&format!("[hosts.acme]\nsession = {{ meta = {key:?} }}\n"), &[&message]);
    }
    for (name, problem) in [
        ("Callsign-Session", "is callsign's own; take it out"),
        ("callsign_x", "is callsign's own; take it out"),
        ("Mcp-Session-Id", "is written by the transport; take it out"),
        ("Host", "is written by the transport; take it out"),
        ("Last-Event-ID", "is written by the transport; take it out"),
        ("Authorization", "holds a secret, which is not an id; name another header"),
        ("cookie", "holds a secret, which is not an id; name another header"),
        ("Proxy_Authorization", "holds a secret, which is not an id; name another header"),
    ] {
        let message = format!("2:22: `{name}` {problem}");
        bad(&format!("[hosts.acme]\nsession = {{ header = {name:?} }}\n"), &[&message]);
    }
    bad(
        "[hosts.acme]\nsession = { header = \"X Y\" }\n",
        &["2:22: \"X Y\" is not the name of a header; use letters, digits and -"],
    );
}

#[test]
fn two_hosts_that_could_not_be_told_apart() {
    bad(
        "[hosts.a]\nclient = \"x\"\nsession = { meta = \"s\" }\n[hosts.b]\nsession = { meta = \"s\" }\nclient = \"x\"\n",
        &["6:10: `a` has this client already; keep one"],
    );
    // Those without a client go by their keys.
    let by_keys = "[hosts.a]\nsession = { meta = \"s\" }\n[hosts.b]\nsession = { meta = \"t\" }\n";
    assert_eq!(read(by_keys, Purpose::Serve).map(|config| config.hosts.len()), Ok(2));
}

#[test]
fn roots_of_workspaces() {
    let roots = |text: &str| read(text, Purpose::Serve).map(|config| config.roots);
    let home = Path::new("/home/ann").to_owned();
    assert_eq!(roots(""), Ok(vec![home.clone()]));
    assert_eq!(roots("[workspace]\n"), Ok(vec![home.clone()]));
    assert_eq!(roots("[workspace]\nroots = []\n"), Ok(Vec::new()));
    assert_eq!(
        roots("[workspace]\nroots = [\"~\", \"~/x\", \"/srv\", \"here\", \"~bob\"]\n"),
        Ok(vec![home.clone(), home.join("x"), "/srv".into(), "/etc/here".into(), "/etc/~bob".into()])
    );
    let warnings = read("[workspace]\nroots = [\"/\", \"{env:ROOT}\"]\n", Purpose::Serve).unwrap().warnings;
    let shown: Vec<_> = warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "callsign.toml:2:15: `workspace.roots` are taken as they are, {env:ROOT} too",
            "callsign.toml:2:15: no workspace can lie there, it is not a directory: /etc/{env:ROOT}",
        ]
    );
}

#[test]
fn roots_that_lead_nowhere() {
    bad("workspace = \"~\"\n", &["1:13: `workspace` must be a table, not a string"]);
    bad("[workspace]\nroot = [\"~\"]\n", &["2:1: unknown key `root`; did you mean `roots`?"]);
    bad(
        "[workspace]\nroots = \"~\"\n",
        &["2:9: `workspace.roots` must be a list of directories, not a string"],
    );
    bad(
        "[workspace]\nroots = [\"\", 1, \"a\\u0000\"]\n",
        &[
            "2:10: each of `workspace.roots` is empty",
            "2:14: each of `workspace.roots` must be a string, not an integer; put it in quotes",
            "2:17: each of `workspace.roots` holds a NUL character; take it out",
        ],
    );
}

#[test]
fn without_a_home_there_is_no_root_by_default_and_a_tilde_is_a_mistake() {
    let nothing = |_: &str| None;
    let read = |text| {
        let source = Source { text, shown: Path::new("callsign.toml"), directory: Path::new("/etc") };
        parse(source, Purpose::Serve, Environment::new(&nothing))
    };
    assert_eq!(read("").map(|config| config.roots), Ok(Vec::new()));
    let errors = read("[workspace]\nroots = [\"~/x\"]\n[servers.a]\ncommand = \"x\"\ncwd = \"~/{server}\"\n")
        .unwrap_err();
    assert_eq!(
        errors.to_string(),
        "callsign.toml:2:10: each of `workspace.roots`: HOME is not set, so ~ leads nowhere\n\
         callsign.toml:5:7: `cwd`: HOME is not set, so ~ leads nowhere"
    );
}
