//! What the bridge and the broker add to what passes through them.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::boxes::{Aim, Row};
use super::rig::{Daemon, Model, PATIENCE};
use super::wire::text;
use super::{Extent, milliseconds};
use crate::http1::{self, Url};
use crate::process::output;
use crate::workspace::Workspace;

/// About what OpenCode says first, with its tools.
const REQUEST: usize = 32 << 10;

/// `crates/tether/examples/cost.rs` measures; it has both ends of the bridge.
pub(super) fn bridge(workspace: &Workspace, extent: Extent) -> Result<Vec<Row>> {
    let program = workspace.binary(extent.profile(), "examples/cost")?;
    let (requests, streams) = match extent {
        Extent::Full => ("2000", "5"),
        Extent::Smoke => ("50", "1"),
    };
    let said = output(Command::new(program).args(["series", requests, streams]))?;
    let mut series = series(&said)?;
    let mut row = |what, name: &str, aim| -> Result<Row> {
        let mut take = |way: &str| {
            let found = series.remove(&(name.to_owned(), way.to_owned()));
            found.with_context(|| format!("the example `cost` says nothing of {name} {way}"))
        };
        Ok(Row::new(what, aim, take("bridged")?, take("direct")?))
    };
    Ok(vec![
        row("bridge: request", "request", Aim::More(0.3))?,
        row("bridge: new connection", "connection", Aim::More(0.3))?,
        row("bridge: new connection from the box", "model", Aim::More(0.3))?,
        row("bridge: paced stream", "paced", Aim::Times(1.05))?,
        row("bridge: 64 MB at once", "bulk", Aim::None)?,
    ])
}

/// What was measured, by what and which way.
fn series(said: &str) -> Result<HashMap<(String, String), Vec<f64>>> {
    let mut all: HashMap<_, Vec<f64>> = HashMap::new();
    for line in said.lines() {
        let mut words = line.split(' ');
        let (Some(what), Some(way), Some(value)) = (words.next(), words.next(), words.next()) else {
            anyhow::bail!("{line:?} is no figure");
        };
        let value = value.parse().with_context(|| format!("{line:?} is no figure"))?;
        all.entry((what.to_owned(), way.to_owned())).or_default().push(value);
    }
    Ok(all)
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

/// The first byte of the model's answer: from the model itself, by the broker, and by the bridge and the broker. A run of
/// the session must be at work.
pub(super) fn broker(daemon: &Daemon, model: &Model, session: &str, rounds: usize) -> Result<Vec<Row>> {
    let access = daemon.access(session)?;
    let port = access["ports"]["model"].as_u64().context("access.json has no port of the model")?;
    let url = Url::parse(&model.url())?;
    let socket = UnixStream::connect(daemon.session(session).join("sockets/model.sock"))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let boxed = TcpStream::connect((Ipv4Addr::LOCALHOST, u16::try_from(port)?))?;
    boxed.set_nodelay(true)?;
    boxed.set_read_timeout(Some(PATIENCE))?;
    let mut ways: [Box<dyn Stream>; 3] =
        [Box::new(url.connect(PATIENCE)?), Box::new(socket), Box::new(boxed)];
    let body = json!({ "model": "mock", "stream": true, "messages": [
        { "role": "user", "content": format!("{} <<<[{{\"text\": \"first\"}}]>>>", "x".repeat(REQUEST)) },
    ]})
    .to_string();
    let request = format!(
        "POST {}/chat/completions HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        url.path,
        url.address,
        text(&access["token"])?,
        body.len()
    );
    let mut times = [Vec::new(), Vec::new(), Vec::new()];
    // The first of each makes connections.
    for round in 0..=rounds {
        for turn in 0..ways.len() {
            let at = (turn + round) % ways.len();
            let time = first_byte(&mut ways[at], request.as_bytes()).with_context(|| format!("way {at}"))?;
            if round > 0 {
                times[at].push(milliseconds(time));
            }
        }
    }
    let [direct, brokered, boxed] = times;
    Ok(vec![
        Row::new("broker: first byte", Aim::More(2.0), brokered, direct.clone()),
        Row::new("bridge and broker: first byte", Aim::None, boxed, direct),
    ])
}

/// Until the first event is there; then the rest is read.
fn first_byte(stream: &mut dyn Stream, request: &[u8]) -> Result<Duration> {
    let clock = Instant::now();
    stream.write_all(request)?;
    let (mut buffer, mut piece, mut first) = (Vec::new(), vec![0; 64 << 10], None);
    loop {
        let count = stream.read(&mut piece)?;
        anyhow::ensure!(count > 0, "it ended early: {}", String::from_utf8_lossy(&buffer));
        buffer.extend_from_slice(&piece[..count]);
        if first.is_none() && memchr::memmem::find(&buffer, b"data:").is_some() {
            first = Some(clock.elapsed());
        }
        let Some(head) = http1::head(&buffer)? else { continue };
        if http1::body(&head, &buffer)?.complete {
            let said = || String::from_utf8_lossy(&buffer).into_owned();
            anyhow::ensure!(head.status == 200 && head.events && !head.closes, "{}", said());
            return first.with_context(said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::series;

    #[test]
    fn figures_are_read_line_by_line() {
        let found = series("paced direct 1.5\npaced bridged 2\npaced direct 2.5\n").unwrap();
        assert_eq!(found[&("paced".to_owned(), "direct".to_owned())], [1.5, 2.5]);
        assert_eq!(found.len(), 2);
        assert!(series("paced direct").is_err() && series("paced direct x").is_err());
    }
}
