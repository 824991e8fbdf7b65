//! What the rest needs from the world, as traits. Whoever implements one knows a library; whoever uses one does not.

pub mod agent;
pub mod sandbox;
pub mod store;
