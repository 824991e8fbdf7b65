//! The vocabulary every other room shares: names, server specifications, templates.
//!
//! **Invariant:** nothing here does I/O, spawns, logs, or knows a wire format.
//! Values that exist are valid: each type has one maker that refuses what is wrong.

pub mod hooks;
pub mod host;
pub mod identity;
pub mod ids;
pub mod ports;
pub mod server;
pub mod session;
pub mod settings;
pub mod template;

pub use hooks::HookFile;
pub use host::{HostSpec, Place};
pub use identity::{Id, Identity, Source, Trust};
pub use ids::{Principal, ServerName};
pub use server::{
    Capture, Directory, EnvSource, EnvVar, HeadersCommand, HttpSpec, InheritEnv, Isolation, ServerSpec,
    StdioSpec, Transport,
};
pub use template::{Placeholder, Template};
