//! How often somebody may be wrong. Tokens cannot be guessed; this keeps those who try from costing anything.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// So many at once, and one more in each such time.
const AT_ONCE: u32 = 10;
const EACH: Duration = Duration::from_secs(6);
/// Peers that are told apart.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<Option<IpAddr>, (u32, Instant)>);

impl Failures {
    pub(super) fn may_try(&mut self, peer: Option<IpAddr>, now: Instant) -> bool {
        self.forgive(now);
        self.0.get(&self.place(peer)).is_none_or(|(failures, _)| *failures < AT_ONCE)
    }

    pub(super) fn failed(&mut self, peer: Option<IpAddr>, now: Instant) {
        let (failures, _) = self.0.entry(self.place(peer)).or_insert((0, now));
        *failures += 1;
    }

    fn forgive(&mut self, now: Instant) {
        self.0.retain(|_, (failures, since)| {
            let passed = now.saturating_duration_since(*since).as_secs() / EACH.as_secs();
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            *since += EACH * passed.min(*failures);
            *failures = failures.saturating_sub(passed);
            *failures > 0
        });
    }

    /// One machine may have as many addresses as it likes beneath a /64. Who is too many shares a place with those unknown.
    fn place(&self, peer: Option<IpAddr>) -> Option<IpAddr> {
        let peer = match peer {
            Some(IpAddr::V6(address)) => Some(IpAddr::V6((u128::from(address) >> 64 << 64).into()))
                .filter(|_| address.to_ipv4_mapped().is_none()),
            other => other,
        };
        peer.filter(|_| self.0.len() < MOST || self.0.contains_key(&peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_wrong_too_often_waits_and_others_do_not() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        let (one, other) = (Some("10.0.0.1".parse().unwrap()), Some("10.0.0.2".parse().unwrap()));
        for _ in 0..AT_ONCE {
            assert!(failures.may_try(one, now));
            failures.failed(one, now);
        }
        assert!(!failures.may_try(one, now) && failures.may_try(other, now));
        assert!(!failures.may_try(one, now + EACH / 2));
        assert!(failures.may_try(one, now + EACH));
        failures.failed(one, now + EACH);
        assert!(!failures.may_try(one, now + EACH));
        assert!(failures.may_try(one, now + EACH * 100) && failures.0.is_empty());
    }

    #[test]
    fn the_table_does_not_grow() {
        let (mut failures, now) = (Failures::default(), Instant::now());
        for peer in 0..5000_u32 {
            failures.failed(Some(IpAddr::V4(peer.into())), now);
        }
        assert!(failures.0.len() <= MOST + 1);
        let (one, other) = ("2001:db8::1".parse().unwrap(), "2001:db8::ffff".parse().unwrap());
        let failures = Failures::default();
        assert_eq!(failures.place(Some(one)), failures.place(Some(other)));
    }
}
