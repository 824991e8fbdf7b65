//! `[workspace]`.

use std::path::PathBuf;

use super::context::Context;
use super::table::Table;
use super::value::placeholder_in;

const KEYS: [&str; 1] = ["roots"];

/// Under which directories a workspace may lie. Without a word about it: the home directory.
pub(super) fn roots(context: Context<'_>, root: &Table<'_>) -> Vec<PathBuf> {
    let table = root.get("workspace").and_then(|field| field.table(context, "workspace."));
    let table = table.unwrap_or_default();
    table.check_keys(context, &KEYS, &[]);
    let Some(field) = table.get("roots") else {
        return context.environment.home().into_iter().collect();
    };
    let mut roots = Vec::new();
    for item in field.list(context, "a list of directories").unwrap_or_default() {
        let Some(written) = item.text(context) else {
            continue;
        };
        if let Some(name) = placeholder_in(written) {
            context.warn(item.at, format!("`workspace.roots` are taken as they are, {{{name}}} too"));
        }
        let path = match context.path(written) {
            Ok(path) => path,
            Err(problem) => {
                context.mistake(item.at, format!("{}: {problem}", item.label));
                continue;
            }
        };
        // Only a warning: a disk may be mounted later.
        if !path.is_dir() {
            let message = format!("no workspace can lie there, it is not a directory: {}", path.display());
            context.warn(item.at, message);
        }
        roots.push(path);
    }
    roots
}
