//! A log in one sentence.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::time::Duration;

use super::log::LogTotals;
use super::plain::{grouped, plain, took};

/// Characters of a summary.
const MOST: usize = 500;
/// Tools that are named, and how much of a name.
const TOOLS: usize = 5;
const NAME: usize = 32;

/// What was done, how long that took and what was said last. `changed` counts files; `ending` is what the model said at
/// the end, if it said anything: else it is the log's last line. At most 500 characters.
pub fn result_summary(totals: &LogTotals, changed: usize, duration: Duration, ending: &str) -> String {
    let LogTotals { steps, tools, subagents, tokens, last } = totals;
    let calls: u64 = tools.values().map(|count| u64::from(*count)).sum();
    let mut text = format!("{}, {}", counted(u64::from(*steps), "step"), counted(calls, "tool call"));
    if !tools.is_empty() {
        let mut named: Vec<_> = tools.iter().collect();
        named.sort_by_key(|(_, count)| Reverse(**count));
        let more = if named.len() > TOOLS { ", …" } else { "" };
        let named: Vec<String> = named
            .iter()
            .take(TOOLS)
            .map(|(name, count)| format!("{} {}", plain(name, NAME), grouped(u64::from(**count))))
            .collect();
        let _infallible = write!(text, " ({}{more})", named.join(", "));
    }
    if *subagents > 0 {
        let _infallible = write!(text, ", {}", counted(u64::from(*subagents), "subagent"));
    }
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let changed = counted(u64::try_from(changed).unwrap_or(u64::MAX), "file");
    let _infallible = write!(text, " in {}; {changed} changed", took(millis));
    if tokens.input_tokens > 0 || tokens.output_tokens > 0 {
        let (input, output) = (grouped(tokens.input_tokens), grouped(tokens.output_tokens));
        let _infallible = write!(text, "; {input} tokens in, {output} out");
    }
    text.push('.');
    let ending = if ending.trim().is_empty() { last } else { ending };
    if !ending.is_empty() {
        // A character has four bytes at most: whatever is cut off below is there.
        let _infallible = write!(text, " Last: {}", plain(ending, 4 * MOST));
    }
    cut(text)
}

fn counted(count: u64, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        2.. => format!("{} {what}s", grouped(count)),
    }
}

fn cut(mut text: String) -> String {
    if text.chars().count() > MOST {
        let end = text.char_indices().nth(MOST - 1).map_or(text.len(), |(end, _)| end);
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use model::session::RunUsage;
    use proptest::prelude::*;

    use super::*;

    fn totals(steps: u32, tools: &[(&str, u32)]) -> LogTotals {
        let tools = tools.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect();
        let tokens = RunUsage { input_tokens: 1234, output_tokens: 456, ..RunUsage::default() };
        LogTotals { steps, tools, subagents: 0, tokens, last: "tool bash ls ok, 0.4 s".into() }
    }

    #[test]
    fn a_summary_says_what_was_done() {
        let took = Duration::from_millis(12_345);
        assert_eq!(
            result_summary(&totals(3, &[("bash", 2), ("edit", 3)]), 2, took, "All\ntests  pass."),
            "3 steps, 5 tool calls (edit 3, bash 2) in 12.3 s; 2 files changed; 1,234 tokens in, 456 out. \
             Last: All tests pass."
        );
        let nothing = LogTotals { steps: 1, subagents: 1, ..LogTotals::default() };
        assert_eq!(
            result_summary(&nothing, 0, Duration::ZERO, " "),
            "1 step, no tool calls, 1 subagent in 0.0 s; no files changed."
        );
        let many = [("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 1), ("f", 2000)];
        assert_eq!(
            result_summary(&totals(1, &many), 1, took, ""),
            "1 step, 2,005 tool calls (f 2,000, a 1, b 1, c 1, d 1, …) in 12.3 s; 1 file changed; \
             1,234 tokens in, 456 out. Last: tool bash ls ok, 0.4 s"
        );
    }

    proptest! {
        #[test]
        fn a_summary_is_one_line_of_500_characters(
            steps: u32, changed: usize, seconds: u64, ending in any::<String>(), repeated in 1_usize..200,
            tools in prop::collection::btree_map(any::<String>(), any::<u32>(), 0..10),
        ) {
            let totals = LogTotals { steps, tools, ..totals(1, &[]) };
            let ending = ending.repeat(repeated);
            let summary = result_summary(&totals, changed, Duration::from_secs(seconds), &ending);
            prop_assert!(summary.chars().count() <= 500);
            prop_assert!(!summary.chars().any(char::is_control));
        }
    }
}
