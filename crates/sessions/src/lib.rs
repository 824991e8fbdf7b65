//! Sessions over durable runs: what a principal can ask for, and who sees to it.
//!
//! ```text
//! Desk ──▶ Store: on disk before it answers           what a principal can ask: desk.rs
//!  │ bell
//!  ▼
//! Engine ─▶ admission.rs: who may be hot; pure        one task; owns every worker
//!  │  ▲
//!  ▼  │ told
//! worker.rs, one per hot session ─▶ boxes.rs ─▶ Sandbox          makes the box ready, finds it again
//!  │  claim ▶ Starting ▶ Prompting ▶ Finishing ▶ finish
//!  └▶ turn.rs ─▶ Agent: prompt, watch, abort          one turn of one run
//!     record.rs: run.log, answers, changed files      what is kept of it
//! warm.rs                                             boxes that are there before anybody asks for one
//! live.rs                                             what is so right now: nothing of it is on disk
//! ```
//!
//! Read `worker.rs` first.
//!
//! **Invariants**
//!
//! - A run is on disk before `submit` answers, and everything that is done for it was written down before.
//! - A prompt is sent under the message id that was stored before, so whoever takes over can ask whether it arrived;
//!   nobody sends it under another.
//! - One worker per session, with the session's lease. Who is fenced stops without a word.
//! - Boxes are started for claimed runs, or kept ready for sessions to come, and at most `max_hot` are there at any time.
//! - No future of ours holds a lock across an await, and dropping the engine leaves boxes and runs as they are.

mod admission;
mod boxes;
mod desk;
mod engine;
pub mod extras;
mod layout;
mod live;
pub mod record;
mod turn;
mod warm;
mod worker;
mod world;

pub use carry::Git;
pub use desk::{
    Became, Check, Desk, DeskError, Exported, NewTask, Read, RunView, SessionView, Terms, Wanted, Wish,
};
pub use engine::{Engine, Options};
pub use layout::{Layout, SessionDirs};
pub use live::{Asking, Following, Hot, Live, Metered, Progress, Temper, Unasked};
pub use world::{Access, Fitting, Ports, Rooms, World};
