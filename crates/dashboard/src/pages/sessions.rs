//! The list of sessions.

use maud::{Markup, html};

use super::{Nav, Page};
use crate::layout::{empty, heading, id, pager, table, trust};
use crate::text::grouped;
use crate::view::{self, SessionRow};
use crate::{href, time};

pub(crate) fn page(sessions: &view::Page<SessionRow>, later: bool, now: u64) -> Page {
    let older = sessions.older.as_ref().map(|key| href::query("/sessions", &[("before", key.as_str())]));
    let main = html! {
        (heading("Sessions", html! { p { "Conversations that have called, of every host and of our own boxes." } }))
        @if sessions.rows.is_empty() {
            (empty("No sessions yet", "A session is here as soon as a host has said which one calls. To run one in a box of ours:", Some("callsign submit demo \"Say hello\" --wait")))
        } @else { (rows(&sessions.rows, now)) }
        (pager(later.then_some("/sessions"), older.as_deref()))
    };
    Page::new("Sessions", Nav::Sessions, main)
}

pub(crate) fn rows(sessions: &[SessionRow], now: u64) -> Markup {
    table(
        html! { th { "Session" } th { "Host" } th { "Status" } th { "Trust" } th.number { "Calls" } th { "Last" } },
        html! {
            @for session in sessions {
                tr {
                    td {
                        a href=(href::path(&["sessions", session.host.raw(), session.id.raw()])) {
                            @match &session.title { Some(title) if !title.is_empty() => { (title.line(60)) } _ => { (id(&session.id)) } }
                        }
                        @if session.threads > 1 { " " span.hint { (grouped(session.threads)) " threads" } }
                    }
                    td { (session.host) }
                    td { (session.status) }
                    td.nowrap { (trust(session.trust)) }
                    td.number data-l="Calls" { @match session.calls { Some(calls) => { (grouped(calls)) } None => { span.none { "–" } } } }
                    td.nowrap { @if let Some(at) = session.last_at { (time::at(at, now)) } @else { span.none { "–" } } }
                }
            }
        },
    )
}
