//! Every message arrives byte for byte, but for ids and progress tokens, which are ours on the way, and for who
//! makes a request, which we put in.

mod messages;
mod stamp;

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use serde_json::Value;
use testkit::bin;
use testkit::client::{Era, Http};
use testkit::harness::{Files, HttpServer};
use testkit::record;

use self::messages::Message;
use crate::support::setup;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"faithful","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const WARM: &str = r#"{"jsonrpc":"2.0","id":"warm","method":"tools/call","params":{"name":"whoami"}}"#;

fn runner(cases: u32) -> TestRunner {
    // A message that got lost costs its whole deadline at every step of shrinking.
    TestRunner::new(Config { cases, max_shrink_iters: 60, source_file: Some(file!()), ..Config::default() })
}

/// Fails with the smallest message that shows it.
#[track_caller]
fn report(outcome: Result<(), TestError<Message>>) {
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(reason, message)) => panic!("{reason}\nthe message: {}", message.text(1)),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

/// `wrap` and its pipes, initialized, with one call behind it so that the caller's child runs.
struct Pipes {
    child: Child,
    input: ChildStdin,
    /// None once [`Self::drain`] reads it.
    output: Option<BufReader<ChildStdout>>,
    /// The process that serves this caller.
    server: u64,
    _files: Files,
}

impl Pipes {
    fn open(server: &[&str]) -> Self {
        let (mut command, files) = setup().wrap_command(&[], server);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("callsign starts");
        let input = child.stdin.take().expect("piped");
        let output = Some(BufReader::new(child.stdout.take().expect("piped")));
        let mut pipes = Self { child, input, output, server: 0, _files: files };
        pipes.send(INITIALIZE);
        pipes.until(|line| line.contains("\"init\""));
        pipes.send(INITIALIZED);
        pipes.send(WARM);
        let warm: Value =
            serde_json::from_str(&pipes.until(|line| line.contains("\"warm\""))).expect("an answer");
        let whoami: Value = serde_json::from_str(&testkit::client::text(&warm["result"])).expect("whoami");
        pipes.server = whoami["pid"].as_u64().expect("a pid");
        pipes
    }

    fn send(&mut self, line: &str) {
        self.input.write_all(format!("{line}\n").as_bytes()).expect("it reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        let output = self.output.as_mut().expect("not drained");
        output.read_line(&mut line).expect("it writes UTF-8");
        assert!(line.ends_with('\n'), "the pipe ended");
        line.pop();
        line
    }

    /// For a test that does not look at the answers: somebody has to read them.
    fn drain(&mut self) -> std::thread::JoinHandle<()> {
        let output = self.output.take().expect("not drained");
        std::thread::spawn(move || output.lines().for_each(drop))
    }

    fn until(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        loop {
            let line = self.line();
            if wanted(&line) {
                return line;
            }
        }
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Follows what one process wrote to the log of a logging server. Another one may write there too: the lobby
/// hears a client's notifications as well.
struct Tail {
    log: BufReader<File>,
    /// What was read of a record that is half written.
    /// A line may be read while it is being written, in the middle of a character too.
    begun: Vec<u8>,
    pid: u64,
}

impl Tail {
    /// Starts behind what is there already.
    fn open(path: &Path, pid: u64) -> Self {
        let log = BufReader::new(File::open(path).expect("a log"));
        let mut tail = Self { log, begun: Vec::new(), pid };
        while tail.try_next().is_some() {}
        tail
    }

    fn try_next(&mut self) -> Option<Value> {
        loop {
            self.log.read_until(b'\n', &mut self.begun).expect("the log can be read");
            if !self.begun.ends_with(b"\n") {
                return None;
            }
            let line = std::mem::take(&mut self.begun);
            let record: Value = serde_json::from_slice(&line).expect("a record");
            if record["event"] != "start" && record["pid"] == self.pid {
                return Some(record);
            }
        }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        let end = Instant::now() + Duration::from_secs(2);
        while Instant::now() < end {
            if let Some(record) = self.try_next() {
                return Some(record::bytes(&record));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        None
    }
}

fn same(message: &Message, number: u64, arrived: Option<Vec<u8>>) -> Result<(), TestCaseError> {
    let Some(arrived) = arrived else { return Err(TestCaseError::fail("it never arrived")) };
    let arrived = String::from_utf8(arrived).map_err(|_| TestCaseError::fail("it arrived broken"))?;
    let same = if message.is_request() {
        stamp::without(&arrived).iter().any(|original| message.matches(original))
    } else {
        message.matches(&arrived)
    };
    if same {
        return Ok(());
    }
    Err(TestCaseError::fail(format!("sent:    {}\narrived: {arrived}", message.text(number))))
}

#[test]
fn ten_thousand_messages_arrive_as_they_were_sent() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let mut pipes = Pipes::open(&[&bin("logging-server"), "--stdio", "--log", log.to_str().expect("UTF-8")]);
    let mut tail = Tail::open(&log, pipes.server);
    let reader = pipes.drain();
    let state = std::cell::RefCell::new((&mut pipes, &mut tail, 0));
    let outcome = runner(10_000).run(&messages::any(), |message| {
        let (pipes, tail, number) = &mut *state.borrow_mut();
        while tail.try_next().is_some() {}
        *number += 1;
        pipes.send(&message.text(*number));
        same(&message, *number, tail.next())
    });
    drop(pipes);
    reader.join().expect("the reader ends with the pipe");
    report(outcome);
}

#[test]
fn a_meta_that_is_no_object_gives_way_and_parameters_by_position_have_no_place_for_ours() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let mut pipes = Pipes::open(&[&bin("logging-server"), "--stdio", "--log", log.to_str().expect("UTF-8")]);
    let mut tail = Tail::open(&log, pipes.server);
    let reader = pipes.drain();
    let mut number = 0;
    let mut arrives = |text: &str| {
        while tail.try_next().is_some() {}
        // The one before may have arrived and not been answered yet, so its id is taken.
        number += 1;
        pipes.send(&text.replace('#', &format!("\"mine-{number}\"")));
        let arrived = String::from_utf8(tail.next().expect("it arrives")).expect("UTF-8");
        let id = serde_json::from_str::<Value>(&arrived).expect("JSON")["id"].to_string();
        (text.replace('#', &id), arrived)
    };
    for meta in ["null", "7", "\"x\"", "[1, {}]", "true"] {
        let params = format!(r#"{{"a": 1,"_meta" : {meta} ,"b":2}}"#);
        let (sent, arrived) =
            arrives(&format!(r#"{{"jsonrpc":"2.0", "id":#,"method":"vendor/method","params":{params}}}"#));
        let stamp = stamp::find(&arrived).expect("one stamp");
        let ours = format!("\"_meta\" : {{{}}} ,", &arrived[stamp.span]);
        assert_eq!(arrived, sent.replace(&format!("\"_meta\" : {meta} ,"), &ours));
    }
    let (sent, arrived) = arrives(r#"{"jsonrpc":"2.0","id":#,"method":"vendor/method","params":[ 1,{}]}"#);
    assert_eq!(arrived, sent);
    drop(pipes);
    reader.join().expect("the reader ends with the pipe");
}

#[test]
fn answers_come_back_as_the_server_wrote_them() {
    let pipes = std::cell::RefCell::new((Pipes::open(&[&bin("echo-server")]), 0));
    report(runner(2_000).run(&messages::echoed(), |message| {
        let (pipes, number) = &mut *pipes.borrow_mut();
        *number += 1;
        pipes.send(&message.text(*number));
        let expected = message.answer(*number);
        let line = pipes.line();
        // What comes back is what the server got, who calls included.
        if stamp::without(&line).contains(&expected) {
            Ok(())
        } else {
            Err(TestCaseError::fail(format!("expected: {expected}\narrived:  {line}")))
        }
    }));
}

#[test]
fn notifications_of_a_server_arrive_as_it_wrote_them() {
    let pipes = std::cell::RefCell::new((Pipes::open(&[&bin("echo-server")]), 0));
    report(runner(1_000).run(&messages::notification(), |message| {
        let (pipes, number) = &mut *pipes.borrow_mut();
        *number += 1;
        let expected = message.text(*number);
        let arguments = serde_json::json!({ "json": expected });
        pipes.send(&format!(
            r#"{{"jsonrpc":"2.0","id":"raw-{number}","method":"tools/call","params":{{"name":"raw","arguments":{arguments}}}}}"#
        ));
        let line = pipes.line();
        if line != expected {
            return Err(TestCaseError::fail(format!("expected: {expected}\narrived:  {line}")));
        }
        pipes.until(|line| line.contains("\"raw-"));
        Ok(())
    }));
}

#[test]
fn bodies_over_http_arrive_as_they_were_sent() {
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("log");
    let server = HttpServer::start("logging-server", &["--log", log.to_str().expect("UTF-8")]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let gateway = runtime.block_on(setup().url("log", &server.url, "").serve());
    let client = runtime.block_on(gateway.connect("log", Era::Legacy));
    let http: &Http = client.raw();
    let state = std::cell::RefCell::new((Tail::open(&log, u64::from(server.pid())), 0));
    report(runner(500).run(&messages::any(), |message| {
        let (tail, number) = &mut *state.borrow_mut();
        while tail.try_next().is_some() {}
        *number += 1;
        let answer = http.post(message.text(*number), &[("mcp-protocol-version", "2025-11-25")]);
        runtime.block_on(answer);
        same(&message, *number, tail.next())
    }));
}
