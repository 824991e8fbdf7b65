//! The few things we read in answers. Everything else in them passes unseen.

use std::time::{Duration, Instant};

use bytes::Bytes;
use mcp::{Message, Span};
use serde::Deserialize;
use serde_json::value::RawValue;

/// However long a server promises to keep a task, its process is not kept longer for it alone.
const LONGEST_HOLD: Duration = Duration::from_hours(24);
/// A task whose lifetime is not said.
const DEFAULT_HOLD: Duration = Duration::from_mins(10);

/// The cursor as it is written, quotes included: it comes back spelled the same or not at all.
pub fn next_cursor(result: &[u8]) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow, rename = "nextCursor")]
        next: Option<&'a RawValue>,
    }
    let page: Page<'_> = serde_json::from_slice(result).ok()?;
    page.next.filter(|next| next.get() != "null").map(|next| Bytes::copy_from_slice(next.get().as_bytes()))
}

/// The subscription id in the `_meta` of a result that ends a `subscriptions/listen`.
pub fn subscription_id(message: &Message, result: &Span) -> Option<Span> {
    #[derive(Deserialize)]
    struct Ended<'a> {
        #[serde(borrow, rename = "_meta")]
        meta: Option<Meta<'a>>,
    }
    #[derive(Deserialize)]
    struct Meta<'a> {
        #[serde(borrow, rename = "io.modelcontextprotocol/subscriptionId")]
        id: Option<&'a RawValue>,
    }
    let ended: Ended<'_> = serde_json::from_slice(&message.bytes()[result.clone()]).ok()?;
    ended.meta?.id.map(|raw| mcp::envelope::span_in(message.bytes(), raw))
}

/// The id of a task as it is written and how long it may be asked for, if this result made one. Both shapes:
/// nested (2025-11-25) and flat.
pub fn task(result: &[u8]) -> Option<(Option<Bytes>, Duration)> {
    #[derive(Deserialize)]
    struct Created<'a> {
        #[serde(borrow)]
        task: Option<Task<'a>>,
        #[serde(borrow, rename = "taskId")]
        task_id: Option<&'a RawValue>,
        #[serde(rename = "ttlMs")]
        ttl_ms: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Task<'a> {
        #[serde(borrow, rename = "taskId")]
        task_id: Option<&'a RawValue>,
        ttl: Option<u64>,
    }
    // Most results have neither word; do not parse megabytes to find that out.
    memchr::memmem::find(result, b"task")?;
    let created: Created<'_> = serde_json::from_slice(result).ok()?;
    let (id, ttl) = match created {
        Created { task: Some(task), .. } => (task.task_id, task.ttl),
        Created { task_id: Some(id), ttl_ms, .. } => (Some(id), ttl_ms),
        Created { .. } => return None,
    };
    let id = id.map(|id| Bytes::copy_from_slice(id.get().as_bytes()));
    Some((id, ttl.map_or(DEFAULT_HOLD, Duration::from_millis).min(LONGEST_HOLD)))
}

/// The uris of a page of resources, as they are written.
pub fn listed_uris(result: &[u8]) -> Vec<Bytes> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        resources: Vec<Resource<'a>>,
    }
    #[derive(Deserialize)]
    struct Resource<'a> {
        #[serde(borrow)]
        uri: &'a RawValue,
    }
    let page = serde_json::from_slice::<Page<'_>>(result);
    page.map(|page| page.resources.iter().map(|it| Bytes::copy_from_slice(it.uri.get().as_bytes())).collect())
        .unwrap_or_default()
}

/// How long an answer may stand in for its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShelfLife {
    /// The old era: until something changes.
    Unsaid,
    Until(Instant),
    /// Not for anybody else.
    Private,
}

pub fn shelf_life(answer: &Message) -> ShelfLife {
    #[derive(Deserialize)]
    struct Kept<'a> {
        #[serde(borrow, rename = "cacheScope")]
        scope: Option<std::borrow::Cow<'a, str>>,
        #[serde(rename = "ttlMs")]
        ttl_ms: Option<u64>,
    }
    let result = answer.head().result.clone().map(|span| &answer.bytes()[span]);
    let Some(kept) = result.and_then(|result| serde_json::from_slice::<Kept<'_>>(result).ok()) else {
        return ShelfLife::Private;
    };
    match (kept.scope.as_deref(), kept.ttl_ms) {
        (None, None) => ShelfLife::Unsaid,
        (Some("public"), Some(ttl)) => {
            ShelfLife::Until(Instant::now() + Duration::from_millis(ttl).min(LONGEST_HOLD))
        }
        _ => ShelfLife::Private,
    }
}

/// The uri of `notifications/resources/updated`, as it is written.
pub fn updated_uri(message: &Message) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct Updated<'a> {
        #[serde(borrow)]
        uri: &'a RawValue,
    }
    let params = message.head().params.clone()?;
    let updated: Updated<'_> = serde_json::from_slice(&message.bytes()[params]).ok()?;
    Some(Bytes::copy_from_slice(updated.uri.get().as_bytes()))
}
