//! What goes into a session's workspace from a directory of the host, and what comes back. Blocking; Linux only.
//!
//! ```text
//!  host directory ──▶ host.rs (git says what) ──▶ import.rs ──▶ workspace ──▶ the box works
//!        ▲                                           │                            │
//!        │                                       baseline ──────▶ changes.rs ◀────┘
//!        └────────── apply.rs (journal) ◀────────────────────────────┴──▶ patch.rs ──▶ text
//! ```
//!
//! The box's side is hostile: it may hold anything and change at any moment. The host's side is the user's own and
//! precious: it is either changed as a whole or left as it is.
//!
//! **Invariants**
//!
//! - Nothing of the host's `.git` enters a workspace; a repository there is made from nothing, with one commit.
//! - No git command runs in a workspace, and nothing of its `.git` is read.
//! - No path reaches the host that [`Rel::new`] did not take, and none is reached through a link.
//! - No link is carried back to the host, and no file that the box made and git on the host would ignore.
//! - An import overwrites nothing that the box wrote after it was looked at.
//! - No file of the host is overwritten or removed: it is moved aside, looked at, and only then let go.
//! - The baseline changes by an import, and by [`Changes::settle`] after an apply; it is replaced whole or not at all.
//! - Every walk, list, read and program has a cap or a deadline.
//!
//! Read `import.rs` first, then `apply.rs`.

mod apply;
mod base;
mod binary;
mod changes;
mod error;
mod git;
mod host;
mod ignored;
mod import;
mod limits;
mod node;
mod pack;
mod patch;
mod path;
mod place;
mod quote;
mod repository;

pub use apply::{Applied, Apply, Outcome, Recovered, apply, recover};
pub use changes::{Change, Changes, Compare, Kind, changes};
pub use error::{Against, Cap, CarryError, Conflict, LeftOut, Listed, TooMuch, Why};
pub use git::Git;
pub use import::{Existing, Import, Imported, Progress, Repository, import};
pub use limits::Limits;
pub use node::{Digest, Node};
pub use patch::{Patch, PatchLimits};
pub use path::{BadPath, Rel};
pub use place::Owner;
