//! Old calls go, and what remains can still be verified: the chain begins where they ended.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, TransactionBehavior, params};

use crate::batch::Head;
use crate::chain::Hash;
use crate::seal::Seal;

/// How long and how much is kept. None: without end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Retention {
    pub age: Option<Duration>,
    /// Bytes of the file that are in use.
    pub size: Option<u64>,
}

impl Retention {
    pub(crate) fn is_some(&self) -> bool {
        self.age.is_some() || self.size.is_some()
    }
}

/// Rows that go in one transaction, about: others want to write too.
const AT_ONCE: i64 = 20_000;
/// Pages that are given back at once, for the same reason.
const PAGES: u32 = 2000;

/// What one transaction has removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Batches.
    pub(crate) removed: i64,
    /// It was not all.
    pub(crate) more: bool,
}

/// The last batch that is too old or too much.
pub(crate) fn goal(connection: &Connection, retention: &Retention, now: i64) -> rusqlite::Result<i64> {
    let head = Head::read(connection)?.unwrap_or_default();
    let mut until = head.pruned;
    if let Some(age) = retention.age {
        let before = now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        // Clocks go back now and then, so the first that is young enough decides.
        let young: Option<i64> = connection
            .query_row("SELECT id FROM batches WHERE at >= ? ORDER BY id LIMIT 1", [before], |row| row.get(0))
            .optional()?;
        until = until.max(young.map_or(head.batch, |young| young.saturating_sub(1)));
    }
    if let Some(size) = retention.size {
        let used: i64 = connection.query_row(
            "SELECT ((SELECT * FROM pragma_page_count) - (SELECT * FROM pragma_freelist_count)) \
             * (SELECT * FROM pragma_page_size)",
            [],
            |row| row.get(0),
        )?;
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if used > size {
            // A tenth more than is too much, so that this is not done for every row.
            let there = i128::from(head.batch) - i128::from(head.pruned);
            let too_many = there * i128::from(used - size) / i128::from(used) + there / 10 + 1;
            let too_many = i64::try_from(too_many).unwrap_or(i64::MAX);
            until = until.max(head.pruned.saturating_add(too_many));
        }
    }
    // The last stays: it is what the next is chained to.
    Ok(until.min(head.batch.saturating_sub(1)))
}

/// Removes the first of what goes, up to a batch. To be called under the lock.
pub(crate) fn piece(
    connection: &mut Connection,
    goal: i64,
    now: i64,
    seal: &dyn Seal,
) -> rusqlite::Result<Piece> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = Head::read_signed(&transaction, seal)?;
    let goal = goal.min(head.batch.saturating_sub(1));
    let Some((until, chain)) = last_of_piece(&transaction, head.pruned, goal)? else {
        drop(transaction);
        return Ok(Piece { removed: 0, more: give_back(connection)? });
    };
    for table in ["calls", "ends"] {
        transaction.execute(
            &format!(
                "DELETE FROM {table} WHERE (writer, seq) IN (SELECT t.writer, t.seq FROM \
                 (SELECT writer, max(last) AS last FROM batches WHERE id <= ?1 GROUP BY writer) AS gone \
                 JOIN {table} AS t ON t.writer = gone.writer AND t.seq <= gone.last)"
            ),
            [until],
        )?;
    }
    transaction.execute("DELETE FROM batches WHERE id <= ?", [until])?;
    transaction.execute(
        "DELETE FROM writers WHERE opened < ? AND NOT EXISTS (SELECT 1 FROM batches WHERE writer = writers.id)",
        params![now.saturating_sub(24 * 3600 * 1000)],
    )?;
    let removed = until.saturating_sub(head.pruned);
    Head { pruned: until, pruned_chain: chain, ..head }.write(&transaction, seal)?;
    transaction.commit()?;
    let more = give_back(connection)?;
    Ok(Piece { removed, more: more || until < goal })
}

/// Gives free pages back to the file system. Returns whether there are more.
fn give_back(connection: &Connection) -> rusqlite::Result<bool> {
    let free = || -> rusqlite::Result<i64> {
        connection.prepare_cached("PRAGMA freelist_count")?.query_row([], |row| row.get(0))
    };
    let before = free()?;
    if before > 0 {
        // Each step gives back one page.
        let mut statement = connection.prepare(&format!("PRAGMA incremental_vacuum({PAGES})"))?;
        let mut pages = statement.query([])?;
        while pages.next()?.is_some() {}
    }
    let after = free()?;
    Ok(after > 0 && after < before)
}

/// The batch up to which about so many rows are, and its link of the chain.
fn last_of_piece(connection: &Connection, after: i64, goal: i64) -> rusqlite::Result<Option<(i64, Hash)>> {
    let mut statement = connection
        .prepare_cached("SELECT id, first, last, chain FROM batches WHERE id > ? AND id <= ? ORDER BY id")?;
    let mut batches = statement.query([after, goal])?;
    let (mut found, mut rows) = (None, 0_i64);
    while let Some(batch) = batches.next()? {
        let (first, last): (i64, i64) = (batch.get(1)?, batch.get(2)?);
        rows = rows.saturating_add(last.saturating_sub(first).saturating_add(1).max(1));
        if found.is_some() && rows > AT_ONCE {
            break;
        }
        found = Some((batch.get(0)?, batch.get(3)?));
    }
    Ok(found)
}
