//! What a session's box is made of: bubblewrap around the real OpenCode.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use agent::{BoxConfig, BoxModel, OpenCode, Place, Timing};
use gateway::redact::Redactor;
use model::ports::agent::{Decision, Policy, QUESTION};
use model::ports::sandbox::{
    Bind, BoxName, BoxSpec, Environment as BoxEnvironment, Limits, Network, Strictness, User,
};
use model::session::{Session, Stamp, UnixMillis};
use model::settings::{ModelName, Secret, SessionSettings};
use sandbox::LocalSandbox;
use sessions::{Access, Rooms, SessionDirs, World};
use tokio::sync::watch;

use crate::config::Environment;
use crate::config::sessions::{Document, key, resolve};
use crate::opencode;
use crate::sessions::settler::not_yet;

/// Where the box finds the agent's program.
const PROGRAM: &str = "/opt/callsign/opencode";
/// The size of a box's `/tmp`.
const TMP: u64 = 1 << 30;
/// An agent that has answered nothing for so long is stalled: with the looks in between that is found within 90 s.
const STALLED: Duration = Duration::from_secs(75);
/// What a provider that wants no key is shown all the same.
const NO_KEY: &str = "none";

/// The real ones.
#[derive(Debug)]
pub(super) struct LocalRooms {
    pub(super) sandbox: LocalSandbox,
    /// What holds where a session says nothing.
    pub(super) base: watch::Receiver<Arc<SessionSettings>>,
    /// Nothing is between the agent and this machine, because somebody wrote that.
    pub(super) bare: bool,
    /// Keys are written down nowhere.
    pub(super) redactor: Arc<Redactor>,
    /// Where programs are sought.
    pub(super) path: OsString,
}

impl Rooms for LocalRooms {
    type Sandbox = LocalSandbox;
    type Agent = OpenCode;

    fn sandbox(&self) -> &LocalSandbox {
        &self.sandbox
    }

    fn settings(&self, document: &str, key: Option<Secret>) -> Result<SessionSettings, String> {
        let document = Document::from_json(document).map_err(|error| error.to_string())?;
        let variables = document.variables(key.as_ref()).map_err(|error| error.to_string())?;
        Ok(resolve(&self.base.borrow(), &variables).map_err(|errors| errors.to_string())?.settings)
    }

    fn access(&self) -> Result<Access, String> {
        // Free a moment ago. Should somebody take it meanwhile, the agent ends and is started at another one.
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let free = free.map_err(|error| format!("there is no free port: {error}"))?;
        Ok(Access { port: free.port(), password: RealWorld.password(), models: Vec::new(), heard: false })
    }

    fn spec(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<BoxSpec, String> {
        not_yet(settings)?;
        let program = opencode::find(&settings.command, &self.path)?.program;
        let key = key(settings, Environment::of_process()).map_err(|mistake| mistake.to_string())?;
        if let Some(key) = &key {
            self.redactor.learn_for_good(key.expose());
        }
        let model = |id: &str| BoxModel { id: id.to_owned(), limits: None };
        let config = BoxConfig {
            provider: settings.provider().name().to_owned(),
            base_url: settings.base_url.clone(),
            api_key: key.map_or_else(|| NO_KEY.to_owned(), |key| key.expose().to_owned()),
            model: model(settings.model.id()),
            small_model: model(settings.small_model().id()),
            more_models: access
                .models
                .iter()
                .filter_map(|written| ModelName::parse(settings.provider(), written).ok())
                .map(|name| model(name.id()))
                .collect(),
            permissions: Policy::all(Decision::Allow).with(QUESTION, Decision::Surface),
            mcp: BTreeMap::new(),
            password: access.password.clone(),
        };
        let mut env: BTreeMap<String, String> = agent::environment(&config).into_iter().collect();
        let bare = self.bare;
        let meta =
            if bare { directories.meta().to_string_lossy().into_owned() } else { "/session-meta".to_owned() };
        env.extend(home(&meta));
        let program_inside = if bare { program.to_string_lossy().into_owned() } else { PROGRAM.to_owned() };
        let binds = if bare { Vec::new() } else { vec![Bind { source: program, target: PROGRAM.into() }] };
        let limits = settings.limits;
        Ok(BoxSpec {
            name: BoxName::new(session.id.as_str()).map_err(|error| error.to_string())?,
            command: program_inside,
            args: ["serve", "--hostname", "127.0.0.1", "--port", &access.port.to_string()]
                .map(str::to_owned)
                .to_vec(),
            env: BoxEnvironment(env),
            workspace: directories.workspace(),
            meta: directories.meta(),
            sockets: None,
            binds,
            image: None,
            tmp: TMP,
            limits: Limits {
                memory: Some(limits.memory),
                pids: Some(limits.pids),
                cpus: Some(limits.millicpus),
                disk: Some(limits.disk),
            },
            strictness: if settings.strict_limits { Strictness::Strict } else { Strictness::Lenient },
            network: Network::Host,
            user: User::NOBODY,
            orphan_grace: settings.orphan_grace,
            labels: BTreeMap::from([("principal".to_owned(), session.principal.to_string())]),
        })
    }

    fn announcement(&self, access: &Access) -> Option<String> {
        Some(format!("listening on http://127.0.0.1:{}", access.port))
    }

    fn agent(&self, access: &Access, settings: &SessionSettings) -> OpenCode {
        let place = Place::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, access.port)));
        let timing = Timing { stalled: STALLED, poll_alone: settings.poll_interval, ..Timing::default() };
        OpenCode::new(agent::Options { place, password: access.password.clone(), timing })
    }
}

/// Everything that the agent keeps lies with the session.
fn home(meta: &str) -> [(String, String); 9] {
    [
        ("HOME", meta.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("XDG_CACHE_HOME", format!("{meta}/cache")),
        ("XDG_CONFIG_HOME", format!("{meta}/config")),
        ("XDG_DATA_HOME", format!("{meta}/data")),
        ("XDG_STATE_HOME", format!("{meta}/state")),
    ]
    .map(|(name, value)| (name.to_owned(), value))
}

/// The system's own clock and randomness.
#[derive(Debug, Clone, Copy)]
pub(super) struct RealWorld;

impl World for RealWorld {
    fn now(&self) -> UnixMillis {
        UnixMillis(crate::commands::token::now_millis())
    }

    fn stamp(&self) -> Stamp {
        Stamp { millis: self.now().0, random: random() }
    }

    fn password(&self) -> String {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        let bytes: [u8; 32] = random();
        bytes.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect()
    }
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    #[expect(
        clippy::expect_used,
        reason = "without randomness there is no id that is nobody else's, and no password"
    )]
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
