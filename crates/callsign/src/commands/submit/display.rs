//! How far a run is, on stderr while somebody waits: a line that is redrawn, or lines where there is no terminal.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;

use super::super::calls::{note, plain};
use super::super::runs::remark;
use super::super::sessions::shown::{count, field, span};

const DRAWN: Duration = Duration::from_millis(100);
/// Lines are not drawn over, so there are fewer of them.
const BETWEEN_LINES: Duration = Duration::from_secs(1);

pub(super) struct Display {
    form: Form,
    /// What was last said, without how long it took.
    said: String,
    /// How much was done, as of the last look.
    done: Option<String>,
    started: Instant,
}

enum Form {
    Drawn(ProgressBar),
    /// When the last one was written.
    Lines(Option<Instant>),
}

impl Display {
    pub(super) fn of_stderr(started: Instant) -> Self {
        let form = if std::io::stderr().is_terminal() {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            // Cut to the terminal's width; a template that is wrong would only look otherwise.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed}  {wide_msg}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(DRAWN);
            Form::Drawn(bar)
        } else {
            Form::Lines(None)
        };
        Self { form, said: String::new(), done: None, started }
    }

    /// What a notification said: the status, and what happened last.
    pub(super) fn say(&mut self, said: &str) {
        let (status, last) = said.split_once(": ").unwrap_or((said, ""));
        self.show(joined(status, self.done.as_deref(), last));
    }

    /// What a look at the run showed.
    pub(super) fn look(&mut self, run: &Value) {
        self.done = done(run);
        self.show(whole(run));
    }

    fn show(&mut self, text: String) {
        match &mut self.form {
            Form::Drawn(bar) => bar.set_message(text.clone()),
            Form::Lines(last) => {
                let is_early = last.is_some_and(|last| last.elapsed() < BETWEEN_LINES);
                if text == self.said || is_early {
                    return;
                }
                *last = Some(Instant::now());
                let elapsed = self.started.elapsed();
                let time = span(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
                note(&format!("{time}  {text}"));
            }
        }
        self.said = text;
    }

    /// Nothing of it stays on a terminal.
    pub(super) fn finish(self) {
        if let Form::Drawn(bar) = self.form {
            bar.finish_and_clear();
        }
    }
}

/// `3 steps, 5 tool calls`.
fn done(run: &Value) -> Option<String> {
    let progress = run["progress"].as_object()?;
    let number = |name: &str| progress.get(name).and_then(Value::as_u64).unwrap_or_default();
    Some(format!("{}, {}", count(number("steps"), "step"), count(number("tools"), "tool call")))
}

fn whole(run: &Value) -> String {
    joined(field(run, "status"), done(run).as_deref(), remark(run))
}

/// What is cut on a narrow terminal is the last.
fn joined(status: &str, done: Option<&str>, last: &str) -> String {
    let pieces = [Some(status), done, Some(last)].into_iter().flatten().filter(|piece| !piece.is_empty());
    pieces.map(plain).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_run_is_told_on_one_line() {
        let running = json!({
            "status": "running", "progress": { "steps": 1, "tools": 5, "last": "bash  ls\n\u{1b}[2J" },
        });
        assert_eq!(whole(&running), "running: 1 step, 5 tool calls: bash  ls\\n\\u{1b}[2J");
        assert_eq!(whole(&json!({ "status": "queued" })), "queued");
        assert_eq!(done(&json!({ "progress": null })), None);
        assert_eq!(joined("running", Some("1 step"), "a: b"), "running: 1 step: a: b");
    }
}
