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

/// Batches that go in one transaction: others want to write too.
const AT_ONCE: i64 = 2000;

/// Removes what is too old or too much, a piece at a time. Returns how many batches went.
pub(crate) fn prune(
    connection: &mut Connection,
    retention: &Retention,
    now: i64,
    seal: &dyn Seal,
) -> rusqlite::Result<i64> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let head = Head::read_signed(&transaction, seal)?;
    let mut until = head.pruned;
    if let Some(age) = retention.age {
        let before = now.saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        // Clocks go back now and then, so the first that is young enough decides.
        let young: Option<i64> = transaction
            .query_row("SELECT id FROM batches WHERE at >= ? ORDER BY id LIMIT 1", [before], |row| row.get(0))
            .optional()?;
        until = until.max(young.map_or(head.batch, |young| young - 1));
    }
    if let Some(size) = retention.size {
        let used: i64 = transaction.query_row(
            "SELECT ((SELECT * FROM pragma_page_count) - (SELECT * FROM pragma_freelist_count)) \
             * (SELECT * FROM pragma_page_size)",
            [],
            |row| row.get(0),
        )?;
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if used > size {
            // A tenth more than is too much, so that this is not done for every row.
            let there = i128::from(head.batch - head.pruned);
            let too_many = there * i128::from(used - size) / i128::from(used) + there / 10 + 1;
            until = until.max(head.pruned + i64::try_from(too_many).unwrap_or(i64::MAX / 2));
        }
    }
    // The last stays: it is what the next is chained to.
    until = until.min(head.batch - 1).min(head.pruned + AT_ONCE);
    if until <= head.pruned {
        return Ok(0);
    }
    let chain: Hash =
        transaction.query_row("SELECT chain FROM batches WHERE id = ?", [until], |row| row.get(0))?;
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
        "DELETE FROM writers WHERE id NOT IN (SELECT writer FROM batches) AND opened < ?",
        params![now - 24 * 3600 * 1000],
    )?;
    Head { pruned: until, pruned_chain: chain, ..head.clone() }.write(&transaction, seal)?;
    transaction.commit()?;
    connection.execute_batch("PRAGMA incremental_vacuum(2000)")?;
    Ok(until - head.pruned)
}
