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

/// A sum of bytes on disk that is being counted.
#[derive(Debug)]
pub struct Count {
    walks: Vec<Walk>,
    seen: BTreeSet<(u64, u64)>,
    bytes: u64,
}

impl Count {
    pub fn new(directories: &[&Path]) -> io::Result<Self> {
        let walks = directories.iter().map(|path| Ok(Walk::new(Root::open(path)?, DEPTH).insisting()));
        Ok(Self { walks: walks.collect::<io::Result<_>>()?, seen: BTreeSet::new(), bytes: 0 })
    }

    /// Looks at this many entries further. The sum once there are no more.
    pub fn step(&mut self, entries: usize) -> Option<u64> {
        for _ in 0..entries {
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
                continue;
            }
            let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
            self.bytes = self.bytes.saturating_add(bytes);
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
        let mut count = Count::new(&[at]).unwrap();
        let mut steps = 1;
        let bytes = loop {
            match count.step(2) {
                Some(bytes) => break bytes,
                None => steps += 1,
            }
        };
        assert!(steps > 2 && (64 << 10..128 << 10).contains(&bytes), "{steps} steps, {bytes} bytes");
    }
}
