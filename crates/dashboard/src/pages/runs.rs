//! The list of runs.

use maud::{Markup, html};

use super::{Nav, Page};
use crate::layout::{empty, heading, id, pager, run_status, table};
use crate::view::{self, RunRow, RunStatus};
use crate::{href, time};

pub(crate) fn page(runs: &view::Page<RunRow>, later: bool, now: u64) -> Page {
    let older = runs.older.as_ref().map(|key| href::query("/runs", &[("before", key.as_str())]));
    let main = html! {
        (heading("Runs", html! { p { "Tasks that were submitted to sessions of ours, newest first." } }))
        @if runs.rows.is_empty() {
            (empty("No runs yet", "Submit a task, here or through the tools of callsign mcp:", Some("callsign submit demo \"Say hello\" --wait")))
        } @else { (rows(&runs.rows, now)) }
        (pager(later.then_some("/runs"), older.as_deref()))
    };
    Page::new("Runs", Nav::Runs, main)
}

pub(crate) fn rows(runs: &[RunRow], now: u64) -> Markup {
    table(
        html! { th { "Run" } th { "Status" } th { "Session" } th { "Submitted" } th.number { "Took" } },
        html! {
            @for run in runs {
                tr {
                    td.task {
                        a href=(href::path(&["runs", run.id.raw()])) { (run.task.line(110)) }
                        @if let Some(last) = run.last.as_ref().filter(|_| run.status == RunStatus::Running) { p.hint { (last.line(90)) } }
                    }
                    td.nowrap { (run_status(run.status)) }
                    td { a href=(href::path(&["sessions", "callsign", run.session.raw()])) { @match &run.session_name { Some(name) if !name.is_empty() => { (name.line(40)) } _ => { (id(&run.session)) } } } }
                    td.nowrap { (time::at(run.created_at, now)) }
                    td.number { (took(run, now)) }
                }
            }
        },
    )
}

pub(crate) fn took(run: &RunRow, now: u64) -> Markup {
    html! {
        @match run.started_at {
            Some(started) => { (time::between(run.ended_at.unwrap_or(now).saturating_sub(started))) }
            None => { span.none { "–" } }
        }
    }
}
