//! Whether the agent lives: by what it answers, never by what a stream beats.

use std::time::Duration;

use model::ports::agent::{AgentError, Failure};
use tokio::time::Instant;

use super::Timing;

/// Answers in a row that are no answer, until that is taken for the agent's last word.
const CONFUSED: u32 = 20;

#[derive(Debug)]
pub(super) struct Life {
    timing: Timing,
    /// When the first request was begun that has no answer yet, and no other one since.
    unanswered: Option<Instant>,
    /// Since when every connection is refused or broken.
    refused: Option<Instant>,
    confused: u32,
}

impl Life {
    pub(super) fn new(timing: Timing) -> Self {
        Self { timing, unanswered: None, refused: None, confused: 0 }
    }

    /// A request is begun. While nobody asks, nobody is silent.
    pub(super) fn asked(&mut self, now: Instant) {
        self.unanswered.get_or_insert(now);
    }

    /// It answered, or something happened in the session.
    pub(super) fn seen(&mut self) {
        self.unanswered = None;
        self.refused = None;
        self.confused = 0;
    }

    /// How long the next request may take.
    pub(super) fn patience(&self, now: Instant) -> Duration {
        let left = self.timing.stalled.saturating_sub(self.silence(now));
        self.timing.request.min(left.max(Duration::from_millis(10)))
    }

    /// Whether the last request was refused or not answered.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.refused.is_some() || self.unanswered.is_some()
    }

    fn silence(&self, now: Instant) -> Duration {
        self.unanswered.map(|since| now - since).unwrap_or_default()
    }

    /// What a request that failed means: nothing yet, or the end.
    pub(super) fn judge(&mut self, error: AgentError, now: Instant) -> Option<Failure> {
        match error {
            AgentError::Unreachable { reason } => {
                let since = *self.refused.get_or_insert(now);
                if now - since >= self.timing.gone {
                    return Some(Failure::Crashed { reason: format!("it cannot be reached: {reason}") });
                }
            }
            AgentError::NoAnswer { .. } => self.refused = None,
            AgentError::Unauthorized => {
                return Some(Failure::Protocol { what: AgentError::Unauthorized.to_string() });
            }
            AgentError::Unknown { what } => return Some(Failure::Lost { what }),
            // It answers, if only so.
            error @ (AgentError::Refused { .. }
            | AgentError::Protocol { .. }
            | AgentError::Uncertain { .. }) => {
                let confused = self.confused + 1;
                self.seen();
                self.confused = confused;
                if confused >= CONFUSED {
                    return Some(Failure::Protocol { what: error.to_string() });
                }
            }
        }
        let silent = self.silence(now);
        (silent >= self.timing.stalled).then_some(Failure::Stalled { seconds: silent.as_secs() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreachable() -> AgentError {
        AgentError::Unreachable { reason: "refused".to_owned() }
    }

    fn silent() -> AgentError {
        AgentError::NoAnswer { seconds: 5 }
    }

    #[test]
    fn refused_for_seconds_is_gone_and_an_answer_in_between_is_life() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut life = Life::new(Timing::default());
        assert_eq!(life.judge(unreachable(), start), None);
        life.seen();
        assert_eq!(life.judge(unreachable(), at(2500)), None);
        assert_eq!(life.judge(unreachable(), at(5400)), None);
        assert_eq!(life.judge(unreachable(), at(5500)).unwrap().code(), "agent_crashed");
    }

    #[test]
    fn silent_for_long_is_stalled_and_no_request_waits_past_that() {
        let mut now = Instant::now();
        let mut life = Life::new(Timing::default());
        life.asked(now);
        life.seen();
        // Nobody asked for an hour.
        now += Duration::from_hours(1);
        for _ in 0..17 {
            life.asked(now);
            now += life.patience(now);
            assert_eq!(life.judge(silent(), now), None);
        }
        assert!(life.is_in_doubt());
        now += Duration::from_secs(3);
        assert_eq!(life.patience(now), Duration::from_secs(2));
        now += life.patience(now);
        assert_eq!(life.judge(silent(), now), Some(Failure::Stalled { seconds: 90 }));
    }

    #[test]
    fn an_error_as_an_answer_is_life_for_a_while() {
        let mut now = Instant::now();
        let mut life = Life::new(Timing::default());
        let error = || AgentError::Refused { status: 500, message: "boom".to_owned() };
        for _ in 0..19 {
            life.asked(now);
            now += Duration::from_secs(30);
            assert_eq!(life.judge(error(), now), None);
        }
        assert_eq!(life.judge(error(), now).unwrap().code(), "agent_protocol");
        let lost = AgentError::Unknown { what: "it".into() };
        assert_eq!(life.judge(lost, now).unwrap().code(), "agent_lost");
    }
}
