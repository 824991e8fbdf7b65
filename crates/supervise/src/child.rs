//! The last steps of a forked process before it becomes the main child's program.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, chdir, dup2_stderr, dup2_stdin, dup2_stdout, execve, getppid, setsid};

use crate::wire::{Request, Step};

/// Where programs are sought if the given environment has no PATH.
const DEFAULT_PATH: &[u8] = b"/usr/local/bin:/usr/bin:/bin";

/// The main child's ends of its three pipes.
#[derive(Debug)]
pub(crate) struct Stdio {
    pub(crate) stdin: OwnedFd,
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

/// Returns only if it failed, and then says at which step.
pub(crate) fn become_program(request: &Request, stdio: &Stdio, supervisor: Pid) -> (Step, Errno) {
    if let Err(errno) = prepare(stdio, supervisor) {
        return (Step::Process, errno);
    }
    if let Some(cwd) = &request.cwd
        && let Err(errno) = chdir(cwd.as_c_str())
    {
        return (Step::WorkingDirectory, errno);
    }
    let Err(errno) = exec(request);
    (Step::Program, errno)
}

fn prepare(stdio: &Stdio, supervisor: Pid) -> nix::Result<()> {
    setsid()?;
    set_pdeathsig(Signal::SIGKILL)?;
    // The supervisor may have died before the line above; then nobody sends that signal.
    if getppid() != supervisor {
        return Err(Errno::ESRCH);
    }
    // Descriptors 0, 1, 2 are /dev/null here, so none of the three is overwritten before its turn.
    dup2_stdin(&stdio.stdin)?;
    dup2_stdout(&stdio.stdout)?;
    dup2_stderr(&stdio.stderr)?;
    SigSet::empty().thread_set_mask()
}

/// As `execvpe`, with the PATH of the given environment; empty entries of it are skipped, not the directory we are in.
fn exec(request: &Request) -> nix::Result<Infallible> {
    let Some(program) = request.argv.first() else { return Err(Errno::EINVAL) };
    let name = program.as_bytes();
    if name.is_empty() {
        return Err(Errno::ENOENT);
    }
    if name.contains(&b'/') {
        return exec_file(program, request);
    }
    let given = request.envp.iter().find_map(|variable| variable.as_bytes().strip_prefix(b"PATH="));
    let mut failure = Errno::ENOENT;
    for directory in
        given.unwrap_or(DEFAULT_PATH).split(|&byte| byte == b':').filter(|entry| !entry.is_empty())
    {
        let file = CString::new([directory, b"/", name].concat()).map_err(|_| Errno::EINVAL)?;
        let Err(errno) = exec_file(&file, request);
        if errno == Errno::EACCES {
            // Another directory may have one that we may run; if none has, this says more than ENOENT.
            failure = errno;
        } else if !matches!(errno, Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ENAMETOOLONG) {
            return Err(errno);
        }
    }
    Err(failure)
}

fn exec_file(file: &CStr, request: &Request) -> nix::Result<Infallible> {
    let Err(errno) = execve(file, &request.argv, &request.envp);
    if errno != Errno::ENOEXEC {
        return Err(errno);
    }
    // A script without `#!` runs in the shell, as it would from one.
    let arguments = request.argv.iter().skip(1).map(CString::as_c_str);
    let argv: Vec<&CStr> = [c"/bin/sh", file].into_iter().chain(arguments).collect();
    execve(c"/bin/sh", &argv, &request.envp)
}
