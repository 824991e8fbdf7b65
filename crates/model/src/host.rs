//! A host that the configuration describes: under which names it says who calls.

use crate::Placeholder;
use crate::identity::Id;

/// One `[hosts.NAME]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// What `{host}` says.
    pub name: Id,
    /// The `clientInfo.name` it is chosen by. None: any client that no other description fits.
    pub client: Option<String>,
    pub fields: Vec<(Placeholder, Place)>,
}

/// Where a value lies in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A key of `params._meta`, as it is written there.
    Meta(String),
    /// A header, in lower case.
    Header(String),
}
