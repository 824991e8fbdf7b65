//! Rust files: their size, their place, and what they must not name.

use super::Finding;

const MOST_LINES: usize = 600;

pub(super) fn check(file: &str, content: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line, message: &str| {
        findings.push(Finding { file: file.to_owned(), line, message: message.to_owned() });
    };
    let lines = content.lines().count();
    if lines > MOST_LINES && !is_test(file) {
        find(0, &format!("has {lines} lines; past {MOST_LINES} a file is split by role"));
    }
    if file.ends_with("/mod.rs") {
        find(0, "a module is foo.rs beside foo/, never mod.rs");
    }
    for (index, line) in content.lines().enumerate() {
        if line.contains(concat!("tokio::", "process")) && !may_start_programs(file) {
            find(index + 1, "children are started by the crate supervise, so that none is left behind");
        }
        if line.contains(concat!("#[", "ignore")) {
            find(index + 1, "a test runs or is deleted");
        }
        if line.contains(concat!("#[should_", "panic")) {
            find(index + 1, "a test says what it expects instead of dying of it");
        }
    }
    findings
}

fn is_test(file: &str) -> bool {
    file.contains("/tests/") || file.ends_with("/tests.rs")
}

/// A box outlives the daemon, and a daemon whoever started it, so what `supervise` starts, which never does, is no use
/// for them.
fn may_start_programs(file: &str) -> bool {
    let rooms = ["crates/testkit/", "crates/sandbox/", "crates/callsign/src/daemon/start.rs", "xtask/"];
    is_test(file) || rooms.iter().any(|room| file.starts_with(room))
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn check_source(file: &str, content: &str, expected: usize) {
        let found = check(file, content);
        assert_eq!(found.len(), expected, "{found:?}");
    }

    #[test]
    fn a_long_file_is_found_unless_it_is_a_test() {
        check_source("crates/a/src/a.rs", &"\n".repeat(600), 0);
        check_source("crates/a/src/a.rs", &"\n".repeat(601), 1);
        check_source("crates/a/src/a/tests.rs", &"\n".repeat(601), 0);
        check_source("crates/a/tests/it/main.rs", &"\n".repeat(601), 0);
    }

    #[test]
    fn a_mod_rs_is_found() {
        check_source("crates/a/src/a/mod.rs", "", 1);
        check_source("crates/a/src/demod.rs", "", 0);
    }

    #[test]
    fn a_child_started_past_the_supervisor_is_found() {
        let line = concat!("use tokio::", "process::Command;");
        check_source("crates/gateway/src/a.rs", line, 1);
        check_source("crates/gateway/tests/it/a.rs", line, 0);
    }

    #[test]
    fn a_test_that_does_not_run_is_found() {
        check_source("crates/a/src/a.rs", concat!("#[", "ignore]"), 1);
        check_source("crates/a/src/a.rs", concat!("#[should_", "panic]"), 1);
    }
}
