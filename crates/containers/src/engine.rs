//! The engine: where its socket is, what it can do, and what to do when it does not answer.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::errors::Error;
use bollard::models::{SystemInfo, SystemInfoCgroupVersionEnum, SystemVersion};
use bollard::{API_DEFAULT_VERSION, Docker};
use model::ports::sandbox::{Gravity, Hold, Holds, Missing, SandboxError};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// For what an engine answers from memory. A machine under load takes seconds for milliseconds' work.
pub(crate) const CALL: Duration = Duration::from_secs(20);
/// For an engine to say what it is, all in all. It runs programs before it answers.
const HELLO: Duration = Duration::from_secs(20);
/// For what it has to do something for.
pub(crate) const WORK: Duration = Duration::from_mins(1);

/// Where engines may be. Whoever reads the environment fills this in.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// `DOCKER_HOST`. If it is set, nothing else is looked at.
    pub docker_host: Option<String>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime_dir: Option<PathBuf>,
}

impl Places {
    /// In the order in which they are tried: a user's own engine before the machine's.
    fn sockets(&self) -> Result<Vec<PathBuf>, Trouble> {
        if let Some(host) = self.docker_host.as_deref().filter(|host| !host.is_empty()) {
            let path = host.strip_prefix("unix://").or_else(|| host.starts_with('/').then_some(host));
            return path.map(|path| vec![path.into()]).ok_or_else(|| Trouble::NotUnix(host.to_owned()));
        }
        let user = rustix::process::geteuid().as_raw();
        let rootless = self.runtime_dir.iter().map(|directory| directory.join("podman/podman.sock"));
        let rest = [
            format!("/run/user/{user}/podman/podman.sock"),
            "/run/podman/podman.sock".to_owned(),
            "/var/run/docker.sock".to_owned(),
        ];
        Ok(rootless.chain(rest.map(PathBuf::from)).collect())
    }

    /// Whether an engine at this address would be used, if it were there.
    pub(crate) fn name(&self, socket: &Path) -> bool {
        self.sockets().is_ok_and(|sockets| sockets.iter().any(|path| path == socket))
    }

    pub(crate) fn socket(&self) -> Result<PathBuf, Trouble> {
        let sockets = self.sockets()?;
        let found = sockets.iter().find(|path| path.exists()).cloned();
        found.ok_or(Trouble::NoEngine(sockets))
    }
}

/// Why an engine cannot be used. Each says what a person does about it.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("there is no container engine at {}: {fix}", list(.0), fix = self.fix())]
    NoEngine(Vec<PathBuf>),
    #[error("DOCKER_HOST is `{0}`: {fix}", fix = self.fix())]
    NotUnix(String),
    #[error("this user may not use the container engine at {}: {fix}", .0.display(), fix = self.fix())]
    Denied(PathBuf),
    #[error("the container engine at {} does not run: {fix}", .0.display(), fix = self.fix())]
    Down(PathBuf, #[source] io::Error),
    #[error("the container engine at {} did not answer within {} s: {fix}", .0.display(), .1.as_secs(), fix = self.fix())]
    Silent(PathBuf, Duration),
    #[error("the container engine at {} answered what cannot be understood ({said}): {fix}", .0.display(), said = .1, fix = self.fix())]
    Broken(PathBuf, Error),
    /// Of one box, not of the engine at hand.
    #[error("its box was made by {engine}, and {why}: {fix}", fix = self.fix())]
    Elsewhere {
        /// With its address.
        engine: String,
        why: String,
        /// What we keep of the box.
        record: PathBuf,
    },
}

impl Trouble {
    /// What a person does about it.
    pub fn fix(&self) -> String {
        match self {
            Self::NoEngine(_) => "install one (apt-get install docker.io, or apt-get install podman and \
                systemctl --user enable --now podman.socket), or set DOCKER_HOST to its socket"
                .to_owned(),
            Self::NotUnix(_) => "only unix:// sockets of this machine can be used, since boxes see directories of it".to_owned(),
            Self::Denied(path) if path.to_string_lossy().contains("podman") => {
                "start your own with systemctl --user enable --now podman.socket".to_owned()
            }
            Self::Denied(_) => {
                "add the user to the socket's group (sudo usermod -aG docker USER, then log in again), or use \
                 rootless Podman: systemctl --user enable --now podman.socket"
                    .to_owned()
            }
            Self::Down(path, _) | Self::Silent(path, _) | Self::Broken(path, _) => {
                let service = if path.to_string_lossy().contains("podman") { "podman.socket" } else { "docker" };
                format!("see what it says (journalctl -u {service}), or start it again (systemctl restart {service})")
            }
            Self::Elsewhere { record, .. } => format!(
                "no second box is started beside it; start that engine again, or end the session (terminate_session); \
                 where the box is gone for good, remove {}",
                record.display()
            ),
        }
    }

    pub(crate) fn missing(&self) -> Missing {
        let text = self.to_string();
        let fix = self.fix();
        let what = text.strip_suffix(&format!(": {fix}")).unwrap_or(&text).to_owned();
        Missing { what, fix, gravity: Gravity::Refuses }
    }

    /// A state of a container that the Docker API does not have.
    pub(crate) fn is_between(&self) -> bool {
        matches!(self, Self::Broken(_, Error::JsonDataError { message, .. }) if message.contains("unknown variant"))
    }

    /// Nobody who starts a box can do anything about these by trying again. An engine that is being started has no
    /// socket yet: whoever waits may get it.
    pub(crate) fn lasts(&self) -> bool {
        match self {
            Self::NotUnix(_) | Self::Denied(_) | Self::Elsewhere { .. } => true,
            Self::NoEngine(_) | Self::Down(..) | Self::Silent(..) | Self::Broken(..) => false,
        }
    }
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// What came of a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    #[error("{0}")]
    NotFound(String),
    /// Somebody else has the name, or the container is not in the state for it.
    #[error("{0}")]
    Conflict(String),
    /// In the engine's own words.
    #[error("the engine refused: {0}")]
    Refused(String),
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

impl Fault {
    pub(crate) fn doing(self, doing: &str) -> SandboxError {
        let doing = doing.to_owned();
        match self {
            Self::Trouble(trouble @ Trouble::Elsewhere { .. }) => {
                SandboxError::Elsewhere(trouble.to_string())
            }
            // Also one that lets nobody in: it does so for a moment when it starts.
            Self::Trouble(trouble) => SandboxError::Away { doing, source: Box::new(trouble) },
            fault @ (Self::NotFound(_) | Self::Conflict(_) | Self::Refused(_)) => {
                SandboxError::System { doing, source: Box::new(fault) }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Docker,
    Podman,
}

/// What an engine says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The same over restarts, and no other engine's.
    pub id: String,
    pub kind: Kind,
    pub version: String,
    pub api: String,
    pub socket: PathBuf,
    /// It has no more rights than its user.
    pub rootless: bool,
    /// 1 or 2; 0 if it does not say.
    pub cgroup: u8,
    pub storage: String,
    pub runtimes: Vec<String>,
    /// What it runs containers with that name none.
    pub default_runtime: String,
    pub selinux: bool,
    pub holds: Holds,
    /// Who listens on its socket, as far as the kernel knows.
    pub pid: Option<i32>,
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, version, api, socket, rootless, cgroup, storage, .. } = self;
        let rights = if *rootless { "rootless" } else { "rootful" };
        write!(
            f,
            "{kind:?} {version} (API {api}, {rights}, cgroup v{cgroup}, {storage}) at {}",
            socket.display()
        )
    }
}

impl Facts {
    fn new(socket: &Path, version: &SystemVersion, info: &SystemInfo) -> Self {
        let components = version.components.iter().flatten();
        let podman = components.into_iter().any(|component| component.name.contains("Podman"));
        let kind = if podman { Kind::Podman } else { Kind::Docker };
        let options = info.security_options.as_deref().unwrap_or_default();
        let option = |name: &str| {
            options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}")))
        };
        let unconfined = options.iter().any(|option| option.contains("profile=unconfined"));
        let rootless = option("rootless");
        let cgroup = match info.cgroup_version {
            Some(SystemInfoCgroupVersionEnum::_1) => 1,
            Some(SystemInfoCgroupVersionEnum::_2) => 2,
            Some(SystemInfoCgroupVersionEnum::EMPTY) | None => 0,
        };
        // Without rights of root the older groups cannot be made, and engines leave limits out without a word.
        let groups = !(rootless && cgroup != 2);
        let held = |by: Option<bool>| if groups && by == Some(true) { Hold::Enforced } else { Hold::Absent };
        let holds = Holds {
            memory: held(info.memory_limit),
            pids: held(info.pids_limit),
            cpus: held(info.cpu_cfs_quota),
            // What a box can fill are directories of the host: no option of a storage driver reaches these.
            disk: Hold::Watched,
            syscalls: if option("seccomp") && !unconfined { Hold::Enforced } else { Hold::Absent },
        };
        let root = info.docker_root_dir.clone().unwrap_or_default();
        let id = match kind {
            Kind::Docker => info.id.clone().filter(|id| !id.is_empty()).unwrap_or(root),
            // It makes a new one for each answer. What it has lies in one place.
            Kind::Podman => format!("podman in {root}"),
        };
        let mut runtimes: Vec<_> = info.runtimes.iter().flatten().map(|(name, _)| name.clone()).collect();
        runtimes.sort();
        Self {
            id,
            kind,
            version: version.version.clone().unwrap_or_default(),
            api: version.api_version.clone().unwrap_or_default(),
            socket: socket.to_owned(),
            rootless,
            cgroup,
            storage: info.driver.clone().unwrap_or_default(),
            runtimes,
            default_runtime: info.default_runtime.clone().unwrap_or_default(),
            selinux: option("selinux"),
            holds,
            pid: None,
        }
    }

    /// Why it cannot run a container with this.
    pub(crate) fn lacks(&self, runtime: &str) -> Option<Missing> {
        let own = Path::new(&self.default_runtime);
        if own == Path::new(runtime) || own.file_name().is_some_and(|name| name == runtime) {
            return None;
        }
        let (what, fix) = match self.kind {
            Kind::Docker if self.runtimes.iter().any(|known| known == runtime) => return None,
            Kind::Docker => (
                format!("{self} has no runtime {runtime}, but {}", self.runtimes.join(", ")),
                "install it and tell the engine of it (runtimes in daemon.json), or set `isolation` in [sessions] to one that \
                 it has"
                    .to_owned(),
            ),
            // It takes the word and does as it always does.
            Kind::Podman => (
                format!("{self} runs every container with {}, not with {runtime}", self.default_runtime),
                format!("make it the engine's own (runtime = \"{runtime}\" in containers.conf), or take `isolation` out of [sessions]"),
            ),
        };
        Some(Missing { what, fix, gravity: Gravity::Refuses })
    }

    /// What is not there, and what would bring it.
    pub(crate) fn missing(&self) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut weak = |what: String, fix: &str| {
            missing.push(Missing { what, fix: fix.to_owned(), gravity: Gravity::Weakens });
        };
        let Holds { memory, pids, cpus, disk: _, syscalls } = self.holds;
        let lax: Vec<_> = [("memory", memory), ("pids", pids), ("cpus", cpus)]
            .into_iter()
            .filter_map(|(name, hold)| (hold == Hold::Absent).then_some(name))
            .collect();
        if !lax.is_empty() {
            let what = format!("{self} holds no limit of {}", lax.join(", "));
            let fix = if self.rootless {
                "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1) and let systemd delegate its controllers: \
                 Delegate=cpu memory pids for user@.service"
            } else {
                "give the engine these control groups"
            };
            weak(what, fix);
        }
        if syscalls == Hold::Absent {
            weak(format!("{self} filters no system calls"), "use an engine with its default seccomp profile");
        }
        missing
    }
}

/// A connection that has agreed on a version. Each request opens the socket anew.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) docker: Docker,
    pub(crate) facts: Facts,
}

impl Engine {
    pub(crate) async fn connect(socket: PathBuf) -> Result<Self, Trouble> {
        let silent = Trouble::Silent(socket.clone(), HELLO);
        timeout(HELLO, Self::agree(socket)).await.unwrap_or(Err(silent))
    }

    async fn agree(socket: PathBuf) -> Result<Self, Trouble> {
        // Tried by hand first: only so is it known why it fails.
        let pid = match UnixStream::connect(&socket).await {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(Trouble::Denied(socket));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Trouble::NoEngine(vec![socket]));
            }
            Err(error) => return Err(Trouble::Down(socket, error)),
            Ok(stream) => stream.peer_cred().ok().and_then(|peer| peer.pid()),
        };
        let broken = |error| Trouble::Broken(socket.clone(), error);
        let path = socket.to_string_lossy();
        let docker = Docker::connect_with_unix(&path, WORK.as_secs(), API_DEFAULT_VERSION).map_err(broken)?;
        let docker = docker.negotiate_version().await.map_err(broken)?;
        let version = docker.version().await.map_err(broken)?;
        let info = docker.info().await.map_err(broken)?;
        Ok(Self { docker, facts: Facts { pid, ..Facts::new(&socket, &version, &info) } })
    }

    pub(crate) async fn call<T>(
        &self,
        within: Duration,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Fault> {
        match timeout(within, call).await {
            Err(_) => Err(Trouble::Silent(self.facts.socket.clone(), within).into()),
            Ok(result) => result.map_err(|error| self.fault(error)),
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the library's own; what it adds cannot be understood either"
    )]
    pub(crate) fn fault(&self, error: Error) -> Fault {
        let socket = || self.facts.socket.clone();
        match error {
            Error::DockerResponseServerError { status_code: 404, message } => Fault::NotFound(message),
            Error::DockerResponseServerError { status_code: 409, message } => Fault::Conflict(message),
            Error::DockerResponseServerError { message, .. } => Fault::Refused(message),
            Error::DockerStreamError { error } => Fault::Refused(error),
            Error::RequestTimeoutError => Trouble::Silent(socket(), WORK).into(),
            Error::SocketNotFoundError(_) => Trouble::NoEngine(vec![socket()]).into(),
            Error::HyperLegacyError { .. } | Error::HyperResponseError { .. } | Error::IOError { .. } => {
                Trouble::Down(socket(), io::Error::other(error)).into()
            }
            other => Trouble::Broken(socket(), other).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sockets(docker_host: Option<&str>) -> Result<Vec<PathBuf>, Trouble> {
        let docker_host = docker_host.map(str::to_owned);
        Places { docker_host, runtime_dir: Some("/run/user/7".into()) }.sockets()
    }

    #[test]
    fn a_users_own_engine_comes_before_the_machines_and_a_named_one_is_the_only_one() {
        let all = sockets(None).unwrap();
        assert_eq!(all.first().unwrap(), Path::new("/run/user/7/podman/podman.sock"));
        assert_eq!(all.get(2).unwrap(), Path::new("/run/podman/podman.sock"));
        assert_eq!(all.last().unwrap(), Path::new("/var/run/docker.sock"));
        assert_eq!(sockets(Some("unix:///x/y")).unwrap(), [Path::new("/x/y")]);
        assert!(sockets(Some("tcp://1.2.3.4:2375")).unwrap_err().to_string().contains("only unix://"));
    }

    #[test]
    fn what_an_engine_says_becomes_what_holds() {
        let version = SystemVersion { version: Some("20.10".into()), ..SystemVersion::default() };
        let info = |cgroup, options: &[&str]| SystemInfo {
            memory_limit: Some(true),
            pids_limit: Some(true),
            cpu_cfs_quota: Some(false),
            cgroup_version: Some(cgroup),
            security_options: Some(options.iter().map(ToString::to_string).collect()),
            ..SystemInfo::default()
        };
        let holds = |info: &SystemInfo| {
            Facts::new(Path::new("/s"), &version, info).holds.words().map(|(_, word)| word)
        };
        let (one, two) = (SystemInfoCgroupVersionEnum::_1, SystemInfoCgroupVersionEnum::_2);
        let seccomp = "name=seccomp,profile=default";
        assert_eq!(holds(&info(one, &[seccomp])), ["enforced", "enforced", "absent", "watched", "enforced"]);
        let rootless = info(one, &[seccomp, "name=rootless"]);
        assert_eq!(holds(&rootless), ["absent", "absent", "absent", "watched", "enforced"]);
        let rootless = info(two, &["name=seccomp,profile=unconfined", "name=rootless"]);
        assert_eq!(holds(&rootless), ["enforced", "enforced", "absent", "watched", "absent"]);
        let facts = Facts::new(Path::new("/s"), &version, &rootless);
        let missing = facts.missing().iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(
            missing.contains("no limit of cpus")
                && missing.contains("Delegate=")
                && missing.contains("system calls")
        );
    }
}
