//! The list of servers.

use maud::{Markup, html};

use super::{Nav, Page};
use crate::href;
use crate::layout::{empty, heading, table};
use crate::text::grouped;
use crate::view::{Health, ServerRow};

pub(crate) fn page(servers: &[ServerRow]) -> Page {
    let main = html! {
        (heading("Servers", html! { p { "What stands behind callsign. Figures are of the last hour." } }))
        @if servers.is_empty() {
            (empty("No servers yet", "Name one in callsign.toml, or put callsign in front of those of a host.", Some("callsign init\ncallsign install codex --dry-run")))
        } @else {
            (table(
                html! { th { "Server" } th { "Health" } th { "Reached by" } th.number { "Children" } th.number { "Tools" } th.number { "Calls" } th.number { "Errors" } },
                html! { @for server in servers { (row(server)) } },
            ))
        }
    };
    Page::new("Servers", Nav::Servers, main)
}

fn row(server: &ServerRow) -> Markup {
    html! {
        tr {
            td { a href=(href::path(&["servers", server.name.raw()])) { strong { (server.name) } } @if server.pinned { " " span.chip.calm { "pinned" } } }
            td { (health(&server.health)) }
            td { (server.kind) " " code { (server.target.line(48)) } @if let Some(isolation) = &server.isolation { " " span.hint { (isolation) } } }
            td.number data-l="Children" { (grouped(server.children)) }
            td.number data-l="Tools" { (grouped(server.tools)) @if server.withheld > 0 { " " span.bad-text { (grouped(server.withheld)) " withheld" } } }
            td.number data-l="Calls" { (grouped(server.calls)) }
            td.number data-l="Errors" { (grouped(server.errors)) }
        }
    }
}

pub(crate) fn health(health: &Health) -> Markup {
    let (mark, tone, word, why) = match health {
        Health::Fine => ("✓", "good", "fine", None),
        Health::Unused => ("○", "calm", "not used yet", None),
        Health::Failing(why) => ("!", "warn", "failing", Some(why)),
        Health::Resting(why) => ("✕", "bad", "not started", Some(why)),
    };
    html! {
        span class={ "chip " (tone) } { span aria-hidden="true" { (mark) } " " (word) }
        @if let Some(why) = why { p.hint { (why.line(200)) } }
    }
}
