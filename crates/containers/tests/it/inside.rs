//! What a box sees, what it can do, and what the engine says of its walls.

use std::fs;
use std::os::unix::net::UnixListener;

use model::ports::sandbox::{Bind, Limits};
use serde_json::{Value, json};

use crate::harness::{Kind, Scene, World, play};

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

const SCENES: [Scene; 4] = [
    the_twelve_properties_are_read_back_and_hold,
    it_has_no_privileges_and_gets_none,
    it_has_its_own_places_no_network_and_the_sockets_that_were_handed_in,
    a_program_that_the_image_lacks_can_be_bound_in,
];

#[test]
fn boxes_are_closed_on_docker() {
    play(Kind::Docker, &SCENES);
}

#[test]
fn boxes_are_closed_on_podman() {
    play(Kind::Podman, &SCENES);
}

fn the_twelve_properties_are_read_back_and_hold(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    spec.limits = Limits { memory: Some(256 << 20), pids: Some(64), cpus: Some(500), disk: Some(1 << 30) };
    spec.sockets = Some(world.make("sockets"));
    let tool = world.make("tool");
    spec.binds.push(Bind { source: tool.clone(), target: "/opt/tool".into() });
    daemon.start(&spec);
    let expected = json!({
        "read_only": true, "no_capabilities": true, "no_new_privileges": true, "user": "65534:65534",
        "network": "none", "pids": 64, "memory": [256 << 20, 256 << 20], "cpus": 500_000_000,
        "filtered": true, "no_devices": true, "own_namespaces": true,
        "mounts": {
            "/workspace": [spec.workspace, true], "/session-meta": [spec.meta, true],
            "/run/callsign": [spec.sockets, false], "/opt/tool": [tool, false],
        },
    });
    assert_eq!(expected.as_object().unwrap().len(), 12);
    assert_eq!(daemon.ask(&json!({ "Properties": "one" })), expected, "{kind:?}");
    // Without our own words between.
    let found = world.inspect(&world.container("one"));
    let host = &found["HostConfig"];
    assert_eq!((&host["ReadonlyRootfs"], &host["Privileged"]), (&json!(true), &json!(false)), "{kind:?}");
    assert_eq!(found["Config"]["Labels"]["dev.callsign.owner"], json!(world.owner));
    assert_eq!(found["Config"]["Labels"]["dev.callsign.box"], json!("one"));
    assert!(matches!(&host["RestartPolicy"]["Name"], Value::String(name) if name == "no" || name.is_empty()));
    world.clear(daemon);
}

fn it_has_no_privileges_and_gets_none(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let script = "grep -E '^(Cap|NoNewPrivs|Seccomp:|Uid)' /proc/1/status; unshare -U true; unshare -m true; mount -t tmpfs x /tmp; \
                  mount -o remount,rw /; su -c 'echo I am root' < /dev/null; cat /proc/kcore | head -c1; dd if=/dev/zero of=/tmp/f bs=1M count=20; ulimit -c; hostname";
    let log = world.printed(&mut daemon, &world.spec("one", script));
    for name in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(log.contains(&format!("{name}:\t0000000000000000")), "{kind:?}: {log}");
    }
    assert!(log.contains("NoNewPrivs:\t1") && log.contains("Seccomp:\t2"), "{kind:?}: {log}");
    assert!(log.contains("Uid:\t65534\t65534\t65534\t65534"), "{kind:?}: {log}");
    // Podman's own filter lets a user namespace be made, in which nothing of the host is anybody's.
    let refused = match kind {
        Kind::Docker | Kind::DockerLive => 2,
        Kind::Podman => 1,
    };
    assert_eq!(log.matches("unshare failed").count(), refused, "{kind:?}: {log}");
    assert!(!log.contains("I am root"), "{kind:?}: {log}");
    assert!(log.contains("No space left"), "/tmp has no end: {log}");
    assert!(log.ends_with("0\ncallsign\n"), "{kind:?}: {log}");
    world.clear(daemon);
}

fn it_has_its_own_places_no_network_and_the_sockets_that_were_handed_in(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let places = "/ /usr /etc /run /var /proc /sys /bin /opt/tool /run/callsign /root /home /workspace /session-meta /tmp";
    let script = format!(
        "for d in {places}; do (: > $d/probe) 2>/dev/null && echo $d; done; cat /opt/tool/file; pwd; \
         cut -d: -f1 -s /proc/net/dev | tr -d ' ' | sort -u | tr '\\n' ,; ls /run/callsign; \
         echo \"$SECRET\"; cat /proc/*/environ | tr '\\0' '\\n' | grep -c CANARY; ls /proc | grep -c '^[0-9]'"
    );
    let mut spec = world.spec("one", &script);
    let tool = world.make("tool");
    fs::write(tool.join("file"), "bound\n").unwrap();
    spec.binds.push(Bind { source: tool, target: "/opt/tool".into() });
    let sockets = world.make("sockets");
    let _listener = UnixListener::bind(sockets.join("control.sock")).unwrap();
    spec.sockets = Some(sockets);
    spec.env.0.insert("SECRET".to_owned(), "a=b 'c'".to_owned());
    let log = world.printed(&mut daemon, &spec);
    let found = lines(&log);
    let (processes, rest) = found.split_last().unwrap();
    assert_eq!(
        rest,
        ["/workspace", "/session-meta", "/tmp", "bound", "/workspace", "lo,control.sock", "a=b 'c'", "0"],
        "{kind:?}"
    );
    assert!(processes.parse::<u32>().unwrap() <= 4, "{kind:?}: it sees processes of others");
    world.clear(daemon);
}

fn a_program_that_the_image_lacks_can_be_bound_in(kind: Kind, world: &World) {
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", "");
    // Any program that needs nothing of the image but its loader.
    spec.binds.push(Bind { source: "/bin/dash".into(), target: "/opt/callsign/bin/bridge".into() });
    spec.command = "/opt/callsign/bin/bridge".into();
    assert_eq!(world.printed(&mut daemon, &spec), "", "{kind:?}");
    world.clear(daemon);
}

#[test]
fn sessions_do_not_see_each_other() {
    let world = World::new(Kind::Docker);
    let mut daemon = world.daemon();
    daemon.start(&world.spec("one", "echo SECRET-OF-ONE > /workspace/file; echo SECRET-OF-ONE > /tmp/file"));
    world.wait_done("one");
    let script = "ls -R /workspace /session-meta /tmp /run; grep -rs SECRET-OF-ONE /workspace /session-meta /tmp /dev/shm; cat /proc/*/cmdline | tr '\\0' ' '";
    let log = world.printed(&mut daemon, &world.spec("two", script));
    assert!(!log.contains(":SECRET-OF-ONE") && !log.contains("one-workspace"), "{log}");
    world.finish(daemon);
}
