//! Who may be hot. Pure: what it is told, it decides, and whoever asks does it.
//!
//! **Invariants:** never more sessions are started than there are places; who waits longest is seen to first; a session
//! at work is asked to give way only for one that has waited long; of those at rest, the one that was used least recently
//! goes first, and those that are nobody's yet before it.

use std::collections::HashSet;
use std::time::Duration;

use model::session::{SessionId, UnixMillis};

/// A session that has a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) session: SessionId,
    pub(crate) doing: Doing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// At work, with its place since then.
    Working { since: UnixMillis },
    /// At rest since then.
    Resting { since: UnixMillis },
    /// It waits for somebody to have it, and goes before all others.
    Warm,
    /// It was asked to give its place up after what it does now, whenever that is.
    GivingWay,
    /// It gives its place up now.
    Leaving,
}

/// A session whose next task waits since then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Waits {
    pub(crate) session: SessionId,
    pub(crate) since: UnixMillis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rules {
    /// How many may have a place.
    pub(crate) places: usize,
    /// How long one may rest.
    pub(crate) rest: Duration,
    /// How long one may wait before others have to give way.
    pub(crate) patience: Duration,
    /// How long one must have rested before a box that is nobody's may have its place.
    pub(crate) settled: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Give it a place.
    Start(SessionId),
    /// It rests: wake it, it has a place.
    Wake(SessionId),
    /// It rests: its place is needed, or it has rested long enough.
    Stop(SessionId),
    /// It works: after what it does now its place is needed.
    GiveWay(SessionId),
}

/// `waiting`: who waits longest first.
pub(crate) fn admit(rules: Rules, placed: &[Placed], waiting: &[Waits], now: UnixMillis) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let known: HashSet<&SessionId> = placed.iter().map(|placed| &placed.session).collect();
    let wanted: HashSet<&SessionId> = waiting.iter().map(|waits| &waits.session).collect();
    let mut resting: Vec<(UnixMillis, &SessionId)> = Vec::new();
    let mut working: Vec<(UnixMillis, &SessionId)> = Vec::new();
    let (mut leaving, mut giving_way) = (0_usize, 0_usize);
    for Placed { session, doing } in placed {
        match doing {
            Doing::Resting { .. } if wanted.contains(session) => {
                decisions.push(Decision::Wake(session.clone()));
            }
            Doing::Resting { since } if elapsed(*since, now) >= rules.rest => {
                decisions.push(Decision::Stop(session.clone()));
                leaving += 1;
            }
            Doing::Resting { since } => resting.push((*since, session)),
            Doing::Warm => resting.push((UnixMillis(0), session)),
            Doing::Working { since } => working.push((*since, session)),
            Doing::GivingWay => giving_way += 1,
            Doing::Leaving => leaving += 1,
        }
    }
    resting.sort();
    working.sort();
    let (mut resting, mut working) = (resting.into_iter(), working.into_iter());
    // Where there are fewer places than there were, those at rest go first.
    let surplus = placed.len().saturating_sub(rules.places).saturating_sub(leaving + giving_way);
    for (_, session) in resting.by_ref().take(surplus) {
        decisions.push(Decision::Stop(session.clone()));
        leaving += 1;
    }
    let mut free = rules.places.saturating_sub(placed.len());
    // Places that are about to be free, as long as there are not too many taken.
    let mut coming = leaving.saturating_sub(placed.len().saturating_sub(rules.places));
    for Waits { session, since } in waiting.iter().filter(|waits| !known.contains(&waits.session)) {
        if free > 0 {
            free -= 1;
            decisions.push(Decision::Start(session.clone()));
        } else if coming > 0 {
            coming -= 1;
        } else if let Some((_, session)) = resting.next() {
            decisions.push(Decision::Stop(session.clone()));
        } else if elapsed(*since, now) >= rules.patience
            && let Some((_, session)) = working.next()
        {
            decisions.push(Decision::GiveWay(session.clone()));
        } else {
            break;
        }
    }
    decisions
}

/// Where boxes that are nobody's yet can be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Room {
    /// So many can be begun now.
    pub(crate) free: usize,
    /// These rest long enough: one of theirs is the next one's.
    pub(crate) stop: Vec<SessionId>,
}

/// For so many of them. To be asked while nobody waits.
pub(crate) fn make_room(rules: Rules, placed: &[Placed], wanted: usize, now: UnixMillis) -> Room {
    let free = rules.places.saturating_sub(placed.len());
    let leaving = placed.iter().filter(|placed| placed.doing == Doing::Leaving).count();
    let mut settled: Vec<(UnixMillis, &SessionId)> = placed
        .iter()
        .filter_map(|placed| match placed.doing {
            Doing::Resting { since } => Some((since, &placed.session)),
            Doing::Working { .. } | Doing::Warm | Doing::GivingWay | Doing::Leaving => None,
        })
        .filter(|(since, _)| elapsed(*since, now) >= rules.settled)
        .collect();
    settled.sort();
    let missing = wanted.saturating_sub(free + leaving);
    let stop = settled.into_iter().take(missing).map(|(_, session)| session.clone()).collect();
    Room { free: free.min(wanted), stop }
}

fn elapsed(since: UnixMillis, now: UnixMillis) -> Duration {
    Duration::from_millis(now.0.saturating_sub(since.0))
}

#[cfg(test)]
mod tests {
    use model::session::Stamp;
    use proptest::prelude::*;

    use super::*;

    const RULES: Rules = Rules {
        places: 2,
        rest: Duration::from_mins(1),
        patience: Duration::from_secs(30),
        settled: Duration::from_secs(20),
    };
    const NOW: UnixMillis = UnixMillis(1_000_000);

    fn session(number: u8) -> SessionId {
        SessionId::new(Stamp { millis: u64::from(number), random: [number; 10] })
    }

    fn ago(seconds: u64) -> UnixMillis {
        UnixMillis(NOW.0 - seconds * 1000)
    }

    fn placed(number: u8, doing: Doing) -> Placed {
        Placed { session: session(number), doing }
    }

    fn waits(number: u8, seconds: u64) -> Waits {
        Waits { session: session(number), since: ago(seconds) }
    }

    #[test]
    fn who_waits_longest_gets_the_free_place() {
        let taken = [placed(9, Doing::Working { since: ago(1) })];
        let decisions = admit(RULES, &taken, &[waits(1, 5), waits(2, 4)], NOW);
        assert_eq!(decisions, [Decision::Start(session(1))]);
    }

    #[test]
    fn the_least_recently_used_gives_its_place_and_one_stop_serves_one() {
        let taken =
            [placed(8, Doing::Resting { since: ago(10) }), placed(9, Doing::Resting { since: ago(20) })];
        assert_eq!(admit(RULES, &taken, &[waits(1, 5)], NOW), [Decision::Stop(session(9))]);
        let taken = [placed(8, Doing::Resting { since: ago(10) }), placed(9, Doing::Leaving)];
        assert_eq!(admit(RULES, &taken, &[waits(1, 5)], NOW), []);
        let both = admit(RULES, &taken, &[waits(1, 5), waits(2, 5)], NOW);
        assert_eq!(both, [Decision::Stop(session(8))]);
    }

    #[test]
    fn one_that_is_nobodys_goes_first_and_only_for_somebody() {
        let taken = [placed(8, Doing::Resting { since: ago(50) }), placed(9, Doing::Warm)];
        assert_eq!(admit(RULES, &taken, &[waits(1, 0)], NOW), [Decision::Stop(session(9))]);
        assert_eq!(admit(RULES, &taken, &[], NOW), []);
    }

    #[test]
    fn one_that_rests_is_woken_for_its_own_task_and_never_stopped() {
        let taken =
            [placed(1, Doing::Resting { since: ago(100) }), placed(2, Doing::Resting { since: ago(1) })];
        let decisions = admit(RULES, &taken, &[waits(1, 0)], NOW);
        assert_eq!(decisions, [Decision::Wake(session(1))]);
    }

    #[test]
    fn work_gives_way_only_to_who_waited_long() {
        let taken =
            [placed(8, Doing::Working { since: ago(50) }), placed(9, Doing::Working { since: ago(60) })];
        assert_eq!(admit(RULES, &taken, &[waits(1, 29)], NOW), []);
        assert_eq!(admit(RULES, &taken, &[waits(1, 30)], NOW), [Decision::GiveWay(session(9))]);
        // One that was asked may take hours: the next one is asked as well.
        let taken = [placed(8, Doing::Working { since: ago(50) }), placed(9, Doing::GivingWay)];
        assert_eq!(admit(RULES, &taken, &[waits(1, 30)], NOW), [Decision::GiveWay(session(8))]);
    }

    #[test]
    fn too_many_shrink_and_long_rest_ends() {
        let taken: Vec<Placed> =
            (1..=4).map(|number| placed(number, Doing::Resting { since: ago(number.into()) })).collect();
        let decisions = admit(RULES, &taken, &[], NOW);
        assert_eq!(decisions, [Decision::Stop(session(4)), Decision::Stop(session(3))]);
        let taken = [placed(1, Doing::Resting { since: ago(60) })];
        assert_eq!(admit(RULES, &taken, &[], NOW), [Decision::Stop(session(1))]);
    }

    #[test]
    fn room_for_what_is_nobodys_is_what_nobody_needs() {
        let room = |placed: &[Placed], wanted| {
            let Room { free, stop } = make_room(RULES, placed, wanted, NOW);
            (free, stop)
        };
        let resting = |number, seconds| placed(number, Doing::Resting { since: ago(seconds) });
        assert_eq!(room(&[], 1), (1, vec![]));
        assert_eq!(room(&[], 3), (2, vec![]));
        assert_eq!(room(&[resting(1, 5), resting(2, 19)], 1), (0, vec![]));
        assert_eq!(room(&[resting(1, 25), resting(2, 21)], 1), (0, vec![session(1)]));
        assert_eq!(room(&[resting(1, 25), placed(2, Doing::Leaving)], 1), (0, vec![]));
        assert_eq!(room(&[resting(1, 25), placed(2, Doing::Warm)], 1), (0, vec![session(1)]));
        assert_eq!(
            room(&[placed(1, Doing::Warm), placed(2, Doing::Working { since: ago(99) })], 1),
            (0, vec![])
        );
    }

    fn doing() -> impl Strategy<Value = Doing> {
        prop_oneof![
            (0_u64..200).prop_map(|seconds| Doing::Working { since: ago(seconds) }),
            (0_u64..200).prop_map(|seconds| Doing::Resting { since: ago(seconds) }),
            Just(Doing::Warm),
            Just(Doing::GivingWay),
            Just(Doing::Leaving),
        ]
    }

    proptest! {
        #[test]
        fn never_too_many_and_nobody_twice(
            places in 1_usize..6,
            doings in prop::collection::vec(doing(), 0..8),
            waiting in prop::collection::vec((0_u8..16, 0_u64..100), 0..12),
        ) {
            let placed: Vec<Placed> =
                doings.iter().zip(0_u8..).map(|(doing, number)| placed(number, *doing)).collect();
            let mut seen = HashSet::new();
            let waiting: Vec<Waits> = waiting
                .iter()
                .filter(|(number, _)| seen.insert(*number))
                .map(|(number, seconds)| waits(*number, *seconds))
                .collect();
            let rules = Rules { places, ..RULES };
            let decisions = admit(rules, &placed, &waiting, NOW);
            let mut named = HashSet::new();
            let mut starts = 0;
            for decision in &decisions {
                let (Decision::Start(session) | Decision::Wake(session) | Decision::Stop(session)
                | Decision::GiveWay(session)) = decision;
                prop_assert!(named.insert(session.clone()), "{session} twice");
                let was = placed.iter().find(|placed| placed.session == *session).map(|placed| placed.doing);
                match decision {
                    Decision::Start(_) => {
                        starts += 1;
                        prop_assert_eq!(was, None);
                    }
                    Decision::Wake(_) => {
                        let rests = matches!(was, Some(Doing::Resting { .. }));
                        prop_assert!(rests);
                    }
                    Decision::Stop(_) => {
                        let rests = matches!(was, Some(Doing::Resting { .. } | Doing::Warm));
                        prop_assert!(rests);
                    }
                    Decision::GiveWay(_) => {
                        let works = matches!(was, Some(Doing::Working { .. }));
                        prop_assert!(works);
                    }
                }
            }
            prop_assert!(placed.len() + starts <= places.max(placed.len()));
            // A free place is not left empty while somebody waits.
            let strangers = waiting.iter().filter(|waits| placed.iter().all(|placed| placed.session != waits.session));
            let free = places.saturating_sub(placed.len());
            prop_assert_eq!(starts, free.min(strangers.count()));
        }
    }
}
