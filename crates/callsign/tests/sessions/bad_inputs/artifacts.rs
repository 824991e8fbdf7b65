//! What a box leaves behind is not to be trusted: paths, names, contents, titles.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::harness::{alive, fd_count};

use crate::rig::{Client, Rig, SOON, TURN, bash, bash_titled, text};

/// Copies to the clipboard, colours, a title, a bell, a line that hides the one before.
const SEQUENCES: &str = "\u{1b}]52;c;aGVsbG8=\u{7}\u{1b}[31mred\u{1b}[0m\u{1b}]0;owned\u{7}\u{9b}2J\r\u{8}";
const PAGE: &str = "<script>alert(1)</script>\n";
const PICTURE: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>"#;

#[test]
fn hostile_paths_names_contents_and_titles() {
    let mut rig = Rig::new();
    let daemon = rig.serve();
    let client = rig.client();
    let session = client.create("hostile");
    let workspace = PathBuf::from(text(&client.session(&session)["workspace"]));
    let odd = odd_names();
    let command = format!(
        "cd /workspace; printf '%s' '{PAGE}' > x.html; printf '%s' '{PICTURE}' > x.svg; \
         printf 'a\\000b' > binary; head -c 1500000 /dev/zero | tr '\\0' z > long.txt; mkfifo fifo; \
         ln -s /etc/passwd passwd; ln -s / root; ln -s ../key key; ln -s x.html inside; mkdir -p dir; \
         printf '\\033]52;c;aGVsbG8=\\007 in a log line\\n'"
    );
    // What a tool is titled is the agent's word: here the command itself.
    let titled = bash_titled(&format!("{command}; : '{SEQUENCES}'"), SEQUENCES);
    let noisy = bash(&format!("printf '\\033[2J\\033]0;owned\\007noise\\n'; : '{SEQUENCES}'; exit 3"));
    let ended = client.complete(&session, json!([titled, noisy, { "text": format!("end {SEQUENCES}") }]));
    // What changes while a run is under way is the run's.
    let second = client.submit(&session, json!([{ "delay": 1500 }, { "text": "odd ones" }]));
    rig.wait_begun("odd ones");
    for name in &odd {
        std::fs::write(workspace.join(std::ffi::OsStr::from_bytes(name)), "odd").expect("an odd name");
    }
    assert_eq!(client.wait(&session, &second, TURN)["final_output"], "odd ones");
    let fds = fd_count(daemon);

    titles_drive_no_terminal(&rig, &client, &text(&ended["id"]));
    names_are_names(&client, &session, &second, &odd);
    contents_are_contents(&client, &session, &text(&ended["id"]));
    paths_lead_nowhere_else(&rig, &client, &session);

    assert!(alive(daemon), "the daemon died:\n{}", rig.log());
    // Each worker of the gateway keeps a connection to the socket, which is the daemon's own: two files each.
    rig.until(SOON, "open files to be closed", || fd_count(daemon) <= fds + 8);
    rig.check_canary();
}

/// Whatever a file system takes. The last one is no UTF-8, and nobody could ask for it.
fn odd_names() -> Vec<Vec<u8>> {
    let texts = [
        "a\nb",
        "\u{1b}]52;c;aGk=\u{7}.txt",
        "<img src=x onerror=alert(1)>",
        "%2e%2e%2fkey",
        "..\\key",
        "-rf",
    ];
    texts.iter().map(|name| name.as_bytes().to_vec()).chain([b"\xff\xfe".to_vec()]).collect()
}

/// Row 25: a log is read in terminals and pages.
fn titles_drive_no_terminal(rig: &Rig, client: &Client, run: &str) {
    let log = client.log(run);
    let control = |text: &str| text.chars().find(|char| char.is_control() && *char != '\n');
    assert_eq!(control(&log), None, "a control character in the log: {log:?}");
    assert!(log.contains("red"), "the title's text is there: {log}");
    let (code, shown, errors) = rig.run(&["logs", run]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(control(&shown), None, "{shown:?}");
    // A name with such a thing in it is refused, or shown without.
    let made = client.try_call("create_or_reuse_session", json!({ "name": SEQUENCES, "reuse_key": "named" }));
    let markup = json!({ "name": "<img src=x onerror=alert(1)>", "reuse_key": "markup" });
    client.call("create_or_reuse_session", markup);
    if let Err(error) = made {
        assert_eq!(error["code"], "bad_argument", "{error}");
        assert_eq!(control(&text(&error["message"])), None, "{error}");
    }
    let (code, shown, errors) = rig.run(&["sessions"]);
    assert_eq!(code, Some(0), "{errors}");
    assert_eq!(control(&shown), None, "{shown:?}");
}

fn names_are_names(client: &Client, session: &str, run: &str, odd: &[Vec<u8>]) {
    let listed = client.call("list_artifacts", json!({ "session_id": session, "run_id": run }));
    let rows = listed["artifacts"].as_array().expect("a list");
    for name in odd {
        let Ok(name) = std::str::from_utf8(name) else { continue };
        let row = rows.iter().find(|row| text(&row["path"]).ends_with(&format!("/workspace/{name}")));
        let row = row.unwrap_or_else(|| panic!("no {name:?} in {listed}"));
        let read = client.call("read_artifact", json!({ "path": row["path"] }));
        assert_eq!((&read["text"], &read["size"]), (&json!("odd"), &json!(3)), "{name:?}: {read}");
    }
    for name in ["fifo", "passwd", "root", "key", "dir"] {
        let end = format!("/workspace/{name}");
        assert!(!rows.iter().any(|row| text(&row["path"]).ends_with(&end)), "{name} is no file: {listed}");
    }
}

fn contents_are_contents(client: &Client, session: &str, run: &str) {
    let read = |name: &str, most: Option<u64>| {
        let mut wanted = json!({ "path": format!("{session}/workspace/{name}") });
        if let Some(most) = most {
            wanted["max_bytes"] = json!(most);
        }
        client.call("read_artifact", wanted)
    };
    assert_eq!(read("x.html", None)["text"], PAGE);
    assert_eq!(read("x.svg", None)["text"], PICTURE);
    let binary = read("binary", None);
    assert_eq!((&binary["base64"], binary.get("text")), (&json!("YQBi"), None), "{binary}");
    for (most, length) in [(None, 50_000), (Some(1 << 20), 1 << 20), (Some(1 << 30), 1 << 20)] {
        let long = read("long.txt", most);
        assert_eq!(long["size"], 1_500_000, "{most:?}");
        assert_eq!((text(&long["text"]).len(), &long["truncated"]), (length, &json!(true)), "{most:?}");
    }
    let listed = client.call("list_artifacts", json!({ "session_id": session, "run_id": run }));
    assert!(listed.to_string().contains("x.html"), "{listed}");
}

fn hostile_paths(rig: &Rig, session: &str, secret: &str) -> Vec<String> {
    let token = rig.state().join("token");
    let mut paths: Vec<String> = [
        "",
        "/",
        "..",
        "/etc/passwd",
        "etc/passwd",
        "../../../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "....//....//etc/passwd",
        "..\\..\\etc\\passwd",
        "C:\\windows\\win.ini",
        "file:///etc/passwd",
    ]
    .map(str::to_owned)
    .into();
    paths.push(token.display().to_string());
    for rest in [
        "",
        ".",
        "key",
        "access.json",
        "meta",
        "meta/data/opencode/opencode.db",
        "workspace",
        "workspace/",
        "workspace/.",
        "workspace/..",
        "workspace/../key",
        "workspace/../access.json",
        "workspace/./x.html",
        "workspace//x.html",
        "workspace/dir/../x.html",
        "workspace/....//key",
        "workspace/%2e%2e/key",
        "workspace/x.html\0",
        "workspace/x.html%00",
        "workspace/passwd",
        "workspace/root/etc/passwd",
        "workspace/key",
        "workspace/fifo",
        "workspace/dir",
        "workspace/nothing",
        "runs",
        "runs/../key",
        "runs/run_0/run.log",
        "../../token",
        "..%2f..%2ftoken",
    ] {
        paths.push(format!("{session}/{rest}"));
    }
    paths.push(format!("{session}/workspace/{}", "a/".repeat(3000)));
    paths.push(format!("{session}/workspace/{}", "b".repeat(5000)));
    paths.push(format!("{secret}/workspace/secret.txt"));
    paths.push(format!("{session}/../{secret}/workspace/secret.txt"));
    paths
}

/// Row 24. The daemon answers as it does for a name that is not there, and at once: nothing blocks on a pipe.
fn paths_lead_nowhere_else(rig: &Rig, client: &Client, session: &str) {
    let other = client.clone().principal("mallory");
    let secret = other.create("mallory's");
    let theirs = text(&other.session(&secret)["workspace"]);
    std::fs::write(Path::new(&theirs).join("secret.txt"), "hers").expect("a file");
    let paths = hostile_paths(rig, session, &secret);
    let traced = Traced::start(rig);
    for client in [client.clone(), rig.http()] {
        for path in &paths {
            let start = Instant::now();
            let error = client.try_call("read_artifact", json!({ "path": path }));
            let error = error.map_or_else(|error| error, |read| panic!("{path:?} was read: {read}"));
            let code = error["code"].as_str().unwrap_or_default();
            assert!(["no_artifact", "bad_argument"].contains(&code), "{path:?}: {error}");
            assert!(start.elapsed() < Duration::from_secs(2), "{path:?} took {:?}", start.elapsed());
        }
    }
    if let Some(traced) = traced {
        traced.check();
    }
    // What came through the gateway is in the ledger, each once; it is written in batches.
    let noted = || -> Vec<Value> {
        let (code, rows, errors) = rig.run(&["calls", "--json", "--limit", "0", "--tool", "read_artifact"]);
        assert_eq!(code, Some(0), "{errors}");
        rows.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    rig.until(SOON, "every call to be noted", || noted().len() >= paths.len());
    let noted = noted();
    assert_eq!(noted.len(), paths.len(), "{noted:?}");
    assert!(
        noted.iter().all(|row| row["outcome"] == "tool_error" && row["server"] == "sessions"),
        "{noted:?}"
    );
    let (code, said, errors) = rig.run(&["ledger", "verify"]);
    assert_eq!(code, Some(0), "{said}{errors}");
    let inside = json!({ "path": format!("{session}/workspace/inside") });
    if let Ok(read) = client.try_call("read_artifact", inside) {
        assert_eq!(read["text"], PAGE, "a link that stays inside: {read}");
    }
    // What the other would read of hers is there all the same.
    let hers = json!({ "path": format!("{secret}/workspace/secret.txt") });
    assert_eq!(other.call("read_artifact", hers)["text"], "hers");
    // A whole workspace that is exchanged for a link.
    let workspace = PathBuf::from(text(&client.session(session)["workspace"]));
    let aside = workspace.with_extension("aside");
    std::fs::rename(workspace.join("dir"), &aside).expect("a directory");
    symlink("/etc", workspace.join("dir")).expect("a link");
    let error =
        client.try_call("read_artifact", json!({ "path": format!("{session}/workspace/dir/passwd") }));
    assert_eq!(error.expect_err("it leads out")["code"], "no_artifact");
}

/// What the daemon asks of the file system, as the kernel sees it.
struct Traced {
    strace: Child,
    file: PathBuf,
}

impl Traced {
    /// None where this machine does not have the tool for it.
    fn start(rig: &Rig) -> Option<Self> {
        let daemon = rig.daemon_pid().expect("a daemon");
        let file = rig.path().join("trace");
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-s", "4096", "-e", "trace=%file", "-p", &daemon.to_string(), "-o"])
            .arg(&file);
        let Ok(strace) = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("SKIPPED: there is no strace to look at what the daemon opens");
            return None;
        };
        let traced = || {
            let tasks = std::fs::read_dir(format!("/proc/{daemon}/task")).into_iter().flatten().flatten();
            let mut states =
                tasks.filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok());
            states.all(|state| !state.contains("TracerPid:\t0\n"))
        };
        rig.until(SOON, "strace to begin", traced);
        Some(Self { strace, file })
    }

    /// Nothing of what was asked for is looked at but beneath a directory, in one step of the kernel's.
    fn check(mut self) {
        testkit::harness::kill(self.strace.id(), nix::sys::signal::Signal::SIGINT);
        self.strace.wait().expect("our child");
        let text = std::fs::read_to_string(&self.file).expect("a trace");
        let (beneath, other): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.contains("openat2(") && line.contains("RESOLVE_BENEATH"));
        assert!(beneath.iter().any(|line| line.contains("passwd")), "nothing was traced: {text}");
        for part in ["passwd", "win.ini", "secret.txt", "x.html", "access.json", "fifo", "../"] {
            let found: Vec<&&str> = other.iter().filter(|line| line.contains(part)).collect();
            assert!(found.is_empty(), "{part} was looked at by its path: {found:?}");
        }
    }
}
