//! What a caller says under our names never arrives: ten thousand attempts, judged by the servers' own logs.
//!
//! The model's place is the arguments of a call, the reserved one among them; the client's is everything else it
//! sends; the hook's is what it gives to `callsign announce`.

mod cases;
mod judge;
mod wires;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use callsign::identification::now_ms;
use identity::seal::{Payload, SealKey, seal, tool_name};
use testkit::bin;
use testkit::harness::{Gateway, HttpServer};

use self::cases::{Case, Counts, Lane, Maker, Random, THREADS, Who};
use self::wires::{Pipe, Socket};
use crate::support::{CODEX, log_file, setup};

const TOTAL: usize = 10_000;
const SEED: u64 = 0xca11_5160;
const KEY: &str = "c2VhbC1rZXktb2YtdGhlLXRlc3RzLTMyLWJ5dGVzISE";
const OTHER_KEY: &str = "YW5vdGhlci1rZXktb2YtdGhlLXRlc3RzLTMyLWJ5dGU";
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
/// Requests on a pipe before their answers are waited for.
const AT_ONCE: usize = 24;
const HOOKED: &str = "hook-session";

/// What became of one lane.
struct Report {
    lane: &'static str,
    cases: usize,
    counts: Counts,
    wrong: Vec<String>,
}

#[test]
fn nothing_stands_under_our_names_but_what_we_wrote() {
    let start = Instant::now();
    let reports = std::thread::scope(|scope| {
        let lanes = [
            scope.spawn(wrap_to_pipe),
            scope.spawn(wrap_to_http),
            scope.spawn(serve_to_pipe),
            scope.spawn(serve_to_http),
        ];
        lanes.map(|lane| lane.join().expect("a lane ends"))
    });
    let (mut total, mut counts, mut wrong) = (0, Counts::new(), Vec::new());
    for report in reports {
        println!("{:>6}  {}", report.cases, report.lane);
        total += report.cases;
        for (what, count) in report.counts {
            *counts.entry(what).or_default() += count;
        }
        wrong.extend(report.wrong.into_iter().map(|wrong| format!("{}: {wrong}", report.lane)));
    }
    println!("seed {SEED:#x}, {total} cases in {:?}; among them:", start.elapsed());
    for (what, count) in &counts {
        println!("{count:>6}  {what}");
    }
    let first: Vec<&str> = wrong.iter().take(5).map(String::as_str).collect();
    assert!(
        wrong.is_empty(),
        "{} things arrived that must not; the first:\n{}",
        wrong.len(),
        first.join("\n")
    );
    assert_eq!(total, TOTAL);
    let few: Vec<_> = counts.iter().filter(|(_, count)| **count < 40).collect();
    assert!(counts.len() >= 25 && few.is_empty(), "too few of {few:?}");
}

/// A lane under way.
struct Run<'a> {
    maker: Maker<'a>,
    expected: HashMap<usize, Who>,
    texts: HashMap<usize, String>,
    wrong: Vec<String>,
    /// Cases that have no number: answers.
    answers: usize,
}

impl<'a> Run<'a> {
    fn new(lane: &'a Lane) -> Self {
        let random = Random(SEED ^ lane.name.len() as u64);
        let maker = Maker { lane, random, counts: Counts::new() };
        Self { maker, expected: HashMap::new(), texts: HashMap::new(), wrong: Vec::new(), answers: 0 }
    }

    fn note(&mut self, case: &Case) {
        self.expected.insert(case.number, case.who);
        self.texts.insert(case.number, case.text.clone());
    }

    fn next(&mut self) -> Case {
        let case = self.maker.case(self.expected.len());
        self.note(&case);
        case
    }

    fn initialize(&mut self) -> Case {
        let case = self.maker.initialize(self.expected.len(), CODEX);
        self.note(&case);
        case
    }

    /// Waits until everything has arrived and says what arrived that must not.
    fn finish(mut self, log: &str) -> Report {
        let deadline = Instant::now() + Duration::from_secs(10);
        let lane = self.maker.lane;
        let seen = loop {
            let seen = judge::judge(&testkit::record::read(log.as_ref()), lane.server, &self.expected);
            let done = seen.arrived.len() == self.expected.len() || !seen.wrong.is_empty();
            if done || Instant::now() > deadline {
                break seen;
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        for (number, who) in &self.expected {
            let arrived = seen.arrived.get(number).copied().unwrap_or_default();
            let fits = match who {
                Who::Thread(..) | Who::Nobody => arrived == 1,
                // Every process of the server hears them.
                Who::Anybody | Who::NotAsked => arrived >= 1,
            };
            if !fits && seen.wrong.is_empty() {
                self.wrong.push(format!("arrived {arrived} times: {}", self.texts[number]));
            }
        }
        self.wrong.extend(seen.wrong);
        let cases = self.expected.len() + self.answers;
        Report { lane: lane.name, cases, counts: self.maker.counts, wrong: self.wrong }
    }
}

fn warm(thread: Option<&str>, seal: Option<&str>) -> String {
    let meta = thread.map(|thread| format!(r#""threadId":"{thread}""#)).unwrap_or_default();
    let arguments = seal.map(|seal| format!(r#""__callsign":"{seal}""#)).unwrap_or_default();
    format!(
        r#"{{"jsonrpc":"2.0","id":"warm","method":"tools/call","params":{{"name":"echo","_meta":{{{meta}}},"arguments":{{{arguments}}}}}}}"#
    )
}

fn sealed(key: &str, server: &str) -> String {
    let payload = Payload {
        session: cases::SEALED.to_owned(),
        tool: tool_name(server, "echo"),
        at: now_ms(),
        nonce: "nonce-of-the-forgeries".to_owned(),
        ..Payload::default()
    };
    seal(&SealKey::parse(key).expect("a key"), &payload).expect("a seal")
}

fn lane(name: &'static str, server: &'static str, headers: bool) -> Lane {
    Lane { name, server, headers, seals: vec![sealed(KEY, server), sealed(OTHER_KEY, server)] }
}

/// Everything through one pipe: `initialize` again and again, then the rest.
fn through_pipe(run: &mut Run<'_>, pipe: &mut Pipe, (initializations, rest): (usize, usize)) {
    for _ in 0..initializations {
        let case = run.initialize();
        pipe.send(&case.text);
        pipe.answers(1);
    }
    pipe.send(INITIALIZED);
    for thread in THREADS {
        pipe.send(&warm(Some(thread), None));
        pipe.answers(1);
    }
    // The one seal that counts is used up.
    pipe.send(&warm(None, Some(&run.maker.lane.seals[0])));
    pipe.answers(1);
    pipe.send(&warm(None, None));
    pipe.answers(1);
    let mut left = rest;
    while left > 0 {
        let batch: Vec<Case> = (0..left.min(AT_ONCE)).map(|_| run.next()).collect();
        left -= batch.len();
        for case in &batch {
            pipe.send(&case.text);
        }
        pipe.answers(batch.iter().filter(|case| case.who != Who::NotAsked).count());
    }
}

fn wrap_to_pipe() -> Report {
    let lane = lane("wrap → pipe", "logging-server", false);
    let (_directory, log) = log_file();
    let (command, _files) = setup()
        .env("CALLSIGN_SEAL_KEY", KEY)
        .wrap_command(&[], &[&bin("logging-server"), "--stdio", "--log", &log]);
    let mut pipe = Pipe::open(command);
    let mut run = Run::new(&lane);
    through_pipe(&mut run, &mut pipe, (20, 3240));
    for number in 0..40 {
        answer(&mut run, &mut pipe, number);
    }
    run.finish(&log)
}

/// The server asks, and the client answers with our names in it.
fn answer(run: &mut Run<'_>, pipe: &mut Pipe, number: usize) {
    pipe.send(&format!(
        r#"{{"jsonrpc":"2.0","id":"ask-{number}","method":"tools/call","params":{{"name":"ask","arguments":{{"method":"roots/list"}},"_meta":{{"threadId":"{}"}}}}}}"#,
        THREADS[0]
    ));
    let question = pipe.receive();
    let id = &question["id"];
    assert_eq!(question["method"], "roots/list", "{question}");
    run.maker.count("client, in an answer");
    let text = if number.is_multiple_of(2) {
        let meta = run.maker.object(true, Vec::new());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"roots":[],"_meta":{meta}}}}}"#)
    } else {
        let data = run.maker.object(false, Vec::new());
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":1,"message":"no","data":{data}}}}}"#)
    };
    pipe.send(&text);
    let answered = pipe.receive();
    // What the server got is in its answer.
    let got = answered["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    if got.is_empty() || got.contains(cases::EVIL) || got.to_lowercase().contains("callsign") {
        run.wrong.push(format!("an answer arrived as {answered}; it was {text}"));
    }
    run.answers += 1;
}

fn wrap_to_http() -> Report {
    let lane = lane("wrap → HTTP", "server", false);
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let (command, _files) = setup().env("CALLSIGN_SEAL_KEY", KEY).wrap_command(&["--url", &server.url], &[]);
    let mut pipe = Pipe::open(command);
    let mut run = Run::new(&lane);
    through_pipe(&mut run, &mut pipe, (100, 2300));
    run.finish(&log)
}

fn serve(setup: &testkit::harness::Setup) -> Gateway {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(setup.serve())
}

/// Everything over one connection: a session again and again, then the rest in the last one.
fn through_socket(run: &mut Run<'_>, socket: &mut Socket, (initializations, rest): (usize, usize)) {
    for _ in 0..initializations {
        let case = run.initialize();
        socket.session = None;
        let answer = socket.post(&case.text, &case.headers);
        assert!(answer.status == 200 && answer.session.is_some(), "{answer:?}");
        socket.session = answer.session;
    }
    socket.post(INITIALIZED, &[]);
    for thread in THREADS.into_iter().map(Some).chain([None]) {
        let answer = socket.post(&warm(thread, None), &[]);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    for _ in 0..rest {
        let case = run.next();
        socket.post(&case.text, &case.headers);
    }
}

fn serve_to_pipe() -> Report {
    let lane = lane("serve → pipe", "srv", true);
    let (_directory, log) = log_file();
    let gateway = serve(&setup().server("srv", &[&bin("logging-server"), "--log", &log], ""));
    let mut socket = Socket::open(gateway.address(), "/mcp/srv", &gateway.token);
    let mut run = Run::new(&lane);
    through_socket(&mut run, &mut socket, (20, 2180));
    run.finish(&log)
}

fn serve_to_http() -> Report {
    let lane = lane("serve → HTTP", "srv", true);
    let (_directory, log) = log_file();
    let server = HttpServer::start("logging-server", &["--log", &log]);
    let gateway = serve(&setup().url("srv", &server.url, ""));
    let mut socket = Socket::open(gateway.address(), "/mcp/srv", &gateway.token);
    let mut run = Run::new(&lane);
    through_socket(&mut run, &mut socket, (100, 1900));
    let mut claude = Socket::open(gateway.address(), "/mcp/srv", &gateway.token);
    let opened = claude.post(
        r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"claude-code","version":"1"}}}"#,
        &[],
    );
    claude.session = opened.session;
    for _ in 0..100 {
        hook(&mut run, &gateway, &mut claude);
    }
    run.finish(&log)
}

/// A hook whose input has our names in it, and the call it announces.
fn hook(run: &mut Run<'_>, gateway: &Gateway, claude: &mut Socket) {
    run.maker.count("hook, in what it announces");
    let number = run.expected.len();
    let input = run.maker.object(true, vec![r#""x":1"#.to_owned()]);
    let members = [
        format!(r#""session_id":"{HOOKED}""#),
        r#""hook_event_name":"PreToolUse""#.to_owned(),
        r#""tool_name":"mcp__srv__echo""#.to_owned(),
        format!(r#""tool_use_id":"toolu_{number}""#),
        format!(r#""tool_input":{input}"#),
    ];
    let announced = run.maker.object(true, members.to_vec());
    let (code, _, errors) = gateway.run_with(&["announce"], announced.as_bytes());
    if code != Some(0) {
        run.wrong.push(format!("announce: {errors}: {announced}"));
    }
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{{"case":{number},"name":"echo","_meta":{{"claudecode/toolUseId":"toolu_{number}"}}}}}}"#
    );
    claude.post(&text, &[]);
    run.expected.insert(number, Who::Thread("claude-code", HOOKED));
    run.texts.insert(number, text);
}
