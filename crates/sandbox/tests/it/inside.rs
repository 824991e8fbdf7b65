//! What a box sees, and what it can do.

use std::fs;
use std::os::unix::net::UnixListener;

use model::ports::sandbox::{Bind, BoxSpec, Network};

use crate::harness::{Who, World, everyone};

/// What the script printed in a box of each kind.
fn printed(who: Who, script: &str, change: impl Fn(&World, &mut BoxSpec)) -> String {
    let world = World::new(who);
    let mut daemon = world.daemon();
    let mut spec = world.spec("one", script);
    change(&world, &mut spec);
    daemon.start(&spec);
    world.wait_done("one");
    let log = daemon.log(&world, "one");
    world.finish(daemon);
    log
}

fn lines(text: &str) -> Vec<&str> {
    text.lines().collect()
}

#[test]
fn the_environment_is_the_given_one_and_no_descriptor_is_inherited() {
    for &who in everyone() {
        let script = "tr '\\0' '\\n' < /proc/$$/environ | sort; ls /proc/$$/fd; cat /proc/*/environ | tr '\\0' '\\n' | grep -c CANARY";
        let log = printed(who, script, |_, spec| {
            spec.env.0.insert("OPENCODE_SERVER_PASSWORD".to_owned(), "p=w\n d".to_owned());
        });
        let expected = "OPENCODE_SERVER_PASSWORD=p=w|PATH=/usr/bin:/bin|PWD=/workspace";
        let mut found = lines(&log);
        found.retain(|line| *line != " d");
        assert_eq!(found.iter().take(3).copied().collect::<Vec<_>>().join("|"), expected, "{who:?}: {log}");
        assert_eq!(found.get(3..), Some(["0", "1", "2", "0"].as_slice()), "{who:?}: {log}");
    }
}

#[test]
fn nothing_of_the_host_is_there_but_its_system() {
    for &who in everyone() {
        let log = printed(
            who,
            "ls -A /; ls /etc; ls -A /tmp /run /var; cat /etc/shadow; id -u; ls /proc | grep -c '^[0-9]'",
            |_, _| {},
        );
        for name in ["root", "home", "opt", "srv", "sys", "mnt", "boot", "work"] {
            assert!(!lines(&log).contains(&name), "{who:?}: /{name} is there: {log}");
        }
        for name in ["workspace", "session-meta", "usr", "proc", "dev", "tmp", "passwd"] {
            assert!(lines(&log).contains(&name), "{who:?}: {name} is missing: {log}");
        }
        assert!(log.contains("/etc/shadow: No such file"), "{log}");
        assert!(lines(&log).contains(&"1000"), "it runs as another user: {log}");
        let processes: u32 = lines(&log).last().unwrap().parse().unwrap();
        assert!(processes <= 6, "it sees processes of others: {log}");
    }
}

#[test]
fn only_its_own_directories_can_be_written() {
    for &who in everyone() {
        let places = "/ /usr /etc /dev /run /var /proc /bin /opt/tool /run/callsign /workspace /session-meta /tmp /var/tmp /dev/shm";
        let script =
            format!("for d in {places}; do (: > $d/probe) 2>/dev/null && echo $d; done; cat /opt/tool/file");
        let log = printed(who, &script, |world, spec| {
            let source = world.make("tool");
            fs::write(source.join("file"), "bound\n").unwrap();
            spec.binds.push(Bind { source, target: "/opt/tool".into() });
            spec.sockets = Some(world.make("sockets"));
        });
        let expected = ["/workspace", "/session-meta", "/tmp", "/var/tmp", "/dev/shm", "bound"];
        assert_eq!(lines(&log), expected, "{who:?}");
    }
}

#[test]
fn it_has_no_privileges_and_gets_none() {
    for &who in everyone() {
        let script = "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; unshare -U true; unshare -m true; mount -t tmpfs x /tmp; \
                      mount -o remount,rw /; su -c true; find /workspace/.. -xdev -perm -4000 -exec {} \\; ; dd if=/dev/zero of=/tmp/f bs=1M count=20";
        let log = printed(who, script, |_, _| {});
        for name in ["CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert!(log.contains(&format!("{name}:\t0000000000000000")), "{who:?}: {log}");
        }
        assert!(log.contains("NoNewPrivs:\t1") && log.contains("Seccomp:\t2"), "{who:?}: {log}");
        assert_eq!(log.matches("unshare failed").count(), 2, "{who:?}: {log}");
        assert!(log.contains("No space left"), "/tmp has no end: {log}");
    }
}

#[test]
fn without_a_network_there_is_loopback_and_a_socket_that_was_handed_in() {
    for &who in everyone() {
        let script =
            "cut -d: -f1 -s /proc/net/dev; cat /etc/hosts | head -1; ls /etc/resolv.conf /run/callsign";
        let world_socket = std::cell::RefCell::new(None);
        let log = printed(who, script, |world, spec| {
            spec.network = Network::None;
            let sockets = world.make("sockets");
            *world_socket.borrow_mut() = Some(UnixListener::bind(sockets.join("control")).unwrap());
            spec.sockets = Some(sockets);
        });
        assert!(log.contains("lo") && !log.contains("eth"), "{who:?}: {log}");
        assert!(log.contains("127.0.0.1 localhost callsign"), "{log}");
        assert!(log.contains("resolv.conf': No such file") && log.contains("control"), "{log}");
    }
}

#[test]
fn sessions_do_not_see_each_other() {
    for &who in everyone() {
        let world = World::new(who);
        let mut daemon = world.daemon();
        daemon.start(
            &world.spec("one", "echo SECRET-OF-ONE > /workspace/file; echo SECRET-OF-ONE > /tmp/file"),
        );
        world.wait_done("one");
        let script = format!(
            "ls -R {} /tmp; grep -rs SECRET-OF-ONE /workspace /session-meta /tmp; cat /proc/*/cmdline | tr '\\0' ' '",
            world.at("").display()
        );
        daemon.start(&world.spec("two", &script));
        world.wait_done("two");
        let log = daemon.log(&world, "two");
        assert!(!log.contains(":SECRET-OF-ONE") && !log.contains("one-workspace"), "{who:?}: {log}");
        world.finish(daemon);
    }
}
