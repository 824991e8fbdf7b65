//! What a session's box is made of: bubblewrap around the real OpenCode, or a container.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agent::{BoxConfig, BoxModel, McpEntry, OpenCode, Place, Timing};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use containers::{BRIDGE, CONFIG, Containers, OPENCODE as PROGRAM, Runtimes};
use gateway::redact::Redactor;
use model::ServerName;
use model::ports::agent::{Decision, Policy, QUESTION};
use model::ports::sandbox::{
    Bind, BoxName, BoxSpec, Environment as BoxEnvironment, Limits, Network, Strictness, User,
};
use model::session::{Session, SessionId, Stamp, UnixMillis};
use model::settings::{Egress, ModelName, Runtime, Secret, SessionSettings};
use sandbox::LocalSandbox;
use sessions::extras::Unfit;
use sessions::{Access, Fitting, Ports, Rooms, SessionDirs, World};
use sha2::Digest as _;
use tokio::sync::watch;

use crate::config::Environment;
use crate::config::sessions::{Document, key, resolve};
use crate::opencode;
use crate::sessions::extras::{self, Outfitter};
use crate::sessions::outfit::Outfit;
use crate::sessions::quay::{Plan, Quays};

/// Where the plugin finds what it seals with.
const SEAL_KEY: &str = "CALLSIGN_SEAL_KEY";
/// A box with a network of its own has these for itself.
pub(super) const PORTS: Ports = Ports { agent: 4096, model: 4097, mcp: 4098, egress: 4099 };
/// Where programs are sought in a box.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// The size of a box's `/tmp`.
pub(super) const TMP: u64 = 1 << 30;
/// An agent that has answered nothing for so long is stalled: with the looks in between that is found within 90 s.
const STALLED: Duration = Duration::from_secs(75);

/// Boxes of this machine, and of a container engine.
pub(super) type Boxes = Runtimes<LocalSandbox, Containers>;

/// The real ones.
#[derive(Debug)]
pub(super) struct RealRooms {
    pub(super) sandbox: Arc<Boxes>,
    /// What holds where a session says nothing.
    pub(super) base: watch::Receiver<Arc<SessionSettings>>,
    /// Nothing is between the agent and this machine, because somebody wrote that.
    pub(super) bare: bool,
    /// Keys are written down nowhere.
    pub(super) redactor: Arc<Redactor>,
    /// Where programs are sought.
    pub(super) path: OsString,
    pub(super) quays: Quays,
    pub(super) outfit: Outfit,
    pub(super) extras: Arc<Outfitter>,
}

impl Rooms for RealRooms {
    type Sandbox = Boxes;
    type Agent = OpenCode;

    fn sandbox(&self) -> &Boxes {
        &self.sandbox
    }

    fn settings(&self, document: &str, key: Option<Secret>) -> Result<SessionSettings, String> {
        let document = Document::from_json(document).map_err(|error| error.to_string())?;
        let variables = document.variables(key.as_ref()).map_err(|error| error.to_string())?;
        let resolved = resolve(&self.base.borrow(), &variables).map_err(|errors| errors.to_string())?;
        Ok(document.within_reach(resolved.settings))
    }

    fn policy(&self, settings: &SessionSettings) -> String {
        let SessionSettings {
            runtime,
            command,
            model,
            egress,
            mcp_servers,
            limits,
            strict_limits,
            orphan_grace,
            ..
        } = settings;
        let place =
            (runtime, self.is_bare(settings), self.network(settings), limits, strict_limits, orphan_grace);
        let place = (place, oci_runtime(settings));
        let extras = settings.extras_dir.is_some();
        let told = (place, command, model, settings.small_model(), egress, mcp_servers, extras);
        let digest = sha2::Sha256::digest(format!("{told:?}"));
        BASE64_URL_SAFE_NO_PAD.encode(digest)
    }

    fn converses(&self, session: &SessionId, conversation: &str) -> bool {
        let own = self.quays.threads.claim(conversation, session);
        if own {
            self.quays.threads.assign(conversation, session);
        }
        own
    }

    fn forget(&self, session: &SessionId) {
        self.quays.forget(session);
    }

    fn access(&self, settings: &SessionSettings) -> Result<Access, String> {
        let ports = match (self.network(settings), settings.runtime) {
            (Network::None, _) | (Network::Host, Runtime::Docker) => PORTS,
            (Network::Host, Runtime::Local) => {
                free_ports().map_err(|error| format!("there are no free ports: {error}"))?
            }
        };
        Ok(Access {
            ports,
            password: RealWorld.password(),
            token: RealWorld.password(),
            seal: BASE64_URL_SAFE_NO_PAD.encode(random::<32>()),
            policy: self.policy(settings),
            models: Vec::new(),
            heard: false,
        })
    }

    fn moor(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<(), String> {
        let key = key(settings, Environment::of_process()).map_err(|mistake| mistake.to_string())?;
        if let Some(key) = &key {
            self.redactor.learn_for_good(key.expose());
        }
        self.quays.moor(&Plan { session, settings, access, directories, key })
    }

    fn unmoor(&self, session: &SessionId) {
        self.quays.unmoor(session);
    }

    async fn fit(&self, fitting: Fitting<'_>) -> Result<(), Unfit> {
        self.extras.fit(fitting, self.is_bare(fitting.settings)).await
    }

    async fn unfit(&self, session: &SessionId) {
        self.extras.unfit(session).await;
    }

    fn spec(
        &self,
        session: &Session,
        settings: &SessionSettings,
        access: &Access,
        directories: &SessionDirs,
    ) -> Result<BoxSpec, String> {
        let program = opencode::find(&settings.command, &self.path)?.program;
        let ports = access.ports;
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let mut env: BTreeMap<String, String> =
            agent::environment(&agent_config(settings, access)).into_iter().collect();
        let bare = self.is_bare(settings);
        let meta =
            if bare { directories.meta().to_string_lossy().into_owned() } else { "/session-meta".to_owned() };
        let inside = |host: &Path, boxed: &str| {
            if bare { host.to_string_lossy().into_owned() } else { boxed.to_owned() }
        };
        env.extend(home(&meta, &inside(&self.outfit.config, CONFIG)));
        if directories.has_packages() {
            env.extend(extras::environment(&meta, PATH));
        }
        env.insert(SEAL_KEY.to_owned(), access.seal.clone());
        if let Egress::Hosts(_) = settings.egress {
            env.extend(proxied(&local(ports.egress)));
        }
        let (bridge, sockets) = (inside(&self.outfit.bridge, BRIDGE), directories.sockets());
        let image = match settings.runtime {
            Runtime::Local => None,
            Runtime::Docker => Some(session.image.clone()),
        };
        let args = [
            ("--sockets", inside(&sockets, tether::DIRECTORY)),
            ("--agent", ports.agent.to_string()),
            ("--carry", format!("{}={}", ports.model, tether::MODEL)),
            ("--carry", format!("{}={}", ports.mcp, tether::MCP)),
            ("--carry", format!("{}={}", ports.egress, tether::EGRESS)),
            ("--", inside(&program, PROGRAM)),
            ("serve", "--hostname".to_owned()),
            ("127.0.0.1", "--port".to_owned()),
        ];
        let args = args.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
        // A container has no keeper that would end it.
        let grace = settings.orphan_grace.as_secs().max(1);
        let orphan = image.iter().flat_map(|_| ["--orphan".to_owned(), grace.to_string()]);
        let args = orphan.chain(args).chain([ports.agent.to_string()]).collect();
        let bind = |source: &Path, target: &str| Bind { source: source.to_owned(), target: target.into() };
        let binds = if bare {
            Vec::new()
        } else {
            vec![
                bind(&program, PROGRAM),
                bind(&self.outfit.bridge, BRIDGE),
                bind(&self.outfit.config, CONFIG),
            ]
        };
        Ok(BoxSpec {
            name: BoxName::new(session.id.as_str()).map_err(|error| error.to_string())?,
            command: bridge,
            args,
            env: BoxEnvironment(env),
            workspace: directories.workspace(),
            meta: directories.meta(),
            sockets: Some(sockets),
            binds,
            image,
            oci_runtime: oci_runtime(settings),
            tmp: TMP,
            limits: limits(settings),
            strictness: strictness(settings),
            network: self.network(settings),
            user: User::NOBODY,
            orphan_grace: settings.orphan_grace,
            labels: BTreeMap::from([("principal".to_owned(), session.principal.to_string())]),
        })
    }

    fn announcement(&self, access: &Access) -> Option<String> {
        Some(format!("listening on http://127.0.0.1:{}", access.ports.agent))
    }

    fn agent(
        &self,
        session: &SessionId,
        access: &Access,
        settings: &SessionSettings,
    ) -> Result<OpenCode, String> {
        let way = self.quays.way(session).ok_or("the box has no sockets")?;
        let place = Place::Through(way);
        let timing = Timing { stalled: STALLED, poll_alone: settings.poll_interval, ..Timing::default() };
        Ok(OpenCode::new(agent::Options { place, password: access.password.clone(), timing }))
    }
}

impl RealRooms {
    /// Nothing is between the agent and this machine.
    fn is_bare(&self, settings: &SessionSettings) -> bool {
        self.bare && settings.runtime == Runtime::Local
    }

    /// Who is in no box shares what there is.
    fn network(&self, settings: &SessionSettings) -> Network {
        match &settings.egress {
            Egress::Open => Network::Host,
            Egress::None | Egress::Hosts(_) if self.is_bare(settings) => Network::Host,
            Egress::None | Egress::Hosts(_) => Network::None,
        }
    }
}

/// What every box of a session is held to.
pub(super) fn limits(settings: &SessionSettings) -> Limits {
    let limits = settings.limits;
    Limits {
        memory: Some(limits.memory),
        pids: Some(limits.pids),
        cpus: Some(limits.millicpus),
        disk: Some(limits.disk),
    }
}

pub(super) fn strictness(settings: &SessionSettings) -> Strictness {
    if settings.strict_limits { Strictness::Strict } else { Strictness::Lenient }
}

/// What the engine is told to run a container with.
pub(super) fn oci_runtime(settings: &SessionSettings) -> Option<String> {
    match settings.runtime {
        Runtime::Local => None,
        Runtime::Docker => settings.isolation.oci_runtime().map(|runtime| runtime.as_str().to_owned()),
    }
}

/// Free a moment ago. Should somebody take one meanwhile, the box ends and is started at others.
fn free_ports() -> std::io::Result<Ports> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    // All at once, so that they differ.
    let listeners = [listen()?, listen()?, listen()?, listen()?];
    let port = |number: usize| listeners[number].local_addr().map(|address| address.port());
    Ok(Ports { agent: port(0)?, model: port(1)?, mcp: port(2)?, egress: port(3)? })
}

/// What the agent is told: of the provider only where our broker is.
fn agent_config(settings: &SessionSettings, access: &Access) -> BoxConfig {
    let model = |id: &str| BoxModel { id: id.to_owned(), limits: None };
    BoxConfig {
        provider: settings.provider().name().to_owned(),
        base_url: format!("http://127.0.0.1:{}/v1", access.ports.model),
        api_key: access.token.clone(),
        model: model(settings.model.id()),
        small_model: model(settings.small_model().id()),
        more_models: access
            .models
            .iter()
            .filter_map(|written| ModelName::parse(settings.provider(), written).ok())
            .map(|name| model(name.id()))
            .collect(),
        permissions: Policy::all(Decision::Allow).with(QUESTION, Decision::Surface),
        mcp: servers(settings, access),
        password: access.password.clone(),
    }
}

/// Servers of the gateway, as the agent sees them.
fn servers(settings: &SessionSettings, access: &Access) -> BTreeMap<String, McpEntry> {
    let entry = |name: &ServerName| {
        let url = format!("http://127.0.0.1:{}/mcp/{name}", access.ports.mcp);
        let headers = BTreeMap::from([("Authorization".to_owned(), format!("Bearer {}", access.token))]);
        (name.to_string(), McpEntry::Remote { url, headers })
    };
    settings.mcp_servers.iter().map(entry).collect()
}

/// What programs in the box know of the only way out, in both spellings that they look for.
fn proxied(url: &str) -> Vec<(String, String)> {
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, url));
    let all = names.into_iter().chain([("NO_PROXY", "127.0.0.1,localhost")]);
    all.flat_map(|(name, value)| [(name.to_owned(), value), (name.to_ascii_lowercase(), value)])
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}

/// Everything that the agent keeps lies with the session.
fn home(meta: &str, config: &str) -> [(String, String); 9] {
    [
        ("HOME", meta.to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("PATH", PATH.to_owned()),
        ("SHELL", "/bin/sh".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
        ("XDG_CACHE_HOME", format!("{meta}/cache")),
        ("XDG_CONFIG_HOME", config.to_owned()),
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
