//! Extras: what a bundle of the host gives a session, with the real pip and an index of the test's own.

mod shelf;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use testkit::engine::{IMAGE, Kind, PrivateEngine};

use self::shelf::Shelf;
use crate::rig::{Client, Rig, SOON, TURN, bash, text};

/// A rig, its index, and its bundle.
struct Scene {
    rig: Rig,
    shelf: Shelf,
    /// Goes last: others have it open.
    _engine: Option<PrivateEngine>,
}

impl Scene {
    fn new(kind: Option<Kind>) -> Self {
        let engine = kind.map(PrivateEngine::start);
        let lines = match &engine {
            None => String::new(),
            Some(_) => format!("runtime = \"docker\"\nimage = \"{IMAGE}\"\n"),
        };
        let place = tempfile::tempdir().expect("a directory").keep();
        let bundle = place.join("bundle");
        fs::create_dir_all(bundle.join("skills/hello")).expect("a directory");
        let mut rig = Rig::with(&format!("{lines}extras_dir = {}\n", Value::from(bundle.to_str())));
        if let Some(engine) = &engine {
            rig.set("DOCKER_HOST", &engine.host());
        }
        let (state, model) = (rig.state(), rig.model().address().to_string());
        let shelf = Shelf::open(&place, |index| {
            let state = |name: &str| state.join(name).to_str().expect("UTF-8").to_owned();
            json!({
                "addresses": [model, "127.0.0.1:22", "192.0.2.7:443", "example.org:443", "169.254.169.254:80"],
                "sockets": ["/run/callsign/model.sock", "/run/callsign/mcp.sock", "/run/callsign/control.sock",
                    state("daemon.sock")],
                "read": [state(""), state("sessions"), "/etc/shadow", "/root"],
                "write": ["/usr/x", "/etc/x", "/x", "/run/callsign/x", "/opt/x", state("x")],
                "index": format!("http://{index}/simple/greet/"),
            })
        });
        rig.set("PIP_INDEX_URL", &shelf.url());
        let scene = Self { rig, shelf, _engine: engine };
        scene.require("greet==1.0\n");
        fs::write(scene.bundle().join("skills/hello/SKILL.md"), "# Hello\n").expect("a file");
        scene
    }

    fn place(&self) -> PathBuf {
        self.bundle().parent().expect("it lies in one").to_owned()
    }

    fn bundle(&self) -> PathBuf {
        let config = fs::read_to_string(self.rig.config()).expect("the configuration");
        let line = config.lines().find_map(|line| line.strip_prefix("extras_dir = ")).expect("it is set");
        PathBuf::from(line.trim_matches('"'))
    }

    fn require(&self, lines: &str) {
        fs::write(self.bundle().join("requirements.txt"), lines).expect("a file");
    }

    fn directory(&self, session: &str) -> PathBuf {
        self.rig.state().join("sessions").join(session)
    }

    fn record(&self, session: &str) -> Value {
        let path = self.directory(session).join("extras.json");
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_slice(&bytes).expect("JSON")
    }

    /// A run whose agent runs this; what it printed.
    #[track_caller]
    fn shell(&self, client: &Client, session: &str, command: &str) -> String {
        let command = format!("({command}) > out.txt 2>&1");
        let run = client.submit(session, json!([bash(&command), { "text": "done" }]));
        let ended = client.wait(session, &run, TURN);
        assert_eq!(ended["status"], "completed", "{ended}\n{}\n{}", client.log(&run), self.rig.log());
        let printed = fs::read_to_string(self.directory(session).join("workspace/out.txt"));
        printed.expect("it printed")
    }

    /// A run that fails for its extras; what it says.
    #[track_caller]
    fn fails(&self, client: &Client, session: &str) -> String {
        let run = client.submit(session, json!([{ "text": "not reached" }]));
        let ended = client.wait(session, &run, TURN);
        assert_eq!(
            (&ended["status"], &ended["error"]["code"]),
            (&json!("failed"), &json!("extras_failed")),
            "{ended}"
        );
        assert!(!self.directory(session).join("extras").exists(), "something was left");
        text(&ended["error"]["message"])
    }

    fn installing(&self) -> bool {
        self.rig.boxes().iter().any(|found| found.session.starts_with("extras-"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(self.place());
    }
}

fn sha256(path: &Path) -> String {
    let output = Command::new("sha256sum").arg(path).output().expect("sha256sum runs");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.split(' ').next().expect("a digest").to_owned()
}

/// Installed once, usable from the agent's shell, recorded; whatever a package tries while it is built, it gets nowhere.
fn a_bundle_is_there_for_the_agent(kind: Option<Kind>) {
    let mut scene = Scene::new(kind);
    scene.require("greet==1.0\nnosy==1.0\n");
    let tool = scene.bundle().join("skills/hello/run.sh");
    fs::write(&tool, "#!/bin/sh\necho ran\n").expect("a file");
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).expect("its mode");
    scene.rig.serve();
    let client = scene.rig.client();
    let session = client.create("with extras");
    // What somebody placed there stays.
    let skills = scene.directory(&session).join("workspace/skills");
    fs::create_dir_all(skills.join("hello")).expect("a directory");
    fs::write(skills.join("hello/SKILL.md"), "mine\n").expect("a file");
    if nix::unistd::geteuid().is_root() {
        for made in [&skills, &skills.join("hello")] {
            std::os::unix::fs::chown(made, Some(65534), Some(65534)).expect("root may");
        }
    }

    let said = scene.shell(
        &client,
        &session,
        "python3 -c 'import greet; print(greet.hello())'; greet-now; skills/hello/run.sh; cat skills/hello/SKILL.md; \
         python3 -c 'import nosy, json; print(json.dumps(nosy.FOUND))' > nosy.json; cp /session-meta/extras.json copy.json; \
         touch skills/hello/more && echo writable; ls /session-meta/../extras.json /extras.json; echo x > /session-meta/extras.json",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines[..5],
        ["hello from greet 1.0", "hello from greet 1.0", "ran", "mine", "writable"],
        "{said}"
    );

    let workspace = scene.directory(&session).join("workspace");
    let record = scene.record(&session);
    let copy: Value =
        serde_json::from_slice(&fs::read(workspace.join("copy.json")).expect("a copy")).expect("JSON");
    assert_eq!(record, copy);
    assert_eq!(record["state"], "done");
    assert_eq!(record["requirements"]["sha256"], sha256(&scene.bundle().join("requirements.txt")));
    let digests: Vec<(&str, &str)> = record["skills"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|file| (file["path"].as_str().expect("a path"), file["sha256"].as_str().expect("a digest")))
        .collect();
    let own = |name: &str| sha256(&scene.bundle().join(name));
    assert_eq!(
        digests,
        [
            ("skills/hello/SKILL.md", own("skills/hello/SKILL.md").as_str()),
            ("skills/hello/run.sh", own("skills/hello/run.sh").as_str())
        ]
    );
    assert_eq!(record["kept"], json!(["skills/hello/SKILL.md"]));
    let packages: Vec<String> = record["packages"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|package| format!("{}=={}", text(&package["name"]), text(&package["version"])))
        .collect();
    assert_eq!(packages, ["greet==1.0", "nosy==1.0"]);
    assert_eq!(record["hosts"], json!([scene.shelf.address]));

    let nosy: Value =
        serde_json::from_slice(&fs::read(workspace.join("nosy.json")).expect("it looked")).expect("JSON");
    got_nowhere(&nosy);

    // Once: not for the next run, not after a restart, and not where the bundle has changed.
    let asked = scene.shelf.asked().len();
    scene.require("greet==2.0\n");
    scene.rig.stop();
    scene.rig.serve();
    assert_eq!(scene.shell(&client, &session, "greet-now"), "hello from greet 1.0\n");
    assert_eq!(scene.shelf.asked().len(), asked, "the index was asked again");
    scene.rig.until(SOON, "the change to be told", || scene.rig.log().contains("the extras have changed"));
    assert_eq!(scene.record(&session), record);

    // Another session has those of now, and a box of its own for them.
    let other = client.create("with newer extras");
    assert_eq!(
        scene.shell(&client, &other, "greet-now; cat skills/hello/SKILL.md"),
        "hello from greet 2.0\n# Hello\n"
    );
    assert_eq!(scene.record(&other)["kept"], json!([]));
    assert!(scene.shelf.asked().len() > asked);
}

fn got_nowhere(found: &Value) {
    println!("{found:#}");
    let found = found.as_object().expect("what it found");
    for (what, came) in found {
        match what.as_str() {
            // It could try at all.
            "index" | "own" => assert!(text(came).starts_with("done: "), "{what}: {came}"),
            _ => assert!(text(came).starts_with("failed: "), "{what}: {came}"),
        }
    }
    assert!(found.len() > 20, "it did not try much");
}

#[test]
fn a_bundle_is_there_for_the_agent_in_a_local_box() {
    a_bundle_is_there_for_the_agent(None);
}

#[test]
fn a_bundle_is_there_for_the_agent_in_a_container() {
    a_bundle_is_there_for_the_agent(Some(Kind::Docker));
}

/// A run says what is wrong, nothing is left, and the next one tries again.
#[test]
fn what_is_wrong_with_a_bundle_is_said_and_can_be_put_right() {
    let mut scene = Scene::new(None);
    scene.rig.serve();
    let client = scene.rig.client();
    let session = client.create("with bad extras");
    let skills = scene.bundle().join("skills");
    let check = |said: &str, expected: &[&str]| {
        for part in expected {
            assert!(said.contains(part), "{part}: {said}");
        }
    };

    symlink("/etc/passwd", skills.join("hello/link")).expect("a link");
    check(&scene.fails(&client, &session), &["skills/hello/link", "a link"]);
    fs::remove_file(skills.join("hello/link")).expect("it is there");

    nix::unistd::mkfifo(&skills.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    check(&scene.fails(&client, &session), &["skills/pipe", "neither a file nor a directory"]);
    fs::remove_file(skills.join("pipe")).expect("it is there");

    let huge = fs::File::create(skills.join("huge")).expect("a file");
    huge.set_len(65 << 20).expect("its length");
    check(&scene.fails(&client, &session), &["skills/huge", "64 MiB"]);
    fs::remove_file(skills.join("huge")).expect("it is there");

    scene.require("--extra-index-url https://ann:sk-CANARY-of-the-index@packages.example/simple\ngreet\n");
    let said = scene.fails(&client, &session);
    check(&said, &["line 1 of requirements.txt", "credentials"]);
    assert!(!said.contains("CANARY"), "{said}");
    assert_eq!(scene.shelf.asked().len(), 0, "pip ran");

    scene.require("greet==9.9\n");
    check(&scene.fails(&client, &session), &["No matching distribution found for greet==9.9", "exit code 1"]);
    assert!(!scene.directory(&session).join("meta/python").exists());

    scene.require("greet @ http://192.0.2.1:9/greet-1.0-py3-none-any.whl\n");
    check(&scene.fails(&client, &session), &["pip said last"]);

    scene.require("greet\n");
    assert_eq!(scene.shell(&client, &session, "greet-now"), "hello from greet 2.0\n");
}

/// A daemon that is killed while pip waits is followed by one that begins anew; who cancels ends the box.
#[test]
fn an_install_that_is_cut_off_leaves_nothing_behind() {
    let mut scene = Scene::new(None);
    scene.rig.serve();
    let client = scene.rig.client();
    let session = client.create("cut off");
    scene.shelf.hold(true);
    let run = client.submit(&session, json!([bash("greet-now > out.txt"), { "text": "done" }]));
    scene.rig.until(TURN, "pip to wait for a file", || scene.shelf.downloads() == 1);
    assert!(scene.installing());
    scene.rig.kill();
    assert!(scene.installing(), "a box outlives its daemon");
    scene.rig.serve();
    scene.rig.until(TURN, "another pip to wait", || scene.shelf.downloads() == 2);
    let installing = scene.rig.boxes().iter().filter(|found| found.session.starts_with("extras-")).count();
    assert_eq!(installing, 1);
    scene.shelf.hold(false);
    let ended = client.wait(&session, &run, TURN);
    assert_eq!(ended["status"], "completed", "{ended}\n{}", scene.rig.log());
    assert_eq!(scene.record(&session)["state"], "done");
    assert!(!scene.installing());

    let other = client.create("canceled");
    scene.shelf.hold(true);
    let before = scene.shelf.downloads();
    let run = client.submit(&other, json!([{ "text": "not reached" }]));
    scene.rig.until(TURN, "pip to wait for a file", || scene.shelf.downloads() > before);
    let status = client.call("get_status", json!({ "session_id": other, "run_id": run }));
    assert!(text(&status["run"]["progress"]["last"]).starts_with("installing extras: "), "{status}");
    let canceled = client.call("cancel_run", json!({ "run_id": run }));
    let ended = client.wait(&other, &run, SOON);
    assert_eq!(ended["status"], "canceled", "{canceled} {ended}");
    scene.rig.until(SOON, "the box to end", || !scene.installing());
    scene
        .rig
        .until(SOON, "what was prepared to be gone", || !scene.directory(&other).join("extras").exists());
    assert!(!scene.directory(&other).join("extras.json").exists());
    scene.shelf.hold(false);
    assert_eq!(scene.shell(&client, &other, "greet-now"), "hello from greet 1.0\n");
}
