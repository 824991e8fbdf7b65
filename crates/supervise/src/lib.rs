//! Starts child processes and ends them together with every descendant they ever made. Linux only.
//!
//! ```text
//! owner (threads, tokio) ──socket: one byte + 4 descriptors──▶ spawner        forked at the top of main
//!   │  Child { stdin, stdout, stderr, control }                  │ fork         own session, subreaper
//!   │                                                            ▼
//!   ├──control: request, 'T', 'K' ──▶ ◀── records ────────── supervisor       one per child, subreaper
//!   │                                                            │ fork + exec
//!   └──pipes: stdin, stdout, stderr ──────────────────────▶ main child        own session, PDEATHSIG
//!                                                                └ any descendants
//! ```
//!
//! Who dies, and who cleans up:
//!
//! | dies | cleans up |
//! | --- | --- |
//! | main child | its supervisor ends all that was left behind (SIGTERM, 1 s, SIGKILL) |
//! | owner, or only its [`Control`] | the supervisor sees EOF: waits 1 s, then SIGTERM, 2 s, SIGKILL |
//! | supervisor | the kernel kills the main child (PDEATHSIG); the spawner kills what it inherits |
//! | spawner | nothing runs unsupervised: supervisors live on and still see their control socket |
//!
//! **Invariants**
//!
//! - Neither the spawner nor a supervisor keeps a descriptor of the owner or of another child. Hence EOF on a
//!   control socket means that the owner let go, and EOF on the owner's stdout is seen at once by its parent.
//! - A descendant that loses its parent becomes a child of its supervisor, however often it forks or calls
//!   `setsid`. A supervisor ends with code 0 only when the kernel says that it has no child left.
//! - Only a process with exactly one thread forks, and all forks go through `fork.rs`: the one `unsafe` here.
//! - A child has the environment it was given and nothing of ours: no descriptors but 0, 1, 2, no blocked and no
//!   ignored signals, and the resource limits that held when the spawner started.
//!
//! **Unsafe, reviewed:** `fork.rs` only.
//!
//! Read `supervisor.rs` first, then `phase.rs`.

mod child;
mod control;
mod error;
mod fork;
mod handle;
mod phase;
mod proc;
mod reap;
mod spawner;
mod supervisor;
mod wire;

pub use control::{Control, ExitStatus};
pub use error::StartError;
pub use handle::{Child, Command, Spawner};
pub use nix::unistd::Pid;
