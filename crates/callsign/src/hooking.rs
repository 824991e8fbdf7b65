//! The hooks of a configuration: loaded, handed to servers, and loaded again when a file changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use gateway::front::http::Servers;
use gateway::server::Server;
use hooks::{Chain, Fault, FileSpec, Hooks, Inside, Limits, Rules, Spec};
use model::{HookFile, ServerName};

use crate::config::{ConfigErrors, HooksConfig, Mistake, check_header, check_variable};

/// How often files are looked at.
pub const LOOK: Duration = Duration::from_millis(500);
/// How long loading may take.
const LOADING: Duration = Duration::from_secs(10);
/// How soon a broken edit is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The hooks that are in force.
#[derive(Debug, Default)]
pub struct Hooking {
    config: HooksConfig,
    /// None: there are none.
    hooks: Option<Arc<Hooks>>,
    seen: Vec<(PathBuf, Stamp)>,
    broken: Broken,
}

/// An edit that could not be loaded. It is tried again, since what it lacks may be in a file that nobody knows of, and
/// said once.
#[derive(Debug, Default)]
pub struct Broken {
    said: Option<String>,
    tried: Option<Instant>,
}

impl Broken {
    /// Whether to try again.
    pub fn is_due(&mut self) -> bool {
        let due = self.tried.is_some_and(|tried| tried.elapsed() >= AGAIN);
        if due {
            self.tried = Some(Instant::now());
        }
        due
    }

    /// Notes why it cannot be loaded. False: that has been said.
    pub fn is_news(&mut self, errors: &ConfigErrors) -> bool {
        self.tried = Some(Instant::now());
        let text = errors.to_string();
        self.said.replace(text.clone()).is_none_or(|said| said != text)
    }
}

/// Changes when a file does. Its length too: two edits can fall into one tick of the clock.
pub type Stamp = Option<(SystemTime, u64)>;

pub fn stamp(path: &Path) -> Stamp {
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl Hooking {
    pub fn load(config: &HooksConfig) -> Result<Self, ConfigErrors> {
        Self::load_after(config, None)
    }

    /// The same on a thread of its own: a file's first lines can take long. `before`: what an optional file that is
    /// broken stays.
    pub async fn load_aside(config: &HooksConfig, before: &Self) -> Result<Self, ConfigErrors> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (config, before) = (config.clone(), before.hooks.clone());
        let work = move || drop(sender.send(Self::load_after(&config, before.as_deref())));
        let failed = |why: &str| {
            ConfigErrors(vec![Mistake { file: "hooks".into(), line: 0, column: 0, message: why.to_owned() }])
        };
        std::thread::Builder::new()
            .name("hooks".to_owned())
            .spawn(work)
            .map_err(|error| failed(&format!("no thread could be started to load them: {error}")))?;
        match tokio::time::timeout(LOADING, receiver).await {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(_)) => Err(failed("loading them failed")),
            Err(_late) => Err(failed("loading them takes too long")),
        }
    }

    fn load_after(config: &HooksConfig, before: Option<&Hooks>) -> Result<Self, ConfigErrors> {
        let mut files: Vec<FileSpec> = Vec::new();
        for file in config.files.iter().chain(config.of_server.iter().flat_map(|(_, files)| files)) {
            match files.iter_mut().find(|other| other.path == file.path) {
                // Where one list needs it, it is needed.
                Some(known) => known.optional &= file.optional,
                None => files.push(FileSpec {
                    path: file.path.clone(),
                    shown: file.shown.clone(),
                    optional: file.optional,
                }),
            }
        }
        // Before they are read: what changes meanwhile is seen as changed.
        let mut seen: Vec<(PathBuf, Stamp)> =
            files.iter().map(|file| (file.path.clone(), stamp(&file.path))).collect();
        if files.is_empty() {
            return Ok(Self { config: config.clone(), hooks: None, seen, broken: Broken::default() });
        }
        let limits = Limits::new(config.timeout, config.memory);
        let spec = Spec { files, env: config.env.clone(), limits, rules: rules() };
        let hooks = Hooks::reload(&spec, before).map_err(mistakes)?;
        for path in hooks.watched() {
            if !seen.iter().any(|(known, _)| *known == path) {
                let stamp = stamp(&path);
                seen.push((path, stamp));
            }
        }
        Ok(Self { config: config.clone(), hooks: Some(Arc::new(hooks)), seen, broken: Broken::default() })
    }

    /// Loads again what has changed on the disk. None: nothing has, or the change is broken, which is logged.
    pub async fn reloaded(&mut self) -> Option<Self> {
        let changed = self.seen.iter().any(|(path, seen)| stamp(path) != *seen);
        // What is missing in a broken edit may come, in whichever file.
        if !changed && !self.broken.is_due() {
            return None;
        }
        match Self::load_aside(&self.config, self).await {
            Ok(fresh) => {
                tracing::info!("the hooks were loaded again");
                Some(fresh)
            }
            Err(errors) => {
                for (path, seen) in &mut self.seen {
                    *seen = stamp(path);
                }
                if self.broken.is_news(&errors) {
                    tracing::error!("the hooks have mistakes; those before stay in force:\n{errors}");
                }
                None
            }
        }
    }

    /// Keeps the hooks of one server as their files are. Ends at once where there are none.
    pub async fn follow(mut self, server: &Server) {
        while !self.seen.is_empty() {
            tokio::time::sleep(LOOK).await;
            if let Some(fresh) = self.reloaded().await {
                self = fresh;
                self.give_to(server);
            }
        }
    }

    /// Hands a server its hooks. Calls that are under way keep those they began with.
    pub fn give_to(&self, server: &Server) {
        server.hooks.set(self.chain_of(&server.spec.name));
    }

    pub fn give_to_all(&self, servers: &Servers) {
        for server in servers.values() {
            self.give_to(server);
        }
    }

    fn chain_of(&self, server: &ServerName) -> Option<Arc<Chain>> {
        let own = self.config.of_server.iter().find(|(name, _)| name == server).map(|(_, files)| files);
        let paths = |files: &[HookFile]| files.iter().map(|file| file.path.clone()).collect::<Vec<_>>();
        let mut chain = paths(&self.config.files);
        for path in own.map(|files| paths(files)).unwrap_or_default() {
            // Named in both lists, it runs where it was named first.
            if !chain.contains(&path) {
                chain.push(path);
            }
        }
        let hooks = self.hooks.as_ref().filter(|_| !chain.is_empty())?;
        Some(Arc::new(Chain::new(hooks, &chain)))
    }
}

pub fn mistakes(faults: Vec<Fault>) -> ConfigErrors {
    let mistake = |fault: Fault| Mistake {
        file: PathBuf::from(&*fault.file),
        line: fault.line as usize,
        column: 0, // The engine's columns are of what it made of the text.
        message: fault.message,
    };
    ConfigErrors(faults.into_iter().map(mistake).collect())
}

/// What hooks may not name: what is ours, the transport's, the protocol's, and what runs other code.
pub fn rules() -> Rules {
    Rules {
        header: check_header,
        variable: |name| {
            check_variable(name)?;
            if model::server::IDENTITY_VARIABLES.iter().any(|(known, _)| *known == name) {
                return Err(format!("`{name}` says who calls, which is not for a hook to say"));
            }
            Ok(())
        },
        meta: |name| {
            if identity::names::is_ours(&["_meta"], name) {
                return Err(format!("`{name}` is callsign's own, and not for a hook to write"));
            }
            if name == "progressToken" || name.starts_with("io.modelcontextprotocol/") {
                return Err(format!("`{name}` belongs to the protocol, and is not for a hook to write"));
            }
            Ok(())
        },
        argument: |name| {
            if identity::names::is_ours(&["arguments"], name) {
                return Err(format!("`{name}` is callsign's own, and not for a hook to write"));
            }
            Ok(())
        },
        within: |inside, name, json| {
            if !identity::names::may_name_us(json.as_bytes()) {
                return Ok(());
            }
            let outer = match inside {
                Inside::Meta => "_meta",
                Inside::Arguments => "arguments",
            };
            let mut path = vec![outer.to_owned(), name.to_owned()];
            match serde_json::from_str(json).ok().and_then(|value| ours(&value, &mut path)) {
                Some(found) => {
                    Err(format!("`{found}` in `{name}` is callsign's own, and not for a hook to write"))
                }
                None => Ok(()),
            }
        },
    }
}

/// A name of ours, however deep it lies.
fn ours(value: &serde_json::Value, path: &mut Vec<String>) -> Option<String> {
    match value {
        serde_json::Value::Object(members) => members.iter().find_map(|(name, value)| {
            if identity::names::is_ours(path, name) {
                return Some(name.clone());
            }
            path.push(name.clone());
            let found = ours(value, path);
            path.pop();
            found
        }),
        serde_json::Value::Array(items) => items.iter().find_map(|item| ours(item, path)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_hooks_to_write_is_refused() {
        let rules = rules();
        for name in
            ["Host", "content-length", "Mcp_Session_Id", "CALLSIGN-SESSION", "Callsign_New", "te", "a b", ""]
        {
            assert!((rules.header)(name).is_err(), "{name}");
        }
        for name in [
            "LD_PRELOAD",
            "CALLSIGN_THREAD_ID",
            "CODEX_THREAD_ID",
            "OPENCODE_SESSION_ID",
            "A=B",
            "NODE_OPTIONS",
        ] {
            assert!((rules.variable)(name).is_err(), "{name}");
        }
        for name in
            ["dev.callsign/identity", "DEV.Callsign/new", "progressToken", "io.modelcontextprotocol/x"]
        {
            assert!((rules.meta)(name).is_err(), "{name}");
        }
        assert!((rules.argument)("__callsign").is_err());
        let within = |json: &str| (rules.within)(Inside::Meta, "x", json);
        assert!(
            within(r#"{"a":[{"dev.callsign/identity":1}]}"#).is_err()
                && within(r#"{"a":"dev.callsign"}"#).is_ok()
        );
        assert!((rules.header)("X-Session-Id").is_ok() && (rules.meta)("example.org/tenant").is_ok());
        assert!((rules.variable)("TENANT").is_ok() && (rules.argument)("limit").is_ok());
    }
}
