//! Where clients come in.

pub mod http;
pub mod stdio;
