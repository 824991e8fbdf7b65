//! The first page: what happens now.

use maud::{Markup, html};

use super::{Nav, Page, calls, runs, sessions};
use crate::layout::{empty, heading, section, table, trust};
use crate::text::grouped;
use crate::view::{HostSeen, Minute, Overview};
use crate::{href, time};

/// Minutes that are drawn, and the drawing's size in its own units.
const MINUTES: usize = 60;
const WIDTH: usize = 600;
const HEIGHT: u64 = 90;

pub(crate) fn page(overview: &Overview, now: u64) -> Page {
    let skipped = overview.minutes.len().saturating_sub(MINUTES);
    let minutes = &overview.minutes[skipped..];
    let errors: u64 = minutes.iter().map(|minute| u64::from(minute.errors)).sum();
    let latest = minutes.last().map_or(0, |minute| u64::from(minute.fine) + u64::from(minute.errors));
    let main = html! {
        (heading("Overview", html! {}))
        @if overview.hosts.is_empty() && overview.sessions.is_empty() {
            (empty("Nobody has called yet", "Put callsign in front of the servers of a host, then use one of its tools; the call appears here by itself.", Some("callsign install codex --dry-run\ncallsign install codex")))
        }
        div.figures {
            (figure("Calls this minute", latest, overview.under_way, "under way"))
            (figure("Errors this hour", errors, overview.errors.len() as u64, "shown below"))
            (figure("Sessions now", overview.sessions.len() as u64, overview.runs.len() as u64, "runs"))
            (figure("Hosts seen", overview.hosts.len() as u64, overview.hosts.iter().map(|host| host.sessions).sum(), "sessions"))
        }
        (section("Calls a minute, last hour", chart(minutes)))
        div.columns {
            (section("Hosts", hosts(&overview.hosts, now)))
            (section("Sessions now", html! {
                @if overview.sessions.is_empty() { p.hint { "No session is at work." } } @else { (sessions::rows(&overview.sessions, now)) }
            }))
        }
        @if !overview.runs.is_empty() { (section("Runs now", runs::rows(&overview.runs, now))) }
        (section("Latest errors", html! {
            @if overview.errors.is_empty() { p.hint { "None." } } @else { (calls::rows(&overview.errors, now)) }
        }))
    };
    Page::new("Overview", Nav::Overview, main)
}

fn figure(name: &str, number: u64, more: u64, what: &str) -> Markup {
    html! { div.figure { span.name { (name) } span.value { (grouped(number)) } span.more { (grouped(more)) " " (what) } } }
}

fn hosts(hosts: &[HostSeen], now: u64) -> Markup {
    if hosts.is_empty() {
        return html! { p.hint { "None yet. " code { "callsign doctor" } " shows those on this machine." } };
    }
    table(
        html! { th { "Host" } th { "Trust" } th.number { "Calls" } th.number { "Sessions" } th { "Last" } },
        html! {
            @for host in hosts {
                tr {
                    td { a href=(href::query("/calls", &[("host", host.name.raw())])) { (host.name) } @if let Some(version) = &host.version { " " span.hint { (version) } } }
                    td { (trust(host.trust)) }
                    td.number data-l="Calls" { (grouped(host.calls)) }
                    td.number data-l="Sessions" { (grouped(host.sessions)) }
                    td.nowrap { @if let Some(at) = host.last_at { (time::at(at, now)) } @else { span.none { "–" } } }
                }
            }
        },
    )
}

fn chart(minutes: &[Minute]) -> Markup {
    let most = minutes
        .iter()
        .map(|minute| u64::from(minute.fine) + u64::from(minute.errors))
        .max()
        .unwrap_or(0)
        .max(1);
    let wide = WIDTH / MINUTES;
    let offset = MINUTES.saturating_sub(minutes.len());
    let total: u64 = minutes.iter().map(|minute| u64::from(minute.fine) + u64::from(minute.errors)).sum();
    html! {
        svg.chart viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label={ (grouped(total)) " calls in the last hour, at most " (grouped(most)) " a minute" } {
            line.axis x1="0" x2=(WIDTH) y1=(HEIGHT) y2=(HEIGHT) {}
            @for (at, minute) in minutes.iter().enumerate() {
                @let errors = scaled(minute.errors, most);
                @let fine = scaled(minute.fine, most).min(HEIGHT - errors);
                @let x = (at + offset) * wide;
                @if fine > 0 { rect.fine x=(x + 1) y=(HEIGHT - fine - errors) width=(wide - 2) height=(fine) {} }
                @if errors > 0 { rect.errors x=(x + 1) y=(HEIGHT - errors) width=(wide - 2) height=(errors) {} }
            }
        }
        p.legend { span.key.fine { "fine" } span.key.errors { "errors" } span { "at most " (grouped(most)) " a minute" } }
    }
}

/// At least one unit for what is not nothing.
fn scaled(count: u32, most: u64) -> u64 {
    let count = u64::from(count);
    if count == 0 { 0 } else { (count.saturating_mul(HEIGHT) / most).max(2) }
}
