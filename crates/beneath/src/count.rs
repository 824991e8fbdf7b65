//! How much directories take, counted a little at a time: whoever fills them decides how long counting takes.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use rustix::fs::FileType;

use crate::{Root, Walk};

/// Deeper than paths reach; what lies deeper still counts as too much.
const DEPTH: usize = 2048;
/// Files with several names are counted once, as long as there are not too many to remember.
const REMEMBERED: usize = 100_000;

/// What a file counts as at least, however empty it is: a file system has only so many, and each takes its time to
/// count.
const LEAST: u64 = 4 << 10;
/// What one more name of a file counts as.
const NAME: u64 = 256;

/// A sum of bytes on disk that is being counted.
#[derive(Debug)]
pub struct Count {
    walks: Vec<Walk>,
    seen: BTreeSet<(u64, u64)>,
    bytes: u64,
    most: u64,
}

impl Count {
    /// Counts no further than just over `most`: what a count takes is bounded by that.
    pub fn new(directories: &[&Path], most: u64) -> io::Result<Self> {
        let walks = directories.iter().map(|path| Ok(Walk::new(Root::open(path)?, DEPTH).insisting()));
        Ok(Self { walks: walks.collect::<io::Result<_>>()?, seen: BTreeSet::new(), bytes: 0, most })
    }

    /// Looks at this many entries further. The sum once there are no more, or it is more than was asked for.
    pub fn step(&mut self, entries: usize) -> Option<u64> {
        for _ in 0..entries {
            if self.bytes > self.most {
                return Some(self.bytes);
            }
            let Some(walk) = self.walks.last_mut() else { return Some(self.bytes) };
            let Some(found) = walk.next() else {
                if walk.cut() {
                    // What cannot be counted is hidden on purpose.
                    self.bytes = u64::MAX;
                }
                self.walks.pop();
                continue;
            };
            let stat = found.stat;
            // Directories have several links and one name.
            let named = stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) != FileType::Directory;
            if named && self.seen.len() < REMEMBERED && !self.seen.insert((stat.st_dev, stat.st_ino)) {
                self.bytes = self.bytes.saturating_add(NAME);
                continue;
            }
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.bytes = self.bytes.saturating_add(bytes.max(LEAST));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_has_two_names_counts_once_and_holes_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path();
        fs::create_dir(at.join("sub")).unwrap();
        fs::write(at.join("sub/one"), vec![1; 64 << 10]).unwrap();
        fs::hard_link(at.join("sub/one"), at.join("two")).unwrap();
        fs::File::create(at.join("hole")).unwrap().set_len(1 << 30).unwrap();
        std::os::unix::fs::symlink("/usr", at.join("link")).unwrap();
        let mut count = Count::new(&[at], u64::MAX).unwrap();
        let mut steps = 1;
        let bytes = loop {
            match count.step(2) {
                Some(bytes) => break bytes,
                None => steps += 1,
            }
        };
        assert!(steps > 2 && (64 << 10..128 << 10).contains(&bytes), "{steps} steps, {bytes} bytes");
    }

    #[test]
    fn empty_files_count_and_counting_ends_where_it_is_too_much() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            fs::File::create(directory.path().join(number.to_string())).unwrap();
        }
        let all = Count::new(&[directory.path()], u64::MAX).unwrap().step(2000).unwrap();
        assert!(all >= 1000 * LEAST, "{all}");
        let mut count = Count::new(&[directory.path()], 10 * LEAST).unwrap();
        let bytes = count.step(12).expect("it does not go on");
        assert!(bytes > 10 * LEAST && bytes < 100 * LEAST, "{bytes}");
    }
}
