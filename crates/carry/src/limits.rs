//! How much is carried, either way.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub files: usize,
    /// Of all files that are carried.
    pub bytes: u64,
    pub one_file: u64,
    /// Entries of any kind that are looked at.
    pub entries: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { files: 100_000, bytes: 1 << 30, one_file: 256 << 20, entries: 1_000_000 }
    }
}
