//! Documents: links that lead somewhere, decision records with all their sections.

use std::path::{Component, Path, PathBuf};

use super::Finding;

/// Links to files of the repository that are not there. `exists` is asked with a path from the root.
pub(super) fn links(file: &str, content: &str, exists: impl Fn(&Path) -> bool) -> Vec<Finding> {
    let folder = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut findings = Vec::new();
    let mut fenced = false;
    for (index, line) in content.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for target in targets(&without_code(line)) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let Some(resolved) = resolve(folder, path) else {
                let message = format!("the link {path} leads out of the repository");
                findings.push(Finding { file: file.to_owned(), line: index + 1, message });
                continue;
            };
            if !exists(&resolved) {
                let message = format!("the link {path} leads nowhere");
                findings.push(Finding { file: file.to_owned(), line: index + 1, message });
            }
        }
    }
    findings
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// What stands in `](…)`.
fn targets(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("](") {
        let rest = &line[at + 2..];
        let target = match rest.strip_prefix('<') {
            Some(inner) => inner.split('>').next(),
            None => rest.split([')', ' ']).next(),
        };
        found.extend(target.map(str::to_owned));
    }
    found
}

fn resolve(folder: &Path, target: &str) -> Option<PathBuf> {
    let joined = if let Some(absolute) = target.strip_prefix('/') {
        PathBuf::from(absolute)
    } else {
        folder.join(target)
    };
    let mut resolved = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => {
                if !resolved.pop() {
                    return None;
                }
            }
            Component::Normal(name) => resolved.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some(resolved)
}

pub(super) fn is_adr(file: &str) -> bool {
    file.starts_with("docs/adr/") && Path::new(file).file_stem().is_some_and(|stem| stem != "README")
}

/// A decision record says when, in which state, why, what, at what price, and what it is not about.
pub(super) fn adr_sections(file: &str, content: &str) -> Vec<Finding> {
    let lines: Vec<String> = content.lines().map(str::to_lowercase).collect();
    let missing = |message: String| Finding { file: file.to_owned(), line: 0, message };
    let mut findings = Vec::new();
    for section in ["context", "decision", "consequences", "non-goals"] {
        let there = lines
            .iter()
            .any(|line| line.strip_prefix("## ").is_some_and(|title| title.trim().starts_with(section)));
        if !there {
            findings.push(missing(format!("has no section \"## {section}\"")));
        }
    }
    let preamble: Vec<&String> = lines.iter().take_while(|line| !line.starts_with("## ")).collect();
    for field in ["date", "status"] {
        let there = preamble.iter().any(|line| {
            let plain = line.replace(['*', '_'], "");
            let value = plain.split_once(&format!("{field}:")).map(|(_, value)| value.trim().to_owned());
            value.is_some_and(|value| value.starts_with(|first: char| first.is_alphanumeric()))
        });
        if !there {
            findings.push(missing(format!("says no \"{field}: …\" before its first section")));
        }
    }
    findings
}

fn is_markdown(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "md")
}

/// Decision records are named `NNNN-title.md`, and no number is used twice.
pub(super) fn adr_numbers<'a>(files: impl Iterator<Item = &'a str>) -> Vec<Finding> {
    let mut seen = std::collections::BTreeMap::new();
    let mut findings = Vec::new();
    for file in files.filter(|file| is_adr(file)) {
        let name = file.trim_start_matches("docs/adr/");
        let number = name.get(..4).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(number) = number.filter(|_| name.as_bytes().get(4) == Some(&b'-') && is_markdown(name))
        else {
            let message = "is not named NNNN-title.md".to_owned();
            findings.push(Finding { file: file.to_owned(), line: 0, message });
            continue;
        };
        if let Some(other) = seen.insert(number.to_owned(), file) {
            let message = format!("has the number of {other}");
            findings.push(Finding { file: file.to_owned(), line: 0, message });
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{adr_numbers, adr_sections, links};

    #[track_caller]
    fn check_links(content: &str, expected: &[&str]) {
        let there = |path: &Path| path == Path::new("docs/there.md") || path == Path::new("README.md");
        let found: Vec<_> =
            links("docs/a.md", content, there).into_iter().map(|finding| finding.message).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (message, part) in found.iter().zip(expected) {
            assert!(message.contains(part), "{message:?} lacks {part:?}");
        }
    }

    #[test]
    fn a_link_to_a_file_that_is_not_there_is_found() {
        check_links("[a](there.md) [b](../README.md#top) [c](#here) [d](https://example.org/x)", &[]);
        check_links("[a](gone.md) and ![b](img/gone.png \"title\")", &["gone.md", "img/gone.png"]);
        check_links("[a](../../elsewhere.md)", &["out of the repository"]);
    }

    #[test]
    fn code_is_no_link() {
        check_links("`[a](gone.md)`\n```text\n[b](gone.md)\n```\n", &[]);
    }

    const WHOLE: &str = "# 1. Title\n\n- Date: 2026-11-15\n- **Status:** accepted\n\n## Context\n\n## Decision\n\n\
                         ## Consequences\n\n## Non-goals\n";

    #[test]
    fn a_decision_record_has_every_section() {
        assert_eq!(adr_sections("docs/adr/0001-a.md", WHOLE), []);
        let one_line = WHOLE.replace("\n- **Status:**", ". Status:");
        assert_eq!(adr_sections("docs/adr/0001-a.md", &one_line), []);
        for part in
            ["## Context", "## Decision", "## Consequences", "## Non-goals", "- Date: 2026-11-15", "accepted"]
        {
            let found = adr_sections("docs/adr/0001-a.md", &WHOLE.replace(part, ""));
            assert_eq!(found.len(), 1, "without {part:?}: {found:?}");
        }
    }

    #[test]
    fn decision_records_are_numbered_once() {
        let files = ["docs/adr/0001-a.md", "docs/adr/0002-b.md", "docs/adr/README.md", "src/x.rs"];
        assert_eq!(adr_numbers(files.into_iter()), []);
        assert_eq!(adr_numbers(["docs/adr/0001-a.md", "docs/adr/0001-b.md"].into_iter()).len(), 1);
        assert_eq!(adr_numbers(["docs/adr/notes.md"].into_iter()).len(), 1);
    }
}
