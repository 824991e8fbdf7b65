//! Response bodies: one message, a stream of messages, or what another server sends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::Stream;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::returned::Relay;
use super::strict::Watch;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

#[expect(missing_debug_implementations, reason = "streams have nothing to show")]
pub struct Body {
    content: Content,
    /// Told when the body has been sent, or nobody wants it any more.
    watch: Option<Arc<Watch>>,
}

enum Content {
    Empty,
    Full(Option<Bytes>),
    Stream(Pin<Box<dyn Stream<Item = Bytes> + Send>>),
    Relay(Relay),
}

impl Body {
    pub fn empty() -> Self {
        Self { content: Content::Empty, watch: None }
    }

    pub fn full(bytes: Bytes) -> Self {
        Self { content: Content::Full(Some(bytes)), watch: None }
    }

    pub fn stream(stream: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self { content: Content::Stream(Box::pin(stream)), watch: None }
    }

    pub fn relay(relay: Relay) -> Self {
        Self { content: Content::Relay(relay), watch: None }
    }

    #[must_use]
    pub fn watched(mut self, watch: Arc<Watch>) -> Self {
        self.watch = Some(watch);
        self
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.finish();
        }
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.content {
            Content::Empty => Poll::Ready(None),
            Content::Full(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Content::Stream(stream) => {
                stream.as_mut().poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
            Content::Relay(relay) => Pin::new(relay).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Empty | Content::Full(None) => true,
            Content::Full(Some(_)) | Content::Stream(_) => false,
            Content::Relay(relay) => relay.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Empty | Content::Full(None) => SizeHint::with_exact(0),
            Content::Full(Some(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Content::Stream(_) => SizeHint::default(),
            Content::Relay(relay) => relay.size_hint(),
        }
    }
}
