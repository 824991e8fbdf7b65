//! The dashboard as a browser meets it: requests in, responses out, over a source that plays.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failure here is a failed test")]

mod access;
mod live;
mod markup;
mod pages;
mod played;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dashboard::{Auth, Body, Dashboard, Options};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use model::Principal;
use played::Played;
use tokio_util::sync::CancellationToken;

/// Tokens that count.
type Tokens = Arc<Mutex<Vec<&'static str>>>;

struct Browser {
    dashboard: Dashboard<Played>,
    cookie: Option<String>,
    tokens: Tokens,
    stop: CancellationToken,
}

struct Answer {
    status: StatusCode,
    headers: http::HeaderMap,
    text: String,
}

impl Browser {
    fn new(source: Played) -> Self {
        let tokens: Tokens = Arc::new(Mutex::new(vec!["cs_local", "cs_alice"]));
        let known = Arc::clone(&tokens);
        let auth = Auth::Tokens(Arc::new(move |token: &str| {
            let known = known.lock().unwrap().contains(&token);
            known.then(|| Principal::new(token.trim_start_matches("cs_")).unwrap())
        }));
        let stop = CancellationToken::new();
        let dashboard = Dashboard::new(source, Options { auth, stop: stop.clone() });
        Self { dashboard, cookie: None, tokens, stop }
    }

    async fn logged_in(source: Played, token: &str) -> Self {
        let mut browser = Self::new(source);
        let answer = browser.post("/login", &format!("token={token}")).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        browser.take_cookie(&answer);
        browser
    }

    fn take_cookie(&mut self, answer: &Answer) {
        let set = answer.headers["set-cookie"].to_str().unwrap();
        self.cookie = Some(set.split(';').next().unwrap().to_owned());
    }

    fn request(&self, method: &str, address: &str) -> http::request::Builder {
        let request = Request::builder().method(method).uri(address).header("host", "127.0.0.1:7171");
        match &self.cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Response<Body> {
        self.dashboard.handle(request, None).await
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Answer {
        let (parts, body) = self.send(request).await.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    async fn get(&self, address: &str) -> Answer {
        self.answer(self.request("GET", address).body(Full::default()).unwrap()).await
    }

    async fn post(&self, address: &str, form: &str) -> Answer {
        let request = self.request("POST", address).header("origin", "http://127.0.0.1:7171");
        self.answer(request.body(Full::from(form.to_owned())).unwrap()).await
    }

    async fn csrf(&self) -> String {
        let text = self.get("/").await.text;
        let (_, rest) = text.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}
