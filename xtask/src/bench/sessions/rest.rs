//! Boxes that nobody uses: how soon one is a session's, and what they cost meanwhile.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::boxes::{Aim, Row};
use super::milliseconds;
use super::rig::{Daemon, HEALTH, Model, PATIENCE, Programs, Wish, task};
use super::wire::text;
use crate::bench::usage::pss_by_name;

/// An agent that answers is still busy with its start, and the daemon has yet to see it.
const SETTLED: Duration = Duration::from_secs(2);
/// After the end of a run, until all is as it stays.
const REST: Duration = Duration::from_secs(2);

/// Sessions that find a box waiting.
pub(super) fn warm(programs: &Programs, model: &mut Model, rounds: usize) -> Result<Vec<Row>> {
    let mut wish = Wish::local("30m");
    wish.lines.push_str("warm = 1\n");
    let daemon = Daemon::start(programs, model, &wish)?;
    let client = &daemon.client;
    let (mut ready, mut asked, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        until_one_waits(&daemon, &known).with_context(|| daemon.said())?;
        let clock = Instant::now();
        let session = client.call("create_or_reuse_session", &json!({}))?["session"].clone();
        let answered = clock.elapsed();
        anyhow::ensure!(session["status"] == "ready", "no box waited for {session}; {}", daemon.said());
        let session = text(&session["id"])?;
        let word = format!("taken-{round}-");
        let clock = Instant::now();
        let run = client.submit(&session, &task(&word, 0))?;
        let first = model.until_asked(&word)? - clock;
        client.completed(&session, &run, &word)?;
        client.terminate(&session)?;
        println!("  warm: ready {:.1} ms, model asked {:.0} ms", milliseconds(answered), milliseconds(first));
        ready.push(milliseconds(answered));
        asked.push(milliseconds(first));
        known.push(session);
    }
    daemon.stop()?;
    Ok(vec![
        Row::new("warm session: ready", Aim::Most(300.0), ready, Vec::new()),
        Row::new("warm session: model asked", Aim::None, asked, Vec::new()),
    ])
}

fn until_one_waits(daemon: &Daemon, known: &[String]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let waits = |session: &String| {
        !known.contains(session) && daemon.agent(session).is_ok_and(|(agent, _)| agent.healthy(HEALTH))
    };
    while !daemon.sessions().iter().any(waits) {
        anyhow::ensure!(Instant::now() < deadline, "no box is made ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(SETTLED);
    Ok(())
}

/// What is ours, in MB, by the name of the process.
pub(super) type Memory = BTreeMap<String, f64>;

/// PSS of what is ours beneath these. The agent is not, nor what it started.
pub(super) fn memory(roots: &[i32]) -> Result<Memory> {
    let found = pss_by_name(roots, |name| name == "opencode")?;
    Ok(found.into_iter().map(|(name, kilobytes)| (name, kilobytes as f64 / 1024.0)).collect())
}

/// Sessions with a box at rest, from one on; `looked` says what is there after each. Their growth, and their ids.
pub(super) fn growth(
    daemon: &Daemon,
    boxes: usize,
    mut looked: impl FnMut() -> Result<Vec<Memory>>,
) -> Result<(Vec<Vec<f64>>, Vec<String>)> {
    let (mut sessions, mut before): (Vec<String>, Option<Vec<Memory>>) = (Vec::new(), None);
    let mut grown = Vec::new();
    for number in 0..boxes {
        let session = daemon.client.create()?;
        let word = format!("rest-{number}-");
        let run = daemon.client.submit(&session, &task(&word, 0))?;
        daemon.client.completed(&session, &run, &word).with_context(|| daemon.said())?;
        sessions.push(session);
        std::thread::sleep(REST);
        let now = looked()?;
        println!("  {} boxes at rest: {}", number + 1, shown(&now));
        if let Some(before) = before {
            let sum = |memory: &Memory| memory.values().sum::<f64>();
            let pairs = now.iter().zip(&before).map(|(now, before)| sum(now) - sum(before));
            grown.resize(now.len(), Vec::new());
            for (all, more) in grown.iter_mut().zip(pairs) {
                all.push(more);
            }
        }
        before = Some(now);
    }
    Ok((grown, sessions))
}

fn shown(all: &[Memory]) -> String {
    let each = all.iter().flatten().map(|(name, megabytes)| format!("{name} {megabytes:.2} MB"));
    each.collect::<Vec<_>>().join(", ")
}

/// Local boxes. They are gone afterwards.
pub(super) fn local(daemon: &Daemon, boxes: usize) -> Result<Row> {
    let ours = || {
        let roots: Vec<i32> = daemon.keepers().into_iter().chain([daemon.pid()]).collect();
        Ok(vec![memory(&roots)?])
    };
    let (mut grown, sessions) = growth(daemon, boxes, ours)?;
    for session in sessions {
        daemon.client.terminate(&session)?;
    }
    let of_each = grown.pop().context("there must be two boxes at least")?;
    Ok(Row::memory("local box at rest", Aim::Most(4.0), of_each))
}
