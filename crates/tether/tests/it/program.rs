use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::thread;

use tether::{PROGRAM, install};

use crate::harness::{Bridge, SOON, directory, holds, program};

#[track_caller]
fn check(path: &Path) {
    let found = fs::symlink_metadata(path).unwrap();
    assert!(found.is_file());
    assert_eq!(found.permissions().mode() & 0o7777, 0o755);
    assert!(fs::read(path).unwrap() == PROGRAM);
    // Nothing else is left lying.
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn it_is_written_once() {
    let directory = directory();
    let into = directory.path().join("a/b");
    let path = install(&into).unwrap();
    check(&path);
    let before = fs::metadata(&path).unwrap();
    assert_eq!(install(&into).unwrap(), path);
    let after = fs::metadata(&path).unwrap();
    assert_eq!((before.ino(), before.mtime_nsec()), (after.ino(), after.mtime_nsec()));
}

#[test]
fn what_is_there_is_checked() {
    let directory = directory();
    let path = install(directory.path()).unwrap();
    let mut changed = PROGRAM.to_vec();
    changed[PROGRAM.len() / 2] ^= 1;
    fs::write(&path, changed).unwrap();
    check(&install(directory.path()).unwrap());
    fs::write(&path, &PROGRAM[..1000]).unwrap();
    check(&install(directory.path()).unwrap());
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    check(&install(directory.path()).unwrap());
    // A link, to a file that is right and not ours to change.
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs::write(&elsewhere, "kept").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(&elsewhere, &path).unwrap();
    check(&install(directory.path()).unwrap());
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "kept");
    // A pipe, which would block whoever opens it.
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    check(&install(directory.path()).unwrap());
}

#[test]
fn many_may_write_it_at_once() {
    let directory = directory();
    let path = thread::scope(|scope| {
        let all: Vec<_> = (0..8).map(|_| scope.spawn(|| install(directory.path()).unwrap())).collect();
        all.into_iter().map(|one| one.join().unwrap()).next_back().unwrap()
    });
    check(&path);
}

#[test]
fn it_is_static_and_small() {
    let told = Command::new("ldd").arg(program()).output().unwrap();
    let told = [told.stdout, told.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(told.contains("statically linked") || told.contains("not a dynamic executable"), "{told}");
    println!("the program has {} kB", PROGRAM.len() >> 10);
    assert!(PROGRAM.len() < 3 << 20);
}

#[test]
fn it_runs_where_nothing_else_is() {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--as-pid-1", "--clearenv", "--ro-bind"]);
    command.arg(program()).args(["/bridge", "/bridge", "--agent", "1", "--carry", "2=model", "--"]);
    // Once more as its own command, which finds the port taken.
    command.args(["/bridge", "--agent", "1", "--carry", "2=model", "--", "/bridge"]);
    let ended = command.output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(98), "{told}");
    assert!(told.contains("127.0.0.1:2 for model"), "{told}");
}

#[test]
fn it_rests_in_little_memory() {
    let directory = directory();
    let (sockets, carried) = (directory.path().to_str().unwrap(), crate::harness::port());
    let carried = format!("{carried}=model");
    let mut bridge = Bridge::start(
        &["--sockets", sockets, "--agent", "1", "--carry", &carried],
        &["sh", "-c", "echo ready; exec sleep 600"],
    );
    assert_eq!(bridge.line(), "ready");
    let rollup = format!("/proc/{}/smaps_rollup", bridge.pid());
    let pss = holds(SOON, || {
        let rollup = fs::read_to_string(&rollup).ok()?;
        let line = rollup.lines().find(|line| line.starts_with("Pss:"))?;
        line.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    println!("resident {} kB, of that its own {pss} kB", bridge.resident());
    assert!(bridge.resident() < 4 << 10);
}
