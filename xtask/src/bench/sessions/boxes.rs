//! What a box costs: the same thing with ours and without it, in turns, as a table.

use super::{Extent, judged};
use crate::bench::report::{markdown, median};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unit {
    Milliseconds,
    Megabytes,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Aim {
    /// Shown for its own sake.
    None,
    Most(f64),
    /// Beyond what it is without.
    More(f64),
    /// Of what it is without.
    Times(f64),
}

/// One line of the table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) what: &'static str,
    pub(super) unit: Unit,
    pub(super) with: Vec<f64>,
    /// None where there is nothing to compare with.
    pub(super) without: Vec<f64>,
    pub(super) aim: Aim,
    /// Why it was not measured. Nobody has an engine who is not root.
    pub(super) missing: Option<String>,
}

impl Row {
    /// In milliseconds.
    pub(super) fn new(what: &'static str, aim: Aim, with: Vec<f64>, without: Vec<f64>) -> Self {
        Self { what, unit: Unit::Milliseconds, with, without, aim, missing: None }
    }

    /// What each box more costs.
    pub(super) fn memory(what: &'static str, aim: Aim, of_each: Vec<f64>) -> Self {
        Self { unit: Unit::Megabytes, ..Self::new(what, aim, of_each, Vec::new()) }
    }

    /// Without its figures.
    pub(super) fn missing(self, reason: &str) -> Self {
        Self { missing: Some(reason.to_owned()), with: Vec::new(), without: Vec::new(), ..self }
    }

    /// Nothing was measured, or everything is a figure.
    pub(super) fn is_sound(&self) -> bool {
        let mut all = self.with.iter().chain(&self.without);
        self.missing.is_some() == self.with.is_empty() && all.all(|value| value.is_finite())
    }

    /// The middle of times. Memory is summed and shared out: what one box makes the daemon take, the next one uses.
    fn middle(&self, values: &[f64]) -> Option<f64> {
        match self.unit {
            Unit::Milliseconds => median(values.to_vec()),
            Unit::Megabytes if values.is_empty() => None,
            Unit::Megabytes => Some(values.iter().sum::<f64>() / values.len() as f64),
        }
    }

    fn line(&self, extent: Extent) -> Vec<String> {
        let (with, without) = (self.middle(&self.with), self.middle(&self.without));
        let more = with.zip(without).map(|(with, without)| with - without);
        let times = with.zip(without).map(|(with, without)| with / without);
        let unit = match self.unit {
            Unit::Milliseconds => "ms",
            Unit::Megabytes => "MB",
        };
        let shown = |value: Option<f64>| {
            value.map_or_else(
                || "–".to_owned(),
                |value| {
                    let digits = if value.abs() < 10.0 { 3 } else { 1 };
                    format!("{value:.digits$} {unit}")
                },
            )
        };
        let (aim, found) = match self.aim {
            Aim::None => ("–".to_owned(), None),
            Aim::Most(most) => (format!("≤ {most} {unit}"), Some((with, most))),
            Aim::More(most) => (format!("≤ {most} {unit} more"), Some((more, most))),
            Aim::Times(most) => (format!("≤ {most} ×"), Some((times, most))),
        };
        let verdict = match (&self.missing, found) {
            (Some(_), _) => "not measured",
            (None, None) => "–",
            (None, Some((found, most))) => judged(found, most, extent),
        };
        vec![
            self.what.to_owned(),
            self.with.len().to_string(),
            shown(with),
            shown(without),
            shown(more),
            times.map_or_else(|| "–".to_owned(), |times| format!("{times:.3}")),
            aim,
            verdict.to_owned(),
        ]
    }
}

pub(super) fn text(rows: &[Row], extent: Extent) -> String {
    let head = ["what", "n", "with", "without", "more", "÷", "aim", "verdict"].map(str::to_owned).to_vec();
    let lines: Vec<Vec<String>> =
        std::iter::once(head).chain(rows.iter().map(|row| row.line(extent))).collect();
    let mut reasons: Vec<&String> = rows.iter().filter_map(|row| row.missing.as_ref()).collect();
    reasons.dedup();
    let reasons: Vec<String> = reasons.iter().map(|reason| format!("- not measured: {reason}.\n")).collect();
    let reasons = reasons.concat();
    format!("## Boxes: what is ours in them\n\n{}\n{reasons}{WHAT}", markdown(&lines))
}

const WHAT: &str = "\
- bridge: the same server on loopback, asked directly and through the bridge and its sockets, in one network, by turns. A request
  goes to the agent's API on a connection that is there; a new connection is one for each request; from the box is the way to the
  model, whose other end is asked without the bridge. Paced: 600 events of 200 bytes, one each 2 ms, as a model writes them, from
  the request to the last. At once: 64 MB as fast as they go; nothing in a box asks for that, so it has no aim.
- broker: from a request of 32 kB, on a connection that is there, until the first event of the model's streamed answer. Without:
  the model is asked itself. With: by the session's `model.sock` in the daemon, metered to a run that waits meanwhile; and from
  within the box's network, through the bridge as well.
- warm session: with `warm = 1`, once a box waits, from before `create_or_reuse_session` until its answer, which must say `ready`.
  Model asked: from that answer until the first request of the first task arrives at the model.
- container: as a new session above, on a Docker engine of the bench's own. Without: from before `POST /containers/create` and
  `/start`, which is what `docker run` does, of the same image with OpenCode as its only process, the same variables, no network
  and otherwise Docker's defaults, until `/global/health` answers a request from within its network.
- at rest: PSS of the daemon and of all that it has for its boxes (keeper, bubblewrap, bridge), OpenCode aside; by how much it
  grows from one box to the last, for each. Each box has done one task. Shims are the engine's own, one for each container.
- With and without take turns, and so does which is first where it takes long. Times are medians.
";

#[cfg(test)]
mod tests {
    use super::{Aim, Extent, Row, Unit, text};

    #[track_caller]
    fn check(row: &Row, expected: [&str; 8]) {
        assert_eq!(row.line(Extent::Full), expected);
    }

    #[test]
    fn a_row_is_judged_by_what_its_aim_is_about() {
        let with = || vec![1.0, 1.25, 9.0];
        let row = |aim, without| Row::new("x", aim, with(), without);
        let without = || vec![1.0, 1.0];
        check(
            &row(Aim::More(0.3), without()),
            ["x", "3", "1.250 ms", "1.000 ms", "0.250 ms", "1.250", "≤ 0.3 ms more", "met"],
        );
        check(
            &row(Aim::More(0.2), without()),
            ["x", "3", "1.250 ms", "1.000 ms", "0.250 ms", "1.250", "≤ 0.2 ms more", "MISSED"],
        );
        check(
            &row(Aim::Times(1.15), without()),
            ["x", "3", "1.250 ms", "1.000 ms", "0.250 ms", "1.250", "≤ 1.15 ×", "MISSED"],
        );
        check(&row(Aim::Most(300.0), vec![]), ["x", "3", "1.250 ms", "–", "–", "–", "≤ 300 ms", "met"]);
        check(&row(Aim::None, vec![]), ["x", "3", "1.250 ms", "–", "–", "–", "–", "–"]);
        // Nothing to compare with is no success.
        check(
            &row(Aim::Times(1.15), vec![]),
            ["x", "3", "1.250 ms", "–", "–", "–", "≤ 1.15 ×", "not measured"],
        );
        assert_eq!(row(Aim::Most(0.1), vec![]).line(Extent::Smoke)[7], "not judged");
    }

    #[test]
    fn memory_is_shared_out_among_boxes() {
        // The first box made the daemon take it all; the middle would hide it.
        let row = Row::memory("x", Aim::Most(4.0), vec![13.0, 1.0, 1.0, 3.0]);
        assert_eq!(row.unit, Unit::Megabytes);
        check(&row, ["x", "4", "4.500 MB", "–", "–", "–", "≤ 4 MB", "MISSED"]);
    }

    #[test]
    fn what_could_not_be_measured_says_why_and_is_no_failure() {
        let row = Row::new("x", Aim::Times(1.15), vec![], vec![]).missing("no engine here");
        assert!(row.is_sound());
        check(&row, ["x", "0", "–", "–", "–", "–", "≤ 1.15 ×", "not measured"]);
        let weight = Row::memory("y", Aim::Most(4.0), vec![]).missing("no engine here");
        check(&weight, ["y", "0", "–", "–", "–", "–", "≤ 4 MB", "not measured"]);
        let text = text(&[row, weight], Extent::Full);
        assert_eq!(text.matches("- not measured: no engine here.\n").count(), 1);
        assert!(!Row::new("x", Aim::None, vec![], vec![]).is_sound());
        assert!(!Row::new("x", Aim::None, vec![1.0], vec![f64::NAN]).is_sound());
    }
}
