//! `callsign install HOST` and `callsign uninstall HOST`.

mod files;
mod records;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use hosts::{Broken, Host, Left, NoPlace, Outcome, Record, Scope, Settings, Surroundings, Target};
use serde::Serialize;

use self::files::HostFile;
use self::records::Records;
use crate::app::Global;
use crate::config::{Environment, check_header, check_variable, is_variable};
use crate::exit::{Code, Failure};
use crate::output;
use crate::state::StateDir;

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  callsign install codex --dry-run\n  callsign install claude-code --scope project\n  callsign install codex --also tracker"
)]
pub struct InstallArgs {
    #[command(flatten)]
    common: Common,
    /// A remote server that needs no login by OAuth, though nothing in its entry shows it.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    also: Vec<String>,
    /// The configuration that the wrapped servers shall use.
    #[arg(long, value_name = "FILE", env = "CALLSIGN_CONFIG")]
    config: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct UninstallArgs {
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// opencode, codex, claude-code, goose, vscode, cursor or gemini.
    #[arg(value_name = "HOST", value_parser = host)]
    host: Host,
    /// Whose configuration: `user`, or `project` for the one in this directory.
    #[arg(long, value_name = "SCOPE", default_value = "user", value_parser = scope)]
    scope: Scope,
    /// Show the change and make none.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Print one JSON object instead of the change.
    #[arg(long)]
    json: bool,
}

/// What is printed for one file.
#[derive(Debug, Serialize)]
struct Row {
    path: PathBuf,
    changed: bool,
    #[serde(rename = "done")]
    names: Vec<String>,
    already: Vec<String>,
    left: Vec<Left>,
}

/// A file, and what shall become of it.
struct Step {
    file: HostFile,
    /// None: it stays as it is.
    change: Option<Change>,
    row: Row,
}

struct Change {
    outcome: Outcome,
    /// To be kept. None: what was kept can go.
    record: Option<Record>,
}

pub fn install(global: &Global, arguments: &InstallArgs) -> anyhow::Result<()> {
    let job = Job::new(global, &arguments.common)?;
    let settings = job.settings(arguments)?;
    let mut steps = Vec::new();
    for Target { path, content } in job.targets()? {
        let file = job.read(&path)?;
        let record = job.records.load(&file)?;
        let current = file.bytes.as_deref();
        let done = hosts::install(content, &settings, current, record.as_ref())
            .map_err(|error| broken(&path, &error))?;
        let changed = done.bytes.is_some();
        let change = done.bytes.map(|bytes| Change { outcome: Outcome::Write(bytes), record: done.record });
        let row = Row { path, changed, names: done.wrapped, already: done.already, left: done.left };
        steps.push(Step { file, change, row });
    }
    job.carry_out(steps, "wrapped")
}

pub fn uninstall(global: &Global, arguments: &UninstallArgs) -> anyhow::Result<()> {
    let job = Job::new(global, &arguments.common)?;
    let mut steps = Vec::new();
    for Target { path, content } in job.targets()? {
        let file = job.read(&path)?;
        let record = job.records.load(&file)?;
        let undone = hosts::uninstall(content, file.bytes.as_deref(), record.as_ref())
            .map_err(|error| broken(&path, &error))?;
        let changed = undone.outcome != Outcome::Keep;
        // A record of a file that holds nothing of ours any more has nothing to say either.
        let stale = record.is_some() && undone.left.is_empty();
        let change = (changed || stale).then_some(Change { outcome: undone.outcome, record: None });
        let row = Row { path, changed, names: undone.restored, already: Vec::new(), left: undone.left };
        steps.push(Step { file, change, row });
    }
    let stuck: Vec<String> =
        steps.iter().flat_map(|step| &step.row.left).map(|left| left.name.clone()).collect();
    job.carry_out(steps, "restored")?;
    if stuck.is_empty() {
        return Ok(());
    }
    let message = format!("could not take callsign out of {}", stuck.join(", "));
    Err(Failure::new(Code::Configuration, message).with_hint("edit the file by hand").into())
}

/// What both commands know.
struct Job<'a> {
    arguments: &'a Common,
    environment: Environment<'static>,
    current_dir: PathBuf,
    state_dir: PathBuf,
    records: Records,
}

impl<'a> Job<'a> {
    fn new(global: &Global, arguments: &'a Common) -> anyhow::Result<Self> {
        let current_dir = std::env::current_dir().context("could not find the current directory")?;
        let environment = Environment::of_process();
        let state_dir = StateDir::locate(global.state_dir.as_deref(), environment, &current_dir)?;
        let records = Records::new(&state_dir, arguments.host, arguments.scope);
        Ok(Self { arguments, environment, current_dir, state_dir, records })
    }

    fn targets(&self) -> anyhow::Result<Vec<Target>> {
        let Common { host, scope, .. } = *self.arguments;
        find_targets(host, scope, self.environment, &self.current_dir).map_err(|error| {
            let failure = Failure::new(Code::Usage, error.to_string());
            match error {
                NoPlace::Scope { .. } => failure.with_hint("leave --scope out").into(),
                NoPlace::Home => failure.with_hint("set HOME").into(),
            }
        })
    }

    fn read(&self, path: &Path) -> anyhow::Result<HostFile> {
        let within = match self.arguments.scope {
            Scope::User => None,
            Scope::Project => Some(self.current_dir.as_path()),
        };
        files::read(path, within)
    }

    fn settings(&self, arguments: &InstallArgs) -> anyhow::Result<Settings> {
        let mut options = Vec::new();
        let home = self.environment.home();
        let usual = home.as_ref().map(|home| home.join(".local/state/callsign"));
        if usual.as_ref() != Some(&self.state_dir) {
            options.extend(["--state-dir".to_owned(), words(&self.state_dir)?]);
        }
        if let Some(config) = self.config(arguments, home.as_deref())? {
            options.extend(["--config".to_owned(), words(&config)?]);
        }
        Ok(Settings {
            command: words(&program(self.environment)?)?,
            options,
            also: arguments.also.clone(),
            ..known()
        })
    }

    /// None: `wrap` finds it by HOME alone, or there is none.
    fn config(&self, arguments: &InstallArgs, home: Option<&Path>) -> anyhow::Result<Option<PathBuf>> {
        if let Some(config) = &arguments.config {
            let config = self.current_dir.join(config);
            if !config.is_file() {
                let message = format!("--config {}: there is no such file", config.display());
                return Err(Failure::new(Code::Usage, message).into());
            }
            return Ok(Some(config));
        }
        let usual = home.map(|home| home.join(".config/callsign"));
        let of_user = self.environment.config_home().filter(|directory| Some(directory) != usual.as_ref());
        Ok(of_user.map(|directory| directory.join("callsign.toml")).filter(|file| file.is_file()))
    }

    fn carry_out(&self, steps: Vec<Step>, done: &str) -> anyhow::Result<()> {
        let Common { host, scope, dry_run, json, yes } = *self.arguments;
        if !json {
            for step in &steps {
                show(step, done)?;
            }
        }
        let any = steps.iter().any(|step| step.row.changed);
        let asks = any && !yes && !json && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if !dry_run && (!asks || confirmed()?) {
            self.write(&steps)?;
        } else if !dry_run {
            return Err(Failure::new(Code::Usage, "nothing was changed").into());
        }
        if json {
            let rows: Vec<_> = steps.into_iter().map(|step| step.row).collect();
            let report = serde_json::json!({
                "host": host.name(), "scope": scope.name(), "dry_run": dry_run, "files": rows,
            });
            output::json(&report)?;
        } else if any && !dry_run {
            output::line(&format!("done; restart {host} for it to take effect"))?;
        }
        Ok(())
    }

    fn write(&self, steps: &[Step]) -> anyhow::Result<()> {
        if steps.iter().all(|step| step.change.is_none()) {
            return Ok(());
        }
        let state = StateDir::open(&self.state_dir)?;
        // Two at once would each keep the other's work as the original.
        let lock = state.lock_file("install.lock")?;
        lock.lock().context("could not lock the state directory")?;
        for Step { file, change, .. } in steps {
            let Some(Change { outcome, record }) = change else { continue };
            file.check_unchanged()?;
            // The note first: a file of ours without one is harder to put right than a note without a file.
            if let Some(record) = record {
                self.records.save(file, record)?;
            }
            match outcome {
                Outcome::Keep => {}
                Outcome::Write(bytes) => file.write(bytes)?,
                Outcome::Remove => file.remove()?,
            }
            if record.is_none() {
                self.records.forget(file)?;
            }
        }
        Ok(())
    }
}

/// Where the host's files are, for `doctor` as well.
pub(super) fn find_targets(
    host: Host,
    scope: Scope,
    environment: Environment<'_>,
    current_dir: &Path,
) -> Result<Vec<Target>, NoPlace> {
    let variable = |name: &str| environment.get(name);
    let mut targets =
        hosts::targets(host, scope, Surroundings { variable: &variable, project: current_dir })?;
    for target in &mut targets {
        target.path = current_dir.join(&target.path);
    }
    Ok(targets)
}

/// Settings that say what `wrap` takes and nothing else.
pub(super) fn known() -> Settings {
    Settings {
        command: String::new(),
        options: Vec::new(),
        also: Vec::new(),
        // What the entry gives its server it goes on giving; only our own names are not to be passed on.
        may_pass: |name| check_variable(name).is_ok() || !name.starts_with("CALLSIGN_") && is_variable(name),
        may_send: |name| check_header(name).is_ok(),
    }
}

/// Where callsign is: as the user calls it where that leads here, since a path behind a link may go with the
/// next version.
fn program(environment: Environment<'_>) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("could not find out where callsign is")?;
    let own = own.canonicalize().context("callsign was moved or removed while it ran")?;
    let directories = environment.get("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&directories)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join("callsign"))
        .find(|candidate| candidate.is_file());
    Ok(on_path.filter(|found| found.canonicalize().is_ok_and(|found| found == own)).unwrap_or(own))
}

fn words(path: &Path) -> anyhow::Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Failure::new(Code::Usage, format!("{} is not Unicode", path.display())).into())
}

fn broken(path: &Path, error: &Broken) -> anyhow::Error {
    let message = format!("{}:{error}", path.display());
    Failure::new(Code::Configuration, message)
        .with_hint("nothing was changed; put the file right first")
        .into()
}

fn show(step: &Step, done: &str) -> anyhow::Result<()> {
    let Step { file, change, row } = step;
    let path = row.path.display().to_string();
    if let Some(Change { outcome, .. }) = change {
        let before = String::from_utf8_lossy(file.bytes.as_deref().unwrap_or_default());
        let after = match outcome {
            Outcome::Keep => before.clone(),
            Outcome::Write(bytes) => String::from_utf8_lossy(bytes),
            Outcome::Remove => "".into(),
        };
        let plugin = row.path.extension().is_some_and(|extension| extension == "js");
        // A plugin of ours is as long as it is dull.
        let diff = if plugin { String::new() } else { hosts::unified(&path, &before, &after) };
        if !diff.is_empty() {
            output::line(diff.trim_end())?;
        }
    }
    if !row.names.is_empty() {
        output::line(&format!("{path}: {done}: {}", row.names.join(", ")))?;
    } else if row.changed {
        output::line(&format!("{path}: changed"))?;
    } else {
        output::line(&format!("{path}: no change"))?;
    }
    for Left { name, why } in &row.left {
        output::line(&format!("left unwrapped: {name}: {why}"))?;
    }
    Ok(())
}

fn confirmed() -> anyhow::Result<bool> {
    let mut stderr = std::io::stderr().lock();
    write!(stderr, "Make this change? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn host(name: &str) -> Result<Host, String> {
    let known = Host::ALL.map(Host::name).join(", ");
    name.parse().map_err(|_| format!("choose one of {known}"))
}

fn scope(name: &str) -> Result<Scope, String> {
    match name {
        "user" => Ok(Scope::User),
        "project" => Ok(Scope::Project),
        _ => Err("choose user or project".to_owned()),
    }
}

#[cfg(test)]
mod tests;
