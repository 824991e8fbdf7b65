//! From cells to medians, tables, and `docs/bench.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};

use super::goals;
use super::load::Outcome;
use super::targets::{Section, Target};
use super::usage::Usage;
use crate::workspace::Workspace;

/// One target at one number of connections (or depth) in one round.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) section: Section,
    pub(super) target: Target,
    pub(super) connections: usize,
    pub(super) outcome: Outcome,
    /// None where the target is the server itself.
    pub(super) before: Option<Usage>,
    pub(super) after: Option<Usage>,
}

/// From the spawn to the answer to the first `initialize`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) section: Section,
    pub(super) target: Target,
    pub(super) milliseconds: f64,
}

#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) cells: Vec<Cell>,
    pub(super) starts: Vec<Start>,
    pub(super) errors: Vec<String>,
    pub(super) versions: BTreeMap<&'static str, String>,
}

impl Run {
    pub(super) fn add(&mut self, cell: Cell) {
        let (name, connections) = (cell.target.name(), cell.connections);
        let rate = cell.outcome.calls as f64 / cell.outcome.seconds;
        println!("  {name:<20} {connections:>3}  {rate:>8.0} requests/s  p50 {:.0} µs", cell.outcome.p50_us);
        if cell.outcome.wrong > 0 {
            let sample = cell.outcome.sample.as_deref().unwrap_or_default();
            let wrong = cell.outcome.wrong;
            self.errors.push(format!("{name} at {connections}: {wrong} wrong answers, the first: {sample}"));
        } else if cell.outcome.calls == 0 {
            self.errors.push(format!("{name} at {connections}: no call was answered in time"));
        }
        self.cells.push(cell);
    }

    /// The medians of all rounds.
    pub(super) fn rows(&self) -> Vec<Row> {
        let mut keys: Vec<_> =
            self.cells.iter().map(|cell| (cell.section, cell.connections, cell.target)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.into_iter().map(|key| self.row(key)).collect()
    }

    fn row(&self, (section, connections, target): (Section, usize, Target)) -> Row {
        let cells: Vec<&Cell> = self
            .cells
            .iter()
            .filter(|cell| (cell.section, cell.connections, cell.target) == (section, connections, target))
            .collect();
        let of = |figure: &dyn Fn(&Cell) -> Option<f64>| {
            median(cells.iter().filter_map(|cell| figure(cell)).collect())
        };
        let start = |start: &&Start| (start.section, start.target) == (section, target);
        Row {
            section,
            target,
            connections,
            rate: of(&|cell| Some(cell.outcome.calls as f64 / cell.outcome.seconds)).unwrap_or(0.0),
            p50_us: of(&|cell| Some(cell.outcome.p50_us)).unwrap_or(0.0),
            p99_us: of(&|cell| Some(cell.outcome.p99_us)).unwrap_or(0.0),
            cpu_ms: of(&|cell| {
                let spent = cell.after?.cpu_ms - cell.before?.cpu_ms;
                (cell.outcome.calls > 0).then(|| spent / cell.outcome.calls as f64)
            }),
            rss_mb: of(&|cell| Some(cell.after?.rss_kb as f64 / 1024.0)),
            root_rss_mb: of(&|cell| Some(cell.after?.root_rss_kb as f64 / 1024.0)),
            pss_mb: of(&|cell| Some(cell.after?.pss_kb as f64 / 1024.0)),
            start_ms: median(self.starts.iter().filter(start).map(|start| start.milliseconds).collect()),
            wrong: cells.iter().map(|cell| cell.outcome.wrong).sum(),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) section: Section,
    pub(super) target: Target,
    pub(super) connections: usize,
    pub(super) rate: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) cpu_ms: Option<f64>,
    pub(super) rss_mb: Option<f64>,
    /// Of the target's first process alone.
    pub(super) root_rss_mb: Option<f64>,
    pub(super) pss_mb: Option<f64>,
    pub(super) start_ms: Option<f64>,
    pub(super) wrong: u64,
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        return Some(f64::midpoint(*values.get(middle.checked_sub(1)?)?, *values.get(middle)?));
    }
    values.get(middle).copied()
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Goals {
    Judge,
    /// A second in the dev profile proves nothing about them.
    Leave,
}

/// The tables and the goals, as Markdown that reads well in a terminal too.
pub(super) fn text(run: &Run, goals: Goals) -> String {
    let rows = run.rows();
    let mut text = String::new();
    for (section, title) in [
        (Section::HttpToHttp, "HTTP → HTTP, a session per connection"),
        (Section::HttpToStdio, "HTTP → stdio, a session per connection"),
        (Section::Stdio, "stdio: the server alone, and behind `callsign wrap`"),
    ] {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.section == section).collect();
        if !rows.is_empty() {
            // Writing to a String does not fail.
            write!(text, "## {title}\n\n{}\n", table(run, section, &rows)).ok();
        }
    }
    match goals {
        Goals::Judge => write!(text, "## Goals\n\n{}", goals::table(&rows)).ok(),
        Goals::Leave => None,
    };
    text
}

fn table(run: &Run, section: Section, rows: &[&Row]) -> String {
    let ours: Vec<Target> = section.targets().iter().copied().filter(|target| target.is_ours()).collect();
    let first = if section == Section::Stdio { "depth" } else { "connections" };
    let mut head: Vec<String> = ["target", "version", first, "requests/s"].map(str::to_owned).to_vec();
    head.extend(ours.iter().map(|target| format!("{} ÷ it", target.name())));
    head.extend(
        ["p50 ms", "p99 ms", "CPU ms/call", "RSS MB", "PSS MB", "start ms", "wrong"].map(str::to_owned),
    );
    let mut lines = vec![head];
    for row in rows {
        let number = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
        };
        let mut line = vec![
            row.target.name().to_owned(),
            run.versions.get(row.target.name()).cloned().unwrap_or_default(),
            row.connections.to_string(),
            format!("{:.0}", row.rate),
        ];
        line.extend(ours.iter().map(|target| {
            let us =
                rows.iter().find(|other| other.target == *target && other.connections == row.connections);
            number(us.filter(|_| row.rate > 0.0).map(|us| us.rate / row.rate), 2)
        }));
        line.extend([
            format!("{:.3}", row.p50_us / 1000.0),
            format!("{:.3}", row.p99_us / 1000.0),
            number(row.cpu_ms, 4),
            number(row.rss_mb, 1),
            number(row.pss_mb, 1),
            number(row.start_ms, 1),
            row.wrong.to_string(),
        ]);
        lines.push(line);
    }
    markdown(&lines)
}

/// Lines of cells, the first being the head; columns are padded so that the source reads as a table too.
pub(super) fn markdown(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        writeln!(text, "| {} |", cells.join(" | ")).ok();
        if index == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            writeln!(text, "| {} |", rule.join(" | ")).ok();
        }
    }
    text
}

/// What stands below this line in `docs/bench.md` is written by hand, and kept.
const NOTES: &str = "<!-- Notes: what is below this line is written by hand; the bench keeps it. -->";

pub(super) fn write(workspace: &Workspace, report: &str) -> Result<()> {
    let path = workspace.root.join("docs/bench.md");
    let old = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::create_dir_all(workspace.root.join("docs"))?;
    std::fs::write(&path, page(&old, report, &today()?, &machine()))
        .with_context(|| format!("could not write {}", path.display()))
}

/// The part of sessions begins here. It is the last before the notes.
const SESSIONS: &str =
    "<!-- Sessions: what is below this line is written by `cargo xtask bench sessions` as well. -->";

pub(super) fn with_sessions(report: &str, section: &str) -> String {
    let gap = if report.is_empty() { "" } else { "\n" };
    format!("{report}{gap}{SESSIONS}\n\n{section}")
}

/// By whom, when and where something is measured that may be measured alone. Asked for before it begins: what others do on
/// the machine then is in the figures.
pub(super) fn occasion(command: &str) -> Result<String> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("Written by `{command}` on {}; load {load} when it began; {}", today()?, machine()))
}

/// Only the part of sessions; everything else stays as it is.
pub(super) fn write_sessions(workspace: &Workspace, section: &str) -> Result<()> {
    let path = workspace.root.join("docs/bench.md");
    let old = std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    std::fs::write(&path, replaced(&old, section)?)
        .with_context(|| format!("could not write {}", path.display()))
}

fn replaced(old: &str, section: &str) -> Result<String> {
    let (before, notes) = old.split_once(NOTES).context("docs/bench.md has no line before its notes")?;
    let before = before.split_once(SESSIONS).map_or(before, |(before, _)| before);
    let report = with_sessions(&format!("{}\n", before.trim_end()), section);
    Ok(format!("{report}\n{NOTES}{notes}"))
}

fn page(old: &str, report: &str, today: &str, machine: &str) -> String {
    let notes = old.split_once(NOTES).map_or("\n", |(_, notes)| notes);
    format!(
        "# Bench\n\nWritten by `cargo xtask bench` on {today}. Every answer was checked; figures are medians over rounds \
         whose cells alternate.\n`X ÷ it` is X's requests/s divided by the row's. CPU, RSS and PSS are summed over the \
         target's own processes, the servers behind it aside;\nRSS and PSS with all sessions open. `start` is the time \
         from the spawn to the first answered `initialize`.\nThe load generator shares the machine with what it \
         measures: compare ratios.\n\n{machine}\n\n{report}\n{NOTES}{notes}"
    )
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = read("/proc/meminfo");
    let kilobytes = memory.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok()).unwrap_or(0.0);
    let kernel = read("/proc/sys/kernel/osrelease");
    format!("{cores} cores ({model}), {:.0} GiB, Linux {}.", kilobytes / 1024.0 / 1024.0, kernel.trim())
}

#[expect(clippy::disallowed_methods, reason = "the date of the report; nothing depends on it")]
fn today() -> Result<String> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(date(i64::try_from(now.as_secs() / 86_400)?))
}

/// Days since 1970-01-01 as a date (Howard Hinnant's `civil_from_days`).
fn date(days: i64) -> String {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::{date, machine, markdown, median, page, replaced};

    #[test]
    fn the_median_is_the_middle_or_between_the_two_middles() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn days_become_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_772), "2026-11-15");
    }

    #[test]
    fn what_is_written_by_hand_outlives_the_next_run() {
        let first = page("", "one", "2026-11-15", &machine());
        let second = page(&format!("{first}\nBounded by the kernel.\n"), "two", "2026-11-16", "2 cores");
        assert!(second.contains("two") && !second.contains("one\n") && second.contains("2026-11-16"));
        assert!(second.ends_with("-->\n\nBounded by the kernel.\n"), "{second}");
    }

    #[test]
    fn sessions_measured_alone_change_their_part_alone() {
        let page = page("", "tables\n", "2026-11-15", "2 cores");
        let page = format!("{page}\nBy hand.\n");
        let first = replaced(&page, "## Sessions\n\none\n").unwrap();
        let second = replaced(&first, "## Sessions\n\ntwo\n").unwrap();
        assert_eq!(second, first.replace("one", "two"));
        assert_eq!(first.matches("## Sessions").count(), 1);
        let (before, after) = page.split_once("\n<!-- Notes").unwrap();
        assert!(first.starts_with(before) && first.ends_with(after), "{first}");
        assert!(replaced("no notes", "x").is_err());
    }

    #[test]
    fn a_table_is_padded() {
        let lines = [vec!["a".to_owned(), "b".to_owned()], vec!["long".to_owned(), "1".to_owned()]];
        assert_eq!(markdown(&lines), "| a    | b |\n| ---- | - |\n| long | 1 |\n");
    }
}
