//! What the daemon's own socket answers besides its health.
//!
//! ```text
//! /mcp/sessions                                   the tools
//! GET /v1/sessions/ID/runs?limit=N&before=SEQ     {runs: […], next?}    for our own commands
//! GET /v1/runs/ID                                 {run}
//! ```

use std::sync::Arc;

use api::tools::{Tools, run_json};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use model::Principal;
use model::ports::store::{MOST_LISTED, Page, Store};
use serde_json::{Value, json};
use sessions::{Desk, DeskError};

use crate::daemon::socket::{Body, Service};

/// Runs of one page where nobody says how many.
const USUAL: u32 = 100;

/// The tools, and the few things that only our own commands ask for.
pub(super) fn service<S: Store + 'static>(tools: Arc<Tools<S>>, desk: Desk<S>) -> Service {
    Arc::new(move |request: Request<Incoming>| {
        let (tools, desk) = (Arc::clone(&tools), desk.clone());
        Box::pin(async move {
            match Asked::of(request.method(), request.uri()) {
                Some(asked) => asked.answer(&desk).await,
                None => tools.handle(request).await,
            }
        })
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Runs { session: String, page: Page<u64> },
    Run(String),
}

impl Asked {
    /// None: it is for the tools.
    fn of(method: &Method, uri: &Uri) -> Option<Self> {
        let path = uri.path().strip_prefix("/v1/").filter(|_| method == Method::GET)?;
        if let Some(run) = path.strip_prefix("runs/") {
            return Some(Self::Run(run.to_owned()));
        }
        let session = path.strip_prefix("sessions/")?.strip_suffix("/runs")?.to_owned();
        let query = uri.query().unwrap_or_default();
        let number = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(other, _)| *other == name).and_then(|(_, value)| value.parse::<u64>().ok())
        };
        let limit = number("limit").map_or(USUAL, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
        let page = Page { after: number("before"), limit: limit.clamp(1, MOST_LISTED) };
        Some(Self::Runs { session, page })
    }

    /// For the user whose socket this is.
    async fn answer<S: Store>(self, desk: &Desk<S>) -> Response<Body> {
        let answered = match self {
            Self::Run(run) => {
                desk.run(&Principal::local(), &run).await.map(|run| json!({ "run": run_json(&run) }))
            }
            Self::Runs { session, page } => {
                let limit = usize::try_from(page.limit).unwrap_or(usize::MAX);
                desk.runs(&Principal::local(), &session, page).await.map(|runs| {
                    let mut answer = json!({ "runs": runs.iter().map(run_json).collect::<Vec<_>>() });
                    if let Some(last) = runs.last().filter(|_| runs.len() == limit) {
                        answer["next"] = json!(last.run.seq);
                    }
                    answer
                })
            }
        };
        match answered {
            Ok(answer) => written(StatusCode::OK, &answer),
            Err(error) => {
                let status = match &error {
                    DeskError::NoSession(_) | DeskError::NoRun(_) | DeskError::OtherSession { .. } => {
                        StatusCode::NOT_FOUND
                    }
                    DeskError::BadArgument { .. } => StatusCode::BAD_REQUEST,
                    DeskError::Terminated(_)
                    | DeskError::AtWork(_)
                    | DeskError::Exchanging(_)
                    | DeskError::Carry(_)
                    | DeskError::OtherImage { .. }
                    | DeskError::Conflict { .. }
                    | DeskError::QueueFull { .. }
                    | DeskError::NoArtifact(_)
                    | DeskError::Unable(_)
                    | DeskError::StorageFull(_)
                    | DeskError::Store(_)
                    | DeskError::Files { .. } => StatusCode::INTERNAL_SERVER_ERROR,
                };
                let error = json!({ "error": { "code": error.code(), "message": error.to_string() } });
                written(status, &error)
            }
        }
    }
}

fn written(status: StatusCode, answer: &Value) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(answer.to_string())).boxed());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_routes_are_told_from_the_tools() {
        let asked = |method: Method, uri: &'static str| Asked::of(&method, &Uri::from_static(uri));
        let runs =
            |after, limit| Some(Asked::Runs { session: "sn_1".to_owned(), page: Page { after, limit } });
        assert_eq!(asked(Method::GET, "/v1/sessions/sn_1/runs"), runs(None, USUAL));
        assert_eq!(asked(Method::GET, "/v1/sessions/sn_1/runs?limit=0&before=7"), runs(Some(7), 1));
        assert_eq!(asked(Method::GET, "/v1/sessions/sn_1/runs?limit=99999999999"), runs(None, MOST_LISTED));
        assert_eq!(asked(Method::GET, "/v1/runs/run_1"), Some(Asked::Run("run_1".to_owned())));
        assert_eq!(asked(Method::POST, "/v1/runs/run_1"), None);
        assert_eq!(asked(Method::GET, "/mcp/sessions"), None);
    }
}
