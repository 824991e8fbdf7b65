//! Who is let in, and what may be changed.

use bytes::Bytes;
use dashboard::{Auth, Dashboard, Options};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use tokio_util::sync::CancellationToken;

use crate::Browser;
use crate::played::Played;

#[tokio::test]
async fn nothing_is_seen_without_a_login() {
    let browser = Browser::new(Played::new());
    for address in
        Played::addresses().into_iter().chain(["/nothing", "/live?of=/", "/runs/run_00/artifacts/x"])
    {
        let answer = browser.get(address).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{address}");
        assert!(answer.text.contains("name=\"token\"") && !answer.text.contains("importer"), "{address}");
    }
    assert_eq!(browser.post("/runs/run_00/cancel", "csrf=").await.status, StatusCode::UNAUTHORIZED);
    assert_eq!(browser.get("/assets/dashboard.css").await.status, StatusCode::OK);
}

#[tokio::test]
async fn every_response_tells_the_browser_what_it_may_not_do() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    for address in [
        "/",
        "/nothing",
        "/assets/dashboard.js",
        "/login",
        "/live?of=/",
        "/runs/run_01/artifacts/workspace%2Freport%2Ehtml",
    ] {
        let request = browser.request("GET", address).body(Full::default()).unwrap();
        let headers = browser.send(request).await.headers().clone();
        let policy = headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'") && !policy.contains("unsafe"),
            "{address}"
        );
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"));
        for (name, value) in [
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "same-origin"),
            ("cache-control", "no-store"),
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            assert_eq!(headers[name], value, "{address}");
        }
    }
}

#[tokio::test]
async fn the_cookie_is_for_this_server_alone_and_the_token_is_nowhere() {
    let browser = Browser::new(Played::new());
    let answer = browser.post("/login", "token=cs_local&to=%2Fcalls%3Ftool%3Dx").await;
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.contains("; HttpOnly; SameSite=Strict; Path=/") && !cookie.contains("cs_local"),
        "{cookie}"
    );
    assert_eq!(answer.headers["location"], "/calls?tool=x");
    for away in
        ["//evil.example/", "https%3A%2F%2Fevil.example", "%2F%5Cevil.example", "/login", "/x%0d%0aa", ""]
    {
        let answer = browser.post("/login", &format!("token=cs_local&to={away}")).await;
        assert_eq!(answer.headers["location"], "/", "{away}");
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_many_are_not_looked_at() {
    let browser = Browser::new(Played::new());
    for _ in 0..10 {
        assert_eq!(browser.post("/login", "token=cs_wrong").await.status, StatusCode::UNAUTHORIZED);
    }
    let answer = browser.post("/login", "token=cs_local").await;
    assert_eq!(
        (answer.status, answer.headers["retry-after"].to_str().unwrap()),
        (StatusCode::TOO_MANY_REQUESTS, "10")
    );
    assert_eq!(browser.post("/login", &"x".repeat(20_000)).await.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn the_link_of_the_terminal_lets_in_once() {
    let mut browser = Browser::new(Played::new());
    assert_eq!(browser.dashboard.one_time_link("cs_nobody"), None);
    let link = browser.dashboard.one_time_link("cs_local").unwrap();
    // Whoever was sent by another page is asked first, and the code is not used up by that.
    let request = browser
        .request("GET", &link)
        .header("sec-fetch-site", "cross-site")
        .header("sec-fetch-mode", "navigate");
    let asked = browser.answer(request.body(Full::default()).unwrap()).await;
    assert!(asked.status == StatusCode::OK && asked.text.contains("Log in with this link"));
    let answer = browser.get(&link).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.get(&link).await.status, StatusCode::UNAUTHORIZED);
    browser.take_cookie(&answer);
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
}

#[tokio::test]
async fn cancelling_needs_the_form_of_this_login_from_our_own_page() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    let csrf = browser.csrf().await;
    let form = format!("csrf={csrf}");
    for bad in ["", "csrf=", "csrf=0", &format!("csrf={}", "0".repeat(64)), &format!("CSRF={csrf}")] {
        assert_eq!(browser.post("/runs/run_00/cancel", bad).await.status, StatusCode::FORBIDDEN, "{bad}");
    }
    for (name, value) in [
        ("origin", "http://127.0.0.1:3000"),
        ("origin", "null"),
        ("sec-fetch-site", "same-site"),
        ("sec-fetch-site", "cross-site"),
        ("x-nothing", "said"),
    ] {
        let request = browser.request("POST", "/runs/run_00/cancel").header(name, value);
        let answer = browser.answer(request.body(Full::from(form.clone())).unwrap()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}: {value}");
    }
    assert_eq!(browser.post("/runs/run_02/cancel", &form).await.status, StatusCode::CONFLICT);
    let answer = browser.post("/runs/run_00/cancel", &form).await;
    assert_eq!(
        (answer.status, answer.headers["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/runs/run_00")
    );
    assert!(browser.get("/runs/run_00").await.text.contains("Asked to end"));
}

#[tokio::test]
async fn logging_out_and_revoking_end_a_login() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    assert_eq!(browser.post("/logout", "").await.status, StatusCode::FORBIDDEN);
    let form = format!("csrf={}", browser.csrf().await);
    assert!(
        browser.post("/logout", &form).await.headers["set-cookie"].to_str().unwrap().contains("Max-Age=0")
    );
    assert_eq!(browser.get("/").await.status, StatusCode::UNAUTHORIZED);
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    assert_eq!(browser.get("/").await.status, StatusCode::OK);
    browser.tokens.lock().unwrap().clear();
    assert_eq!(browser.get("/").await.status, StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn where_no_token_is_wanted_forms_still_need_theirs() {
    let options = Options { auth: Auth::None, stop: CancellationToken::new() };
    let dashboard = Dashboard::new(Played::new(), options);
    let ask = |method: &str, address: &str, form: String| {
        let request = Request::builder().method(method).uri(address).header("host", "localhost:1");
        request.header("origin", "http://localhost:1").body(Full::from(Bytes::from(form))).unwrap()
    };
    let page = dashboard.handle(ask("GET", "/", String::new()), None).await;
    let text = String::from_utf8(page.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap();
    let csrf = text.split_once("name=\"csrf\" value=\"").unwrap().1[..64].to_owned();
    let refused = dashboard.handle(ask("POST", "/runs/run_00/cancel", String::new()), None).await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let done = dashboard.handle(ask("POST", "/runs/run_00/cancel", format!("csrf={csrf}")), None).await;
    assert_eq!(done.status(), StatusCode::SEE_OTHER);
    // There is one login for everybody, and nobody ends it.
    dashboard.handle(ask("POST", "/logout", format!("csrf={csrf}")), None).await;
    let mut live = dashboard.handle(ask("GET", "/live?of=%2F", String::new()), None).await;
    assert!(live.body_mut().frame().await.is_some());
    let more = tokio::time::timeout(std::time::Duration::from_millis(50), live.body_mut().frame()).await;
    assert!(more.is_err(), "the stream has ended");
}
