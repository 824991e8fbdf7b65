//! One box in which pip runs: no network, no socket but that of a proxy to the index, nothing of the session.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use broker::{Allow, BadAllow, Decided, Egress, EgressOptions, Notes, Verdict};
use containers::BRIDGE;
use model::ports::sandbox::{
    Bind, BoxName, BoxSpec, BoxState, Cause, Ending, Environment as BoxEnvironment, Exit, Network,
    Sandbox as _, SandboxError, User,
};
use model::settings::Runtime;
use sessions::extras::{Stage, Unfit};
use tether::Sockets;
use tokio::net::lookup_host;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::index::{Host, Told, Wanted};
use super::{Install, refused};
use crate::sessions::quay::accept;
use crate::sessions::rooms::{PATH, PORTS, TMP, limits, oci_runtime, strictness};

/// How often is looked at what pip says.
const LOOK: Duration = Duration::from_millis(100);
/// Between two lines about it.
const BETWEEN: Duration = Duration::from_secs(1);
/// It may take so many times as long as an agent to start: packages are fetched, and some are compiled.
const PATIENCE: u32 = 10;
/// How long a name may take to be found.
const RESOLVE: Duration = Duration::from_secs(5);
const SCRIPT: &str = include_str!("install.py");
/// Exit codes of the script, and of the bridge where there is no such program.
const NO_PIP: i32 = 90;
const NO_PYTHON: i32 = 127;
/// Of what a box prints: what is looked at, and what is told.
const HEAD: u64 = 64 << 10;
const TAIL: u64 = 4 << 10;
const MOST_WORDS: usize = 1500;
const LONGEST_LINE: usize = 200;
/// Hosts that pip wanted and did not get, which are told.
const MOST_REFUSED: usize = 5;

pub(super) struct Pip<'a> {
    pub(super) install: &'a Install,
    pub(super) stage: &'a Stage,
    pub(super) name: &'a BoxName,
    pub(super) wanted: Wanted,
}

impl Pip<'_> {
    /// Which hosts it could reach, once all is installed. Whoever lets go of it ends the box.
    pub(super) async fn run(&self) -> Result<Vec<String>, Unfit> {
        let unmade = |error: std::io::Error| refused(format!("the socket for pip cannot be made: {error}"));
        let mut sockets = Sockets::make(&self.stage.sockets(), &[tether::EGRESS]).map_err(unmade)?;
        // Nobody answers on it before it is known what may be reached; who connects meanwhile waits.
        let mut listener = sockets.take(tether::EGRESS);
        let patience = self.install.settings.start_timeout * PATIENCE;
        let until = Instant::now() + patience;
        let log = match self.start().await? {
            Ok(log) => log,
            Err(ending) => return Err(self.failed(&ending, &[])),
        };
        let end = CancellationToken::new();
        let _ends = end.clone().drop_guard();
        let notes = Arc::new(Refusals::default());
        let (mut hosts, mut told, mut last) = (Vec::new(), Instant::now(), String::new());
        loop {
            if listener.is_some()
                && let Some(answer) = head(&log).as_deref().and_then(Told::find)
                && let Some(listener) = listener.take()
            {
                hosts = self.serve(&answer, listener, (&notes, &end)).await?;
            }
            match self.install.outfitter.sandbox.state(self.name).await {
                Ok(BoxState::Ended(ending))
                    if ending.exit == Exit::Code(0) && ending.cause == Cause::Exited =>
                {
                    return Ok(hosts);
                }
                Ok(BoxState::Ended(ending)) => return Err(self.failed(&ending, &notes.take())),
                Ok(BoxState::Absent) => return Err(refused("the box in which pip ran is gone")),
                // A look that fails says nothing.
                Ok(BoxState::Running(_) | BoxState::Starting | BoxState::Unknown) | Err(_) => {}
            }
            if Instant::now() > until {
                return Err(refused(format!(
                    "the extras were not installed within {} s, which is {PATIENCE} times `start_timeout`; it said last: {}",
                    patience.as_secs(),
                    self.words(&tail(&log).unwrap_or_default())
                )));
            }
            if told.elapsed() > BETWEEN
                && let Some(line) = tail(&log).as_deref().and_then(last_line)
                && line != last
            {
                let shown = self.install.outfitter.redactor.redact(&line).into_owned();
                self.install.tell(format!("installing extras: {shown}")).await;
                (last, told) = (line, Instant::now());
            }
            sleep(LOOK).await;
        }
    }

    /// Where its log is; or how it ended, where it was faster than we.
    async fn start(&self) -> Result<Result<std::path::PathBuf, Ending>, Unfit> {
        let sandbox = &self.install.outfitter.sandbox;
        match sandbox.start(self.spec()).await {
            Ok(started) => Ok(Ok(started.info.log)),
            Err(SandboxError::NotStarted(why)) => match sandbox.state(self.name).await {
                Ok(BoxState::Ended(ending)) if ending.cause == Cause::Exited => Ok(Err(ending)),
                Ok(_) | Err(_) => Err(Unfit::Box(SandboxError::NotStarted(why))),
            },
            Err(error) => Err(Unfit::Box(error)),
        }
    }

    fn spec(&self) -> BoxSpec {
        let Install { outfitter, session, settings, .. } = self.install;
        let proxy = format!("http://127.0.0.1:{}", PORTS.egress);
        // Also what is on this machine's loopback: in the box that is another one.
        let proxies =
            ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"].map(|name| (name, proxy.as_str()));
        let own = [
            ("HOME", "/workspace"),
            ("LANG", "C.UTF-8"),
            ("PATH", PATH),
            ("PIP_BREAK_SYSTEM_PACKAGES", "1"),
            ("PYTHONUSERBASE", "/session-meta/python"),
            ("SHELL", "/bin/sh"),
            ("TMPDIR", "/workspace/tmp"),
        ];
        let env = own.into_iter().chain(proxies).map(|(name, value)| (name.to_owned(), value.to_owned()));
        let env: BTreeMap<String, String> = env.chain(self.wanted.variables.iter().cloned()).collect();
        let patience = (settings.start_timeout * PATIENCE).as_secs().max(1);
        let args = [
            "--sockets",
            tether::DIRECTORY,
            // Nobody listens there: there is no agent.
            "--agent",
            &PORTS.agent.to_string(),
            "--carry",
            &format!("{}={}", PORTS.egress, tether::EGRESS),
            // There is no daemon at a socket for control either, so this is as long as it ever runs.
            "--orphan",
            &patience.to_string(),
            "--",
            "python3",
            "-I",
            "-c",
            SCRIPT,
            "/workspace/requirements.txt",
        ];
        BoxSpec {
            name: self.name.clone(),
            command: BRIDGE.to_owned(),
            args: args.map(str::to_owned).to_vec(),
            env: BoxEnvironment(env),
            workspace: self.stage.work(),
            meta: self.stage.meta(),
            sockets: Some(self.stage.sockets()),
            binds: vec![Bind { source: outfitter.bridge.clone(), target: BRIDGE.into() }],
            image: match settings.runtime {
                Runtime::Local => None,
                Runtime::Docker => Some(session.image.clone()),
            },
            oci_runtime: oci_runtime(settings),
            tmp: TMP,
            limits: limits(settings),
            strictness: strictness(settings),
            network: Network::None,
            user: User::NOBODY,
            orphan_grace: settings.orphan_grace,
            labels: BTreeMap::from([("principal".to_owned(), session.principal.to_string())]),
        }
    }

    /// From here on pip reaches its index. What that is does not change any more, whatever the box says.
    async fn serve(
        &self,
        told: &Told,
        listener: UnixListener,
        (notes, end): (&Arc<Refusals>, &CancellationToken),
    ) -> Result<Vec<String>, Unfit> {
        let hosts: Vec<Host> = self.wanted.named.iter().cloned().chain(self.wanted.told(told)).collect();
        let mut allowed: Vec<String> = hosts.iter().map(Host::entry).collect();
        for host in &self.wanted.named {
            // One that was named may lie in a private network: its addresses are meant.
            allowed.extend(addresses(host).await);
        }
        let tasks = self.install.outfitter.tasks.clone();
        let proxy = loop {
            let allow = Allow::Hosts(allowed.clone());
            let (notes, tasks): (Arc<dyn Notes>, _) = (Arc::<Refusals>::clone(notes), tasks.clone());
            match Egress::new(EgressOptions { allow, notes, tasks }) {
                Ok(proxy) => break proxy,
                // No box connects there, whoever names it.
                Err(BadAllow { entry, .. }) => allowed.retain(|allowed| *allowed != entry),
            }
        };
        let serve = move |stream, stop| Arc::clone(&proxy).serve(stream, stop);
        accept(&tasks, listener, end, serve).map_err(Unfit::Refused)?;
        Ok(hosts.iter().map(Host::entry).collect())
    }

    fn failed(&self, ending: &Ending, refusals: &[String]) -> Unfit {
        let place = match self.install.settings.runtime {
            Runtime::Local => "on this machine (Debian: apt-get install python3-pip)".to_owned(),
            Runtime::Docker => format!("into the image {}", self.install.session.image),
        };
        if ending.cause == Cause::Exited {
            match ending.exit {
                Exit::Code(NO_PYTHON) => {
                    return refused(format!(
                        "requirements.txt of the extras needs python3, which the box does not have; install it {place}"
                    ));
                }
                Exit::Code(NO_PIP) => {
                    return refused(format!(
                        "requirements.txt of the extras needs pip, which the box's python3 does not have; install it {place}"
                    ));
                }
                Exit::Code(_) | Exit::Signal(_) | Exit::Unknown => {}
            }
        }
        let mut said = self.words(ending.message.as_deref().unwrap_or("it said nothing"));
        if !refusals.is_empty() {
            let _infallible = write!(
                said,
                "\nIt also asked for {}, which is not the index: where it belongs to one, name it in requirements.txt, such as `--find-links https://{}/`",
                refusals.join(", "),
                refusals.first().map_or("", String::as_str)
            );
        }
        Unfit::Ended(ending.clone(), format!("pip said last: {said}"))
    }

    /// For a person: no secrets, nothing that drives a terminal, and not too much.
    fn words(&self, text: &str) -> String {
        let text =
            text.lines().filter(|line| !line.starts_with("callsign-index ")).collect::<Vec<_>>().join("\n");
        let shown: String = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c }).collect();
        let over = shown.len().saturating_sub(MOST_WORDS);
        let from = (over..=shown.len()).find(|at| shown.is_char_boundary(*at)).unwrap_or(0);
        self.install.outfitter.redactor.redact(shown[from..].trim()).into_owned()
    }
}

async fn addresses(host: &Host) -> Vec<String> {
    let bare = host.name.trim_start_matches('[').trim_end_matches(']');
    match timeout(RESOLVE, lookup_host((bare, host.port))).await {
        Ok(Ok(found)) => found.map(|address| address.to_string()).collect(),
        // The proxy says so to whoever asks for it.
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Hosts that pip wanted and did not get.
#[derive(Debug, Default)]
struct Refusals(Mutex<Vec<String>>);

impl Refusals {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Notes for Refusals {
    fn decided(&self, decided: Decided) {
        let Decided { host, port, verdict } = decided;
        match verdict {
            Verdict::Refused(_) => {
                let plain = host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c));
                let shown = if port == 443 { host } else { format!("{host}:{port}") };
                let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                if plain
                    && known.len() < MOST_REFUSED
                    && shown.len() <= LONGEST_LINE
                    && !known.contains(&shown)
                {
                    known.push(shown);
                }
            }
            Verdict::Failed(why) => tracing::debug!(host, port, "pip's host could not be reached: {why}"),
            Verdict::Opened | Verdict::Closed { .. } => {}
        }
    }
}

fn head(log: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(log).ok()?.take(HEAD).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn tail(log: &Path) -> Option<String> {
    let mut file = File::open(log).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
    let mut bytes = Vec::new();
    file.take(TAIL).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last whole one, cut.
fn last_line(printed: &str) -> Option<String> {
    let whole = &printed[..printed.rfind('\n')?];
    let line = whole
        .lines()
        .rev()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("callsign-index "))?;
    Some(line.chars().filter(|c| !c.is_control()).take(LONGEST_LINE).collect())
}
