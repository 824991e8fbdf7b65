//! Keeps a server that cannot start from being started over and over.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use model::Id;

/// Failed starts within [`WINDOW`] after which a server is left alone.
const MOST_FAILURES: usize = 6;
const WINDOW: Duration = Duration::from_mins(1);
/// A process that ends sooner than this never served.
pub const FAILED_START: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Boxes whose failures are kept in mind.
const MOST_BOXES: usize = 1024;

#[derive(Debug, Default)]
pub struct Breaker {
    failures: VecDeque<Instant>,
}

/// How starts went: those of everybody, and those that one box has asked for, who may make them fail.
#[derive(Debug, Default)]
pub struct Attempts {
    pub everybody: Attempt,
    /// By session. Only those with a failure that is not forgotten yet.
    boxes: HashMap<Id, Attempt>,
}

/// How starts went for one box, or for everybody who is in none.
#[derive(Debug, Default)]
pub struct Attempt {
    pub breaker: Breaker,
    /// What the last process said at its end.
    pub last_words: String,
}

impl Attempts {
    /// None: nothing is known against it.
    pub fn of(&mut self, session: Option<&Id>) -> Option<&mut Attempt> {
        match session {
            None => Some(&mut self.everybody),
            Some(session) => self.boxes.get_mut(session),
        }
    }

    pub fn failed(&mut self, session: Option<&Id>, now: Instant) {
        let attempt = match session {
            None => &mut self.everybody,
            Some(session) => {
                if !self.boxes.contains_key(session) {
                    self.make_room(now);
                }
                self.boxes.entry(session.clone()).or_default()
            }
        };
        attempt.breaker.failed(now);
    }

    /// The box is gone.
    pub fn forget(&mut self, session: &str) {
        self.boxes.retain(|other, _| other.as_str() != session);
    }

    fn make_room(&mut self, now: Instant) {
        self.boxes.retain(|_, attempt| attempt.breaker.last(now).is_some());
        if self.boxes.len() >= MOST_BOXES {
            let oldest = self.boxes.iter().min_by_key(|(_, attempt)| attempt.breaker.last(now));
            if let Some(oldest) = oldest.map(|(session, _)| session.clone()) {
                self.boxes.remove(&oldest);
            }
        }
    }
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

    /// When it failed last. None: it has not, for long enough.
    pub fn last(&self, now: Instant) -> Option<Instant> {
        self.failures.back().copied().filter(|at| now.duration_since(*at) < WINDOW)
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
    fn what_a_box_makes_fail_is_its_own_and_forgotten_in_time() {
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        let id = |number: usize| Id::new(format!("box_{number}")).unwrap();
        for _ in 0..MOST_FAILURES {
            attempts.failed(Some(&id(0)), now);
        }
        let mut ask = |of: Option<&Id>| attempts.of(of).map(|attempt| attempt.breaker.ask(now, 0));
        assert!(matches!(ask(Some(&id(0))), Some(Verdict::Refuse { .. })));
        assert_eq!((ask(Some(&id(1))), ask(None)), (None, Some(Verdict::Start)));
        for number in 1..2 * MOST_BOXES {
            attempts.failed(Some(&id(number)), now);
        }
        assert_eq!(attempts.boxes.len(), MOST_BOXES);
        attempts.failed(Some(&id(2 * MOST_BOXES)), now + WINDOW);
        assert_eq!(attempts.boxes.len(), 1);
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
