//! Every server knows who calls it: processes, `_meta`, headers, signatures, and what is refused.

mod announced;
mod assertion;
mod inherited;
mod lists;
mod lobby;
mod minted;
mod neighbours;
mod require;
mod sealed;
mod templates;
mod threads;
