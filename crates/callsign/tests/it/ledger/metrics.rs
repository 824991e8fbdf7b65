//! `/metrics`: what is counted is what is in the rows, and no more series come with more callers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::json;
use testkit::client::{Era, Http};
use testkit::harness::wait_until;

use super::rig::{Back, Front, House, at_once, call, mine, with_echo};
use crate::support::{SOON, setup};

/// Series with their values, and the kinds of their families.
#[derive(Debug, Default)]
struct Metrics {
    series: BTreeMap<String, f64>,
    kinds: BTreeMap<String, String>,
}

impl Metrics {
    /// Reads the text form, and does not bear with mistakes in it.
    fn parse(text: &str) -> Self {
        let mut metrics = Self::default();
        assert!(text.ends_with('\n'), "the last line ends too");
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (what, name) = (words.next().expect("a word"), words.next().expect("a name"));
                assert!(matches!(what, "HELP" | "TYPE"), "{line}");
                if what == "TYPE" {
                    let kind = words.next().expect("a kind").to_owned();
                    assert!(matches!(kind.as_str(), "counter" | "gauge" | "histogram"), "{line}");
                    assert!(metrics.kinds.insert(name.to_owned(), kind).is_none(), "twice: {line}");
                }
                continue;
            }
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let name = series.split('{').next().expect("a name");
            assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
            let ends = ["_bucket", "_sum", "_count"];
            let family = ends
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|name| metrics.kinds.contains_key(*name)));
            assert!(metrics.kinds.contains_key(family.unwrap_or(name)), "of no family: {line}");
            let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            assert!(metrics.series.insert(series.to_owned(), value).is_none(), "twice: {line}");
        }
        metrics
    }

    /// The sum of the series whose text has all of this.
    fn sum(&self, words: &[&str]) -> f64 {
        let all = self.series.iter().filter(|(series, _)| words.iter().all(|word| series.contains(word)));
        all.map(|(_, value)| value).sum()
    }

    fn names(&self) -> BTreeSet<&str> {
        self.series.keys().map(String::as_str).collect()
    }
}

async fn scrape(house: &House) -> Metrics {
    let answer = Http::new(&house.gateway.at("/metrics"), Some(&house.gateway.token)).get(&[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(kind.starts_with("text/plain") && kind.contains("version=0.0.4"), "{kind}");
    Metrics::parse(&answer.text())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn they_are_for_who_shows_a_token() {
    let house = House::open("").await;
    for token in [None, Some("wrong")] {
        let answer = Http::new(&house.gateway.at("/metrics"), token).get(&[]).await;
        assert_eq!(answer.status, 401, "{token:?}");
        assert!(!answer.text().contains("callsign_calls"), "{}", answer.text());
    }
    assert!(scrape(&house).await.kinds.contains_key("callsign_calls_total"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_equal_the_rows() {
    let house = House::with(with_echo(setup(), ""), "require = \"host\"").await;
    let mut count = 0_usize;
    for back in Back::ALL {
        let client = house.connect(Front::Serve, back.server(), Era::Legacy).await;
        for (tool, meta) in [
            ("fine", mine("s", "a")),
            ("fine", mine("s", "b")),
            ("tool-error", mine("s", "c")),
            ("rpc-error", mine("s", "d")),
            ("fine", json!({})),
        ] {
            drop(call(&client, tool, meta, json!({})).await);
            count += 1;
        }
    }
    let waiting = house.connect(Front::Serve, "pipe", Era::Legacy).await;
    let params = json!({ "name": "silent", "arguments": {}, "_meta": mine("s", "waiting") });
    let waits = waiting.start("tools/call", params).await;
    assert!(wait_until(SOON, || !house.played.of("waiting").is_empty()).await);
    let rows = house.until(&[], |rows| rows.len() == count + 1).await;
    assert_eq!(rows.len(), count + 1, "{rows:?}");
    let metrics = scrape(&house).await;
    for back in Back::ALL {
        for outcome in ["ok", "tool_error", "refused", "timeout", "canceled", "failed", "unknown"] {
            let is = |row: &&serde_json::Value| row["server"] == back.server() && row["outcome"] == outcome;
            let in_rows = rows.iter().filter(is).count();
            let words = [
                "callsign_calls_total{",
                &format!("server=\"{}\"", back.server()),
                &format!("outcome=\"{outcome}\""),
            ];
            let counted = metrics.sum(&words);
            assert!(
                (counted - u32::try_from(in_rows).map_or(0.0, f64::from)).abs() < 0.5,
                "{back:?}: {outcome}: {counted}, {in_rows} rows"
            );
        }
    }
    let is = |sum: f64, number: usize, what: &str| {
        assert!(
            (sum - u32::try_from(number).map_or(0.0, f64::from)).abs() < 0.5,
            "{what}: {sum}, not {number}"
        );
    };
    is(metrics.sum(&["callsign_calls_total{"]), count, "calls that ended");
    is(metrics.sum(&["callsign_calls_under_way{"]), 1, "calls under way");
    is(metrics.sum(&["callsign_call_duration_seconds_count{"]), count, "durations");
    assert!(metrics.sum(&["callsign_children{", "server=\"pipe\""]) >= 1.0, "{metrics:?}");
    for (kind, words) in [
        ("counter", "callsign_calls_total"),
        ("histogram", "callsign_call_duration_seconds"),
        ("histogram", "callsign_hook_duration_seconds"),
        ("gauge", "callsign_ledger_queued_rows"),
    ] {
        assert_eq!(metrics.kinds.get(words).map(String::as_str), Some(kind), "{words}");
    }
    drop(waits);
}

/// Buckets of a histogram: each has what the one before has, and the last one has all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buckets_are_cumulative() {
    let house = House::open("").await;
    let client = house.connect(Front::Serve, "pipe", Era::Legacy).await;
    for number in 0..5 {
        call(&client, "fine", mine("s", &number.to_string()), json!({})).await.expect("answered");
    }
    let metrics = scrape(&house).await;
    let mut buckets: Vec<(f64, f64)> = Vec::new();
    for (series, value) in &metrics.series {
        if series.starts_with("callsign_call_duration_seconds_bucket{") && series.contains("server=\"pipe\"")
        {
            let bound =
                series.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a bound");
            buckets.push((bound.replace("+Inf", "inf").parse().expect("a number"), *value));
        }
    }
    buckets.sort_by(|one, two| one.0.total_cmp(&two.0));
    assert!(buckets.len() > 5 && buckets.is_sorted_by(|one, two| one.1 <= two.1), "{buckets:?}");
    let last = buckets.last().expect("some");
    assert!(last.0.is_infinite() && (last.1 - 5.0).abs() < 0.5, "{buckets:?}");
}

const CALLERS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_tools_and_sessions_make_no_new_series() {
    let house = Arc::new(House::with(with_echo(setup(), "isolation = \"shared\""), "").await);
    let warm = house.connect(Front::Serve, "echo", Era::Modern).await;
    call(&warm, "echo", mine("warm", "warm"), json!({ "text": "x" })).await.expect("answered");
    drop(call(&warm, "no-such", mine("warm", "warm"), json!({})).await);
    let before = scrape(&house).await;
    at_once((0..16).map(|part| {
        let house = Arc::clone(&house);
        async move {
            let client = house.connect(Front::Serve, "echo", Era::Modern).await;
            for number in (part..CALLERS).step_by(16) {
                let meta = mine(&format!("session-{number}"), &format!("call-{number}"));
                // There is no such tool; what matters is its name.
                drop(call(&client, &format!("tool-{number}"), meta, json!({})).await);
            }
        }
    }))
    .await;
    let after = scrape(&house).await;
    assert_eq!(before.names(), after.names());
    let more = after.sum(&["callsign_calls_total{"]) - before.sum(&["callsign_calls_total{"]);
    assert!((more - 1000.0).abs() < 0.5, "{more}");
}
