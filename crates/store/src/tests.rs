//! The store on a real file. `CALLSIGN_FULL=1` for the sizes that take too long for every day.

mod children;
mod dropped;
mod full;
mod killed;
mod leases;
mod opening;
mod principals;
mod queue;
mod races;
mod sessions;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use model::Principal;
use model::ports::store::*;
use model::session::*;

use crate::{OpenError, Place, SqliteStore};

fn full_size() -> bool {
    std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1")
}

/// One after the other, also over several processes.
fn stamp() -> Stamp {
    static NEXT: AtomicU64 = AtomicU64::new(1_794_800_000_000);
    let mut random = [0; 10];
    getrandom::fill(&mut random).unwrap();
    Stamp { millis: NEXT.fetch_add(1, Ordering::Relaxed), random }
}

fn at(millis: u64) -> UnixMillis {
    UnixMillis(millis)
}

fn alice() -> Principal {
    Principal::new("alice").unwrap()
}

fn wanted(reuse_key: Option<&str>) -> NewSession {
    NewSession {
        id: SessionId::new(stamp()),
        name: Some("analysis".to_owned()),
        reuse_key: reuse_key.map(str::to_owned),
        image: ImageChoice::Default("runtime:latest".to_owned()),
        runtime: "local".to_owned(),
        settings: r#"{"model":"ollama/gpt-oss:20b"}"#.to_owned(),
        workspace: "/srv/sessions/x/workspace".to_owned(),
        made_by: Some(r#"{"host":"codex"}"#.to_owned()),
    }
}

fn task(session: &SessionId, task: &str) -> NewRun {
    NewRun {
        id: RunId::new(stamp()),
        session: session.clone(),
        task: task.to_owned(),
        idempotency_key: None,
        output_schema: None,
        model: None,
        asked_by: Some(r#"{"host":"opencode"}"#.to_owned()),
    }
}

fn keyed(session: &SessionId, key: &str, text: &str) -> NewRun {
    NewRun { idempotency_key: Some(key.to_owned()), ..task(session, text) }
}

fn completed(text: &str) -> RunResult {
    let ending = Ending::Completed {
        final_output: text.to_owned(),
        structured_output: Some("{}".to_owned()),
        result_summary: "done".to_owned(),
    };
    let usage = RunUsage {
        input_tokens: 1,
        output_tokens: 2,
        reasoning_tokens: 3,
        cache_read_tokens: 4,
        cache_write_tokens: 5,
        cost_micros: 6,
    };
    RunResult { ending, usage: Some(usage) }
}

fn failed() -> RunResult {
    let ending = Ending::Failed { code: "provider".to_owned(), message: "it said no".to_owned() };
    RunResult { ending, usage: None }
}

fn canceled(by: CanceledBy) -> RunResult {
    RunResult { ending: Ending::Canceled { by }, usage: None }
}

async fn open(state: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(&Place::of(state)).await.unwrap())
}

/// A directory whose file system needs no disk: for what is about order and not about durability.
fn quick_directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_absent| tempfile::tempdir()).unwrap()
}

async fn new_session(store: &SqliteStore, principal: &Principal) -> SessionId {
    let outcome = store.create_or_reuse(principal, wanted(None), at(1_000)).await.unwrap();
    let CreateOutcome::Created(session) = outcome else { panic!("{outcome:?}") };
    session.id
}

async fn submit(store: &SqliteStore, principal: &Principal, run: NewRun) -> Run {
    let outcome = store.submit(principal, run, at(2_000)).await.unwrap();
    let SubmitOutcome::Submitted(run) = outcome else { panic!("{outcome:?}") };
    run
}

/// An owner that is alive until 1,000,000.
async fn owner(store: &SqliteStore, take_over: TakeOver) -> OwnerId {
    let owner = OwnerId::new(stamp());
    store.enroll(&owner, take_over, at(1_000_000)).await.unwrap();
    owner
}

async fn lease(store: &SqliteStore, session: &SessionId, owner: &OwnerId) -> Lease {
    let outcome = store.lease(session, owner, at(3_000)).await.unwrap();
    let LeaseOutcome::Leased(lease) = outcome else { panic!("{outcome:?}") };
    lease
}

async fn claim(store: &SqliteStore, lease: &Lease) -> ClaimOutcome {
    store.claim(lease, MessageId::new(stamp()), at(4_000)).await.unwrap()
}

async fn next(store: &SqliteStore, lease: &Lease) -> Run {
    let outcome = claim(store, lease).await;
    let ClaimOutcome::Next(run) = outcome else { panic!("{outcome:?}") };
    run
}

async fn finish(store: &SqliteStore, lease: &Lease, run: &RunId, result: RunResult) -> FinishOutcome {
    store.finish(lease, run, result, at(5_000)).await.unwrap()
}
