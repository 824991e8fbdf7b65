//! No key is in a box, no way leads out of it, and nothing outside of it can be changed or joined.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use testkit::harness::CANARY;

use super::{DECOY, KEYS, Lodging, OWN_KEY, daemon_address, hex, outside, rig};
use crate::rig::{Client, Rig, bash, text};

const PROBE: &str = include_str!("probe.py");
/// Where files of a box can lie. Its programs are the machine's own and lie in `/usr`.
const ROOTS: [&str; 13] = [
    "/workspace",
    "/session-meta",
    "/opt",
    "/tmp",
    "/run",
    "/etc",
    "/home",
    "/root",
    "/var",
    "/dev/shm",
    "/mnt",
    "/srv",
    "/media",
];
/// What `OpenCode` answers about itself.
const API: [&str; 12] = [
    "/config",
    "/global/config",
    "/config/providers",
    "/provider",
    "/provider/auth",
    "/agent",
    "/mcp",
    "/session",
    "/path",
    "/command",
    "/experimental/tool/ids",
    "/doc",
];

/// One session with a key of its own, one with that of the daemon's environment.
#[test]
fn no_key_is_in_a_box() {
    let mut rig = rig("", "");
    rig.serve();
    let mut variables = rig.variables();
    variables.insert("MCP_OPENCODE_API_KEY".to_owned(), OWN_KEY.to_owned());
    let with_own = rig.client_with(&variables);
    variables.remove("MCP_OPENCODE_API_KEY");
    let with_daemons = rig.client_with(&variables);
    for (client, name, key) in [(&with_own, "its own", OWN_KEY), (&with_daemons, "the daemon's", CANARY)] {
        let lodging = Lodging::new(client, name);
        rig.model().forget();
        let command = lodging.place("probe", PROBE, &keys_are_sought(&[KEYS, DECOY]));
        let decoy = lodging.workspace.join("decoy");
        fs::write(&decoy, DECOY).expect("a file");
        // What is printed goes to the model, to the run's log and to the artifacts.
        let steps = json!([bash("env; cat /proc/*/environ"), bash(&command), { "text": "sought" }]);
        let ended = client.complete(&lodging.id, steps);
        let answers = lodging.answers("probe");
        check_answers(&answers);
        let asked = rig.model().asked();
        let token = text(&lodging.access(&rig)["token"]);
        assert!(asked.len() >= 3, "the model was asked {} times", asked.len());
        for asked in &asked {
            assert_eq!(asked.header("authorization"), Some(format!("Bearer {key}").as_str()), "{asked:?}");
        }
        // The agent prints its environment, so the model reads the box's own token there, and no key.
        let bodies: String = asked.iter().map(|asked| asked.body.to_string()).collect();
        assert!(bodies.contains(&token), "the environment was not printed");
        assert!(!bodies.contains(KEYS), "the key is in what the agent tells the model");
        let heads = asked.iter().flat_map(|asked| &asked.headers);
        assert!(!heads.into_iter().any(|(_, value)| value.contains(&token)), "the box's token went out");
        check_told(client, &lodging, &text(&ended["id"]));
    }
    check_files(&rig);
    check_engine(&rig);
    check_control(&rig);
}

fn keys_are_sought(needles: &[&str]) -> Value {
    let needles: Vec<String> = needles.iter().map(|needle| hex(needle)).collect();
    let with = |words: &[Value]| {
        let mut all = words.to_vec();
        all.extend(needles.iter().map(|needle| json!(needle)));
        Value::from(all)
    };
    let decoy = hex(DECOY);
    json!([
        with(&[json!("environment"), json!("environment")]),
        with(&[json!("environ"), json!("with_decoy"), json!(decoy), json!("environ")]),
        with(&[json!("cmdline"), json!("with_decoy"), json!(decoy), json!("cmdline")]),
        with(&[json!("files"), json!("files"), json!(ROOTS)]),
        with(&[json!("api"), json!("agent_api"), json!(4096), json!(API)]),
        with(&[json!("sockets"), json!("sockets"), json!(SOCKETS)]),
    ])
}

/// The key is nowhere, and what was put there to be found is found.
fn check_answers(answers: &Value) {
    for probe in ["environment", "environ", "cmdline", "files", "api", "sockets"] {
        let found = &answers[probe];
        println!("{probe}: {} places, {} bytes", found["looked"], found["bytes"]);
        assert_eq!(found["places"][0], json!([]), "the key is in {probe}: {found}");
        assert!(found["looked"].as_u64() >= Some(4), "nothing was looked at in {probe}: {found}");
    }
    for probe in ["environ", "cmdline", "files"] {
        let found = &answers[probe]["places"][1];
        assert!(found.as_array().is_some_and(|all| !all.is_empty()), "{probe} finds nothing: {answers}");
    }
    let api = &answers["api"]["statuses"];
    for path in ["/config", "/provider", "/config/providers", "/session"] {
        assert_eq!(api[path], "200", "{api}");
    }
    let sockets = &answers["sockets"]["statuses"];
    assert_eq!(sockets["model.sock models"], "HTTP/1.1 200 OK", "{sockets}");
    println!("{sockets:#}");
}

/// The run, its log and its artifacts.
fn check_told(client: &Client, lodging: &Lodging, run: &str) {
    let status = client.call("get_status", json!({ "session_id": lodging.id, "run_id": run }));
    let listed = client.call("list_artifacts", json!({ "session_id": lodging.id, "run_id": run }));
    let mut told = vec![status.to_string(), client.log(run), listed.to_string()];
    for row in listed["artifacts"].as_array().expect("artifacts") {
        let read = client.call("read_artifact", json!({ "path": row["path"], "max_bytes": 1_000_000 }));
        told.push(read.to_string());
    }
    assert!(told.len() > 6, "{listed}");
    assert!(!told.iter().any(|told| told.contains(KEYS)), "the key is in what is told of {run}");
}

/// Of all files of the state directory, the one beside the session has it; others may not read that.
fn check_files(rig: &Rig) {
    assert!(!rig.log().contains(KEYS), "the key is in the daemon's log");
    let mut with_key = Vec::new();
    let mut waiting = vec![rig.state()];
    let mut count = 0;
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                waiting.push(entry.path());
            } else if kind.is_file() {
                count += 1;
                let bytes = fs::read(entry.path()).unwrap_or_default();
                if bytes.windows(KEYS.len()).any(|window| window == KEYS.as_bytes()) {
                    with_key.push(entry.path());
                }
            }
        }
    }
    println!("{count} files of the daemon, with the key: {with_key:?}");
    let [one] = with_key.as_slice() else { panic!("the key is in {with_key:?}") };
    assert_eq!(one.file_name().and_then(|name| name.to_str()), Some("key"), "{}", one.display());
    let mode = fs::metadata(one).expect("its mode").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{}", one.display());
}

/// The agent's password is told to the engine, or a look is in the wrong place.
const PASSWORD: &str = "OPENCODE_SERVER_PASSWORD=";

/// What an engine was told of the boxes, what it keeps of them, and what it heard from them.
fn check_engine(rig: &Rig) {
    let Some(engine) = rig.engine() else { return };
    let told = engine.told();
    assert!(told.contains(PASSWORD) && !told.contains(KEYS), "the engine was told the key: {told}");
    let (mut count, mut found) = (0, false);
    for path in engine.files() {
        let bytes = fs::read(&path).unwrap_or_default();
        let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
        assert!(!has(KEYS), "the key is in {}", path.display());
        found |= has(PASSWORD);
        count += 1;
    }
    println!("{count} files of the engine, without the key");
    assert!(found, "the engine's own files were not found");
}

/// The same looks find it outside, where it is.
fn check_control(rig: &Rig) {
    let needle = hex(KEYS);
    let state = rig.state();
    let input = json!([
        ["environ", "processes", "environ", needle],
        ["files", "files", [state.join("sessions")], needle],
    ]);
    let answers = outside(rig.path(), &[], PROBE, &input);
    let daemon = format!("/proc/{}/environ", rig.daemon_pid().expect("a daemon"));
    let environ = answers["environ"]["places"][0].as_array().expect("places");
    assert!(environ.contains(&json!(daemon)), "{environ:?}");
    assert_eq!(answers["files"]["places"][0].as_array().map(Vec::len), Some(1), "{answers}");
}

/// Sockets that a box must not reach, and who listens on them.
struct Harbour {
    path: PathBuf,
    name: String,
    _listeners: [UnixListener; 2],
}

impl Harbour {
    fn open(rig: &Rig) -> Self {
        use std::os::linux::net::SocketAddrExt as _;
        let path = rig.path().join("host.sock");
        let name = format!("callsign-test-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).expect("a name");
        let listeners = [
            UnixListener::bind(&path).expect("a socket"),
            UnixListener::bind_addr(&address).expect("a socket without a file"),
        ];
        Self { path, name, _listeners: listeners }
    }
}
#[test]
fn nothing_leads_out_of_a_box() {
    let mut rig = rig("", "");
    let daemon = rig.serve();
    let client = rig.client();
    let (lodging, neighbour) = (Lodging::new(&client, "inside"), Lodging::new(&client, "neighbour"));
    // It is there, and has a box, while the other looks for it.
    client.complete(&neighbour.id, json!([{ "text": "I am here" }]));
    let harbour = Harbour::open(&rig);
    let (closed, open) = ways(&rig, &harbour, &neighbour);
    let mut input = closed.clone();
    input.extend(open.iter().cloned());
    let neighbours_agent = rig.boxes().into_iter().find(|found| found.session == neighbour.id);
    let neighbours_agent = neighbours_agent.expect("the neighbour's box").opencode[0];
    for (title, kind, pid) in [
        ("signal the daemon", "send_signal", daemon),
        ("signal the neighbour", "send_signal", neighbours_agent),
        ("trace the daemon", "trace", daemon),
        ("trace the neighbour", "trace", neighbours_agent),
    ] {
        input.push(json!([title, kind, pid]));
    }
    input.extend([json!(["interfaces", "interfaces"]), json!(["routes", "routes"])]);
    input.push(json!(["names without files", "abstract_names"]));
    let said = lodging.run(&client, "probe", PROBE, &json!(input));
    println!("{said:#}");
    for probe in &closed {
        let said = said[text(&probe[0])].to_string();
        assert!(said.starts_with("\"not reached"), "{probe}: {said}");
    }
    for probe in &open {
        assert_eq!(said[text(&probe[0])], "reached", "its own: {probe}");
    }
    assert_eq!(said["interfaces"], json!(["lo"]));
    assert_eq!(said["routes"], 0);
    assert!(!said["names without files"].to_string().contains(&harbour.name), "{said}");
    for what in ["signal the daemon", "signal the neighbour", "trace the daemon", "trace the neighbour"] {
        assert_eq!(said[what], "ESRCH", "{what}");
    }

    // Outside, the same is reached: whatever is on this machine.
    let is_here = |probe: &&Value| {
        let here = ["127.0.0.1", "@callsign-test", "/"];
        let target = probe[2].as_str().unwrap_or_default();
        ["tcp", "unix"].contains(&probe[1].as_str().unwrap_or_default())
            && here.iter().any(|start| target.starts_with(start))
            && (!target.starts_with('/') || Path::new(target).exists())
    };
    let here: Vec<&Value> = closed.iter().filter(is_here).collect();
    assert!(here.len() >= 8, "{here:?}");
    let said = outside(rig.path(), &[], PROBE, &json!(here));
    for probe in here {
        assert_eq!(said[text(&probe[0])], "reached", "{probe}");
    }
}

/// What leads out, and what is the box's own.
fn ways(rig: &Rig, harbour: &Harbour, neighbour: &Lodging) -> (Vec<Value>, Vec<Value>) {
    let daemon = daemon_address(rig);
    let (daemon_host, daemon_port) = daemon.rsplit_once(':').expect("a port");
    let daemon_port: u16 = daemon_port.parse().expect("a port");
    let model = rig.model().address();
    let mut closed = vec![
        json!(["an address", "tcp", "1.1.1.1", 443]),
        json!(["an address of the sixth version", "tcp", "2606:4700:4700::1111", 443]),
        json!(["the machine behind the box", "tcp", "10.0.2.2", 80]),
        json!(["metadata", "tcp", "169.254.169.254", 80]),
        json!(["the model", "tcp", "127.0.0.1", model.port()]),
        json!(["the daemon", "tcp", daemon_host, daemon_port]),
        json!(["a name", "name", "example.com"]),
        json!(["names", "udp", "1.1.1.1", 53]),
        json!(["names here", "udp", "127.0.0.53", 53]),
        json!(["the proxy to the model", "proxied", 4099, model.to_string()]),
        json!(["the proxy to the daemon", "proxied", 4099, daemon]),
        json!(["the proxy to a host", "proxied", 4099, "example.com:443"]),
        json!(["the broker as a proxy", "proxied", 4097, daemon]),
        json!(["the gateway as a proxy", "proxied", 4098, daemon]),
        json!(["a socket", "unix", harbour.path]),
        json!(["a socket without a file", "unix", format!("@{}", harbour.name)]),
        json!(["the daemon's socket", "unix", rig.state().join("daemon.sock")]),
        json!(["a socket by /proc", "unix_by_proc", harbour.path]),
    ];
    for path in [
        "/run/docker.sock",
        "/var/run/docker.sock",
        "/run/podman/podman.sock",
        "/run/containerd/containerd.sock",
        "/run/dbus/system_bus_socket",
        "/run/systemd/private",
        "/tmp/.X11-unix/X0",
        "@/tmp/.X11-unix/X0",
        "@/tmp/dbus",
    ] {
        closed.push(json!([path, "unix", path]));
    }
    if let Some(engine) = rig.engine() {
        let path = engine.socket.path();
        closed.push(json!(["the engine's socket", "unix", path]));
        closed.push(json!(["the engine's socket by /proc", "unix_by_proc", path]));
    }
    let directory = rig.state().join("sessions").join(&neighbour.id).join("sockets");
    for name in SOCKETS {
        let path = directory.join(name);
        assert!(path.exists(), "the neighbour has no {}", path.display());
        closed.push(json!([format!("the neighbour's {name}"), "unix", path]));
        let around = format!("/run/callsign/../../{}/sockets/{name}", neighbour.id);
        closed.push(json!([format!("the neighbour's {name} around"), "unix", around]));
        closed.push(json!([format!("the neighbour's {name} by /proc"), "unix_by_proc", path]));
    }
    let open = [4096, 4097, 4098].map(|port| json!([format!("port {port}"), "tcp", "127.0.0.1", port]));
    let own = ["model.sock", "mcp.sock"].map(|name| json!([name, "unix", format!("/run/callsign/{name}")]));
    (closed, open.into_iter().chain(own).collect())
}

/// Where a box may write, and where it may not.
const OWN: [&str; 3] = ["/workspace", "/session-meta", "/tmp"];
const OTHERS: [&str; 22] = [
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/home",
    "/lib",
    "/mnt",
    "/opt",
    "/opt/callsign",
    "/opt/callsign/config",
    "/opt/callsign/config/opencode/plugin",
    "/proc",
    "/root",
    "/run",
    "/run/callsign",
    "/srv",
    "/sys",
    "/usr",
    "/usr/local/bin",
    "/var",
    "/var/lib",
];
const SOCKETS: [&str; 4] = ["control.sock", "model.sock", "mcp.sock", "egress.sock"];
const FILES: [&str; 9] = [
    "/etc/passwd",
    "/etc/hosts",
    "/usr/bin/env",
    "/opt/callsign/bridge",
    "/opt/callsign/opencode",
    "/opt/callsign/config/opencode/plugin/callsign.js",
    "/proc/sys/kernel/core_pattern",
    "/proc/sysrq-trigger",
    "/proc/sys/vm/drop_caches",
];
#[test]
fn nothing_outside_a_box_can_be_changed() {
    let mut rig = rig("", "");
    rig.serve();
    let client = rig.client();
    let lodging = Lodging::new(&client, "inside");
    let is_root = nix::unistd::geteuid().is_root();
    if is_root {
        // As bad as a file in a workspace can be: it runs as root, whoever starts it.
        let program = lodging.workspace.join("as-root");
        fs::copy("/usr/bin/id", &program).expect("a copy");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("its mode");
    }
    let privileges = privileges();
    let mut input = privileges.clone();
    input.extend(OWN.iter().chain(&OTHERS).map(|place| json!([place, "write", place])));
    input.extend(FILES.iter().map(|file| json!([file, "change", file])));
    for name in SOCKETS {
        input.push(json!([name, "replace", format!("/run/callsign/{name}")]));
    }
    input.push(json!(["as root", "run", "/workspace/as-root", "-u"]));
    input.push(json!(["trace a child", "trace_child"]));
    input.push(json!(["status", "status", "CapEff", "CapPrm", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"]));
    let said = lodging.run(&client, "probe", PROBE, &json!(input));
    println!("{said:#}");
    for place in OWN {
        assert_eq!(said[place], "done", "its own {place}");
    }
    for place in OTHERS.iter().chain(&FILES).copied().chain(SOCKETS) {
        assert_ne!(said[place], "done", "the box changed {place}");
    }
    for probe in &privileges {
        let title = text(&probe[0]);
        let refused = ["EPERM", "EACCES", "ENOSYS", "EINVAL"];
        let told = said[title.as_str()].as_object().map_or_else(
            || vec![said[title.as_str()].clone()],
            |all| all.values().cloned().collect::<Vec<_>>(),
        );
        match told.first() {
            // A program: it fails, and says nothing of root.
            Some(Value::Number(code)) => {
                assert!(code.as_i64() != Some(0) && !said[title.as_str()].to_string().contains("uid=0"));
            }
            _ => assert!(
                told.iter().all(|told| refused.contains(&told.as_str().unwrap_or_default())),
                "{title}: {told:?}"
            ),
        }
    }
    assert_ne!(said["as root"]["said"], "0", "a program made it root");
    let status = &said["status"];
    for name in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        assert_eq!(status[name], "0000000000000000", "{name}");
    }
    assert_eq!((&status["NoNewPrivs"], &status["Seccomp"]), (&json!("1"), &json!("2")), "{status}");
    if is_root {
        privileges_are_there_outside(&rig, &lodging, &privileges);
    }
}

fn privileges() -> Vec<Value> {
    ["mount", "remount", "unmount", "namespaces", "device", "root_elsewhere", "become_root"]
        .map(|kind| json!([kind, kind]))
        .into_iter()
        .chain([
            json!(["su", "run", "su", "-c", "id"]),
            json!(["unshare", "run", "unshare", "-Ur", "id"]),
            json!(["the program mount", "run", "mount", "-t", "tmpfs", "none", "/mnt"]),
        ])
        .collect()
}

/// Root can do all that, in a mount namespace that goes with the probe.
fn privileges_are_there_outside(rig: &Rig, lodging: &Lodging, privileges: &[Value]) {
    let said = outside(rig.path(), &["unshare", "-m"], PROBE, &json!(privileges));
    println!("outside: {said:#}");
    for title in ["mount", "device", "root_elsewhere", "become_root"] {
        assert_eq!(said[title], "done", "{title}");
    }
    assert_eq!(said["namespaces"]["mount"], "done", "{said}");
    let program = lodging.workspace.join("as-root");
    let copy = rig.path().join("as-root");
    fs::copy(program, &copy).expect("a copy");
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let input = json!([["as root", "run", copy, "-u"]]);
    let nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    fs::set_permissions(rig.path(), fs::Permissions::from_mode(0o777)).expect("its mode");
    let _gone = fs::remove_file(rig.path().join("probe.out"));
    let said = outside(rig.path(), &nobody, PROBE, &input);
    assert_eq!(said["as root"]["said"], "0", "{said}");
}
