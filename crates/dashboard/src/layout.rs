//! What every page has around it, and the small pieces that pages share.

#![expect(clippy::needless_pass_by_value, reason = "markup is made where it is handed over")]

use maud::{DOCTYPE, Markup, html};
use model::Principal;

use crate::assets;
use crate::pages::{Nav, Page};
use crate::text::Text;
use crate::view::{Outcome, RunStatus, Trust};

pub(crate) struct Shell<'a> {
    pub(crate) page: &'a Page,
    /// Who is logged in, and the token of their forms.
    pub(crate) who: Option<(&'a Principal, &'a str)>,
    /// Where it is told that the page has changed, and what it shows.
    pub(crate) live: Option<(String, u64)>,
}

pub(crate) fn shell(shell: &Shell<'_>) -> Markup {
    let page = shell.page;
    let (live, beat) = match &shell.live {
        Some((live, beat)) => (Some(live.as_str()), Some(beat)),
        None => (None, None),
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " · Callsign" }
                link rel="icon" href=(assets::ICON) type="image/svg+xml";
                link rel="stylesheet" href=(assets::STYLE);
                script src=(assets::SCRIPT) {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="/" { span.mark aria-hidden="true" {} "Callsign" }
                    @if let Some((who, csrf)) = shell.who {
                        nav aria-label="Pages" {
                            @for nav in Nav::ALL {
                                a href=(nav.address()) aria-current=[(page.nav == Some(nav)).then_some("page")] { (nav.label()) }
                            }
                        }
                        div.aside {
                            span #live .live hidden { "live" }
                            button #theme .quiet type="button" hidden { "Theme" }
                            form method="post" action="/logout" {
                                input type="hidden" name="csrf" value=(csrf);
                                button.quiet type="submit" title=(format!("Logged in as {who}")) { "Log out" }
                            }
                        }
                    }
                }
                main #main tabindex="-1" data-live=[live] data-beat=[beat] { (page.main) }
            }
        }
    }
}

/// A heading with what it is about.
pub(crate) fn heading(title: &str, what: Markup) -> Markup {
    html! { div.heading { h1 { (title) } (what) } }
}

pub(crate) fn section(title: &str, content: Markup) -> Markup {
    html! { section { h2 { (title) } (content) } }
}

/// Where there is nothing yet: what it would be, and how it comes about.
pub(crate) fn empty(what: &str, how: &str, command: Option<&str>) -> Markup {
    html! {
        div.empty {
            p.what { (what) }
            p { (how) }
            @if let Some(command) = command { pre.command { code { (command) } } }
        }
    }
}

/// Wide things scroll by themselves, so that the page does not.
pub(crate) fn table(head: Markup, rows: Markup) -> Markup {
    html! { div.scroll tabindex="0" role="group" { table { thead { tr { (head) } } tbody { (rows) } } } }
}

pub(crate) fn pair(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

pub(crate) fn optional(value: Option<&Text>) -> Markup {
    html! {
        @match value {
            Some(text) if !text.is_empty() => { (text) }
            _ => { span.none { "–" } }
        }
    }
}

/// An id: its beginning, and the whole of it in the title.
pub(crate) fn id(text: &Text) -> Markup {
    html! { code.id title=(text) { (text.start(28)) } }
}

pub(crate) fn trust(trust: Trust) -> Markup {
    let (mark, means) = match trust {
        Trust::Bound => ("◆", "the channel is ours"),
        Trust::Host => ("●", "the host's own word for this call"),
        Trust::Declared => ("◐", "said by the client"),
        Trust::None => ("○", "nobody is known"),
    };
    html! { span class={ "chip trust-" (trust.as_str()) } title=(means) { span aria-hidden="true" { (mark) } " " (trust.as_str()) } }
}

pub(crate) fn outcome(outcome: Option<Outcome>) -> Markup {
    let (mark, tone, word) = match outcome {
        None => ("…", "going", "under way"),
        Some(Outcome::Ok) => ("✓", "good", "ok"),
        Some(Outcome::ToolError) => ("!", "warn", "tool error"),
        Some(Outcome::Refused) => ("⊘", "warn", "refused"),
        Some(Outcome::Timeout) => ("◔", "bad", "timeout"),
        Some(Outcome::Canceled) => ("–", "calm", "canceled"),
        Some(Outcome::Failed) => ("✕", "bad", "failed"),
        Some(Outcome::Unknown) => ("?", "calm", "unknown"),
    };
    html! { span class={ "chip " (tone) } { span aria-hidden="true" { (mark) } " " (word) } }
}

pub(crate) fn run_status(status: RunStatus) -> Markup {
    let (mark, tone) = match status {
        RunStatus::Queued => ("◌", "calm"),
        RunStatus::Running => ("…", "going"),
        RunStatus::Completed => ("✓", "good"),
        RunStatus::Failed => ("✕", "bad"),
        RunStatus::Canceled => ("–", "calm"),
    };
    html! { span class={ "chip " (tone) } { span aria-hidden="true" { (mark) } " " (status.as_str()) } }
}

/// Back to the newest, and on to what is older.
pub(crate) fn pager(newest: Option<&str>, older: Option<&str>) -> Markup {
    html! {
        @if newest.is_some() || older.is_some() {
            nav.pager aria-label="More" {
                @if let Some(newest) = newest { a href=(newest) { "← Newest" } }
                @if let Some(older) = older { a href=(older) rel="next" { "Older →" } }
            }
        }
    }
}
