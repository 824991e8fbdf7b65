//! Calls on a time line: a lane for each thread, drawn as SVG, since no inline style may be used.

use maud::{Markup, html};

use super::calls::address;
use crate::text::Text;
use crate::time;
use crate::view::{CallRow, Outcome};

/// In the drawing's own units.
const WIDTH: f64 = 1000.0;
const LANE: usize = 26;
/// Threads that have a lane of their own; the rest share the last.
const LANES: usize = 12;

pub(crate) fn draw(calls: &[CallRow], now: u64) -> Markup {
    let end_of = |call: &CallRow| {
        call.duration_ms.map_or(now.max(call.at), |took| call.at.saturating_add(whole(took)))
    };
    let first = calls.iter().map(|call| call.at).min().unwrap_or(now);
    let last = calls.iter().map(end_of).max().unwrap_or(now).max(first + 1);
    let lanes = lanes(calls);
    let x = |at: u64| ratio(at.saturating_sub(first), last - first) * WIDTH;
    let height = lanes.len() * LANE;
    html! {
        div.timeline {
            ul.lanes aria-hidden="true" { @for lane in &lanes { li title=[lane.as_ref()] { @match lane { Some(lane) => { (lane.start(18)) } None => { "others" } } } } }
            svg viewBox={ "0 0 " (WIDTH) " " (height) } preserveAspectRatio="none" role="group" aria-label={ (calls.len()) " calls on a time line" } {
                @for at in 0..lanes.len() { line.axis x1="0" x2=(WIDTH) y1=(at * LANE + LANE / 2) y2=(at * LANE + LANE / 2) {} }
                @for call in calls.iter().rev() {
                    @let lane = lane_of(&lanes, call);
                    @let begin = x(call.at);
                    @let wide = (x(end_of(call)) - begin).clamp(3.0, WIDTH);
                    a href=(address(call)) {
                        title { (call.tool.as_ref().unwrap_or(&call.method)) " · " (word(call)) @if let Some(took) = call.duration_ms { " · " (time::took(took)) } }
                        rect class=(tone(call)) x=(format!("{:.1}", begin.min(WIDTH - wide))) y=(lane * LANE + 5) width=(format!("{wide:.1}")) height=(LANE - 10) rx="2" {}
                    }
                }
            }
            p.ends { span { (time::at(first, now)) } span { (time::between(last - first)) } span { (time::at(last, now)) } }
        }
    }
}

/// The threads in the order in which they began. None is for those that are too many.
fn lanes(calls: &[CallRow]) -> Vec<Option<Text>> {
    let mut lanes: Vec<Option<Text>> = Vec::new();
    for call in calls.iter().rev() {
        let lane = name(call);
        if lanes.contains(&Some(lane.clone())) {
            continue;
        }
        if lanes.len() + 1 < LANES {
            lanes.push(Some(lane));
        } else if lanes.last() != Some(&None) {
            lanes.push(None);
        }
    }
    lanes
}

fn name(call: &CallRow) -> Text {
    call.thread.clone().or_else(|| call.session.clone()).unwrap_or_default()
}

fn lane_of(lanes: &[Option<Text>], call: &CallRow) -> usize {
    let name = Some(name(call));
    lanes.iter().position(|lane| *lane == name).unwrap_or(lanes.len().saturating_sub(1))
}

fn tone(call: &CallRow) -> &'static str {
    match call.outcome {
        None => "bar going",
        Some(Outcome::Ok) => "bar good",
        Some(Outcome::Canceled | Outcome::Unknown) => "bar calm",
        Some(Outcome::ToolError | Outcome::Refused) => "bar warn",
        Some(Outcome::Timeout | Outcome::Failed) => "bar bad",
    }
}

fn word(call: &CallRow) -> &'static str {
    call.outcome.map_or("under way", Outcome::as_str)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what is out of range is cut")]
fn whole(ms: f64) -> u64 {
    ms as u64
}

#[expect(clippy::cast_precision_loss, reason = "a drawing needs four digits")]
fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all.max(1) as f64
}
