//! A server that is reached through a door instead of an address: a unix socket of our own daemon.
//!
//! No address is looked up, so none is guarded; nothing is encrypted, since nothing leaves the machine. Whoever is
//! behind the door believes us who calls, for the door is closed to everybody else.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// The header with the principal's name. Absent means `local`.
pub const PRINCIPAL: &str = "callsign-principal";
/// The header with the settings of a host's entry: a JSON object of variables in base64.
pub const SETTINGS: &str = "callsign-settings";

pub type Opening<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The way to a server behind a unix socket.
pub trait Door: fmt::Debug + Send + Sync {
    /// Opens a connection, and does what it takes that somebody is there. Has a deadline of its own.
    fn open(&self) -> Opening<io::Result<UnixStream>>;

    /// Whether somebody is there now. Asked before what is not worth calling anybody for: a stream of what the server
    /// says unasked, a goodbye.
    fn knock(&self) -> Opening<bool>;

    /// Headers of every request, beside the principal's. Nothing can replace them.
    fn headers(&self) -> &[(&'static str, String)];
}

/// A connection, whichever way it goes.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        match self {
            Self::Tcp(stream) => stream.connected(),
            Self::Unix(stream) => stream.connected(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
