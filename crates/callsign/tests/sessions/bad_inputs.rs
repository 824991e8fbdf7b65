//! Bad inputs: artifacts (rows 24 and 25) and storage (row 28), as far as tools lead there.

mod artifacts;
mod storage;
