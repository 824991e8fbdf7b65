//! What no compiler checks. Each check is a pure function from text to findings; this file feeds them.

mod arrows;
mod docs;
mod sources;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::process::output;
use crate::workspace::Workspace;

/// One thing that is wrong, where.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    file: String,
    /// Counted from 1; 0 means the file as a whole.
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(formatter, "{}: {}", self.file, self.message),
            line => write!(formatter, "{}:{line}: {}", self.file, self.message),
        }
    }
}

/// A summary if all is well; otherwise every finding is printed and the result is an error.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let files = tracked(workspace)?;
    let known: BTreeSet<&str> = files.iter().map(String::as_str).collect();
    let mut findings = Vec::new();
    for file in &files {
        let path = workspace.root.join(file);
        let bytes = std::fs::read(&path).with_context(|| format!("could not read {file}"))?;
        // What is no text is an image or an archive: nothing in it is ours to check.
        let Ok(content) = String::from_utf8(bytes) else { continue };
        findings.extend(check_file(workspace, file, &content));
    }
    findings.extend(docs::adr_numbers(known.iter().copied()));
    findings.extend(edited_migrations(&changed_migrations(workspace)?));
    for finding in &findings {
        println!("{finding}");
    }
    if !findings.is_empty() {
        bail!("{} findings", findings.len());
    }
    Ok(format!("{} files", files.len()))
}

fn check_file(workspace: &Workspace, file: &str, content: &str) -> Vec<Finding> {
    let mut findings = text::check(file, content);
    let extension = Path::new(file).extension().and_then(|extension| extension.to_str());
    match extension {
        Some("rs") => findings.extend(sources::check(file, content)),
        Some("md") => {
            findings.extend(docs::links(file, content, |target| workspace.root.join(target).exists()));
            if docs::is_adr(file) {
                findings.extend(docs::adr_sections(file, content));
            }
        }
        Some("toml") if file.ends_with("Cargo.toml") => findings.extend(arrows::check(file, content)),
        _ => {}
    }
    findings
}

/// Files that git knows or would add, and that are there.
fn tracked(workspace: &Workspace) -> Result<Vec<String>> {
    let mut command = workspace.command("git");
    command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]);
    let list = output(&mut command)?;
    let there = |file: &&str| !file.is_empty() && workspace.root.join(file).is_file();
    Ok(list.split('\0').filter(there).map(str::to_owned).collect())
}

/// Migrations that some commit, or the working tree, changed or deleted after they were added.
fn changed_migrations(workspace: &Workspace) -> Result<Vec<String>> {
    let filter = ["--diff-filter=MDR", "--name-only"];
    let only = ["--", ":(glob)crates/*/migrations/*.sql"];
    let committed = output(workspace.command("git").args(["log", "--format="]).args(filter).args(only))?;
    let here = output(workspace.command("git").args(["diff", "HEAD"]).args(filter).args(only))?;
    Ok(committed.lines().chain(here.lines()).map(str::to_owned).collect())
}

fn edited_migrations(changed: &[String]) -> Vec<Finding> {
    let files: BTreeSet<&String> = changed.iter().filter(|file| !file.is_empty()).collect();
    let message = "a migration is added, never edited: databases out there have run the old one";
    files.into_iter().map(|file| Finding { file: file.clone(), line: 0, message: message.into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::edited_migrations;

    #[test]
    fn an_edited_migration_is_named_once() {
        let changed = ["a.sql", "a.sql", ""].map(str::to_owned);
        let findings = edited_migrations(&changed);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].file, "a.sql");
        assert!(edited_migrations(&[]).is_empty());
    }
}
