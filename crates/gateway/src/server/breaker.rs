//! Keeps a server that cannot start from being started over and over.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Failed starts within [`WINDOW`] after which a server is left alone.
const MOST_FAILURES: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);
/// A process that ends sooner than this never served.
pub const FAILED_START: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub struct Breaker {
    failures: VecDeque<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Start,
    /// Start, but not before.
    Wait {
        failures: usize,
        until: Instant,
    },
    /// Too many failures; none before the given time.
    Refuse {
        failures: usize,
        until: Instant,
    },
}

impl Breaker {
    pub fn failed(&mut self, now: Instant) {
        self.failures.push_back(now);
        self.forget_old(now);
    }

    /// A server that serves has no history.
    pub fn served(&mut self) {
        self.failures.clear();
    }

    /// `unproven`: processes that run and have not answered anything yet.
    pub fn ask(&mut self, now: Instant, unproven: usize) -> Verdict {
        self.forget_old(now);
        let failures = self.failures.len();
        let (Some(oldest), Some(last)) = (self.failures.front(), self.failures.back()) else {
            return Verdict::Start;
        };
        if failures >= MOST_FAILURES {
            return Verdict::Refuse { failures, until: *oldest + WINDOW };
        }
        if failures + unproven >= MOST_FAILURES {
            return Verdict::Wait { failures, until: now + FIRST_WAIT };
        }
        let doubled = FIRST_WAIT * (1 << (failures - 1).min(16));
        let at = *last + doubled.min(LONGEST_WAIT);
        if at > now { Verdict::Wait { failures, until: at } } else { Verdict::Start }
    }

    fn forget_old(&mut self, now: Instant) {
        while self.failures.front().is_some_and(|at| now.duration_since(*at) >= WINDOW) {
            self.failures.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_failures_a_minute_are_the_most_and_waits_grow() {
        let mut breaker = Breaker::default();
        let begin = Instant::now();
        let mut now = begin;
        let mut starts = 0;
        let mut waits = Vec::new();
        while now < begin + WINDOW {
            match breaker.ask(now, 0) {
                Verdict::Start => {
                    starts += 1;
                    breaker.failed(now);
                }
                Verdict::Wait { until, .. } => {
                    waits.push(until - now);
                    now = until;
                }
                Verdict::Refuse { failures, until } => {
                    assert_eq!(failures, MOST_FAILURES);
                    now = until;
                }
            }
        }
        assert_eq!(starts, MOST_FAILURES);
        assert_eq!(waits.len(), MOST_FAILURES - 1);
        assert!(waits.is_sorted_by(|one, next| one < next), "{waits:?}");
        breaker.served();
        assert_eq!(breaker.ask(now, 0), Verdict::Start);
    }

    #[test]
    fn starts_that_have_not_shown_whether_they_serve_count_once_one_has_failed() {
        let mut breaker = Breaker::default();
        let now = Instant::now();
        assert_eq!(breaker.ask(now, 60), Verdict::Start);
        breaker.failed(now);
        let later = now + LONGEST_WAIT;
        assert_eq!(breaker.ask(later, 0), Verdict::Start);
        assert!(matches!(breaker.ask(later, MOST_FAILURES), Verdict::Wait { .. }));
    }
}
