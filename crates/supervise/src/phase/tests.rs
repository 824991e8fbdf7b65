use super::*;

/// Feeds events at their times (in ms) and compares every (time, signal) that goes out, the last one included only
/// once: rounds of SIGKILL repeat for ever.
#[track_caller]
fn check(events: &[(u64, Event)], expected: &[(u64, Signal)]) {
    let start = Instant::now();
    let mut phase = Phase::Running;
    let mut sent = Vec::new();
    let mut events = events.iter().copied().peekable();
    let mut killing = false;
    while !killing {
        let elapsed = phase.deadline().map(|until| (until - start, Event::Elapsed));
        let given = events.peek().map(|&(at, event)| (Duration::from_millis(at), event));
        let (at, event) = match (elapsed, given) {
            (Some(elapsed), Some(given)) if elapsed.0 < given.0 => elapsed,
            (Some(elapsed), None) => elapsed,
            (_, Some(given)) => {
                events.next();
                given
            }
            (None, None) => break,
        };
        let (next, signal) = phase.next(event, start + at);
        phase = next;
        killing = matches!(phase, Phase::Killing { .. });
        sent.extend(signal.map(|signal| (u64::try_from(at.as_millis()).unwrap(), signal)));
    }
    assert_eq!(sent, expected);
}

use Event::{Kill, MainExited, OwnerGone, Terminate};
use Signal::{SIGKILL, SIGTERM};

#[test]
fn nothing_happens_to_a_running_child() {
    check(&[], &[]);
}

#[test]
fn the_owners_death_ends_all_within_three_seconds() {
    check(&[(0, OwnerGone)], &[(1000, SIGTERM), (3000, SIGKILL)]);
}

#[test]
fn a_main_child_that_leaves_late_does_not_move_the_deadline() {
    check(&[(0, OwnerGone), (2900, MainExited)], &[(1000, SIGTERM), (2900, SIGTERM), (3000, SIGKILL)]);
}

#[test]
fn a_main_child_that_leaves_early_brings_the_deadline_nearer() {
    check(&[(0, Terminate), (100, MainExited)], &[(0, SIGTERM), (100, SIGTERM), (1100, SIGKILL)]);
    check(&[(0, OwnerGone), (300, MainExited)], &[(300, SIGTERM), (1300, SIGKILL)]);
}

#[test]
fn asking_again_changes_nothing() {
    check(&[(0, Terminate), (1500, Terminate), (1600, OwnerGone)], &[(0, SIGTERM), (2000, SIGKILL)]);
}

#[test]
fn what_the_main_child_left_behind_has_one_second() {
    check(&[(0, MainExited), (10, OwnerGone)], &[(0, SIGTERM), (1000, SIGKILL)]);
}

#[test]
fn kill_comes_at_once_in_any_phase() {
    check(&[(5, Kill)], &[(5, SIGKILL)]);
    check(&[(0, OwnerGone), (5, Kill)], &[(5, SIGKILL)]);
    check(&[(0, Terminate), (5, Kill)], &[(0, SIGTERM), (5, SIGKILL)]);
}
