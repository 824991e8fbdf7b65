//! `callsign ledger verify`: whether the ledger is what was written.

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use identity::notary::{Notary, NotaryError};
use ledger::{Anchor, Finding, LedgerError, Place, Seal, Signature};
use serde::Serialize;

use crate::app::Global;
use crate::commands::calls::{self, json, plain, rfc3339};
use crate::exit::{Code, Failure};
use crate::notary::Sealing;

const EXAMPLES: &str = "\
Examples:
  callsign ledger verify                       prints a head: keep it somewhere else
  callsign ledger verify --head 812:9f86d0…    also finds an older copy that was put back
  callsign ledger verify --file copy.db --key ledger.pub

Exit code 0: it is what was written. 7: it is not, or there is no key to tell. 4: it cannot be read.
What the owner of the key could still do: docs/ledger.md.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct VerifyArgs {
    /// A head that was printed before, and kept elsewhere.
    #[arg(long, value_name = "VALUE", value_parser = parse_head)]
    head: Option<Anchor>,
    /// The public key (ledger.pub), in place of that of the state directory.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// The ledger, in place of that of the state directory.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

fn parse_head(text: &str) -> Result<Anchor, String> {
    let expected =
        "a head is a number, a colon and 64 hexadecimal digits, as `callsign ledger verify` prints it";
    Anchor::parse(text).ok_or_else(|| expected.to_owned())
}

/// What was looked at, and what was found.
#[derive(Debug, Serialize)]
struct Verdict<'a> {
    ok: bool,
    file: &'a Path,
    rows: u64,
    batches: u64,
    writers: u64,
    /// When the first batch was written, and the last.
    from: Option<String>,
    to: Option<String>,
    /// Which key it was checked with.
    key: Option<&'a str>,
    head: Option<String>,
    findings: Vec<Found>,
    /// Batches and rows that are wrong too, and not listed.
    more: u64,
    unchecked: Vec<String>,
}

/// Something that is not as it was written, the first first.
#[derive(Debug, Serialize)]
struct Found {
    batch: Option<i64>,
    writer: Option<i64>,
    seq: Option<i64>,
    what: String,
    #[serde(skip)]
    shown: String,
}

impl Found {
    fn of(finding: &Finding) -> Self {
        let (writer, seq) = finding.row.unzip();
        Self { batch: finding.batch, writer, seq, what: finding.what.clone(), shown: finding.to_string() }
    }

    fn bare(what: String) -> Self {
        Self { batch: None, writer: None, seq: None, shown: what.clone(), what }
    }
}

pub(super) fn run(global: &Global, arguments: &VerifyArgs) -> anyhow::Result<()> {
    let place = calls::place(global)?;
    let key = match &arguments.key {
        Some(file) => Some(Notary::public(file).map_err(|error| unusable(error, Code::Usage))?),
        None => state_key(&place)?,
    };
    let place = arguments.file.as_ref().map_or(place, |file| Place { file: file.clone(), ..Place::of(file) });
    let key = key.map(Sealing);
    let verdict = examine(&place, key.as_ref(), arguments.head.as_ref())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let printed = if arguments.json {
        json(&verdict).map_err(io::Error::from).and_then(|line| writeln!(out, "{line}"))
    } else {
        print(&verdict, &mut out)
    };
    calls::unless_closed(printed.and_then(|()| out.flush()).map_err(Into::into))?;
    if verdict.ok {
        return Ok(());
    }
    let why = verdict.findings.first().map_or("there is no key to tell", |found| &found.shown);
    let failure = Failure::new(Code::Unverified, format!("the ledger does not verify: {}", plain(why)));
    let hint =
        key.is_none().then_some("name the public key with --key: it is ledger.pub of the state directory");
    Err(hint.into_iter().fold(failure, Failure::with_hint).into())
}

/// The key beside the ledger of the state directory. None is made: a new one would verify nothing.
fn state_key(place: &Place) -> anyhow::Result<Option<Notary>> {
    let state = place.file.parent().unwrap_or(Path::new("."));
    Ok(Notary::find(state).map_err(|error| unusable(error, Code::State))?)
}

fn unusable(error: NotaryError, code: Code) -> Failure {
    Failure::new(code, format!("could not use the key: {:#}", anyhow::Error::new(error)))
}

fn examine<'a>(
    place: &'a Place,
    key: Option<&'a Sealing>,
    head: Option<&Anchor>,
) -> Result<Verdict<'a>, LedgerError> {
    let mut verdict = Verdict {
        ok: false,
        file: &place.file,
        rows: 0,
        batches: 0,
        writers: 0,
        from: None,
        to: None,
        key: key.map(|key| key.0.kid()),
        head: None,
        findings: Vec::new(),
        more: 0,
        unchecked: Vec::new(),
    };
    let looked = place.read().and_then(|connection| {
        let seal: &dyn Seal = key.map_or(&Nobody, |key| key);
        ledger::verify(&connection, seal, head).map_err(|error| ledger::unreadable(&connection, &error))
    });
    match looked {
        Ok(report) => {
            let moment = |at: Option<i64>| at.and_then(|at| u64::try_from(at).ok()).map(rfc3339);
            (verdict.rows, verdict.batches, verdict.writers) = (report.rows, report.batches, report.writers);
            (verdict.from, verdict.to) = (moment(report.from), moment(report.to));
            verdict.findings = report.findings.iter().map(Found::of).collect();
            verdict.more = report.more;
            verdict.unchecked = report.unchecked;
            if key.is_none() && report.head.is_some() {
                verdict.unchecked.push("who signed it: there is no key".to_owned());
            }
            verdict.ok = verdict.findings.is_empty() && (key.is_some() || report.head.is_none());
            verdict.head = report.head.map(|head| head.to_string());
        }
        // Nobody can say what was in it, and it is not what was written.
        Err(LedgerError::Damaged { reason, .. }) => {
            verdict.findings.push(Found::bare(format!("the file is damaged: {reason}")));
        }
        Err(error) => return Err(error),
    }
    if head.is_none() {
        let what = "whether this is an older copy: no --head was given; keep the head that is printed here \
                    somewhere else, and give it next time";
        verdict.unchecked.push(what.to_owned());
    }
    Ok(verdict)
}

/// Where there is no key, a signature is neither right nor wrong. The verdict says that it was not looked at.
struct Nobody;

impl Seal for Nobody {
    fn has_key(&self) -> bool {
        false
    }

    fn sign(&self, _: &[u8]) -> Option<Signature> {
        None
    }

    fn verify(&self, _: &[u8], _: &Signature) -> Option<bool> {
        Some(true)
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn print(verdict: &Verdict<'_>, out: &mut impl Write) -> io::Result<()> {
    let Verdict { ok, file, rows, batches, writers, from, to, key, head, findings, more, unchecked } =
        verdict;
    writeln!(out, "ledger   {}", plain(&file.display().to_string()))?;
    let (rows, batches) = (counted(*rows, "row", "rows"), counted(*batches, "batch", "batches"));
    writeln!(out, "checked  {rows} in {batches}, by {}", counted(*writers, "writer", "writers"))?;
    if let (Some(from), Some(to)) = (from, to) {
        writeln!(out, "written  from {from} to {to}")?;
    }
    writeln!(out, "key      {}", key.unwrap_or("none"))?;
    if let Some(head) = head {
        writeln!(out, "head     {head}")?;
    }
    for what in unchecked {
        writeln!(out, "not checked: {}", plain(what))?;
    }
    for found in findings {
        writeln!(out, "wrong: {}", plain(&found.shown))?;
    }
    if *more > 0 {
        writeln!(out, "wrong: {more} more")?;
    }
    if *ok { writeln!(out, "the ledger is what was written") } else { Ok(()) }
}
