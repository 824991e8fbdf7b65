//! Which seals were opened.
//!
//! **Invariant:** a nonce that was recalled as new is never new again. What is forgotten to make room leaves a mark
//! behind: nothing as old as that is new any more.

use std::collections::HashMap;

use ring::digest::{SHA256, digest};

pub(super) const CAPACITY: usize = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recall {
    New,
    Seen,
    /// So old that it may have been seen.
    Forgotten,
}

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Nonces, shortened to what cannot collide by chance, and when their seals were made.
    seen: HashMap<[u8; 16], u64>,
    /// When the newest forgotten seal was made.
    forgotten: Option<u64>,
}

impl Memory {
    pub(super) fn recall(&mut self, nonce: &str, at: u64) -> Recall {
        if self.forgotten.is_some_and(|forgotten| at <= forgotten) {
            return Recall::Forgotten;
        }
        let nonce = shorten(nonce);
        if self.seen.contains_key(&nonce) {
            return Recall::Seen;
        }
        if self.seen.len() >= CAPACITY {
            self.forget_half();
            // What was new a moment ago may belong to the older half now.
            if self.forgotten.is_some_and(|forgotten| at <= forgotten) {
                return Recall::Forgotten;
            }
        }
        self.seen.insert(nonce, at);
        Recall::New
    }

    fn forget_half(&mut self) {
        let mut times: Vec<u64> = self.seen.values().copied().collect();
        let middle = times.len() / 2;
        let (_, newest, _) = times.select_nth_unstable(middle);
        let newest = *newest;
        self.seen.retain(|_, at| *at > newest);
        self.forgotten = self.forgotten.max(Some(newest));
    }
}

fn shorten(nonce: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest(&SHA256, nonce.as_bytes()).as_ref()[..16]);
    short
}
