//! Reading: which calls there were, and how they ended.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use crate::batch::life;
use crate::row::Outcome;

/// Which calls are wanted. None: any.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub session: Option<String>,
    pub thread: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub host: Option<String>,
    pub outcome: Option<Outcome>,
    /// Unix milliseconds, the first one and the first one not.
    pub since: Option<u64>,
    pub until: Option<u64>,
    /// At most so many, the newest.
    pub limit: Option<u32>,
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
                       e.outcome, e.reason, e.target, e.micros, e.size, e.result, w.pid, w.life";

/// The calls that `filter` wants, oldest first.
pub fn calls(connection: &Connection, filter: &Filter) -> rusqlite::Result<Vec<Call>> {
    let (conditions, mut values) = conditions(filter);
    // The index is walked from its end, so that the newest of a limit are found without the others.
    let mut sql = format!(
        "SELECT {COLUMNS} FROM calls AS c LEFT JOIN ends AS e ON e.writer = c.writer AND e.of = c.seq \
         LEFT JOIN writers AS w ON w.id = c.writer {conditions} ORDER BY c.at DESC, c.writer DESC, c.seq DESC"
    );
    // Whether an outcome is unknown is not in the file: see `outcome_of`.
    let late = filter.outcome == Some(Outcome::Unknown);
    if let Some(limit) = filter.limit.filter(|_| !late) {
        sql.push_str(" LIMIT ?");
        values.push(Value::Integer(limit.into()));
    }
    let mut statement = connection.prepare_cached(&sql)?;
    let mut lives = Lives::default();
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let call = read(row, &mut lives)?;
        if late && call.outcome != Some(Outcome::Unknown) {
            continue;
        }
        found.push(call);
        if late && filter.limit.is_some_and(|limit| found.len() >= limit as usize) {
            break;
        }
    }
    found.reverse();
    Ok(found)
}

/// The last batch, to see whether there is anything new.
pub fn last_batch(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT coalesce(max(id), 0) FROM batches", [], |row| row.get(0))
}

/// Calls that began or ended in batches after this one, in the order in which they were written.
pub fn changed_since(connection: &Connection, batch: i64, filter: &Filter) -> rusqlite::Result<Vec<Call>> {
    let (conditions, mut values) = conditions(filter);
    let glue = if conditions.is_empty() { "WHERE" } else { "AND" };
    let sql = format!(
        "SELECT {COLUMNS} FROM batches AS b JOIN ends AS e ON e.writer = b.writer AND e.seq BETWEEN b.first AND b.last \
         JOIN calls AS c ON c.writer = e.writer AND c.seq = e.of LEFT JOIN writers AS w ON w.id = c.writer \
         {conditions} {glue} b.id > ? ORDER BY b.id, e.seq"
    );
    values.push(Value::Integer(batch));
    let mut statement = connection.prepare_cached(&sql)?;
    let mut lives = Lives::default();
    let mut rows = statement.query(params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row, &mut lives)?);
    }
    Ok(found)
}

fn conditions(filter: &Filter) -> (String, Vec<Value>) {
    let mut parts: Vec<&str> = Vec::new();
    let mut values = Vec::new();
    let texts = [
        ("c.session = ?", &filter.session),
        ("c.thread = ?", &filter.thread),
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
struct Lives(std::collections::HashMap<i64, bool>);

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
    })
}
