//! The bridge as boxes start it, and the daemon's end of it: real processes, real sockets.

#![cfg(test)]

mod boxed;
mod carry;
mod control;
mod events;
mod harness;
mod init;
mod program;
mod restart;
mod sockets;
