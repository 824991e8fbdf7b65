//! Limits that the kernel does not hold, looked at now and then; and whether somebody still owns the box.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use beneath::Count;
use model::ports::sandbox::{Cause, Hits, Hold, Level};
use rustix::process::Signal;

use crate::lock::is_held;
use crate::process::{Process, private_memory, proportional_memory, sum, tree};
use crate::record::Job;

/// Entries of a directory that are looked at before anything else gets its turn.
const STEP: usize = 500;
/// Counting takes at most this part of the time …
const SHARE: u32 = 20;
/// … never comes more often than this …
const PAUSE: Duration = Duration::from_secs(2);
/// … and never more seldom: whoever fills the box decides how long a count takes, not when the next one is.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Watch {
    init: Process,
    /// Bytes, where the watch is what holds them.
    memory: Option<u64>,
    pids: Option<u64>,
    /// What happens to a box with too many processes: nothing where the kernel refuses further ones.
    ends_for_pids: bool,
    owned_at: Instant,
    directories: [PathBuf; 2],
    /// Bytes on disk.
    most: u64,
    counting: Option<(Instant, Count)>,
    next_count: Option<Instant>,
}

impl Watch {
    pub(super) fn new(job: &Job, init: Process) -> Self {
        let holds = job.plan.holds;
        let limits = job.spec.limits;
        let grouped = job.plan.groups.as_ref().is_some_and(|groups| groups.pids.is_some());
        Self {
            init,
            memory: limits.memory.filter(|_| holds.memory == Hold::Watched),
            pids: limits.pids.map(u64::from).filter(|_| !grouped),
            ends_for_pids: holds.pids == Hold::Watched || job.plan.level == Level::Nothing,
            owned_at: Instant::now(),
            directories: [job.spec.workspace.clone(), job.spec.meta.clone()],
            most: limits.disk.unwrap_or(u64::MAX),
            counting: None,
            next_count: limits.disk.map(|_| Instant::now()),
        }
    }

    /// How long nobody has held the owner's lock, as far as was seen.
    pub(super) fn orphaned_for(&mut self, lock: &Path) -> Duration {
        // A lock that cannot be asked about is no reason to end a box.
        if is_held(lock).unwrap_or(true) {
            self.owned_at = Instant::now();
        }
        self.owned_at.elapsed()
    }

    /// Ends the largest process where memory runs out, as the kernel would. A cause if the whole box must end.
    pub(super) fn look(&mut self, hits: &mut Hits) -> Option<Cause> {
        if self.memory.is_none() && self.pids.is_none() {
            return None;
        }
        let pids = tree(self.init.pid);
        let used = sum(&pids);
        if let Some(most) = self.pids
            && used.threads >= most
        {
            hits.pids += 1;
            if self.ends_for_pids && used.threads > most {
                return Some(Cause::Pids);
            }
        }
        // Forks share pages until they write: what counts too much is counted again before anybody is ended.
        let most = self.memory.filter(|&most| used.memory > most)?;
        if pids.iter().map(|&pid| proportional_memory(pid)).sum::<u64>() > most {
            hits.memory += 1;
            if let Some(process) =
                pids.into_iter().max_by_key(|&pid| private_memory(pid)).and_then(Process::of)
            {
                process.signal(Signal::KILL);
            }
        }
        None
    }

    pub(super) fn is_counting(&self) -> bool {
        self.counting.is_some()
    }

    /// Goes on counting bytes on disk, or begins when it is time. The sum when there is one.
    pub(super) fn count(&mut self) -> Option<u64> {
        if self.counting.is_none() {
            if self.next_count? > Instant::now() {
                return None;
            }
            let directories = self.directories.each_ref().map(PathBuf::as_path);
            self.next_count = Some(Instant::now() + PAUSE);
            self.counting = Some((Instant::now(), Count::new(&directories, self.most).ok()?));
        }
        let (since, count) = self.counting.as_mut()?;
        let bytes = count.step(STEP)?;
        self.next_count = Some(Instant::now() + (since.elapsed() * SHARE).clamp(PAUSE, LONGEST_PAUSE));
        self.counting = None;
        Some(bytes)
    }
}
