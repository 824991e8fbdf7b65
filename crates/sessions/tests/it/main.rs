//! The engine and the desk on the real store, with boxes and an agent that are played.

mod played;
mod stories;
