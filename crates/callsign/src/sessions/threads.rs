//! Which session a conversation of an agent belongs to. The first that names it has it: agents make them up, and no
//! other session can know one before. It stays so while the box is stopped.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use model::session::SessionId;

/// Conversations remembered for one session. The oldest are forgotten.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub struct Threads(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    owners: HashMap<String, SessionId>,
    of_session: HashMap<SessionId, VecDeque<String>>,
}

impl Threads {
    /// Whether it is this session's, as it is from now on if it was nobody's.
    pub fn claim(&self, thread: &str, session: &SessionId) -> bool {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(owner) = inner.owners.get(thread) {
            return owner == session;
        }
        let Inner { owners, of_session } = &mut *inner;
        owners.insert(thread.to_owned(), session.clone());
        let own = of_session.entry(session.clone()).or_default();
        own.push_back(thread.to_owned());
        if own.len() > MOST
            && let Some(oldest) = own.pop_front()
            && owners.get(&oldest) == Some(session)
        {
            owners.remove(&oldest);
        }
        true
    }

    /// It is this session's, whoever said so of another: that is on disk. It is not forgotten for others that it names.
    pub fn assign(&self, thread: &str, session: &SessionId) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner { owners, of_session } = &mut *inner;
        if let Some(before) = owners.insert(thread.to_owned(), session.clone())
            && let Some(named) = of_session.get_mut(&before)
        {
            named.retain(|named| named != thread);
        }
    }

    pub fn forget(&self, session: &SessionId) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.of_session.remove(session);
        inner.owners.retain(|_, owner| owner != session);
    }
}

#[cfg(test)]
mod tests {
    use model::session::Stamp;

    use super::*;

    fn session(number: u8) -> SessionId {
        SessionId::new(Stamp { millis: 1, random: [number; 10] })
    }

    #[test]
    fn a_conversation_is_whose_it_was_first() {
        let threads = Threads::default();
        assert!(threads.claim("ses_a", &session(1)) && threads.claim("ses_a", &session(1)));
        assert!(!threads.claim("ses_a", &session(2)));
        threads.assign("ses_a", &session(2));
        assert!(threads.claim("ses_a", &session(2)));
        assert!(!threads.claim("ses_a", &session(1)));
    }

    #[test]
    fn one_session_makes_no_other_forget() {
        let threads = Threads::default();
        assert!(threads.claim("ses_a", &session(1)));
        for number in 0..3 * MOST {
            assert!(threads.claim(&format!("ses_{number}"), &session(2)));
        }
        assert!(!threads.claim("ses_a", &session(2)));
        assert_eq!(threads.0.lock().unwrap().owners.len(), MOST + 1);
        threads.assign("ses_root", &session(2));
        for number in 0..3 * MOST {
            assert!(threads.claim(&format!("ses_more_{number}"), &session(2)));
        }
        assert!(!threads.claim("ses_root", &session(1)), "the root is kept");
        threads.forget(&session(2));
        assert_eq!(threads.0.lock().unwrap().owners.len(), 1);
    }
}
