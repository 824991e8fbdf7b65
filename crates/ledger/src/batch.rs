//! One transaction: rows, the batch they make, and the signed head.

use std::time::SystemTime;

use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params};

use crate::chain::{Hash, Link, MARK, NOTHING, hex, link};
use crate::file::LedgerError;
use crate::queue::Row;
use crate::row::{Begin, End};
use crate::seal::{Seal, Signature};

/// The process that writes.
#[derive(Debug, Clone)]
pub(crate) struct Author {
    name: String,
    kind: &'static str,
    pid: i64,
    /// What tells it from another process of the same number.
    life: String,
    opened: i64,
}

impl Author {
    pub(crate) fn new(kind: &'static str) -> Result<Self, LedgerError> {
        let mut random = [0_u8; 12];
        getrandom::fill(&mut random)
            .map_err(|error| LedgerError::Failed { what: "opened", reason: error.to_string() })?;
        let name = hex(&random);
        let pid = std::process::id();
        Ok(Self { name, kind, pid: pid.into(), life: life(pid).unwrap_or_default(), opened: now() })
    }

    fn values(&self) -> [Value; 5] {
        [
            self.name.clone().into(),
            self.kind.to_owned().into(),
            self.pid.into(),
            self.life.clone().into(),
            self.opened.into(),
        ]
    }
}

/// Unix milliseconds.
pub(crate) fn now() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "a ledger says when")]
    let now = SystemTime::now();
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// The boot and the moment a process was started in; none where there is no such process.
pub(crate) fn life(pid: u32) -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may have anything in it.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.to_owned();
    Some(format!("{}/{started}", boot.trim()))
}

/// What a batch begins with.
pub(crate) fn root(writer: &[ValueRef<'_>]) -> Hash {
    link("writer", &NOTHING, writer.iter().copied())
}

/// Writes rows whose numbers follow each other. Returns the number of the last. If they are there already they are not
/// written again: a commit that failed at its very end may have been one.
pub(crate) fn write(
    connection: &mut Connection,
    author: &Author,
    rows: &[Row],
    seal: &dyn Seal,
) -> rusqlite::Result<u64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let writer = writer_id(&transaction, author)?;
    let values = author.values();
    let mut mark = root(&values.each_ref().map(ValueRef::from));
    let (mut first, mut last) = (None, 0);
    if let (Some(first), Some(last)) = (rows.first(), rows.last()) {
        let there = last_of(&transaction, writer)?;
        if there == signed(last.seq()) {
            return Ok(last.seq());
        }
        if there >= signed(first.seq()) {
            return Err(not_ours());
        }
    }
    for row in rows {
        let seq = match row {
            Row::Begin(seq, begin) => {
                insert_begin(&transaction, writer, *seq, begin, &mut mark)?;
                *seq
            }
            Row::End { seq, of, end } => {
                insert_end(&transaction, writer, (*seq, *of), end, &mut mark)?;
                *seq
            }
        };
        first.get_or_insert(seq);
        last = seq;
    }
    let head = Head::read_signed(&transaction, seal)?;
    let batch = Batch {
        id: head.batch.checked_add(1).ok_or_else(not_ours)?,
        writer,
        first: signed(first.unwrap_or(last)),
        last: signed(last),
        at: now(),
        root: mark,
    };
    let chain = batch.chain(&head.chain);
    transaction
        .prepare_cached(
            "INSERT INTO batches (id, writer, first, last, at, root, chain) VALUES (?, ?, ?, ?, ?, ?, ?)",
        )?
        .execute(params![batch.id, batch.writer, batch.first, batch.last, batch.at, batch.root, chain])?;
    Head { batch: batch.id, chain, ..head }.write(&transaction, seal)?;
    transaction.commit()?;
    Ok(last)
}

/// The file knows no unsigned numbers. Ours do not get that far.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn writer_id(transaction: &Transaction<'_>, author: &Author) -> rusqlite::Result<i64> {
    let known = transaction
        .prepare_cached("SELECT id FROM writers WHERE name = ?")?
        .query_row([&author.name], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    transaction.execute(
        "INSERT INTO writers (name, kind, pid, life, opened) VALUES (?, ?, ?, ?, ?)",
        author.values(),
    )?;
    Ok(transaction.last_insert_rowid())
}

/// The last row of a writer that is in a batch.
fn last_of(transaction: &Transaction<'_>, writer: i64) -> rusqlite::Result<i64> {
    transaction
        .prepare_cached("SELECT coalesce(max(last), 0) FROM batches WHERE writer = ?")?
        .query_row([writer], |row| row.get(0))
}

fn text(text: Option<&str>) -> ValueRef<'_> {
    text.map_or(ValueRef::Null, |text| ValueRef::Text(text.as_bytes()))
}

fn insert_begin(
    transaction: &Transaction<'_>,
    writer: i64,
    seq: u64,
    begin: &Begin,
    mark: &mut Hash,
) -> rusqlite::Result<()> {
    let values = [
        ValueRef::Integer(signed(begin.at)),
        text(begin.host.as_deref()),
        text(begin.session.as_deref()),
        text(begin.thread.as_deref()),
        text(begin.parent.as_deref()),
        text(begin.run.as_deref()),
        text(begin.turn.as_deref()),
        text(Some(&begin.call)),
        text(Some(&begin.server)),
        text(begin.tool.as_deref()),
        text(Some(&begin.method)),
        text(begin.workspace.as_deref()),
        text(Some(begin.trust)),
        text(begin.source),
        begin.digest.as_ref().map_or(ValueRef::Null, |digest| ValueRef::Blob(digest)),
        ValueRef::Integer(signed(begin.size)),
        text(begin.arguments.as_deref()),
        text(begin.spoof.as_deref()),
        text(begin.trace.as_deref()),
    ];
    insert(
        transaction,
        "INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ("call", writer, seq),
        &values,
        mark,
    )
}

fn insert_end(
    transaction: &Transaction<'_>,
    writer: i64,
    (seq, of): (u64, u64),
    end: &End,
    mark: &mut Hash,
) -> rusqlite::Result<()> {
    let values = [
        ValueRef::Integer(signed(of)),
        ValueRef::Integer(signed(end.at)),
        text(Some(end.outcome.as_str())),
        text(end.reason.as_deref()),
        text(end.target.as_deref()),
        ValueRef::Integer(signed(end.micros)),
        ValueRef::Integer(signed(end.size)),
        text(end.result.as_deref()),
    ];
    insert(
        transaction,
        "INSERT INTO ends VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ("end", writer, seq),
        &values,
        mark,
    )
}

fn insert(
    transaction: &Transaction<'_>,
    statement: &str,
    (what, writer, seq): (&str, i64, u64),
    values: &[ValueRef<'_>],
    mark: &mut Hash,
) -> rusqlite::Result<()> {
    *mark = row_mark(what, mark, signed(seq), values.iter().copied());
    let mut statement = transaction.prepare_cached(statement)?;
    statement.raw_bind_parameter(1, writer)?;
    statement.raw_bind_parameter(2, signed(seq))?;
    for (at, value) in values.iter().enumerate() {
        statement.raw_bind_parameter(at + 3, rusqlite::types::ToSqlOutput::Borrowed(*value))?;
    }
    statement.raw_bind_parameter(values.len() + 3, &mark[..MARK])?;
    statement.raw_execute().map(drop)
}

/// The mark of a row behind the one before it.
pub(crate) fn row_mark<'a>(
    what: &str,
    before: &Hash,
    seq: i64,
    values: impl IntoIterator<Item = ValueRef<'a>>,
) -> Hash {
    let mut link = Link::new(what, before);
    link.value(ValueRef::Integer(seq));
    for value in values {
        link.value(value);
    }
    link.end()
}

/// Rows that were written at once.
pub(crate) struct Batch {
    pub(crate) id: i64,
    pub(crate) writer: i64,
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) at: i64,
    /// The mark of its last row.
    pub(crate) root: Hash,
}

impl Batch {
    pub(crate) fn chain(&self, before: &Hash) -> Hash {
        let numbers = [self.id, self.writer, self.first, self.last, self.at].map(ValueRef::Integer);
        link("batch", before, numbers.into_iter().chain([ValueRef::Blob(&self.root)]))
    }
}

/// The file would say of itself that it is damaged.
fn not_ours() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(
        rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT),
        Some("its head is not what was signed; callsign ledger verify says more".to_owned()),
    )
}

impl Signature {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Self> {
        connection.query_row("SELECT kid, signature FROM head", [], |row| {
            Ok(Self { kid: row.get(0)?, bytes: row.get(1)? })
        })
    }

    /// Whether it stands for none.
    pub(crate) fn is_none(&self) -> bool {
        self.kid.is_empty() && self.bytes.is_empty()
    }
}

/// Where the chain ends, and where it begins after old rows were removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) batch: i64,
    pub(crate) chain: Hash,
    pub(crate) pruned: i64,
    pub(crate) pruned_chain: Hash,
}

impl Head {
    pub(crate) fn read(connection: &Connection) -> rusqlite::Result<Option<Self>> {
        connection
            .prepare_cached("SELECT batch, chain, pruned, pruned_chain FROM head")?
            .query_row([], |row| {
                Ok(Self {
                    batch: row.get(0)?,
                    chain: row.get(1)?,
                    pruned: row.get(2)?,
                    pruned_chain: row.get(3)?,
                })
            })
            .optional()
    }

    /// The head, if its signature is right. Whoever signs the next one vouches for all that is before it.
    pub(crate) fn read_signed(connection: &Connection, seal: &dyn Seal) -> rusqlite::Result<Self> {
        let Some(head) = Self::read(connection)? else {
            let batches: i64 = connection.query_row("SELECT count(*) FROM batches", [], |row| row.get(0))?;
            return if batches == 0 { Ok(Self::default()) } else { Err(not_ours()) };
        };
        let signature = Signature::read(connection)?;
        let right = if signature.is_none() {
            // Nobody had a key, and nobody has one.
            !seal.has_key()
        } else {
            seal.verify(&head.message(), &signature) == Some(true)
        };
        if right { Ok(head) } else { Err(not_ours()) }
    }

    /// What is signed.
    pub(crate) fn message(&self) -> Vec<u8> {
        let Self { batch, chain, pruned, pruned_chain } = self;
        format!("callsign ledger head\n{batch}\n{}\n{pruned}\n{}\n", hex(chain), hex(pruned_chain))
            .into_bytes()
    }

    pub(crate) fn write(&self, transaction: &Transaction<'_>, seal: &dyn Seal) -> rusqlite::Result<()> {
        let signature = seal.sign(&self.message());
        let Signature { kid, bytes } =
            signature.unwrap_or_else(|| Signature { kid: String::new(), bytes: Vec::new() });
        let Self { batch, chain, pruned, pruned_chain } = self;
        transaction
            .prepare_cached("INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?, ?, ?)")?
            .execute(params![batch, chain, pruned, pruned_chain, kid, bytes])
            .map(drop)
    }
}
