//! One session: its threads as a tree, its calls on a time line.

use maud::{Markup, html};

use super::{Nav, Page, calls, runs, timeline, tree};
use crate::layout::{empty, heading, id, optional, pager, pair, section, trust};
use crate::text::{Text, grouped};
use crate::view::{Session, Thread};
use crate::{href, time};

pub(crate) fn page(session: &Session, later: bool, now: u64) -> Page {
    let row = &session.row;
    let own = href::path(&["sessions", row.host.raw(), row.id.raw()]);
    let older = session.older.as_ref().map(|key| href::query(&own, &[("before", key.as_str())]));
    let title = row.title.as_ref().filter(|title| !title.is_empty()).unwrap_or(&row.id);
    let main = html! {
        (heading("Session", html! { p { strong { (title) } " " (trust(row.trust)) " " span.chip.calm { (row.status) } } }))
        dl.pairs.wide {
            (pair("Host", html! { (row.host) }))
            (pair("Id", id(&row.id)))
            (pair("Workspace", optional(session.workspace.as_ref())))
            @if session.runtime.is_some() { (pair("Box", html! { (optional(session.runtime.as_ref())) @if let Some(image) = &session.image { " " span.hint { (image) } } })) }
            @if !session.limits.is_empty() { (pair("Limits", html! { @for (name, word) in &session.limits { span.chip.calm { (name) " " (word) } " " } })) }
        }
        @if !session.runs.is_empty() { (section("Runs", runs::rows(&session.runs, now))) }
        (section("Threads", threads(session, now)))
        (section("Time line", html! {
            @if session.calls.is_empty() {
                (empty("No calls", "This session has not called any server, or its calls are older than what is kept.", None))
            } @else { (timeline::draw(&session.calls, now)) }
        }))
        @if !session.calls.is_empty() { (section("Calls", calls::rows(&session.calls, now))) }
        (pager(later.then_some(own.as_str()), older.as_deref()))
    };
    Page::new(title.clone(), Nav::Sessions, main)
}

fn threads(session: &Session, now: u64) -> Markup {
    if session.threads.is_empty() {
        return html! { p.hint { "No thread is known." } };
    }
    let parents: Vec<_> = session
        .threads
        .iter()
        .map(|thread| (thread.id.raw(), thread.parent.as_ref().map(Text::raw)))
        .collect();
    html! {
        ul.tree {
            @for (at, depth) in tree::order(&parents) {
                li class={ "depth-" (depth.min(8)) } { (thread(&session.threads[at], session, now)) }
            }
        }
    }
}

fn thread(thread: &Thread, session: &Session, now: u64) -> Markup {
    let filter =
        [("host", session.row.host.raw()), ("session", session.row.id.raw()), ("thread", thread.id.raw())];
    html! {
        span.branch aria-hidden="true" { "└" }
        a href=(href::query("/calls", &filter)) {
            @match &thread.title { Some(title) if !title.is_empty() => { (title.line(60)) } _ => { (id(&thread.id)) } }
        }
        " " span.hint { (grouped(thread.calls)) " calls" @if thread.errors > 0 { ", " span.bad-text { (grouped(thread.errors)) " errors" } } }
        @if let Some(at) = thread.last_at { " " span.hint { "last " (time::at(at, now)) } }
    }
}
