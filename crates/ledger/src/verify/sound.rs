//! Whether the file itself is what we make: its pages, its indexes, its tables. Rows are found by indexes, and a
//! trigger could change what is written after it was hashed.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rusqlite::{Connection, ErrorCode};

use crate::file::SCHEMA;

/// Of each kind, so many are listed.
const MOST: usize = 5;

/// Sentences about what is wrong.
pub(super) fn findings(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = schema(connection)?;
    found.truncate(MOST);
    found.extend(pages(connection)?);
    Ok(found)
}

/// The file says of itself that it cannot be read any further.
pub(super) fn is_damage(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase))
}

/// Pages, and whether every row is in every index once.
fn pages(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(&format!("PRAGMA integrity_check({MOST})"))?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(0)?;
        if text != "ok" {
            found.push(format!("the file is damaged: {text}"));
        }
    }
    Ok(found)
}

type Objects = BTreeMap<(String, String), (String, Option<String>)>;

fn schema(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let (ours, there) = (ours()?, objects(connection)?);
    let mut found = Vec::new();
    for (key @ (kind, name), definition) in ours {
        match there.get(key) {
            None => found.push(format!("the {kind} `{name}` is missing")),
            Some(other) if other != definition => found.push(format!("the {kind} `{name}` was changed")),
            Some(_) => {}
        }
    }
    let added = there.keys().filter(|key| !ours.contains_key(*key));
    found.extend(added.map(|(kind, name)| format!("the {kind} `{name}` was added")));
    Ok(found)
}

/// What a new file has in it.
fn ours() -> rusqlite::Result<&'static Objects> {
    static OURS: OnceLock<Objects> = OnceLock::new();
    if let Some(ours) = OURS.get() {
        return Ok(ours);
    }
    let file = Connection::open_in_memory()?;
    file.execute_batch(SCHEMA)?;
    let ours = objects(&file)?;
    Ok(OURS.get_or_init(|| ours))
}

fn objects(connection: &Connection) -> rusqlite::Result<Objects> {
    let mut statement = connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), (row.get(2)?, row.get(3)?))))?;
    rows.collect()
}
