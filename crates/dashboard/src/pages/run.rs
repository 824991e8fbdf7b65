//! One run: its log while it works, what came of it, and a way to end it.

use maud::{Markup, html};

use super::{Nav, Page, diff, runs};
use crate::layout::{heading, id, optional, pair, run_status, section, table};
use crate::text::{bytes, grouped};
use crate::view::{Artifact, Ended, Run, RunStatus};
use crate::{href, time};

pub(crate) fn page(run: &Run, csrf: &str, now: u64) -> Page {
    let row = &run.row;
    let main = html! {
        (heading("Run", html! {
            p { (run_status(row.status)) " " @if let Some(phase) = &run.phase { span.hint { (phase) } } }
            @if !row.status.is_over() {
                form.inline method="post" action=(href::path(&["runs", row.id.raw(), "cancel"])) {
                    input type="hidden" name="csrf" value=(csrf);
                    @if run.cancel_requested { span.hint { "Asked to end …" } } @else { button.danger type="submit" { "Cancel run" } }
                }
            }
        }))
        pre.text.task tabindex="0" { (row.task.block()) }
        dl.pairs.wide {
            (pair("Run", id(&row.id)))
            (pair("Session", html! { a href=(href::path(&["sessions", "callsign", row.session.raw()])) { (id(&row.session)) } }))
            (pair("Submitted", time::at(row.created_at, now)))
            (pair("Took", runs::took(row, now)))
            (pair("Model", optional(run.model.as_ref())))
            (pair("Steps", html! { (grouped(run.steps)) " steps, " (grouped(run.tools)) " tools" }))
            @if let Some(usage) = run.usage { (pair("Tokens", html! { (grouped(usage.input_tokens)) " in, " (grouped(usage.output_tokens)) " out" @if usage.cost_micros > 0 { ", $" (dollars(usage.cost_micros)) } })) }
            (pair("Calls", html! { a href=(href::query("/calls", &[("run", row.id.raw())])) { "of this run" } }))
        }
        (outcome(run))
        (section("Log", html! {
            @if run.log.text.is_empty() { p.hint { @if row.status == RunStatus::Queued { "It waits for its turn." } @else { "Nothing was written yet." } } }
            @else {
                @if run.log.truncated { p.hint { "The end of it; all of it is in the artifact " code { "run.log" } "." } }
                pre.text.log #log data-follow tabindex="0" { (run.log.text.block()) }
            }
        }))
        @if let Some(changes) = &run.diff { (section("Changed files", diff::draw(changes))) }
        (section("Artifacts", artifacts(run, now)))
    };
    Page::new(row.task.clone(), Nav::Runs, main)
}

fn outcome(run: &Run) -> Markup {
    html! {
        @match &run.ended {
            None => {}
            Some(Ended::Completed { output, structured }) => {
                (section("Final output", html! { pre.text.output tabindex="0" { (output.block()) } }))
                @if let Some(structured) = structured { (section("Structured output", html! { pre.text tabindex="0" { (structured.block()) } })) }
            }
            Some(Ended::Failed { code, message }) => { div.note.bad { strong { (code) } pre.text { (message.block()) } } }
            Some(Ended::Canceled { by }) => { p.note { "Canceled by " (by) "." } }
        }
    }
}

fn artifacts(run: &Run, now: u64) -> Markup {
    if run.artifacts.is_empty() {
        return html! { p.hint { "None yet. The answer, the log and changed files are kept when a run ends." } };
    }
    let row = |artifact: &Artifact| {
        html! {
            tr {
                td { a href=(href::path(&["runs", run.row.id.raw(), "artifacts", artifact.path.raw()])) download { (artifact.path) } }
                td { (artifact.kind) }
                td.number { (bytes(artifact.size)) }
                td.nowrap { (time::at(artifact.modified, now)) }
            }
        }
    };
    table(
        html! { th { "File" } th { "Kind" } th.number { "Size" } th { "Modified" } },
        html! { @for artifact in &run.artifacts { (row(artifact)) } },
    )
}

fn dollars(micros: u64) -> String {
    format!("{}.{:04}", micros / 1_000_000, micros % 1_000_000 / 100)
}
