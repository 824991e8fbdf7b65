//! The init of a box is the same user as the agent, and still nobody's but its own.

use std::fs;
use std::path::PathBuf;

use serde_json::json;
use testkit::engine::{Kind, PrivateEngine};

use crate::away::rig_on;
use crate::rig::{Rig, bash, text};

/// What can be had of the bridge, and of the shell itself: that shows that it would be seen.
const LOOK: &str = r#"
for comm in /proc/[0-9]*/comm; do [ "$(cat $comm)" = bridge ] && bridge=$(basename $(dirname $comm)); done
echo "bridge ${bridge:?}"
for at in $bridge self; do for file in environ mem maps fd/0 root/etc; do
  if [ $file = mem ]; then (exec 3<> /proc/$at/mem) 2>/dev/null; else (ls -L /proc/$at/$file && cat /proc/$at/environ) >/dev/null 2>&1; fi
  if [ $? = 0 ]; then echo "$at $file had"; else echo "$at $file refused"; fi
done; done
sleep 1000 & own=$!
perl -e 'for (@ARGV) { my $got = syscall(101, 0x4206, $_ + 0, 0, 0); print "seize $_ ", ($got == 0 ? "had" : "refused"), "\n" }' $own $bridge
echo "own $own"; kill -9 $own
[ $bridge != 1 ] || kill -9 1; echo "the end"
"#;

fn nobody_gets_at_it(rig: &Rig) {
    let client = rig.client();
    let session = client.create("one");
    let workspace = PathBuf::from(text(&client.session(&session)["workspace"]));
    let look = format!("({LOOK}) > look.txt 2>&1; true");
    let run = client.complete(&session, json!([bash(&look), { "text": "done" }]));
    assert_eq!(run["final_output"], "done", "{run}");
    let seen = fs::read_to_string(workspace.join("look.txt")).expect("it was written");
    let word = |name: &str| {
        let line = seen.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}: {seen}")).to_owned()
    };
    let (bridge, own) = (word("bridge"), word("own"));
    for file in ["environ", "mem", "maps", "fd/0", "root/etc"] {
        assert_eq!(word(&format!("{bridge} {file}")), "refused", "{seen}");
    }
    assert_eq!(word("self mem"), "had", "{seen}");
    // Its own children may be traced, as anywhere: the look can tell.
    assert_eq!(word(&format!("seize {own}")), "had", "{seen}");
    assert_eq!(word(&format!("seize {bridge}")), "refused", "{seen}");
    assert!(seen.contains("the end"), "{seen}");
    // It goes on as before.
    assert_eq!(client.complete(&session, json!([{ "text": "again" }]))["final_output"], "again");
}

#[test]
fn of_a_container_of_docker() {
    let engine = PrivateEngine::start(Kind::Docker);
    nobody_gets_at_it(&rig_on(&engine, ""));
}

#[test]
fn of_a_container_of_podman() {
    let engine = PrivateEngine::start(Kind::Podman);
    nobody_gets_at_it(&rig_on(&engine, ""));
}

#[test]
fn of_a_local_box() {
    let mut rig = Rig::with("");
    rig.serve();
    nobody_gets_at_it(&rig);
}
