//! The last steps before bubblewrap, in a process that becomes it. Order matters: what needs privileges comes first.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use model::ports::sandbox::{BoxSpec, Level, Network, User};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_child_subreaper, set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::{Mode as FileMode, umask};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Uid, close, getppid, setgroups, setresgid, setresuid};
use rustix::fs::{AtFlags, MemfdFlags, Mode, OFlags, chownat, memfd_create};
use rustix::process::{Rlimit, prlimit};

use crate::bwrap::{Descriptors, GROUP, HOSTS, PASSWD, Sources, System, arguments};
use crate::process::Process;
use crate::record::{Job, Record};
use crate::seccomp;
use beneath::trusted;

/// Covered by a file system of this stage's own in which unprivileged users find what they may not reach by its path.
const COVERED: &str = "/tmp";

/// `rest`: the two descriptors for bubblewrap, and the keeper's number. Returns only if it failed.
pub(super) fn run(record: &Record, rest: &[OsString]) -> io::Result<()> {
    let numbers: Vec<i32> = rest.iter().filter_map(|word| word.to_str()?.parse().ok()).collect();
    let &[info, block, keeper] = numbers.as_slice() else { return Err(io::ErrorKind::InvalidInput.into()) };
    SigSet::empty().thread_set_mask()?;
    umask(FileMode::from_bits_truncate(0o022));
    die_with(keeper)?;
    let job = record.job()?.ok_or_else(|| io::Error::other("there is no job"))?;
    if let Some(groups) = &job.plan.groups {
        groups.join().map_err(|error| doing("join its control group", &error))?;
    }
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    if let Some(most) = job.spec.limits.disk {
        // One file cannot be larger than all files together.
        setrlimit(Resource::RLIMIT_FSIZE, most, most)?;
    }
    match job.plan.level {
        Level::Bubblewrap | Level::Container => {
            let Err(error) = boxed(&job, info, block, keeper);
            Err(error)
        }
        Level::Nothing => {
            // Closed by exec, and then the keeper knows; or it reads why there was none.
            let told = taken_over(info)?;
            close(block)?;
            let Err(error) = bare(&job, keeper);
            let _ = nix::unistd::write(&told, error.to_string().as_bytes());
            Err(error)
        }
    }
}

/// `rest`: whom to become, or `-`, and what bubblewrap is told.
pub(super) fn attempt(program: &Path, rest: &[OsString]) -> io::Result<()> {
    let [uid, gid, args @ ..] = rest else { return Err(io::ErrorKind::InvalidInput.into()) };
    let number = |word: &OsString| word.to_str().and_then(|word| word.parse().ok());
    if let (Some(uid), Some(gid)) = (number(uid), number(gid)) {
        unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| doing("make a mount namespace", &errno.into()))?;
        become_user(User { uid, gid })?;
    }
    // Bubblewrap ends before the last of its box has: whoever asks finds nothing left.
    set_child_subreaper(true)?;
    let status = Command::new(program).args(args).env_clear().status()?;
    while waitpid(None, None) != Err(Errno::ECHILD) {}
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("bubblewrap ended with {status}"))) }
}

/// `rest`: the process and how many it may have.
pub(super) fn hold(record: &Record, rest: &[OsString]) -> io::Result<()> {
    let [process, most] = rest else { return Err(io::ErrorKind::InvalidInput.into()) };
    let process: Process = serde_json::from_slice(process.as_bytes())?;
    let most = most.to_str().and_then(|most| most.parse().ok()).ok_or(io::ErrorKind::InvalidInput)?;
    let job = record.job()?.ok_or_else(|| io::Error::other("there is no job"))?;
    become_user(job.spec.user)?;
    limit_processes(process, most)
}

/// The kernel counts the processes of a user namespace by themselves, so this limits a box and nobody else.
pub(super) fn limit_processes(process: Process, most: u32) -> io::Result<()> {
    let limit = Rlimit { current: Some(most.into()), maximum: Some(most.into()) };
    // There is no such call for a descriptor. The process waits for us and has a parent that does not reap it yet.
    let pid = rustix::process::Pid::from_raw(process.pid).filter(|_| process.open().is_some());
    prlimit(Some(pid.ok_or(io::ErrorKind::NotFound)?), rustix::process::Resource::Nproc, limit)?;
    Ok(())
}

/// The kernel ends this process with its parent; checked afterwards, for a parent that was faster.
fn die_with(keeper: i32) -> io::Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    if getppid().as_raw() == keeper { Ok(()) } else { Err(io::Error::other("the keeper is gone")) }
}

fn boxed(job: &Job, info: i32, block: i32, keeper: i32) -> io::Result<Infallible> {
    let bwrap = job.plan.bwrap.as_ref().ok_or_else(|| io::Error::other("the plan names no bubblewrap"))?;
    let mut sources = Sources::of(&job.spec);
    if job.plan.root {
        sources = reachable(&job.spec).map_err(|error| doing("make its directories reachable", &error))?;
        become_user(job.spec.user).map_err(|error| doing("become an unprivileged user", &error))?;
        // Forgotten by the kernel when the user changed.
        die_with(keeper)?;
    }
    let filter = in_memory(&seccomp::program())?;
    let (passwd, group) = (in_memory(PASSWD.as_bytes())?, in_memory(GROUP.as_bytes())?);
    // Bubblewrap closes what it is told of; anything else would be the command's.
    let hosts = match job.spec.network {
        Network::None => Some(in_memory(HOSTS.as_bytes())?),
        Network::Host => None,
    };
    let descriptors = Descriptors {
        info,
        block,
        seccomp: filter.as_raw_fd(),
        passwd: passwd.as_raw_fd(),
        group: group.as_raw_fd(),
        hosts: hosts.as_ref().map(std::os::fd::AsRawFd::as_raw_fd),
    };
    let words = arguments(bwrap, &job.spec, &system(), &sources, descriptors);
    let joined: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let words = in_memory(&joined)?;
    let mut command = Command::new(&bwrap.program);
    command.arg("--args").arg(words.as_raw_fd().to_string()).arg("--");
    command.arg(&job.spec.command).args(&job.spec.args).env_clear();
    Err(command.exec())
}

fn bare(job: &Job, keeper: i32) -> io::Result<Infallible> {
    let spec = &job.spec;
    if job.plan.root {
        for path in [&spec.workspace, &spec.meta] {
            give(&trusted(path)?, spec.user)?;
        }
        become_user(spec.user)?;
        die_with(keeper)?;
    }
    set_no_new_privs()?;
    let mut command = Command::new(&spec.command);
    command.args(&spec.args).env_clear().envs(&spec.env.0).current_dir(&spec.workspace);
    Err(command.exec())
}

/// Binds what the spec names to names that everyone can reach, in a mount namespace that ends with the box: the
/// daemon's directories are root's own, and the user that the box becomes could not get to them.
fn reachable(spec: &BoxSpec) -> io::Result<Sources> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)?;
    // Opened here: in the new namespace, and before any of it is covered.
    let (workspace, meta) = (trusted(&spec.workspace)?, trusted(&spec.meta)?);
    let sockets = spec.sockets.as_deref().map(trusted).transpose()?;
    let binds = spec
        .binds
        .iter()
        .map(|bind| trusted(&fs::canonicalize(&bind.source)?))
        .collect::<io::Result<Vec<_>>>()?;
    give(&workspace, spec.user)?;
    give(&meta, spec.user)?;
    mount(
        Some("callsign"),
        COVERED,
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
        Some("mode=0755,size=1m"),
    )?;
    let bind = |source: &OwnedFd, name: &str| {
        let at = Path::new(COVERED).join(name);
        let from = PathBuf::from(format!("/proc/self/fd/{}", source.as_raw_fd()));
        if fs::metadata(&from)?.is_dir() { fs::create_dir(&at) } else { fs::File::create(&at).map(drop) }?;
        mount(Some(&from), &at, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)?;
        io::Result::Ok(at)
    };
    Ok(Sources {
        workspace: bind(&workspace, "workspace")?,
        meta: bind(&meta, "meta")?,
        sockets: sockets.map(|sockets| bind(&sockets, "sockets")).transpose()?,
        binds: binds
            .iter()
            .enumerate()
            .map(|(number, source)| bind(source, &number.to_string()))
            .collect::<io::Result<_>>()?,
    })
}

/// The directory itself, not what lies in it.
fn give(directory: &OwnedFd, user: User) -> io::Result<()> {
    let (uid, gid) = (rustix::fs::Uid::from_raw(user.uid), rustix::fs::Gid::from_raw(user.gid));
    Ok(chownat(directory, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
}

fn become_user(user: User) -> io::Result<()> {
    if user.uid == 0 || user.gid == 0 {
        return Err(io::Error::other("a box does not run as root"));
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setgroups(&[])?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)?;
    Ok(())
}

/// As the host has it: some keep `/bin` beside `/usr/bin`, most link it there.
fn system() -> Vec<System> {
    let mut parts = vec![System::Directory("/usr".into())];
    for name in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store"] {
        let at = PathBuf::from(name);
        match fs::read_link(&at) {
            Ok(to) => parts.push(System::Link { at, to }),
            Err(_) if at.is_dir() => parts.push(System::Directory(at)),
            Err(_) => {}
        }
    }
    parts
}

/// A file without a name, inherited by what this process becomes.
fn in_memory(content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = fs::File::from(memfd_create("callsign", MemfdFlags::empty())?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// The same pipe under a number that exec closes.
fn taken_over(number: i32) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let again = rustix::fs::open(format!("/proc/self/fd/{number}"), flags, Mode::empty())?;
    close(number)?;
    Ok(again)
}

fn doing(what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not {what}: {error}"))
}
