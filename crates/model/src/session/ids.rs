//! Ids that we make: random, in the order of their making, and each one component of a path.

use std::fmt;

/// Sorted as ASCII is, in lower case alone: a file system that does not tell cases apart keeps them apart.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// 48 bits of time and 80 at random, five a character.
const LENGTH: usize = 26;

/// What an id is made of. Whoever has a clock and a source of randomness makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Milliseconds since 1970.
    pub millis: u64,
    pub random: [u8; 10],
}

impl Stamp {
    fn encoded(self, prefix: &str) -> Box<str> {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&self.millis.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&self.random);
        let value = u128::from_be_bytes(bytes);
        let digits = (0..LENGTH).rev().map(|place| {
            let digit = (value >> (5 * place)) & 31;
            char::from(ALPHABET[usize::try_from(digit).unwrap_or_default()])
        });
        prefix.chars().chain(digits).collect()
    }
}

/// Whether this is what [`Stamp::encoded`] writes.
fn is_encoded(text: &str, prefix: &str) -> bool {
    text.strip_prefix(prefix).is_some_and(|digits| {
        // 26 digits hold 130 bits, and there are 128.
        digits.len() == LENGTH
            && digits.bytes().all(|byte| ALPHABET.contains(&byte))
            && digits.as_bytes()[0] < b'8'
    })
}

/// It is no id of ours, so there is nothing under it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is not an id that was given out here")]
pub struct BadSessionId;

macro_rules! stamped {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Box<str>);

        impl $name {
            pub fn new(stamp: Stamp) -> Self {
                Self(stamp.encoded($prefix))
            }

            pub fn parse(text: &str) -> Result<Self, BadSessionId> {
                if is_encoded(text, $prefix) { Ok(Self(text.into())) } else { Err(BadSessionId) }
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

stamped!(
    /// One of our sessions. Not `ses_…`: that is what the agent calls its own.
    SessionId, "sn_"
);
stamped!(
    /// One task that was submitted to a session.
    RunId, "run_"
);
stamped!(
    /// One life of a daemon. Sessions belong to it, never to a machine or a process id.
    OwnerId, "own_"
);

/// Under which name a prompt is sent to the agent.
///
/// Versions of OpenCode are reported to compare these as text to tell whether a turn is over: one that sorts before an
/// answer of an earlier turn would end its own turn at once, without the model. 1.18.33 does not mind. So it has the form
/// of OpenCode's own, time first, and is made when the run is claimed, not when it is submitted: until then earlier runs
/// get their answers.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(Box<str>);

impl MessageId {
    const PREFIX: &str = "msg_";
    /// Hexadecimal digits of time, and characters at random.
    const PARTS: (usize, usize) = (12, 14);

    /// The time is the lower 48 bits of it times 4096, as OpenCode writes it.
    pub fn new(stamp: Stamp) -> Self {
        let time = (u128::from(stamp.millis) << 12) & 0xffff_ffff_ffff;
        let random = Stamp { millis: 0, random: stamp.random }.encoded("");
        Self(format!("{}{time:012x}{}", Self::PREFIX, &random[LENGTH - Self::PARTS.1..]).into())
    }

    pub fn parse(text: &str) -> Result<Self, BadSessionId> {
        let parts = text.strip_prefix(Self::PREFIX).and_then(|rest| rest.split_at_checked(Self::PARTS.0));
        let fine = parts.is_some_and(|(time, random)| {
            time.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
                && random.len() == Self::PARTS.1
                && random.bytes().all(|byte| byte.is_ascii_alphanumeric())
        });
        if fine { Ok(Self(text.into())) } else { Err(BadSessionId) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
