use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::geteuid;
use tether::{Hub, Sockets};

use crate::harness::{NAMES, SOON, directory, program};

#[test]
fn sockets_are_for_the_box_and_nobody_else() {
    let above = directory();
    let path = above.path().join("sockets");
    let mut sockets = Sockets::make(&path, &NAMES).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o711);
    let mut found: Vec<_> =
        fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    found.sort();
    assert_eq!(found, ["control.sock", "egress.sock", "mcp.sock", "model.sock"]);
    for name in NAMES {
        let file = path.join(format!("{name}.sock"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o666);
        let _client = UnixStream::connect(&file).unwrap();
        sockets.take(name).unwrap().accept().unwrap();
        assert!(sockets.take(name).is_none());
    }
}

#[test]
fn what_another_daemon_left_is_replaced() {
    let above = directory();
    let path = above.path().join("sockets");
    let old = Sockets::make(&path, &["model"]).unwrap();
    let before = fs::metadata(path.join("model.sock")).unwrap().ino();
    // Died between making and placing one.
    fs::write(path.join(".new-model.sock"), "").unwrap();
    let mut new = Sockets::make(&path, &["model"]).unwrap();
    assert_ne!(fs::metadata(path.join("model.sock")).unwrap().ino(), before);
    drop(old);
    let _client = UnixStream::connect(path.join("model.sock")).unwrap();
    new.take("model").unwrap().accept().unwrap();
    assert_eq!(fs::read_dir(&path).unwrap().count(), 1);
}

#[test]
fn a_path_may_be_long() {
    let above = directory();
    let long = above.path().join("a".repeat(200)).join("b".repeat(200));
    fs::create_dir_all(&long).unwrap();
    let mut sockets = Sockets::make(&long.join("sockets"), &["model"]).unwrap();
    // As a box would, from somewhere short.
    let short = above.path().join("s");
    symlink(long.join("sockets"), &short).unwrap();
    let _client = UnixStream::connect(short.join("model.sock")).unwrap();
    sockets.take("model").unwrap().accept().unwrap();
}

#[test]
fn no_link_is_followed() {
    let above = directory();
    let elsewhere = above.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("file"), "kept").unwrap();
    fs::set_permissions(elsewhere.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    // In place of the directory.
    let linked = above.path().join("linked");
    symlink(&elsewhere, &linked).unwrap();
    assert!(Sockets::make(&linked, &["model"]).is_err());
    // In place of a socket, before and behind its name.
    let path = above.path().join("sockets");
    fs::create_dir(&path).unwrap();
    symlink(elsewhere.join("file"), path.join("model.sock")).unwrap();
    symlink(elsewhere.join("new"), path.join(".new-model.sock")).unwrap();
    let mut sockets = Sockets::make(&path, &["model"]).unwrap();
    let _client = UnixStream::connect(path.join("model.sock")).unwrap();
    sockets.take("model").unwrap().accept().unwrap();
    assert_eq!(fs::read_to_string(elsewhere.join("file")).unwrap(), "kept");
    assert_eq!(fs::metadata(elsewhere.join("file")).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1);
    // No directory is taken for rubbish.
    fs::create_dir(path.join("mcp.sock")).unwrap();
    assert!(Sockets::make(&path, &["mcp"]).is_err());
}

/// Where the daemon is root, boxes are another user's.
#[tokio::test]
async fn the_user_of_a_box_can_connect_and_not_look_around() {
    if !geteuid().is_root() {
        println!("not root: the user of a box is the daemon's own");
        return;
    }
    let above = directory();
    fs::set_permissions(above.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let path = above.path().join("sockets");
    let mut sockets = Sockets::make(&path, &["control"]).unwrap();
    let hub = Hub::new(sockets.take("control").unwrap()).unwrap();
    // The program, where that user can read it; and the directory, as a mount would hand it over.
    let open = directory();
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bridge = open.path().join("bridge");
    fs::copy(program(), &bridge).unwrap();
    let start = |sockets: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&bridge);
        command.args(["--sockets", sockets, "--agent", "1", "--orphan", "1", "--", "sleep", "2"]);
        command.current_dir(&path).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let mut outside = start(path.to_str().unwrap());
    let opens = async {
        let serves = hub.serve();
        tokio::select! {
            () = serves => unreachable!(),
            opened = hub.open(Duration::from_millis(500)) => opened.unwrap_err().kind(),
        }
    };
    assert_eq!(opens.await, ErrorKind::NotConnected, "it is found from outside");
    assert_eq!(outside.wait().unwrap().code(), Some(75));
    let mut inside = start(".");
    let opens = async {
        tokio::select! {
            () = hub.serve() => unreachable!(),
            opened = hub.open(SOON) => opened.unwrap_err().kind(),
        }
    };
    // It came, and has no agent.
    assert_eq!(opens.await, ErrorKind::ConnectionRefused);
    assert_eq!(inside.wait().unwrap().code(), Some(0));
}
