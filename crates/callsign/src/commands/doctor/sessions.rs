//! Whether agent sessions would run here: the agent, the box around it, the provider behind it, the daemon over it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use model::ports::sandbox::{Ability, Gravity, Holds, Level, Sandbox as _};
use model::settings::{ApiKey, BoxIsolation, Runtime, SessionSettings};
use sandbox::{Groups, KeeperCommand, LocalOptions, LocalSandbox};
use serde::Serialize;
use serde_json::Value;

use super::{Finding, version};
use crate::app::Global;
use crate::config::sessions::{Variables, key, resolve};
use crate::config::{self, ConfigErrors, Environment, Mistake, Purpose, Sources};
use crate::keeping;
use crate::opencode;
use crate::output;
use crate::state::{DaemonInfo, StateDir};

#[derive(Debug, Serialize)]
pub(super) struct SessionsReport {
    /// None: it was not found.
    opencode: Option<OpenCode>,
    #[serde(rename = "box")]
    sandbox: Option<BoxReport>,
    /// None: the settings have mistakes.
    provider: Option<ProviderReport>,
    /// None: no daemon runs.
    daemon: Option<DaemonInfo>,
    pub(super) findings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct OpenCode {
    program: PathBuf,
    version: Option<String>,
}

#[derive(Debug, Serialize)]
struct BoxReport {
    runtime: &'static str,
    isolation: String,
    /// Whether one could be started.
    ok: bool,
    /// How each limit would be held: `enforced`, `watched` or `absent`.
    limits: Value,
}

#[derive(Debug, Serialize)]
struct ProviderReport {
    name: &'static str,
    model: String,
    small_model: String,
    base_url: String,
    key: &'static str,
}

/// What `callsign mcp`, started from here, would find.
pub(super) fn examine(global: &Global, current_dir: &Path) -> anyhow::Result<SessionsReport> {
    let environment = Environment::of_process();
    let mut findings = Vec::new();
    let settings = settings(environment, current_dir, &mut findings);
    let provider = settings.as_ref().map(|settings| provider(settings, environment, &mut findings));
    // Where the settings are wrong, what else would be wrong is still worth knowing.
    let settings = settings.unwrap_or_default();
    let path = environment.get("PATH").map(OsString::from).unwrap_or_default();
    let opencode = match opencode::find(&settings.command, &path) {
        Ok(opencode::Found { program, version }) => {
            let version = version.or_else(|| version::ask(&program));
            Some(OpenCode { program, version })
        }
        // A note: whoever wants no sessions needs no OpenCode. It says itself how to get it.
        Err(problem) => {
            findings.push(Finding::note(problem, None));
            None
        }
    };
    let state = StateDir::locate_for_sessions(global.state_dir.as_deref(), environment, current_dir);
    let daemon = state.as_ref().ok().and_then(|state| daemon(state, &mut findings));
    let sandbox = match (settings.runtime, state) {
        (Runtime::Docker, _) => {
            let what = "sessions are to run in docker, which is not looked at here";
            findings.push(Finding::note(what.to_owned(), None));
            None
        }
        (Runtime::Local, Ok(state)) => Some(examine_box(&settings, &state, &path, &mut findings)?),
        (Runtime::Local, Err(error)) => {
            findings.push(Finding::problem(error.to_string(), Some("--state-dir DIR".to_owned())));
            None
        }
    };
    Ok(SessionsReport { opencode, sandbox, provider, daemon, findings })
}

/// None: they have mistakes.
fn settings(
    environment: Environment<'_>,
    current_dir: &Path,
    findings: &mut Vec<Finding>,
) -> Option<SessionSettings> {
    let sources = Sources { named: None, current_dir, environment, purpose: Purpose::Background };
    let variables =
        Variables::new(std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
        }));
    let settled = config::load(&sources).and_then(|config| resolve(&config.sessions, &variables));
    match settled {
        Ok(resolved) => {
            findings.extend(resolved.warnings.iter().map(|doubt| Finding::note(doubt.to_string(), None)));
            Some(resolved.settings)
        }
        Err(ConfigErrors(mistakes)) => {
            findings.extend(mistakes.iter().map(|mistake| Finding::problem(mistake.to_string(), None)));
            None
        }
    }
}

fn provider(
    settings: &SessionSettings,
    environment: Environment<'_>,
    findings: &mut Vec<Finding>,
) -> ProviderReport {
    let key = match (&settings.api_key, key(settings, environment)) {
        (None, _) => "none",
        (Some(ApiKey::Given(_)), _) => "given",
        (Some(ApiKey::Variable(_)), Ok(_)) => "found in the environment",
        (Some(ApiKey::Variable(name)), Err(Mistake { message, .. })) => {
            findings.push(Finding::note(format!("{name} {message}"), None));
            "missing"
        }
    };
    ProviderReport {
        name: settings.provider().name(),
        model: settings.model.to_string(),
        small_model: settings.small_model().to_string(),
        base_url: settings.base_url.clone(),
        key,
    }
}

/// Nothing is made where there is nothing.
fn daemon(state: &Path, findings: &mut Vec<Finding>) -> Option<DaemonInfo> {
    if !state.join("daemon.lock").is_file() {
        return None;
    }
    match StateDir::open(state).and_then(|state| state.running_daemon()) {
        Ok(daemon) => daemon,
        Err(error) => {
            findings.push(Finding::problem(error.to_string(), None));
            None
        }
    }
}

fn examine_box(
    settings: &SessionSettings,
    state: &Path,
    path: &OsString,
    findings: &mut Vec<Finding>,
) -> anyhow::Result<BoxReport> {
    let level = match &settings.isolation {
        BoxIsolation::Bubblewrap | BoxIsolation::Engine(_) => Level::Bubblewrap,
        BoxIsolation::None => Level::Nothing,
    };
    let keeper = KeeperCommand { program: std::env::current_exe()?, args: vec![keeping::BOX.to_owned()] };
    let sandbox = LocalSandbox::new(LocalOptions {
        // Only looked for, never made: no box is started.
        root: state.join("doctor"),
        owner: "doctor".to_owned(),
        keeper,
        path: std::env::split_paths(path).filter(|directory| directory.is_absolute()).collect(),
        level,
        groups: Groups::Found,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ability = match runtime.block_on(sandbox.probe()) {
        Ok(ability) => ability,
        Err(error) => {
            findings.push(Finding::note(format!("boxes could not be tried: {error}"), None));
            let (runtime, isolation) = (settings.runtime.name(), settings.isolation.name().to_owned());
            return Ok(BoxReport { runtime, isolation, ok: false, limits: Value::Null });
        }
    };
    findings.extend(lacks(&ability, settings.strict_limits));
    Ok(BoxReport {
        runtime: settings.runtime.name(),
        isolation: settings.isolation.name().to_owned(),
        ok: ability.can_start(),
        limits: limits(ability.holds),
    })
}

/// What sessions would lack.
fn lacks(ability: &Ability, strict: bool) -> Vec<Finding> {
    let lack = |missing: &model::ports::sandbox::Missing| {
        let (what, fix) = (missing.what.clone(), Some(missing.fix.clone()));
        match missing.gravity {
            // Who asks for strict limits has sessions in mind, and gets none.
            Gravity::Weakens if strict => {
                Finding::problem(format!("{what}, and `strict_limits` is set"), fix)
            }
            Gravity::Refuses | Gravity::Weakens => Finding::note(what, fix),
        }
    };
    ability.missing.iter().map(lack).collect()
}

fn limits(holds: Holds) -> Value {
    holds.words().into_iter().map(|(name, word)| (name.to_owned(), Value::from(word))).collect()
}

pub(super) fn print(report: &SessionsReport) -> anyhow::Result<()> {
    let SessionsReport { opencode, sandbox, provider, daemon, findings } = report;
    output::line("sessions")?;
    let opencode = opencode.as_ref().map_or("not found".to_owned(), |OpenCode { program, version }| {
        format!("{} ({})", version.as_deref().unwrap_or("version unknown"), program.display())
    });
    output::line(&format!("  opencode: {opencode}"))?;
    if let Some(BoxReport { runtime: _, isolation, ok, limits }) = sandbox {
        let held: Vec<String> = limits
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, how)| format!("{name} {}", how.as_str().unwrap_or_default()))
            .collect();
        let able = if *ok { "" } else { ", and none can be started" };
        output::line(&format!("  box: {isolation}{able}; limits: {}", held.join(", ")))?;
    }
    if let Some(ProviderReport { name, model, small_model, base_url, key }) = provider {
        let small = if small_model == model { String::new() } else { format!(", small {small_model}") };
        output::line(&format!("  provider: {name} at {base_url}, key: {key}; model {model}{small}"))?;
    }
    let daemon = daemon.as_ref().map_or("none runs; one is started when it is needed".to_owned(), |daemon| {
        let url = daemon.url.as_deref().map(|url| format!(", {url}")).unwrap_or_default();
        format!("runs, pid {}, version {}{url}", daemon.pid, daemon.version)
    });
    output::line(&format!("  daemon: {daemon}"))?;
    super::print_findings(findings)
}

#[cfg(test)]
mod tests {
    use model::ports::sandbox::{Hold, Missing};

    use super::*;

    #[test]
    fn what_weakens_a_box_is_a_problem_only_for_who_wants_it_strict() {
        let holds = Holds {
            memory: Hold::Watched,
            pids: Hold::Enforced,
            cpus: Hold::Absent,
            disk: Hold::Watched,
            syscalls: Hold::Enforced,
        };
        let missing = |gravity| Missing { what: "no group".to_owned(), fix: "delegate".to_owned(), gravity };
        for (gravity, strict, problem) in [
            (Gravity::Weakens, false, false),
            (Gravity::Weakens, true, true),
            (Gravity::Refuses, false, false),
            (Gravity::Refuses, true, false),
        ] {
            let ability = Ability { level: Level::Bubblewrap, holds, missing: vec![missing(gravity)] };
            let found = lacks(&ability, strict);
            assert_eq!(found.len(), 1);
            assert_eq!((found[0].problem, found[0].fix.as_deref()), (problem, Some("delegate")));
        }
        assert_eq!(limits(holds)["memory"], "watched");
        assert_eq!(limits(holds)["cpus"], "absent");
    }
}
