//! Sessions: what the daemon adds to the real OpenCode, with a scripted model behind it.
//!
//! ```text
//! daemon, boxes stay:   boxes at rest, weighed → runs one by one, beside OpenCode's own events → a run that waits for its model,
//!                       and meanwhile: the broker beside the model itself → submit_task
//! daemon, boxes go:     round: new session | bare OpenCode, new home | the session woken | bare OpenCode, the same home
//! daemon, a box waits:  round: a session that has it at once
//! daemon, containers:   boxes at rest, weighed → round: new session | the same image with bare OpenCode
//! no daemon:            the bridge beside the server behind it
//! ```
//!
//! A bare OpenCode has the program, variables and configuration of a box: its variables are read from a box's process.
//! Both are watched from here, and who is first alternates with the rounds.

mod boxes;
mod cost;
mod docker;
mod engine;
mod rest;
mod rig;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use self::boxes::Row;
use self::rig::{Bare, Daemon, Model, Programs, Wish, task};
use super::report::{markdown, median};
use crate::workspace::{Profile, Workspace};

/// How often each is measured.
#[derive(Clone, Copy, Debug)]
struct Size {
    submits: usize,
    starts: usize,
    runs: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    Full,
    Smoke,
}

impl Extent {
    fn size(self) -> Size {
        match self {
            Self::Full => Size { submits: 200, starts: 8, runs: 20 },
            Self::Smoke => Size { submits: 10, starts: 1, runs: 2 },
        }
    }

    /// At rest side by side.
    fn boxes(self) -> usize {
        match self {
            Self::Full => 5,
            Self::Smoke => 2,
        }
    }

    fn profile(self) -> Profile {
        match self {
            Self::Full => Profile::Release,
            Self::Smoke => Profile::Dev,
        }
    }
}

/// Every measurement, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Found {
    version: String,
    submit: Vec<f64>,
    running: Vec<f64>,
    ended: Vec<f64>,
    ready: Pair,
    asked: Pair,
    woken: Pair,
    woken_asked: Pair,
    boxes: Vec<Row>,
}

/// Of a box, and of the bare OpenCode.
#[derive(Debug, Default)]
struct Pair {
    ours: Vec<f64>,
    bare: Vec<f64>,
}

pub(super) fn measure(workspace: &Workspace, extent: Extent) -> Result<Found> {
    let programs = Programs::find(workspace, extent.profile())?;
    let mut model = Model::start(&programs)?;
    let mut found = Found { version: programs.version.clone(), ..Found::default() };
    found.boxes = cost::bridge(workspace, extent)?;
    let variables = stay(&programs, &mut model, extent, &mut found)?;
    found.boxes.extend(rest::warm(&programs, &mut model, extent.size().starts)?);
    found.boxes.extend(docker::measure(workspace, &programs, &mut model, extent)?);
    come_and_go(&programs, &mut model, extent.size().starts, &variables, &mut found)?;
    anyhow::ensure!(found.is_whole(extent.size()), "something was not measured: {found:?}");
    Ok(found)
}

/// Boxes stay. The variables of one are handed back.
fn stay(
    programs: &Programs,
    model: &mut Model,
    extent: Extent,
    found: &mut Found,
) -> Result<BTreeMap<String, String>> {
    let size = extent.size();
    let daemon = Daemon::start(programs, model, &Wish::local("30m"))?;
    let client = &daemon.client;
    let at_rest = rest::local(&daemon, extent.boxes())?;
    let session = client.create()?;
    let run = client.submit(&session, &task("warm-", 0))?;
    client.completed(&session, &run, "warm-").with_context(|| daemon.said())?;
    let variables = daemon.variables(&session)?;
    for number in 0..size.runs {
        let (running, ended) = seen(&daemon, &session, number).with_context(|| daemon.said())?;
        found.running.push(running);
        found.ended.push(ended);
    }
    println!("  {} runs seen", size.runs);

    // The agent waits for its model meanwhile, and everything else for the agent: nobody competes.
    client.submit(&session, &task("held-", 600_000))?;
    client.until(&session, "busy")?;
    model.until_asked("held-")?;
    found.boxes.extend(cost::broker(&daemon, model, &session, size.submits)?);
    found.boxes.push(at_rest);
    let mut runs = BTreeSet::new();
    for number in 0..size.submits {
        let task = task(&format!("queued-{number}-"), 0);
        let clock = Instant::now();
        let run = client.submit(&session, &task)?;
        found.submit.push(milliseconds(clock.elapsed()));
        runs.insert(run);
    }
    anyhow::ensure!(runs.len() == size.submits, "{} runs of {} submits", runs.len(), size.submits);
    println!("  {} tasks submitted", size.submits);
    client.terminate(&session).with_context(|| daemon.said())?;
    daemon.stop()?;
    Ok(variables)
}

/// One run: from OpenCode's first word of its begin, and of its end, until a client is told the same.
fn seen(daemon: &Daemon, session: &str, number: usize) -> Result<(f64, f64)> {
    let client = &daemon.client;
    let mut events = daemon.agent(session)?.0.events("/workspace")?;
    let word = format!("seen-{number}-");
    let run = client.submit(session, &task(&word, 400))?;
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| -> Result<(f64, Instant)> {
            let busy = events.wait(&[r#""status":{"type":"busy"}"#])?;
            while client.run(session, &run)?["status"] == "queued" {
                anyhow::ensure!(busy.elapsed() < Duration::from_secs(30), "the run stays queued");
            }
            let running = milliseconds(busy.elapsed());
            Ok((running, events.wait(&[r#""status":{"type":"idle"}"#, r#""type":"session.idle""#])?))
        });
        let completed = client.completed(session, &run, &word);
        let told = Instant::now();
        let watched =
            watching.join().map_err(|_| anyhow::anyhow!("the watch of OpenCode's events failed"))?;
        completed?;
        let (running, idle) = watched?;
        // We may hear of it after the daemon did.
        Ok((running, milliseconds(told.saturating_duration_since(idle))))
    })
}

fn come_and_go(
    programs: &Programs,
    model: &mut Model,
    rounds: usize,
    variables: &BTreeMap<String, String>,
    found: &mut Found,
) -> Result<()> {
    let daemon = Daemon::start(programs, model, &Wish::local("1s"))?;
    for round in 0..rounds {
        let session = daemon.client.create()?;
        let mut bare = Bare::new(programs, model, variables)?;
        for woken in [false, true] {
            let name = if woken { "wake" } else { "start" };
            for is_ours in [round % 2 == 0, round % 2 != 0] {
                let word = format!("{name}-{round}-{is_ours}-");
                let times = if is_ours {
                    let times = daemon.starts(model, &session, &word).with_context(|| daemon.said())?;
                    // Nobody is measured while it ends.
                    daemon.client.until(&session, "stopped")?;
                    times
                } else {
                    bare.starts(model, &word)?
                };
                let (ready, asked) = (milliseconds(times.ready), milliseconds(times.asked));
                let who = if is_ours { "callsign" } else { "bare" };
                println!("  {name:<5} {who:<8} ready {ready:>6.0} ms, model asked {asked:>6.0} ms");
                let pairs = if woken {
                    (&mut found.woken, &mut found.woken_asked)
                } else {
                    (&mut found.ready, &mut found.asked)
                };
                pairs.0.add(is_ours, ready);
                pairs.1.add(is_ours, asked);
            }
        }
        daemon.client.terminate(&session)?;
    }
    daemon.stop()
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

impl Pair {
    fn add(&mut self, is_ours: bool, value: f64) {
        if is_ours { &mut self.ours } else { &mut self.bare }.push(value);
    }

    fn ratio(&self) -> Option<f64> {
        Some(median(self.ours.clone())? / median(self.bare.clone())?)
    }
}

impl Found {
    fn is_whole(&self, size: Size) -> bool {
        let pairs = [&self.ready, &self.asked, &self.woken, &self.woken_asked];
        self.submit.len() == size.submits
            && [&self.running, &self.ended].iter().all(|all| all.len() == size.runs)
            && pairs.iter().all(|pair| pair.ours.len() == size.starts && pair.bare.len() == size.starts)
            && self.all().all(|value| value.is_finite() && value >= 0.0)
            && self.boxes.len() == BOXES
            && self.boxes.iter().all(Row::is_sound)
    }

    fn all(&self) -> impl Iterator<Item = f64> {
        let pairs = [&self.ready, &self.asked, &self.woken, &self.woken_asked];
        let series = pairs.into_iter().flat_map(|pair| [&pair.ours, &pair.bare]);
        series.chain([&self.submit, &self.running, &self.ended]).flatten().copied()
    }

    pub(super) fn count(&self) -> usize {
        self.all().count() + self.boxes.iter().map(|row| row.with.len() + row.without.len()).sum::<usize>()
    }

    /// Its part of the report; `when` is of this part alone, for it may be measured alone.
    pub(super) fn text(&self, when: &str, extent: Extent) -> String {
        let table = markdown(&self.lines(extent));
        format!(
            "## Sessions: OpenCode {} in its box, a scripted model behind it\n\n{when}\n\n{table}\n{WHAT}\n{}",
            self.version,
            boxes::text(&self.boxes, extent)
        )
    }

    fn lines(&self, extent: Extent) -> Vec<Vec<String>> {
        let head = ["what", "n", "median ms", "p99 ms", "bare ms", "÷ bare", "aim", "verdict"];
        let mut lines = vec![head.map(str::to_owned).to_vec()];
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mut add = |what: &str, ours: &[f64], pair: Option<&Pair>, aim: Aim| {
            let middle = median(ours.to_vec());
            let ratio = pair.and_then(Pair::ratio);
            let (aim, verdict) = match aim {
                Aim::None => ("–".to_owned(), "–"),
                Aim::Milliseconds(most) => (format!("≤ {most} ms"), judged(middle, most, extent)),
                Aim::Ratio(most) => (format!("≤ {most} × bare"), judged(ratio, most, extent)),
            };
            lines.push(vec![
                what.to_owned(),
                ours.len().to_string(),
                number(middle, 1),
                number(high(ours), 1),
                number(pair.and_then(|pair| median(pair.bare.clone())), 1),
                number(ratio, 2),
                aim,
                verdict.to_owned(),
            ]);
        };
        add("`submit_task`", &self.submit, None, Aim::Milliseconds(20.0));
        add("new session: agent ready", &self.ready.ours, Some(&self.ready), Aim::Ratio(1.15));
        add("new session: model asked", &self.asked.ours, Some(&self.asked), Aim::None);
        add("stopped session: agent ready", &self.woken.ours, Some(&self.woken), Aim::Ratio(1.15));
        add("stopped session: model asked", &self.woken_asked.ours, Some(&self.woken_asked), Aim::None);
        add("seen as running", &self.running, None, Aim::Milliseconds(50.0));
        add("seen as completed", &self.ended, None, Aim::Milliseconds(50.0));
        lines
    }
}

/// How many rows there are of boxes.
const BOXES: usize = 13;

#[derive(Clone, Copy, Debug)]
enum Aim {
    /// Shown for its own sake.
    None,
    Milliseconds(f64),
    Ratio(f64),
}

fn judged(found: Option<f64>, most: f64, extent: Extent) -> &'static str {
    match (extent, found) {
        // So few in the dev profile prove nothing.
        (Extent::Smoke, _) => "not judged",
        (Extent::Full, None) => "not measured",
        (Extent::Full, Some(found)) if found <= most => "met",
        (Extent::Full, Some(_)) => "MISSED",
    }
}

/// The 99th of a hundred; the slowest where there are fewer.
fn high(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    sorted.get((sorted.len() * 99 / 100).min(last)).copied()
}

const WHAT: &str = "\
- `submit_task`: one call after the other over the daemon's unix socket, each on a connection of its own, to a session whose
  agent waits for its model; from the connection to the answer, by which time the run is on disk.
- new session: from before `submit_task`, the first task of a session, until its `run.log` says that the box has started, which
  is when the agent in it answers the daemon. Bare: from before `opencode serve` is started by hand, with the same program and
  variables and a new home, until `/global/health` answers; each request for it has a connection of its own and 200 ms.
- stopped session: the same with the next task, after the session was stopped for being idle. Bare: in the home of before.
- model asked: from the same moment until the first request of the task arrives at the model. Bare: a conversation is made and
  prompted by hand as soon as it answers.
- seen as running: from the event `session.status` of OpenCode that says `busy` until a `get_status` that was sent then is
  answered with a run that is not queued any more. Seen as completed: from the first event of OpenCode that says that its session
  is idle until a `get_status` with `wait_seconds`, which waits since the run was submitted, is answered with its answer. Events
  are heard on a second subscription to the agent in the box.
- p99 is the slowest where there are fewer than a hundred. Boxes and bare ones alternate, and so does which is first.
";

#[cfg(test)]
mod tests {
    use super::{BOXES, Extent, Found, Pair, Row, Size, boxes, high, judged};

    fn row() -> Row {
        Row::new("x", boxes::Aim::None, vec![1.0], vec![2.0])
    }

    fn found() -> Found {
        let pair = || Pair { ours: vec![11.0, 12.0, 13.0], bare: vec![10.0, 10.0, 10.0] };
        Found {
            version: "1".into(),
            submit: vec![5.0; 200],
            running: vec![1.0],
            ended: vec![60.0],
            ready: pair(),
            asked: pair(),
            woken: pair(),
            woken_asked: pair(),
            boxes: vec![row(); BOXES],
        }
    }

    #[test]
    fn aims_are_judged_by_medians_and_their_ratio() {
        let lines = found().lines(Extent::Full);
        let verdicts: Vec<&str> = lines[1..].iter().map(|line| line[7].as_str()).collect();
        assert_eq!(verdicts, ["met", "MISSED", "–", "MISSED", "–", "met", "MISSED"]);
        assert_eq!(lines[2][2..6], ["12.0", "13.0", "10.0", "1.20"].map(str::to_owned));
        assert_eq!(judged(None, 1.0, Extent::Full), "not measured");
        assert!(found().lines(Extent::Smoke).iter().all(|line| line[7] != "met" && line[7] != "MISSED"));
    }

    #[test]
    fn a_figure_that_did_not_come_out_is_noticed() {
        let size = Size { submits: 200, starts: 3, runs: 1 };
        assert!(found().is_whole(size));
        let mut short = found();
        short.woken.bare.pop();
        assert!(!short.is_whole(size));
        let mut wrong = found();
        wrong.ended[0] = f64::NAN;
        assert!(!wrong.is_whole(size));
        let mut short = found();
        short.boxes.pop();
        assert!(!short.is_whole(size));
        let mut wrong = found();
        wrong.boxes[0].with.clear();
        assert!(!wrong.is_whole(size));
        assert!(!Found::default().is_whole(size));
    }

    #[test]
    fn the_high_end_is_the_slowest_of_a_few() {
        assert_eq!(high(&[]), None);
        assert_eq!(high(&[3.0, 1.0]), Some(3.0));
        let hundreds: Vec<f64> = (0..200).map(f64::from).collect();
        assert_eq!(high(&hundreds), Some(198.0));
    }
}
