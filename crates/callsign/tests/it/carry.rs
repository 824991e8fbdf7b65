//! What goes in at one end comes out at the other: pipe and HTTP on either side, in both eras.

mod cancel;
mod http;
mod notifications;
mod plain;
mod questions;
