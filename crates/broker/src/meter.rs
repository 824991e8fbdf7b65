//! What a request used, and whether there may be another.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use model::session::RunUsage;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::route::Endpoint;
use crate::sent::Moved;

/// Bytes of text to a token, and what stands around the text in one piece of a stream.
const BYTES: u64 = 4;
const AROUND: u64 = 200;

/// Counts what one session asks its provider for.
pub trait Meter: fmt::Debug + Send + Sync {
    /// Called once for each request that may go out, right before it does. Whose run it is, is settled here.
    fn begin(&self, endpoint: Endpoint) -> Result<Box<dyn Ticket>, Refusal>;
}

/// One request under way.
pub trait Ticket: fmt::Debug + Send {
    /// Called exactly once, however the request ended. Must not block.
    fn end(self: Box<Self>, spent: Spent);

    /// Cancelled when nobody pays for the request any more: it is cut off then, and ends with what was counted so far.
    /// Asked for once, right after the request began.
    fn over(&self) -> CancellationToken {
        CancellationToken::new()
    }
}

/// Why a request does not go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A run has had what it may have.
    Cap(Cap),
    /// No run is at work, and what a box asks for in between nobody has asked it for.
    NoRun,
}

/// What a run may be told to keep within.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cap {
    Requests,
    Tokens,
}

impl Cap {
    /// As a configuration writes it.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Requests => "budget.requests",
            Self::Tokens => "budget.tokens",
        }
    }
}

/// What one request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    pub endpoint: Endpoint,
    pub outcome: Outcome,
    /// Bytes of bodies, as the provider got and sent them.
    pub sent: u64,
    pub received: u64,
    /// Of a streamed answer: how many pieces came.
    pub events: u64,
    /// None: the provider did not say. Its parts do not overlap: `input_tokens` are without those of the cache,
    /// `output_tokens` without reasoning.
    pub usage: Option<RunUsage>,
    /// Until the head of the answer. None: there was none.
    pub first_byte: Option<Duration>,
    pub took: Duration,
    /// The provider got the whole request.
    pub whole: bool,
}

impl Spent {
    /// All tokens. Where the provider did not say, because the box left long before the end or no answer came, they are
    /// estimated from the bytes that were seen: what a model thought and did not say is not among them. Nothing is
    /// estimated where the provider refused or had no whole request, or has only told which models it has.
    pub fn tokens(&self) -> u64 {
        if let Some(usage) = self.usage {
            return usage
                .input_tokens
                .saturating_add(usage.output_tokens)
                .saturating_add(usage.reasoning_tokens)
                .saturating_add(usage.cache_read_tokens)
                .saturating_add(usage.cache_write_tokens);
        }
        let worked = match self.outcome {
            Outcome::Answered | Outcome::Broken | Outcome::Gone => true,
            Outcome::NoAnswer => self.whole,
            Outcome::Rejected(_) => false,
        };
        if !worked || self.endpoint == Endpoint::Models {
            return 0;
        }
        // Each piece of a stream has a token at least, and much around it that is none.
        let around = self.events.saturating_mul(AROUND);
        self.sent / BYTES + self.events + self.received.saturating_sub(around) / BYTES
    }
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The whole answer was passed on.
    Answered,
    /// The provider's own error was passed on, or its redirect was not.
    Rejected(StatusCode),
    /// It was not reached, said nothing, or was not told everything.
    NoAnswer,
    /// Half an answer came.
    Broken,
    /// The box did not wait for the end, or it was cut off: see [`Ticket::over`].
    Gone,
}

/// What came of an answer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Came {
    pub(crate) received: u64,
    pub(crate) events: u64,
    pub(crate) usage: Option<RunUsage>,
}

/// Tells a connection of the box when the request on it is to be cut off. The connection has to be told, as an answer is
/// not asked for more while the box does not take it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cut(Arc<watch::Sender<Option<CancellationToken>>>);

impl Cut {
    /// Returns when the request under way is to be cut off.
    pub(crate) async fn off(&self) {
        let mut told = self.0.subscribe();
        loop {
            let over = told.borrow_and_update().clone();
            let cancelled = async {
                match over {
                    Some(over) => over.cancelled_owned().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = cancelled => return,
                // Never an error: the sender is held here.
                _changed = told.changed() => {}
            }
        }
    }
}

/// A ticket that ends, whatever happens.
#[derive(Debug)]
pub(crate) struct Open {
    ticket: Option<Box<dyn Ticket>>,
    endpoint: Endpoint,
    begun: Instant,
    first_byte: Option<Duration>,
    moved: Arc<Moved>,
    over: CancellationToken,
    cut: Cut,
}

impl Open {
    /// While it is open, `cut` is told with the ticket's own token.
    pub(crate) fn new(ticket: Box<dyn Ticket>, endpoint: Endpoint, moved: Arc<Moved>, cut: &Cut) -> Self {
        let (over, cut) = (ticket.over(), cut.clone());
        cut.0.send_replace(Some(over.clone()));
        Self { ticket: Some(ticket), endpoint, begun: Instant::now(), first_byte: None, moved, over, cut }
    }

    pub(crate) fn over(&self) -> CancellationToken {
        self.over.clone()
    }

    pub(crate) fn head_came(&mut self) {
        self.first_byte = Some(self.begun.elapsed());
    }

    pub(crate) fn end(&mut self, outcome: Outcome, came: Came) {
        if let Some(ticket) = self.ticket.take() {
            self.cut.0.send_replace(None);
            let Came { received, events, usage } = came;
            ticket.end(Spent {
                endpoint: self.endpoint,
                outcome,
                sent: self.moved.bytes(),
                received,
                events,
                usage,
                first_byte: self.first_byte,
                took: self.begun.elapsed(),
                whole: self.moved.is_whole(),
            });
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(Outcome::Gone, Came::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(outcome: Outcome, endpoint: Endpoint, (sent, received, events): (u64, u64, u64), expected: u64) {
        let (took, whole) = (Duration::ZERO, sent == 4000);
        let (usage, first_byte) = (None, None);
        let spent = Spent { endpoint, outcome, sent, received, events, usage, first_byte, took, whole };
        assert_eq!(spent.tokens(), expected, "{spent:?}");
        let said =
            RunUsage { input_tokens: 1, reasoning_tokens: 2, cache_read_tokens: 4, ..RunUsage::default() };
        assert_eq!(Spent { usage: Some(said), ..spent }.tokens(), 7);
    }

    #[test]
    fn tokens_that_nobody_counted_are_estimated() {
        let chat = Endpoint::ChatCompletions;
        check(Outcome::Answered, chat, (4000, 800, 0), 1200);
        check(Outcome::Gone, chat, (4000, 230 * 10, 10), 1000 + 10 + 75);
        check(Outcome::Broken, chat, (4000, 10, 10), 1010);
        check(Outcome::Rejected(StatusCode::BAD_REQUEST), chat, (4000, 800, 0), 0);
        check(Outcome::NoAnswer, chat, (4000, 0, 0), 1000);
        check(Outcome::NoAnswer, chat, (3000, 0, 0), 0);
        check(Outcome::Answered, Endpoint::Models, (0, 800, 0), 0);
    }
}
