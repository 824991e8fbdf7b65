//! Changed files, as lines with a colour and a sign. The sign is part of the line, so nothing is told by colour alone.

use maud::{Markup, html};

use crate::text::Shown;
use crate::view::Diff;

/// Lines that are shown, and the characters of each.
const LINES: usize = 2000;
const LINE: usize = 400;

pub(crate) fn draw(diff: &Diff) -> Markup {
    let mut lines = diff.text.raw().lines();
    let shown: Vec<&str> = lines.by_ref().take(LINES).collect();
    let left = lines.count();
    html! {
        pre.text.diff tabindex="0" {
            @for line in &shown { span class=(tone(line)) { (Shown::of_line(line, LINE)) "\n" } }
        }
        @if left > 0 || diff.truncated { p.hint { @if left > 0 { (left) " more lines. " } "All of it: the tool " code { "export_changes" } "." } }
    }
}

fn tone(line: &str) -> &'static str {
    match line.as_bytes() {
        [b'd', b'i', b'f', b'f', b' ', ..] => "file",
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "head",
        [b'@', b'@', ..] => "hunk",
        [b'+', ..] => "added",
        [b'-', ..] => "removed",
        _ => "same",
    }
}
