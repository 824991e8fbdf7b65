use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn info(state: &StateDir) -> DaemonInfo {
    DaemonInfo {
        pid: std::process::id(),
        url: Some("http://127.0.0.1:7171".to_owned()),
        socket: None,
        version: "0.1.0".to_owned(),
        token_file: state.file("token"),
    }
}

#[track_caller]
fn check_place(flag: Option<&str>, variables: &[(&str, &str)], expected: Option<&str>) {
    let lookup = |name: &str| {
        variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
    };
    let place = StateDir::locate(flag.map(Path::new), Environment::new(&lookup), Path::new("/here"));
    assert_eq!(place.ok(), expected.map(PathBuf::from), "{flag:?} {variables:?}");
}

#[test]
fn the_place_is_the_most_explicit_one() {
    let home = ("HOME", "/home/ann");
    let xdg = ("XDG_STATE_HOME", "/xdg");
    let ours = ("CALLSIGN_STATE_DIR", "/ours");
    check_place(Some("/flag"), &[home, xdg, ours], Some("/flag"));
    check_place(Some("flag"), &[home], Some("/here/flag"));
    check_place(None, &[home, xdg, ours], Some("/ours"));
    check_place(None, &[home, xdg], Some("/xdg/callsign"));
    check_place(None, &[home, ("XDG_STATE_HOME", "relative")], Some("/home/ann/.local/state/callsign"));
    check_place(None, &[home, ("CALLSIGN_STATE_DIR", "")], Some("/home/ann/.local/state/callsign"));
    check_place(None, &[], None);
}

#[test]
fn sessions_go_by_the_seeds_variable_where_ours_say_nothing() {
    #[track_caller]
    fn check(flag: Option<&str>, variables: &[(&str, &str)], expected: &str) {
        let lookup = |name: &str| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        };
        let environment = Environment::new(&lookup);
        let place = StateDir::locate_for_sessions(flag.map(Path::new), environment, Path::new("/here"));
        assert_eq!(place.ok(), Some(PathBuf::from(expected)), "{flag:?} {variables:?}");
    }
    let (home, seeds) = (("HOME", "/home/ann"), ("MCP_STATE_DIR", "/seed"));
    check(Some("/flag"), &[home, seeds], "/flag");
    check(None, &[home, seeds, ("CALLSIGN_STATE_DIR", "/ours")], "/ours");
    check(None, &[home, seeds], "/seed");
    check(None, &[home, ("MCP_STATE_DIR", "seed")], "/here/seed");
    check(None, &[home, ("MCP_STATE_DIR", "")], "/home/ann/.local/state/callsign");
    check_place(None, &[home, seeds], Some("/home/ann/.local/state/callsign"));
}

#[test]
fn what_we_make_is_for_its_owner_only() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("a/b");
    let state = StateDir::open(&path).unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
    state.write("x", b"one").unwrap();
    state.write("x", b"two").unwrap();
    assert_eq!(mode(&state.file("x")), 0o600);
    assert_eq!(state.read("x").unwrap().as_deref(), Some("two"));
    let names: Vec<_> = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["x"], "nothing is left over");
    state.remove("x").unwrap();
    state.remove("x").unwrap();
    assert_eq!(state.read("x").unwrap(), None);
}

#[test]
fn a_directory_that_others_may_write_to_is_refused_and_not_changed() {
    let root = tempfile::tempdir().unwrap();
    for (bits, is_well) in [(0o777, false), (0o720, false), (0o755, true), (0o700, true)] {
        fs::set_permissions(root.path(), fs::Permissions::from_mode(bits)).unwrap();
        let outcome = StateDir::open(root.path());
        assert_eq!(outcome.is_ok(), is_well, "{bits:o}");
        assert!(is_well || matches!(outcome, Err(StateError::TooOpen { .. })));
        assert_eq!(mode(root.path()), bits);
    }
}

#[test]
fn a_second_daemon_is_told_of_the_first() {
    let root = tempfile::tempdir().unwrap();
    let state = StateDir::open(root.path().join("s")).unwrap();
    let first = state.lock_daemon().unwrap();
    let pid = std::process::id();
    let refusal = |url: &str| {
        format!("a daemon already runs on the state directory {}: pid {pid}{url}", state.path().display())
    };
    assert_eq!(state.lock_daemon().unwrap_err().to_string(), refusal(""));
    assert_eq!(state.running_daemon().unwrap(), None);
    first.publish(&info(&state)).unwrap();
    assert_eq!(mode(&state.file("daemon.json")), 0o600);
    assert_eq!(state.running_daemon().unwrap(), Some(info(&state)));
    assert_eq!(state.lock_daemon().unwrap_err().to_string(), refusal(", http://127.0.0.1:7171"));
    drop(first);
    assert!(!state.file("daemon.json").exists());
    drop(state.lock_daemon().unwrap());
}

#[test]
fn what_a_killed_daemon_left_behind_counts_for_nothing() {
    let root = tempfile::tempdir().unwrap();
    let state = StateDir::open(root.path().join("s")).unwrap();
    let lock = state.lock_daemon().unwrap();
    lock.publish(&info(&state)).unwrap();
    let left = fs::read(state.file("daemon.json")).unwrap();
    drop(lock);
    state.write("daemon.json", &left).unwrap();
    assert_eq!(state.running_daemon().unwrap(), None);
    let _lock = state.lock_daemon().unwrap();
    assert_eq!(state.running_daemon().unwrap(), None, "the new one does not listen yet");
}
