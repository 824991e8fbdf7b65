//! Threads that serve side by side, each with a runtime of its own.
//!
//! A request, the connection it came on and the one it goes out on stay on one thread, so that no answer has to
//! wake another core. What threads share is behind short locks.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// More threads than this only get into each other's way.
const MOST: usize = 16;

static COUNT: AtomicUsize = AtomicUsize::new(1);

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(0) };
}

/// Decides once how many workers there are: one a core.
pub fn use_every_core() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(MOST);
    COUNT.store(cores, Ordering::Relaxed);
    cores
}

pub fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

/// Which worker this thread is. A thread that is none counts as the first.
pub fn index() -> usize {
    INDEX.get()
}

/// Makes this thread a worker.
pub fn become_worker(index: usize) {
    INDEX.set(index);
}
