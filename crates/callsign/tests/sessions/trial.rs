//! What the long trials share: their size, their dice, a client that does not give up.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::llm::provider::Provider;
use testkit::llm::script;

use crate::rig::{Client, Rig};

/// How long a daemon that was killed may be away.
const AWAY: Duration = Duration::from_secs(20);

pub(crate) fn full() -> bool {
    std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1")
}

/// Chance that can be had again: `CALLSIGN_SEED`, else a new one. It is printed.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn roll() -> Self {
        let given = std::env::var_os("CALLSIGN_SEED");
        let given = given
            .map(|seed| seed.to_str().and_then(|seed| seed.parse().ok()).expect("CALLSIGN_SEED is a number"));
        let seed = given.unwrap_or_else(|| {
            let mut random = [0; 4];
            getrandom::fill(&mut random).expect("random bytes");
            u64::from(u32::from_le_bytes(random))
        });
        println!("CALLSIGN_SEED={seed}");
        Self(seed)
    }

    /// Others, for somebody else to throw.
    pub(crate) fn more(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

/// A client that goes on asking while the daemon is away. Its sessions have their model behind a provider of the test.
#[derive(Debug, Clone)]
pub(crate) struct Patient(Client);

impl Patient {
    pub(crate) fn new(rig: &Rig, provider: &Provider) -> Self {
        Self::with(rig, provider, &[])
    }

    /// With other settings besides.
    pub(crate) fn with(rig: &Rig, provider: &Provider, more: &[(&str, &str)]) -> Self {
        let mut variables = rig.variables();
        variables.insert("MCP_OPENCODE_BASE_URL".to_owned(), format!("http://{}/v1", provider.address()));
        variables.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        Self(rig.client_with(&variables))
    }

    /// Calls that may be made twice: the answer to the first may have been lost with the daemon.
    #[track_caller]
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Value {
        let end = Instant::now() + AWAY;
        loop {
            let error = match self.0.try_call(tool, arguments.clone()) {
                Ok(answer) => return answer,
                Err(error) => error,
            };
            let is_away = error.get("io").is_some() || error.get("status").is_some();
            assert!(is_away && Instant::now() < end, "{tool} {arguments}: {error}");
            sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    pub(crate) fn create(&self, key: &str) -> String {
        text(&self.call("create_or_reuse_session", &json!({ "reuse_key": key }))["session"]["id"])
    }

    /// The run's id. The key is its own in its session: whoever does not hear the answer may submit it again.
    #[track_caller]
    pub(crate) fn submit(&self, session: &str, key: &str, steps: &Value) -> String {
        let task = script(steps);
        let wanted = json!({ "session_id": session, "task": task, "idempotency_key": key });
        text(&self.call("submit_task", &wanted)["run_id"])
    }

    /// The run as it is, or as it is once it has ended or so many seconds are over.
    #[track_caller]
    pub(crate) fn status(&self, session: &str, run: &str, wait: u64) -> Value {
        let wanted = json!({ "session_id": session, "run_id": run, "wait_seconds": wait });
        self.call("get_status", &wanted)["run"].clone()
    }

    #[track_caller]
    pub(crate) fn ended(&self, session: &str, run: &str, within: Duration) -> Value {
        let end = Instant::now() + within;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let run = self.status(session, run, left.as_secs().min(10));
            if is_ended(&run) {
                return run;
            }
            assert!(Instant::now() < end, "it does not end within {within:?}: {run}");
        }
    }

    #[track_caller]
    pub(crate) fn cancel(&self, run: &str) -> Value {
        self.call("cancel_run", &json!({ "run_id": run }))["run"].clone()
    }

    /// Every live session with its status.
    #[track_caller]
    pub(crate) fn all_sessions(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut after = Value::Null;
        loop {
            let mut wanted = json!({ "limit": 100 });
            if !after.is_null() {
                wanted["after"] = after;
            }
            let page = self.call("list_sessions", &wanted);
            for session in page["sessions"].as_array().expect("sessions") {
                all.insert(text(&session["id"]), text(&session["status"]));
            }
            after = page["next"].clone();
            if after.is_null() {
                return all;
            }
        }
    }
}

#[track_caller]
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

pub(crate) fn is_ended(run: &Value) -> bool {
    matches!(run["status"].as_str(), Some("completed" | "failed" | "canceled"))
}
