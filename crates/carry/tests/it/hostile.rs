//! Boxes that mean no good.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use carry::{Against, BadPath, Kind, Why};

use super::*;

const SECRET: &str = "the host's secret";

/// With a secret beside the workspace.
fn world() -> World {
    let world = World::new();
    put(&world.at("outside"), "secret", SECRET);
    for name in ["a.txt", "b.txt", "dir/c.txt", "dir/d.txt"] {
        put(&world.host(), name, format!("{name}\n"));
    }
    world.import().unwrap();
    world
}

fn left_out(changes: &Changes) -> BTreeMap<String, Why> {
    changes.left_out.first.iter().map(|left| (left.path.clone(), left.why.clone())).collect()
}

#[test]
fn what_is_no_regular_file_is_told_and_never_opened() {
    let world = world();
    let workspace = world.workspace();
    assert!(Command::new("mkfifo").arg(workspace.join("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(workspace.join("socket")).unwrap();
    symlink("../outside/secret", workspace.join("link")).unwrap();
    symlink("a.txt", workspace.join("inner")).unwrap();
    // In place of what was imported.
    fs::remove_file(workspace.join("a.txt")).unwrap();
    symlink("../outside/secret", workspace.join("a.txt")).unwrap();
    fs::remove_file(workspace.join("b.txt")).unwrap();
    assert!(Command::new("mkfifo").arg(workspace.join("b.txt")).status().unwrap().success());
    fs::rename(workspace.join("dir"), workspace.join("moved")).unwrap();
    symlink("../outside", workspace.join("dir")).unwrap();
    let changes = world.changes().unwrap();
    let told = left_out(&changes);
    for name in ["link", "inner", "a.txt", "dir/c.txt"] {
        assert_eq!(told[name], Why::LinkMade, "{name}");
    }
    for name in ["pipe", "socket", "b.txt"] {
        assert_eq!(told[name], Why::NotRegular, "{name}");
    }
    // Nothing is taken for removed that something else was put in place of.
    assert!(changes.files.iter().all(|change| change.kind() == Kind::Added), "{:?}", changes.files);
    assert!(!world.patch().contains(SECRET));
    world.apply().unwrap();
    assert_eq!(fs::read_to_string(world.host().join("a.txt")).unwrap(), "a.txt\n");
    assert!(tree(&world.host()).values().all(|item| matches!(item, Item::File { .. })));
}

#[test]
fn disguises_of_git_are_not_carried() {
    let world = world();
    let names = [
        ".GIT/config",
        ".git /config",
        "git~1/hooks/x",
        ".g\u{200c}it/config",
        "dir/.git/config",
        ".hg/hgrc",
    ];
    for name in names {
        put(&world.workspace(), name, "[core]\n\tfsmonitor = evil\n");
    }
    put(&world.workspace(), ".gitmodules", "[submodule \"x\"]\n");
    put(&world.workspace(), ".callsign-apply-0/1", "x");
    let changes = world.changes().unwrap();
    assert!(changes.is_empty(), "{:?}", changes.files);
    let told = left_out(&changes);
    assert_eq!(told.len(), names.len() + 2, "{told:?}");
    assert_eq!(told[".gitmodules"], Why::Path(BadPath::Submodules));
    assert_eq!(told[".callsign-apply-0"], Why::Path(BadPath::Ours));
    assert_eq!(told[".g\\u{200c}it"], Why::Path(BadPath::VersionControl));
}

#[test]
fn depth_size_and_number_have_ends() {
    let mut world = world();
    let workspace = world.workspace();
    // Deeper than any path: from inside.
    let script = "import os,sys\nos.chdir(sys.argv[1])\nfor _ in range(20000):\n os.mkdir('d'); os.chdir('d')\nopen('f','w').close()";
    assert!(Command::new("python3").args(["-c", script]).arg(&workspace).status().unwrap().success());
    let sparse = fs::File::create(workspace.join("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    fs::File::options().write(true).open(workspace.join("a.txt")).unwrap().set_len(1 << 40).unwrap();
    let begun = Instant::now();
    let changes = world.changes().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(changes.incomplete && changes.is_empty(), "{:?}", changes.files);
    assert_eq!(left_out(&changes)["sparse"], Why::TooBig(256 << 20));
    assert_eq!(left_out(&changes)["a.txt"], Why::TooBig(256 << 20));

    for number in 0..300 {
        put(&workspace, &format!("many/{number}"), "x");
    }
    world.limits.files = 100;
    assert!(matches!(world.changes(), Err(CarryError::TooMuch(_))));
    world.limits.entries = 100;
    assert!(matches!(world.changes(), Err(CarryError::TooMuch(_))));
    // So that it can be removed afterwards.
    let script = "import os,sys\nos.chdir(sys.argv[1])\nn=0\nwhile True:\n try: os.chdir('d'); n+=1\n except OSError: break\n\
                  os.remove('f')\nfor _ in range(n):\n os.chdir('..'); os.rmdir('d')";
    assert!(Command::new("python3").args(["-c", script]).arg(&workspace).status().unwrap().success());
}

#[test]
fn a_directory_that_cannot_be_read_hides_files_and_does_not_remove_them() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    let world = world();
    fs::set_permissions(world.workspace().join("dir"), fs::Permissions::from_mode(0o000)).unwrap();
    let changes = world.changes().unwrap();
    assert!(changes.is_empty(), "{:?}", changes.files);
    // Root reads everything.
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        assert!(changes.incomplete && left_out(&changes).contains_key("dir/c.txt"));
    }
    fs::set_permissions(world.workspace().join("dir"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn links_that_are_swapped_in_never_lead_out() {
    let world = world();
    let workspace = world.workspace();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            fs::rename(workspace.join("dir"), workspace.join("kept")).unwrap();
            fs::create_dir(workspace.join("fake")).unwrap();
            while !done.load(Ordering::Relaxed) {
                // A file, and the directory of another, each now real and now a link that leads out.
                symlink("../outside", workspace.join("dir")).unwrap();
                symlink("../outside/secret", workspace.join("swapped")).unwrap();
                fs::remove_file(workspace.join("dir")).unwrap();
                fs::rename(workspace.join("kept"), workspace.join("dir")).unwrap();
                fs::remove_file(workspace.join("swapped")).unwrap();
                fs::write(workspace.join("swapped"), "fine").unwrap();
                fs::rename(workspace.join("dir"), workspace.join("kept")).unwrap();
                fs::remove_file(workspace.join("swapped")).unwrap();
            }
        });
        let until = Instant::now() + Duration::from_secs(4);
        let (mut rounds, mut read) = (0, 0);
        while Instant::now() < until {
            let changes = world.changes().unwrap();
            let patch = changes.patch(&PatchLimits::default()).unwrap();
            read += usize::from(patch.text.contains("fine"));
            rounds += 1;
            assert!(!patch.text.contains(SECRET), "{}", patch.text);
            // Importing into it writes nowhere else.
            let _refused_or_done = world.import();
        }
        done.store(true, Ordering::Relaxed);
        println!("{rounds} rounds, {read} with the file");
        assert!(rounds > 5);
    });
    assert_eq!(fs::read_dir(world.at("outside")).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(world.at("outside/secret")).unwrap(), SECRET);
}

#[test]
fn links_on_the_host_are_not_written_through() {
    let world = world();
    let host = world.host();
    put(&world.workspace(), "dir/c.txt", "evil");
    put(&world.workspace(), "dir/new.txt", "evil");
    put(&world.workspace(), "a.txt", "evil");
    fs::remove_dir_all(host.join("dir")).unwrap();
    symlink("../outside", host.join("dir")).unwrap();
    fs::remove_file(host.join("a.txt")).unwrap();
    symlink("../outside/secret", host.join("a.txt")).unwrap();
    let before = tree(&host);
    let Err(CarryError::Conflicts(conflicts)) = world.apply() else { panic!("it was applied") };
    let why: BTreeMap<_, _> = conflicts.first.iter().map(|one| (one.path.to_string(), one.why)).collect();
    assert_eq!(why["a.txt"], Against::Changed);
    assert_eq!(why["dir/c.txt"], Against::ThroughLink);
    assert_eq!(why["dir/new.txt"], Against::ThroughLink);
    assert_eq!(tree(&host), before);
    assert_eq!(fs::read_dir(world.at("outside")).unwrap().count(), 1);
}

#[test]
fn odd_names_go_both_ways() {
    let world = World::new();
    let names: [&[u8]; 7] =
        [b"new\nline", b"\"q\"", b"\xff\xfe", b"tab\there", b"-rf", b" lead and trail ", b"a\\b"];
    let name = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
    for bytes in names {
        fs::write(world.host().join(name(bytes)), "old\n").unwrap();
    }
    git_must(&world.host(), &["init", "-q"]);
    world.import().unwrap();
    assert_eq!(git_must(&world.workspace(), &["status", "--porcelain"]), "");
    for bytes in names {
        fs::write(world.workspace().join(name(bytes)), "new\n").unwrap();
    }
    assert_eq!(world.apply().unwrap().changed, names.len());
    assert_eq!(tree(&world.host()), tree(&world.workspace()));
}

#[test]
fn a_difference_that_is_hard_to_find_has_a_deadline() {
    let world = World::new();
    let text = |seed: u64| {
        let mut state = seed;
        let mut lines = String::new();
        for _ in 0..60_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            lines.extend([(state >> 60).to_string().as_str(), "\n"]);
        }
        lines
    };
    put(&world.host(), "big.txt", text(1));
    world.import().unwrap();
    put(&world.workspace(), "big.txt", text(2));
    let changes = world.changes().unwrap();
    let limits = PatchLimits { time: Duration::from_millis(500), ..PatchLimits::default() };
    let begun = Instant::now();
    let patch = changes.patch(&limits).unwrap();
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    fs::write(world.at("patch"), patch.text).unwrap();
    git_must(&world.host(), &["apply", "../patch"]);
    assert_eq!(tree(&world.host()), tree(&world.workspace()));
}

#[test]
fn a_git_that_takes_forever_is_ended_with_all_that_it_started() {
    let mut world = World::new();
    put(&world.host(), "a", "a");
    git_must(&world.host(), &["init", "-q"]);
    world.import().unwrap();
    put(&world.workspace(), "b", "b");
    let slow = world.at("slow");
    fs::write(&slow, "#!/bin/sh\nsleep 100 &\nwait\n").unwrap();
    executable(&slow, true);
    world.git = Git { program: slow, deadline: Duration::from_millis(300) };
    let begun = Instant::now();
    let changes = world.changes().unwrap();
    assert_eq!((changes.files.len(), changes.ignored), (1, None));
    let late = world.import().unwrap_err();
    assert!(matches!(late, CarryError::GitTooSlow { .. }), "{late}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn without_git_only_what_is_under_git_is_refused() {
    let mut world = World::new();
    world.git.program = "/nowhere/git".into();
    put(&world.host(), "a", "a");
    world.import().unwrap();
    put(&world.workspace(), "b", "b");
    assert_eq!(world.apply().unwrap().changed, 1);
    git_must(&world.host(), &["init", "-q"]);
    assert!(matches!(world.import(), Err(CarryError::NoGit { .. })));
}
