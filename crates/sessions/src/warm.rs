//! Boxes that are there before anybody asks for one.
//!
//! ```text
//! latest sessions ─▶ recipes ─▶ balance ─▶ engine ─▶ boot.rs: a box under an id that is nobody's yet
//!                                                       │ ready
//!          Desk::create ─▶ lend: one of the same recipe ◀┘
//!                            ├─ the row is written under its id ─▶ taken: the box is that session's, a worker rests in it
//!                            └─ no row ─▶ given back, or ended where nobody knows
//! ```
//!
//! **Invariants:** an id is lent to one caller at a time and never again once it was taken; what was begun for one
//! principal, image, document and key is lent for those alone; a box here has no run, so it asks no provider; those who
//! wait for a place come first.

mod boot;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use model::Principal;
use model::session::SessionId;
use model::settings::Secret;
use tokio::sync::Notify;

pub(crate) use boot::Warming;

use crate::desk::Wanted;

/// What a box is begun for. A session that differs in any of it gets a box of its own making.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) principal: Principal,
    pub(crate) image: String,
    pub(crate) runtime: String,
    /// [`model::session::Session::settings`].
    pub(crate) settings: String,
    /// In memory alone: it is not written down for a session that may never be.
    pub(crate) key: Option<Secret>,
}

impl Recipe {
    pub(crate) fn of(principal: &Principal, wanted: &Wanted) -> Self {
        let Wanted { image, runtime, settings, key, name: _, reuse_key: _, made_by: _ } = wanted;
        Self {
            principal: principal.clone(),
            image: image.name().to_owned(),
            runtime: runtime.clone(),
            settings: settings.clone(),
            key: key.clone(),
        }
    }
}

/// How far a box is on its way to a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Warmth {
    Starting,
    /// Whoever comes next may have it.
    Ready,
    /// Somebody writes a row under its id, or has failed to.
    Lent,
    /// There is a row: it is that session's.
    Taken,
    /// It ends. There may be a row.
    Leaving,
}

#[derive(Debug)]
struct Kept {
    recipe: Arc<Recipe>,
    warmth: Warmth,
    /// The box has ended.
    dead: bool,
    changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Inner {
    size: usize,
    /// Of the latest sessions, the newest last; at most `size`.
    recent: VecDeque<Arc<Recipe>>,
    kept: HashMap<SessionId, Kept>,
}

/// Those that are there or on their way.
#[derive(Debug, Default)]
pub(crate) struct Pool(Mutex<Inner>);

/// What is too much, and what is missing.
#[derive(Debug, Default)]
pub(crate) struct Balance {
    pub(crate) surplus: Vec<SessionId>,
    pub(crate) lacking: Vec<Arc<Recipe>>,
}

impl Pool {
    pub(crate) fn resize(&self, size: usize) {
        self.lock().size = size;
    }

    /// Sessions like this one are to be expected.
    pub(crate) fn expect(&self, recipe: Recipe) {
        let mut inner = self.lock();
        let newest = Arc::new(recipe);
        inner.recent.push_back(Arc::clone(&newest));
        while inner.recent.len() > inner.size {
            // Of whoever has most of it, so that nobody fills it alone; the newcomer's where none has more.
            let count = |principal: &Principal| {
                inner.recent.iter().filter(|recipe| recipe.principal == *principal).count()
            };
            let key = |recipe: &Recipe| (count(&recipe.principal), recipe.principal == newest.principal);
            let most = inner.recent.iter().map(|recipe| key(recipe)).max();
            let at = inner.recent.iter().position(|recipe| Some(key(recipe)) == most);
            inner.recent.remove(at.unwrap_or_default());
        }
    }

    /// One that is ready for such a session, for as long as the caller holds it.
    pub(crate) fn lend(self: &Arc<Self>, recipe: &Recipe) -> Option<Lent> {
        let mut inner = self.lock();
        let fits = |kept: &Kept| kept.warmth == Warmth::Ready && !kept.dead && *kept.recipe == *recipe;
        // The oldest: the others' agents may still be busy with their start.
        let id = inner.kept.iter().filter(|(_, kept)| fits(kept)).map(|(id, _)| id).min()?.clone();
        inner.kept.get_mut(&id)?.warmth = Warmth::Lent;
        Some(Lent { pool: Arc::clone(self), id, settled: false })
    }

    /// As many of each recipe as there were among the latest sessions; while there were fewer, more of the newest.
    pub(crate) fn balance(&self) -> Balance {
        let inner = self.lock();
        let newest = inner.recent.back();
        let more = inner.size.saturating_sub(inner.recent.len());
        let mut lacking: Vec<Arc<Recipe>> =
            inner.recent.iter().rev().chain(newest.into_iter().cycle().take(more)).cloned().collect();
        let mut surplus = Vec::new();
        // One that is lent may come back. Of those that are too many, the last begun goes.
        let mut kept: Vec<(&SessionId, &Kept)> = inner.kept.iter().collect();
        kept.sort_by_key(|(id, kept)| (kept.warmth == Warmth::Starting, *id));
        for (id, kept) in kept {
            let wanted = lacking.iter().position(|recipe| *recipe == kept.recipe);
            match (kept.warmth, wanted) {
                (Warmth::Starting | Warmth::Ready | Warmth::Lent, Some(at)) => drop(lacking.remove(at)),
                (Warmth::Starting | Warmth::Ready, None) => surplus.push(id.clone()),
                (Warmth::Lent, None) | (Warmth::Taken | Warmth::Leaving, _) => {}
            }
        }
        Balance { surplus, lacking }
    }

    pub(crate) fn all(&self) -> Vec<(SessionId, Warmth)> {
        self.lock().kept.iter().map(|(id, kept)| (id.clone(), kept.warmth)).collect()
    }

    pub(crate) fn has(&self, id: &SessionId) -> bool {
        self.lock().kept.contains_key(id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().kept.is_empty()
    }

    /// A box is begun under this id.
    pub(crate) fn begin(&self, id: &SessionId, recipe: Arc<Recipe>) -> Arc<Notify> {
        let changed = Arc::new(Notify::new());
        let kept = Kept { recipe, warmth: Warmth::Starting, dead: false, changed: Arc::clone(&changed) };
        self.lock().kept.insert(id.clone(), kept);
        changed
    }

    /// It is to end, unless somebody has it.
    pub(crate) fn leave(&self, id: &SessionId) {
        self.change(id, |kept| match kept.warmth {
            Warmth::Starting | Warmth::Ready => kept.warmth = Warmth::Leaving,
            Warmth::Lent | Warmth::Taken | Warmth::Leaving => {}
        });
    }

    /// Its task has ended. How it was then, and whose it is.
    pub(crate) fn retire(&self, id: &SessionId) -> Option<(Warmth, Principal)> {
        let kept = self.lock().kept.remove(id)?;
        Some((kept.warmth, kept.recipe.principal.clone()))
    }

    fn warmth(&self, id: &SessionId) -> Warmth {
        self.lock().kept.get(id).map_or(Warmth::Leaving, |kept| kept.warmth)
    }

    fn ready(&self, id: &SessionId) {
        self.change(id, |kept| {
            if kept.warmth == Warmth::Starting {
                kept.warmth = Warmth::Ready;
            }
        });
    }

    /// Its box has ended. Whoever holds it decides what it was.
    fn died(&self, id: &SessionId) {
        self.change(id, |kept| kept.dead = true);
        self.leave(id);
    }

    fn change(&self, id: &SessionId, change: impl FnOnce(&mut Kept)) {
        if let Some(kept) = self.lock().kept.get_mut(id) {
            change(kept);
            kept.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One that is somebody's for the moment.
#[derive(Debug)]
pub(crate) struct Lent {
    pool: Arc<Pool>,
    id: SessionId,
    settled: bool,
}

impl Lent {
    pub(crate) fn id(&self) -> &SessionId {
        &self.id
    }

    /// There is a row under its id. `runs` is called where its box does, before anybody else is told.
    pub(crate) fn taken(mut self, runs: impl FnOnce()) {
        self.settled = true;
        self.pool.change(&self.id, |kept| {
            if !kept.dead {
                runs();
            }
            kept.warmth = Warmth::Taken;
        });
    }

    /// There is none, and there will be none.
    pub(crate) fn give_back(mut self) {
        self.settled = true;
        self.pool.change(&self.id, |kept| {
            kept.warmth = if kept.dead { Warmth::Leaving } else { Warmth::Ready };
        });
    }
}

impl Drop for Lent {
    /// Nobody knows whether there is a row. It is looked for before anything is removed.
    fn drop(&mut self) {
        if !self.settled {
            self.pool.change(&self.id, |kept| kept.warmth = Warmth::Leaving);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::session::Stamp;

    use super::*;

    fn recipe(image: &str) -> Recipe {
        Recipe {
            principal: Principal::local(),
            image: image.to_owned(),
            runtime: "local".to_owned(),
            settings: "{}".to_owned(),
            key: None,
        }
    }

    fn id(number: u8) -> SessionId {
        SessionId::new(Stamp { millis: number.into(), random: [number; 10] })
    }

    fn pool(size: usize, recent: &[&str]) -> Arc<Pool> {
        let pool = Arc::new(Pool::default());
        pool.resize(size);
        for image in recent {
            pool.expect(recipe(image));
        }
        pool
    }

    fn lacking(pool: &Pool) -> Vec<String> {
        pool.balance().lacking.iter().map(|recipe| recipe.image.clone()).collect()
    }

    fn begun(pool: &Pool, number: u8, image: &str) {
        pool.begin(&id(number), Arc::new(recipe(image)));
        pool.ready(&id(number));
    }

    #[test]
    fn what_the_latest_sessions_were_like_is_kept() {
        assert_eq!(lacking(&pool(0, &["a"])), Vec::<String>::new());
        assert_eq!(lacking(&pool(2, &[])), Vec::<String>::new());
        assert_eq!(lacking(&pool(3, &["a"])), ["a", "a", "a"]);
        assert_eq!(lacking(&pool(2, &["a", "b", "c"])), ["c", "b"]);
        let pool = pool(2, &["a", "b"]);
        begun(&pool, 1, "a");
        begun(&pool, 2, "c");
        let balance = pool.balance();
        assert_eq!(balance.surplus, [id(2)]);
        assert_eq!(lacking(&pool), ["b"]);
    }

    #[test]
    fn nobody_has_it_all_where_two_ask() {
        let of =
            |name: &str, image: &str| Recipe { principal: Principal::new(name).unwrap(), ..recipe(image) };
        let pool = pool(2, &[]);
        pool.expect(of("mine", "mine"));
        for number in 0..20 {
            pool.expect(of("another", &number.to_string()));
        }
        assert_eq!(lacking(&pool), ["19", "mine"]);
    }

    #[test]
    fn one_is_lent_once_and_only_for_what_it_was_begun_for() {
        let pool = pool(2, &["a"]);
        pool.begin(&id(1), Arc::new(recipe("a")));
        assert!(pool.lend(&recipe("a")).is_none(), "it is not ready");
        pool.ready(&id(1));
        assert!(pool.lend(&recipe("b")).is_none());
        let key = Some(Secret::new("another"));
        assert!(pool.lend(&Recipe { key, ..recipe("a") }).is_none());
        let principal = Principal::new("another").unwrap();
        assert!(pool.lend(&Recipe { principal, ..recipe("a") }).is_none());
        let lent = pool.lend(&recipe("a")).unwrap();
        assert!(pool.lend(&recipe("a")).is_none());
        // Who needs its place does not get it.
        pool.leave(&id(1));
        lent.give_back();
        let lent = pool.lend(&recipe("a")).unwrap();
        let mut runs = false;
        lent.taken(|| runs = true);
        assert!(runs);
        assert!(pool.lend(&recipe("a")).is_none());
        assert_eq!(pool.retire(&id(1)), Some((Warmth::Taken, Principal::local())));
    }

    #[test]
    fn where_nobody_knows_what_became_of_it_it_is_not_lent_again() {
        let pool = pool(1, &["a"]);
        begun(&pool, 1, "a");
        drop(pool.lend(&recipe("a")).unwrap());
        assert!(pool.lend(&recipe("a")).is_none());
        assert_eq!(pool.warmth(&id(1)), Warmth::Leaving);
    }

    #[test]
    fn one_that_died_in_somebodys_hands_waits_for_what_they_say() {
        let pool = pool(2, &["a"]);
        begun(&pool, 1, "a");
        let lent = pool.lend(&recipe("a")).unwrap();
        pool.died(&id(1));
        assert_eq!(pool.warmth(&id(1)), Warmth::Lent);
        let mut runs = false;
        lent.taken(|| runs = true);
        assert!(!runs, "it is dead");
        assert_eq!(pool.warmth(&id(1)), Warmth::Taken);
        begun(&pool, 2, "a");
        let lent = pool.lend(&recipe("a")).unwrap();
        pool.died(&id(2));
        lent.give_back();
        assert_eq!(pool.warmth(&id(2)), Warmth::Leaving);
        begun(&pool, 3, "a");
        pool.died(&id(3));
        assert_eq!(pool.warmth(&id(3)), Warmth::Leaving);
    }
}
