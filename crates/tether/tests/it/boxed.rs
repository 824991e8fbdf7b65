//! In namespaces of its own, as in a box.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{Daemon, SOON, directory, holds, marked, program, soon};
use crate::init::THOUSAND;

struct Box {
    bwrap: Child,
}

impl Box {
    /// The bridge as process 1, with loopback only and the sockets to read.
    fn start(sockets: Option<&Path>, args: &[&str], command: &[&str]) -> Self {
        let mut bwrap = Command::new("bwrap");
        bwrap.args(["--unshare-all", "--die-with-parent", "--as-pid-1", "--ro-bind", "/", "/"]);
        bwrap.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]);
        if let Some(sockets) = sockets {
            bwrap.arg("--ro-bind").arg(sockets).arg("/run/callsign");
        }
        bwrap.arg("--ro-bind").arg(program()).arg("/run/bridge").arg("/run/bridge");
        bwrap.args(args).arg("--").args(command);
        Self { bwrap: bwrap.stdout(Stdio::piped()).spawn().unwrap() }
    }

    #[track_caller]
    fn ended(&mut self, within: Duration) -> (Option<i32>, String) {
        let status = holds(within, || self.bwrap.try_wait().unwrap());
        let mut out = String::new();
        std::io::Read::read_to_string(self.bwrap.stdout.as_mut().unwrap(), &mut out).unwrap();
        (status.code(), out)
    }
}

impl Drop for Box {
    fn drop(&mut self) {
        let _ended = self.bwrap.kill();
        let _ended = self.bwrap.wait();
    }
}

#[test]
fn it_is_process_one_and_reaps_a_thousand() {
    let script = format!("echo parent $PPID; {THOUSAND}; exit 9");
    let (code, out) =
        Box::start(None, &["--agent", "1"], &["sh", "-c", &script]).ended(Duration::from_mins(1));
    assert_eq!((code, out.as_str()), (Some(9), "parent 1\nzombies 0\n"));
}

#[test]
fn the_box_ends_with_it() {
    let mark = format!("7{}.5", std::process::id());
    let script =
        format!("setsid sleep {mark} >/dev/null & setsid sleep {mark} >/dev/null & sleep 0.2; exit 5");
    let (code, _) = Box::start(None, &["--agent", "1"], &["sh", "-c", &script]).ended(SOON);
    assert_eq!(code, Some(5));
    holds(SOON, || marked(&format!("sleep {mark}")).is_empty().then_some(()));
}

fn script(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// An agent in the box: it answers, and for `/ask` it asks the daemon by way of the carried port.
const AGENT: &str = r#"
import http.server, socket, urllib.request
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def do_GET(self):
        if self.path == "/ask":
            body = urllib.request.urlopen("http://127.0.0.1:4097/model", timeout=5).read()
        elif self.path == "/interfaces":
            body = ",".join(name for _, name in socket.if_nameindex()).encode()
        elif self.path == "/write":
            try:
                open("/run/callsign/model.sock.new", "w"); body = b"written"
            except OSError as error:
                body = error.strerror.encode()
        elif self.path == "/events":
            self.send_response(200); self.send_header("Transfer-Encoding", "chunked"); self.end_headers()
            for part in (b"data: fr", b"om the box\n\n"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.write(b"0\r\n\r\n"); return
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", 4096), Handler).serve_forever()
"#;

async fn get(daemon: &Daemon, path: &str) -> String {
    let mut stream = loop {
        match daemon.hub.open(SOON).await {
            Ok(stream) => break stream,
            // It takes a moment to start.
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let request = format!("GET {path} HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    soon(stream.read_to_string(&mut answer)).await.unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[tokio::test]
async fn everything_passes_the_sockets_and_nothing_else_does() {
    let directory = directory();
    let sockets = directory.path().join("sockets");
    let mut daemon = Daemon::start(&sockets);
    daemon.serve("model", |mut stream| async move {
        let mut head = [0; 4096];
        let read = stream.read(&mut head).await.unwrap();
        assert!(head[..read].starts_with(b"GET /model HTTP/1.1\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmodel").await.unwrap();
    });
    let agent = script(directory.path(), "agent.py", AGENT);
    let args = ["--agent", "4096", "--carry", "4097=model", "--orphan", "30"];
    let _box = Box::start(Some(&sockets), &args, &["python3", agent.to_str().unwrap()]);
    assert_eq!(soon(get(&daemon, "/interfaces")).await, "lo");
    assert_eq!(get(&daemon, "/ask").await, "model");
    assert_eq!(get(&daemon, "/write").await, "Read-only file system");
    let mut taker = daemon.hub.events("/events", SOON).await.unwrap();
    let mut heard = [0; 20];
    soon(taker.read_exact(&mut heard)).await.unwrap();
    assert_eq!(&heard, b"data: from the box\n\n");
    // The next daemon makes its sockets in the same directory, and the box sees them.
    drop((taker, daemon));
    let daemon = Daemon::start(&sockets);
    assert_eq!(get(&daemon, "/interfaces").await, "lo");
}
