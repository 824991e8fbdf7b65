//! What is on the pages.

use http::StatusCode;

use crate::played::Played;
use crate::{Answer, Browser};

#[track_caller]
fn holds(answer: &Answer, parts: &[&str]) {
    assert_eq!(answer.status, StatusCode::OK);
    for part in parts {
        assert!(answer.text.contains(part), "{part:?} is not in {:.9000}", answer.text);
    }
}

#[tokio::test]
async fn every_page_shows_what_it_is_for() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    holds(&browser.get("/").await, &["Calls this minute", "claude-code", "<svg", "Latest errors"]);
    holds(&browser.get("/calls").await, &["search_issues", "11:59:59", "/calls?before=7-8000", "forged"]);
    holds(&browser.get("/calls?outcome=refused").await, &["value=\"refused\" selected", "Clear"]);
    holds(
        &browser.get("/calls/7-9000").await,
        &["_meta.threadId", "not taken", "Callsign-Session", "hidden", "bound"],
    );
    holds(&browser.get("/calls/7-8950").await, &["Not kept any more: digests only", "9f86d081884c7d65"]);
    holds(
        &browser.get("/sessions/codex/x").await,
        &["depth-2", "on a time line", "enforced", "class=\"bar going\""],
    );
    holds(&browser.get("/runs/run_00").await, &["Cancel run", "data-follow", "48,211 in", "class=\"added\""]);
    holds(&browser.get("/runs/run_01").await, &["Final output", "`importer.rs` reads", "Structured output"]);
    holds(&browser.get("/runs/run_02").await, &["provider_refused"]);
    holds(&browser.get("/servers").await, &["warehouse", "not started", "1 withheld", "pinned"]);
    holds(
        &browser.get("/servers/tracker").await,
        &["4711", "looks like another", "create_issue\\u{200b}", "callsign servers approve tracker"],
    );
    holds(&browser.get("/servers/warehouse").await, &["6 failed starts", "12:00:41"]);
    holds(&browser.get("/hooks").await, &["hooks/guard.js", "line 9", "TypeError"]);
    holds(
        &browser.get("/why?host=opencode&server=tracker").await,
        &["This is why", "callsign install opencode"],
    );
    holds(
        &browser.get("/why?host=codex&server=tracker").await,
        &["It knows its caller", "isolation = &quot;shared&quot;"],
    );
}

#[tokio::test]
async fn a_newcomer_is_told_what_to_do() {
    let browser = Browser::logged_in(Played::empty(), "cs_local").await;
    for (address, command) in [
        ("/", "callsign install"),
        ("/calls", "callsign install"),
        ("/sessions", "callsign submit"),
        ("/runs", "callsign submit"),
        ("/servers", "callsign init"),
        ("/hooks", "callsign hooks check"),
        ("/why", "callsign doctor"),
    ] {
        holds(&browser.get(address).await, &["class=\"empty\"", command]);
    }
    holds(&browser.get("/calls?tool=x").await, &["No call is like that"]);
}

#[tokio::test]
async fn a_secret_is_on_no_page() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    for address in Played::addresses() {
        let answer = browser.get(address).await;
        assert!(!answer.text.contains("CANARY") && !answer.text.contains("cs_local"), "{address}");
    }
}

#[tokio::test]
async fn failures_are_pages_with_an_id_and_without_the_reason() {
    let browser = Browser::logged_in(Played::failing(), "cs_local").await;
    let answer = browser.get("/").await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        answer.text.contains("incident=") && !answer.text.contains("CANARY") && answer.text.contains("<nav")
    );
    assert_eq!(browser.get("/nothing").await.status, StatusCode::NOT_FOUND);
    assert_eq!(browser.get("/runs/run_00/cancel").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn what_is_anothers_and_what_is_not_look_the_same() {
    let alice = Browser::logged_in(Played::new(), "cs_alice").await;
    let csrf = |text: &str, csrf: &str| text.replace(csrf, "");
    let token = alice.csrf().await;
    let missing = alice.get("/runs/run_99").await;
    for address in [
        "/runs/run_00",
        "/calls/7-9000",
        "/sessions/codex/ses_1",
        "/servers/tracker",
        "/runs/run_00/artifacts/workspace%2Freport%2Ehtml",
    ] {
        let answer = alice.get(address).await;
        assert_eq!(
            (answer.status, csrf(&answer.text, &token)),
            (StatusCode::NOT_FOUND, csrf(&missing.text, &token)),
            "{address}"
        );
    }
    let answer = alice.post("/runs/run_00/cancel", &format!("csrf={token}")).await;
    assert_eq!(
        (answer.status, csrf(&answer.text, &token)),
        (StatusCode::NOT_FOUND, csrf(&missing.text, &token))
    );
    for address in ["/", "/calls", "/sessions", "/runs", "/servers", "/hooks"] {
        assert!(!alice.get(address).await.text.contains("tracker"), "{address}");
    }
}

#[tokio::test]
async fn files_of_others_are_saved_and_not_shown() {
    let browser = Browser::logged_in(Played::new(), "cs_local").await;
    let answer = browser.get("/runs/run_01/artifacts/workspace%2Freport%2Ehtml").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-disposition"], "attachment; filename=\"report.html\"");
    assert_eq!(answer.headers["content-type"], "application/octet-stream");
    for bad in ["..%2F..%2Fetc%2Fpasswd", "%00", "%2Fetc%2Fpasswd", "..%5Cx"] {
        assert_eq!(browser.get(&format!("/runs/run_01/artifacts/{bad}")).await.status, StatusCode::NOT_FOUND);
    }
}
