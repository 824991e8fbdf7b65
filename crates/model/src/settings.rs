//! What agent sessions run with: the box, the agent in it, and the model behind that.
//!
//! **Invariant:** no secret is in `Debug` of anything here, and a model is never of another provider than the settings.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::ServerName;

/// What a session is started with. Whoever makes one has checked what each field says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    pub runtime: Runtime,
    /// For [`Runtime::Docker`].
    pub image: Image,
    /// The agent's program: a name that is looked up in PATH, or an absolute path. In the box, where that has its own.
    pub command: String,
    /// Its provider is that of all the rest, see [`SessionSettings::provider`].
    pub model: ModelName,
    /// For titles and the like. None: `model`.
    pub small_model: Option<ModelName>,
    /// In full, without credentials, query, fragment and final slash; as this host reaches it, not the box.
    pub base_url: String,
    /// None: the provider is spoken to without one.
    pub api_key: Option<ApiKey>,
    /// A box without work for this long is stopped.
    pub idle: Duration,
    /// How many boxes run at most; 1 or more.
    pub max_hot: usize,
    pub limits: Limits,
    pub budget: Budget,
    pub egress: Egress,
    /// Servers of the gateway that the box may call.
    pub mcp_servers: Vec<ServerName>,
    /// From the start of the agent until it answers.
    pub start_timeout: Duration,
    /// For one request to the agent that says nothing; a run may take longer.
    pub request_timeout: Duration,
    /// How often the agent is asked where no event says anything.
    pub poll_interval: Duration,
    /// Absolute. What is in it goes into every new session.
    pub extras_dir: Option<PathBuf>,
    pub isolation: BoxIsolation,
    /// How many boxes are started before anybody asks for one; at most `max_hot`.
    pub warm: usize,
    /// How long a box goes on without a daemon.
    pub orphan_grace: Duration,
    /// A limit that cannot be enforced is a refusal.
    pub strict_limits: bool,
}

impl SessionSettings {
    pub fn provider(&self) -> Provider {
        self.model.provider
    }

    pub fn small_model(&self) -> &ModelName {
        self.small_model.as_ref().unwrap_or(&self.model)
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            runtime: Runtime::Local,
            image: Image("opencode-as-mcp-runtime:latest".to_owned()),
            command: "opencode".to_owned(),
            model: ModelName { provider: Provider::Ollama, id: "gpt-oss:20b".to_owned() },
            small_model: None,
            base_url: Provider::Ollama.base_url().to_owned(),
            api_key: None,
            idle: Duration::from_mins(30),
            max_hot: 8,
            limits: Limits::default(),
            budget: Budget::default(),
            egress: Egress::None,
            mcp_servers: Vec::new(),
            start_timeout: Duration::from_secs(90),
            request_timeout: Duration::from_mins(5),
            poll_interval: Duration::from_millis(200),
            extras_dir: None,
            isolation: BoxIsolation::Bubblewrap,
            warm: 0,
            orphan_grace: Duration::from_mins(10),
            strict_limits: false,
        }
    }
}

/// What a box is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Local,
    Docker,
}

impl Runtime {
    pub const ALL: [Self; 2] = [Self::Local, Self::Docker];

    /// As a configuration writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Docker => "docker",
        }
    }
}

/// Who answers for a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    Ollama,
    OpenRouter,
    Gemini,
    OpenAi,
    Mistral,
    DeepSeek,
    Qwen,
}

impl Provider {
    pub const ALL: [Self; 7] = [
        Self::Ollama,
        Self::OpenRouter,
        Self::Gemini,
        Self::OpenAi,
        Self::Mistral,
        Self::DeepSeek,
        Self::Qwen,
    ];

    /// As a configuration writes it, and what its models begin with.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ollama => "ollama",
            Self::OpenRouter => "openrouter",
            Self::Gemini => "gemini",
            Self::OpenAi => "openai",
            Self::Mistral => "mistral",
            Self::DeepSeek => "deepseek",
            Self::Qwen => "qwen",
        }
    }

    pub fn parse(written: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.name() == written)
    }

    /// Where it is reached if nothing else is said. All of them speak one protocol.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::Ollama => "http://127.0.0.1:11434/v1",
            Self::OpenRouter => "https://openrouter.ai/api/v1",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/openai",
            Self::OpenAi => "https://api.openai.com/v1",
            Self::Mistral => "https://api.mistral.ai/v1",
            Self::DeepSeek => "https://api.deepseek.com/v1",
            Self::Qwen => "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        }
    }

    /// A model to show people how one is written.
    pub fn example(self) -> &'static str {
        match self {
            Self::Ollama => "ollama/gpt-oss:20b",
            Self::OpenRouter => "openrouter/openai/gpt-4o",
            Self::Gemini => "gemini/gemini-2.5-pro",
            Self::OpenAi => "openai/gpt-4.1",
            Self::Mistral => "mistral/mistral-large-latest",
            Self::DeepSeek => "deepseek/deepseek-chat",
            Self::Qwen => "qwen/qwen-plus",
        }
    }

    /// Whether [`Provider::base_url`] refuses who shows none.
    pub fn needs_key(self) -> bool {
        match self {
            Self::Ollama => false,
            Self::OpenRouter | Self::Gemini | Self::OpenAi | Self::Mistral | Self::DeepSeek | Self::Qwen => {
                true
            }
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// `provider/model`, in visible ASCII.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelName {
    provider: Provider,
    id: String,
}

/// Why a text is no model of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    #[error("it does not begin with the provider's prefix")]
    Prefix,
    #[error("nothing stands behind the prefix")]
    Nothing,
    #[error("it holds {0:?}; a model's name is of visible ASCII characters")]
    Character(char),
    #[error("it is longer than 256 characters")]
    Length,
}

impl ModelName {
    pub fn parse(provider: Provider, written: &str) -> Result<Self, BadModel> {
        let id = written.strip_prefix(provider.name()).and_then(|rest| rest.strip_prefix('/'));
        let id = id.ok_or(BadModel::Prefix)?;
        if let Some(character) = id.chars().find(|character| !character.is_ascii_graphic()) {
            return Err(BadModel::Character(character));
        }
        match id.len() {
            0 => Err(BadModel::Nothing),
            1..=256 => Ok(Self { provider, id: id.to_owned() }),
            _ => Err(BadModel::Length),
        }
    }

    pub fn provider(&self) -> Provider {
        self.provider
    }

    /// Without the prefix: what the provider itself calls it.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.id)
    }
}

/// Where the key comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApiKey {
    /// The variable of this name in the daemon's own environment, looked up when it is needed.
    Variable(String),
    Given(Secret),
}

/// Only [`Secret::expose`] shows it, and nothing writes it down.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The reference of an image, such as `registry.example:5000/boxes/opencode:1.2`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image(String);

/// Why a text is no [`Image`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an image is a name in lower case with an optional tag, such as \"boxes/opencode:1.2\"")]
pub struct BadImage;

impl Image {
    pub fn new(written: impl Into<String>) -> Result<Self, BadImage> {
        let written = written.into();
        if is_image(&written) { Ok(Self(written)) } else { Err(BadImage) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// As the engines read it: `[registry[:port]/]name[/name…][:tag][@digest]`. A text that begins with `-`, which a
/// command line would take for an option, is none.
fn is_image(written: &str) -> bool {
    let (name, digest) = match written.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (written, None),
    };
    let (path, tag) = match name.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        Some(_) | None => (name, None),
    };
    let names = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
            if !is_registry(first) {
                return false;
            }
            rest
        }
        Some(_) | None => path,
    };
    written.len() <= 255
        && names.split('/').all(is_image_part)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest)
}

fn is_registry(written: &str) -> bool {
    let (host, port) = match written.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (written, None),
    };
    let label_is_well = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    host.split('.').all(label_is_well)
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}

fn is_image_part(part: &str) -> bool {
    let is_well = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(is_well)
        && bytes.last().is_some_and(is_well)
        && bytes.iter().all(|byte| is_well(byte) || b"._-".contains(byte))
}

fn is_tag(tag: &str) -> bool {
    let starts_well = tag.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    starts_well
        && tag.len() <= 128
        && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, value)| {
        !algorithm.is_empty()
            && algorithm.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+._-".contains(&byte))
            && value.len() >= 32
            && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// What one box may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// In bytes.
    pub memory: u64,
    pub pids: u32,
    /// In thousandths of a core.
    pub millicpus: u32,
    /// In bytes.
    pub disk: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: 2 << 30, pids: 512, millicpus: 2000, disk: 5 << 30 }
    }
}

/// What one run may ask its provider for. None: as much as it likes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Budget {
    pub requests: Option<u64>,
    /// Of all kinds, as the provider tells them.
    pub tokens: Option<u64>,
}

/// Which part of the network a box may reach. Model and MCP servers are reached by other ways.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    None,
    /// Names and addresses in lower case, at least one, none twice.
    Hosts(Vec<String>),
    Open,
}

impl Egress {
    /// What both allow.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::None, _) | (_, Self::None) => Self::None,
            (Self::Open, rest) | (rest, Self::Open) => rest.clone(),
            (Self::Hosts(these), Self::Hosts(those)) => {
                let both: Vec<String> = these.iter().filter(|host| those.contains(host)).cloned().collect();
                if both.is_empty() { Self::None } else { Self::Hosts(both) }
            }
        }
    }
}

/// What keeps a box apart from the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoxIsolation {
    /// A local box has bubblewrap, a container what its engine runs containers with.
    Bubblewrap,
    /// A local box has nothing. Only where a person wrote it. A container is as above.
    None,
    /// A container has this runtime of its engine; a local box is as above.
    Engine(OciRuntime),
}

impl BoxIsolation {
    /// As a configuration writes it. None: it can be neither.
    pub fn parse(written: &str) -> Option<Self> {
        match written {
            "bwrap" => Some(Self::Bubblewrap),
            "none" => Some(Self::None),
            other => OciRuntime::new(other).map(Self::Engine),
        }
    }

    /// As a configuration writes it.
    pub fn name(&self) -> &str {
        match self {
            Self::Bubblewrap => "bwrap",
            Self::None => "none",
            Self::Engine(runtime) => runtime.as_str(),
        }
    }

    /// What an engine is told to run a container with. None: what it always does.
    pub fn oci_runtime(&self) -> Option<&OciRuntime> {
        match self {
            Self::Bubblewrap | Self::None => None,
            Self::Engine(runtime) => Some(runtime),
        }
    }
}

/// How a container engine calls one of its runtimes: `runsc`, `kata-runtime`, `io.containerd.runsc.v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciRuntime(String);

impl OciRuntime {
    pub fn new(written: impl Into<String>) -> Option<Self> {
        let written = written.into();
        let starts_well = written.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        let is_well = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (starts_well && written.len() <= 64 && written.bytes().all(is_well)).then_some(Self(written))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_isolation_is_one_of_ours_or_a_name_that_an_engine_may_know() {
        for name in ["bwrap", "none", "runsc", "kata-runtime", "io.containerd.runsc.v1"] {
            let parsed = BoxIsolation::parse(name).unwrap();
            assert_eq!(parsed.name(), name);
            let of_engine = !["bwrap", "none"].contains(&name);
            assert_eq!(parsed.oci_runtime().map(OciRuntime::as_str), of_engine.then_some(name));
        }
        for bad in ["", "-x", ".x", "/usr/bin/runc", "a b", "ü", &"a".repeat(65)] {
            assert_eq!(BoxIsolation::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_model_has_the_prefix_of_its_provider() {
        for provider in Provider::ALL {
            assert_eq!(Provider::parse(provider.name()), Some(provider));
            let model = ModelName::parse(provider, provider.example()).unwrap();
            assert_eq!(model.provider(), provider);
            assert_eq!(model.to_string(), provider.example());
            for other in Provider::ALL.into_iter().filter(|other| *other != provider) {
                assert_eq!(ModelName::parse(other, provider.example()), Err(BadModel::Prefix));
            }
        }
        let nested = ModelName::parse(Provider::OpenRouter, "openrouter/openai/gpt-4o").unwrap();
        assert_eq!(nested.id(), "openai/gpt-4o");
    }

    #[test]
    fn texts_that_are_no_model() {
        let long = format!("openai/{}", "x".repeat(257));
        for (written, expected) in [
            ("", BadModel::Prefix),
            ("gpt-4.1", BadModel::Prefix),
            ("OpenAI/gpt-4.1", BadModel::Prefix),
            ("openaix/gpt-4.1", BadModel::Prefix),
            (" openai/gpt-4.1", BadModel::Prefix),
            ("openai/", BadModel::Nothing),
            ("openai/gpt 4", BadModel::Character(' ')),
            ("openai/gpt-4\n", BadModel::Character('\n')),
            ("openai/gpt-é", BadModel::Character('é')),
            (&long, BadModel::Length),
        ] {
            assert_eq!(ModelName::parse(Provider::OpenAi, written), Err(expected), "{written:?}");
        }
    }

    #[test]
    fn references_of_images() {
        let digest = format!("boxes/opencode@sha256:{}", "0a".repeat(32));
        for good in [
            "opencode-as-mcp-runtime:latest",
            "opencode",
            "boxes/opencode:1.2",
            "ghcr.io/boxes/opencode:V1_2",
            "localhost/opencode",
            "localhost:5000/a/b/c",
            "registry.example:5000/opencode:1",
            &digest,
        ] {
            assert_eq!(Image::new(good).map(|image| image.as_str().to_owned()).as_deref(), Ok(good));
        }
        let long = "a".repeat(256);
        for bad in [
            "",
            "-v",
            "--privileged",
            "Opencode",
            "open code",
            "opencode:",
            "opencode:a b",
            "/opencode",
            "boxes//opencode",
            "boxes/",
            "../opencode",
            "opencode@latest",
            "opencode@sha256:xyz",
            "registry.example:0/opencode",
            "registry..example/opencode",
            "https://ghcr.io/opencode",
            "opencode\n",
            "é",
            &long,
        ] {
            assert_eq!(Image::new(bad), Err(BadImage), "{bad:?}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let api_key = Some(ApiKey::Given(Secret::new("sk-CANARY-7f3a")));
        let settings = SessionSettings { api_key, ..SessionSettings::default() };
        let shown = format!("{settings:?} {settings:#?}");
        assert!(shown.contains("Secret(..)") && !shown.contains("CANARY"), "{shown}");
    }

    #[test]
    fn the_small_model_is_the_model_where_nothing_is_said() {
        let settings = SessionSettings::default();
        assert_eq!(settings.provider(), Provider::Ollama);
        assert_eq!(settings.model.to_string(), "ollama/gpt-oss:20b");
        assert_eq!(settings.small_model(), &settings.model);
    }
}
