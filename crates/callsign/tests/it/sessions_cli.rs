//! `callsign sessions`, `submit`, `runs`, `logs` and `artifacts`: what they ask for, and what people and programs see.
//!
//! The daemon here is one of the test's own: it says what a real one takes minutes to get to. That a real one says the
//! same is shown where real agents run.

mod fake;
mod looked_at;
mod own_daemon;
mod waited_for;
