//! How often something is said that somebody else can cause as often as it likes: so many a minute, then a number.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Said of one within a [`WINDOW`]. What comes beyond is counted.
const MOST: u32 = 20;
const WINDOW: Duration = Duration::from_mins(1);
/// Those who are kept in mind.
const MOST_KEPT: usize = 1024;

/// One kind of thing that is said.
#[derive(Debug)]
pub struct Rate {
    /// What is left out, as the log calls it.
    what: &'static str,
    kept: Mutex<BTreeMap<Box<str>, Minute>>,
}

#[derive(Debug, Clone, Copy)]
struct Minute {
    since: Instant,
    said: u32,
    unsaid: u64,
}

/// Whether it is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It is, after so many that were not.
    Say {
        unsaid: u64,
    },
    /// The first that is only counted.
    Enough,
    Count,
}

impl Rate {
    pub const fn new(what: &'static str) -> Self {
        Self { what, kept: Mutex::new(BTreeMap::new()) }
    }

    /// Whether something of `who` is said. The log is told that, and how much, is left out.
    pub fn allows(&self, who: &str, now: Instant) -> bool {
        match self.turn(who, now) {
            Turn::Say { unsaid } => {
                self.tell(who, unsaid);
                true
            }
            Turn::Enough => {
                tracing::warn!(who, "more {} are only counted until the minute is over", self.what);
                false
            }
            Turn::Count => false,
        }
    }

    pub fn turn(&self, who: &str, now: Instant) -> Turn {
        let mut kept = self.lock();
        if !kept.contains_key(who) && kept.len() >= MOST_KEPT {
            let oldest = kept.iter().min_by_key(|(_, minute)| minute.since).map(|(who, _)| who.clone());
            oldest.and_then(|oldest| kept.remove(&oldest));
        }
        let minute = kept.entry(who.into()).or_insert(Minute { since: now, said: 0, unsaid: 0 });
        if now.saturating_duration_since(minute.since) >= WINDOW {
            let unsaid = minute.unsaid;
            *minute = Minute { since: now, said: 1, unsaid: 0 };
            return Turn::Say { unsaid };
        }
        if minute.said < MOST {
            minute.said += 1;
            return Turn::Say { unsaid: 0 };
        }
        minute.unsaid += 1;
        if minute.unsaid == 1 { Turn::Enough } else { Turn::Count }
    }

    /// Those whose minute is over, and how many of theirs were left out. They are forgotten.
    pub fn over(&self, now: Instant) -> Vec<(Box<str>, u64)> {
        let is_over = |minute: &Minute| now.saturating_duration_since(minute.since) >= WINDOW;
        let mut over = Vec::new();
        self.lock().retain(|who, minute| {
            if is_over(minute) && minute.unsaid > 0 {
                over.push((who.clone(), minute.unsaid));
            }
            !is_over(minute)
        });
        over
    }

    /// Forgets one. Returns how many of its were left out.
    pub fn forget(&self, who: &str) -> u64 {
        self.lock().remove(who).map_or(0, |minute| minute.unsaid)
    }

    /// Tells the log how many were left out in minutes that are over.
    pub fn tell_over(&self, now: Instant) {
        for (who, unsaid) in self.over(now) {
            self.tell(&who, unsaid);
        }
    }

    pub fn tell(&self, who: &str, unsaid: u64) {
        if unsaid > 0 {
            tracing::warn!(who, "{unsaid} more {} were left out here", self.what);
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Box<str>, Minute>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_a_minute_are_said_and_the_rest_is_counted() {
        let (rate, now) = (Rate::new("words"), Instant::now());
        for _ in 0..MOST {
            assert_eq!(rate.turn("a", now), Turn::Say { unsaid: 0 });
        }
        assert_eq!(rate.turn("a", now), Turn::Enough);
        assert_eq!(rate.turn("a", now), Turn::Count);
        assert_eq!(rate.turn("b", now), Turn::Say { unsaid: 0 }, "others are heard");
        assert_eq!(rate.over(now), []);
        assert_eq!(rate.turn("a", now + WINDOW), Turn::Say { unsaid: 2 });
        assert_eq!(rate.forget("a"), 0);
        for _ in 0..=MOST {
            rate.turn("b", now);
        }
        assert_eq!(rate.over(now + WINDOW), [("b".into(), 2)]);
        assert_eq!(rate.over(now + WINDOW), []);
    }

    #[test]
    fn only_so_many_are_kept_in_mind() {
        let (rate, now) = (Rate::new("words"), Instant::now());
        for number in 0..2 * MOST_KEPT {
            rate.turn(&number.to_string(), now);
        }
        assert_eq!(rate.lock().len(), MOST_KEPT);
    }
}
