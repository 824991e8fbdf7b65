//! Rows 22 and 23: servers behind a URL that lead elsewhere.

use serde_json::Value;
use testkit::client::{Era, Failure, Http};
use testkit::harness::{HttpServer, Standing};

use crate::support::setup;

/// What was asked of a hostile server.
async fn hits(server: &HttpServer) -> Vec<String> {
    let url = server.url.replace("/mcp", "/hits");
    let hits: Value = Http::new(&url, None).get(&[]).await.json();
    serde_json::from_value(hits).expect("a list")
}

#[tokio::test]
async fn row_22_metadata_of_a_401_is_not_followed() {
    let oauth = HttpServer::start("hostile-server", &["--mode", "oauth"]);
    let gateway = setup().url("bad", &oauth.url, "").serve().await;
    let standing = Standing::before(&gateway).await;
    for era in Era::BOTH {
        let client = gateway.client("bad", era);
        let failure = client.connect().await.expect_err("401");
        let text = failure.text();
        assert!(text.contains("headers") && text.contains("headers_command"), "says what to set: {text}");
        for foreign in ["calc", "javascript:", "file:"] {
            assert!(!text.contains(foreign), "{text}");
        }
        client.end().await;
    }
    let hits = hits(&oauth).await;
    assert!(
        !hits.is_empty() && hits.iter().all(|hit| hit.ends_with(" /mcp")),
        "only what was configured: {hits:?}"
    );
    // An idle connection to a server that lives is no leak; to one that is gone it would be.
    drop(oauth);
    standing.after().await;
}

#[tokio::test]
async fn row_23_addresses_that_are_not_what_they_look_like_are_refused() {
    let inside = HttpServer::start("hostile-server", &["--mode", "oauth"]);
    let port = inside.url.trim_end_matches("/mcp").rsplit(':').next().expect("a port").to_owned();
    let urls = [
        "http://169.254.169.254/mcp".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "http://[::ffff:169.254.169.254]/mcp".to_owned(),
        format!("http://[::ffff:127.0.0.1]:{port}/mcp"),
        format!("http://[::ffff:7f00:1]:{port}/mcp"),
        format!("http://0x7f000001:{port}/mcp"),
        format!("http://2130706433:{port}/mcp"),
        format!("http://127.1:{port}/mcp"),
        format!("http://0177.0.0.1:{port}/mcp"),
        format!("http://0.0.0.0:{port}/mcp"),
        format!("http://[::]:{port}/mcp"),
        format!("http://127.0.0.2:{port}/mcp"),
        "http://10.0.0.1/mcp".to_owned(),
        "http://[fd00::1]/mcp".to_owned(),
        "http://[fe80::1]/mcp".to_owned(),
    ];
    for url in urls {
        // Refused when the file is read, or when the server is first asked for: both are well.
        let Ok(gateway) = setup().url("bad", &url, "").try_serve().await else { continue };
        let failure = gateway.client("bad", Era::Legacy).connect().await.expect_err(&url);
        assert!(
            !matches!(failure, Failure::Deadline | Failure::Closed),
            "{url}: refused, not tried: {failure:?}"
        );
    }
    assert_eq!(hits(&inside).await, Vec::<String>::new(), "nothing reached the inside");
}

#[tokio::test]
async fn row_23_redirects_lead_nowhere() {
    let inside = HttpServer::start("hostile-server", &["--mode", "oauth"]);
    for target in
        [inside.url.as_str(), "http://169.254.169.254/", "http://[::ffff:127.0.0.1]/", "file:///etc/passwd"]
    {
        let redirect = HttpServer::start("hostile-server", &["--mode", "redirect", "--to", target]);
        let gateway = setup().url("bad", &redirect.url, "").serve().await;
        let standing = Standing::before(&gateway).await;
        for era in Era::BOTH {
            let client = gateway.client("bad", era);
            let failure = client.connect().await.expect_err(target);
            assert!(!matches!(failure, Failure::Deadline | Failure::Closed), "{target}: {failure:?}");
        }
        drop(redirect);
        standing.after().await;
    }
    assert_eq!(hits(&inside).await, Vec::<String>::new(), "no redirect was followed");
}

#[tokio::test]
async fn a_private_address_is_fine_where_the_configuration_says_so() {
    let server = HttpServer::start("echo-server", &[]);
    let url = server.url.replace("127.0.0.1", "localhost");
    let gateway =
        setup().url("named", &url, "").url("private", &server.url, "allow_private = true").serve().await;
    for name in ["named", "private"] {
        gateway.connect(name, Era::Legacy).await.end().await;
    }
}
