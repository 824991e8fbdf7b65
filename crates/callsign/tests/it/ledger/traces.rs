//! `traceparent` is passed on: from a header into `_meta`, from `_meta` into a header, as it came.

use std::sync::Arc;

use serde_json::{Value, json};
use testkit::client::{Client, Http};

use super::played::Arrived;
use super::rig::{Back, Front, House, Way, at_once, call, mine};

/// The context of a trace that begins somewhere else.
pub(super) fn parent(trace: usize, flags: &str) -> String {
    format!("00-{:032x}-{:016x}-{flags}", 0x000a_11ce_0000 + trace, 0xb0b0 + trace)
}

const STATE: &str = "vendor=value,other=1";
const BAGGAGE: &str = "user=alice";

/// What the server found in `_meta` and in its headers.
fn found(arrived: &Arrived, name: &str) -> (Value, Option<String>) {
    (arrived.meta()[name].clone(), arrived.header(name).map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_in_meta_arrives_there_and_in_the_header() {
    let house = Arc::new(House::open("").await);
    at_once(Way::all().into_iter().enumerate().map(|(number, way)| {
        let house = Arc::clone(&house);
        async move {
            let (client, name) = (house.client(way).await, way.name());
            for flags in ["00", "01"] {
                let mut meta = mine(&name, &way.call(flags));
                meta["traceparent"] = parent(number, flags).into();
                meta["tracestate"] = STATE.into();
                meta["baggage"] = BAGGAGE.into();
                call(&client, "fine", meta, json!({})).await.expect("answered");
                let arrived = &house.played.of(&way.call(flags))[0];
                let wanted = [
                    ("traceparent", parent(number, flags)),
                    ("tracestate", STATE.into()),
                    ("baggage", BAGGAGE.into()),
                ];
                for (key, wanted) in wanted {
                    let (in_meta, in_header) = found(arrived, key);
                    assert_eq!(in_meta, wanted, "{name}: {key}");
                    if way.back != Back::Pipe {
                        assert_eq!(
                            in_header.as_deref(),
                            Some(&*wanted),
                            "{name}: {key}: {:?}",
                            arrived.headers
                        );
                    }
                }
                house.ended(&["--call", &way.call(flags)], 1).await;
                let row = house.one(&way.call(flags));
                let trace = row["trace"].as_str().unwrap_or_default();
                assert!(trace.contains(&parent(number, flags)[3..35]), "{name}: the row knows it: {row}");
            }
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_in_a_header_arrives_where_the_server_can_see_it() {
    let house = House::open("").await;
    for (number, way) in Way::all().into_iter().enumerate().filter(|(_, way)| way.front == Front::Serve) {
        let name = way.name();
        let http = Http::new(&house.gateway.mcp(way.back.server()), Some(&house.gateway.token))
            .with_header("traceparent", &parent(number, "01"))
            .with_header("tracestate", STATE)
            .with_header("baggage", BAGGAGE);
        let client = Client::over(http, way.era);
        client.connect().await.expect("connected");
        call(&client, "fine", mine(&name, &name), json!({})).await.expect("answered");
        let arrived = &house.played.of(&name)[0];
        let wanted = [
            ("traceparent", parent(number, "01")),
            ("tracestate", STATE.into()),
            ("baggage", BAGGAGE.into()),
        ];
        for (key, wanted) in wanted {
            let (in_meta, in_header) = found(arrived, key);
            match way.back {
                Back::Pipe => assert_eq!(in_meta, wanted, "{name}: {key}"),
                Back::Json | Back::Events | Back::Old => {
                    assert_eq!(in_header.as_deref(), Some(&*wanted), "{name}: {key}: {:?}", arrived.headers);
                }
            }
        }
    }
}

/// Nobody is traced who does not ask for it, and what is no context is not made one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_up() {
    let house = House::open("").await;
    for way in Way::all() {
        let (client, name) = (house.client(way).await, way.name());
        call(&client, "fine", mine(&name, &name), json!({})).await.expect("answered");
        let arrived = &house.played.of(&name)[0];
        assert_eq!(found(arrived, "traceparent"), (Value::Null, None), "{name}");
    }
    let http = Http::new(&house.gateway.mcp("pipe"), Some(&house.gateway.token))
        .with_header("traceparent", "nonsense");
    let client = Client::over(http, testkit::client::Era::Modern);
    call(&client, "fine", mine("s", "nonsense"), json!({})).await.expect("answered");
    assert_eq!(house.played.of("nonsense")[0].meta()["traceparent"], Value::Null);
}
