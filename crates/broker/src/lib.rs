//! What leaves a box: requests to the model's provider, and connections to hosts that are allowed.
//!
//! ```text
//! model.sock  ─▶ Strict ─▶ hyper ─▶ Broker: token ─▶ route ─▶ Meter::begin ─▶ Sent ─▶ one provider, with the key
//!                                                                │                         │
//!             ◀── status, few headers ◀── Returned: no key, usage seen in passing ◀────────┘ ─▶ Ticket::end
//!
//! egress.sock ─▶ Strict ─▶ hyper ─▶ Egress: listed? ─▶ name resolved, address checked ─▶ Tunnel, or one request
//! ```
//!
//! Each session has a [`Broker`] and an [`Egress`] of its own. Whoever accepts on their sockets hands the streams over,
//! and what comes out of them is hostile.
//!
//! **Invariants:** the key goes to the configured provider and is in no byte towards the box, no error, no log and no
//! `Debug`; what the box says of where its request should go is never used; a connection goes to the very address that
//! was checked; no redirect is followed; no request outlives the run that it is counted for; nothing is held back or held
//! whole, and every wait has a deadline; nothing is spawned but the provider's connections, and for a moment the rest of
//! an answer that a box did not wait for, both on the owner's tracker.
//!
//! Read `broker.rs` first.

mod asked;
mod body;
mod broker;
mod connect;
mod egress;
mod meter;
mod problem;
mod returned;
mod route;
mod scrub;
mod sent;
mod strict;
mod tunnel;
mod upstream;
mod usage;
mod walk;

pub use broker::{BadKey, Broker, BrokerOptions, Limits};
pub use egress::{Allow, BadAllow, Decided, Egress, EgressOptions, Notes, Verdict};
pub use meter::{Cap, Meter, Outcome, Refusal, Spent, Ticket};
pub use route::Endpoint;
pub use upstream::{BadUpstream, Upstream};
