//! The one who runs the sessions of all principals: takes over what was left, gives places, ends what is idle.
//!
//! One task. It looks when the bell rings, when a worker ends, and now and then; what it finds in the store is the truth,
//! so a ring that is missed costs a moment and nothing else.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::Principal;
use model::ports::sandbox::{BoxState, Sandbox as _};
use model::ports::store::{Recovery, Store, StoreError, StoreForScheduler, TakeOver, Written};
use model::session::{OwnerId, SessionId, SessionStatus, UnixMillis};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::admission::{Decision, Doing, Placed, Room, Rules, Waits, admit, make_room};
use crate::layout::Layout;
use crate::live::{Hot, Live, Temper};
use crate::warm::{Recipe, Warming, Warmth};
use crate::worker::{Left, Orders, Shared, Worker};
use crate::world::{Rooms, World};

/// How often is looked although nothing rang.
const TICK: Duration = Duration::from_secs(1);
/// How often is said that we are alive, and how long that counts.
const HEARTBEAT: Duration = Duration::from_secs(5);
const ALIVE: Duration = Duration::from_secs(30);
/// How long one may wait before others give way.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many that wait are looked at.
const LOOKED_AT: u32 = 256;
/// How long workers have to stop their boxes at the end.
const GOODBYE: Duration = Duration::from_secs(10);
/// How long a session that gave trouble is left alone, at first and at most.
const TROUBLE: Duration = Duration::from_secs(1);
const MOST_TROUBLE: Duration = Duration::from_secs(30);
/// How long no box is kept ready after one that could not be, at most.
const MOST_COLD: Duration = Duration::from_mins(5);
/// How long one must have rested before its place is for one that is kept ready.
const SETTLED: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// How many boxes there may be at a time.
    pub max_hot: usize,
    /// How long one may rest.
    pub idle: Duration,
    /// How many boxes are kept ready for sessions to come.
    pub warm: usize,
}

pub struct Engine<S, R> {
    shared: Arc<Shared<S, R>>,
    rules: Rules,
    workers: HashMap<SessionId, Hired>,
    tasks: JoinSet<Left>,
    by_task: HashMap<Id, SessionId>,
    /// Runs that somebody left: their sessions come before all others.
    left: VecDeque<(Waits, Principal)>,
    /// Sessions that are to end, and need no place for that.
    ending: Vec<(SessionId, Principal)>,
    trouble: HashMap<SessionId, (Instant, Duration)>,
    /// Until when no box is kept ready, and how long that was.
    cold: Option<(Instant, Duration)>,
}

#[derive(Debug)]
struct Hired {
    principal: Principal,
    orders: Orders,
    since: UnixMillis,
    /// It ends what there is, and takes no place.
    only_ends: bool,
}

impl<S, R> fmt::Debug for Engine<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("shared", &self.shared).finish_non_exhaustive()
    }
}

impl<S, R> Engine<S, R>
where
    S: Store + StoreForScheduler + 'static,
    R: Rooms,
{
    /// `store`, `live` and `layout` are those of the desk.
    pub fn new(
        store: Arc<S>,
        rooms: Arc<R>,
        live: Arc<Live>,
        (layout, world): (Layout, Arc<dyn World>),
        options: Options,
    ) -> Self {
        let owner = OwnerId::new(world.stamp());
        live.pool.resize(options.warm);
        let rules = Rules {
            places: options.max_hot.max(1),
            rest: options.idle,
            patience: PATIENCE,
            settled: SETTLED,
        };
        Self {
            shared: Arc::new(Shared { store, rooms, live, layout, world, owner }),
            rules,
            workers: HashMap::new(),
            tasks: JoinSet::new(),
            by_task: HashMap::new(),
            left: VecDeque::new(),
            ending: Vec::new(),
            trouble: HashMap::new(),
            cold: None,
        }
    }

    /// Takes over what a daemon before left: runs, boxes, sessions that were to end. The caller has made sure that there
    /// is no other daemon on this store. To be called once, before [`Self::run`].
    pub async fn recover(&mut self) -> Result<(), StoreError> {
        let Shared { store, world, owner, .. } = &*self.shared;
        store.enroll(owner, TakeOver::Everybody, until(world.now())).await?;
        let Recovery { running, terminating } = store.recover(world.now()).await?;
        for run in running {
            let waits = Waits { session: run.session, since: run.created_at };
            self.left.push_back((waits, run.principal));
        }
        self.ending.extend(terminating.into_iter().map(|session| (session.id, session.principal)));
        self.find_boxes().await?;
        self.collect().await
    }

    /// Boxes that run belong to their sessions; those of nobody end.
    async fn find_boxes(&mut self) -> Result<(), StoreError> {
        let found = match self.shared.rooms.sandbox().find_all().await {
            Ok(found) => found,
            Err(error) => {
                tracing::error!(%error, "boxes of a daemon before cannot be found");
                return Ok(());
            }
        };
        let named = |name: &model::ports::sandbox::BoxName| SessionId::parse(name.as_str()).ok();
        let ids: Vec<SessionId> = found.iter().filter_map(|(name, _)| named(name)).collect();
        let known = self.shared.store.known(&ids).await?;
        for (name, state) in found {
            let session = known.iter().find(|session| session.id.as_str() == name.as_str());
            let ours = session.filter(|session| match session.status {
                SessionStatus::Live | SessionStatus::Terminating { .. } => true,
                SessionStatus::Terminated { .. } => false,
            });
            match (ours, state) {
                // Nobody knows about the last ones yet: they are asked for until there is an answer.
                (Some(session), BoxState::Running(_) | BoxState::Starting | BoxState::Unknown) => {
                    let now = self.shared.world.now();
                    self.shared.live.set(&session.id, Temper::Ready, now);
                    self.left.retain(|(waits, _)| waits.session != session.id);
                    self.ending.retain(|(id, _)| *id != session.id);
                    self.hire(&session.id, &session.principal, false);
                }
                // How it ended is told when its run is taken over.
                (Some(_), BoxState::Ended(_) | BoxState::Absent) => {}
                // It is found by the next daemon, or ends by itself.
                (None, BoxState::Unknown) => tracing::warn!(%name, "a box of nobody may be left"),
                (None, _) => {
                    tracing::info!(%name, "a box of nobody is ended");
                    let sandbox = self.shared.rooms.sandbox();
                    let ended =
                        async { sandbox.kill(&name).await.map(drop).and(sandbox.forget(&name).await) };
                    if let Err(error) = ended.await {
                        tracing::warn!(%name, %error, "a box of nobody could not be ended");
                    }
                }
            }
        }
        Ok(())
    }

    /// Directories of sessions that never came to be: whoever made one was cut off.
    async fn collect(&self) -> Result<(), StoreError> {
        let Shared { store, layout, .. } = &*self.shared;
        let all = match layout.all() {
            Ok(all) => all,
            Err(error) => {
                tracing::warn!(%error, "the sessions' directories cannot be listed");
                return Ok(());
            }
        };
        let known = store.known(&all).await?;
        for session in all {
            let of = known.iter().find(|known| known.id == session).map(|known| known.status);
            let is_kept = match of {
                None => false,
                Some(SessionStatus::Terminated { keep: model::session::Keep::Nothing, .. }) => false,
                Some(
                    SessionStatus::Live
                    | SessionStatus::Terminating { .. }
                    | SessionStatus::Terminated { .. },
                ) => true,
            };
            if !is_kept {
                tracing::info!(%session, "a directory of nobody is removed");
                // On a thread of its own and not waited for: there may be very much of it.
                let dirs = layout.of(&session);
                drop(tokio::task::spawn_blocking(move || {
                    if let Err(error) = dirs.remove() {
                        tracing::warn!(%session, %error, "a directory of nobody could not be removed");
                    }
                }));
            }
        }
        Ok(())
    }

    /// Runs until `stop`. Boxes at rest are stopped then; those at work go on, and whoever comes next finds them.
    pub async fn run(mut self, stop: CancellationToken) {
        let live = Arc::clone(&self.shared.live);
        let mut tick = interval(TICK);
        let mut beat = interval(HEARTBEAT);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = live.bell.notified() => {}
                Some(ended) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => {
                    self.dismiss(ended);
                }
                _ = tick.tick() => {}
                _ = beat.tick() => if !self.heartbeat().await { break },
            }
            if let Err(error) = self.round().await {
                tracing::warn!(%error, "who waits cannot be seen; it is looked again in a moment");
            }
        }
        self.goodbye().await;
    }

    /// False: somebody else has taken over everything.
    async fn heartbeat(&self) -> bool {
        let Shared { store, world, owner, .. } = &*self.shared;
        match store.heartbeat(owner, until(world.now())).await {
            Ok(Written::Done) => true,
            Ok(Written::Fenced) => {
                tracing::error!("another daemon has taken the sessions over; this one lets them go");
                false
            }
            Err(error) => {
                tracing::warn!(%error, "the store did not take a sign of life");
                true
            }
        }
    }

    async fn round(&mut self) -> Result<(), StoreError> {
        let Shared { store, world, live, .. } = &*self.shared;
        for session in live.called() {
            if let Some(hired) = self.workers.get(&session) {
                hired.orders.wake.notify_one();
            }
        }
        let waiting = store.waiting(LOOKED_AT).await?;
        let ending = store.recover(world.now()).await?.terminating;
        let now = world.now();
        // Those whose owner is this daemon are not in it; they are told by their workers, who look themselves.
        let ending = ending.into_iter().map(|session| (session.id, session.principal));
        let ending: Vec<(SessionId, Principal)> = self.ending.drain(..).chain(ending).collect();
        for (session, principal) in ending {
            // One that has just been taken gets a worker in a moment.
            if self.is_troubled(&session) || self.shared.live.pool.has(&session) {
                self.ending.push((session, principal));
            } else if let Some(hired) = self.workers.get(&session) {
                hired.orders.wake.notify_one();
            } else if self.left.iter().all(|(waits, _)| waits.session != session) {
                // One with a run that was left may need a box: it waits for a place like the others.
                self.hire(&session, &principal, true);
            }
        }
        let mut principals: HashMap<SessionId, Principal> = HashMap::new();
        let mut all: Vec<Waits> = Vec::new();
        let left = self.left.iter().cloned();
        let queued = waiting
            .into_iter()
            .map(|waiting| (Waits { session: waiting.session, since: waiting.since }, waiting.principal));
        for (waits, principal) in left.chain(queued) {
            if !self.is_troubled(&waits.session)
                && principals.insert(waits.session.clone(), principal).is_none()
            {
                all.push(waits);
            }
        }
        for decision in admit(self.rules, &self.placed(), &all, now) {
            self.decide(&decision, &principals);
        }
        let placed = |waits: &Waits| self.workers.contains_key(&waits.session);
        if all.iter().all(placed) {
            self.keep_warm(&all);
        }
        Ok(())
    }

    /// In places that nobody needs.
    fn keep_warm(&mut self, waiting: &[Waits]) {
        let balance = self.shared.live.pool.balance();
        for id in &balance.surplus {
            self.shared.live.pool.leave(id);
        }
        if self.cold.is_some_and(|(until, _)| Instant::now() < until) {
            return;
        }
        let lacking = balance.lacking.into_iter().filter(|recipe| self.is_warmed(recipe));
        let lacking: Vec<Arc<Recipe>> = lacking.collect();
        // Only sessions of whoever has the use of it make room, and none that has just been woken.
        let now = self.shared.world.now();
        let mut placed = self.placed();
        for placed in &mut placed {
            let hired = self.workers.get(&placed.session);
            let is_theirs = |hired: &Hired| lacking.iter().any(|recipe| recipe.principal == hired.principal);
            let is_wanted = waiting.iter().any(|waits| waits.session == placed.session);
            if is_wanted || !hired.is_some_and(is_theirs) {
                placed.doing = match placed.doing {
                    Doing::Resting { .. } => Doing::Working { since: now },
                    doing @ (Doing::Working { .. } | Doing::Warm | Doing::GivingWay | Doing::Leaving) => {
                        doing
                    }
                };
            }
        }
        let Room { free, stop } = make_room(self.rules, &placed, lacking.len(), now);
        for session in &stop {
            self.decide(&Decision::Stop(session.clone()), &HashMap::new());
        }
        for recipe in lacking.into_iter().take(free) {
            let id = SessionId::new(self.shared.world.stamp());
            let changed = self.shared.live.pool.begin(&id, Arc::clone(&recipe));
            let warming = Warming { shared: Arc::clone(&self.shared), id: id.clone(), recipe, changed };
            let task = self.tasks.spawn(warming.keep());
            self.by_task.insert(task.id(), id);
        }
    }

    /// What goes into a box besides may change until there is a session.
    fn is_warmed(&self, recipe: &Recipe) -> bool {
        let settings = self.shared.rooms.settings(&recipe.settings, recipe.key.clone());
        settings.is_ok_and(|settings| settings.extras_dir.is_none())
    }

    fn placed(&self) -> Vec<Placed> {
        let live = self.shared.live.all();
        let placed = self.workers.iter().filter(|(_, hired)| !hired.only_ends);
        let warm = self.shared.live.pool.all().into_iter().map(|(session, warmth)| {
            let doing = match warmth {
                Warmth::Starting | Warmth::Ready => Doing::Warm,
                Warmth::Lent | Warmth::Taken => Doing::Working { since: self.shared.world.now() },
                Warmth::Leaving => Doing::Leaving,
            };
            Placed { session, doing }
        });
        placed
            .map(|(session, hired)| {
                let doing = match live.get(session) {
                    // Asked to go, and still at work: nobody knows for how long.
                    Some(Hot { temper: Temper::Starting | Temper::Busy, .. })
                        if hired.orders.leave.is_cancelled() =>
                    {
                        Doing::GivingWay
                    }
                    _ if hired.orders.leave.is_cancelled() => Doing::Leaving,
                    Some(hot) => match hot.temper {
                        Temper::Ready => Doing::Resting { since: hot.since },
                        Temper::Stopping | Temper::Stopped => Doing::Leaving,
                        Temper::Starting | Temper::Busy => Doing::Working { since: hired.since },
                    },
                    None => Doing::Working { since: hired.since },
                };
                Placed { session: session.clone(), doing }
            })
            .chain(warm)
            .collect()
    }

    fn decide(&mut self, decision: &Decision, principals: &HashMap<SessionId, Principal>) {
        match decision {
            Decision::Start(session) => {
                self.left.retain(|(waits, _)| waits.session != *session);
                if let Some(principal) = principals.get(session) {
                    self.hire(session, principal, false);
                }
            }
            Decision::Wake(session) => {
                if let Some(hired) = self.workers.get(session) {
                    hired.orders.wake.notify_one();
                }
            }
            Decision::Stop(session) | Decision::GiveWay(session) => {
                if let Some(hired) = self.workers.get(session) {
                    hired.orders.leave.cancel();
                } else {
                    self.shared.live.pool.leave(session);
                }
            }
        }
    }

    fn hire(&mut self, session: &SessionId, principal: &Principal, only_ends: bool) {
        let orders = Orders::default();
        let worker = Worker {
            shared: Arc::clone(&self.shared),
            session: session.clone(),
            principal: principal.clone(),
            orders: orders.clone(),
        };
        let task = self.tasks.spawn(worker.work());
        self.by_task.insert(task.id(), session.clone());
        let (principal, since) = (principal.clone(), self.shared.world.now());
        self.workers.insert(session.clone(), Hired { principal, orders, since, only_ends });
    }

    fn dismiss(&mut self, ended: Result<(Id, Left), tokio::task::JoinError>) {
        let mut panicked = false;
        let (id, left) = match ended {
            Ok((id, left)) => (id, left),
            Err(error) => {
                panicked = true;
                tracing::error!(%error, "a worker has panicked; what it did is taken up again");
                (error.id(), Left::Trouble)
            }
        };
        let Some(session) = self.by_task.remove(&id) else { return };
        if let Some((warmth, principal)) = self.shared.live.pool.retire(&session) {
            match (warmth, left) {
                (Warmth::Taken, _) => {
                    self.cold = None;
                    self.hire(&session, &principal, false);
                }
                (_, Left::Done) => self.cold = None,
                // Of a session or of nobody: a worker finds out, and ends what is nobody's.
                (_, Left::Trouble) if panicked => self.hire(&session, &principal, true),
                (_, Left::Trouble) => {
                    let pause = self.cold.map_or(TROUBLE, |(_, pause)| (pause * 2).min(MOST_COLD));
                    self.cold = Some((Instant::now() + pause, pause));
                }
            }
            return;
        }
        let hired = self.workers.remove(&session);
        self.shared.live.gone(&session);
        match left {
            Left::Done => {
                self.trouble.remove(&session);
            }
            Left::Trouble => {
                let pause =
                    self.trouble.get(&session).map_or(TROUBLE, |(_, pause)| (*pause * 2).min(MOST_TROUBLE));
                self.trouble.insert(session.clone(), (Instant::now() + pause, pause));
                // Its run may still be running under our own lease, and then it is in no list of those that wait.
                if let Some(hired) = hired {
                    let waits = Waits { session, since: self.shared.world.now() };
                    self.left.push_back((waits, hired.principal));
                }
            }
        }
    }

    fn is_troubled(&self, session: &SessionId) -> bool {
        self.trouble.get(session).is_some_and(|(until, _)| Instant::now() < *until)
    }

    async fn goodbye(mut self) {
        for hired in self.workers.values() {
            hired.orders.leave.cancel();
        }
        let live = Arc::clone(&self.shared.live);
        for (id, _) in live.pool.all() {
            live.pool.leave(&id);
        }
        let ended = |by_task: &mut HashMap<Id, SessionId>, id: Id| {
            if let Some(session) = by_task.remove(&id) {
                live.pool.retire(&session);
            }
        };
        let resting = || {
            let is_over = |temper: Temper| match temper {
                Temper::Starting | Temper::Busy => true,
                Temper::Stopped | Temper::Ready | Temper::Stopping => false,
            };
            live.all().values().any(|hot| !is_over(hot.temper)) || !live.pool.is_empty()
        };
        let all = async {
            while resting() {
                match self.tasks.join_next_with_id().await {
                    None => break,
                    Some(Ok((id, _))) => ended(&mut self.by_task, id),
                    Some(Err(error)) => ended(&mut self.by_task, error.id()),
                }
            }
        };
        if timeout(GOODBYE, all).await.is_err() {
            tracing::warn!(
                "some boxes did not stop in time; they are found again at the next start, or end by themselves"
            );
        }
        // Those at work are let go in the middle; whoever comes next takes over.
        self.tasks.shutdown().await;
    }
}

fn until(now: UnixMillis) -> UnixMillis {
    UnixMillis(now.0 + u64::try_from(ALIVE.as_millis()).unwrap_or(u64::MAX))
}
