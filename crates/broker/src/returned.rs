//! An answer on its way back to the box, as it comes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;

use crate::body::BoxError;
use crate::meter::Outcome;
use crate::scrub::Scrub;
use crate::strict::{Busy, Deadline};

/// Who wants to know how an answer goes on. One of the two ends is told.
pub(crate) trait Tally: fmt::Debug + Send {
    fn data(&mut self, bytes: &[u8]);

    fn ended(self: Box<Self>, outcome: Outcome);

    /// The box did not wait for the end, and this is what it did not take.
    fn left(self: Box<Self>, rest: Incoming);
}

#[derive(Debug)]
pub(crate) struct Returned {
    /// None once it is of no use.
    inner: Option<Incoming>,
    /// None once it was told the end.
    tally: Option<Box<dyn Tally>>,
    scrub: Option<Scrub>,
    /// How long nothing may come.
    silence: Duration,
    deadline: Deadline,
    _busy: Busy,
}

impl Returned {
    pub(crate) fn new(inner: Incoming, tally: Box<dyn Tally>, silence: Duration, busy: Busy) -> Self {
        let (is_over, deadline) = (inner.is_end_stream(), Deadline::default());
        let (inner, tally) = (Some(inner), Some(tally));
        let mut returned = Self { inner, tally, scrub: None, silence, deadline, _busy: busy };
        if is_over {
            returned.end(Outcome::Answered); // Nobody asks a body for more that says it has none.
        }
        returned
    }

    #[must_use]
    pub(crate) fn without(mut self, scrub: Option<Scrub>) -> Self {
        self.scrub = scrub;
        self
    }

    fn end(&mut self, outcome: Outcome) {
        if let Some(tally) = self.tally.take() {
            tally.ended(outcome);
        }
    }

    fn inner_is_over(&self) -> bool {
        self.inner.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    /// What may be passed on now.
    fn pass(&mut self, data: Bytes) -> Bytes {
        if let Some(tally) = &mut self.tally {
            tally.data(&data);
        }
        let is_over = self.inner_is_over();
        let Some(scrub) = &mut self.scrub else { return data };
        let clean = scrub.pass(data);
        if !is_over {
            return clean;
        }
        let rest = scrub.finish();
        if rest.is_empty() { clean } else { Bytes::from([clean, rest].concat()) }
    }
}

impl HttpBody for Returned {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        loop {
            let Some(inner) = &mut this.inner else { return Poll::Ready(None) };
            match Pin::new(inner).poll_frame(context) {
                Poll::Pending if this.deadline.is_over(this.silence, context) => {
                    this.end(Outcome::Broken);
                    return Poll::Ready(Some(Err("nothing came for too long".into())));
                }
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(frame))) => {
                    this.deadline.clear();
                    // Trailers are left out: they are headers that nobody has looked at.
                    let Ok(data) = frame.into_data() else { continue };
                    let data = this.pass(data);
                    if this.inner_is_over() {
                        this.end(Outcome::Answered);
                    }
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::data(data))));
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    this.end(Outcome::Broken);
                    return Poll::Ready(Some(Err("the answer broke off".into())));
                }
                Poll::Ready(None) => {
                    this.end(Outcome::Answered);
                    let rest = this.scrub.as_mut().map(Scrub::finish).unwrap_or_default();
                    let rest = (!rest.is_empty()).then(|| Ok(Frame::data(rest)));
                    return Poll::Ready(rest);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tally.is_none() && self.inner_is_over()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(SizeHint::new, HttpBody::size_hint)
    }
}

impl Drop for Returned {
    fn drop(&mut self) {
        if let (Some(tally), Some(rest)) = (self.tally.take(), self.inner.take()) {
            tally.left(rest);
        }
    }
}
