//! `cargo xtask bench`: us and our peers on one machine in one run, with every answer checked.
//!
//! ```text
//! round:  for each section, for each number of connections, for each target: one cell
//! cell:   start the target → a load generator of its own (load.rs) → requests/s, p50, p99; CPU and memory from
//!         /proc (usage.rs) → stop it
//! ```
//!
//! The cells of all targets at one number of connections follow each other, and the figures are medians over rounds:
//! what disturbs the machine for a while disturbs all of them. A target that does not start or answers wrongly is an
//! error that names it. Sessions are measured in a way of their own, once (sessions.rs).

mod echo;
mod goals;
mod load;
mod report;
mod sessions;
mod stdio;
mod targets;
pub(crate) mod usage;
mod worker;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use self::load::{Plan, Work};
use self::report::{Cell, Goals, Run, Start};
use self::sessions::Extent;
use self::stdio::{Pipe, Piping, Way};
use self::targets::{Rig, Running, Section, Target};
use self::usage::Usage;
use self::worker::Worker;
use crate::process::{Namespace, run as run_command};
use crate::tools;
use crate::workspace::{Profile, Workspace};

#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Options {
    /// Measure only this section: http-http, http-stdio, wrap or sessions
    name: Option<String>,
    /// Seconds of each cell
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// How often everything is measured; the table shows medians
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Only these targets, by a part of their name, separated by commas
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// A second of direct and callsign each, to prove that the bench runs
    #[arg(long)]
    smoke: bool,
}

/// Runs in the load generator's process.
pub(crate) fn worker(plan: &str) -> Result<()> {
    load::work(plan)
}

/// The part of `cargo xtask test`: the dev profile, direct and callsign only, no figure is judged.
pub(crate) fn smoke(workspace: &Workspace) -> Result<String> {
    run(workspace, &Options { name: None, seconds: 0.0, rounds: 0, only: Vec::new(), smoke: true })
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<String> {
    let options =
        if options.smoke { &Options { seconds: 1.0, rounds: 1, ..options.clone() } } else { options };
    let extent = if options.smoke { Extent::Smoke } else { Extent::Full };
    let bench = Bench::prepare(workspace, options)?;
    let occasion = report::occasion("cargo xtask bench sessions")?;
    let mut run = Run::default();
    for round in 0..options.rounds.max(1) {
        for section in bench.sections()? {
            println!("round {} {}", round + 1, section.name());
            match section {
                Section::HttpToHttp | Section::HttpToStdio => bench.http(section, &mut run),
                Section::Stdio => bench.stdio(&mut run),
            }
        }
    }
    for section in bench.sections()? {
        for target in bench.targets(section) {
            let version = targets::version(&bench.rig, target)?;
            run.versions.insert(target.name(), version);
        }
    }
    let has_cells = !bench.sections()?.is_empty();
    let sessions = bench.wants_sessions().then(|| {
        println!("{SESSIONS}");
        sessions::measure(workspace, extent)
    });
    drop(bench);
    let goals = if has_cells && !options.smoke { Goals::Judge } else { Goals::Leave };
    let mut report = report::text(&run, goals);
    let (mut figures, mut section) = (0, None);
    match sessions {
        None => {}
        Some(Ok(found)) => {
            figures = found.count();
            section = Some(found.text(&occasion, extent));
        }
        Some(Err(error)) => run.errors.push(format!("sessions: {error:#}")),
    }
    if let Some(section) = &section {
        report = report::with_sessions(&report, section);
    }
    println!("\n{report}");
    for error in &run.errors {
        println!("error: {error}");
    }
    if !run.errors.is_empty() {
        bail!("{} of the above went wrong, the first being {}", run.errors.len(), run.errors[0]);
    }
    let cells = run.cells.len();
    let measured = format!("{cells} cells, {figures} times of sessions");
    if options.smoke {
        return Ok(format!("{measured}; every answer right"));
    }
    match (options.name.as_deref(), section) {
        (None, _) if options.only.is_empty() => report::write(workspace, &report)?,
        (Some(SESSIONS), Some(section)) => {
            report::write_sessions(workspace, &section)?;
            return Ok(format!("{measured}; their part of docs/bench.md is written"));
        }
        (None | Some(_), _) => {
            return Ok(format!("{measured}; docs/bench.md is left alone, for this was not the whole bench"));
        }
    }
    Ok(format!("{measured}; docs/bench.md is written"))
}

/// The section whose figures are no cells.
const SESSIONS: &str = "sessions";

struct Bench<'a> {
    options: &'a Options,
    rig: Rig<'a>,
}

impl<'a> Bench<'a> {
    fn prepare(workspace: &'a Workspace, options: &'a Options) -> Result<Self> {
        let profile = if options.smoke { Profile::Dev } else { Profile::Release };
        let (callsign, echo) = (PathBuf::new(), PathBuf::new());
        let mut bench = Self { options, rig: Rig { workspace, callsign, echo, namespace: None } };
        let mut targets = Vec::new();
        for section in bench.sections()? {
            targets.extend(bench.targets(section));
        }
        let needs_sessions = bench.wants_sessions();
        if !options.smoke {
            if !targets.is_empty() {
                tools::install_peers(workspace)?;
            }
            let build =
                ["build", "--release", "-p", "testkit", "--bin", "echo-server", "--bin", "scripted-model"];
            run_command(workspace.cargo().args(build))?;
        }
        bench.rig.echo = workspace.binary(profile, "echo-server")?;
        // Peers can be measured while we do not build.
        if needs_sessions || targets.iter().any(|target| target.is_ours()) {
            if !options.smoke {
                run_command(workspace.cargo().args(["build", "--release", "-p", "callsign"]))?;
            }
            bench.rig.callsign = workspace.binary(profile, "callsign")?;
        }
        if needs_sessions && !options.smoke {
            run_command(workspace.cargo().args(["build", "--release", "-p", "tether", "--example", "cost"]))?;
            let guard = ["build", "--release", "-p", "containers", "--bin", "containers-probe"];
            run_command(workspace.cargo().args(guard))?;
        }
        if targets.contains(&Target::Supergateway) {
            let namespace = Namespace::create();
            bench.rig.namespace =
                Some(namespace.context("supergateway listens everywhere, so it gets a network of its own")?);
        }
        Ok(bench)
    }

    fn sections(&self) -> Result<Vec<Section>> {
        let Some(name) = &self.options.name else { return Ok(Section::ALL.to_vec()) };
        if name == SESSIONS {
            return Ok(Vec::new());
        }
        let found = Section::ALL.into_iter().find(|section| section.name() == name);
        let names = Section::ALL.map(Section::name).join(", ");
        found
            .map(|section| vec![section])
            .with_context(|| format!("there is no section {name}; there are {names}, {SESSIONS}"))
    }

    fn wants_sessions(&self) -> bool {
        let Options { name, only, .. } = self.options;
        name.as_ref().map_or(only.is_empty(), |name| name == SESSIONS)
    }

    fn targets(&self, section: Section) -> Vec<Target> {
        let wanted = |target: &Target| {
            let named = self.options.only.iter().any(|part| target.name().contains(part.as_str()));
            (self.options.only.is_empty() || named) && !(self.options.smoke && target.is_peer())
        };
        section.targets().iter().copied().filter(wanted).collect()
    }

    fn connections(&self) -> &'static [usize] {
        if self.options.smoke { &[1, 16] } else { &[1, 16, 64] }
    }

    fn http(&self, section: Section, run: &mut Run) {
        for connections in self.connections() {
            for target in self.targets(section) {
                if let Err(error) = self.alone(section, target, *connections, run) {
                    run.errors.push(format!("{} at {connections}: {error:#}", target.name()));
                }
            }
        }
    }

    /// Starts a target, measures it, and stops it. No other one runs meanwhile: two that share a program on disk would
    /// share its pages, and PSS would make both look small.
    fn alone(&self, section: Section, target: Target, connections: usize, run: &mut Run) -> Result<()> {
        let (mut running, start) = self.start(section, target)?;
        run.starts.push(start);
        let cell = self.cell(section, &running, connections).with_context(|| running.said())?;
        run.add(cell);
        running.stop()
    }

    fn start(&self, section: Section, target: Target) -> Result<(Running, Start)> {
        let prepared = targets::prepare(&self.rig, target, section)?;
        let plan = Plan {
            url: prepared.url.clone(),
            tool: prepared.tool.to_owned(),
            connections: 1,
            warm_up: 0.0,
            seconds: 0.0,
            work: Work::Probe,
        };
        let namespace = self.rig.namespace.as_ref().filter(|_| prepared.namespaced);
        let mut probe = Worker::start(&plan, namespace)?;
        probe.trying()?;
        let clock = Instant::now();
        let mut running = targets::start(&self.rig, prepared)?;
        probe
            .ready(Duration::from_mins(1))
            .with_context(|| format!("it did not start: {}", running.said()))?;
        let start = Start { section, target, milliseconds: clock.elapsed().as_secs_f64() * 1000.0 };
        probe.finish()?;
        Ok((running, start))
    }

    fn cell(&self, section: Section, running: &Running, connections: usize) -> Result<Cell> {
        let plan = Plan {
            url: running.prepared.url.clone(),
            tool: running.prepared.tool.to_owned(),
            connections,
            warm_up: (self.options.seconds / 3.0).clamp(0.3, 2.0),
            seconds: self.options.seconds,
            work: Work::Load,
        };
        let namespace = self.rig.namespace.as_ref().filter(|_| running.prepared.namespaced);
        let mut worker = Worker::start(&plan, namespace)?;
        worker.ready(Duration::from_mins(3))?;
        let before = usage(running)?;
        let outcome = worker.go(Duration::from_secs_f64(plan.seconds) + Duration::from_mins(1))?;
        let after = usage(running)?;
        if running.target() == Target::CallsignSession
            && let Some(pid) = running.pid()
        {
            let servers = usage::servers(pid)?;
            anyhow::ensure!(servers >= connections, "{servers} servers for {connections} sessions");
        }
        worker.finish()?;
        Ok(Cell { section, target: running.target(), connections, outcome, before, after })
    }

    fn stdio(&self, run: &mut Run) {
        // Both alternate, and often: where the scheduler puts the processes of a pipe moves the median of one cell
        // by more than we add.
        let (cells, starts) = if self.options.smoke { (1, 2) } else { (3, 15) };
        for _ in 0..cells {
            for (depth, target) in
                [1, 16].into_iter().flat_map(|depth| self.piped().map(move |to| (depth, to)))
            {
                match self.pipe(target, depth) {
                    Ok(cell) => run.add(cell),
                    Err(error) => run.errors.push(format!("{} at depth {depth}: {error:#}", target.name())),
                }
            }
        }
        for target in (0..starts).flat_map(|_| self.piped()) {
            match Pipe::open(&self.piping(), way(target)) {
                Ok(pipe) => run.starts.push(Start {
                    section: Section::Stdio,
                    target,
                    milliseconds: pipe.started.as_secs_f64() * 1000.0,
                }),
                Err(error) => run.errors.push(format!("{}: {error:#}", target.name())),
            }
        }
    }

    fn piped(&self) -> impl Iterator<Item = Target> {
        self.targets(Section::Stdio).into_iter()
    }

    fn piping(&self) -> Piping<'_> {
        Piping { callsign: &self.rig.callsign, echo: &self.rig.echo }
    }

    fn pipe(&self, target: Target, depth: usize) -> Result<Cell> {
        let mut pipe = Pipe::open(&self.piping(), way(target))?;
        let warm_up = pipe.load(depth, (self.options.seconds / 3.0).clamp(0.3, 2.0))?;
        let before = pipe.usage()?;
        let mut outcome = pipe.load(depth, self.options.seconds)?;
        let after = pipe.usage()?;
        outcome.wrong += warm_up.wrong;
        outcome.sample = warm_up.sample.or(outcome.sample);
        let (before, after) =
            if way(target) == Way::Direct { (None, None) } else { (Some(before), Some(after)) };
        Ok(Cell { section: Section::Stdio, target, connections: depth, outcome, before, after })
    }
}

fn way(target: Target) -> Way {
    match target {
        Target::CallsignWrap => Way::Bare,
        Target::CallsignKnown => Way::Known,
        Target::CallsignSigned => Way::Signed,
        Target::CallsignSealed => Way::Sealed,
        Target::Direct
        | Target::Nginx
        | Target::McpProxy
        | Target::Supergateway
        | Target::NpmMcpProxy
        | Target::PypiMcpProxy
        | Target::Callsign
        | Target::CallsignUnnoted
        | Target::CallsignHooked
        | Target::CallsignShared
        | Target::CallsignSession => Way::Direct,
    }
}

fn usage(running: &Running) -> Result<Option<Usage>> {
    running.pid().map(usage::measure).transpose()
}
