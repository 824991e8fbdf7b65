//! Bytes in both directions, until both sides have said all, or neither says anything.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use crate::sent::Moved;

/// How long nothing may move.
const IDLE: Duration = Duration::from_mins(5);
const PIECE: usize = 16 * 1024;

/// How much went through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// `inside` is the box.
pub(crate) async fn carry<I, O>(inside: I, outside: O, stop: &CancellationToken) -> Carried
where
    I: AsyncRead + AsyncWrite,
    O: AsyncRead + AsyncWrite,
{
    let (clock, sent, received) = (Moved::new(), AtomicU64::new(0), AtomicU64::new(0));
    let (from_box, to_box) = tokio::io::split(inside);
    let (from_host, to_host) = tokio::io::split(outside);
    let both = async {
        // One that fails ends the other: half a connection is of use only where its end was said.
        tokio::try_join!(copy(from_box, to_host, &clock, &sent), copy(from_host, to_box, &clock, &received))
    };
    tokio::select! {
        _ended = both => {}
        () = clock.rests(IDLE) => {}
        () = stop.cancelled() => {}
    }
    Carried { sent: sent.load(Ordering::Relaxed), received: received.load(Ordering::Relaxed) }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    clock: &Moved,
    count: &AtomicU64,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..length]).await?;
        clock.add(length);
        count.fetch_add(length as u64, Ordering::Relaxed);
    }
}
