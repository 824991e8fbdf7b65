//! `cargo xtask test`: the parts, their times, and what was skipped and why.
//!
//! A part that fails does not keep the others from running, except those that need it: one run shows
//! everything that is wrong.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::process::{run as run_command, run_within};
use crate::sessions::{self, Runtime};
use crate::workspace::{Workspace, environment};
use crate::{bench, conformance, engines, everything, interop, tidy, tools, types};

struct Part {
    name: &'static str,
    /// Parts without which this one means nothing.
    needs: &'static [&'static str],
    run: fn(&Workspace) -> Result<Outcome>,
}

#[derive(Debug)]
enum Outcome {
    Passed(String),
    Skipped(String),
    /// A skip that even CI accepts: the advisory database is not ours to reach.
    SkippedByPermission(String),
}

const PARTS: [Part; 15] = [
    Part { name: "tools", needs: &[], run: |workspace| Ok(tools_part(workspace)) },
    Part { name: "fmt", needs: &[], run: fmt },
    Part { name: "clippy", needs: &[], run: clippy },
    Part { name: "build", needs: &[], run: build },
    Part { name: "nextest", needs: &["build"], run: nextest },
    Part {
        name: "sessions-docker",
        needs: &["build"],
        run: |workspace| on_engine(workspace, Runtime::Docker),
    },
    Part { name: "doc", needs: &[], run: doc },
    Part { name: "deny", needs: &[], run: deny },
    Part { name: "advisories", needs: &[], run: advisories },
    Part { name: "tidy", needs: &[], run: tidy_part },
    Part { name: "conformance", needs: &["build"], run: conformance_part },
    Part { name: "everything", needs: &["build"], run: everything_part },
    Part { name: "interop", needs: &["build"], run: interop_part },
    Part { name: "types", needs: &[], run: types_part },
    Part { name: "bench-smoke", needs: &["build"], run: bench_smoke },
];

#[derive(Debug)]
struct Row {
    name: &'static str,
    result: Ran,
    took: Duration,
}

#[derive(Debug)]
enum Ran {
    Outcome(Outcome),
    Failed(String),
    NotRun(&'static str),
}

pub(crate) fn run(workspace: &Workspace, wanted: &[String]) -> Result<()> {
    let parts = select(wanted)?;
    let mut rows: Vec<Row> = Vec::new();
    for part in parts {
        println!("\n== {} ==", part.name);
        let broken = part.needs.iter().find(|need| {
            rows.iter().any(|row| row.name == **need && matches!(row.result, Ran::Failed(_) | Ran::NotRun(_)))
        });
        let start = Instant::now();
        let result = match broken {
            Some(need) => Ran::NotRun(need),
            None => match (part.run)(workspace) {
                Ok(outcome) => Ran::Outcome(outcome),
                Err(error) => {
                    println!("{error:#}");
                    Ran::Failed(format!("{error:#}"))
                }
            },
        };
        let row = Row { name: part.name, result, took: start.elapsed() };
        println!("-- {}", line(&row));
        rows.push(row);
    }
    conclude(&rows, if environment("CI").as_deref() == Some("true") { Skips::Fail } else { Skips::Pass })
}

/// The wanted parts and what they need, in the order of the table; all of them if none is named.
fn select(wanted: &[String]) -> Result<Vec<&'static Part>> {
    const ALL: &[Part] = &PARTS;
    if let Some(unknown) = wanted.iter().find(|name| !ALL.iter().any(|part| part.name == **name)) {
        let names: Vec<_> = ALL.iter().map(|part| part.name).collect();
        bail!("there is no part `{unknown}`; there are {}", names.join(", "));
    }
    let named = |name: &str| wanted.iter().any(|other| other == name);
    let needed = |name: &str| ALL.iter().any(|part| named(part.name) && part.needs.contains(&name));
    Ok(ALL.iter().filter(|part| wanted.is_empty() || named(part.name) || needed(part.name)).collect())
}

#[derive(Clone, Copy, Debug)]
enum Skips {
    Pass,
    Fail,
}

/// Prints the table and decides.
fn conclude(rows: &[Row], skips: Skips) -> Result<()> {
    println!("\n== summary ==");
    for row in rows {
        println!("{}", line(row));
    }
    let total: Duration = rows.iter().map(|row| row.took).sum();
    println!("total {:.1} s", total.as_secs_f64());
    let skipped: Vec<_> = rows.iter().filter_map(|row| Some((row.name, skip_reason(row)?))).collect();
    if skipped.is_empty() {
        println!("skipped: nothing");
    }
    for (name, reason) in skipped {
        println!("skipped: {name}: {reason}");
    }
    let failed: Vec<_> = rows.iter().filter(|row| fails(row, skips)).map(|row| row.name).collect();
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    println!("all is well");
    Ok(())
}

fn fails(row: &Row, skips: Skips) -> bool {
    match (&row.result, skips) {
        (Ran::Failed(_) | Ran::NotRun(_), _) => true,
        (Ran::Outcome(Outcome::Skipped(_)), Skips::Fail) => true,
        (Ran::Outcome(_), _) => false,
    }
}

fn skip_reason(row: &Row) -> Option<&str> {
    match &row.result {
        Ran::Outcome(Outcome::Skipped(reason) | Outcome::SkippedByPermission(reason)) => Some(reason),
        Ran::Outcome(Outcome::Passed(_)) | Ran::Failed(_) | Ran::NotRun(_) => None,
    }
}

fn line(row: &Row) -> String {
    let (word, detail) = match &row.result {
        Ran::Outcome(Outcome::Passed(summary)) => ("passed", summary.clone()),
        Ran::Outcome(Outcome::Skipped(reason) | Outcome::SkippedByPermission(reason)) => {
            ("SKIPPED", reason.clone())
        }
        Ran::Failed(error) => ("FAILED", error.clone()),
        Ran::NotRun(need) => ("NOT RUN", format!("{need} failed")),
    };
    // The rest stands above, where the part printed it.
    let detail = detail.lines().next().unwrap_or_default();
    format!("{:<15} {word:<8} {:>7.1} s  {detail}", row.name, row.took.as_secs_f64())
}

fn passed(result: Result<()>) -> Result<Outcome> {
    result.map(|()| Outcome::Passed(String::new()))
}

fn tools_part(workspace: &Workspace) -> Outcome {
    match tools::install(workspace) {
        Ok(()) => Outcome::Passed(String::new()),
        // What lacks a tool skips on its own account; this line says which and why.
        Err(error) => Outcome::Skipped(format!("{error:#}")),
    }
}

fn fmt(workspace: &Workspace) -> Result<Outcome> {
    passed(run_command(workspace.cargo().args(["fmt", "--all", "--", "--check", "--files-with-diff"])))
}

fn clippy(workspace: &Workspace) -> Result<Outcome> {
    let arguments = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    passed(run_command(workspace.cargo().args(arguments)))
}

fn build(workspace: &Workspace) -> Result<Outcome> {
    passed(run_command(workspace.cargo().args(["build", "--quiet", "--workspace", "--all-targets"])))
}

/// All tests but those that start container engines.
const WITHOUT_ENGINES: &str =
    "not (binary_id(containers::it) | binary_id(callsign::docker) | (binary(sessions) & test(/^engines::/)))";

fn nextest(workspace: &Workspace) -> Result<Outcome> {
    if workspace.which("cargo-nextest").is_none() {
        return Ok(Outcome::Skipped("cargo-nextest is not installed".into()));
    }
    let mut command = workspace.cargo();
    command.args(["nextest", "run", "--workspace", "--cargo-quiet"]);
    let left_out = engines::left_out();
    if left_out.is_some() {
        command.args(["--filterset", WITHOUT_ENGINES]);
    }
    // Its closing line ("Summary … tests run: …") goes to our stderr as it is.
    run_command(&mut command)?;
    Ok(left_out.map_or_else(|| Outcome::Passed(String::new()), Outcome::Skipped))
}

/// The tests of sessions once more, with containers for boxes.
fn on_engine(workspace: &Workspace, runtime: Runtime) -> Result<Outcome> {
    if workspace.which("cargo-nextest").is_none() {
        return Ok(Outcome::Skipped("cargo-nextest is not installed".into()));
    }
    if let Some(reason) = engines::left_out() {
        return Ok(Outcome::Skipped(reason));
    }
    sessions::on(workspace, runtime).map(Outcome::Passed)
}

fn doc(workspace: &Workspace) -> Result<Outcome> {
    let mut command = workspace.cargo();
    command.args(["doc", "--quiet", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    run_command(&mut command)?;
    passed(run_command(workspace.cargo().args(["test", "--quiet", "--workspace", "--doc"])))
}

fn deny(workspace: &Workspace) -> Result<Outcome> {
    if workspace.which("cargo-deny").is_none() {
        return Ok(Outcome::Skipped("cargo-deny is not installed".into()));
    }
    passed(run_command(workspace.cargo().args([
        "deny",
        "check",
        "-A",
        "unused-wrapper",
        "bans",
        "licenses",
        "sources",
    ])))
}

fn advisories(workspace: &Workspace) -> Result<Outcome> {
    if workspace.which("cargo-deny").is_none() {
        return Ok(Outcome::Skipped("cargo-deny is not installed".into()));
    }
    let reach = run_within(workspace.cargo().args(["deny", "fetch", "db"]), Duration::from_mins(1));
    if let Err(error) = reach {
        return Ok(Outcome::SkippedByPermission(format!("the advisory database cannot be had: {error:#}")));
    }
    passed(run_command(workspace.cargo().args(["deny", "check", "--disable-fetch", "advisories"])))
}

fn tidy_part(workspace: &Workspace) -> Result<Outcome> {
    tidy::run(workspace).map(Outcome::Passed)
}

/// Skips a part that runs npm packages where these could not be installed.
fn with_npm(workspace: &Workspace, run: fn(&Workspace) -> Result<String>) -> Result<Outcome> {
    let directory = workspace.tool("npm");
    for (name, version) in &workspace.pins.npm {
        if tools::installed_npm_version(&directory, name).as_ref() != Some(version) {
            return Ok(Outcome::Skipped(format!("the npm package {name} {version} is not installed")));
        }
    }
    run(workspace).map(Outcome::Passed)
}

fn conformance_part(workspace: &Workspace) -> Result<Outcome> {
    with_npm(workspace, conformance::run)
}

fn everything_part(workspace: &Workspace) -> Result<Outcome> {
    with_npm(workspace, everything::run)
}

fn interop_part(workspace: &Workspace) -> Result<Outcome> {
    with_npm(workspace, interop::run)
}

fn types_part(workspace: &Workspace) -> Result<Outcome> {
    with_npm(workspace, types::run)
}

fn bench_smoke(workspace: &Workspace) -> Result<Outcome> {
    bench::smoke(workspace).map(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Outcome, PARTS, Ran, Row, Skips, fails, select};

    #[track_caller]
    fn check_select(wanted: &[&str], expected: &[&str]) {
        let wanted: Vec<_> = wanted.iter().map(ToString::to_string).collect();
        let chosen: Vec<_> = select(&wanted).unwrap().iter().map(|part| part.name).collect();
        assert_eq!(chosen, expected);
    }

    #[test]
    fn naming_a_part_brings_what_it_needs() {
        check_select(&["tidy"], &["tidy"]);
        check_select(&["conformance"], &["build", "conformance"]);
        assert_eq!(select(&[]).unwrap().len(), PARTS.len());
    }

    #[test]
    fn an_unknown_part_is_an_error_that_lists_the_known_ones() {
        let error = select(&["nonsense".to_owned()]).err().unwrap().to_string();
        assert!(error.contains("nonsense") && error.contains("nextest"), "{error}");
    }

    #[test]
    fn a_skip_fails_only_where_skips_are_forbidden() {
        let row = |outcome| Row { name: "x", result: Ran::Outcome(outcome), took: Duration::ZERO };
        assert!(!fails(&row(Outcome::Skipped(String::new())), Skips::Pass));
        assert!(fails(&row(Outcome::Skipped(String::new())), Skips::Fail));
        assert!(!fails(&row(Outcome::SkippedByPermission(String::new())), Skips::Fail));
        let not_run = Row { name: "x", result: Ran::NotRun("build"), took: Duration::ZERO };
        assert!(fails(&not_run, Skips::Pass));
    }
}
