//! What the daemon's own socket answers besides its health.

use std::sync::Arc;

use api::tools::{Tools, run_json};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use model::Principal;
use model::ports::store::{MOST_LISTED, Page, Store};
use serde_json::json;
use sessions::{Desk, DeskError};

use crate::daemon::socket::{Body, Service, plain};

/// The tools, and the few things that only our own commands ask for.
pub(super) fn service<S: Store + 'static>(tools: Arc<Tools<S>>, desk: Desk<S>) -> Service {
    Arc::new(move |request: Request<Incoming>| {
        let (tools, desk) = (Arc::clone(&tools), desk.clone());
        Box::pin(async move {
            match runs_of(&request) {
                Some((session, page)) => list_runs(&desk, &session, page).await,
                None => tools.handle(request).await,
            }
        })
    })
}

/// `GET /v1/sessions/ID/runs?limit=N&before=SEQ`, for the user whose socket this is.
fn runs_of(request: &Request<Incoming>) -> Option<(String, Page<u64>)> {
    let uri = request.uri();
    let session = uri.path().strip_prefix("/v1/sessions/")?.strip_suffix("/runs")?;
    let number = |name: &str| {
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(other, _)| *other == name).and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let limit = number("limit").and_then(|limit| u32::try_from(limit).ok()).unwrap_or(100);
    let page = Page { after: number("before"), limit: limit.min(MOST_LISTED) };
    (request.method() == Method::GET).then(|| (session.to_owned(), page))
}

async fn list_runs<S: Store>(desk: &Desk<S>, session: &str, page: Page<u64>) -> Response<Body> {
    match desk.runs(&Principal::local(), session, page).await {
        Ok(runs) => {
            let runs: Vec<_> = runs.iter().map(run_json).collect();
            let mut response =
                Response::new(Full::new(Bytes::from(json!({ "runs": runs }).to_string())).boxed());
            response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error @ (DeskError::NoSession(_) | DeskError::BadArgument { .. })) => {
            plain(StatusCode::NOT_FOUND, error.to_string())
        }
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}
