//! The hooks of one server, one after the other, for one call after the other.
//!
//! A hook that has been quick runs where the call is. One that has been slow, or has much to look at, runs on a
//! thread of its own: a thread that serves others must not wait for it. A few things an engine does cannot be
//! interrupted; there the call is refused at its time and the thread is left to finish.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};

use crate::draft::Input;
use crate::fault::{Fault, FaultKind};
use crate::hooks::Hooks;
use crate::limits::{Limits, Over};
use crate::turn::{Event, Turn};

/// Threads of their own at once, for all hooks of the process.
const THREADS: usize = 8;
static FREE: Semaphore = Semaphore::const_new(THREADS);
/// More than this to look at may take long even for a quick hook: searching a text for another takes the square.
const SMALL: usize = 4 << 10;
/// What a thread may take beyond the time of its hook.
const GRACE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct Chain {
    hooks: Arc<Hooks>,
    before: Vec<usize>,
    after: Vec<usize>,
}

impl Chain {
    /// The hooks in the files at `paths`, in this order.
    pub fn new(hooks: &Arc<Hooks>, paths: &[PathBuf]) -> Self {
        Self {
            hooks: Arc::clone(hooks),
            before: hooks.numbers_of(paths, Event::Before),
            after: hooks.numbers_of(paths, Event::After),
        }
    }

    /// Whether there is anything to run.
    pub fn handles(&self, event: Event) -> bool {
        !self.of(event).is_empty()
    }

    /// Which set of hooks this is a part of.
    pub fn hooks(&self) -> &Arc<Hooks> {
        &self.hooks
    }

    fn of(&self, event: Event) -> &[usize] {
        match event {
            Event::Before => &self.before,
            Event::After => &self.after,
        }
    }

    /// Runs the hooks of a moment. Each sees what the one before it has done.
    pub async fn run<T: Turn>(&self, input: &Input<'_>, mut turn: T) -> Result<T, Fault> {
        for number in self.of(T::EVENT) {
            let file = self.hooks.file(*number);
            let here = if file.is_quick() && turn.size() <= SMALL {
                self.hooks.run(*number, input, &turn, false)
            } else {
                None
            };
            let done = match here {
                Some(done) => done,
                None => self.run_aside(*number, input, turn.clone()).await,
            };
            let before = file.is_optional().then(|| turn.clone());
            let accepted = done.and_then(|changes| {
                let place = file.place(T::EVENT);
                turn.accept(changes).map_err(|why| place.fault(FaultKind::Thrown, why))
            });
            match accepted {
                Ok(()) => {}
                Err(fault) if file.is_optional() => {
                    file.mention(&fault);
                    turn = before.unwrap_or(turn);
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(turn)
    }

    async fn run_aside<T: Turn>(
        &self,
        number: usize,
        input: &Input<'_>,
        turn: T,
    ) -> Result<T::Changes, Fault> {
        let file = self.hooks.file(number);
        let place = file.place(T::EVENT);
        let limits: &Limits = self.hooks.limits();
        let late = || place.over(Over::Wall, limits);
        if file.is_stuck() {
            let why = "it does something that cannot be interrupted, and has not ended yet for other calls; \
                       do less at once, such as searching a long text for another";
            return Err(place.fault(FaultKind::Wall, why));
        }
        let deadline = tokio::time::Instant::now() + limits.wall + GRACE;
        let busy =
            || place.fault(FaultKind::Wall, "hooks of other calls keep all threads busy; try again later");
        let permit = tokio::time::timeout_at(deadline, FREE.acquire()).await.map_err(|_| busy())?;
        // Whoever waits may go away, and the thread goes on: it holds its place until it ends.
        let permit = permit.map_err(|_| busy())?;
        let (sender, receiver) = oneshot::channel();
        let (hooks, input) = (Arc::clone(&self.hooks), input.clone().into_owned());
        let decided = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&decided);
        let work = move || {
            let done = hooks.run(number, &input, &turn, true);
            if of_thread.swap(true, Ordering::AcqRel) {
                // It was given up, and its place given to another.
                permit.forget();
                hooks.file(number).came_back();
            } else {
                drop(permit);
            }
            let _nobody_waits = sender.send(done);
        };
        std::thread::Builder::new().name("hook".to_owned()).spawn(work).map_err(|error| {
            place.fault(FaultKind::Wall, format!("no thread could be started for it: {error}"))
        })?;
        match tokio::time::timeout_at(deadline, receiver).await {
            Ok(Ok(Some(done))) => done,
            // It panicked, or has nowhere to run.
            Ok(Ok(None) | Err(_)) => Err(place.fault(FaultKind::Settle, "it could not be run")),
            Err(_late) => {
                if !decided.swap(true, Ordering::AcqRel) {
                    FREE.add_permits(1);
                    file.gave_up();
                }
                Err(late())
            }
        }
    }
}
