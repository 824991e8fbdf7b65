//! One server: its processes, its health, its tools.

use maud::{Markup, html};

use super::servers::health;
use super::{Nav, Page};
use crate::layout::{heading, id, optional, pair, section, table, trust};
use crate::text::grouped;
use crate::view::{Child, Server, Tool, ToolState};
use crate::{href, time};

pub(crate) fn page(server: &Server, now: u64) -> Page {
    let row = &server.row;
    let main = html! {
        (heading("Server", html! { p { strong { (row.name) } " " (health(&row.health)) } }))
        @if let Some(breaker) = &server.breaker {
            div.note.bad {
                strong { (grouped(breaker.failures)) " failed starts. " }
                @if let Some(until) = breaker.until { "It is tried again at " (time::at(until, now)) "." }
                pre.text { (breaker.last.block()) }
            }
        }
        dl.pairs.wide {
            (pair("Reached by", html! { (row.kind) " " code { (row.target) } }))
            (pair("Isolation", optional(row.isolation.as_ref())))
            (pair("Requires", trust(server.require)))
            (pair("Hooks", html! { @if server.hooks.is_empty() { span.none { "–" } } @for hook in &server.hooks { code { (hook) } " " } }))
            (pair("Pinned", html! { @if row.pinned { "yes" } @else { "no" } }))
            (pair("Fingerprint", html! { @match &server.fingerprint { Some(hash) => { (id(hash)) } None => { span.none { "–" } } } }))
            (pair("Calls", html! { a href=(href::query("/calls", &[("server", row.name.raw())])) { (grouped(row.calls)) " this hour" } ", " (grouped(row.errors)) " errors" }))
        }
        (section("Children", children(&server.children, now)))
        (section("Catalogue", catalogue(server)))
    };
    Page::new(row.name.clone(), Nav::Servers, main)
}

fn children(children: &[Child], now: u64) -> Markup {
    if children.is_empty() {
        return html! { p.hint { "No process runs. One is started by the first call that needs it." } };
    }
    let whom = |child: &Child| {
        html! {
            @match (&child.host, &child.session) {
                (Some(host), Some(session)) => {
                    span.host { (host) } " " a href=(href::path(&["sessions", host.raw(), session.raw()])) { (id(session)) }
                    @if let Some(thread) = child.thread.as_ref().filter(|thread| *thread != session) { " " span.sub { "↳ " (id(thread)) } }
                }
                _ => { span.none { "nobody in particular" } }
            }
        }
    };
    table(
        html! { th { "Process" } th { "For" } th { "Trust" } th { "State" } th.number { "Under way" } th { "Since" } },
        html! {
            @for child in children {
                tr {
                    td.number-left { @match child.pid { Some(pid) => { (pid) } None => { span.none { "–" } } } }
                    td { (whom(child)) }
                    td.nowrap { (trust(child.trust)) }
                    td { (child.state) }
                    td.number data-l="Under way" { (grouped(child.under_way)) }
                    td.nowrap { (time::at(child.started_at, now)) }
                }
            }
        },
    )
}

fn catalogue(server: &Server) -> Markup {
    if server.catalogue.is_empty() {
        return html! { p.hint { "It has not listed its tools yet: that happens when a host asks for them." } };
    }
    html! {
        @if server.row.withheld > 0 {
            div.note.bad { p { "Some tools are not those that were approved, and are withheld. Look at them below, then:" } pre.command { code { "callsign servers approve " (server.row.name) } } }
        }
        ul.catalogue { @for tool in &server.catalogue { li { (entry(tool)) } } }
    }
}

fn entry(tool: &Tool) -> Markup {
    let (tone, word) = match tool.state {
        ToolState::Same => ("calm", "as approved"),
        ToolState::New => ("going", "new"),
        ToolState::Changed => ("bad", "changed"),
        ToolState::LookAlike => ("bad", "looks like another"),
    };
    html! {
        p { strong.tool { (tool.name) } " " span class={ "chip " (tone) } { (word) } }
        p.description { (tool.description.line(600)) }
        p.hint { "hash " code.id title=(tool.hash) { (tool.hash.start(16)) } @if let Some(approved) = &tool.approved { ", approved " code.id title=(approved) { (approved.start(16)) } } }
    }
}
