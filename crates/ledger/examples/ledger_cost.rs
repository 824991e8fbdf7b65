//! What the ledger costs: `cargo run --release -p ledger --example ledger_cost [CALLS]`. One figure a line: name, tab, value.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::{Begin, End, Filter, Ledger, Options, Outcome, Place, Retention, Seal, Signature};

struct NoKey;

impl Seal for NoKey {
    fn sign(&self, _: &[u8]) -> Option<Signature> {
        None
    }

    fn verify(&self, _: &[u8], _: &Signature) -> Option<bool> {
        None
    }
}

fn begin(number: u64) -> Box<Begin> {
    let session = format!("ses_{:08}", number % 10_000);
    Box::new(Begin {
        at: 1_700_000_000_000 + number,
        host: Some("opencode".into()),
        thread: Some(session.as_str().into()),
        session: Some(session.into()),
        call: format!("call_{number:012}").into(),
        server: "tracker".into(),
        tool: Some("search".into()),
        method: "tools/call".into(),
        trust: "host",
        source: Some("seal"),
        digest: Some([7; 32]),
        size: 100,
        ..Begin::default()
    })
}

fn end() -> End {
    End { at: 0, outcome: Outcome::Ok, reason: None, target: None, micros: 1000, size: 100, result: None }
}

fn main() -> std::io::Result<()> {
    let calls = std::env::args().nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(1_000_000_u64);
    let directory = tempfile::tempdir()?;
    let place = Place::of(directory.path());
    let failed = |error: ledger::LedgerError| std::io::Error::other(error.to_string());
    let options =
        Options { place: place.clone(), strict: false, retention: Retention::default(), kind: "serve" };
    let ledger = Ledger::open(options, Arc::new(NoKey)).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let begun = Instant::now();
    let mut on_path = Duration::ZERO;
    runtime.block_on(async {
        for number in 0..calls {
            let row = begin(number);
            let now = Instant::now();
            let entry = match ledger.begin_at_once(row) {
                Ok(entry) => {
                    on_path += now.elapsed();
                    entry
                }
                Err(row) => ledger.begin(row).await.map_err(failed)?,
            };
            let now = Instant::now();
            ledger.end(entry, end());
            on_path += now.elapsed();
        }
        std::io::Result::Ok(())
    })?;
    if !ledger.close(Duration::from_mins(10)) {
        return Err(std::io::Error::other("not everything was written"));
    }
    let took = begun.elapsed();
    let connection = place.read().map_err(failed)?;
    let filter = Filter { session: Some("ses_00000042".to_owned()), ..Filter::default() };
    let now = Instant::now();
    let found = ledger::calls(&connection, &filter).map_err(std::io::Error::other)?.len();
    let queried = now.elapsed();
    let mut out = std::io::stdout().lock();
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    let (rows, each) = (2.0 * calls as f64 / took.as_secs_f64(), on_path.as_secs_f64() * 1e6 / calls as f64);
    writeln!(out, "rows a second, sustained over {calls} calls\t{rows:.0}")?;
    writeln!(out, "on the call's path, µs\t{each:.2}")?;
    writeln!(out, "the {found} calls of a session, ms\t{:.2}", queried.as_secs_f64() * 1e3)
}
