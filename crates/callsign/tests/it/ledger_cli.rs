//! `callsign calls` and `callsign ledger`, on ledgers that were written here, row by row.

mod asked;
mod export;
mod follow;
mod rig;
mod shown;
mod tree;
mod verify;
