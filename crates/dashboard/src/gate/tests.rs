use super::*;

use http::header;

fn gate() -> (Gate, Arc<Mutex<Vec<&'static str>>>) {
    let good = Arc::new(Mutex::new(vec!["cs_local", "cs_alice"]));
    let known = Arc::clone(&good);
    let principal_of = move |token: &str| {
        let token = held(&known).iter().copied().find(|good| *good == token)?;
        Principal::new(token.trim_start_matches("cs_")).ok()
    };
    (Gate::new(Auth::Tokens(Arc::new(principal_of))), good)
}

fn with(cookie: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(header::COOKIE, format!("other=1; callsign_login={cookie}").parse().unwrap());
    headers
}

#[tokio::test(start_paused = true)]
async fn a_login_ends_when_nobody_uses_it() {
    let (gate, _) = gate();
    let cookie = gate.by_token("cs_alice", None).unwrap();
    let headers = with(&cookie);
    for _ in 0..3 {
        tokio::time::advance(Duration::from_hours(11)).await;
        assert_eq!(gate.login(&headers, true).unwrap().principal.as_str(), "alice");
    }
    // A page that keeps itself fresh is nobody.
    tokio::time::advance(Duration::from_hours(11)).await;
    let login = gate.login(&headers, false).unwrap();
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(gate.login(&headers, false).is_none() && login.over.is_cancelled());
}

#[tokio::test]
async fn a_revoked_token_ends_its_logins() {
    let (gate, good) = gate();
    let (alice, local) = (gate.by_token("cs_alice", None).unwrap(), gate.by_token("cs_local", None).unwrap());
    let login = gate.login(&with(&alice), true).unwrap();
    assert!(gate.still(&login));
    held(&good).retain(|token| *token != "cs_alice");
    assert!(!gate.still(&login));
    assert!(gate.login(&with(&alice), true).is_none() && login.over.is_cancelled());
    assert!(gate.login(&with(&local), true).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_code_lets_in_once_and_for_two_minutes() {
    let (gate, good) = gate();
    assert_eq!(gate.mint("cs_nobody"), None);
    let code = gate.mint("cs_alice").unwrap();
    let cookie = gate.by_code(&code, None).unwrap();
    assert_eq!(gate.login(&with(&cookie), true).unwrap().principal.as_str(), "alice");
    assert_eq!(gate.by_code(&code, None), Err(Denied::Wrong));
    let late = gate.mint("cs_alice").unwrap();
    tokio::time::advance(CODE).await;
    assert_eq!(gate.by_code(&late, None), Err(Denied::Wrong));
    let revoked = gate.mint("cs_alice").unwrap();
    held(&good).clear();
    assert_eq!(gate.by_code(&revoked, None), Err(Denied::Wrong));
}

#[tokio::test]
async fn tables_are_bounded_and_the_oldest_goes() {
    let (gate, _) = gate();
    let first = gate.by_token("cs_alice", None).unwrap();
    let login = gate.login(&with(&first), false).unwrap();
    for _ in 0..300 {
        gate.by_token("cs_alice", None).unwrap();
    }
    assert_eq!(held(&gate.logins).count(), 256);
    assert!(login.over.is_cancelled() && gate.login(&with(&first), true).is_none());
    let code = gate.mint("cs_alice").unwrap();
    for _ in 0..16 {
        tokio::task::yield_now().await;
        gate.mint("cs_alice").unwrap();
    }
    assert_eq!(gate.by_code(&code, None), Err(Denied::Wrong));
}

#[tokio::test]
async fn who_tries_too_often_is_not_even_looked_at() {
    let (gate, _) = gate();
    let peer = Some("10.0.0.9".parse().unwrap());
    for _ in 0..10 {
        assert_eq!(gate.by_token("cs_wrong", peer), Err(Denied::Wrong));
    }
    assert_eq!(gate.by_token("cs_alice", peer), Err(Denied::TooOften));
    assert_eq!(gate.by_code("x", peer), Err(Denied::TooOften));
    assert!(gate.by_token("cs_alice", None).is_ok());
}

#[tokio::test]
async fn logging_out_ends_one_login() {
    let (gate, _) = gate();
    let (one, other) = (gate.by_token("cs_alice", None).unwrap(), gate.by_token("cs_alice", None).unwrap());
    gate.end(&gate.login(&with(&one), true).unwrap());
    assert!(gate.login(&with(&one), true).is_none() && gate.login(&with(&other), true).is_some());
}

#[tokio::test]
async fn a_form_needs_the_token_of_its_own_login() {
    let (gate, _) = gate();
    let (one, other) = (gate.by_token("cs_alice", None).unwrap(), gate.by_token("cs_alice", None).unwrap());
    let (one, other) = (gate.login(&with(&one), true).unwrap(), gate.login(&with(&other), true).unwrap());
    assert!(one.is_csrf(&one.csrf) && !one.is_csrf(&other.csrf));
    assert!(!one.is_csrf("") && !one.is_csrf(&one.csrf[..63]));
}

#[test]
fn nothing_secret_is_in_what_is_logged() {
    let (gate, _) = gate();
    gate.by_token("cs_alice", None).unwrap();
    gate.mint("cs_alice").unwrap();
    let shown = format!("{gate:?}");
    assert!(shown.contains("alice") && !shown.contains("cs_"), "{shown}");
}
