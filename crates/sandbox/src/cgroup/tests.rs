use super::*;

const HYBRID: &str = "\
30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
34 30 0:30 /docker/x /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
";

#[test]
fn the_groups_of_this_process_are_found_in_every_layout() {
    let groups = "4:memory:/user/a\n3:cpu,cpuacct:/\n2:pids:/docker/x/y\n0::/user.slice\n";
    let [unified, split] = <[Plan; 2]>::try_from(places(HYBRID, groups)).unwrap();
    let at = |path: &str| Some(PathBuf::from(path));
    assert_eq!(unified.memory, at("/sys/fs/cgroup/unified/user.slice"));
    let expected = Plan {
        layout: Layout::Split,
        memory: at("/sys/fs/cgroup/memory/user/a"),
        pids: at("/sys/fs/cgroup/pids/y"),
        cpu: at("/sys/fs/cgroup/cpu,cpuacct"),
        cpuacct: at("/sys/fs/cgroup/cpu,cpuacct"),
    };
    assert_eq!(split, expected);
}

#[test]
fn a_group_outside_of_what_is_mounted_is_none_of_ours() {
    let groups = "2:pids:/elsewhere\n";
    assert!(places(HYBRID, groups).iter().all(|plan| plan.pids.is_none()));
}

/// A plain directory in place of the kernel's: shows which file gets what, not that it holds.
#[test]
fn limits_are_written_as_the_unified_layout_takes_them() {
    let directory = tempfile::tempdir().unwrap();
    let at = Some(directory.path().to_owned());
    let base =
        Plan { layout: Layout::Unified, memory: at.clone(), pids: at.clone(), cpu: at.clone(), cpuacct: at };
    let plan = base.of_box("o", &BoxName::new("b").unwrap());
    let limits = Limits { memory: Some(1 << 20), pids: Some(7), cpus: Some(1500), disk: None };
    plan.make(&limits).unwrap();
    let group = directory.path().join("callsign-o-b");
    let read = |file: &str| fs::read_to_string(group.join(file)).unwrap();
    assert_eq!(read("memory.max"), "1048576");
    assert_eq!(read("memory.swap.max"), "0");
    assert_eq!(read("pids.max"), "7");
    assert_eq!(read("cpu.max"), "150000 100000");
    fs::write(group.join("memory.events"), "low 0\nhigh 0\nmax 3\noom 2\noom_kill 2\n").unwrap();
    fs::write(group.join("pids.events"), "max 5\n").unwrap();
    fs::write(group.join("cpu.stat"), "usage_usec 1500\nuser_usec 1\n").unwrap();
    assert_eq!(plan.hits(), (2, 5));
    assert_eq!(plan.cpu_used(), Some(Duration::from_micros(1500)));
}
