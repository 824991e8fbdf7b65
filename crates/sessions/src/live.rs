//! What is so right now. Nothing of it is on disk, but what a run has used: a daemon that starts finds the rest out again.

mod metered;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::ports::sandbox::Holds;
use model::session::{RunId, RunUsage, SessionId, UnixMillis};
use model::settings::Budget;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::warm::Pool;
pub use metered::Metered;
use metered::Tally;

/// How long requests of a run that is over may take to end by themselves, and how long when they are cut off.
const BY_ITSELF: Duration = Duration::from_millis(300);
const CUT_OFF: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

/// How a session's box is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Temper {
    /// There is none. The next task starts one.
    Stopped,
    Starting,
    /// It waits for a task.
    Ready,
    Busy,
    Stopping,
}

impl Temper {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Busy => "busy",
            Self::Stopping => "stopping",
        }
    }
}

/// How far a run is, as far as anybody has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Progress {
    /// More with every change, so that it can be told apart from what was told before.
    pub beat: u64,
    pub steps: u32,
    pub tools: u32,
    /// What happened last, on one line.
    pub last: String,
}

/// A session that is hot, or on its way there or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hot {
    pub temper: Temper,
    /// Since when it is like this.
    pub since: UnixMillis,
    /// What its box is held to.
    pub holds: Option<Holds>,
}

#[derive(Debug, Default)]
pub struct Live {
    hot: Mutex<HashMap<SessionId, Hot>>,
    runs: Mutex<HashMap<RunId, Followed>>,
    /// The run of each session that is driven here.
    at_work: Mutex<HashMap<SessionId, RunId>>,
    /// Sessions for which there is something new in the store.
    called: Mutex<HashSet<SessionId>>,
    /// Boxes that are nobody's yet.
    pub(crate) pool: Arc<Pool>,
    /// Somebody has something for the engine to see to.
    pub(crate) bell: Notify,
}

/// A request that may go out.
#[derive(Debug, Clone)]
pub struct Asking {
    pub run: RunId,
    /// Cancelled when the run is over, and the request with it.
    pub over: CancellationToken,
}

/// Why a box may not ask its provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unasked {
    /// Nothing is at work in it.
    NoRun,
    /// The run has made all the requests it may.
    Requests,
    /// … used all the tokens.
    Tokens,
}

#[derive(Debug, Default)]
struct Followed {
    progress: watch::Sender<Progress>,
    metered: Metered,
    tally: Option<Tally>,
    /// Requests to its provider that are under way.
    open: u32,
    /// Cancelled once it may ask for nothing more.
    over: CancellationToken,
    /// Set by whoever runs it; cancelled where somebody asks for its end.
    cancel: Option<CancellationToken>,
}

/// Someone who follows a run.
#[derive(Debug)]
pub struct Following(watch::Receiver<Progress>);

impl Following {
    pub fn now(&self) -> Progress {
        self.0.borrow().clone()
    }

    /// Returns when something has changed since this was last called, or the run has ended. May also return for nothing.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // Nobody tells any more. Whoever asks in a loop must not spin.
            std::future::pending::<()>().await;
        }
    }
}

impl Live {
    pub fn hot(&self, session: &SessionId) -> Option<Hot> {
        self.lock_hot().get(session).copied()
    }

    pub fn count(&self) -> usize {
        self.lock_hot().values().filter(|hot| hot.temper != Temper::Stopped).count()
    }

    pub(crate) fn all(&self) -> HashMap<SessionId, Hot> {
        self.lock_hot().clone()
    }

    pub(crate) fn set(&self, session: &SessionId, temper: Temper, since: UnixMillis) {
        let mut hot = self.lock_hot();
        let holds = hot.get(session).and_then(|hot| hot.holds);
        hot.insert(session.clone(), Hot { temper, since, holds });
    }

    pub(crate) fn set_holds(&self, session: &SessionId, holds: Holds) {
        if let Some(hot) = self.lock_hot().get_mut(session) {
            hot.holds = Some(holds);
        }
    }

    pub(crate) fn gone(&self, session: &SessionId) {
        self.lock_hot().remove(session);
    }

    /// To be asked for before the run is looked at: what happens in between is then not missed.
    pub fn follow(&self, run: &RunId) -> Following {
        let mut runs = self.lock_runs();
        if runs.len() > 1024 {
            runs.retain(|_, run| run.cancel.is_some() || run.progress.receiver_count() > 0);
        }
        Following(runs.entry(run.clone()).or_default().progress.subscribe())
    }

    pub fn progress(&self, run: &RunId) -> Option<Progress> {
        let runs = self.lock_runs();
        let run = runs.get(run).filter(|run| run.cancel.is_some())?;
        Some(run.progress.borrow().clone())
    }

    /// The run of a session that is driven here now: whatever its box asks for is asked for by it.
    pub fn at_work(&self, session: &SessionId) -> Option<RunId> {
        self.lock_at_work().get(session).cloned()
    }

    /// The run at work asks its provider, if it may. Counted here: of many at once none is let by that is one too many.
    /// Tokens are known afterwards, so that requests under way may go beyond.
    pub fn ask(&self, session: &SessionId, budget: Budget) -> Result<Asking, Unasked> {
        let run = self.at_work(session).ok_or(Unasked::NoRun)?;
        let mut runs = self.lock_runs();
        let followed = runs.get_mut(&run).filter(|run| !run.over.is_cancelled()).ok_or(Unasked::NoRun)?;
        let Metered { requests, tokens, .. } = &mut followed.metered;
        if budget.requests.is_some_and(|most| *requests >= most) {
            return Err(Unasked::Requests);
        }
        if budget.tokens.is_some_and(|most| *tokens >= most) {
            return Err(Unasked::Tokens);
        }
        *requests += 1;
        followed.open += 1;
        let (over, tally) = (followed.over.clone(), followed.tally.clone());
        drop(runs);
        self.write_down(&run, tally);
        Ok(Asking { run, over })
    }

    /// What one of its requests used, once each. A run that has ended is not heard of any more.
    pub fn used(&self, run: &RunId, tokens: u64, usage: Option<RunUsage>) {
        let mut tally = None;
        if let Some(entry) = self.lock_runs().get_mut(run) {
            entry.open = entry.open.saturating_sub(1);
            let metered = &mut entry.metered;
            metered.tokens = metered.tokens.saturating_add(tokens);
            metered.usage = metered.usage.plus(usage.unwrap_or_default());
            tally.clone_from(&entry.tally);
        }
        self.write_down(run, tally);
    }

    fn write_down(&self, run: &RunId, tally: Option<Tally>) {
        if let Some(tally) = tally {
            tally.write(|| self.lock_runs().get(run).map(|run| run.metered));
        }
    }

    /// Nothing more is asked for by a run that is over, and what it asked for comes to its end: by itself, such as a
    /// title, or cut off, so that it is counted.
    pub(crate) async fn close(&self, run: &RunId) {
        self.until_asked(run, BY_ITSELF).await;
        if let Some(entry) = self.lock_runs().get(run) {
            entry.over.cancel();
        }
        self.until_asked(run, CUT_OFF).await;
    }

    async fn until_asked(&self, run: &RunId, within: Duration) {
        let until = Instant::now() + within;
        while self.lock_runs().get(run).is_some_and(|run| run.open > 0) && Instant::now() < until {
            sleep(LOOK).await;
        }
    }

    pub fn metered(&self, run: &RunId) -> Metered {
        self.lock_runs().get(run).map(|run| run.metered).unwrap_or_default()
    }

    /// From now on this run is driven here. What it uses is added to what `tally` says of before.
    pub(crate) fn begin(&self, session: &SessionId, run: &RunId, tally: PathBuf) -> CancellationToken {
        let (tally, before) = Tally::open(tally);
        self.lock_at_work().insert(session.clone(), run.clone());
        let mut runs = self.lock_runs();
        let entry = runs.entry(run.clone()).or_default();
        (entry.tally, entry.metered) = (Some(tally), before);
        let token = CancellationToken::new();
        entry.cancel = Some(token.clone());
        entry.progress.send_modify(|progress| progress.beat += 1);
        token
    }

    /// What goes on for the run at work, on one line.
    pub fn say(&self, session: &SessionId, line: &str) {
        if let Some(run) = self.at_work(session) {
            self.tell(&run, |progress| line.clone_into(&mut progress.last));
        }
    }

    pub(crate) fn tell(&self, run: &RunId, change: impl FnOnce(&mut Progress)) {
        if let Some(entry) = self.lock_runs().get(run) {
            entry.progress.send_modify(|progress| {
                progress.beat += 1;
                change(progress);
            });
        }
    }

    /// Whoever follows looks at the store now, and finds its end.
    pub(crate) fn end(&self, run: &RunId) {
        self.lock_at_work().retain(|_, at_work| at_work != run);
        if let Some(entry) = self.lock_runs().remove(run) {
            entry.progress.send_modify(|progress| progress.beat += 1);
        }
    }

    /// Somebody asked for its end; that is in the store already.
    pub(crate) fn cancel(&self, run: &RunId) {
        if let Some(token) = self.lock_runs().get(run).and_then(|run| run.cancel.as_ref()) {
            token.cancel();
        }
    }

    /// There is something new for a session: its worker is woken, or one is found for it.
    pub(crate) fn call(&self, session: &SessionId) {
        self.called.lock().unwrap_or_else(PoisonError::into_inner).insert(session.clone());
        self.bell.notify_one();
    }

    pub(crate) fn called(&self) -> HashSet<SessionId> {
        std::mem::take(&mut self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock_hot(&self) -> MutexGuard<'_, HashMap<SessionId, Hot>> {
        self.hot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_at_work(&self) -> MutexGuard<'_, HashMap<SessionId, RunId>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_runs(&self) -> MutexGuard<'_, HashMap<RunId, Followed>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use model::session::Stamp;

    use super::*;

    #[tokio::test]
    async fn only_the_run_at_work_asks_and_only_so_often() {
        let live = Live::default();
        let stamp = |number| Stamp { millis: 1, random: [number; 10] };
        let (session, run) = (SessionId::new(stamp(1)), RunId::new(stamp(2)));
        let other = SessionId::new(stamp(3));
        let ask = |session, budget| live.ask(session, budget).map(|asking| asking.run);
        let budget = Budget { requests: Some(2), tokens: Some(100) };
        assert_eq!(ask(&session, budget), Err(Unasked::NoRun));
        let directory = tempfile::tempdir().unwrap();
        let tally = directory.path().join("metered.json");
        live.begin(&session, &run, tally.clone());
        assert_eq!(ask(&other, budget), Err(Unasked::NoRun));
        assert_eq!(ask(&session, budget), Ok(run.clone()));
        live.used(&run, 100, None);
        assert_eq!(ask(&session, budget), Err(Unasked::Tokens));
        let budget = Budget { tokens: None, ..budget };
        let second = live.ask(&session, budget).unwrap();
        assert_eq!(ask(&session, budget), Err(Unasked::Requests));
        assert_eq!(live.metered(&run).requests, 2);
        // One that does not end by itself is cut off, and nothing is asked for any more.
        assert!(!second.over.is_cancelled());
        live.close(&run).await;
        assert!(second.over.is_cancelled());
        assert_eq!(ask(&session, Budget::default()), Err(Unasked::NoRun));
        live.end(&run);
        assert_eq!(ask(&session, Budget::default()), Err(Unasked::NoRun));
        // Another daemon goes on where this one was.
        let next = Live::default();
        next.begin(&session, &run, tally);
        assert_eq!(next.metered(&run), Metered { requests: 2, tokens: 100, usage: RunUsage::default() });
        assert_eq!(next.ask(&session, budget).map(|asking| asking.run), Err(Unasked::Requests));
    }
}
