//! No secret is in the ledger, in a log, in metrics, in spans or in an error.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use testkit::client::{Client, Era, Failure, Http};
use testkit::harness::wait_until;

use super::canary_places::{self as places, ALL, ARGUMENT, CLIENTS_HEADER, META, QUERY, RESULT, WRONG_TOKEN};
use super::played::Played;
use super::rig::{Back, Front, House, MINE, Way, call, hex, mine};
use super::spans::Collector;
use crate::support::{SOON, setup};

/// Texts, each with a word on where it is from.
#[derive(Default)]
struct Found(Vec<(String, Vec<u8>)>);

impl Found {
    fn add(&mut self, place: &str, text: impl Into<Vec<u8>>) {
        self.0.push((place.to_owned(), text.into()));
    }

    fn failure(&mut self, place: &str, answer: &Result<Value, Failure>) {
        if let Err(failure) = answer {
            self.add(&format!("the error of {place}"), failure.text());
        }
    }

    /// Every file of the ledger, byte by byte, and what is said of it.
    fn ledger(&mut self, house: &House) {
        for entry in std::fs::read_dir(house.gateway.files.state()).expect("a directory").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("ledger.db") {
                self.add(&name, std::fs::read(entry.path()).expect("a file"));
            }
        }
        let commands: [&[&str]; 6] = [
            &["calls", "--json", "--limit", "0"],
            &["calls", "--limit", "0"],
            &["calls", "--tree"],
            &["ledger", "export", "--format", "jsonl"],
            &["ledger", "export", "--format", "otlp"],
            &["ledger", "verify"],
        ];
        for command in commands {
            let (code, output, errors) = house.gateway.run(command);
            assert_eq!(code, Some(0), "{command:?}: {errors}");
            self.add(&format!("{command:?}"), format!("{output}{errors}"));
        }
    }

    /// Where a secret is, as it is or encoded.
    fn hits(&self, secret: &str) -> Vec<String> {
        let spellings = [
            secret.to_owned(),
            BASE64_STANDARD.encode(secret).trim_end_matches('=').to_owned(),
            hex(secret.as_bytes()),
        ];
        let mut hits = Vec::new();
        for (place, text) in &self.0 {
            for spelling in &spellings {
                let at = text.windows(spelling.len()).position(|window| window == spelling.as_bytes());
                hits.extend(at.map(|at| {
                    let around = &text[at.saturating_sub(120)..(at + spelling.len() + 40).min(text.len())];
                    format!("in {place}: …{}…", String::from_utf8_lossy(around))
                }));
            }
        }
        hits
    }
}

/// `_meta` with a secret in it.
fn meta(session: &str, name: &str) -> Value {
    let mut meta = mine(session, name);
    meta["example.org/secret"] = META.into();
    meta
}

/// The daemon, and a `wrap`, come across all of them.
struct Canary {
    house: House,
    collector: Collector,
    found: Found,
    /// The names of all calls that were made.
    made: BTreeSet<String>,
    _directory: tempfile::TempDir,
}

impl Canary {
    async fn open() -> Self {
        let (directory, collector) = (tempfile::tempdir().expect("a directory"), Collector::start().await);
        let played = Played::start().await;
        played.look(|_| format!("a result with {RESULT} in it"));
        let headers = places::headers(directory.path());
        let mut setup = places::house(directory.path(), &collector).toml(MINE);
        let command = played.command();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        setup = setup.server("pipe", &command, "env = { SERVER_SECRET = \"{env:SERVER_SECRET}\" }");
        for back in [Back::Json, Back::Events, Back::Old] {
            let url = format!("{}?key={QUERY}", played.url(&format!("/{}", back.server())));
            setup = setup.url(back.server(), &url, &headers);
        }
        setup = setup.url("nowhere", &format!("http://127.0.0.1:9/mcp?key={QUERY}"), &headers);
        let house = House::around(setup, played, &places::environment()).await;
        Self { house, collector, found: Found::default(), made: BTreeSet::new(), _directory: directory }
    }

    fn client(&self, front: Front, server: &str, era: Era) -> Client {
        match front {
            Front::Wrap if matches!(server, "json" | "events" | "old") => {
                let url = format!("{}?key={QUERY}", self.house.played.url(&format!("/{server}")));
                self.house.wrap(server, era, &["--headers-env", "ENTRY_HEADERS", "--url", &url])
            }
            Front::Wrap => self.house.wrap(server, era, &[]),
            Front::Serve => {
                let http = Http::new(&self.house.gateway.mcp(server), Some(&self.house.gateway.token));
                Client::over(
                    http.with_header("x-api-key", CLIENTS_HEADER).with_header("cookie", CLIENTS_HEADER),
                    era,
                )
            }
        }
    }

    /// All that can happen to a call, on one way.
    async fn walk(&mut self, way: Way) {
        let (client, name) = (self.client(way.front, way.back.server(), way.era), way.name());
        let connected = client.connect().await;
        assert!(connected.is_ok(), "{name}: {connected:?}\n{}{}", client.stderr(), self.house.gateway.log());
        for tool in ["fine", "tool-error", "rpc-error", "thrown", "invalid", "status", "hang-up"] {
            let by_http = way.back != Back::Pipe;
            if tool == "status" && !by_http || tool == "invalid" && (!by_http || way.back == Back::Old) {
                continue;
            }
            self.made.insert(way.call(tool));
            let answer = call(&client, tool, meta(&name, &way.call(tool)), json!({ "text": ARGUMENT })).await;
            assert_eq!(answer.is_ok(), matches!(tool, "fine" | "tool-error"), "{name}: {tool}: {answer:?}");
            self.found.failure(&format!("{name}: {tool}"), &answer);
        }
        client.end().await;
        self.found.add(&format!("the log of {name}"), client.stderr());
    }

    /// Servers that cannot be had.
    async fn gone(&mut self, front: Front) {
        for server in ["dies", "nowhere"] {
            let (client, name) = (self.client(front, server, Era::Modern), format!("{front:?}-{server}"));
            self.made.insert(name.clone());
            let answer = call(&client, "fine", meta(&name, &name), json!({ "text": ARGUMENT })).await;
            assert!(answer.is_err(), "{name}: {answer:?}");
            self.found.failure(&name, &answer);
            client.end().await;
            self.found.add(&format!("the log of {name}"), client.stderr());
        }
    }

    /// Everything that was said by the end.
    async fn collect(&mut self) {
        let calls = self.house.ended(&[], self.made.len()).await;
        let kept: BTreeSet<String> =
            calls.iter().map(|row| row["call"].as_str().unwrap_or_default().to_owned()).collect();
        let lost: Vec<&String> = self.made.difference(&kept).collect();
        assert!(
            lost.is_empty() && calls.len() == self.made.len(),
            "{} rows; without one: {lost:?}",
            calls.len()
        );
        let counted = wait_until(SOON * 2, || self.collector.spans().len() >= calls.len());
        assert!(counted.await, "{} spans of {} calls", self.collector.spans().len(), calls.len());
        let http = Http::new(&self.house.gateway.at("/metrics"), Some(&self.house.gateway.token));
        self.found.add("/metrics", http.get(&[]).await.text());
        let wrong = Http::new(&self.house.gateway.mcp("pipe"), Some(WRONG_TOKEN)).post("{}", &[]).await;
        self.found.add("a refusal by token", wrong.text());
        for post in self.collector.posts() {
            self.found.add("spans", post.body);
        }
        self.found.ledger(&self.house);
        self.found.add("the log of the daemon", self.house.gateway.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_secret_is_written_down_or_told() {
    let mut canary = Canary::open().await;
    for way in Way::all() {
        canary.walk(way).await;
    }
    for front in [Front::Wrap, Front::Serve] {
        canary.gone(front).await;
    }
    canary.collect().await;
    // They were where they belong: servers, hooks and the collector had them.
    let arrived = canary.house.played.arrived();
    let headers: Vec<&str> =
        arrived.iter().flat_map(|one| one.headers.iter().map(|(_, value)| value.as_str())).collect();
    for secret in [places::HEADER, places::FILE, places::MINTED, places::ENTRY] {
        assert!(headers.iter().any(|value| value.contains(secret)), "no server got {secret}");
    }
    let sent = canary.collector.posts();
    let is_sent = |post: &super::played::Arrived| {
        post.header("authorization").is_some_and(|value| value.contains(places::COLLECTOR))
    };
    assert!(!sent.is_empty() && sent.iter().all(is_sent), "the collector's own header");
    let token = canary.house.gateway.token.clone();
    let mut wrong = Vec::new();
    for secret in ALL.into_iter().chain([token.as_str()]) {
        let hits = canary.found.hits(secret);
        if !hits.is_empty() {
            // The first, the last and one in between are enough to read.
            let shown = [0, hits.len() / 2, hits.len() - 1].map(|at| hits[at].as_str());
            wrong.push(format!("{} hits of {secret}:\n  {}", hits.len(), shown.join("\n  ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let log = canary.house.gateway.log();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "everything is logged that can be");
    assert!(log.contains("with [redacted]"), "the hook has said it");
}

/// That the search finds what is there: a secret that nobody could know, where the configuration says that arguments
/// are kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_search_finds_what_is_kept() {
    let house = House::with(setup(), "capture = \"full\"").await;
    // Whoever is dropped is killed, and has written nothing yet.
    let mut clients = Vec::new();
    for front in [Front::Wrap, Front::Serve] {
        let client = house.connect(front, "pipe", Era::Legacy).await;
        let meta = mine("s", &format!("{front:?}"));
        call(&client, "fine", meta, json!({ "text": ARGUMENT })).await.expect("answered");
        clients.push(client);
    }
    house.ended(&["--session", "s"], 2).await;
    let mut found = Found::default();
    found.ledger(&house);
    let hits = found.hits(ARGUMENT);
    for place in ["ledger.db", "\"jsonl\""] {
        assert!(hits.iter().any(|hit| hit.contains(place)), "{place}: {hits:?}");
    }
    assert!(!hits.iter().any(|hit| hit.contains("\"calls\"")), "`calls` shows no arguments: {hits:?}");
}
