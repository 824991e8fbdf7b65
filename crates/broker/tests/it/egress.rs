//! The proxy, with a real `curl` and with what no client of good will would say.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use broker::{Allow, Decided, Egress, EgressOptions, Notes, Verdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::process::Command;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::harness::{PATIENCE, Provider, answer, assert_status, eventually, exchange, lock};
use crate::tls;

#[derive(Debug, Default)]
struct Notebook(Mutex<Vec<Decided>>);

impl Notes for Notebook {
    fn decided(&self, decided: Decided) {
        lock(&self.0).push(decided);
    }
}

#[derive(Debug, Clone)]
struct Rig {
    egress: Arc<Egress>,
    notes: Arc<Notebook>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Rig {
    fn new(allow: Allow) -> Self {
        let (notes, tasks) = (Arc::new(Notebook::default()), TaskTracker::new());
        let options = EgressOptions { allow, notes: Arc::<Notebook>::clone(&notes), tasks: tasks.clone() };
        Self { egress: Egress::new(options).unwrap(), notes, stop: CancellationToken::new(), tasks }
    }

    fn hosts(hosts: &[&str]) -> Self {
        Self::new(Allow::Hosts(hosts.iter().map(ToString::to_string).collect()))
    }

    fn dial(&self) -> UnixStream {
        let (inside, outside) = UnixStream::pair().unwrap();
        self.tasks.spawn(Arc::clone(&self.egress).serve(outside, self.stop.clone()));
        inside
    }

    async fn say(&self, text: impl AsRef<[u8]>) -> String {
        exchange(self.dial(), text.as_ref()).await
    }

    /// A port for programs that know no other way.
    async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, rig) = (listener.local_addr().unwrap(), self.clone());
        self.tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                rig.tasks.spawn(Arc::clone(&rig.egress).serve(stream, rig.stop.clone()));
            }
        });
        address
    }

    fn noted(&self) -> Vec<Decided> {
        lock(&self.notes.0).clone()
    }

    async fn closed(&self) -> (u64, u64) {
        eventually(|| match self.noted().pop()?.verdict {
            Verdict::Closed { sent, received } => Some((sent, received)),
            Verdict::Refused(_) | Verdict::Failed(_) | Verdict::Opened => None,
        })
        .await
    }
}

/// What `curl` prints: the body, then the status of the answer and of the proxy.
async fn curl(proxy: SocketAddr, arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "20", "--noproxy", "", "--proxy"]);
    command.arg(format!("http://{proxy}")).args(["--write-out", "|%{http_code}|%{http_connect}"]);
    command.args(arguments).env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin");
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(PATIENCE, output).await.unwrap().expect("curl is needed for this test");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn curl_reaches_what_is_listed_and_nothing_else() {
    let plain =
        Provider::start(|seen| answer(200, "text/plain", format!("{} {}", seen.line, seen.body.len()))).await;
    let (secure, _, pem) = tls::server("localhost").await;
    let directory = tempfile::tempdir().unwrap();
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, pem).unwrap();
    let (http, https) = (plain.address.port(), secure.port());
    let rig = Rig::hosts(&[&format!("localhost:{http}"), &format!("localhost:{https}")]);
    let proxy = rig.listen().await;

    let url = format!("http://localhost:{http}/a/b?c=d");
    assert_eq!(curl(proxy, &[&url]).await, "GET /a/b?c=d 0|200|000");
    assert_eq!(curl(proxy, &["--data", "hello", &url]).await, "POST /a/b?c=d 5|200|000");
    assert_eq!(curl(proxy, &["--proxytunnel", &url]).await, "GET /a/b?c=d 0|200|200");
    let url = format!("https://localhost:{https}/");
    assert_eq!(curl(proxy, &["--cacert", roots.to_str().unwrap(), &url]).await, "{\"by\":\"tls\"}|200|200");
    assert_eq!(plain.seen().len(), 3);

    assert_eq!(curl(proxy, &["https://example.org/"]).await, "|000|403");
    let told = curl(proxy, &["http://example.org/"]).await;
    assert!(
        told.contains("add \"example.org\" to `egress` in [sessions]") && told.ends_with("|403|000"),
        "{told}"
    );
    let told = curl(proxy, &[&format!("http://127.0.0.1:{http}/")]).await;
    assert!(told.ends_with("|200|000"), "localhost is its addresses too: {told}");
    let told = curl(proxy, &["http://localhost:1/"]).await;
    assert!(told.ends_with("|403|000"), "{told}");
    let refused: Vec<_> = rig
        .noted()
        .into_iter()
        .filter(|decided| matches!(decided.verdict, Verdict::Refused(_)))
        .map(|decided| (decided.host, decided.port))
        .collect();
    let expected = [("example.org", 443), ("example.org", 80), ("localhost", 1)];
    assert_eq!(refused, expected.map(|(host, port)| (host.to_owned(), port)));
}

#[tokio::test]
async fn a_tunnel_carries_both_ways_and_ends_half_by_half() {
    // Answers only when the box has said all.
    let server = Provider::raw(|mut stream: TcpStream| async move {
        let mut read = Vec::new();
        stream.read_to_end(&mut read).await.unwrap();
        read.reverse();
        stream.write_all(&read).await.unwrap();
    })
    .await;
    let rig = Rig::hosts(&[&server.to_string()]);
    let mut stream = rig.dial();
    // The first bytes come with the head.
    let head = format!("CONNECT {server} HTTP/1.1\r\nHost: {server}\r\n\r\nGET / \nabc");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answered = [0; 12];
    stream.read_exact(&mut answered).await.unwrap();
    assert_eq!(&answered, b"HTTP/1.1 200");
    stream.write_all(b"def").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("\r\n\r\nfedcba\n / TEG"), "{rest:?}");
    assert!(
        !rest.to_lowercase().contains("connection:") && !rest.to_lowercase().contains("via:"),
        "{rest:?}"
    );
    assert_eq!(rig.closed().await, (13, 13));
    assert_eq!(rig.noted()[0].verdict, Verdict::Opened);
}

#[tokio::test]
async fn stop_ends_tunnels() {
    let server = Provider::raw(|mut stream: TcpStream| async move {
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let rig = Rig::hosts(&[&server.to_string()]);
    let mut stream = rig.dial();
    stream.write_all(format!("CONNECT {server} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut answered = [0; 12];
    stream.read_exact(&mut answered).await.unwrap();
    rig.stop.cancel();
    let _rest = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut Vec::new())).await.unwrap();
    assert_eq!(rig.closed().await, (0, 0));
}

#[tokio::test]
async fn a_request_is_passed_on_without_what_belongs_to_its_connection() {
    let provider = Provider::start(|_| {
        let mut answer = answer(200, "text/plain", "ok");
        for (name, value) in
            [("x-kept", "1"), ("x-hop", "1"), ("connection", "x-hop"), ("keep-alive", "timeout=5")]
        {
            answer.headers_mut().insert(name, value.parse().unwrap());
        }
        answer
    })
    .await;
    let rig = Rig::hosts(&[&provider.address.to_string()]);
    let text = format!(
        "GET http://{}/a HTTP/1.1\r\nHost: evil.example\r\nConnection: close, x-mine\r\nX-Mine: 1\r\nX-Kept: 1\r\n\
         Proxy-Authorization: Basic abc\r\nProxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\n\
         Authorization: Bearer of-the-box\r\n\r\n",
        provider.address
    );
    let back = rig.say(text).await;
    assert_status(&back, 200);
    assert!(back.contains("x-kept: 1") && !back.contains("x-hop") && !back.contains("keep-alive"), "{back}");
    let seen = provider.seen().remove(0);
    assert_eq!(seen.line, "GET /a");
    let mut headers: Vec<_> =
        seen.headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    headers.sort();
    let host = format!("host: {}", provider.address);
    assert_eq!(headers, ["authorization: Bearer of-the-box".to_owned(), host, "x-kept: 1".to_owned()]);
    assert_eq!(rig.closed().await, (0, 2));
}

#[tokio::test]
async fn names_that_lead_to_this_machine_lead_nowhere() {
    let provider = Provider::start(|_| answer(200, "text/plain", "ok")).await;
    let port = provider.address.port();
    let rig = Rig::new(Allow::Any);
    for text in [
        format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ] {
        let back = rig.say(text).await;
        assert_status(&back, 403);
        assert!(back.contains("leads to") && back.contains("no public address"), "{back}");
    }
    for host in [
        "127.0.0.1",
        "[::1]",
        "0.0.0.0",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "169.254.169.254",
        "10.0.0.1",
    ] {
        let back = rig.say(format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        assert_status(&back, 403);
    }
    assert_eq!(provider.connections.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(rig.noted().len(), 10);
}

#[tokio::test]
async fn what_is_no_request_to_a_proxy() {
    let provider = Provider::start(|_| answer(200, "text/plain", "ok")).await;
    let host = provider.address;
    let rig = Rig::hosts(&[&host.to_string()]);
    for text in [
        format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET https://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET ftp://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("GET http://user:word@{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        "CONNECT 127.0.0.1 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("CONNECT user@{host} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("CONNECT http://{host}/ HTTP/1.1\r\nHost: a\r\n\r\n"),
        "CONNECT 127.0.0.1:99999 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        "CONNECT 127.0.0.1:0 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
        format!("CONNECT {host} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"),
        format!("CONNECT {host} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        format!("GET http://{host}/ HTTP/1.1\nHost: a\n\n"),
        format!(
            "POST http://{host}/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        ),
    ] {
        let back = rig.say(&text).await;
        assert!(back.starts_with("HTTP/1.1 400 "), "{text:?} was answered {back:?}");
    }
    assert_eq!(provider.connections.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_host_that_is_not_there() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let rig = Rig::hosts(&[&address.to_string(), "nowhere.invalid"]);
    for (text, reason) in [
        (format!("CONNECT {address} HTTP/1.1\r\nHost: a\r\n\r\n"), "connection refused"),
        (
            format!("GET http://{address}/ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
            "connection refused",
        ),
        ("CONNECT nowhere.invalid:443 HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), "not known"),
    ] {
        let back = rig.say(text).await;
        assert_status(&back, 502);
        assert!(back.contains(reason), "{back}");
    }
    assert!(rig.noted().iter().all(|decided| matches!(decided.verdict, Verdict::Failed(_))));
}

#[tokio::test]
async fn connections_have_a_bound() {
    let rig = Rig::hosts(&[]);
    let held: Vec<_> = (0..64).map(|_| rig.dial()).collect();
    tokio::task::yield_now().await;
    assert_status(&rig.say("").await, 503);
    drop(held);
}
