//! Boxes for agent sessions: who starts them, holds them, finds them again and ends them. Linux only.
//!
//! ```text
//! daemon ─ LocalSandbox ──launch──▶ keeper ──stage──▶ bwrap ──▶ init of the box ──▶ command and its descendants
//!             │      ▲                │ one per box, own session, outlives the daemon
//!             │      └── status.json ─┘ limits, log, owner.lock, end
//!             └── signals by pidfd ──▶
//! ```
//!
//! What is known of a box lies in one directory, `ROOT/NAME`, which no box sees:
//!
//! | file | written by | says |
//! | --- | --- | --- |
//! | `start.lock` | whoever starts the box, then its keeper | one start at a time, also over a killed starter |
//! | `job.json` | whoever starts the box | the intent |
//! | `keeper.lock` | the keeper, as long as it lives | there is a box; which process keeps it |
//! | `status.json` | the keeper | it runs, or how it ended |
//! | `box.log` | the keeper | what the command printed |
//!
//! Who dies, and what becomes of the box:
//!
//! | dies | then |
//! | --- | --- |
//! | daemon | the box goes on; without a new owner of `ROOT/owner.lock` the keeper ends it after `orphan_grace` |
//! | whoever starts it, on any line | the next start finds the keeper, or that there is none |
//! | keeper | the kernel ends the box with it (parent-death signals, then the process namespace) |
//! | command | the keeper ends what is left and writes down how it ended |
//!
//! At level `Nothing` there is no process namespace: with the keeper goes the command, and what that had started is
//! left to itself. A keeper that ends in order leaves nobody at any level.
//!
//! **Invariants**
//!
//! - One keeper per name: it holds `keeper.lock`, and `start.lock` passes from starter to keeper without a gap.
//! - `Ended` is written when no process of the box is left.
//! - No process is signalled but by a pidfd whose start time was compared after it was opened.
//! - Nothing that a box can write is opened by path: see the crate `beneath`.
//! - No variable of a box is in anybody's arguments, and none of the daemon's is in a box.
//! - No `unsafe`: what must happen between fork and exec happens in a stage of its own, which becomes the program.
//!
//! Read `keeper.rs` first, then `local.rs`.

mod bwrap;
mod cgroup;
pub mod keeper;
mod local;
mod lock;
mod process;
mod record;
mod seccomp;

pub use local::{Groups, LocalOptions, LocalSandbox, Ownership};
pub use record::KeeperCommand;
