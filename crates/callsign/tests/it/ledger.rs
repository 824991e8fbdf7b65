//! The ledger from outside: calls on every way, and the rows that `callsign calls` and `export` give back.

mod canary;
mod canary_places;
mod capture;
mod ended;
mod kept;
mod many;
mod metrics;
mod outcomes;
mod played;
mod refused;
mod rig;
mod spans;
mod strict;
mod traces;
mod who;
