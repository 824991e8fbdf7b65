//! What bubblewrap is told. Pure: whoever calls has looked at the system and opened what is handed over.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use model::ports::sandbox::{BoxSpec, Inside, Network};

use crate::record::Bwrap;

/// Where a box finds its own things.
pub(crate) const WORKSPACE: &str = "/workspace";
pub(crate) const META: &str = "/session-meta";
pub(crate) const SOCKETS: &str = "/run/callsign";

/// Whom processes in the box see themselves as. Only this user exists there.
pub(crate) const PASSWD: &str = "agent:x:1000:1000:agent:/session-meta:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
pub(crate) const GROUP: &str = "agent:x:1000:\nnogroup:x:65534:\n";
/// Where there is no network, there are no other names.
pub(crate) const HOSTS: &str = "127.0.0.1 localhost callsign\n::1 localhost\n";

/// The box's private shared memory. `/tmp` has the size that the caller gives.
const SHARED_MEMORY: u64 = 64 << 20;

/// Of `/etc`, what programs need to link, to resolve names, to trust certificates and to know the time.
const ETC: [&str; 15] = [
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "gai.conf",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "services",
    "ssl/certs",
];
/// These too, where the box has the host's network.
const ETC_OF_NETWORK: [&str; 2] = ["hosts", "resolv.conf"];

/// One of `/bin`, `/lib` …, as the host has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum System {
    Directory(PathBuf),
    Link { at: PathBuf, to: PathBuf },
}

/// Where the caller's directories can be reached from, in place of the paths in the spec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sources {
    pub(crate) workspace: PathBuf,
    pub(crate) meta: PathBuf,
    pub(crate) sockets: Option<PathBuf>,
    /// In the order of the spec.
    pub(crate) binds: Vec<PathBuf>,
}

impl Sources {
    pub(crate) fn of(spec: &BoxSpec) -> Self {
        Self {
            workspace: spec.workspace.clone(),
            meta: spec.meta.clone(),
            sockets: spec.sockets.clone(),
            binds: spec.binds.iter().map(|bind| bind.source.clone()).collect(),
        }
    }
}

/// Descriptors that bubblewrap inherits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Descriptors {
    pub(crate) info: i32,
    pub(crate) block: i32,
    pub(crate) seccomp: i32,
    pub(crate) passwd: i32,
    pub(crate) group: i32,
    /// Where there is no network.
    pub(crate) hosts: Option<i32>,
}

pub(crate) fn inside(spec: &BoxSpec) -> Inside {
    Inside {
        workspace: WORKSPACE.into(),
        meta: META.into(),
        sockets: spec.sockets.is_some().then(|| SOCKETS.into()),
    }
}

/// Namespaces and privileges: also what is tried out to see whether boxes can be made.
pub(crate) fn walls(bwrap: &Bwrap, network: Network) -> Vec<OsString> {
    let mut words = Words::default();
    words.add(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
    match network {
        Network::None => words.add(["--unshare-net"]),
        Network::Host => {}
    }
    if bwrap.disables_userns {
        words.add(["--disable-userns"]);
    }
    words.add(["--uid", "1000", "--gid", "1000", "--hostname", "callsign"]);
    // No terminal to type into, no way to outlive the keeper.
    words.add(["--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv"]);
    words.0
}

/// Everything up to the command, for `--args`: so it is in no list of processes.
pub(crate) fn arguments(
    bwrap: &Bwrap,
    spec: &BoxSpec,
    system: &[System],
    sources: &Sources,
    descriptors: Descriptors,
) -> Vec<OsString> {
    let Descriptors { info, block, seccomp, passwd, group, hosts } = descriptors;
    let number = |number: i32| number.to_string();
    let mut words = Words(walls(bwrap, spec.network));
    words.add(["--info-fd", &number(info), "--block-fd", &number(block), "--seccomp", &number(seccomp)]);
    for (name, value) in &spec.env.0 {
        words.add(["--setenv", name, value]);
    }
    for part in system {
        match part {
            System::Directory(path) => words.bind("--ro-bind", path, path),
            System::Link { at, to } => words.bind("--symlink", to, at),
        }
    }
    words.add(["--proc", "/proc", "--dev", "/dev"]);
    words.add(["--perms", "1777", "--size", &SHARED_MEMORY.to_string(), "--tmpfs", "/dev/shm"]);
    words.add(["--remount-ro", "/dev"]);
    words.add(["--perms", "1777", "--size", &spec.tmp.to_string(), "--tmpfs", "/tmp"]);
    words.add(["--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--dir", "/run"]);
    words.add([
        "--ro-bind-data",
        &number(passwd),
        "/etc/passwd",
        "--ro-bind-data",
        &number(group),
        "/etc/group",
    ]);
    if let Some(hosts) = hosts {
        words.add(["--ro-bind-data", &number(hosts), "/etc/hosts"]);
    }
    let of_network = match spec.network {
        Network::Host => ETC_OF_NETWORK.as_slice(),
        Network::None => &[],
    };
    for name in ETC.iter().chain(of_network) {
        let path = Path::new("/etc").join(name);
        words.bind("--ro-bind-try", &path, &path);
    }
    for (source, bind) in sources.binds.iter().zip(&spec.binds) {
        words.bind("--ro-bind", source, &bind.target);
    }
    if let Some(sockets) = &sources.sockets {
        words.bind("--ro-bind", sockets, Path::new(SOCKETS));
    }
    // Last, so that nothing above lies over them.
    words.bind("--bind", &sources.meta, Path::new(META));
    words.bind("--bind", &sources.workspace, Path::new(WORKSPACE));
    words.add(["--remount-ro", "/", "--chdir", WORKSPACE]);
    words.0
}

/// What a spec may not say: it would undo what is said above.
pub(crate) fn refusal(spec: &BoxSpec) -> Option<String> {
    let texts = spec.args.iter().chain(spec.env.0.keys()).chain(spec.env.0.values()).chain([&spec.command]);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Some("its command, arguments and environment must not contain a NUL".to_owned());
    }
    if let Some(name) = spec.env.0.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Some(format!("`{name}` is no name of a variable"));
    }
    if spec.command.is_empty() {
        return Some("there is no command".to_owned());
    }
    let sources = [&spec.workspace, &spec.meta].into_iter().chain(&spec.sockets);
    if let Some(path) =
        sources.chain(spec.binds.iter().map(|bind| &bind.source)).find(|path| !path.is_absolute())
    {
        return Some(format!("`{}` is no absolute path", path.display()));
    }
    let taken = ["/", "/proc", "/dev", "/tmp", "/etc/passwd", "/etc/group", WORKSPACE, META, SOCKETS];
    let bad = |target: &Path| {
        let plain = target
            .components()
            .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
        !target.is_absolute() || !plain || taken.iter().any(|taken| target == Path::new(taken))
    };
    let bind = spec.binds.iter().find(|bind| bad(&bind.target))?;
    Some(format!("nothing can be bound at `{}`", bind.target.display()))
}

#[derive(Default)]
struct Words(Vec<OsString>);

impl Words {
    fn add<const N: usize>(&mut self, words: [&str; N]) {
        self.0.extend(words.map(OsString::from));
    }

    fn bind(&mut self, how: &str, from: &Path, to: &Path) {
        self.0.extend([OsStr::new(how), from.as_os_str(), to.as_os_str()].map(OsStr::to_owned));
    }
}
