//! The load generator: one thread, many keep-alive connections, one MCP session and one call in flight on each.
//!
//! It runs in a process of its own (`xtask bench-worker PLAN`), so that it can be put into the network namespace of
//! its target. Its talk with `bench`, a line of JSON each:
//!
//! ```text
//! ready →   ← go   …load…   result →   ← (end of stdin)   sessions are deleted
//! ```
//!
//! Every call has a text of its own, ids start at 1 in every session, and both are checked in every answer: an
//! answer that reached the wrong session is found.

use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::echo::{Latencies, Verdict, call, check, initialize};
use crate::http1::{self, Head, Url, body, events, head};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Plan {
    pub(crate) url: String,
    /// Some peers put the name of the server before the tool's.
    pub(crate) tool: String,
    pub(crate) connections: usize,
    pub(crate) warm_up: f64,
    pub(crate) seconds: f64,
    pub(crate) work: Work,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Work {
    /// Try until `initialize` is answered, then say `ready`; nothing else.
    Probe,
    Load,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) enum Report {
    /// The probe tries from now on.
    Trying,
    Ready,
    Result(Outcome),
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Outcome {
    pub(crate) calls: u64,
    pub(crate) seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) wrong: u64,
    /// What was wrong first.
    pub(crate) sample: Option<String>,
}

pub(crate) fn work(plan: &str) -> Result<()> {
    let plan: Plan = serde_json::from_str(plan).context("the plan")?;
    let url = Url::parse(&plan.url)?;
    match plan.work {
        Work::Probe => probe(&plan, &url),
        Work::Load => load(&plan, &url),
    }
}

fn say(report: &Report) -> Result<()> {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", serde_json::to_string(report)?)?;
    stdout.flush()?;
    Ok(())
}

fn probe(plan: &Plan, url: &Url) -> Result<()> {
    say(&Report::Trying)?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Session::open(url, &plan.tool, 0) {
            Ok(session) => {
                say(&Report::Ready)?;
                return session.close();
            }
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_micros(500)),
        }
    }
}

fn load(plan: &Plan, url: &Url) -> Result<()> {
    let mut sessions = Vec::new();
    for number in 0..plan.connections {
        sessions.push(Session::open(url, &plan.tool, number).with_context(|| format!("session {number}"))?);
    }
    let warm_up = drive(&mut sessions, plan.warm_up)?;
    say(&Report::Ready)?;
    let mut go = String::new();
    std::io::stdin().lock().read_line(&mut go)?;
    let mut outcome = drive(&mut sessions, plan.seconds)?;
    outcome.wrong += warm_up.wrong;
    outcome.sample = warm_up.sample.or(outcome.sample);
    say(&Report::Result(outcome))?;
    // The sessions stay open until `bench` has looked at the target's memory.
    std::io::stdin().lock().read_to_end(&mut Vec::new())?;
    for session in sessions {
        session.close()?;
    }
    Ok(())
}

/// Keeps one call in flight on every session for a time, then waits for the last answers.
fn drive(sessions: &mut [Session], seconds: f64) -> Result<Outcome> {
    let mut latencies = Latencies::default();
    let mut outcome = Outcome::default();
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(seconds);
    for session in sessions.iter_mut() {
        session.send()?;
    }
    let mut waiting = sessions.len();
    let mut last = Instant::now();
    while waiting > 0 {
        let ready = ready(sessions)?;
        anyhow::ensure!(
            !ready.is_empty() || last.elapsed() < PATIENCE,
            "no answer for {} s",
            PATIENCE.as_secs()
        );
        for index in ready {
            let session = &mut sessions[index];
            let Some(verdict) = session.receive()? else { continue };
            last = Instant::now();
            let in_time = last < end;
            if let Verdict::Wrong(what) = verdict {
                outcome.wrong += 1;
                outcome.sample.get_or_insert(what);
            } else if in_time {
                latencies.add(last - session.sent);
            }
            if in_time {
                session.send()?;
            } else {
                waiting -= 1;
            }
        }
    }
    outcome.calls = latencies.count();
    outcome.seconds = seconds;
    (outcome.p50_us, outcome.p99_us) = latencies.percentiles();
    Ok(outcome)
}

/// Which sessions have something to read. Empty after a second of nothing.
fn ready(sessions: &[Session]) -> Result<Vec<usize>> {
    let mut descriptors: Vec<PollFd<'_>> = sessions
        .iter()
        .map(|session| {
            let wanted = if session.waiting { PollFlags::POLLIN } else { PollFlags::empty() };
            PollFd::new(session.stream.as_fd(), wanted)
        })
        .collect();
    poll(&mut descriptors, PollTimeout::from(1000_u16))?;
    let readable = |descriptor: &PollFd<'_>| descriptor.any().unwrap_or(false);
    let found = descriptors.iter().zip(sessions).enumerate();
    Ok(found.filter(|(_, (fd, session))| session.waiting && readable(fd)).map(|(index, _)| index).collect())
}

struct Session {
    url: Url,
    stream: TcpStream,
    tool: String,
    number: usize,
    id: Option<String>,
    version: String,
    post: Vec<u8>,
    calls: u64,
    text: String,
    sent: Instant,
    waiting: bool,
    buffer: Vec<u8>,
}

impl Session {
    fn open(url: &Url, tool: &str, number: usize) -> Result<Self> {
        let stream = url.connect(PATIENCE)?;
        let mut session = Self {
            url: url.clone(),
            stream,
            tool: tool.to_owned(),
            number,
            id: None,
            version: String::new(),
            post: http1::post_head(url, None, None),
            calls: 0,
            text: String::new(),
            sent: Instant::now(),
            waiting: false,
            buffer: Vec::with_capacity(4096),
        };
        let (head, answer) = session.exchange(&initialize())?;
        let answer: Value = serde_json::from_slice(&answer).context("the answer to initialize")?;
        let version = answer["result"]["protocolVersion"].as_str();
        version
            .with_context(|| format!("initialize was answered {answer}"))?
            .clone_into(&mut session.version);
        session.id = head.session;
        session.post = http1::post_head(url, session.id.as_deref(), Some(&session.version));
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
        session.exchange(initialized.as_bytes())?;
        Ok(session)
    }

    /// One POST and its whole answer: the message, or nothing.
    fn exchange(&mut self, message: &[u8]) -> Result<(Head, Vec<u8>)> {
        self.write(message)?;
        loop {
            if let Some((head, message)) = self.read()? {
                anyhow::ensure!(
                    head.status < 300,
                    "status {}: {}",
                    head.status,
                    String::from_utf8_lossy(&message)
                );
                return Ok((head, message));
            }
        }
    }

    fn write(&mut self, message: &[u8]) -> Result<()> {
        self.buffer.clear();
        let mut request = Vec::with_capacity(self.post.len() + message.len() + 16);
        request.extend_from_slice(&self.post);
        write!(request, "{}\r\n\r\n", message.len())?;
        request.extend_from_slice(message);
        self.stream.write_all(&request)?;
        self.waiting = true;
        Ok(())
    }

    fn send(&mut self) -> Result<()> {
        self.calls += 1;
        self.text = format!("call {} of session {} of {}", self.calls, self.number, std::process::id());
        let message = call(&self.tool, self.calls, &self.text);
        self.sent = Instant::now();
        self.write(&message)
    }

    /// Reads what is there. None if the answer is not complete yet.
    fn receive(&mut self) -> Result<Option<Verdict>> {
        let Some((head, message)) = self.read()? else { return Ok(None) };
        if head.status != 200 {
            let text = String::from_utf8_lossy(&message).into_owned();
            return Ok(Some(Verdict::Wrong(format!("status {}: {text}", head.status))));
        }
        Ok(Some(check(&message, self.calls, &self.text)))
    }

    fn read(&mut self) -> Result<Option<(Head, Vec<u8>)>> {
        let mut chunk = [0; 16 * 1024];
        let length = self.stream.read(&mut chunk)?;
        self.buffer.extend_from_slice(&chunk[..length]);
        let Some(head) = head(&self.buffer)? else {
            anyhow::ensure!(length > 0, "the connection was closed before the answer");
            return Ok(None);
        };
        let part = body(&head, &self.buffer)?;
        if !part.complete && length > 0 {
            return Ok(None);
        }
        let message = if head.events {
            // The answer is the last event; before it there may be notifications.
            events(&part.bytes).pop().map(std::borrow::Cow::into_owned).unwrap_or_default()
        } else {
            part.bytes.into_owned()
        };
        if head.closes || length == 0 {
            self.stream = self.url.connect(PATIENCE)?;
        }
        self.waiting = false;
        Ok(Some((head, message)))
    }

    /// Ends the session, so that a target which keeps a process for each does not keep it for long.
    fn close(mut self) -> Result<()> {
        let Some(id) = &self.id else { return Ok(()) };
        self.buffer.clear();
        self.stream.write_all(&http1::bare("DELETE", &self.url, id, &self.version))?;
        loop {
            match self.read() {
                Ok(None) => {}
                Ok(Some((head, _))) if head.status < 500 => return Ok(()),
                Ok(Some((head, _))) => bail!("DELETE of the session was answered {}", head.status),
                Err(_) => return Ok(()),
            }
        }
    }
}
