//! Which workspace a call is about: the one it names, else the one of its session, else an error.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::bin;
use testkit::client::{Client, Era, Failure, text};
use testkit::harness::{Gateway, HttpServer, Setup};

use crate::support::{header, log_file, messages, name_of, setup, told, whoami_as};

/// Servers whose `task` cannot do without a workspace, on a pipe and by HTTP.
const FILLED: &str = "arguments = { workspace = \"{workspace}\" }";

struct Rig {
    gateway: Gateway,
    _server: HttpServer,
    /// `a`, `b`, `with space` and `outside` lie in it; all but the last beneath the root.
    places: tempfile::TempDir,
    log: (tempfile::TempDir, String),
}

fn places() -> tempfile::TempDir {
    let places = tempfile::tempdir().expect("a directory");
    for name in ["root/a", "root/b", "root/with space", "outside"] {
        std::fs::create_dir_all(places.path().join(name)).expect("a directory");
    }
    places
}

fn with_root(places: &Path) -> Setup {
    setup().toml(&format!("[workspace]\nroots = [\"{}\"]", places.join("root").display()))
}

impl Rig {
    async fn new() -> Self {
        let (places, log) = (places(), log_file());
        let arguments = ["--workspace-tool", "--log", &log.1];
        let server = HttpServer::start("logging-server", &arguments);
        let program = bin("logging-server");
        let command = [&[program.as_str()], &arguments[..]].concat();
        let gateway = with_root(places.path())
            .server("pipe", &command, FILLED)
            .url("http", &server.url, FILLED)
            .server("there", &command, "cwd = \"{workspace}\"")
            .serve()
            .await;
        Self { gateway, _server: server, places, log }
    }

    fn path(&self, name: &str) -> String {
        let path = match name {
            "outside" => self.places.path().join("outside"),
            inside => self.places.path().join("root").join(inside),
        };
        path.to_str().expect("UTF-8").to_owned()
    }

    async fn client(&self, server: &str, era: Era, meta: &Value) -> Client {
        let client = self.gateway.client(server, era);
        let extra = if era == Era::Legacy { json!({ "_meta": meta }) } else { json!({}) };
        client.connect_with(extra).await.expect("connected");
        client.request("tools/list", json!({})).await.expect("a list");
        client
    }

    /// How often the servers were asked to add a task.
    fn asked(&self) -> usize {
        let calls = messages(self.log.1.as_ref(), "tools/call");
        calls.iter().filter(|call| call["params"]["name"] == "task").count()
    }

    /// How often it was said that a call's own workspace is another than its session's.
    fn differences(&self) -> usize {
        let log = self.gateway.log();
        log.lines().filter(|line| line.contains("INFO") && line.contains("overrides the session's")).count()
    }
}

/// The arguments that the server got.
async fn task(client: &Client, arguments: &Value, meta: &Value) -> Result<Value, Failure> {
    let params = json!({ "name": "task", "arguments": arguments, "_meta": meta });
    let answer = client.request("tools/call", params).await?;
    Ok(serde_json::from_str(&text(&answer)).expect("arguments"))
}

/// What becomes of a call.
#[derive(Clone, Copy)]
enum Then<'a> {
    /// The server gets this workspace.
    Gets(&'a str),
    /// The same, and it is noted that the session's is another one.
    Overrides(&'a str),
    /// The call is refused with these words, and the server not asked.
    Refused(&'a str),
}

/// A row: its name, `initialize._meta`, the call's `_meta`, its workspace argument, and what becomes of it.
struct Row<'a> {
    name: &'static str,
    initialize: Value,
    request: Value,
    explicit: Option<&'a str>,
    then: Then<'a>,
}

fn nested(workspace: &str) -> Value {
    json!({ "orbit": { "workspace": workspace } })
}

fn flat(workspace: &str) -> Value {
    json!({ "orbit.workspace": workspace })
}

fn row<'a>(
    name: &'static str,
    (initialize, request): (Value, Value),
    explicit: Option<&'a str>,
    then: Then<'a>,
) -> Row<'a> {
    Row { name, initialize, request, explicit, then }
}

#[tokio::test]
async fn every_row_of_the_table() {
    let rig = Rig::new().await;
    let (a, b) = (&*rig.path("a"), &*rig.path("b"));
    let (outside, gone) = (&*rig.path("outside"), &*rig.path("gone"));
    let (a_elsewise, space) = (&*format!("{a}/../a/"), &*rig.path("with space"));
    let none = || json!({});
    let uri = format!("file://{}", space.replace(' ', "%20"));
    let missing = "neither the call nor its session says it";
    let rows = [
        row("explicit only", (none(), none()), Some(a), Then::Gets(a)),
        row("ambient only, nested", (nested(a), none()), None, Then::Gets(a)),
        row("ambient only, flat", (flat(b), none()), None, Then::Gets(b)),
        row("ambient only, a file URI", (flat(&uri), none()), None, Then::Gets(space)),
        row("both, and equal", (nested(a), none()), Some(a), Then::Gets(a)),
        row("both, and the same place", (nested(a), none()), Some(a_elsewise), Then::Gets(a_elsewise)),
        row("both, and different", (nested(a), none()), Some(b), Then::Overrides(b)),
        row("neither", (none(), none()), None, Then::Refused(missing)),
        row("blank explicit", (nested(a), none()), Some(" \t"), Then::Gets(a)),
        row("blank explicit, no ambient", (none(), none()), Some(""), Then::Refused(missing)),
        row("blank ambient", (nested("  "), none()), None, Then::Refused(missing)),
        row("blank ambient, explicit", (flat(""), none()), Some(a), Then::Gets(a)),
        row("unknown path", (nested(gone), none()), None, Then::Refused("does not exist")),
        row(
            "outside the roots",
            (nested(outside), none()),
            None,
            Then::Refused("not beneath an allowed root"),
        ),
        row(
            "the root's parent",
            (nested(&format!("{a}/../../outside")), none()),
            None,
            Then::Refused("not beneath"),
        ),
        row("relative", (nested("a"), none()), None, Then::Refused("not an absolute path")),
        row("no text", (json!({ "orbit": { "workspace": [a] } }), none()), None, Then::Refused(missing)),
        row("explicit is the server's own business", (none(), none()), Some(outside), Then::Gets(outside)),
        row("a request's own before initialize's", (nested(a), nested(b)), None, Then::Gets(b)),
        row("a request's own, flat", (none(), flat(b)), None, Then::Gets(b)),
        row(
            "a host's evidence",
            (none(), json!({ "agent-session-id": "s", "agent-working-dir": a })),
            None,
            Then::Gets(a),
        ),
        row(
            "announced before a host's evidence",
            (nested(b), json!({ "agent-session-id": "s", "agent-working-dir": a })),
            None,
            Then::Gets(b),
        ),
    ];
    for server in ["pipe", "http"] {
        for row in &rows {
            check(&rig, server, row).await;
        }
    }
    for (era, server) in [(Era::Modern, "pipe"), (Era::Modern, "http")] {
        new_era(&rig, era, server).await;
    }
    two_at_once(&rig).await;
    again(&rig).await;
}

async fn check(rig: &Rig, server: &str, row: &Row<'_>) {
    let name = format!("{server}: {}", row.name);
    let client = rig.client(server, Era::Legacy, &row.initialize).await;
    let (asked, differences) = (rig.asked(), rig.differences());
    let mut arguments = json!({ "title": "t" });
    if let Some(explicit) = row.explicit {
        arguments["workspace"] = explicit.into();
    }
    let answer = task(&client, &arguments, &row.request).await;
    let noted = rig.differences() - differences;
    match (row.then, answer) {
        (Then::Gets(workspace) | Then::Overrides(workspace), Ok(got)) => {
            assert_eq!(got, json!({ "title": "t", "workspace": workspace }), "{name}");
            assert_eq!(noted, usize::from(matches!(row.then, Then::Overrides(_))), "{name}");
        }
        (Then::Refused(words), Err(failure)) => {
            assert_eq!(name_of(&failure), "missing_argument", "{name}: {failure:?}");
            let said = failure.text();
            assert!(
                said.contains(words) && said.contains("task") && said.contains("workspace"),
                "{name}: {said}"
            );
            assert_eq!(rig.asked(), asked, "{name}: the server was not asked");
        }
        (Then::Gets(_) | Then::Overrides(_), Err(failure)) => panic!("{name}: {failure:?}"),
        (Then::Refused(_), Ok(got)) => panic!("{name}: the server got {got}"),
    }
    client.end().await;
}

/// Each request says it for itself.
async fn new_era(rig: &Rig, era: Era, server: &str) {
    let client = rig.client(server, era, &json!({})).await;
    for workspace in ["a", "b", "a"] {
        let path = rig.path(workspace);
        for meta in [nested(&path), flat(&path)] {
            let got = task(&client, &json!({ "title": "t" }), &meta).await.expect("carried");
            assert_eq!(got["workspace"], path, "{server}");
        }
    }
    let asked = rig.asked();
    let failure =
        task(&client, &json!({ "title": "t" }), &json!({})).await.expect_err("nothing is remembered");
    assert_eq!((name_of(&failure), rig.asked()), ("missing_argument".to_owned(), asked), "{server}");
}

async fn two_at_once(rig: &Rig) {
    for server in ["pipe", "http"] {
        let (path_a, path_b) = (rig.path("a"), rig.path("b"));
        let one = rig.client(server, Era::Legacy, &nested(&path_a)).await;
        let two = rig.client(server, Era::Legacy, &flat(&path_b)).await;
        let (title, nothing) = (json!({ "title": "t" }), json!({}));
        for _ in 0..20 {
            let both = tokio::join!(task(&one, &title, &nothing), task(&two, &title, &nothing));
            let (first, second) = (both.0.expect("carried"), both.1.expect("carried"));
            assert_eq!(
                (&first["workspace"], &second["workspace"]),
                (&json!(path_a), &json!(path_b)),
                "{server}"
            );
        }
    }
}

/// A client that starts over on its pipe may announce another one.
async fn again(rig: &Rig) {
    let setup = with_root(rig.places.path()).server("ws", &[&bin("echo-server"), "--workspace-tool"], FILLED);
    let (client, _files) = setup.wrap_named(Era::Legacy, "ws", &[]);
    for workspace in ["a", "b", "a"] {
        let path = rig.path(workspace);
        client.connect_with(json!({ "_meta": nested(&path) })).await.expect("connected");
        client.request("tools/list", json!({})).await.expect("a list");
        let got = task(&client, &json!({ "title": "t" }), &json!({})).await.expect("carried");
        assert_eq!(got["workspace"], path);
    }
    client.connect().await.expect("connected");
    let failure = task(&client, &json!({ "title": "t" }), &json!({})).await.expect_err("not the one before");
    assert_eq!(name_of(&failure), "missing_argument", "{failure:?}");
}

#[tokio::test]
async fn an_argument_that_is_filled_in_is_optional_in_the_list_and_only_there() {
    let rig = Rig::new().await;
    for server in ["pipe", "http", "there"] {
        let client = rig.client(server, Era::Legacy, &json!({})).await;
        let listed = client.request("tools/list", json!({})).await.expect("a list");
        let tools = listed["tools"].as_array().expect("tools");
        let task = tools.iter().find(|tool| tool["name"] == "task").expect("the tool");
        let required = if server == "there" { json!(["title", "workspace"]) } else { json!(["title"]) };
        assert_eq!(task["inputSchema"]["required"], required, "{server}");
        assert!(task["inputSchema"]["properties"]["workspace"].is_object(), "it can still be given");
        // Tools that do not take it are called as they are.
        let echoed = client.tool_text("echo", json!({ "text": "x" })).await;
        assert_eq!(echoed, "x", "{server}");
    }
}

#[tokio::test]
async fn a_server_finds_the_workspace_in_its_environment_its_directory_and_its_handshake() {
    let rig = Rig::new().await;
    let real = |path: &str| std::fs::canonicalize(path).expect("a path");
    for name in ["a", "b"] {
        let path = rig.path(name);
        let goose = json!({ "agent-session-id": "s", "agent-working-dir": path });
        for (initialize, request) in [(nested(&path), json!({})), (json!({}), goose)] {
            let client = rig.client("there", Era::Legacy, &initialize).await;
            let whoami = whoami_as(&client, &request).await;
            assert_eq!(whoami["env"]["CALLSIGN_WORKSPACE"], path, "{request}");
            assert_eq!(PathBuf::from(whoami["cwd"].as_str().expect("a path")), real(&path), "{request}");
            assert_eq!(told(&whoami)["workspace"], path, "{request}");
            assert_eq!(whoami["initialize"]["_meta"]["orbit"]["workspace"], path, "{request}");
        }
    }
    let client = rig.client("http", Era::Legacy, &nested(&rig.path("a"))).await;
    assert_eq!(header(&whoami_as(&client, &json!({})).await, "callsign-workspace"), [rig.path("a")]);
    // One that may not be used is as none, and the process starts where the file lies.
    let client = rig.client("there", Era::Legacy, &nested(&rig.path("outside"))).await;
    let whoami = whoami_as(&client, &json!({})).await;
    assert!(whoami["env"].get("CALLSIGN_WORKSPACE").is_none(), "{whoami}");
    assert!(told(&whoami).get("workspace").is_none(), "{whoami}");
    let cwd = PathBuf::from(whoami["cwd"].as_str().expect("a path"));
    assert_eq!(cwd, real(rig.gateway.files.path().to_str().expect("UTF-8")));
}

#[tokio::test]
async fn the_hosts_own_directory_is_allowed_for_a_host_on_a_pipe() {
    let (client, files) = setup().wrap(Era::Legacy, &[], &[&bin("echo-server")]);
    let inside = files.path().join("home");
    let inside = std::fs::canonicalize(inside).expect("a path");
    let inside = inside.to_str().expect("UTF-8");
    client.connect_with(json!({ "_meta": nested(inside) })).await.expect("connected");
    assert_eq!(whoami_as(&client, &json!({})).await["env"]["CALLSIGN_WORKSPACE"], inside);
}
