//! The log is everybody's disk.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use supervise::Spawner;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::rig::{Rig, call, call_with, guest};

/// What would stand in the log.
#[derive(Default, Clone)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _infallible = write!(self.0, "{field}={value:?} ");
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

pub(crate) async fn a_box_does_not_write_the_log_as_fast_as_it_likes(spawner: Arc<Spawner>) {
    let lines = Lines::default();
    let _subscribed = tracing::subscriber::set_default(lines.clone());
    let rig = Rig::new(spawner, 10);
    let (noisy, other) = (guest("log_a"), guest("log_b"));
    // Hundreds of names of ours, and among them a conversation that is another's.
    let many: Vec<Value> = (0..500).map(|_| json!({"__callsign": 1})).collect();
    for _ in 0..40 {
        let forged = call_with("other_thread", "fail", &json!({ "deep": many.clone() }));
        assert_eq!(rig.answer(&noisy, forged).await.status, 400);
    }
    let of = |session: &str| -> Vec<String> {
        lines.0.lock().unwrap().iter().filter(|line| line.contains(session)).cloned().collect()
    };
    let said = of("log_a");
    // Twenty of each kind, and once that there are more.
    let forged = said.iter().filter(|line| line.contains("forged=")).count();
    let failed = said.iter().filter(|line| line.contains("outcome=")).count();
    assert_eq!((forged, failed, said.len()), (20, 20, 42), "{said:#?}");
    let longest = said.iter().map(String::len).max().unwrap_or_default();
    assert!(longest < 1024, "a line of {longest} bytes");
    // Others are heard.
    rig.answer(&other, call("ses_1", "fail")).await;
    assert_eq!(of("log_b").len(), 1);
    // All of it is in the ledger, and what matters is not pushed out by what does not.
    let calls = rig.calls("log_a");
    assert_eq!(calls.len(), 40);
    for call in calls {
        let spoof = call.spoof.unwrap_or_default();
        assert!(spoof.contains("another session's") && spoof.split(',').count() == 16, "{spoof}");
    }
    rig.close().await;
}
