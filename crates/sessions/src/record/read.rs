//! Reading what a run left.

use std::io::{self, ErrorKind};
use std::path::Path;

use beneath::{BeneathError, Content, Root};

use super::{RUNS, WORKSPACE, is_record};

/// Bytes that are read at most, whoever asks for more.
pub const MOST_READ: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Or it is no regular file, or it lies elsewhere. Callers cannot tell which, on purpose.
    #[error("there is no such artifact")]
    NotFound,
    #[error("could not read the artifact")]
    System(#[source] io::Error),
}

/// The beginning of an artifact. `root` is the session's directory, `path` is [`model::session::Artifact::path`]:
/// `workspace/…`, or `runs/RUN/NAME` with a name of ours.
///
/// Nothing in `path` is decoded: where a file's name has `%2f` or a backslash in it, that is its name.
pub fn read(root: &Path, path: &str, most: usize) -> Result<Content, ReadError> {
    let (area, rest) = path.split_once('/').ok_or(ReadError::NotFound)?;
    let known = match area {
        WORKSPACE => is_plain(rest),
        RUNS => is_record(rest),
        _ => false,
    };
    if !known {
        return Err(ReadError::NotFound);
    }
    // Each is a root of its own: beneath the session's directory lies its key, and a link would lead there.
    let root = Root::open(&root.join(area)).map_err(system)?;
    root.read(Path::new(rest), most.min(MOST_READ)).map_err(|error| match error {
        BeneathError::Outside | BeneathError::NotFound | BeneathError::NotRegular => ReadError::NotFound,
        BeneathError::Held => system(io::Error::new(io::ErrorKind::WouldBlock, error.to_string())),
        BeneathError::System(error) => system(error),
    })
}

/// Whether it is spelled as we spell paths. What lies behind it is decided by the kernel.
fn is_plain(path: &str) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    path.split('/').all(plain)
}

fn system(error: io::Error) -> ReadError {
    if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
        return ReadError::NotFound;
    }
    ReadError::System(error)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use beneath::Data;
    use model::session::{RunId, Stamp};
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "sk-CANARY-7f3a";

    fn run() -> RunId {
        RunId::new(Stamp { millis: 1, random: [7; 10] })
    }

    /// A session with a key, a workspace and a run.
    fn place() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("session");
        for made in ["workspace/sub", "meta"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        fs::write(root.join("key"), SECRET).unwrap();
        fs::write(directory.path().join("key"), SECRET).unwrap();
        fs::write(root.join("meta/key"), SECRET).unwrap();
        fs::write(root.join("workspace/sub/a.txt"), "text").unwrap();
        let of_run = root.join("runs").join(run().as_str());
        fs::create_dir_all(&of_run).unwrap();
        fs::write(of_run.join("run.log"), "log").unwrap();
        fs::write(of_run.join("other"), SECRET).unwrap();
        directory
    }

    #[track_caller]
    fn refused(root: &Path, path: &str) {
        let found = read(root, path, 100);
        assert!(matches!(found, Err(ReadError::NotFound)), "{path:?}: {found:?}");
    }

    #[test]
    fn artifacts_are_read_up_to_the_cap() {
        let place = place();
        let root = place.path().join("session");
        let text = |text: &str, truncated| Content { data: Data::Text(text.into()), size: 4, truncated };
        assert_eq!(read(&root, "workspace/sub/a.txt", 100).unwrap(), text("text", false));
        assert_eq!(read(&root, "workspace/sub/a.txt", 2).unwrap(), text("te", true));
        assert_eq!(read(&root, "workspace/sub/a.txt", 0).unwrap(), text("", true));
        let log = read(&root, &format!("runs/{}/run.log", run()), 100).unwrap();
        assert_eq!(log.data, Data::Text("log".into()));
        fs::write(root.join("workspace/large"), vec![b'x'; (1 << 20) + 1]).unwrap();
        let large = read(&root, "workspace/large", usize::MAX).unwrap();
        let Data::Text(text) = large.data else { panic!("{:?}", large.size) };
        assert!(text.len() == 1 << 20 && large.truncated && large.size == (1 << 20) + 1);
        fs::write(root.join("workspace/binary"), [0, 1, 2]).unwrap();
        assert_eq!(read(&root, "workspace/binary", 10).unwrap().data, Data::Binary(vec![0, 1, 2]));
        fs::write(root.join("workspace/..%2f\\odd"), "odd").unwrap();
        assert_eq!(read(&root, "workspace/..%2f\\odd", 10).unwrap().data, Data::Text("odd".into()));
    }

    #[test]
    fn paths_that_are_none_of_ours_are_not_found() {
        let place = place();
        let root = place.path().join("session");
        let (run, absolute) = (run(), root.join("key"));
        let mut paths: Vec<String> = [
            "",
            "/",
            "workspace",
            "workspace/",
            "key",
            "meta/key",
            "runs",
            "runs/",
            "./key",
            "../key",
            "//key",
            "workspace/../key",
            "workspace/../../key",
            "workspace/sub/../../key",
            "workspace/./sub/a.txt",
            "workspace//sub/a.txt",
            "/workspace/sub/a.txt",
            "workspace/sub/a.txt/",
            "workspace/sub",
            "workspace/sub/a.txt\0",
            "workspace/..\\key",
            "workspace\\sub\\a.txt",
            "workspace/..%2fkey",
            "workspace/%2e%2e/key",
            "workspace%2fsub%2fa.txt",
            "workspace/..%252fkey",
            "workspace/....//key",
            "workspace//etc/passwd",
            "WORKSPACE/sub/a.txt",
            "workspace/sub/a.txt/x",
            "runs/run.log",
            "workspace/..%2f..%2fetc%2fpasswd",
            "workspace/%00",
            "C:\\Windows\\win.ini",
        ]
        .map(str::to_owned)
        .into();
        paths.extend([
            absolute.display().to_string(),
            format!("workspace/{}", absolute.display()),
            format!("runs/{run}"),
            format!("runs/{run}/other"),
            format!("runs/{run}/../../key"),
            format!("runs/{run}/./run.log"),
            format!("runs/{run}//run.log"),
            format!("runs/{run}/assistant-response.md"),
            format!("runs/../runs/{run}/run.log"),
            format!("workspace/{}", "a/".repeat(1 << 20)),
            format!("workspace/{}", "a".repeat(5000)),
        ]);
        for path in paths {
            refused(&root, &path);
        }
        refused(&place.path().join("gone"), "workspace/sub/a.txt");
    }

    #[test]
    fn what_a_box_puts_there_leads_nowhere() {
        let place = place();
        let root = place.path().join("session");
        let at = root.join("workspace");
        symlink("../key", at.join("up")).unwrap();
        symlink("..", at.join("folder")).unwrap();
        symlink(root.join("key"), at.join("absolute")).unwrap();
        symlink("/proc/self/environ", at.join("magic")).unwrap();
        symlink("loop", at.join("loop")).unwrap();
        assert!(Command::new("mkfifo").arg(at.join("pipe")).status().unwrap().success());
        let _listener = UnixListener::bind(at.join("socket")).unwrap();
        for path in
            ["up", "folder/key", "folder/meta/key", "absolute", "magic", "loop", "pipe", "socket", "sub"]
        {
            refused(&root, &format!("workspace/{path}"));
        }
        symlink("sub/a.txt", at.join("inner")).unwrap();
        assert!(read(&root, "workspace/inner", 10).is_ok());
        // A workspace that is itself a link is none.
        let other = place.path().join("other");
        fs::create_dir(&other).unwrap();
        symlink(&root, other.join("workspace")).unwrap();
        refused(&other, "workspace/key");
    }

    proptest! {
        #[test]
        fn no_path_leads_to_what_is_secret(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "..", ".", "", "workspace", "runs", "meta", "key", "sub", "up", "folder", "session", "\\", "%2e%2e",
                ]),
                0..7,
            ),
            separator in prop::sample::select(vec!["/", "//", "%2f", "\\"]),
        ) {
            let place = place();
            let root = place.path().join("session");
            symlink("../key", root.join("workspace/up")).unwrap();
            symlink("..", root.join("workspace/folder")).unwrap();
            for path in [parts.join("/"), parts.join(separator)] {
                if let Ok(content) = read(&root, &path, 100) {
                    prop_assert_ne!(content.data, Data::Text(SECRET.into()), "{}", path);
                }
            }
        }
    }
}
