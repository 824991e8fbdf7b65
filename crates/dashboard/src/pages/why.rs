//! "Why does this server not know its caller?"

use maud::{Markup, html};

use super::{Nav, Page};
use crate::layout::{empty, heading, trust};
use crate::text::Text;
use crate::view::{Facts, Step, Why, decide};
use crate::{href, time};

pub(crate) fn page(why: &Why, chosen: (&str, &str), now: u64) -> Page {
    let main = html! {
        (heading("Why does this server not know its caller?", html! { p { "Choose who calls and what is called; the answer is a list of questions, with the command that helps." } }))
        form.filters method="get" action="/why" {
            (choice("host", "Host", &why.hosts, chosen.0))
            (choice("server", "Server", &why.servers, chosen.1))
            div.buttons { button.primary type="submit" { "Explain" } }
        }
        @match &why.facts {
            Some(facts) => { (answer(facts, now)) }
            None if why.hosts.is_empty() || why.servers.is_empty() => {
                (empty("There is nothing to explain yet", "No host or no server is known. See which hosts are on this machine:", Some("callsign doctor")))
            }
            None if !chosen.0.is_empty() && !chosen.1.is_empty() => {
                (empty("Nothing is known of these two", "No entry of this host names this server, and no such call was seen.", Some("callsign doctor")))
            }
            None => {}
        }
    };
    Page::new("Why?", Nav::Why, main)
}

fn choice(name: &str, label: &str, options: &[Text], chosen: &str) -> Markup {
    html! {
        label { span { (label) }
            select name=(name) required {
                option value="" { "choose" }
                @for option in options { option value=(option.raw()) selected[option.raw() == chosen] { (option) } }
            }
        }
    }
}

fn answer(facts: &Facts, now: u64) -> Markup {
    let verdict = decide(facts);
    html! {
        section {
            h2 { (verdict.headline) }
            @if let Some((key, at, known)) = &facts.last {
                p { "The last call, " a href=(href::path(&["calls", key.as_str()])) { (time::at(*at, now)) } ", was known with " (trust(*known)) "." }
            }
            ol.steps { @for step in &verdict.steps { (question(step)) } }
        }
    }
}

fn question(step: &Step) -> Markup {
    let (mark, tone, word) = match step.fine {
        Some(true) => ("✓", "good", "yes"),
        Some(false) => ("✕", "bad", "no"),
        None => ("?", "calm", "not sure"),
    };
    html! {
        li {
            p { strong { (step.question) } " " span class={ "chip " (tone) } { span aria-hidden="true" { (mark) } " " (word) } }
            p { (step.words.line(1000)) }
            @if let Some(command) = &step.command { pre.command { code { (command) } } }
        }
    }
}
