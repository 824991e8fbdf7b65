//! Pages that tell when they have changed.

use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt as _, Full};
use tokio::time::{Instant, timeout};

use crate::Browser;
use crate::played::Played;

struct Stream(dashboard::Body);

impl Stream {
    async fn open(browser: &Browser, address: &str) -> Self {
        let request = browser.request("GET", address).body(Full::default()).unwrap();
        let response = browser.send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response.into_body())
    }

    /// None: it has ended.
    async fn next(&mut self) -> Option<String> {
        let frame =
            timeout(Duration::from_mins(1), self.0.frame()).await.expect("nothing was said for a minute")?;
        Some(String::from_utf8(frame.unwrap().into_data().unwrap().to_vec()).unwrap())
    }
}

/// A browser, and the hand that makes pages change.
async fn playing() -> (Browser, tokio::sync::watch::Sender<u64>) {
    let source = Played::new();
    let hand = source.beat.clone();
    (Browser::logged_in(source, "cs_local").await, hand)
}

#[tokio::test(start_paused = true)]
async fn changes_are_told_at_once_and_many_as_one() {
    let (browser, hand) = playing().await;
    let mut stream = Stream::open(&browser, "/live?of=%2Fruns%2Frun_00&since=1").await;
    assert_eq!(stream.next().await.unwrap(), "retry: 2000\n\n");
    let begun = Instant::now();
    hand.send_replace(2);
    assert_eq!(stream.next().await.unwrap(), "id: 2\nevent: changed\ndata: 2\n\n");
    assert!(begun.elapsed() < Duration::from_millis(10));
    let (mut told, begun) = (0, Instant::now());
    for number in 3..=2000 {
        hand.send_replace(number);
        if number % 20 == 0 {
            tokio::time::advance(Duration::from_millis(10)).await;
            while let Ok(event) = timeout(Duration::ZERO, stream.next()).await {
                told += usize::from(event.unwrap().contains("changed"));
            }
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "it is a handful")]
    let rate = told as f64 / seconds;
    assert!(told > 1 && rate <= 4.01, "{told} in {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn what_changed_before_the_stream_was_open_is_told() {
    let (browser, hand) = playing().await;
    assert!(browser.get("/").await.text.contains("data-beat=\"1\""));
    hand.send_replace(9);
    let mut stream = Stream::open(&browser, "/live?of=%2F&since=1").await;
    assert!(stream.next().await.unwrap().contains("data: 9"));
    let request = browser.request("GET", "/live?of=%2F&since=1").header("last-event-id", "9");
    let mut again = Stream(browser.send(request.body(Full::default()).unwrap()).await.into_body());
    assert_eq!(again.next().await.unwrap(), "retry: 2000\n\n");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_says_that_it_is_there() {
    let (browser, _hand) = playing().await;
    let mut stream = Stream::open(&browser, "/live?of=%2F&since=1").await;
    stream.next().await.unwrap();
    let begun = Instant::now();
    assert_eq!(stream.next().await.unwrap(), ": here\n\n");
    assert!(begun.elapsed() <= Duration::from_secs(16));
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_the_daemon_the_login_and_the_token() {
    let (browser, _hand) = playing().await;
    let mut streams =
        [Stream::open(&browser, "/live?of=%2F").await, Stream::open(&browser, "/live?of=%2Fcalls").await];
    for stream in &mut streams {
        stream.next().await.unwrap();
    }
    let form = format!("csrf={}", browser.csrf().await);
    browser.post("/logout", &form).await;
    for stream in &mut streams {
        assert_eq!(stream.next().await, None);
    }
    let (browser, _hand) = playing().await;
    let mut stream = Stream::open(&browser, "/live?of=%2F").await;
    stream.next().await.unwrap();
    browser.tokens.lock().unwrap().clear();
    let begun = Instant::now();
    assert_eq!(stream.next().await, None);
    assert!(begun.elapsed() <= Duration::from_secs(2));
    let (browser, _hand) = playing().await;
    let mut stream = Stream::open(&browser, "/live?of=%2F").await;
    stream.next().await.unwrap();
    browser.stop.cancel();
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn streams_are_few_and_only_of_pages_that_are_ones_own() {
    let (browser, _hand) = playing().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(Stream::open(&browser, "/live?of=%2F").await);
    }
    assert_eq!(browser.get("/live?of=%2F").await.status, StatusCode::TOO_MANY_REQUESTS);
    open.pop();
    drop(Stream::open(&browser, "/live?of=%2F").await);
    for bad in
        ["/live?of=%2Fnothing", "/live?of=%2Flive%3Fof%3D%2F", "/live?of=%2Flogin", "/live", "/live?of="]
    {
        assert_eq!(browser.get(bad).await.status, StatusCode::NOT_FOUND, "{bad}");
    }
    let alice = Browser::logged_in(Played::new(), "cs_alice").await;
    assert_eq!(alice.get("/live?of=%2Fruns%2Frun_00").await.status, StatusCode::NOT_FOUND);
}
