//! Bodies towards the box.

use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderValue};
use http_body_util::{BodyExt as _, Either, Full};
use hyper::body::Incoming;

use crate::returned::Returned;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Made here, or passed on.
pub(crate) type Body = Either<Full<Bytes>, Returned>;

/// How much of a refused body is read away, and for how long.
const DRAINED: usize = 128 * 1024 * 1024;
const DRAINING: Duration = Duration::from_secs(5);
/// Whoever sends nothing for this long waits for the answer.
const PAUSE: Duration = Duration::from_millis(200);

/// Reads away what the box still sends: whoever is cut off while it writes does not read our answer.
pub(crate) async fn drain(mut incoming: Incoming) {
    let read_away = async {
        let mut left = DRAINED;
        while let Ok(Some(Ok(frame))) = tokio::time::timeout(PAUSE, incoming.frame()).await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    let _enough = tokio::time::timeout(DRAINING, read_away).await;
}

/// The rest of the connection cannot be trusted, or was not read.
pub(crate) fn closing<B>(mut response: Response<B>) -> Response<B> {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}
