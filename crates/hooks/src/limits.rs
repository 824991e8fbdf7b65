//! How long a hook may run and how much it may hold, and how it is stopped.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

/// What one run of one file may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub cpu: Duration,
    pub wall: Duration,
    /// Bytes, of which the engine itself needs about one quarter of a mebibyte.
    pub memory: usize,
}

impl Limits {
    /// The time on the clock that goes with a limit of CPU time: a machine can be busy with other things.
    pub fn new(cpu: Duration, memory: usize) -> Self {
        Self { cpu, wall: cpu * 20, memory }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(Duration::from_millis(50), 16 << 20)
    }
}

/// How much of the stack a hook may use. Its thread has at least 2 MiB.
pub(crate) const STACK: usize = 512 << 10;

/// Which limit was hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    Cpu,
    Wall,
}

/// Watches one run at a time. The engine asks it every few thousand steps, and in regular expressions.
#[derive(Debug)]
pub(crate) struct Guard {
    limits: Limits,
    /// None: what runs is ours.
    run: Mutex<Option<Run>>,
}

#[derive(Debug)]
struct Run {
    started: Instant,
    /// CPU time of this thread at the start.
    cpu: Option<Duration>,
    over: Option<Over>,
    steps: u32,
}

/// Jobs between two looks at the clock.
const STEPS: u32 = 100;

impl Run {
    fn start() -> Self {
        Self { started: Instant::now(), cpu: thread_cpu(), over: None, steps: 0 }
    }
}

impl Guard {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, run: Mutex::new(None) }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(crate) fn start(&self) {
        *self.lock() = Some(Run::start());
    }

    /// Whether the run must end. Once it must, it must.
    pub(crate) fn must_end(&self) -> bool {
        let mut run = self.lock();
        let Some(run) = &mut *run else { return false };
        if run.over.is_some() {
            return true;
        }
        let elapsed = run.started.elapsed();
        // No more CPU time can have passed than time.
        if elapsed < self.limits.cpu {
            return false;
        }
        let used = run.cpu.zip(thread_cpu()).map_or(elapsed, |(before, now)| now.saturating_sub(before));
        if used >= self.limits.cpu {
            run.over = Some(Over::Cpu);
        } else if elapsed >= self.limits.wall {
            run.over = Some(Over::Wall);
        }
        run.over.is_some()
    }

    /// One job of a chain is done, which the engine does not count.
    pub(crate) fn count_step(&self) {
        let look = self.lock().as_mut().is_some_and(|run| {
            run.steps += 1;
            run.steps.is_multiple_of(STEPS)
        });
        if look {
            self.must_end();
        }
    }

    pub(crate) fn over(&self) -> Option<Over> {
        self.lock().as_ref().and_then(|run| run.over)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Run>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn thread_cpu() -> Option<Duration> {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}
