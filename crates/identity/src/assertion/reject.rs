//! Why an assertion, or a set of keys, is not taken.

use std::io;

/// The words of [`Reject::as_str`] do not change: programs go by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Reject {
    #[error("it is no assertion")]
    Malformed,
    #[error("its algorithm is not EdDSA")]
    Algorithm,
    #[error("its key is not known")]
    Key,
    #[error("its signature is wrong")]
    Signature,
    #[error("its times make no sense: it is from the future, or good for too long or not at all")]
    Time,
    #[error("it has expired")]
    Expired,
    #[error("it was made for another server")]
    Audience,
    #[error("what it vouches for is less than this server asks for")]
    Trust,
    #[error("it was made for other arguments")]
    Arguments,
    #[error("it was used before")]
    Replay,
    #[error("too many assertions are good at this time to remember one more")]
    Busy,
}

impl Reject {
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::Algorithm,
        Self::Key,
        Self::Signature,
        Self::Time,
        Self::Expired,
        Self::Audience,
        Self::Trust,
        Self::Arguments,
        Self::Replay,
        Self::Busy,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "alg",
            Self::Key => "kid",
            Self::Signature => "signature",
            Self::Time => "time",
            Self::Expired => "expired",
            Self::Audience => "audience",
            Self::Trust => "trust",
            Self::Arguments => "args_digest",
            Self::Replay => "replay",
            Self::Busy => "busy",
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BadJwks {
    #[error("could not read the public keys")]
    Read(#[from] io::Error),
    #[error("could not make sense of the public keys")]
    Garbled(#[from] serde_json::Error),
    #[error("there is no Ed25519 key with a kid among the public keys")]
    Empty,
}
