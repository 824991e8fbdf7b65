//! Hooks from outside: the real binary, real files, real servers; judged by what arrived on either side.

mod after;
mod arguments;
mod cancelled;
mod ended;
mod env;
mod meta;
mod once;
mod order;
mod refused;
mod reload;
mod rig;
mod said;
mod scripted;
mod signed;
mod start;
mod strange;
mod streams;
mod unasked;
