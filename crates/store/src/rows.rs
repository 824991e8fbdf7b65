//! Rows as the model has them. What does not fit was not written by us.

use model::Principal;
use model::session::{
    Artifact, ArtifactKind, CanceledBy, Ending, Keep, MessageId, Phase, Run, RunId, RunState, RunUsage,
    Session, SessionId, SessionStatus, UnixMillis,
};
use sqlx::sqlite::SqliteRow;
use sqlx::{Error, Row as _};

/// `SQLite` has numbers up to half of that. Nothing we count comes near.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn unsigned(number: i64) -> Result<u64, Error> {
    u64::try_from(number).map_err(|error| Error::Decode(Box::new(error)))
}

pub(crate) fn time(at: UnixMillis) -> i64 {
    signed(at.0)
}

fn wrong(column: &'static str) -> Error {
    Error::Decode(format!("the column {column} holds what was never written to it").into())
}

fn parsed<T>(row: &SqliteRow, column: &'static str, parse: impl Fn(&str) -> Option<T>) -> Result<T, Error> {
    optional(row, column, parse)?.ok_or_else(|| wrong(column))
}

fn optional<T>(
    row: &SqliteRow,
    column: &'static str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let text: Option<&str> = row.try_get(column)?;
    text.map(|text| parse(text).ok_or_else(|| wrong(column))).transpose()
}

fn at(row: &SqliteRow, column: &'static str) -> Result<UnixMillis, Error> {
    unsigned(row.try_get(column)?).map(UnixMillis)
}

fn at_some_time(row: &SqliteRow, column: &'static str) -> Result<Option<UnixMillis>, Error> {
    let at: Option<i64> = row.try_get(column)?;
    at.map(|at| unsigned(at).map(UnixMillis)).transpose()
}

pub(crate) fn count(row: &SqliteRow, column: &'static str) -> Result<u64, Error> {
    unsigned(row.try_get(column)?)
}

pub(crate) fn session_id(row: &SqliteRow, column: &'static str) -> Result<SessionId, Error> {
    parsed(row, column, |text| SessionId::parse(text).ok())
}

pub(crate) fn run_id(row: &SqliteRow, column: &'static str) -> Result<RunId, Error> {
    parsed(row, column, |text| RunId::parse(text).ok())
}

pub(crate) fn principal(row: &SqliteRow) -> Result<Principal, Error> {
    parsed(row, "principal", |text| Principal::new(text).ok())
}

/// Of `SELECT * FROM sessions`.
pub(crate) fn session(row: &SqliteRow) -> Result<Session, Error> {
    Ok(Session {
        id: session_id(row, "id")?,
        principal: principal(row)?,
        name: row.try_get("name")?,
        reuse_key: row.try_get("reuse_key")?,
        image: row.try_get("image")?,
        runtime: row.try_get("runtime")?,
        settings: row.try_get("settings")?,
        workspace: row.try_get("workspace")?,
        made_by: row.try_get("made_by")?,
        agent_session: row.try_get("agent_session")?,
        status: status(row)?,
        created_at: at(row, "created_at")?,
        used_at: at(row, "used_at")?,
    })
}

fn status(row: &SqliteRow) -> Result<SessionStatus, Error> {
    let status: &str = row.try_get("status")?;
    if status == "live" {
        return Ok(SessionStatus::Live);
    }
    let (keep, since) = (parsed(row, "keep", Keep::parse)?, at(row, "status_at")?);
    match status {
        "terminating" => Ok(SessionStatus::Terminating { keep, since }),
        "terminated" => Ok(SessionStatus::Terminated { keep, at: since }),
        _ => Err(wrong("status")),
    }
}

/// Of `SELECT * FROM runs`.
pub(crate) fn run(row: &SqliteRow) -> Result<Run, Error> {
    Ok(Run {
        id: run_id(row, "id")?,
        session: session_id(row, "session")?,
        principal: principal(row)?,
        seq: count(row, "seq")?,
        task: row.try_get("task")?,
        output_schema: row.try_get("output_schema")?,
        model: row.try_get("model")?,
        idempotency_key: row.try_get("idempotency_key")?,
        asked_by: row.try_get("asked_by")?,
        message_id: optional(row, "message_id", |text| MessageId::parse(text).ok())?,
        state: state(row)?,
        cancel_requested: optional(row, "cancel_requested", CanceledBy::parse)?,
        created_at: at(row, "created_at")?,
        started_at: at_some_time(row, "started_at")?,
        ended_at: at_some_time(row, "ended_at")?,
        usage: usage(row)?,
    })
}

fn state(row: &SqliteRow) -> Result<RunState, Error> {
    let state: &str = row.try_get("state")?;
    Ok(match state {
        "queued" => RunState::Queued,
        "running" => {
            RunState::Running { phase: parsed(row, "phase", Phase::parse)?, attempt: row.try_get("attempt")? }
        }
        "completed" => RunState::Ended(Ending::Completed {
            final_output: row.try_get("final_output")?,
            structured_output: row.try_get("structured_output")?,
            result_summary: row.try_get("result_summary")?,
        }),
        "failed" => RunState::Ended(Ending::Failed {
            code: row.try_get("error_code")?,
            message: row.try_get("error_message")?,
        }),
        "canceled" => {
            RunState::Ended(Ending::Canceled { by: parsed(row, "canceled_by", CanceledBy::parse)? })
        }
        _ => return Err(wrong("state")),
    })
}

fn usage(row: &SqliteRow) -> Result<Option<RunUsage>, Error> {
    let known: Option<i64> = row.try_get("input_tokens")?;
    if known.is_none() {
        return Ok(None);
    }
    Ok(Some(RunUsage {
        input_tokens: count(row, "input_tokens")?,
        output_tokens: count(row, "output_tokens")?,
        reasoning_tokens: count(row, "reasoning_tokens")?,
        cache_read_tokens: count(row, "cache_read_tokens")?,
        cache_write_tokens: count(row, "cache_write_tokens")?,
        cost_micros: count(row, "cost_micros")?,
    }))
}

/// Of `SELECT * FROM artifacts`.
pub(crate) fn artifact(row: &SqliteRow) -> Result<(RunId, Artifact), Error> {
    let artifact = Artifact {
        path: row.try_get("path")?,
        kind: parsed(row, "kind", ArtifactKind::parse)?,
        size: count(row, "size")?,
        modified: at(row, "modified")?,
    };
    Ok((run_id(row, "run")?, artifact))
}
