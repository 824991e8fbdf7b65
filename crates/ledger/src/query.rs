//! Reading: which calls there were, and how they ended.

use std::collections::HashMap;
use std::ops::ControlFlow;

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use crate::batch::life;
use crate::file::LedgerError;
use crate::row::Outcome;

/// Which calls are wanted. None: any.
///
/// `session`, `thread`, `run` and the times are looked up; the others are compared, from the newest on: fast with a
/// limit that is soon reached, else as slow as there are calls.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub session: Option<String>,
    pub thread: Option<String>,
    pub run: Option<String>,
    /// Not looked up: an index over values without an order would cost every write.
    pub call: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub host: Option<String>,
    pub outcome: Option<Outcome>,
    /// Unix milliseconds, the first one and the first one not.
    pub since: Option<u64>,
    pub until: Option<u64>,
    /// At most so many, the newest.
    pub limit: Option<u32>,
    /// Captured arguments and results are left out.
    pub without_texts: bool,
}

/// A call and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub writer: i64,
    pub seq: i64,
    pub at: u64,
    pub host: Option<String>,
    pub session: Option<String>,
    pub thread: Option<String>,
    pub parent: Option<String>,
    pub run: Option<String>,
    pub turn: Option<String>,
    pub call: String,
    pub server: String,
    pub tool: Option<String>,
    pub method: String,
    pub workspace: Option<String>,
    pub trust: String,
    pub source: Option<String>,
    pub digest: Option<Vec<u8>>,
    pub size: u64,
    pub arguments: Option<String>,
    pub spoof: Option<String>,
    pub trace: Option<String>,
    /// None: it is under way.
    pub outcome: Option<Outcome>,
    pub reason: Option<String>,
    pub target: Option<String>,
    pub duration_ms: Option<f64>,
    pub result_size: Option<u64>,
    pub result: Option<String>,
}

const COLUMNS: &str = "c.writer, c.seq, c.at, c.host, c.session, c.thread, c.parent, c.run, c.turn, c.call, c.server, \
                       c.tool, c.method, c.workspace, c.trust, c.source, c.digest, c.size, c.arguments, c.spoof, \
                       e.outcome, e.reason, e.target, e.micros, e.size, e.result, w.pid, w.life, c.trace";

/// The same without the texts, which may be long.
const WITHOUT_TEXTS: &str = "c.writer, c.seq, c.at, c.host, c.session, c.thread, c.parent, c.run, c.turn, c.call, c.server, c.tool, c.method, \
     c.workspace, c.trust, c.source, c.digest, c.size, NULL, c.spoof, e.outcome, e.reason, e.target, e.micros, e.size, \
     NULL, w.pid, w.life, c.trace";

const JOINED: &str = "FROM calls AS c LEFT JOIN ends AS e ON e.writer = c.writer AND e.of = c.seq \
                      LEFT JOIN writers AS w ON w.id = c.writer";

/// The calls that `filter` wants, oldest first.
pub fn calls(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Call>> {
    let mut found = Vec::new();
    // The index is walked from its end, so that the newest of a limit are found without the others.
    walk(connection, filter, Order::NewestFirst, &mut |call| {
        found.push(call);
        ControlFlow::Continue(())
    })?;
    found.reverse();
    Ok(found)
}

/// The same one by one, for as long as `visit` wants: there may be more than fit into memory.
pub fn each_call(
    connection: &Connection,
    filter: &Filter,
    visit: &mut dyn FnMut(Call) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    if filter.limit.is_none() {
        return walk(connection, filter, Order::OldestFirst, visit);
    }
    // The newest are wanted, and the oldest of them first.
    let _stopped = calls(connection, filter)?.into_iter().try_for_each(visit);
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    NewestFirst,
    OldestFirst,
}

/// Whether an outcome is unknown is not in the file: see `read`.
fn is_late(filter: &Filter) -> bool {
    filter.outcome == Some(Outcome::Unknown)
}

pub(crate) fn statement(filter: &Filter, order: Order) -> (String, Vec<Value>) {
    let (conditions, mut values) = conditions(filter);
    let order = match order {
        Order::NewestFirst => "c.at DESC, c.writer DESC, c.seq DESC",
        Order::OldestFirst => "c.at, c.writer, c.seq",
    };
    let columns = if filter.without_texts { WITHOUT_TEXTS } else { COLUMNS };
    let mut sql = format!("SELECT {columns} {JOINED} {conditions} ORDER BY {order}");
    if let Some(limit) = filter.limit.filter(|_| !is_late(filter)) {
        sql.push_str(" LIMIT ?");
        values.push(Value::Integer(limit.into()));
    }
    (sql, values)
}

fn walk(
    connection: &Connection,
    filter: &Filter,
    order: Order,
    visit: &mut dyn FnMut(Call) -> ControlFlow<()>,
) -> rusqlite::Result<()> {
    let (sql, values) = statement(filter, order);
    let mut statement = connection.prepare_cached(&sql)?;
    let mut lives = Lives::default();
    let mut rows = statement.query(params_from_iter(values))?;
    let mut left = filter.limit.unwrap_or(u32::MAX);
    while let Some(row) = rows.next()? {
        let call = read(row, &mut lives)?;
        if is_late(filter) && call.outcome != Some(Outcome::Unknown) {
            continue;
        }
        if left == 0 || visit(call).is_break() {
            break;
        }
        left = left.saturating_sub(u32::from(filter.limit.is_some()));
    }
    Ok(())
}

/// The last batch, to see whether there is anything new.
pub fn last_batch(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(id), 0) FROM batches", [], |row| row.get(0))
}

/// What happened to a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// As it was when it began, whatever came later. Its outcome is `unknown` if it has no end and will have none:
    /// whoever made it is gone.
    Began(Call),
    Ended(Call),
}

/// What was written since a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Changes {
    /// In the order in which it was written.
    pub items: Vec<Change>,
    /// The last batch that is in it: what to ask for next. Batches are numbered under the lock, so none can come
    /// before one that was seen.
    pub cursor: i64,
    /// There is more already.
    pub more: bool,
}

/// How much is returned at once, about: whole batches.
const AT_ONCE: usize = 10_000;

/// Calls that began and calls that ended in batches after `cursor`. The filter's limit does not count here. A cursor
/// that the file has not reached is of another file, and everything is new.
pub fn changed_since(connection: &Connection, cursor: i64, filter: &Filter) -> rusqlite::Result<Changes> {
    // One view of the file: a call's end must not come between the two questions.
    let view = connection.unchecked_transaction()?;
    let cursor = if cursor > last_batch(&view)? { 0 } else { cursor };
    let mut batches =
        view.prepare_cached("SELECT id, writer, first, last FROM batches WHERE id > ? ORDER BY id")?;
    let mut batches = batches.query([cursor])?;
    let mut changes = Changes { items: Vec::new(), cursor, more: false };
    let mut lives = Lives::default();
    while let Some(batch) = batches.next()? {
        if changes.items.len() >= AT_ONCE {
            changes.more = true;
            break;
        }
        changes.cursor = batch.get(0)?;
        let place = (batch.get(1)?, batch.get(2)?, batch.get(3)?);
        of_batch(&view, place, &mut lives, &mut |change| {
            if filter.takes(&change) {
                changes.items.push(change);
            }
        })?;
    }
    Ok(changes)
}

fn of_batch(
    connection: &Connection,
    (writer, first, last): (i64, i64, i64),
    lives: &mut Lives,
    visit: &mut dyn FnMut(Change),
) -> rusqlite::Result<()> {
    let mut found = Vec::new();
    let mut began = connection.prepare_cached(&format!(
        "SELECT {WITHOUT_TEXTS} {JOINED} WHERE c.writer = ? AND c.seq BETWEEN ? AND ?"
    ))?;
    let mut rows = began.query(params![writer, first, last])?;
    while let Some(row) = rows.next()? {
        let call = read(row, lives)?;
        found.push((call.seq, Change::Began(call.without_end())));
    }
    let mut ended = connection.prepare_cached(&format!(
        "SELECT {WITHOUT_TEXTS}, e.seq FROM ends AS e JOIN calls AS c ON c.writer = e.writer AND c.seq = e.of \
         LEFT JOIN writers AS w ON w.id = c.writer WHERE e.writer = ? AND e.seq BETWEEN ? AND ?"
    ))?;
    let mut rows = ended.query(params![writer, first, last])?;
    while let Some(row) = rows.next()? {
        found.push((row.get(29)?, Change::Ended(read(row, lives)?)));
    }
    found.sort_by_key(|(seq, _)| *seq);
    for (_, change) in found {
        visit(change);
    }
    Ok(())
}

impl Call {
    fn without_end(self) -> Self {
        let outcome = self.outcome.filter(|_| self.duration_ms.is_none());
        let (reason, target, duration_ms, result_size, result) = (None, None, None, None, None);
        Self { outcome, reason, target, duration_ms, result_size, result, ..self }
    }
}

impl Filter {
    /// The same that `conditions` says.
    fn takes(&self, change: &Change) -> bool {
        let (Change::Began(call) | Change::Ended(call)) = change;
        let Self {
            session,
            thread,
            run,
            call: id,
            server,
            tool,
            host,
            outcome,
            since,
            until,
            limit: _,
            without_texts: _,
        } = self;
        let is =
            |wanted: &Option<String>, found: Option<&str>| wanted.is_none() || wanted.as_deref() == found;
        is(session, call.session.as_deref())
            && is(thread, call.thread.as_deref())
            && is(run, call.run.as_deref())
            && is(id, Some(&call.call))
            && is(server, Some(&call.server))
            && is(tool, call.tool.as_deref())
            && is(host, call.host.as_deref())
            && outcome.is_none_or(|outcome| call.outcome == Some(outcome))
            && since.is_none_or(|since| call.at >= since)
            && until.is_none_or(|until| call.at < until)
    }
}

fn conditions(filter: &Filter) -> (String, Vec<Value>) {
    let mut parts: Vec<&str> = Vec::new();
    let mut values = Vec::new();
    let texts = [
        ("c.session = ?", &filter.session),
        ("c.thread = ?", &filter.thread),
        ("c.run = ?", &filter.run),
        ("c.call = ?", &filter.call),
        ("c.server = ?", &filter.server),
        ("c.tool = ?", &filter.tool),
        ("c.host = ?", &filter.host),
    ];
    for (condition, wanted) in texts {
        if let Some(wanted) = wanted {
            parts.push(condition);
            values.push(Value::Text(wanted.clone()));
        }
    }
    match filter.outcome {
        Some(Outcome::Unknown) => parts.push("(e.outcome IS NULL OR e.outcome = 'unknown')"),
        Some(outcome) => {
            parts.push("e.outcome = ?");
            values.push(Value::Text(outcome.as_str().to_owned()));
        }
        None => {}
    }
    for (condition, at) in [("c.at >= ?", filter.since), ("c.at < ?", filter.until)] {
        if let Some(at) = at {
            parts.push(condition);
            values.push(Value::Integer(i64::try_from(at).unwrap_or(i64::MAX)));
        }
    }
    if parts.is_empty() {
        return (String::new(), values);
    }
    (format!("WHERE {}", parts.join(" AND ")), values)
}

/// Which writers still run. Asked once for each.
#[derive(Default)]
struct Lives(HashMap<i64, bool>);

impl Lives {
    fn lives(&mut self, writer: i64, pid: Option<i64>, known: Option<&str>) -> bool {
        *self.0.entry(writer).or_insert_with(|| {
            let pid = pid.and_then(|pid| u32::try_from(pid).ok());
            pid.and_then(life).is_some_and(|now| known == Some(now.as_str()))
        })
    }
}

fn read(row: &Row<'_>, lives: &mut Lives) -> rusqlite::Result<Call> {
    let number = |at: usize| -> rusqlite::Result<u64> { Ok(row.get::<_, i64>(at)?.unsigned_abs()) };
    let outcome: Option<String> = row.get(20)?;
    let writer: i64 = row.get(0)?;
    let outcome = if let Some(outcome) = outcome {
        Some(Outcome::parse(&outcome).unwrap_or(Outcome::Unknown))
    } else {
        let (pid, known): (Option<i64>, Option<String>) = (row.get(26)?, row.get(27)?);
        (!lives.lives(writer, pid, known.as_deref())).then_some(Outcome::Unknown)
    };
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a call fit")]
    let duration_ms = row.get::<_, Option<i64>>(23)?.map(|micros| micros as f64 / 1000.0);
    Ok(Call {
        writer,
        seq: row.get(1)?,
        at: number(2)?,
        host: row.get(3)?,
        session: row.get(4)?,
        thread: row.get(5)?,
        parent: row.get(6)?,
        run: row.get(7)?,
        turn: row.get(8)?,
        call: row.get(9)?,
        server: row.get(10)?,
        tool: row.get(11)?,
        method: row.get(12)?,
        workspace: row.get(13)?,
        trust: row.get(14)?,
        source: row.get(15)?,
        digest: row.get(16)?,
        size: number(17)?,
        arguments: row.get(18)?,
        spoof: row.get(19)?,
        outcome,
        reason: row.get(21)?,
        target: row.get(22)?,
        duration_ms,
        result_size: row.get::<_, Option<i64>>(24)?.map(i64::unsigned_abs),
        result: row.get(25)?,
        trace: row.get(28)?,
    })
}

/// One call, by its writer and number. None: it is not there, or no longer.
pub fn call(connection: &Connection, (writer, seq): (i64, i64)) -> rusqlite::Result<Option<Call>> {
    let sql = format!("SELECT {COLUMNS} {JOINED} WHERE c.writer = ? AND c.seq = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![writer, seq])?;
    rows.next()?.map(|row| read(row, &mut Lives::default())).transpose()
}

/// What it means that something could not be read.
pub fn unreadable(connection: &Connection, error: &rusqlite::Error) -> LedgerError {
    let path = connection.path().unwrap_or_default();
    LedgerError::from_sqlite("read", std::path::Path::new(path), error)
}
