//! Hooks and how long they take.

use maud::{Markup, html};

use super::{Nav, Page};
use crate::layout::{empty, heading, table};
use crate::text::grouped;
use crate::time;
use crate::view::Hook;

pub(crate) fn page(hooks: &[Hook]) -> Page {
    let main = html! {
        (heading("Hooks", html! { p { "Files of JavaScript that run around calls, in this order." } }))
        @if hooks.is_empty() {
            (empty("No hooks", "A hook can add headers, change arguments or refuse a call. Name files under [hooks] in callsign.toml, and try one first:", Some("callsign hooks check my-hook.js")))
        } @else {
            (table(
                html! { th { "File" } th { "Handles" } th { "For" } th.number { "Runs" } th.number { "Failed" } th.number { "On average" } th.number { "In all" } },
                html! { @for hook in hooks { (row(hook)) } },
            ))
        }
    };
    Page::new("Hooks", Nav::Hooks, main)
}

fn row(hook: &Hook) -> Markup {
    html! {
        tr {
            td {
                code { (hook.file) }
                @if hook.optional { " " span.chip.calm { "optional" } }
                @if hook.keeps_state { " " span.chip.calm { "keeps state" } }
                @if let Some(fault) = &hook.last_fault { p.hint.bad-text { (fault.line(300)) } }
            }
            td { @for event in &hook.events { p.nowrap { code { (event.name) } " " span.hint { "line " (event.line) } } } }
            td { @if hook.servers.is_empty() { "every server" } @for server in &hook.servers { (server) " " } }
            td.number data-l="Runs" { (grouped(hook.runs)) }
            td.number data-l="Failed" { (grouped(hook.failures)) }
            td.number data-l="On average" { @if hook.runs > 0 { (time::took(average(hook))) } @else { span.none { "–" } } }
            td.number data-l="In all" { (time::took(hook.took_ms)) }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an average needs few digits")]
fn average(hook: &Hook) -> f64 {
    hook.took_ms / hook.runs.max(1) as f64
}
