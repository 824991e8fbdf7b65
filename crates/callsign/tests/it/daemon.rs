//! The daemon behind `callsign mcp`: one per state directory, started by whoever needs it, ended by nobody's end.

mod door;
mod lifecycle;
mod rig;
