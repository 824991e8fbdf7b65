use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use proptest::prelude::*;

use super::*;

#[test]
fn whoever_has_a_lease_on_a_file_makes_nobody_wait() {
    let (directory, root) = place();
    let hold = "import fcntl,os,signal,sys,time\n\
                signal.signal(signal.SIGIO, signal.SIG_IGN)\n\
                held = os.open(sys.argv[1], os.O_RDWR)\n\
                fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
                print('held', flush=True)\n\
                time.sleep(20)";
    let mut holder = Command::new("python3")
        .args(["-c", hold])
        .arg(directory.path().join("root/a.txt"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 5];
    holder.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    let begun = Instant::now();
    let read = root.read(Path::new("a.txt"), 100);
    let took = begun.elapsed();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(matches!(read, Err(BeneathError::Held)), "{read:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert_eq!(root.read(Path::new("a.txt"), 100).unwrap().data, Data::Text("text".into()));
}

const CAPS: Caps = Caps { files: 100, entries: 1000, depth: 8 };

/// `outside/secret`, and `root/` with a few good files.
fn place() -> (tempfile::TempDir, Root) {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    fs::create_dir_all(root.join("sub")).unwrap();
    fs::create_dir(directory.path().join("outside")).unwrap();
    fs::write(directory.path().join("outside/secret"), "SECRET").unwrap();
    fs::write(root.join("a.txt"), "text").unwrap();
    fs::write(root.join("sub/b.bin"), b"\x7fELF\0\0").unwrap();
    let root = Root::open(&root).unwrap();
    (directory, root)
}

#[track_caller]
fn refused(root: &Root, path: impl AsRef<Path>) -> BeneathError {
    root.read(path.as_ref(), 100).expect_err("it was read")
}

#[test]
fn a_regular_file_is_read_up_to_the_cap() {
    let (_directory, root) = place();
    let content = |data, size, truncated| Content { data, size, truncated };
    assert_eq!(root.read(Path::new("a.txt"), 100).unwrap(), content(Data::Text("text".into()), 4, false));
    assert_eq!(root.read(Path::new("a.txt"), 4).unwrap(), content(Data::Text("text".into()), 4, false));
    assert_eq!(root.read(Path::new("./a.txt"), 2).unwrap(), content(Data::Text("te".into()), 4, true));
    let binary = Data::Binary(b"\x7fELF\0\0".to_vec());
    assert_eq!(root.read(Path::new("sub/b.bin"), 100).unwrap(), content(binary, 6, false));
}

#[test]
fn half_a_character_at_the_cut_is_left_out_and_elsewhere_makes_it_binary() {
    assert_eq!(told_apart("aü".as_bytes()[..2].to_vec(), true), Data::Text("a".into()));
    assert_eq!(told_apart(b"a\xc3".to_vec(), false), Data::Binary(b"a\xc3".to_vec()));
    assert_eq!(told_apart(b"\xff\xfea".to_vec(), true), Data::Binary(b"\xff\xfea".to_vec()));
}

#[test]
fn paths_that_lead_out_are_refused_before_the_kernel_sees_them() {
    let (directory, root) = place();
    let absolute = directory.path().join("outside/secret");
    let long = "a/".repeat(5 << 20);
    let paths = ["", "..", "../outside/secret", "sub/../../outside/secret", "a.txt\0", &long, "/etc/passwd"];
    for path in paths.iter().map(Path::new).chain([absolute.as_path()]) {
        assert!(matches!(refused(&root, path), BeneathError::Outside));
    }
    assert!(matches!(refused(&root, "a".repeat(4000)), BeneathError::NotFound));
    assert!(matches!(refused(&root, "..\\outside\\secret"), BeneathError::NotFound));
}

#[test]
fn links_are_followed_as_long_as_they_stay_beneath() {
    let (directory, root) = place();
    let at = directory.path().join("root");
    symlink("a.txt", at.join("inner")).unwrap();
    symlink("../outside/secret", at.join("outer")).unwrap();
    symlink("../outside", at.join("folder")).unwrap();
    symlink(directory.path().join("root/a.txt"), at.join("absolute")).unwrap();
    symlink("loop", at.join("loop")).unwrap();
    symlink("/proc/self/root/etc/passwd", at.join("magic")).unwrap();
    assert!(root.read(Path::new("inner"), 10).is_ok());
    for path in ["outer", "folder/secret", "absolute", "loop", "magic"] {
        assert!(matches!(refused(&root, path), BeneathError::Outside), "{path}");
    }
    let listed: Vec<_> = root.list(CAPS).unwrap().files.into_iter().map(|entry| entry.path).collect();
    assert_eq!(listed, [Path::new("a.txt"), Path::new("sub/b.bin")]);
}

#[test]
fn what_is_no_regular_file_is_refused_without_being_opened() {
    let (directory, root) = place();
    let at = directory.path().join("root");
    assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
    let _listener = UnixListener::bind(at.join("socket")).unwrap();
    // Only root can make a device; whoever cannot has one thing less to test.
    let device = Command::new("mknod").arg(at.join("null")).args(["c", "1", "3"]).output().unwrap();
    for path in ["pipe", "socket", "sub"].into_iter().chain(device.status.success().then_some("null")) {
        assert!(matches!(refused(&root, path), BeneathError::NotRegular), "{path}");
    }
}

/// Ends the other thread, also when this one fails.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_link_that_is_swapped_in_never_leads_out() {
    let (directory, root) = place();
    let at = directory.path().join("root");
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let _at_the_end = Raised(&done);
        scope.spawn(|| {
            // One name is now a directory with a file, now a link to the directory outside.
            fs::create_dir(at.join("inside")).unwrap();
            fs::write(at.join("inside/secret"), "fine").unwrap();
            while !done.load(Ordering::Relaxed) {
                fs::rename(at.join("inside"), at.join("name")).unwrap();
                fs::rename(at.join("name"), at.join("inside")).unwrap();
                symlink("../outside", at.join("name")).unwrap();
                fs::remove_file(at.join("name")).unwrap();
            }
        });
        // Until it was read often enough: the other thread may take its time.
        let (mut read, mut tries) = (0, 0);
        let until = Instant::now() + Duration::from_secs(20);
        while (read < 200 || tries < 5000) && Instant::now() < until {
            tries += 1;
            match root.read(Path::new("name/secret"), 10) {
                Ok(content) => {
                    assert_eq!(content.data, Data::Text("fine".into()));
                    read += 1;
                }
                Err(BeneathError::Outside | BeneathError::NotFound | BeneathError::System(_)) => {}
                Err(BeneathError::NotRegular | BeneathError::Held) => panic!("a file is a file"),
            }
        }
        for _ in 0..200 {
            assert!(
                root.list(CAPS)
                    .unwrap()
                    .files
                    .iter()
                    .all(|entry| entry.size != 6 || entry.path.ends_with("b.bin"))
            );
        }
        assert!(read >= 200, "the file was seldom there when it was read: this showed little");
    });
}

#[test]
fn a_list_ends_at_each_of_its_caps() {
    let (directory, root) = place();
    let at = directory.path().join("root");
    let deep = at.join("1/2/3/4/5/6/7/8/9/10");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("deep"), "").unwrap();
    let listing = root.list(CAPS).unwrap();
    assert!(listing.truncated && listing.files.len() == 2);
    let listing = root.list(Caps { depth: 20, ..CAPS }).unwrap();
    assert!(!listing.truncated && listing.files.len() == 3);
    assert!(root.list(Caps { files: 2, depth: 20, ..CAPS }).unwrap().truncated);
    assert!(root.list(Caps { entries: 5, depth: 20, ..CAPS }).unwrap().truncated);
}

proptest! {
    #[test]
    fn no_path_ever_reaches_what_lies_outside(
        parts in prop::collection::vec(
            prop::sample::select(vec!["..", ".", "", "sub", "outer", "folder", "secret", "outside", "root", "a.txt", "\0"]),
            0..8,
        ),
        absolute in any::<bool>(),
    ) {
        let (directory, root) = place();
        let at = directory.path().join("root");
        symlink("../outside/secret", at.join("outer")).unwrap();
        symlink("..", at.join("folder")).unwrap();
        let path = format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"));
        prop_assert!(root.read(Path::new("a.txt"), 100).is_ok());
        if let Ok(content) = root.read(Path::new(&path), 100) {
            prop_assert_ne!(content.data, Data::Text("SECRET".into()), "{}", path);
        }
    }
}
