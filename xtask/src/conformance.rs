//! The official conformance suite, directly and through `callsign serve`: what passes directly must pass through
//! us, check by check.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::fixture::{Daemon, HttpServer, quoted};
use crate::process::run_within;
use crate::workspace::{Profile, Workspace};

/// Revision, and how many checks the fixture server passes at least: one that passes fewer proves less than it seems.
const REVISIONS: [(&str, usize); 2] = [("2025-11-25", 84), ("2026-07-28", 197)];

/// Checks that cannot pass when the server behind us speaks stdio, because their subject is the server's own
/// HTTP stream: revision, scenario, check, reason. One that passes after all is an error: the row is stale.
const STDIO_EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    ("2025-11-25", "server-sse-multiple-streams", "server-sse-streams-functional", PROMPT),
    ("2025-11-25", "server-sse-polling", "server-sse-disconnect-resume", POLLING),
    ("2025-11-25", "server-sse-polling", "server-sse-priming-event", POLLING),
    ("2025-11-25", "server-sse-polling", "server-sse-retry-field", POLLING),
    ("2026-07-28", "server-sse-multiple-streams", "server-sse-streams-functional", PROMPT),
];
const PROMPT: &str = "made only if every answer is an event stream; a stdio server has none, and a prompt answer is one JSON body";
const POLLING: &str =
    "the server closes its own HTTP stream on purpose; on stdio it has none and answers at once";

/// A check of one run. The suite may make the same check several times in a scenario: `nth` tells them apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Check {
    scenario: String,
    id: String,
    nth: usize,
}

impl fmt::Display for Check {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} / {}", self.scenario, self.id)?;
        if self.nth > 0 {
            write!(formatter, " (#{})", self.nth + 1)?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Verdict {
    passed: bool,
    detail: String,
}

type Verdicts = BTreeMap<Check, Verdict>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCheck {
    id: String,
    status: String,
    error_message: Option<String>,
}

pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let callsign = workspace.binary(Profile::Dev, "callsign")?;
    let fixture = workspace.binary(Profile::Dev, "conformance-server")?;
    let results = workspace.target.join("conformance");
    if results.exists() {
        std::fs::remove_dir_all(&results)?;
    }
    let suite = Suite { workspace, results: &results };
    let mut faults = Vec::new();
    let mut summary = Vec::new();
    for (revision, least) in REVISIONS {
        // A fresh server for each leg: what one leg leaves in it must not help or hurt the next.
        let server = HttpServer::start(
            "conformance-server",
            Command::new(&fixture).args(["--listen", "127.0.0.1:0"]),
        )?;
        let direct = suite.run("direct", revision, &server.url)?;
        drop(server);

        let server = HttpServer::start(
            "conformance-server",
            Command::new(&fixture).args(["--listen", "127.0.0.1:0"]),
        )?;
        let daemon = Daemon::start(&callsign, &format!("[servers.fixture]\nurl = \"{}\"\n", server.url))?;
        let http = suite.run("http", revision, &format!("{}/mcp/fixture", daemon.url))?;
        daemon.stop()?;
        drop(server);

        let server = format!("[servers.fixture]\ncommand = {}\nargs = [\"--stdio\"]\n", quoted(&fixture));
        let daemon = Daemon::start(&callsign, &server)?;
        let stdio = suite.run("stdio", revision, &format!("{}/mcp/fixture", daemon.url))?;
        daemon.stop()?;

        let exceptions: Vec<_> = STDIO_EXCEPTIONS.iter().filter(|row| row.0 == revision).collect();
        let excused: Vec<_> = exceptions.iter().map(|row| (row.1, row.2)).collect();
        for (leg, found) in
            [("http", compare(&direct, &http, &[])), ("stdio", compare(&direct, &stdio, &excused))]
        {
            faults.extend(found.into_iter().map(|fault| format!("{revision} {leg}: {fault}")));
        }
        let passed = |verdicts: &Verdicts| verdicts.values().filter(|verdict| verdict.passed).count();
        let line = format!(
            "{revision}: direct {}, http {}, stdio {} ({} exceptions)",
            passed(&direct),
            passed(&http),
            passed(&stdio),
            exceptions.len()
        );
        println!("{line}");
        for (_, scenario, id, reason) in exceptions {
            println!("  excepted over stdio: {scenario} / {id}: {reason}");
        }
        if passed(&direct) < least {
            faults
                .push(format!("{revision}: directly only {} checks pass; it were {least}", passed(&direct)));
        }
        summary.push(line);
    }
    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} checks differ", faults.len());
    }
    Ok(summary.join("; "))
}

struct Suite<'a> {
    workspace: &'a Workspace,
    results: &'a Path,
}

impl Suite<'_> {
    fn run(&self, leg: &str, revision: &str, url: &str) -> Result<Verdicts> {
        let start = Instant::now();
        let directory = self.results.join(format!("{leg}-{revision}"));
        std::fs::create_dir_all(&directory)?;
        let log = std::fs::File::create(self.results.join(format!("{leg}-{revision}.log")))?;
        let script = self.workspace.tool("npm/node_modules/@modelcontextprotocol/conformance/dist/index.js");
        let mut command = self.workspace.command(self.workspace.node());
        command.arg(script).args(["server", "--url", url, "--requirements", revision, "-o"]).arg(&directory);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Its exit code says that a check failed; which one, and whether it matters, the files say.
        let ended = run_within(&mut command, std::time::Duration::from_mins(5));
        let verdicts = collect(&directory)?;
        if verdicts.is_empty() {
            ended.with_context(|| format!("the suite made no check ({leg}, {revision})"))?;
        }
        println!("{leg} {revision}: {} checks in {:.1} s", verdicts.len(), start.elapsed().as_secs_f64());
        Ok(verdicts)
    }
}

/// Reads `server-SCENARIO-TIME/checks.json` of every scenario.
fn collect(directory: &Path) -> Result<Verdicts> {
    let mut verdicts = Verdicts::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.path().join("checks.json");
        if !file.is_file() {
            continue;
        }
        let scenario = scenario(&entry.file_name().to_string_lossy());
        let checks: Vec<RawCheck> = serde_json::from_slice(&std::fs::read(&file)?)
            .with_context(|| format!("could not parse {}", file.display()))?;
        add(&mut verdicts, &scenario, checks);
    }
    Ok(verdicts)
}

fn add(verdicts: &mut Verdicts, scenario: &str, checks: Vec<RawCheck>) {
    // What is only reported is no check.
    for RawCheck { id, status, error_message } in checks.into_iter().filter(|check| check.status != "INFO") {
        let mut check = Check { scenario: scenario.to_owned(), id, nth: 0 };
        while verdicts.contains_key(&check) {
            check.nth += 1;
        }
        let detail = error_message.map_or_else(|| status.clone(), |message| format!("{status}: {message}"));
        verdicts.insert(check, Verdict { passed: status == "SUCCESS", detail });
    }
}

/// `server-tools-list-2026-11-15T20-47-14-123Z` → `tools-list`.
fn scenario(folder: &str) -> String {
    const TIME: usize = "-2026-11-15T20-47-14-123Z".len();
    let name = folder.strip_prefix("server-").unwrap_or(folder);
    name.get(..name.len().saturating_sub(TIME)).unwrap_or(name).to_owned()
}

/// What passes directly and not through us, less the exceptions (scenario, check); and exceptions without need.
fn compare(direct: &Verdicts, through: &Verdicts, exceptions: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut used = vec![false; exceptions.len()];
    for (check, _) in direct.iter().filter(|(_, verdict)| verdict.passed) {
        let here = through.get(check);
        if here.is_some_and(|verdict| verdict.passed) {
            continue;
        }
        let name = (check.scenario.as_str(), check.id.as_str());
        if let Some(row) = exceptions.iter().position(|row| *row == name) {
            used[row] = true;
        } else {
            let detail = here.map_or("the check was not made", |verdict| &verdict.detail);
            faults.push(format!("{check}: {detail}"));
        }
    }
    let stale = exceptions.iter().zip(used).filter(|(_, used)| !used);
    faults.extend(stale.map(|((scenario, id), _)| format!("{scenario} / {id}: the exception is not needed")));
    faults
}

#[cfg(test)]
mod tests {
    use super::{RawCheck, Verdicts, add, compare, scenario};

    fn verdicts(rows: &[(&str, &str)]) -> Verdicts {
        let mut verdicts = Verdicts::new();
        let checks = rows.iter().map(|(id, status)| RawCheck {
            id: (*id).to_owned(),
            status: (*status).to_owned(),
            error_message: None,
        });
        add(&mut verdicts, "s", checks.collect());
        verdicts
    }

    #[track_caller]
    fn check(direct: &[(&str, &str)], through: &[(&str, &str)], excused: &[&str], expected: &[&str]) {
        let exceptions: Vec<_> = excused.iter().map(|id| ("s", *id)).collect();
        assert_eq!(compare(&verdicts(direct), &verdicts(through), &exceptions), expected);
    }

    #[test]
    fn a_check_that_fails_only_through_us_is_a_fault() {
        check(&[("a", "SUCCESS")], &[("a", "SUCCESS")], &[], &[]);
        check(&[("a", "SUCCESS")], &[("a", "FAILURE")], &[], &["s / a: FAILURE"]);
        check(&[("a", "SUCCESS")], &[("a", "SKIPPED")], &[], &["s / a: SKIPPED"]);
        check(&[("a", "FAILURE")], &[("a", "FAILURE")], &[], &[]);
    }

    #[test]
    fn a_check_that_is_not_made_through_us_is_a_fault() {
        check(&[("a", "SUCCESS")], &[], &[], &["s / a: the check was not made"]);
    }

    #[test]
    fn checks_of_one_name_are_compared_one_by_one() {
        let direct = [("a", "SUCCESS"), ("a", "SUCCESS")];
        check(&direct, &[("a", "SUCCESS"), ("a", "FAILURE")], &[], &["s / a (#2): FAILURE"]);
    }

    #[test]
    fn an_exception_that_is_not_needed_is_a_fault() {
        check(&[("a", "SUCCESS")], &[("a", "FAILURE")], &["a"], &[]);
        let stale = "s / a: the exception is not needed";
        check(&[("a", "SUCCESS")], &[("a", "SUCCESS")], &["a"], &[stale]);
        check(&[], &[], &["a"], &[stale]);
    }

    #[test]
    fn the_scenario_is_what_is_left_of_the_folder() {
        assert_eq!(scenario("server-tools-list-2026-11-15T20-47-14-123Z"), "tools-list");
    }
}
