//! Whether the ledger is what was written: every row, every batch, the chain and its signed head, and the file itself.
//!
//! Whatever numbers stand in the file are somebody's claims: they are counted with in a wider type.

mod sound;

use std::collections::HashMap;
use std::fmt;

use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use crate::batch::{Batch, Head, root, row_mark};
use crate::chain::{Hash, MARK};
use crate::file::{CALL, END};
use crate::seal::{Seal, Signature};

/// Batches and rows that are listed. One is enough to know; a few help to see what happened.
const MOST: usize = 20;

/// What was looked at, and what was found.
#[derive(Debug, Default)]
pub struct Report {
    pub batches: u64,
    pub rows: u64,
    pub writers: u64,
    /// When the first batch was written, and the last: Unix milliseconds.
    pub from: Option<i64>,
    pub to: Option<i64>,
    /// What is wrong: batches and rows, the first first; then what is wrong with the whole.
    pub findings: Vec<Finding>,
    /// Batches and rows that are not listed any more.
    pub more: u64,
    /// What could not be looked at, in sentences.
    pub unchecked: Vec<String>,
    /// The end of the chain: to be kept somewhere else, and compared later.
    pub head: Option<Anchor>,
}

/// A place of the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    pub batch: i64,
    pub chain: Hash,
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.batch)?;
        self.chain.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Anchor {
    pub fn parse(text: &str) -> Option<Self> {
        let (batch, chain) = text.trim().split_once(':')?;
        let mut bytes = [0; 32];
        if chain.len() != 64 || !chain.is_ascii() {
            return None;
        }
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&chain[2 * at..2 * at + 2], 16).ok()?;
        }
        Some(Self { batch: batch.parse().ok()?, chain: bytes })
    }
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The batch it is in, if it is in one.
    pub batch: Option<i64>,
    /// Writer and number of the row, if it is one.
    pub row: Option<(i64, i64)>,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.batch, self.row) {
            (Some(batch), Some((writer, seq))) => write!(f, "batch {batch}, row {seq} of writer {writer}: ")?,
            (None, Some((writer, seq))) => write!(f, "row {seq} of writer {writer}: ")?,
            (Some(batch), None) => write!(f, "batch {batch}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.what)
    }
}

/// Verifies everything that is there. `known`: an end of the chain that was seen before.
pub fn verify(connection: &Connection, seal: &dyn Seal, known: Option<&Anchor>) -> rusqlite::Result<Report> {
    // One view of the file, whoever writes meanwhile.
    let view = connection.unchecked_transaction()?;
    check(&view, seal, known)
}

/// The same in a view that the caller has.
pub(crate) fn check(
    connection: &Connection,
    seal: &dyn Seal,
    known: Option<&Anchor>,
) -> rusqlite::Result<Report> {
    let mut checking =
        Checking { connection, report: Report::default(), whole: Vec::new(), ends: HashMap::new() };
    if let Err(error) = checking.everything(seal, known) {
        if !sound::is_damage(&error) {
            return Err(error);
        }
        checking.find(None, None, format!("the file is damaged, and not all of it could be read: {error}"));
    }
    let Checking { mut report, whole, ends, .. } = checking;
    report.findings.extend(whole);
    report.writers = ends.len() as u64;
    Ok(report)
}

struct Checking<'a> {
    connection: &'a Connection,
    report: Report,
    /// What is in no batch. It is never cut off.
    whole: Vec<Finding>,
    /// By writer, the last row that is in a batch.
    ends: HashMap<i64, i64>,
}

impl Checking<'_> {
    fn everything(&mut self, seal: &dyn Seal, known: Option<&Anchor>) -> rusqlite::Result<()> {
        self.head(seal)?;
        if let Some(known) = known {
            self.known(known)?;
        }
        for what in sound::findings(self.connection)? {
            self.find(None, None, what);
        }
        self.batches()?;
        self.strays()
    }

    fn find(&mut self, batch: Option<i64>, row: Option<(i64, i64)>, what: impl Into<String>) {
        let finding = Finding { batch, row, what: what.into() };
        if batch.is_none() {
            self.whole.push(finding);
        } else if self.report.findings.len() < MOST {
            self.report.findings.push(finding);
        } else {
            self.report.more += 1;
        }
    }

    /// Batches and rows that are wrong.
    fn found(&self) -> u64 {
        self.report.findings.len() as u64 + self.report.more
    }

    fn head(&mut self, seal: &dyn Seal) -> rusqlite::Result<()> {
        let read = Head::read(self.connection);
        let Ok(Some(head)) = read else {
            let batches: i64 =
                self.connection.query_row("SELECT count(*) FROM batches", [], |row| row.get(0))?;
            if batches > 0 || read.is_err() {
                self.find(None, None, "the head is missing or cannot be read");
            }
            return Ok(());
        };
        let signature = self.connection.query_row("SELECT kid, signature FROM head", [], |row| {
            Ok((row.get::<_, String>(0).ok(), row.get::<_, Vec<u8>>(1).ok()))
        })?;
        match signature {
            (Some(kid), Some(bytes)) if kid.is_empty() && bytes.is_empty() => {
                if seal.has_key() {
                    self.find(None, None, "the head is not signed, and there is a key");
                } else {
                    self.report.unchecked.push("the head is not signed: there is no key".to_owned());
                }
            }
            (Some(kid), Some(bytes)) => {
                match seal.verify(&head.message(), &Signature { kid: kid.clone(), bytes }) {
                    Some(true) => {}
                    Some(false) => self.find(None, None, "the head is not what was signed"),
                    None => {
                        self.find(
                            None,
                            None,
                            format!("the head is signed with a key that is not known: {kid}"),
                        );
                    }
                }
            }
            _ => self.find(None, None, "the head cannot be read"),
        }
        if head.pruned > 0 {
            let count = head.pruned;
            self.report.unchecked.push(format!(
                "{count} batches were removed by retention; that they were what was written cannot be checked"
            ));
        }
        self.report.head = Some(Anchor { batch: head.batch, chain: head.chain });
        Ok(())
    }

    fn known(&mut self, known: &Anchor) -> rusqlite::Result<()> {
        let head = Head::read(self.connection)?.unwrap_or_default();
        if known.batch < head.pruned {
            self.report
                .unchecked
                .push("the head that was given is of a batch that retention has removed".to_owned());
            return Ok(());
        }
        let found = if known.batch == head.pruned {
            Some(head.pruned_chain)
        } else {
            let mut statement = self.connection.prepare("SELECT chain FROM batches WHERE id = ?")?;
            let mut rows = statement.query([known.batch])?;
            rows.next()?.and_then(|row| row.get(0).ok())
        };
        if found != Some(known.chain) {
            let batch = known.batch;
            self.find(None, None, format!("batch {batch} was here and is not, or is another: this is an older copy, or it was rewritten"));
        }
        Ok(())
    }

    fn batches(&mut self) -> rusqlite::Result<()> {
        let head = Head::read(self.connection).ok().flatten().unwrap_or_default();
        let (mut before, mut expected) = (head.pruned_chain, i128::from(head.pruned) + 1);
        let connection = self.connection;
        let mut statement =
            connection.prepare("SELECT id, writer, first, last, at, root, chain FROM batches ORDER BY id")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            if i128::from(id) != expected {
                let too_low = i128::from(id) < expected;
                let what = if too_low { "it does not belong here" } else { "batches before it are missing" };
                self.find(Some(id), None, what);
            }
            expected = i128::from(id) + 1;
            let stored: Hash = row.get(6).unwrap_or_default();
            let Ok(batch) = read_batch(row) else {
                self.find(Some(id), None, "it cannot be read");
                before = stored;
                continue;
            };
            let found = self.found();
            self.rows(&batch)?;
            if batch.chain(&before) != stored && self.found() == found {
                self.find(Some(id), None, "what is said of it was changed");
            }
            before = stored;
            self.report.batches += 1;
            self.report.from.get_or_insert(batch.at);
            self.report.to = Some(batch.at);
            let last = self.ends.insert(batch.writer, batch.last);
            if last.is_some_and(|last| last.checked_add(1) != Some(batch.first)) {
                self.find(Some(id), None, "rows of its writer are missing before it");
            }
        }
        if i128::from(head.batch) + 1 != expected || head.chain != before {
            self.find(
                None,
                None,
                "the batches end before the head does, or after it: the end was cut off or added to",
            );
        }
        Ok(())
    }

    /// Every row of a batch, in its order.
    fn rows(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let connection = self.connection;
        let Some(mut mark) = writer_root(connection, batch.writer)? else {
            self.find(Some(batch.id), None, format!("its writer {} is missing", batch.writer));
            return Ok(());
        };
        let mut calls = connection.prepare_cached(&format!(
            "SELECT seq, mark, {CALL} FROM calls WHERE writer = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq"
        ))?;
        let mut ends = connection.prepare_cached(&format!(
            "SELECT seq, mark, {END} FROM ends WHERE writer = ?1 AND seq BETWEEN ?2 AND ?3 ORDER BY seq"
        ))?;
        let range = params![batch.writer, batch.first, batch.last];
        let (mut calls, mut ends) = (calls.query(range)?, ends.query(range)?);
        let (mut call, mut end) = (calls.next()?, ends.next()?);
        let mut expected = i128::from(batch.first);
        let mut sound = true;
        loop {
            let at = |row: Option<&Row<'_>>| row.map(|row| row.get::<_, i64>(0)).transpose();
            let (of_call, of_end) = (at(call)?, at(end)?);
            let is_call = match (of_call, of_end) {
                (Some(of_call), Some(of_end)) => of_call <= of_end,
                (of_call, _) => of_call.is_some(),
            };
            let (what, row, seq) = if is_call { ("call", call, of_call) } else { ("end", end, of_end) };
            let (Some(row), Some(seq)) = (row, seq) else { break };
            let place = Some((batch.writer, seq));
            if i128::from(seq) > expected {
                self.find(Some(batch.id), Some(missing(batch, expected)), "it is missing");
                sound = false;
            } else if i128::from(seq) < expected {
                self.find(Some(batch.id), place, "there are two of it");
                sound = false;
            }
            expected = i128::from(seq) + 1;
            let columns = row.as_ref().column_count();
            let values =
                (2..columns).map(|column| row.get_ref(column)).collect::<rusqlite::Result<Vec<_>>>()?;
            mark = row_mark(what, &mark, seq, values);
            let stored = row.get::<_, Vec<u8>>(1).unwrap_or_default();
            if sound && stored != mark[..MARK] {
                self.find(Some(batch.id), place, "it was changed");
                sound = false;
            }
            self.report.rows += 1;
            if is_call {
                call = calls.next()?;
            } else {
                end = ends.next()?;
            }
        }
        if expected <= i128::from(batch.last) {
            let what = "it is missing, with what follows in its batch";
            self.find(Some(batch.id), Some(missing(batch, expected)), what);
        } else if sound && mark != batch.root {
            let what = "it was changed, or its writer was";
            self.find(Some(batch.id), None, what);
        }
        Ok(())
    }

    /// Rows that are in no batch.
    fn strays(&mut self) -> rusqlite::Result<()> {
        for table in ["calls", "ends"] {
            let connection = self.connection;
            let mut statement = connection.prepare(&format!(
                "SELECT t.writer, t.seq FROM {table} AS t WHERE NOT EXISTS (SELECT 1 FROM batches AS b \
                 WHERE b.writer = t.writer AND b.last >= t.seq AND b.first <= t.seq) LIMIT 5"
            ))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let place = (row.get(0)?, row.get(1)?);
                self.find(None, Some(place), "it was added");
            }
        }
        Ok(())
    }
}

/// The place of a row that is not there.
fn missing(batch: &Batch, expected: i128) -> (i64, i64) {
    (batch.writer, i64::try_from(expected).unwrap_or(i64::MAX))
}

/// What the marks of a writer's rows begin with.
fn writer_root(connection: &Connection, writer: i64) -> rusqlite::Result<Option<Hash>> {
    let mut statement =
        connection.prepare_cached("SELECT name, kind, pid, life, opened FROM writers WHERE id = ?")?;
    let mut rows = statement.query([writer])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let values = (0..5).map(|at| row.get_ref(at)).collect::<rusqlite::Result<Vec<ValueRef<'_>>>>()?;
    Ok(Some(root(&values)))
}

fn read_batch(row: &Row<'_>) -> rusqlite::Result<Batch> {
    Ok(Batch {
        id: row.get(0)?,
        writer: row.get(1)?,
        first: row.get(2)?,
        last: row.get(3)?,
        at: row.get(4)?,
        root: row.get(5)?,
    })
}
