//! Names the protocol reserves, and the revisions it has.

/// `params._meta` of every request of the new era.
pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// On every message that belongs to a `subscriptions/listen`: the id of that request.
pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";

/// The first revision of all.
pub const FIRST: &str = "2024-11-05";
/// The first revision without `initialize`.
pub const FIRST_MODERN: &str = "2026-07-28";
/// What a legacy client that sends no `MCP-Protocol-Version` means.
pub const ASSUMED_LEGACY: &str = "2025-03-26";

/// Revisions are dates, so the order of the text is the order of time.
pub fn is_modern(version: &str) -> bool {
    let looks_like_a_date = version.len() == 10 && version.as_bytes()[4] == b'-';
    looks_like_a_date && version >= FIRST_MODERN
}

/// What a server answers before it knows who asks.
///
/// `ping` and `logging/setLevel` are about the connection, not about a caller's work.
pub fn is_discovery(method: &str) -> bool {
    matches!(
        method,
        "initialize"
            | "server/discover"
            | "ping"
            | "logging/setLevel"
            | "tools/list"
            | "prompts/list"
            | "resources/list"
            | "resources/templates/list"
    )
}

/// A list whose answer may have a `nextCursor`.
pub fn is_list(method: &str) -> bool {
    matches!(method, "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list")
}
