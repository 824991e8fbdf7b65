//! Whichever of two is first. Tokio's macros for it cost more time to compile than all of this program.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

#[derive(Debug)]
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// The other one is dropped. Where both are ready, the left one is taken.
pub(crate) async fn race<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let (mut left, mut right) = (pin!(left), pin!(right));
    poll_fn(|context| {
        if let Poll::Ready(done) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(done));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}
