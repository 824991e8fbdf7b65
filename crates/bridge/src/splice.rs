//! Bytes from a socket to a port and back, until both sides have ended.

use std::io;
use std::pin::pin;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::sleep;

use crate::race::{First, race};

/// One direction of one connection.
pub(crate) const BUFFER: usize = 16 << 10;
/// How often it is looked whether a daemon that has nothing more to say is still there to listen.
const LOOK: Duration = Duration::from_millis(200);

/// A side that ends is told to the other, which may go on. `first` goes out to the port before what the socket says,
/// `unsent` to the socket before what the port says.
pub(crate) async fn splice(
    socket: &mut UnixStream,
    port: &mut TcpStream,
    first: &[u8],
    unsent: &[u8],
) -> io::Result<()> {
    let (mut from_socket, to_socket) = socket.split();
    let (from_port, to_port) = port.split();
    let mut up = pin!(pump(from_port, to_socket, unsent));
    {
        let mut down = pin!(pump(&mut from_socket, to_port, first));
        match race(&mut down, &mut up).await {
            First::Left(ended) => ended?,
            First::Right(ended) => {
                // Also where the daemon takes no more: it may have said why.
                let all = down.await;
                return ended.and(all);
            }
        }
    }
    // The daemon has said all. If it is gone, nobody waits for what the port says: it must not be held up.
    match race(up, gone(from_socket.as_ref())).await {
        First::Left(ended) => ended,
        First::Right(()) => Ok(()),
    }
}

async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    before: &[u8],
) -> io::Result<()> {
    to.write_all(before).await?;
    let mut buffer = vec![0; BUFFER];
    loop {
        match from.read(&mut buffer).await? {
            0 => return to.shutdown().await,
            read => to.write_all(&buffer[..read]).await?,
        }
    }
}

/// Ready when the other side has closed altogether, not only its half.
async fn gone(socket: &UnixStream) {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let mut asked = [PollFd::new(socket, PollFlags::empty())];
        if poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().contains(PollFlags::HUP) {
            return;
        }
        sleep(LOOK).await;
    }
}
