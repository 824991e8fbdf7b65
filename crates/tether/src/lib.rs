//! The daemon's end of a box: the sockets of a session, the connections that its bridge leaves at them, and the bridge
//! itself.
//!
//! ```text
//! Sockets::make ─▶ control.sock ─▶ Hub::serve ─▶ idle connections ──▶ Hub::open     the agent's API, one stream each
//!       │          model.sock  ─┐                                └──▶ Hub::events   what the agent tells
//!       └────────▶ mcp.sock    ─┼▶ listeners for whoever serves them
//!                  egress.sock ─┘
//! install ─▶ DIR/callsign-bridge-DIGEST ─▶ into the box
//! ```
//!
//! Whoever connects is in the box of this session: the directory is seen by that box and by nobody else. More is not
//! known, and not believed.
//!
//! **Invariants**
//!
//! - No link is followed where sockets or the program are made, and nothing is found there before it is whole.
//! - What a box may leave here is bounded: connections, what they say, and how long they take to say it.
//! - Nothing is spawned: `Hub::serve` runs as long as its owner polls it.
//!
//! Read `hub.rs` first.
#![forbid(unsafe_code)]

mod hub;
mod program;
mod sockets;

pub use bridge::{CONTROL, DIRECTORY, EGRESS, MCP, MODEL};
pub use hub::Hub;
pub use program::{PROGRAM, install};
pub use sockets::Sockets;
