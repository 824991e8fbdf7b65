//! The list of calls, and the table that other pages use too.

use maud::{Markup, html};

use super::{Nav, Page};
use crate::layout::{empty, heading, id, optional, outcome, pager, table, trust};
use crate::route::CallFilter;
use crate::view::{self, CallRow, Outcome, Trust};
use crate::{href, time};

pub(crate) fn page(calls: &view::Page<CallRow>, filter: &CallFilter, later: bool, now: u64) -> Page {
    let newest = filter.address(None);
    let older = calls.older.as_ref().map(|key| filter.address(Some(key)));
    let main = html! {
        (heading("Calls", html! { p { "Every call that passed, newest first. Times are UTC." } }))
        (filters(filter))
        @if calls.rows.is_empty() {
            @if filter.is_any() && !later {
                (empty("No calls yet", "They appear here as soon as a host uses a tool through callsign. Put it in front of a host's servers:", Some("callsign install codex --dry-run")))
            } @else {
                (empty("No call is like that", "Leave out a filter, or go back to the newest.", None))
            }
        } @else {
            (rows(&calls.rows, now))
        }
        (pager(later.then_some(newest.as_str()), older.as_deref()))
    };
    Page::new("Calls", Nav::Calls, main)
}

fn filters(filter: &CallFilter) -> Markup {
    let text = |name: &'static str, label: &'static str, value: &Option<String>| {
        html! { label { span { (label) } input type="text" name=(name) value=[value.as_deref()] autocomplete="off" spellcheck="false"; } }
    };
    html! {
        form.filters method="get" action="/calls" role="search" {
            (text("host", "Host", &filter.host))
            (text("session", "Session", &filter.session))
            (text("server", "Server", &filter.server))
            (text("tool", "Tool", &filter.tool))
            label { span { "Outcome" }
                select name="outcome" {
                    option value="" { "any" }
                    @for outcome in Outcome::ALL { option value=(outcome.as_str()) selected[filter.outcome == Some(outcome)] { (outcome.as_str()) } }
                }
            }
            label { span { "Trust" }
                select name="trust" {
                    option value="" { "any" }
                    @for trust in Trust::ALL { option value=(trust.as_str()) selected[filter.trust == Some(trust)] { (trust.as_str()) } }
                }
            }
            @if let Some(thread) = &filter.thread { input type="hidden" name="thread" value=(thread); }
            @if let Some(run) = &filter.run { input type="hidden" name="run" value=(run); }
            div.buttons {
                button.primary type="submit" { "Filter" }
                @if !filter.is_any() { a href="/calls" { "Clear" } }
            }
        }
    }
}

pub(crate) fn rows(calls: &[CallRow], now: u64) -> Markup {
    table(
        html! { th { "Time" } th { "Outcome" } th { "Server and tool" } th { "Caller" } th { "Trust" } th.number { "Took" } },
        html! { @for call in calls { (row(call, now)) } },
    )
}

fn row(call: &CallRow, now: u64) -> Markup {
    html! {
        tr id={ "c-" (call.key.as_str()) } {
            td.nowrap { a href=(address(call)) { (time::at(call.at, now)) } }
            td.nowrap { (outcome(call.outcome)) }
            td { (tool(call)) }
            td { (caller(call)) }
            td.nowrap { (trust(call.trust)) @if !call.spoof.is_empty() { " " span.chip.bad title="Something was forged, and was removed" { span aria-hidden="true" { "⚑" } " forged" } } }
            td.number { @match call.duration_ms { Some(took) => { (time::took(took)) } None => { span.none { "–" } } } }
        }
    }
}

pub(crate) fn address(call: &CallRow) -> String {
    href::path(&["calls", call.key.as_str()])
}

pub(crate) fn tool(call: &CallRow) -> Markup {
    html! {
        span.server { (call.server) }
        " "
        @match &call.tool { Some(tool) => { strong.tool { (tool) } } None => { span.method { (call.method) } } }
    }
}

fn caller(call: &CallRow) -> Markup {
    html! {
        span.host { (optional(call.host.as_ref())) }
        @if let (Some(host), Some(session)) = (&call.host, &call.session) {
            " "
            a href=(href::path(&["sessions", host.raw(), session.raw()])) {
                @match &call.title { Some(title) if !title.is_empty() => { (title.line(48)) } _ => { (id(session)) } }
            }
            @if let Some(thread) = call.thread.as_ref().filter(|thread| *thread != session) { " " span.sub { "↳ " (id(thread)) } }
        }
    }
}
