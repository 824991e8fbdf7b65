//! Assertions: who makes a call, signed, so that a server need not trust the way it came.
//!
//! A compact JWS (`EdDSA`, `typ` [`TYPE`]) that any JWT library verifies. Its claims:
//!
//! | claim | meaning |
//! |---|---|
//! | `iss` | `callsign:<instance>` |
//! | `aud` | the server's name |
//! | `sub` | `host:session` |
//! | `host`, `session`, `thread`, `parent`, `run`, `call`, `trust`, `source` | the identity |
//! | `method`, `name` | the request; `name` is that of the tool or prompt, or the uri |
//! | `ah` or `ahx` | the digest of the arguments, see [`crate::canonical`] |
//! | `jti`, `iat`, `exp` | good once, and for [`LIFETIME`] seconds at most |
//!
//! **Invariant:** there is one algorithm. What a token says of itself chooses a key and nothing else.

mod reject;
mod replay;
mod sign;
mod verify;

pub use reject::{BadJwks, Reject};
pub use sign::{About, SignError, Signer};
pub use verify::{Verified, Verifier};

/// What `typ` says.
pub const TYPE: &str = "agent-identity+jwt";
/// How long an assertion is good, in seconds.
pub const LIFETIME: u64 = 60;
/// How far the signer's clock may be ahead of the verifier's, in seconds.
pub const SKEW: u64 = 30;
/// What the claims of one may weigh.
const MAX_CLAIMS: usize = 16 * 1024;

#[cfg(test)]
mod tests;
