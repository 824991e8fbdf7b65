//! `callsign doctor`: for each host on this machine, who its servers will be told is calling, and what is amiss; and
//! whether agent sessions would run here.

mod identity;
mod sessions;
mod version;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use hosts::{Content, Found, Host, Left, Scope, Target};
use serde::Serialize;

use self::identity::{Expected, Installed};
use self::sessions::SessionsReport;
use self::version::Version;
use super::install::{find_targets, known};
use crate::app::Global;
use crate::config::Environment;
use crate::exit::{Code, Failure};
use crate::output;

#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    version: &'static str,
    hosts: Vec<HostReport>,
    sessions: SessionsReport,
}

#[derive(Debug, Serialize)]
struct HostReport {
    host: &'static str,
    /// None: it is not on the PATH, or does not say.
    version: Option<String>,
    scopes: Vec<ScopeReport>,
    identity: Expected,
    findings: Vec<Finding>,
}

/// What is installed in one scope.
#[derive(Debug, Default, Serialize)]
struct ScopeReport {
    scope: &'static str,
    files: Vec<PathBuf>,
    installed: bool,
    wrapped: Vec<String>,
    to_wrap: Vec<String>,
    left: Vec<Left>,
}

#[derive(Debug, Serialize)]
struct Finding {
    /// Something does not work; otherwise something could be had.
    problem: bool,
    what: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

pub fn run(global: &Global, arguments: &DoctorArgs) -> anyhow::Result<()> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let around = Around { environment: Environment::of_process(), current_dir: &current_dir };
    let hosts: Vec<HostReport> = Host::ALL.into_iter().filter_map(|host| around.examine(host)).collect();
    let sessions = sessions::examine(global, &current_dir)?;
    let findings = hosts.iter().flat_map(|host| &host.findings).chain(&sessions.findings);
    let problems = findings.filter(|finding| finding.problem).count();
    let report = Report { ok: problems == 0, version: env!("CARGO_PKG_VERSION"), hosts, sessions };
    if arguments.json {
        output::json(&report)?;
    } else {
        print(&report)?;
    }
    if problems == 0 {
        return Ok(());
    }
    let what = if problems == 1 {
        "there is a problem".to_owned()
    } else {
        format!("there are {problems} problems")
    };
    Err(Failure::new(Code::Configuration, what).into())
}

/// Where to look.
struct Around<'a> {
    environment: Environment<'a>,
    current_dir: &'a Path,
}

impl Around<'_> {
    /// None: the host is not on this machine, as far as can be seen.
    fn examine(&self, host: Host) -> Option<HostReport> {
        let program = version::find(host.program(), self.environment);
        let mut findings = Vec::new();
        let mut scopes = Vec::new();
        let mut seen: Vec<PathBuf> = Vec::new();
        for scope in [Scope::User, Scope::Project] {
            let found = find_targets(host, scope, self.environment, self.current_dir);
            let Ok(mut targets) = found else { continue };
            // In the home directory both scopes are the same files.
            targets.retain(|target| !seen.contains(&target.path));
            seen.extend(targets.iter().map(|target| target.path.clone()));
            scopes.extend(examine_scope(host, scope, &targets, &mut findings));
        }
        if program.is_none() && scopes.is_empty() {
            return None;
        }
        let text = program.as_deref().and_then(version::ask);
        let version = text.as_deref().and_then(Version::parse);
        let identity = identity::expected(host, version, installed(&scopes));
        if scopes.iter().all(|scope| !scope.installed) {
            let what = format!("callsign is not installed in {host}");
            findings.push(Finding::note(what, Some(format!("callsign install {host}"))));
        }
        if host == Host::Opencode {
            self.examine_opencode(&mut findings);
        }
        Some(HostReport { host: host.name(), version: text, scopes, identity, findings })
    }

    /// What the plugin will leave alone in OpenCode's own files.
    fn examine_opencode(&self, findings: &mut Vec<Finding>) {
        let user = self
            .environment
            .path("OPENCODE_CONFIG_DIR")
            .or_else(|| Some(self.environment.config_home()?.parent()?.join("opencode")));
        for directory in user.into_iter().chain([self.current_dir.to_owned()]) {
            for name in ["opencode.json", "opencode.jsonc"] {
                let path = directory.join(name);
                let Ok(bytes) = std::fs::read(&path) else { continue };
                match hosts::left_by_plugin(&bytes) {
                    Ok(left) => findings.extend(left.into_iter().map(|left| {
                        let what = format!("{}: left unwrapped: {}: {}", path.display(), left.name, left.why);
                        let fix = format!("if it needs no login: set \"oauth\": false for {}", left.name);
                        Finding::note(what, Some(fix))
                    })),
                    Err(error) => {
                        let fix = Some(format!("put {} right", path.display()));
                        findings.push(Finding::problem(format!("{}:{error}", path.display()), fix));
                    }
                }
            }
        }
    }
}

/// None: there is no file of this scope.
fn examine_scope(
    host: Host,
    scope: Scope,
    targets: &[Target],
    findings: &mut Vec<Finding>,
) -> Option<ScopeReport> {
    let mut report = ScopeReport { scope: scope.name(), ..ScopeReport::default() };
    let mut hook = None;
    for Target { path, content } in targets {
        let Ok(bytes) = std::fs::read(path) else {
            hook = hook.or(matches!(content, Content::Hook).then_some(false));
            continue;
        };
        report.files.push(path.clone());
        let found = match hosts::inspect(*content, &known(), &bytes) {
            Ok(found) => found,
            Err(error) => {
                let fix = Some(format!("put {} right", path.display()));
                findings.push(Finding::problem(format!("{}:{error}", path.display()), fix));
                continue;
            }
        };
        if matches!(content, Content::Hook) {
            hook = Some(!found.ours.is_empty());
        }
        programs(host, scope, &found, findings);
        let Found { ours, to_wrap, left, programs: _ } = found;
        report.wrapped.extend(ours);
        report.to_wrap.extend(to_wrap);
        report.left.extend(left);
    }
    if report.files.is_empty() {
        return None;
    }
    report.installed = !report.wrapped.is_empty();
    let install = command("install", host, scope);
    if report.installed && hook == Some(false) {
        let what = format!(
            "{host} ({scope}) has wrapped servers and no PreToolUse hook: who calls is only declared"
        );
        findings.push(Finding::problem(what, Some(install.clone())));
    }
    if report.installed && !report.to_wrap.is_empty() {
        let what = format!("{host} ({scope}): not wrapped yet: {}", report.to_wrap.join(", "));
        findings.push(Finding::note(what, Some(install.clone())));
    }
    for Left { name, why } in &report.left {
        let fix = why.contains("OAuth").then(|| format!("if it needs no login: {install} --also {name}"));
        findings.push(Finding::note(format!("{host} ({scope}): left unwrapped: {name}: {why}"), fix));
    }
    Some(report)
}

/// Entries that run a callsign that is gone do not start.
fn programs(host: Host, scope: Scope, found: &Found, findings: &mut Vec<Finding>) {
    for program in &found.programs {
        if Path::new(program).is_absolute() && !Path::new(program).is_file() {
            let what = format!("{host} ({scope}) starts {program}, which is not there");
            let again =
                format!("{} && {}", command("uninstall", host, scope), command("install", host, scope));
            findings.push(Finding::problem(what, Some(again)));
        }
    }
}

fn command(verb: &str, host: Host, scope: Scope) -> String {
    match scope {
        Scope::User => format!("callsign {verb} {host}"),
        Scope::Project => format!("callsign {verb} {host} --scope project"),
    }
}

fn installed(scopes: &[ScopeReport]) -> Installed {
    let pieces = || scopes.iter().flat_map(|scope| &scope.wrapped);
    match (pieces().any(|piece| piece != hosts::HOOK_NAME), pieces().any(|piece| piece == hosts::HOOK_NAME)) {
        (false, _) => Installed::No,
        (true, false) => Installed::Servers,
        (true, true) => Installed::ServersAndHook,
    }
}

impl Finding {
    fn note(what: String, fix: Option<String>) -> Self {
        Self { problem: false, what, fix }
    }

    fn problem(what: String, fix: Option<String>) -> Self {
        Self { problem: true, what, fix }
    }
}

fn print(report: &Report) -> anyhow::Result<()> {
    if report.hosts.is_empty() {
        output::line("no host was found on this machine")?;
    }
    for host in &report.hosts {
        let HostReport { host: name, version, scopes, identity, findings } = host;
        let version = version.as_deref().unwrap_or("version unknown");
        output::line(&format!("{name} ({version})"))?;
        for scope in scopes {
            let state = if scope.installed {
                scope.wrapped.join(", ")
            } else {
                "callsign is not installed".to_owned()
            };
            output::line(&format!("  {}: {state}", scope.scope))?;
        }
        output::line(&format!(
            "  calls are told: {} (trust: {}): {}",
            identity.what, identity.trust, identity.why
        ))?;
        print_findings(findings)?;
    }
    sessions::print(&report.sessions)
}

fn print_findings(findings: &[Finding]) -> anyhow::Result<()> {
    for finding in findings {
        let mark = if finding.problem { "problem" } else { "note" };
        output::line(&format!("  {mark}: {}", finding.what))?;
        if let Some(fix) = &finding.fix {
            output::line(&format!("    {fix}"))?;
        }
    }
    Ok(())
}
