//! What the pages need from the daemon, as a port.

use std::error::Error;
use std::future::Future;

use model::Principal;
use tokio::sync::watch;

use crate::route::{CallFilter, Key, Topic};
use crate::text::Text;
use crate::view;

/// Tells that something has changed, by being another number than before. Many changes at once are one.
pub type Beat = watch::Receiver<u64>;

/// Why a page could not be made. The person sees a number and what to do; the log has the rest.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// What is asked for is there, but not now: a lock, a restart. Worth another try.
    #[error("it is busy")]
    Busy,
    #[error("could not {doing}")]
    Failed { doing: &'static str, source: Box<dyn Error + Send + Sync> },
}

/// What became of the wish to cancel a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It is over, or will be in a moment.
    Asked,
    /// It had ended before.
    Ended,
    /// In words for the person.
    Refused(Text),
}

/// Everything that pages show. Each question names the principal that asks, and what is another's is not there: `None` for both,
/// and lists without it. Every list is bounded by whoever answers; nothing here asks how many there are in all.
pub trait Source: Send + Sync + 'static {
    /// Unix milliseconds.
    fn now(&self) -> u64;

    fn overview(&self, who: &Principal) -> impl Future<Output = Result<view::Overview, Trouble>> + Send;

    /// One page, newest first. `before` is a key that an earlier page gave; one that is not known any more begins anew.
    fn calls(
        &self,
        who: &Principal,
        filter: &CallFilter,
        before: Option<&Key>,
    ) -> impl Future<Output = Result<view::Page<view::CallRow>, Trouble>> + Send;

    fn call(
        &self,
        who: &Principal,
        key: &Key,
    ) -> impl Future<Output = Result<Option<view::Call>, Trouble>> + Send;

    fn sessions(
        &self,
        who: &Principal,
        before: Option<&Key>,
    ) -> impl Future<Output = Result<view::Page<view::SessionRow>, Trouble>> + Send;

    /// A session of a host, with its threads and a page of its calls.
    fn session(
        &self,
        who: &Principal,
        name: (&str, &str),
        before: Option<&Key>,
    ) -> impl Future<Output = Result<Option<view::Session>, Trouble>> + Send;

    fn runs(
        &self,
        who: &Principal,
        before: Option<&Key>,
    ) -> impl Future<Output = Result<view::Page<view::RunRow>, Trouble>> + Send;

    fn run(
        &self,
        who: &Principal,
        id: &str,
    ) -> impl Future<Output = Result<Option<view::Run>, Trouble>> + Send;

    /// A file that a run left, by a path that the run's page named. Bounded by whoever answers.
    fn artifact(
        &self,
        who: &Principal,
        run: &str,
        path: &str,
    ) -> impl Future<Output = Result<Option<Vec<u8>>, Trouble>> + Send;

    /// `None`: there is no such run. Repeating it changes nothing.
    fn cancel(
        &self,
        who: &Principal,
        run: &str,
    ) -> impl Future<Output = Result<Option<CancelOutcome>, Trouble>> + Send;

    fn servers(&self, who: &Principal) -> impl Future<Output = Result<Vec<view::ServerRow>, Trouble>> + Send;

    fn server(
        &self,
        who: &Principal,
        name: &str,
    ) -> impl Future<Output = Result<Option<view::Server>, Trouble>> + Send;

    fn hooks(&self, who: &Principal) -> impl Future<Output = Result<Vec<view::Hook>, Trouble>> + Send;

    /// What can be chosen on the page that explains, and, where both are chosen and known, what there is to say.
    fn why(
        &self,
        who: &Principal,
        pair: Option<(&str, &str)>,
    ) -> impl Future<Output = Result<view::Why, Trouble>> + Send;

    /// Beats when what a page of this topic shows has changed. `None`: there is nothing to wait for. What this principal may not
    /// see must not make it beat.
    fn watch(&self, who: &Principal, topic: &Topic) -> Option<Beat>;
}
