//! The environment of a child: built, never passed on blindly. Hosts keep secrets in theirs.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

use model::server::IDENTITY_VARIABLES;
use model::{EnvSource, InheritEnv, Placeholder, StdioSpec};

/// Set for a child that only answers what a server is; it will never be called.
pub const PROBE: &str = "CALLSIGN_PROBE";

/// Names that programs need to run at all and that hold no secrets.
const SAFE: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "LANG",
    "LANGUAGE",
    // Where a program keeps its files.
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    // How it reaches the network.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    // Whom it trusts there.
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "PIP_CERT",
    "GIT_SSL_CAINFO",
];

/// What hosts put into the environment for themselves: credentials and control channels.
const HOST_SECRETS: &[&str] = &[
    "OPENCODE_SERVER_PASSWORD",
    "OPENCODE_SERVER_USERNAME",
    "OPENCODE_CONFIG_CONTENT",
    "CLAUDE_CODE_MESSAGING_SOCKET",
    "CLAUDE_CODE_MESSAGING_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "OPENAI_API_KEY",
    "CODEX_API_KEY",
];

/// Our own environment, as the host gave it.
#[derive(Clone, Default)]
pub struct HostEnvironment(pub Vec<(OsString, OsString)>);

impl HostEnvironment {
    /// None also for what is not UTF-8.
    pub fn get(&self, name: &str) -> Option<String> {
        let (_, value) = self.0.iter().find(|(other, _)| other == name)?;
        value.to_str().map(str::to_owned)
    }
}

impl fmt::Debug for HostEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostEnvironment({} variables)", self.0.len())
    }
}

/// What a child starts with, and what was kept from it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChildEnvironment {
    pub variables: Vec<(OsString, OsString)>,
    /// Names only.
    pub withheld: Vec<String>,
}

/// Inherited first, then `env`, then `env_vars` that the caller decides: what is written out wins, and nothing
/// that names a session is inherited.
pub fn build<'a>(
    spec: &'a StdioSpec,
    host: &HostEnvironment,
    value: &dyn Fn(Placeholder) -> Option<Cow<'a, str>>,
) -> ChildEnvironment {
    let mut variables = BTreeMap::new();
    let mut withheld = Vec::new();
    for (name, content) in &host.0 {
        let named = (spec.env_vars.iter())
            .any(|wanted| wanted.source == EnvSource::Local && OsStr::new(&wanted.name) == name);
        if named && !names_a_session(name) || inherits(&spec.inherit_env, name) {
            variables.insert(name.clone(), content.clone());
        } else {
            withheld.push(name.to_string_lossy().into_owned());
        }
    }
    for (name, template) in &spec.env {
        if let Some(content) = template.render(value) {
            variables.insert(OsString::from(name), OsString::from(content.as_ref()));
        }
    }
    for wanted in &spec.env_vars {
        if let EnvSource::Caller(placeholder) = wanted.source
            && let Some(content) = value(placeholder)
        {
            variables.insert(OsString::from(&wanted.name), OsString::from(content.as_ref()));
        }
    }
    withheld.retain(|name| !variables.contains_key(OsStr::new(name)));
    withheld.sort();
    ChildEnvironment { variables: variables.into_iter().collect(), withheld }
}

fn names_a_session(name: &OsStr) -> bool {
    IDENTITY_VARIABLES.iter().any(|(known, _)| OsStr::new(known) == name)
}

fn inherits(inherit: &InheritEnv, name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return matches!(inherit, InheritEnv::Host) };
    if name.starts_with("CALLSIGN_") {
        return false; // Ours, or an outer callsign's.
    }
    if names_a_session(OsStr::new(name)) {
        return false; // Of the session that started us, or of one around it: hardly ever the caller's.
    }
    match inherit {
        InheritEnv::Safe => SAFE.contains(&name) || name.starts_with("LC_"),
        InheritEnv::Host => !HOST_SECRETS.contains(&name),
        InheritEnv::Names(names) => names.iter().any(|wanted| wanted == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{EnvVar, Isolation, Template};

    #[track_caller]
    fn check(inherit_env: InheritEnv, env_vars: &[&str], expected: &[&str]) {
        let host = ["PATH", "LC_ALL", "MY_TOKEN", "ANTHROPIC_API_KEY", "CALLSIGN_KEY"];
        let host = HostEnvironment(host.iter().map(|name| ((*name).into(), "v".into())).collect());
        let spec = StdioSpec {
            command: "x".into(),
            args: vec![],
            env: vec![("SET".into(), Template::literal("1"))],
            env_vars: env_vars
                .iter()
                .map(|name| EnvVar { name: (*name).into(), source: EnvSource::Local })
                .collect(),
            isolation: Isolation::Session,
            cwd: None,
            inherit_env,
            idle: model::server::DEFAULT_IDLE,
            max_children: 1,
        };
        let built = build(&spec, &host, &|_| None);
        let names: Vec<_> = built.variables.iter().map(|(name, _)| name.to_str().unwrap()).collect();
        assert_eq!(names, expected);
        assert_eq!(built.withheld.len() + names.len() - 1, host.0.len(), "{:?}", built.withheld);
    }

    #[test]
    fn a_child_gets_what_it_may_have_and_no_more() {
        check(InheritEnv::Safe, &[], &["LC_ALL", "PATH", "SET"]);
        check(InheritEnv::Safe, &["MY_TOKEN"], &["LC_ALL", "MY_TOKEN", "PATH", "SET"]);
        check(InheritEnv::Host, &[], &["LC_ALL", "MY_TOKEN", "PATH", "SET"]);
        check(InheritEnv::Names(vec!["MY_TOKEN".into()]), &[], &["MY_TOKEN", "SET"]);
        // Named outright, even a host's secret is the configuration's own decision.
        check(InheritEnv::Safe, &["ANTHROPIC_API_KEY"], &["ANTHROPIC_API_KEY", "LC_ALL", "PATH", "SET"]);
    }
}
