//! What no tracked file may hold: paths of the machine it was written on, hosts of package registries (a mirror
//! that only that machine reaches), marks of unfinished work.
//!
//! The patterns are written in two pieces so that this file does not find itself.

use super::Finding;

const MACHINE_PATHS: [&str; 3] = [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/home/", "user/")];

const REGISTRIES: [&str; 8] = [
    concat!("registry.", "npmjs.org"),
    concat!("registry.", "yarnpkg.com"),
    concat!("://pypi", ".org"),
    concat!("files.", "pythonhosted.org"),
    concat!("static.", "crates.io"),
    concat!("://index.", "crates.io"),
    concat!("://deb.", "debian.org"),
    concat!("\"resolved\"", ": \"http"),
];

const MARKS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

pub(super) fn check(file: &str, content: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    // Cargo writes its lock file itself and names the public index only.
    if file == "Cargo.lock" {
        return findings;
    }
    for (index, line) in content.lines().enumerate() {
        let mut find = |message: String| {
            findings.push(Finding { file: file.to_owned(), line: index + 1, message });
        };
        if let Some(path) = MACHINE_PATHS.iter().find(|path| holds_path(line, path)) {
            find(format!("names {path}, a directory of the machine this was written on"));
        }
        if let Some(host) = REGISTRIES.iter().find(|host| line.contains(**host)) {
            find(format!("names a package registry ({host})"));
        }
        if let Some(mark) = MARKS.iter().find(|mark| holds_word(line, mark)) {
            find(format!("holds the mark {mark}: finish it, or open an issue"));
        }
    }
    findings
}

/// An absolute path, not the end of another one or of a URL.
fn holds_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && !".-_}>*)~".contains(before))
    })
}

fn holds_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().is_some_and(part);
        let after = !word.ends_with('(') && line[at + word.len()..].chars().next().is_some_and(part);
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::check;

    #[track_caller]
    fn check_line(line: &str, expected: usize) {
        let found = check("docs/a.md", line);
        assert_eq!(found.len(), expected, "{line:?}: {found:?}");
    }

    #[test]
    fn a_path_of_this_machine_is_found() {
        check_line(concat!("see `/wo", "rk/main`"), 1);
        check_line(concat!("/ro", "ot/.cargo"), 1);
        check_line("https://example.org/work/of/art", 0);
        check_line("{workspace}/work/x", 0);
    }

    #[test]
    fn a_package_registry_is_found() {
        check_line(concat!("https://registry.", "npmjs.org/x"), 1);
        check_line(concat!("  \"resolved\"", ": \"https://mirror.example/x.tgz\""), 1);
        check_line("the crate from crates.io", 0);
    }

    #[test]
    fn a_mark_of_unfinished_work_is_found() {
        check_line(concat!("// TO", "DO: later"), 1);
        check_line(concat!("    to", "do!()"), 1);
        check_line(concat!("    unimple", "mented!(\"x\")"), 1);
        check_line("mktemp -d /tmp/aXXXXXX", 0);
        check_line("todo = \"warn\"", 0);
    }

    #[test]
    fn the_lock_file_is_left_alone() {
        assert!(check("Cargo.lock", concat!("https://static.", "crates.io")).is_empty());
    }
}
