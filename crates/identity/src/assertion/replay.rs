//! Which assertions were used.
//!
//! **Invariant:** an id is new once. It is forgotten when its assertion has expired; should the clock go back after
//! that, everything that expires no later than what was forgotten counts as expired.

use std::collections::{BTreeMap, HashSet};

/// At 60 seconds of life, 17,000 calls a second.
pub(super) const CAPACITY: usize = 1 << 20;

/// Enough of a digest that no two collide.
pub(super) type TokenId = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    First,
    Again,
    Expired,
    Full,
}

#[derive(Debug, Default)]
pub(super) struct Used {
    ids: HashSet<TokenId>,
    by_expiry: BTreeMap<u64, Vec<TokenId>>,
    /// The latest expiry of what was forgotten.
    forgotten: u64,
}

impl Used {
    pub(super) fn once(&mut self, id: TokenId, expires_at: u64, now: u64) -> Use {
        self.forget(now);
        if expires_at <= self.forgotten {
            return Use::Expired;
        }
        if self.ids.contains(&id) {
            return Use::Again;
        }
        if self.ids.len() >= CAPACITY {
            return Use::Full;
        }
        self.ids.insert(id);
        self.by_expiry.entry(expires_at).or_default().push(id);
        Use::First
    }

    fn forget(&mut self, now: u64) {
        while let Some(entry) = self.by_expiry.first_entry()
            && *entry.key() <= now
        {
            self.forgotten = self.forgotten.max(*entry.key());
            for id in entry.remove() {
                self.ids.remove(&id);
            }
        }
    }
}
