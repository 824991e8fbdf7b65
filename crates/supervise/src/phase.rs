//! How far a supervisor is on the way to its end. Pure: no clock, no signals.
//!
//! ```text
//! Running ──owner gone──▶ Leaving (1 s) ──elapsed──▶ Ending (2 s) ──elapsed──▶ Killing ⟲ every 20 ms
//!    ├──terminate──────────────┴──────────────────────▲                          ▲
//!    ├──main child exited (1 s)───────────────────────┘                          │
//!    └──kill, from any phase ────────────────────────────────────────────────────┘
//! ```
//!
//! From every phase the supervisor ends as soon as it has no child left. The longest way, an owner that dies over a
//! child that ignores everything, is 3 s.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

/// How long a child may take to notice that its stdin has closed.
pub(crate) const LEAVE: Duration = Duration::from_secs(1);
/// Between SIGTERM and SIGKILL while the main child lives.
pub(crate) const TERMINATE: Duration = Duration::from_secs(2);
/// Between SIGTERM and SIGKILL for what the main child left behind.
pub(crate) const REMAINS: Duration = Duration::from_secs(1);
/// Between two rounds of SIGKILL, unless a child ends earlier.
pub(crate) const ROUND: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Running,
    Leaving { until: Instant },
    Ending { until: Instant },
    Killing { until: Instant },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    OwnerGone,
    Terminate,
    Kill,
    /// The main child is reaped, and somebody is left.
    MainExited,
    /// The deadline of the phase has passed.
    Elapsed,
}

impl Phase {
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Running => None,
            Self::Leaving { until } | Self::Ending { until } | Self::Killing { until } => Some(until),
        }
    }

    /// The next phase, and the signal that all children get now.
    pub(crate) fn next(self, event: Event, now: Instant) -> (Self, Option<Signal>) {
        let ending = |grace| (Self::Ending { until: now + grace }, Some(Signal::SIGTERM));
        let killing = (Self::Killing { until: now + ROUND }, Some(Signal::SIGKILL));
        match (self, event) {
            (Self::Running, Event::OwnerGone) => (Self::Leaving { until: now + LEAVE }, None),
            (Self::Running, Event::Terminate) => ending(TERMINATE),
            (Self::Running, Event::MainExited) => ending(REMAINS),
            (Self::Running, Event::Elapsed) => (self, None),
            (Self::Running, Event::Kill) => killing,

            (Self::Leaving { .. }, Event::OwnerGone) => (self, None),
            (Self::Leaving { .. }, Event::Terminate | Event::Elapsed) => ending(TERMINATE),
            (Self::Leaving { .. }, Event::MainExited) => ending(REMAINS),
            (Self::Leaving { .. }, Event::Kill) => killing,

            (Self::Ending { .. }, Event::OwnerGone | Event::Terminate) => (self, None),
            // Those who became our children just now have had no SIGTERM yet; the deadline never moves away.
            (Self::Ending { until }, Event::MainExited) => {
                (Self::Ending { until: until.min(now + REMAINS) }, Some(Signal::SIGTERM))
            }
            (Self::Ending { .. }, Event::Elapsed | Event::Kill) => killing,

            (Self::Killing { .. }, Event::OwnerGone | Event::Terminate) => (self, None),
            (Self::Killing { .. }, Event::MainExited | Event::Elapsed | Event::Kill) => killing,
        }
    }
}

#[cfg(test)]
mod tests;
