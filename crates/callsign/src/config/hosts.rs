//! `[hosts.NAME]`: a host that we do not know, and under which names it says who calls.

use model::{HostSpec, Id, Place, Placeholder, ServerName};

use super::context::Context;
use super::names::{check_evidence_header, check_meta};
use super::table::{Field, Table};

const FIELDS: [(&str, Placeholder); 8] = [
    ("session", Placeholder::SessionId),
    ("thread", Placeholder::ThreadId),
    ("parent", Placeholder::ParentId),
    ("turn", Placeholder::TurnId),
    ("call", Placeholder::CallId),
    ("title", Placeholder::SessionTitle),
    ("workspace", Placeholder::Workspace),
    ("run", Placeholder::RunId),
];

pub(super) fn read(context: Context<'_>, root: &Table<'_>) -> Vec<HostSpec> {
    let table = root.get("hosts").and_then(|field| field.table(context, "hosts."));
    let mut hosts: Vec<HostSpec> = Vec::new();
    for field in table.unwrap_or_default().fields {
        let (name, table) = (name(context, &field), field.table(context, ""));
        let Some(table) = table else {
            continue;
        };
        let (client, fields) = description(context, &field, &table);
        let Some(name) = name else {
            continue;
        };
        let has_same_client = |other: &&HostSpec| client.is_some() && other.client == client;
        if let Some(other) = hosts.iter().find(has_same_client) {
            let at = table.get("client").map_or(field.key_at, |client| client.at);
            context.mistake(at, format!("`{}` has this client already; keep one", other.name));
        }
        hosts.push(HostSpec { name, client, fields });
    }
    hosts
}

fn name(context: Context<'_>, field: &Field<'_>) -> Option<Id> {
    let name = field.key;
    if let Err(problem) = ServerName::new(name) {
        context.mistake(field.key_at, format!("{name:?} is not the name of a host: {problem}"));
        return None;
    }
    if identity::adapters::names().any(|known| known.eq_ignore_ascii_case(name)) {
        let problem = format!("callsign knows `{name}` itself; choose another name for a host of your own");
        context.mistake(field.key_at, problem);
        return None;
    }
    Id::new(name).ok()
}

fn description(
    context: Context<'_>,
    field: &Field<'_>,
    table: &Table<'_>,
) -> (Option<String>, Vec<(Placeholder, Place)>) {
    let known: Vec<_> = ["client"].into_iter().chain(FIELDS.map(|(key, _)| key)).collect();
    table.check_keys(context, &known, &[]);
    let client = table.get("client").and_then(|field| field.text(context)).map(str::to_owned);
    if table.get("session").is_none() && table.get("thread").is_none() {
        let problem = format!("`{}` says nothing about who calls; give it `session` or `thread`", field.key);
        context.absent(field.key_at, problem);
    }
    let place = |(key, placeholder)| Some((placeholder, place(context, table.get(key)?)?));
    (client, FIELDS.into_iter().filter_map(place).collect())
}

/// `{ meta = "KEY" }` or `{ header = "NAME" }`.
fn place(context: Context<'_>, field: &Field<'_>) -> Option<Place> {
    let expected = "{ meta = \"KEY\" } or { header = \"NAME\" }";
    if !field.is_table() {
        return field.wrong(context, expected, "");
    }
    let table = field.table(context, "")?;
    table.check_keys(context, &["meta", "header"], &[]);
    let (meta, header) = (table.get("meta"), table.get("header"));
    match (meta, header) {
        (Some(meta), None) => checked(context, meta, check_meta).map(|key| Place::Meta(key.to_owned())),
        (None, Some(header)) => checked(context, header, check_evidence_header)
            .map(|name| Place::Header(name.to_ascii_lowercase())),
        (Some(_), Some(_)) => {
            context.mistake(field.at, format!("{} has both `meta` and `header`; keep one", field.label));
            None
        }
        (None, None) => {
            context.absent(field.at, format!("{} must be {expected}", field.label));
            None
        }
    }
}

fn checked<'i>(
    context: Context<'_>,
    field: &Field<'i>,
    check: fn(&str) -> Result<(), String>,
) -> Option<&'i str> {
    let name = field.text(context)?;
    check(name).map_err(|problem| context.mistake(field.at, problem)).ok()?;
    Some(name)
}
