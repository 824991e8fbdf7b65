//! Who calls an MCP server: evidence → claim → identity → projection.
//!
//! ```text
//! a request ─ names (ours are taken out) ─ adapters (one a host) ─ resolve ─→ Identity, with trust and source
//!                                              seal, announce ──┘               │
//!                     servers ← projection (_meta, headers, environment) ← assertion (signed)
//! ```
//!
//! Six rules hold everywhere, and the tests of [`resolve`] hold them:
//!
//! 1. What a caller sends under our names is removed before ours is written ([`names`]).
//! 2. Arguments are never evidence, a seal that verifies excepted ([`seal`]).
//! 3. `clientInfo` chooses a parser and proves nothing.
//! 4. A call's own evidence wins over what was said of its connection, which then counts as shared.
//! 5. Identity is settled before anything else looks at the call, and is immutable from then on.
//! 6. On a channel that is one session's alone, nothing that is said changes which session calls ([`bound`]).
//!
//! # For authors of MCP servers
//!
//! A server behind Callsign reads who calls with [`read::identity_of_meta`], verifies it with
//! [`assertion::Verifier`], and finds the workspace a call is meant for with [`workspace::resolve`]. The example
//! `rmcp_server` does all three.

pub mod adapters;
pub mod announce;
pub mod assertion;
pub mod bound;
pub mod canonical;
pub mod evidence;
pub mod keys;
pub mod names;
pub mod notary;
pub mod projection;
pub mod read;
pub mod resolve;
pub mod seal;
pub mod workspace;

pub use bound::{Bound, Tenant};
pub use evidence::{Channel, Evidence, Headers};
pub use model::identity::{Id, Identity, Source, Trust};
pub use projection::Told;
pub use resolve::{Resolved, Resolver, Standing};
