//! Our own stdin and stdout without a thread behind them, where they are pipes or sockets: what hosts give us.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream as StdUnixStream;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

/// A terminal or a file is read by a thread: to make it non-blocking would change it for others too.
pub fn standard_input() -> io::Result<Box<dyn AsyncRead + Unpin + Send>> {
    let descriptor = io::stdin().as_fd().try_clone_to_owned()?;
    Ok(match kind(&descriptor)? {
        Kind::Pipe => Box::new(pipe::Receiver::from_owned_fd(descriptor)?),
        Kind::Socket => Box::new(socket(descriptor)?),
        Kind::Other => Box::new(tokio::io::stdin()),
    })
}

pub fn standard_output() -> io::Result<Box<dyn AsyncWrite + Unpin + Send>> {
    let descriptor = io::stdout().as_fd().try_clone_to_owned()?;
    Ok(match kind(&descriptor)? {
        Kind::Pipe => Box::new(pipe::Sender::from_owned_fd(descriptor)?),
        Kind::Socket => Box::new(socket(descriptor)?),
        Kind::Other => Box::new(tokio::io::stdout()),
    })
}

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind(descriptor: &OwnedFd) -> io::Result<Kind> {
    let file = std::fs::File::from(descriptor.try_clone()?);
    let kind = file.metadata()?.file_type();
    Ok(match (kind.is_fifo(), kind.is_socket()) {
        (true, _) => Kind::Pipe,
        (_, true) => Kind::Socket,
        (false, false) => Kind::Other,
    })
}

fn socket(descriptor: OwnedFd) -> io::Result<UnixStream> {
    let stream = StdUnixStream::from(descriptor);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
