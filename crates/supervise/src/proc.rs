//! What a process can learn and do about its own children and descriptors.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, close, dup2_stderr, dup2_stdin, dup2_stdout, getpgid, getpgrp, getpid};

/// Direct children, dead but unreaped ones included. May miss one while others come and go, so callers repeat.
pub(crate) fn children() -> io::Result<Vec<Pid>> {
    let own = getpid();
    match fs::read_to_string(format!("/proc/self/task/{own}/children")) {
        Ok(list) => Ok(list.split_ascii_whitespace().filter_map(parse_pid).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => children_by_scan(own),
        Err(error) => Err(error),
    }
}

/// For kernels without `CONFIG_PROC_CHILDREN`.
fn children_by_scan(own: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(parse_pid) else { continue };
        // A process may end between the two reads.
        let Ok(stat) = fs::read(format!("/proc/{pid}/stat")) else { continue };
        if parent_in_stat(&stat) == Some(own) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// `stat` is `pid (name) state ppid …`; the name may itself contain spaces and parentheses.
fn parent_in_stat(stat: &[u8]) -> Option<Pid> {
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let rest = str::from_utf8(stat.get(after_name..)?).ok()?;
    rest.split_ascii_whitespace().nth(1).and_then(parse_pid)
}

fn parse_pid(text: &str) -> Option<Pid> {
    text.parse().ok().map(Pid::from_raw)
}

/// Signals every direct child and the whole process group of each.
///
/// A group is signalled at once: a member that is forking cannot slip through. All groups found here are within
/// sessions made below this process, so they hold nobody else; our own group is the one exception, left out.
pub(crate) fn signal_children(signal: Signal) -> io::Result<()> {
    let own_group = getpgrp();
    let mut groups = BTreeSet::new();
    for child in children()? {
        match getpgid(Some(child)) {
            Ok(group) if group != own_group => {
                groups.insert(group);
            }
            // Not yet in a session of its own, or gone; a child we have not reaped keeps its number, so this
            // reaches no stranger.
            Ok(_) | Err(_) => {
                let _ = kill(child, signal);
            }
        }
    }
    for group in groups {
        // All members may have ended since.
        let _ = killpg(group, signal);
    }
    Ok(())
}

/// Closes every descriptor above 2 but those in `keep`.
///
/// Only for a freshly forked process: frames of its parent's code still name the closed descriptors, and are never
/// returned to.
pub(crate) fn close_others(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut open: Vec<RawFd> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for number in open {
        if number > 2 && !keep.iter().any(|kept| kept.as_raw_fd() == number) {
            // The listing's own descriptor is in the list, and closed already.
            let _ = close(number);
        }
    }
    Ok(())
}

pub(crate) fn stdio_to_null() -> nix::Result<()> {
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    dup2_stdin(&null)?;
    dup2_stdout(&null)?;
    dup2_stderr(&null)
}

#[cfg(test)]
mod tests;
