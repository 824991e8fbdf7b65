//! A project into a session and its changes back: which directory is meant, and that nothing of it is lost.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::client::Era;

use crate::rig::{Rig, bash};

/// A directory of the host with projects in it, which is an allowed root.
struct Host {
    files: TempDir,
}

impl Host {
    fn new() -> Self {
        let files = tempfile::Builder::new().prefix("callsign-host-").tempdir().expect("a directory");
        fs::set_permissions(files.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
        Self { files }
    }

    fn rig(&self) -> Rig {
        Rig::with(&format!("[workspace]\nroots = [{}]\n", json!(self.files.path().join("allowed"))))
    }

    /// A git repository with a file, an ignored one and a setting that is nobody's business.
    fn project(&self, name: &str) -> PathBuf {
        let directory = self.files.path().join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let git = |arguments: &[&str]| {
            let done =
                Command::new("git").arg("-C").arg(&directory).args(arguments).output().expect("git runs");
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        };
        git(&["init", "--quiet"]);
        git(&["config", "http.extraheader", "AUTHORIZATION: basic CANARY-of-git"]);
        fs::write(directory.join("code.txt"), format!("of {name}\n")).expect("a file");
        fs::write(directory.join(".gitignore"), "secret.env\n").expect("a file");
        fs::write(directory.join("secret.env"), "CANARY-of-env\n").expect("a file");
        git(&["add", "."]);
        git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "--quiet", "-m", "first"]);
        directory
    }
}

/// How a client says where it works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Announced {
    AtTheBeginning,
    WithEachRequest,
}

/// One client, with or without a workspace of its own.
struct Caller {
    client: testkit::client::Client,
    meta: Value,
}

impl Caller {
    async fn new(rig: &Rig, era: Era, how: Announced, meta: &Value) -> Self {
        let client = rig.mcp(era);
        let (first, each) = match how {
            Announced::AtTheBeginning => (meta.clone(), json!({})),
            Announced::WithEachRequest => (json!({}), meta.clone()),
        };
        client.connect_with(json!({ "_meta": first })).await.expect("it connects");
        Self { client, meta: each }
    }

    /// What the tool answers, or its error.
    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Value> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": self.meta });
        let result = self.client.request("tools/call", params).await.expect("an answer");
        let answer = &result["structuredContent"];
        if result["isError"] == true { Err(answer["error"].clone()) } else { Ok(answer.clone()) }
    }
}

fn said(error: &Value) -> String {
    error["message"].as_str().unwrap_or_default().to_owned()
}

/// ADR-0181: the one that the call names, else that of the session, else an error that says what to do.
#[tokio::test]
async fn the_workspace_is_the_one_named_then_the_sessions_then_an_error() {
    let host = Host::new();
    let mut rig = host.rig();
    rig.serve();
    let (one, two) = (host.project("allowed/one"), host.project("allowed/two"));
    let elsewhere = host.project("elsewhere");
    let blocking = rig.client();
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let (one, two, elsewhere) = (path(&one), path(&two), path(&elsewhere));
    let nothing = path(&host.files.path().join("allowed/nothing"));
    let nested = |path: &str| json!({ "orbit": { "workspace": path } });
    let flat = |path: &str| json!({ "orbit.workspace": path });
    let legacy = (Era::Legacy, Announced::AtTheBeginning);
    for (era, how) in
        [legacy, (Era::Legacy, Announced::WithEachRequest), (Era::Modern, Announced::WithEachRequest)]
    {
        // What the client announces, what the call names, and the directory or a part of the error.
        let rows: [(Value, Option<&str>, Result<&str, &str>); 10] = [
            (json!({}), None, Err("give one in the argument `workspace`")),
            (nested(&one), None, Ok(&one)),
            (flat(&one), None, Ok(&one)),
            (json!({}), Some(&two), Ok(&two)),
            (nested(&one), Some(&two), Ok(&two)),
            (nested(&elsewhere), None, Err("not beneath an allowed root")),
            (nested(&one), Some(&elsewhere), Err("not beneath an allowed root")),
            (nested(&one), Some("relative"), Err("not an absolute path")),
            (nested(&one), Some(&nothing), Err("does not exist")),
            (nested(&one), Some("/nowhere/at/all"), Err("not beneath an allowed root")),
        ];
        for (announced, named, expected) in rows {
            let caller = Caller::new(&rig, era, how, &announced).await;
            let session = blocking.create("a table");
            let mut arguments = json!({ "session_id": session });
            if let Some(named) = named {
                arguments["workspace"] = json!(named);
            }
            let row = format!("{era:?} {how:?} announces {announced}, names {named:?}");
            let imported = caller.call("import_workspace", arguments.clone()).await;
            // There is something to export whatever became of the import.
            if imported.is_err() {
                blocking.call("import_workspace", json!({ "session_id": session, "workspace": one }));
            }
            let exported = caller.call("export_changes", arguments).await;
            match expected {
                Ok(expected) => {
                    let imported = imported.unwrap_or_else(|error| panic!("{row}: {error}"));
                    assert_eq!(imported["workspace"], expected, "{row}");
                    let exported = exported.unwrap_or_else(|error| panic!("{row}: {error}"));
                    assert_eq!(
                        (&exported["workspace"], &exported["changed"]),
                        (&json!(expected), &json!(0)),
                        "{row}"
                    );
                    let into = PathBuf::from(crate::rig::text(&blocking.session(&session)["workspace"]));
                    let code = fs::read_to_string(into.join("code.txt")).expect("it was imported");
                    assert!(code.contains(expected.rsplit('/').next().unwrap_or_default()), "{row}: {code}");
                }
                Err(part) => {
                    for error in [imported.expect_err(&row), exported.expect_err(&row)] {
                        assert_eq!(error["code"], "bad_workspace", "{row}: {error}");
                        assert!(said(&error).contains(part), "{row}: {error}");
                    }
                }
            }
        }
    }
    let log = rig.log();
    assert!(log.contains("names another workspace than its session's"), "the difference is told:\n{log}");
}

/// Keys, tokens and what other sessions have lie there, and a box would have written what comes back.
#[test]
fn the_state_directory_is_no_workspace() {
    let mut rig = Rig::with("[workspace]\nroots = [\"/\"]\n");
    rig.serve();
    let client = rig.client();
    let session = client.create("curious");
    let own = PathBuf::from(crate::rig::text(&client.session(&session)["workspace"]));
    for wanted in [rig.state(), own, rig.state().join("sessions"), rig.path().to_owned(), PathBuf::from("/")]
    {
        for tool in ["import_workspace", "export_changes"] {
            let asked = json!({ "session_id": session, "workspace": wanted });
            let error = client.try_call(tool, asked).expect_err("refused");
            assert_eq!(error["code"], "bad_workspace", "{tool} {wanted:?}: {error}");
            assert!(said(&error).contains("state directory"), "{error}");
        }
    }
}

/// The whole way, with an agent that works.
#[test]
fn a_project_goes_in_is_worked_on_and_comes_back() {
    let host = Host::new();
    let mut rig = host.rig();
    rig.serve();
    let project = host.project("allowed/project");
    let client = rig.client();
    let session = client.create("project");
    let arguments = |more: Value| {
        let mut arguments = json!({ "session_id": session, "workspace": project });
        arguments.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
        arguments
    };
    let error = client.try_call("export_changes", arguments(json!({}))).expect_err("nothing was imported");
    assert_eq!(error["code"], "nothing_imported", "{error}");
    let imported = client.call("import_workspace", arguments(json!({})));
    assert_eq!((&imported["files"], &imported["git"]), (&json!(2), &json!("made")), "{imported}");
    let workspace = PathBuf::from(crate::rig::text(&client.session(&session)["workspace"]));
    let everything = Command::new("grep").args(["-r", "CANARY"]).arg(&workspace).output().expect("grep runs");
    assert!(everything.stdout.is_empty(), "{}", String::from_utf8_lossy(&everything.stdout));

    let work = "git status --short && echo more >> code.txt && echo new > new.txt && echo x > secret.env && git log --oneline";
    client.complete(&session, json!([bash(work), { "text": "done" }]));
    let exported = client.call("export_changes", arguments(json!({})));
    let patch = crate::rig::text(&exported["patch"]);
    assert!(patch.contains("+more") && patch.contains("+new") && !patch.contains("secret.env"), "{patch}");
    assert_eq!((&exported["changed"], &exported["applied"]), (&json!(2), &json!(false)), "{exported}");
    assert!(!project.join("new.txt").exists(), "a patch changes nothing");
    let mut check = Command::new("git");
    check.arg("-C").arg(&project).args(["apply", "--check", "-"]);
    assert!(piped(&mut check, &patch), "git does not take it:\n{patch}");

    // The user has gone on with the same file: nothing at all is applied.
    fs::write(project.join("code.txt"), "of the user\n").expect("a file");
    let error =
        client.try_call("export_changes", arguments(json!({ "apply": true }))).expect_err("a conflict");
    assert_eq!(error["code"], "conflict", "{error}");
    assert!(said(&error).contains("code.txt"), "{error}");
    assert!(!project.join("new.txt").exists(), "all or nothing");
    assert_eq!(fs::read_to_string(project.join("code.txt")).expect("a file"), "of the user\n");

    fs::write(project.join("code.txt"), "of allowed/project\n").expect("a file");
    let applied = client.call("export_changes", arguments(json!({ "apply": true })));
    assert_eq!((&applied["written"], &applied["applied"]), (&json!(2), &json!(true)), "{applied}");
    assert_eq!(fs::read_to_string(project.join("code.txt")).expect("a file"), "of allowed/project\nmore\n");
    assert_eq!(fs::read_to_string(project.join("new.txt")).expect("a file"), "new\n");
    assert_eq!(fs::read_to_string(project.join("secret.env")).expect("a file"), "CANARY-of-env\n");
    assert_eq!(client.call("export_changes", arguments(json!({})))["changed"], 0, "the host has them now");

    // What is applied elsewhere is still owed to the directory that was imported.
    client.complete(&session, json!([bash("echo again >> code.txt"), { "text": "again" }]));
    let copy = host.project("allowed/copy");
    fs::write(copy.join("code.txt"), "of allowed/project\nmore\n").expect("a file");
    let elsewhere = json!({ "session_id": session, "workspace": copy, "apply": true });
    assert_eq!(client.call("export_changes", elsewhere)["written"], 1);
    assert_eq!(client.call("export_changes", arguments(json!({})))["changed"], 1, "it does not have them");
    assert_eq!(client.call("export_changes", arguments(json!({ "apply": true })))["written"], 1);

    // In the middle of a run nothing is imported.
    let run = client.submit(&session, json!([{ "delay": 3000 }, { "text": "at work" }]));
    rig.wait_begun("at work");
    let error = client.try_call("import_workspace", arguments(json!({}))).expect_err("a run is at work");
    assert_eq!(error["code"], "busy", "{error}");
    client.wait(&session, &run, crate::rig::TURN);
    client.call("import_workspace", arguments(json!({})));
    client.call("terminate_session", json!({ "session_id": session }));
    let error = client.try_call("import_workspace", arguments(json!({}))).expect_err("it is over");
    assert_eq!(error["code"], "session_terminated", "{error}");
}

fn piped(command: &mut Command, text: &str) -> bool {
    use std::io::Write as _;
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("it starts");
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(text.as_bytes()));
    written.is_some_and(|written| written.is_ok()) && child.wait().is_ok_and(|status| status.success())
}
