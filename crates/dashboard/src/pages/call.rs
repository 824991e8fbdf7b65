//! One call: who made it, how that is known, and what its server saw.

use maud::{Markup, html};

use super::{Nav, Page, calls};
use crate::layout::{heading, id, optional, outcome, pair, section, trust};
use crate::text::{Text, bytes};
use crate::view::{Call, Evidence, Field, Kept, Seen};
use crate::{href, time};

/// Headers and variables that are secrets whatever their value is. Whoever fills the view hides more; this is the last wall.
const SECRET: [&str; 9] =
    ["authorization", "cookie", "token", "secret", "password", "passwd", "api-key", "apikey", "credential"];

pub(crate) fn page(call: &Call, now: u64) -> Page {
    let row = &call.row;
    let name = row.tool.as_ref().unwrap_or(&row.method);
    let main = html! {
        (heading("Call", html! { p { (calls::tool(row)) " " (outcome(row.outcome)) } }))
        @if !row.spoof.is_empty() {
            p.note.bad { strong { "Something was forged. " } "It was removed before the server saw the call, and counted for nothing: " @for spoof in &row.spoof { code { (spoof) } " " } }
        }
        @if let Some(reason) = &call.reason { p.note { (reason.line(2000)) } }
        div.columns {
            (section("Identity", identity(call)))
            (section("The call", facts(call, now)))
        }
        (section("Evidence", evidence(&call.evidence)))
        @match &call.kept {
            Kept::Whole(seen) => { (saw(seen)) }
            Kept::DigestsOnly => {
                (section("As the server saw it", html! {
                    div.empty { p.what { "Not kept any more: digests only" } p { "Headers, " code { "_meta" } " and arguments are kept in memory for recent calls. What stays is in the ledger, and is above." } }
                }))
            }
        }
    };
    Page::new(name.clone(), Nav::Calls, main)
}

fn identity(call: &Call) -> Markup {
    let row = &call.row;
    html! {
        dl.pairs {
            (pair("Trust", html! { (trust(row.trust)) " " span.hint { "by " (row.source) } }))
            (pair("Host", optional(row.host.as_ref())))
            (pair("Session", match (&row.host, &row.session) {
                (Some(host), Some(session)) => html! { a href=(href::path(&["sessions", host.raw(), session.raw()])) { (session) } },
                _ => optional(row.session.as_ref()),
            }))
            (pair("Thread", optional(row.thread.as_ref())))
            (pair("Parent", optional(call.parent.as_ref())))
            (pair("Title", optional(row.title.as_ref())))
            @if let Some(run) = &row.run { (pair("Run", html! { a href=(href::path(&["runs", run.raw()])) { (run) } })) }
            (pair("Workspace", optional(call.workspace.as_ref())))
        }
        @if let Some(host) = row.host.as_ref().filter(|host| !host.is_empty()) {
            p { a href=(href::query("/why", &[("host", host.raw()), ("server", row.server.raw())])) { "How this server knows its caller" } }
        }
    }
}

fn facts(call: &Call, now: u64) -> Markup {
    let row = &call.row;
    html! {
        dl.pairs {
            (pair("Time", time::at(row.at, now)))
            (pair("Took", html! { @match row.duration_ms { Some(took) => { (time::took(took)) } None => { "under way" } } }))
            (pair("Server", html! { a href=(href::path(&["servers", row.server.raw()])) { (row.server) } }))
            (pair("Method", html! { (row.method) }))
            (pair("Call", id(&call.call)))
            (pair("Turn", optional(call.turn.as_ref())))
            (pair("Target", optional(call.target.as_ref())))
            (pair("Arguments", html! { (bytes(call.size)) @if let Some(digest) = &call.digest { " " span.hint { "SHA-256 " } code.id title=(digest) { (digest.start(16)) } } }))
            (pair("Result", html! { @match call.result_size { Some(size) => { (bytes(size)) } None => { span.none { "–" } } } }))
            @if let Some(trace) = &call.trace { (pair("Trace", id(trace))) }
        }
    }
}

fn evidence(evidence: &[Evidence]) -> Markup {
    html! {
        @if evidence.is_empty() {
            p.hint { "Nothing arrived that says who calls, or it is not kept any more." }
        } @else {
            ol.evidence {
                @for item in evidence {
                    li.taken[item.taken] {
                        span class={ "chip " (if item.taken { "good" } else { "calm" }) } { @if item.taken { "✓ taken" } @else { "– not taken" } }
                        " " code { (item.place) } " = " code.said { (item.said) }
                        p.hint { (item.why.line(500)) }
                    }
                }
            }
        }
    }
}

fn saw(seen: &Seen) -> Markup {
    html! {
        (section("As the server saw it", html! {
            @for (name, fields) in [("Headers", &seen.headers), ("_meta", &seen.meta), ("Environment", &seen.environment)] {
                @if !fields.is_empty() {
                    details open { summary { (name) " " span.count { (fields.len()) } } (table(fields)) }
                }
            }
            @for (name, text) in [("Arguments", &seen.arguments), ("Result", &seen.result)] {
                @if let Some(text) = text { details { summary { (name) } pre.text tabindex="0" { (text.block()) } } }
            }
        }))
    }
}

fn table(fields: &[Field]) -> Markup {
    html! {
        dl.fields {
            @for field in fields {
                div {
                    dt { code { (field.name) } }
                    dd {
                        @match field.value.as_ref().filter(|_| !is_secret(&field.name)) {
                            Some(value) => { code { (value.line(2000)) } }
                            None => { span.hidden-value { "hidden" } }
                        }
                    }
                }
            }
        }
    }
}

fn is_secret(name: &Text) -> bool {
    let name = name.raw().to_ascii_lowercase().replace('_', "-");
    SECRET.iter().any(|secret| name.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_hidden_even_where_nobody_said_that_it_is_one() {
        for name in ["Authorization", "X-Api-Key", "X_API_KEY", "GITHUB_TOKEN", "Set-Cookie", "db_password"] {
            let fields = [Field { name: name.into(), value: Some("sk-CANARY-7f3a".into()) }];
            assert!(!table(&fields).into_string().contains("CANARY"), "{name}");
        }
        let fields = [Field { name: "Callsign-Session".into(), value: Some("ses_1".into()) }];
        assert!(table(&fields).into_string().contains("ses_1"));
    }
}
