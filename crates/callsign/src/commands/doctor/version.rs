//! Which version of a host is on the PATH.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::config::Environment;

/// A program that takes longer to say its version is not asked again.
const DEADLINE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);
/// No version is longer.
const LONGEST: u64 = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub(super) u32, pub(super) u32, pub(super) u32);

impl Version {
    /// The first word that looks like one.
    pub(super) fn parse(text: &str) -> Option<Self> {
        text.split(|character: char| character.is_whitespace() || character == ',').find_map(|word| {
            let mut parts = word.trim_start_matches('v').split('.');
            let mut next = || {
                let digits: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
                digits.parse::<u32>().ok()
            };
            Some(Self(next()?, next()?, next().unwrap_or(0)))
        })
    }
}

pub(super) fn find(program: &str, environment: Environment<'_>) -> Option<PathBuf> {
    let directories = environment.get("PATH")?;
    std::env::split_paths(&directories)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// What `PROGRAM --version` prints first. None: it does not, or not in time.
pub(super) fn ask(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let started = Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(_)) => break true,
            Ok(None) if started.elapsed() < DEADLINE => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => break false,
        }
    };
    if !ended {
        let _it_ended_by_itself = child.kill();
        let _nobody_asks_how = child.wait();
        return None;
    }
    // A pipe that somebody it started still holds would never end: what is there already is enough.
    let mut output = child.stdout.take()?.take(LONGEST);
    let mut bytes = vec![0; usize::try_from(LONGEST).unwrap_or_default()];
    let length = output.read(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(line.chars().filter(|character| !character.is_control()).take(80).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_among_other_words() {
        assert_eq!(Version::parse("codex-cli 0.166.0"), Some(Version(0, 166, 0)));
        assert_eq!(Version::parse("2.1.325 (Claude Code)"), Some(Version(2, 1, 325)));
        assert_eq!(Version::parse("v1.2.3-beta.4"), Some(Version(1, 2, 3)));
        assert_eq!(Version::parse("1.102"), Some(Version(1, 102, 0)));
        assert_eq!(Version::parse("unknown"), None);
        assert!(Version(0, 122, 9) < Version(0, 123, 0));
    }

    #[test]
    fn a_program_that_hangs_is_left_behind() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            use std::os::unix::fs::PermissionsExt as _;
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let quick = write("quick", "#!/bin/sh\necho; echo quick 1.2.3; echo more\n");
        assert_eq!(ask(&quick).as_deref(), Some("quick 1.2.3"));
        let started = Instant::now();
        assert_eq!(ask(&write("slow", "#!/bin/sh\nexec sleep 30\n")), None);
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}
