//! What is done once a call has its answer: hooks see it, it is noted how it ended, and its caller gets it.

use std::sync::Arc;
use std::task::{Context, Waker};

use bytes::Bytes;
use mcp::Message;

use crate::connection::Connection;
use crate::hooked::After;
use crate::outbox::Outbox;
use crate::recorded::Record;
use crate::respond::CallError;

/// Goes along with a call to whoever ends it.
#[derive(Debug, Clone, Default)]
pub struct Ending {
    /// None: it is not noted.
    pub record: Option<Arc<Record>>,
    /// None: no hook is for its answer.
    pub after: Option<Arc<After>>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Answered<'a> {
    /// With this answer of its server, which its caller gets in these bytes.
    By(&'a Message, Bytes),
    Failed(&'a CallError),
}

/// Who waits for an answer.
#[derive(Debug)]
pub struct Asker {
    pub outbox: Arc<Outbox>,
    pub connection: Arc<Connection>,
    pub id: Bytes,
}

impl Ending {
    /// Whether all is done at once.
    pub fn is_quick(&self) -> bool {
        self.after.is_none()
    }

    /// Bytes that it holds.
    pub fn size(&self) -> usize {
        self.after.as_ref().map_or(0, |after| after.size())
    }

    /// Notes it, where no hook is for it.
    fn note(&self, answered: &Answered<'_>) {
        let Some(record) = &self.record else { return };
        match answered {
            Answered::By(answer, _) => record.answered(answer),
            Answered::Failed(error) => record.failed(error),
        }
    }

    /// The answer to the request `id` as its caller gets it.
    pub async fn answer(&self, id: Option<&[u8]>, answered: Answered<'_>) -> Bytes {
        let bytes = match &answered {
            Answered::By(_, bytes) => bytes.clone(),
            Answered::Failed(error) => error.to_message(id),
        };
        let Some(after) = &self.after else {
            self.note(&answered);
            return bytes;
        };
        match after.answer(bytes).await {
            Ok(bytes) => {
                self.note(&answered);
                bytes
            }
            Err(withheld) => {
                self.note(&Answered::Failed(&withheld));
                withheld.to_message(id)
            }
        }
    }

    /// Answers the caller, at once if the hooks are quick.
    pub fn finish(&self, answered: Answered<'_>, to: Asker) {
        let Some(after) = &self.after else { return self.finish_at_once(answered, &to) };
        let tasks = after.tasks.clone();
        let mut work = Box::pin(self.finishing(answered, to));
        let mut context = Context::from_waker(Waker::noop());
        if work.as_mut().poll(&mut context).is_pending() {
            tasks.spawn(work);
        }
    }

    /// The same for whoever must not wait: it holds a lock.
    pub fn finish_later(&self, answered: Answered<'_>, to: Asker) {
        match &self.after {
            Some(after) => drop(after.tasks.spawn(self.finishing(answered, to))),
            None => self.finish_at_once(answered, &to),
        }
    }

    fn finish_at_once(&self, answered: Answered<'_>, to: &Asker) {
        self.note(&answered);
        to.connection.end(&to.id);
        to.outbox.finish(match answered {
            Answered::By(_, bytes) => bytes,
            Answered::Failed(error) => error.to_message(Some(&to.id)),
        });
    }

    fn finishing(&self, answered: Answered<'_>, to: Asker) -> impl Future<Output = ()> + Send + 'static {
        let ending = self.clone();
        let answered = match answered {
            Answered::By(answer, bytes) => Ok((answer.clone(), bytes)),
            Answered::Failed(error) => Err(error.clone()),
        };
        async move {
            let answered = match &answered {
                Ok((answer, bytes)) => Answered::By(answer, bytes.clone()),
                Err(error) => Answered::Failed(error),
            };
            let answer = ending.answer(Some(&to.id), answered).await;
            // The request is under way until its answer is queued: a host's end waits for that.
            to.outbox.finish(answer);
            to.connection.end(&to.id);
        }
    }

    /// Its caller has gone, or has said so.
    pub fn canceled(&self) {
        if let Some(record) = &self.record {
            record.canceled();
        }
    }
}
