//! What goes through the door: the echo server stands behind the socket, and says what it was sent.

use std::path::Path;

use base64::Engine as _;
use serde_json::{Value, json};
use testkit::client::{Client, Era};
use testkit::harness::HttpServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::rig::{KEY, Place};
use crate::support::{CODEX, call_as, codex, echo, header, named, told, whoami_as};

/// The echo server on a unix socket.
struct Behind {
    server: HttpServer,
    carrying: JoinSet<()>,
    stop: CancellationToken,
}

impl Behind {
    fn at(socket: &Path, arguments: &[&str]) -> Self {
        let server = HttpServer::start("echo-server", arguments);
        let address = server.url.trim_start_matches("http://").trim_end_matches("/mcp").to_owned();
        let listener = UnixListener::bind(socket).expect("a socket");
        let (mut carrying, stop) = (JoinSet::new(), CancellationToken::new());
        let asked = stop.clone();
        carrying.spawn(async move {
            let mut connections = JoinSet::new();
            while let Some(Ok((ours, _))) = asked.run_until_cancelled(listener.accept()).await {
                let theirs = TcpStream::connect(&address).await.expect("the echo server");
                connections.spawn(carry(ours, theirs));
            }
            connections.shutdown().await;
        });
        Self { server, carrying, stop }
    }

    /// Every connection is closed when this returns.
    async fn end(mut self) {
        self.stop.cancel();
        while self.carrying.join_next().await.is_some() {}
    }
}

/// Both ways; the path is the echo server's.
async fn carry(ours: UnixStream, theirs: TcpStream) {
    let (mut ours_in, mut ours_out) = ours.into_split();
    let (mut theirs_in, mut theirs_out) = theirs.into_split();
    let there = async {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(length @ 1..) = ours_in.read(&mut buffer).await {
            let text =
                String::from_utf8_lossy(&buffer[..length]).replace(" /mcp/sessions HTTP", " /mcp HTTP");
            if theirs_out.write_all(text.as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        _ = tokio::io::copy(&mut theirs_in, &mut ours_out) => {}
    }
}

fn settings(whoami: &Value) -> Value {
    let [encoded] = header(whoami, "callsign-settings")[..] else { panic!("not once: {whoami}") };
    let json = base64::prelude::BASE64_STANDARD.decode(encoded).expect("base64");
    serde_json::from_slice(&json).expect("JSON")
}

#[tokio::test]
async fn every_call_of_a_host_says_who_calls_and_with_which_settings() {
    for era in Era::BOTH {
        let place = Place::new();
        std::fs::create_dir_all(place.state()).expect("a directory");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(place.state(), mode).expect("ours");
        let behind = Behind::at(&place.socket(), &[]);
        let mut command = place.command(&["mcp", "--log", "debug"]);
        command.env("MCP_OPENCODE_PROVIDER", "openai").env("MCP_TIMEOUT", "not-ours");
        let client = Client::stdio(command.into(), era);
        client
            .connect_with(named(CODEX))
            .await
            .unwrap_or_else(|failure| panic!("{failure:?}\n{}", client.stderr()));
        let said = whoami_as(&client, &codex("t-1")).await;
        assert_eq!(header(&said, "callsign-principal"), ["local"], "{era:?}");
        let expected = json!({ "MCP_OPENCODE_API_KEY": KEY, "MCP_OPENCODE_PROVIDER": "openai",
            "MCP_STATE_DIR": place.state(), "MCP_TIMEOUT": "" });
        assert_eq!(settings(&said), expected, "{era:?}");
        assert_eq!(told(&said)["thread"], "t-1", "{said}");
        assert_eq!((&told(&said)["server"], &told(&said)["trust"]), (&json!("sessions"), &json!("host")));
        assert_eq!(header(&said, "callsign-thread"), ["t-1"]);

        // An answer that says the key itself: it is the host's own, and no line of ours has it.
        let said_back = call_as(&client, &codex("t-1"), "echo", json!({ "text": KEY })).await;
        assert!(said_back.is_ok_and(|answer| answer.to_string().contains(KEY)));
        assert_eq!(client.end().await, Some(0), "{}", client.stderr());
        assert!(!client.stderr().contains(KEY), "{}", client.stderr());
        assert_eq!(place.daemons(), [0_u32; 0], "somebody was there already");

        let calls =
            place.command(&["calls", "--json", "--state-dir"]).arg(place.state()).output().expect("it runs");
        let rows: Vec<Value> = String::from_utf8_lossy(&calls.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        let noted = rows.iter().filter(|row| row["server"] == "sessions" && row["tool"] == "whoami");
        assert_eq!(noted.clone().count(), 1, "{rows:?}");
        assert!(noted.clone().all(|row| row["thread"] == "t-1" && row["outcome"] == "ok"), "{rows:?}");
        assert!(!String::from_utf8_lossy(&calls.stdout).contains(KEY));
        behind.end().await;
    }
}

#[tokio::test]
async fn a_session_that_was_lost_is_opened_again_with_the_hosts_own_words() {
    let place = Place::new();
    std::fs::create_dir_all(place.state()).expect("a directory");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    std::fs::set_permissions(place.state(), mode).expect("ours");
    let first = Behind::at(&place.socket(), &[]);
    let client = Client::stdio(place.command(&["mcp"]).into(), Era::Legacy);
    client.connect().await.expect("it is there");
    client.tool_text("echo", json!({ "text": "one" })).await;
    let before = first.server.pid();
    first.end().await;
    std::fs::remove_file(place.socket()).expect("it is left over");
    let second = Behind::at(&place.socket(), &[]);
    assert_ne!(second.server.pid(), before);
    assert_eq!(client.tool_text("echo", json!({ "text": "two" })).await, "two");
    client.end().await;
}

#[tokio::test]
async fn the_http_front_leads_there_and_names_the_tokens_principal() {
    let gateway = echo("").serve().await;
    let ann = gateway.new_token("ann").await;
    let socket = gateway.files.state().join("daemon.sock");
    // Whatever stands there now is what the door leads to.
    std::fs::remove_file(&socket).expect("the daemon's own");
    let _behind = Behind::at(&socket, &[]);
    for era in Era::BOTH {
        for (token, principal) in [(&ann, "ann"), (&gateway.token, "local")] {
            let url = gateway.mcp("sessions");
            let forged = [
                ("Callsign-Principal", "mallory"),
                ("callsign_principal", "mallory"),
                ("Callsign-Settings", "e30="),
                ("Callsign-Session", "forged"),
            ];
            let http = testkit::client::Http::new(&url, Some(token));
            let http = forged.iter().fold(http, |http, (name, value)| http.with_header(name, value));
            let client = Client::over(http, era);
            client.connect().await.unwrap_or_else(|failure| panic!("{failure:?}\n{}", gateway.log()));
            let said = client.whoami("X").await;
            assert_eq!(header(&said, "callsign-principal"), [principal], "{era:?} {said}");
            assert_eq!(header(&said, "callsign_principal"), [""; 0], "{era:?} {said}");
            assert_eq!(header(&said, "callsign-settings"), [""; 0], "{era:?} {said}");
            assert_eq!(told(&said)["server"], "sessions", "{said}");
            client.end().await;
        }
    }
}

#[tokio::test]
async fn a_reload_does_not_drop_it() {
    let setup = echo("");
    let gateway = setup.serve().await;
    let socket = gateway.files.state().join("daemon.sock");
    std::fs::remove_file(&socket).expect("the daemon's own");
    let _behind = Behind::at(&socket, &[]);
    let client = gateway.connect("sessions", Era::Legacy).await;
    gateway.rewrite(&setup.clone().toml("[sessions]\nmax_hot = 3\n").config());
    let reloaded = || gateway.log().contains("the configuration was loaded again");
    assert!(testkit::harness::wait_until(crate::support::SOON * 2, reloaded).await, "{}", gateway.log());
    assert_eq!(client.tool_text("echo", json!({ "text": "still here" })).await, "still here");
}
