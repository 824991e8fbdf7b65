//! The newest events, up to a number of bytes, and the one that is being handed over.

use std::collections::VecDeque;
use std::sync::Arc;

use bridge::{DROPPED, LOST};

/// What one event costs beyond its bytes. Without it a box could fill the memory with empty ones.
const EACH: usize = 64;

#[derive(Debug)]
pub(super) struct Kept {
    /// Being handed over. It stays until that is done, so that the next taker gets it whole.
    hand: Option<Hand>,
    waiting: VecDeque<Arc<[u8]>>,
    /// How much is waiting or in hand.
    size: usize,
    most: usize,
    /// How many were dropped that no taker was told of. They are older than what waits.
    dropped: u64,
    /// The last taker was gone before it had read all that was handed to it.
    lost: bool,
}

#[derive(Debug)]
enum Hand {
    Event(Arc<[u8]>),
    Lost,
    /// The news that so many were dropped.
    Dropped(u64),
}

impl Kept {
    pub(super) fn new(most: usize) -> Self {
        Self { hand: None, waiting: VecDeque::new(), size: 0, most, dropped: 0, lost: false }
    }

    /// A whole event, or nothing where it was too large to be kept.
    pub(super) fn push(&mut self, event: Option<&[u8]>) {
        let Some(event) = event else {
            // It is told in its place only roughly: after what waits now would be better, and cost a mark in the queue.
            self.dropped += 1;
            return;
        };
        self.size += cost(event);
        self.waiting.push_back(Arc::from(event));
        while self.size > self.most {
            let Some(oldest) = self.waiting.pop_front() else { return };
            self.size -= cost(&oldest);
            self.dropped += 1;
        }
    }

    /// What a taker is to be told next. The same again until it is `done`.
    pub(super) fn next(&mut self) -> Option<Arc<[u8]>> {
        if self.hand.is_none() {
            self.hand = match self.dropped {
                _ if self.lost => Some(Hand::Lost),
                0 => self.waiting.pop_front().map(Hand::Event),
                dropped => Some(Hand::Dropped(dropped)),
            };
        }
        match self.hand.as_ref()? {
            Hand::Event(event) => Some(Arc::clone(event)),
            Hand::Lost => Some(Arc::from(format!("{LOST}\n\n").into_bytes())),
            Hand::Dropped(dropped) => Some(Arc::from(format!("{DROPPED}{dropped}\n\n").into_bytes())),
        }
    }

    /// How much of it is lost cannot be known: the kernel had taken it.
    pub(super) fn lost(&mut self) {
        self.lost = true;
    }

    pub(super) fn done(&mut self) {
        match self.hand.take() {
            Some(Hand::Event(event)) => self.size -= cost(&event),
            Some(Hand::Lost) => self.lost = false,
            Some(Hand::Dropped(dropped)) => self.dropped -= dropped,
            None => {}
        }
    }
}

fn cost(event: &[u8]) -> usize {
    event.len() + EACH
}

#[cfg(test)]
mod tests {
    use super::Kept;

    /// What a taker gets, all of it.
    fn drain(kept: &mut Kept) -> String {
        let mut all = Vec::new();
        while let Some(piece) = kept.next() {
            all.extend_from_slice(&piece);
            kept.done();
        }
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn events_come_in_order() {
        let mut kept = Kept::new(1024);
        kept.push(Some(b"a"));
        kept.push(Some(b"b"));
        assert_eq!(drain(&mut kept), "ab");
        assert_eq!(kept.size, 0);
        assert!(kept.next().is_none());
    }

    #[test]
    fn the_oldest_are_dropped_and_counted_once() {
        let mut kept = Kept::new(3 * (64 + 1));
        for event in [b"a", b"b", b"c", b"d", b"e"] {
            kept.push(Some(event));
        }
        assert_eq!(drain(&mut kept), ": dropped 2\n\ncde");
        kept.push(Some(b"f"));
        assert_eq!(drain(&mut kept), "f");
    }

    #[test]
    fn an_event_that_was_not_handed_over_is_handed_to_the_next() {
        let mut kept = Kept::new(2 * (64 + 1));
        kept.push(Some(b"a"));
        assert_eq!(&*kept.next().unwrap(), b"a");
        kept.push(Some(b"b"));
        kept.push(Some(b"c"));
        // The one in hand counts, and is not the one that is dropped.
        assert_eq!(drain(&mut kept), "a: dropped 1\n\nc");
    }

    #[test]
    fn what_is_dropped_while_that_is_told_is_told_next() {
        let mut kept = Kept::new(64 + 1);
        kept.push(None);
        assert_eq!(&*kept.next().unwrap(), b": dropped 1\n\n");
        kept.push(Some(b"a"));
        kept.push(Some(b"b"));
        kept.done();
        assert_eq!(drain(&mut kept), ": dropped 1\n\nb");
    }

    #[test]
    fn what_a_taker_did_not_read_is_told_to_the_next() {
        let mut kept = Kept::new(1024);
        kept.push(Some(b"a"));
        assert_eq!(&*kept.next().unwrap(), b"a");
        kept.lost();
        assert_eq!(drain(&mut kept), "a: lost\n\n");
        kept.push(Some(b"b"));
        assert_eq!(drain(&mut kept), "b");
    }

    #[test]
    fn many_small_ones_are_bounded_too() {
        let mut kept = Kept::new(256 << 10);
        for _ in 0..100_000 {
            kept.push(Some(b"\n"));
        }
        assert!(kept.waiting.len() <= (256 << 10) / 64, "{}", kept.waiting.len());
    }
}
