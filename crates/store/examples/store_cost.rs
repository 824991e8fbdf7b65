//! What the store costs: `cargo run --release -p store --example store_cost -- [--directory PATH]`. One figure a line:
//! name, tab, value. The file is made in a temporary directory, beneath the one that is named, and removed.

use std::io::Write as _;
use std::time::{Duration, Instant};

use model::Principal;
use model::ports::store::{
    ImageChoice, Lease, LeaseOutcome, Listed, NewRun, NewSession, Page, RunResult, Store as _,
    StoreForScheduler as _, TakeOver,
};
use model::session::{Ending, MessageId, OwnerId, Phase, RunId, SessionId, Stamp, UnixMillis};
use store::{Place, SqliteStore};

const SESSIONS: u64 = 1_000;
const RUNS: u64 = 500;
const NOW: UnixMillis = UnixMillis(1);

fn stamp(number: u64) -> Stamp {
    Stamp { millis: number, random: [7; 10] }
}

fn wanted(number: u64) -> NewSession {
    NewSession {
        id: SessionId::new(stamp(number)),
        name: Some(format!("session {number}")),
        reuse_key: Some(format!("key {number}")),
        image: ImageChoice::Default("runtime:latest".to_owned()),
        runtime: "local".to_owned(),
        settings: format!(r#"{{"model":"ollama/gpt-oss:20b","padding":"{}"}}"#, "x".repeat(500)),
        workspace: format!("/srv/sessions/{number}/workspace"),
        made_by: None,
    }
}

fn task(number: u64) -> NewRun {
    NewRun {
        id: RunId::new(stamp(number)),
        session: SessionId::new(stamp(number % 8)),
        task: "Profile the CSV files in /workspace and summarize the main issues.".to_owned(),
        idempotency_key: Some(number.to_string()),
        output_schema: None,
        model: None,
        asked_by: None,
    }
}

fn middle(mut took: Vec<Duration>) -> String {
    took.sort();
    let of = |part: usize| took.get(took.len() * part / 100).copied().unwrap_or_default().as_secs_f64() * 1e3;
    format!("{:.2}\t(p99 {:.2})", of(50), of(99))
}

fn main() -> std::io::Result<()> {
    let beneath = match std::env::args().skip(1).collect::<Vec<_>>().as_slice() {
        [] => Some(std::env::temp_dir()),
        [name, path] if name == "--directory" => Some(path.into()),
        _ => None,
    };
    let beneath = beneath.ok_or_else(|| std::io::Error::other("usage: store_cost [--directory PATH]"))?;
    let directory = tempfile::tempdir_in(beneath)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(measure(&Place::of(directory.path()))).map_err(std::io::Error::other)
}

async fn measure(place: &Place) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut out = std::io::stdout();
    let store = SqliteStore::open(place).await?;
    let principal = Principal::local();
    let mut took = Vec::new();
    for number in 0..SESSIONS {
        let begun = Instant::now();
        store.create_or_reuse(&principal, wanted(number), NOW).await?;
        took.push(begun.elapsed());
    }
    writeln!(out, "to make a session, median ms\t{}", middle(took))?;
    let mut took = Vec::new();
    for number in 0..RUNS {
        let begun = Instant::now();
        store.submit(&principal, task(number), NOW).await?;
        took.push(begun.elapsed());
    }
    writeln!(out, "to submit a task, median ms\t{}", middle(took))?;
    let begun = Instant::now();
    let submits = (RUNS..RUNS + 64).map(|number| store.submit(&principal, task(number), NOW));
    let mut last = Ok(());
    for submit in submits.collect::<Vec<_>>() {
        last = submit.await.map(drop);
    }
    last?;
    writeln!(out, "64 tasks one after the other, ms\t{:.1}", begun.elapsed().as_secs_f64() * 1e3)?;
    run(&store, &mut out).await?;
    let mut took = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        let page = Page { after: None, limit: 1_000 };
        let listed = store.list_sessions(&principal, Listed::Live, page).await?.len();
        took.push(begun.elapsed());
        assert_eq!(listed as u64, SESSIONS);
    }
    writeln!(out, "to list {SESSIONS} sessions, median ms\t{}", middle(took))?;
    let mut took = Vec::new();
    for number in 0..1_000 {
        let begun = Instant::now();
        store.run(&principal, &task(number % RUNS).id).await?;
        took.push(begun.elapsed());
    }
    writeln!(out, "to read a run, median ms\t{}", middle(took))?;
    store.close().await;
    let begun = Instant::now();
    SqliteStore::open(place).await?.close().await;
    writeln!(out, "to open and close again, ms\t{:.1}", begun.elapsed().as_secs_f64() * 1e3)?;
    Ok(())
}

/// From the queue to the end, one after the other.
async fn run(
    store: &SqliteStore,
    out: &mut impl std::io::Write,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let owner = OwnerId::new(stamp(1));
    store.enroll(&owner, TakeOver::Everybody, UnixMillis(1_000)).await?;
    let leased = store.lease(&SessionId::new(stamp(3)), &owner, NOW).await?;
    let LeaseOutcome::Leased(lease) = leased else { return Err("nobody else is there".into()) };
    let mut took = Vec::new();
    for number in 0..RUNS / 8 {
        let begun = Instant::now();
        once(store, &lease, number).await?;
        took.push(begun.elapsed());
    }
    writeln!(out, "to claim, advance twice and end a run, median ms\t{}", middle(took))?;
    Ok(())
}

async fn once(
    store: &SqliteStore,
    lease: &Lease,
    number: u64,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    store.claim(lease, MessageId::new(stamp(number)), NOW).await?;
    let run = task(number * 8 + 3).id;
    store.advance(lease, &run, Phase::Prompting).await?;
    store.advance(lease, &run, Phase::Finishing).await?;
    let ending = Ending::Completed {
        final_output: "x".repeat(2_000),
        structured_output: None,
        result_summary: "done".to_owned(),
    };
    store.finish(lease, &run, RunResult { ending, usage: None }, NOW).await?;
    Ok(())
}
