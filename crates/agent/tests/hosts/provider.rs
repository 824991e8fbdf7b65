//! A provider in front of the scripted model that misbehaves for some models, by their names.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The models that it knows besides the scripted one.
pub(crate) const BAD: [&str; 4] = ["garbage", "empty", "hangup", "half"];

/// Runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Provider {
    pub(crate) async fn start(model: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(serve(stream, model));
            }
        });
        Self { address, _tasks: tasks }
    }
}

async fn serve(mut stream: TcpStream, model: SocketAddr) {
    const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let Some(request) = read_request(&mut stream).await else { return };
    let text = String::from_utf8_lossy(&request).into_owned();
    let is = |name: &str| text.contains(&format!(r#""model":"{name}""#));
    let answer = if is("garbage") {
        format!("{HEAD}data: {{\"id\": nonsense\n\ndata: \u{fffd}\u{0}\n\n")
    } else if is("empty") {
        HEAD.to_owned()
    } else if is("hangup") {
        String::new()
    } else if is("half") {
        format!("{}40\r\ndata: {{\"id\":", HEAD.replace("connection: close", "transfer-encoding: chunked"))
    } else {
        let mut behind = TcpStream::connect(model).await.expect("the model");
        behind.write_all(&request).await.expect("the model reads");
        drop(tokio::io::copy_bidirectional(&mut stream, &mut behind).await);
        return;
    };
    drop(stream.write_all(answer.as_bytes()).await);
    drop(stream.shutdown().await);
}

/// One request, head and body, as it came; but it is the last of its connection.
pub(crate) async fn read_request(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut length = 0;
    let mut kept = Vec::new();
    for line in head.trim_end().lines() {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "connection" => continue,
            _ => {}
        }
        kept.push(line);
    }
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let mut request = format!("{}\r\nconnection: close\r\n\r\n", kept.join("\r\n")).into_bytes();
    request.extend_from_slice(&bytes[end..end + length]);
    Some(request)
}
