//! Boxes in containers: the port `Sandbox` over the Docker API, the same code for Docker and for Podman. Linux only.
//!
//! ```text
//! daemon ─ Containers ──unix socket──▶ engine ──▶ container: callsign-bridge ──▶ command and its descendants
//!             │    ▲                     │ outlives the daemon
//!             │    └── inspect, stats ───┤
//!             └─ follower, one a box ◀───┘ what it prints ─▶ ROOT/NAME/box.log; disk and hits, looked at now and then
//! ```
//!
//! What is known of a box lies with the engine, in the container of its name. Beside it, in `ROOT/NAME`, which no box
//! sees:
//!
//! | file | says |
//! | --- | --- |
//! | `start.lock` | one start at a time, also over a killed starter: the kernel gives it up for the dead |
//! | `engine.json` | which engine was told to make it: nobody else is asked about it |
//! | `note.json` | why we ended which container; the engine does not know who asked |
//! | `box.log`, `box.log.1` | what it printed, capped; written anew from the engine by each daemon that follows it |
//!
//! Who dies, and what becomes of the box:
//!
//! | dies | then |
//! | --- | --- |
//! | daemon | the box goes on; its own init ends it after `orphan_grace` without one ([`ORPHANED`]) |
//! | whoever starts it, on any line | the next start takes the lock and clears what was left |
//! | engine | the box goes on where the engine restores live containers; else it is found ended, once the engine is back |
//! | command | its init ends, and with it the process namespace |
//!
//! **Invariants**
//!
//! - A container is ours if its labels name this owner and the box, and its name is made of both. No other is stopped,
//!   removed or told of, even one that has our name.
//! - Whatever is done to a container is done by its id, which was looked at before: never by a name that another may
//!   have taken meanwhile.
//! - No container starts whose properties, as the engine tells them, are not those that were asked for.
//! - A box is asked of the engine that made it, whichever is at hand. One that does not answer says nothing of its boxes:
//!   they are not known ([`SandboxError::Away`], [`BoxState::Unknown`]), and none is started in the place of one.
//! - Nobody waits twice for an engine that hangs, and a daemon that starts waits two seconds.
//! - Nothing that takes as long as a box likes is done on the caller's thread.
//! - No call to the engine is without a deadline, streams of log lines aside: silence is normal there.
//! - No variable of a box is in anybody's arguments.
//! - Nothing that a box can write is opened by path: see the crate `beneath`.
//!
//! Where sessions may have boxes of either kind, [`Runtimes`] stands before this sandbox and a local one.
//!
//! Read `sandbox.rs` first, then `shared.rs` and `body.rs`.
//!
//! [`SandboxError::Away`]: model::ports::sandbox::SandboxError::Away
//! [`BoxState::Unknown`]: model::ports::sandbox::BoxState::Unknown

mod body;
mod engine;
mod engines;
mod fetch;
mod follow;
mod groups;
mod image;
mod log;
mod properties;
mod record;
mod runtimes;
mod sandbox;
mod shared;
mod states;

pub use body::ORPHANED;
pub use engine::{Facts, Kind, Places, Trouble};
pub use image::{BASE, BRIDGE, Build, Built, CONFIG, DOCKERFILE, ImageError, ImageFile, OPENCODE};
pub use properties::{Properties, properties};
pub use runtimes::{Keeps, Runtimes};
pub use sandbox::{ContainerOptions, Containers, Progress, Pull};
