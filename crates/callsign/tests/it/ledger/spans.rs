//! `[telemetry]`: one span a call, below its caller's, and above its server's.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use testkit::harness::wait_until;
use tokio::io::{AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::played::{Arrived, request};
use super::rig::{Back, House, Way, at_once, call, mine};
use super::traces::parent;
use crate::support::{SOON, setup};

/// A collector of spans. It ends with this value.
pub(super) struct Collector {
    address: SocketAddr,
    posts: Arc<Mutex<Vec<Arrived>>>,
    _accepting: JoinSet<()>,
}

impl Collector {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (posts, mut accepting) = (Arc::new(Mutex::new(Vec::new())), JoinSet::new());
        accepting.spawn(accept(listener, Arc::clone(&posts)));
        Self { address, posts, _accepting: accepting }
    }

    /// What goes into the configuration; further keys can follow.
    pub(super) fn toml(&self) -> String {
        format!("[telemetry]\notlp = \"http://{}\"\n", self.address)
    }

    pub(super) fn posts(&self) -> Vec<Arrived> {
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn spans(&self) -> Vec<Value> {
        let mut spans = Vec::new();
        for post in self.posts() {
            assert_eq!((post.verb.as_str(), post.path.as_str()), ("POST", "/v1/traces"));
            assert_eq!(post.header("content-type"), Some("application/json"));
            for resource in post.message()["resourceSpans"].as_array().expect("resources") {
                let service = attribute(&resource["resource"], "service.name");
                assert_eq!(service.as_deref(), Some("callsign"), "{resource}");
                for scope in resource["scopeSpans"].as_array().expect("scopes") {
                    spans.extend(scope["spans"].as_array().expect("spans").iter().cloned());
                }
            }
        }
        spans
    }

    /// The spans of this trace, once there is one.
    async fn of(&self, trace: &str) -> Vec<Value> {
        let of = || self.spans().into_iter().filter(|span| span["traceId"] == trace).collect::<Vec<_>>();
        wait_until(SOON, || !of().is_empty()).await;
        of()
    }
}

async fn accept(listener: TcpListener, posts: Arc<Mutex<Vec<Arrived>>>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let posts = Arc::clone(&posts);
        connections.spawn(async move {
            let mut stream = BufReader::new(stream);
            while let Some(post) = request(&mut stream).await {
                posts.lock().unwrap_or_else(PoisonError::into_inner).push(post);
                let answer =
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
                if stream.get_mut().write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// The value of an attribute, as text.
fn attribute(of: &Value, key: &str) -> Option<String> {
    let all = of["attributes"].as_array()?;
    let value = &all.iter().find(|attribute| attribute["key"] == key)?["value"];
    let text = value.get("stringValue").or(value.get("intValue"))?;
    text.as_str().map(str::to_owned).or(Some(text.to_string()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_is_one_span_between_its_callers_and_its_servers() {
    let collector = Arc::new(Collector::start().await);
    let house = Arc::new(House::with(setup().toml(&collector.toml()), "").await);
    at_once(Way::all().into_iter().enumerate().map(|(number, way)| {
        let (house, collector) = (Arc::clone(&house), Arc::clone(&collector));
        async move { between(&house, &collector, (number, way)).await }
    }))
    .await;
    // Calls of which nobody wants a span, and those that only look around, have none.
    let spans = collector.spans();
    assert_eq!(
        spans.len(),
        2 * Way::all().len(),
        "{:?}",
        spans.iter().map(|span| &span["name"]).collect::<Vec<_>>()
    );
    house.verifies();
}

async fn between(house: &House, collector: &Collector, (number, way): (usize, Way)) {
    let (client, name) = (house.client(way).await, way.name());
    client.request("tools/list", json!({})).await.expect("a list");
    for (tool, flags, number) in
        [("fine", "00", number + 100), ("fine", "01", number), ("tool-error", "01", number + 200)]
    {
        let mut meta = mine(&name, &way.call(&number.to_string()));
        meta["traceparent"] = parent(number, flags).into();
        drop(call(&client, tool, meta, json!({})).await);
        let arrived = &house.played.of(&way.call(&number.to_string()))[0];
        let passed = arrived.meta()["traceparent"].as_str().unwrap_or_default().to_owned();
        assert_eq!(
            (passed.len(), &passed[..36]),
            (55, &parent(number, flags)[..36]),
            "{name}: the same trace"
        );
        assert_eq!(&passed[53..], flags, "{name}: whether it is wanted is not ours to decide");
        if way.back != Back::Pipe {
            assert_eq!(arrived.header("traceparent"), Some(&*passed), "{name}: both say the same");
        }
        if flags == "00" {
            continue;
        }
        let spans = collector.of(&parent(number, flags)[3..35]).await;
        assert_eq!(spans.len(), 1, "{name}: one: {spans:?}");
        let span = &spans[0];
        assert_eq!(span["parentSpanId"], parent(number, flags)[36..52], "{name}: below the caller's: {span}");
        assert_eq!(span["spanId"], passed[36..52], "{name}: above the server's: {span}");
        assert_eq!(span["name"], format!("tools/call {tool}"), "{name}");
        let outcome = if tool == "fine" { "ok" } else { "tool_error" };
        for (key, wanted) in [
            ("mcp.method.name", "tools/call"),
            ("gen_ai.tool.name", tool),
            ("gen_ai.operation.name", "execute_tool"),
            ("callsign.session", &name),
            ("callsign.server", way.back.server()),
            ("callsign.call", &way.call(&number.to_string())),
            ("callsign.trust", "host"),
            ("callsign.outcome", outcome),
        ] {
            assert_eq!(attribute(span, key).as_deref(), Some(wanted), "{name}: {key}: {span}");
        }
        let is_error = span["status"]["code"] == 2;
        assert_eq!(is_error, tool == "tool-error", "{name}: {span}");
        assert_eq!(attribute(span, "error.type").is_some(), is_error, "{name}: {span}");
        let nanos = |key: &str| span[key].as_str().and_then(|text| text.parse::<u64>().ok()).expect("a time");
        let took = nanos("endTimeUnixNano") - nanos("startTimeUnixNano");
        assert!(took > 0 && took < 10_000_000_000, "{name}: {span}");
        house.ended(&["--call", &way.call(&number.to_string())], 1).await;
        let row = house.one(&way.call(&number.to_string()));
        assert!(row["trace"].as_str().is_some_and(|trace| trace.contains(&passed[36..52])), "{name}: {row}");
    }
}

/// A trace begins here where none came, and spans of a `wrap` that ends are sent before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_that_begins_here_is_sent_before_the_end() {
    let collector = Collector::start().await;
    let house = House::with(setup().toml(&collector.toml()), "").await;
    let client = house.wrap("pipe", testkit::client::Era::Legacy, &[]);
    client.connect().await.expect("connected");
    call(&client, "fine", mine("s", "c"), json!({})).await.expect("answered");
    assert_eq!(client.end().await, Some(0), "{}", client.stderr());
    let spans = collector.spans();
    assert_eq!(spans.len(), 1, "sent when the process is gone: {spans:?}");
    let empty = |value: &Value| value.as_str().is_none_or(str::is_empty);
    assert!(empty(&spans[0]["parentSpanId"]), "{}", spans[0]);
    let passed = house.played.of("c")[0].meta()["traceparent"].clone();
    let told = format!(
        "00-{}-{}-01",
        spans[0]["traceId"].as_str().unwrap_or_default(),
        spans[0]["spanId"].as_str().unwrap_or_default()
    );
    assert_eq!(passed, told);
}

/// A collector that is not there is no matter of the calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_not_there_stops_nobody() {
    let setup = setup().toml("[telemetry]\notlp = \"http://127.0.0.1:9\"");
    let house = Arc::new(House::with(setup, "").await);
    at_once(Way::all().into_iter().map(|way| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            call(&client, "fine", mine(&name, &name), json!({})).await.expect("answered");
            let begun = std::time::Instant::now();
            client.end().await;
            assert!(begun.elapsed() < SOON, "{name}: {:?}", begun.elapsed());
        }
    }))
    .await;
    house.verifies();
}
