//! What `install` wrote down, so that `uninstall` can take back that and nothing else.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What is kept of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The file before us. None: there was none.
    pub original: Option<Vec<u8>>,
    /// The file as we left it.
    pub installed: Vec<u8>,
    pub journal: Journal,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Journal {
    /// In the order in which they were made.
    pub edits: Vec<Edit>,
}

/// One edit: an entry that was wrapped, or a hook that was added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Where in the file, from its root.
    pub path: Vec<String>,
    /// What stands at the path without us. None: nothing.
    pub value: Option<Value>,
    /// What stands there with us.
    pub written: Value,
    /// The lines that changed, before and after.
    pub before: String,
    pub after: String,
    /// Fields as they were written, by name, for those that we changed or took out.
    pub texts: Vec<(String, String)>,
}

impl Edit {
    /// How the field was once written, if it said the same.
    pub fn text(&self, field: &str, value: &Value) -> Option<String> {
        let same = self.value.as_ref().and_then(|entry| entry.get(field)) == Some(value);
        let (_, text) = self.texts.iter().find(|(name, _)| name == field)?;
        same.then(|| text.clone())
    }
}

/// The lines in which two texts differ: one run of whole lines each.
pub(crate) fn changed_lines(before: &str, after: &str) -> (String, String) {
    let mut start = before.bytes().zip(after.bytes()).take_while(|(one, other)| one == other).count();
    start = before[..floor(before, start)].rfind('\n').map_or(0, |newline| newline + 1);
    let (old, new) = (&before[start..], &after[start..]);
    let mut tail = old.bytes().rev().zip(new.bytes().rev()).take_while(|(one, other)| one == other).count();
    // The shared end begins behind a line end.
    let common = &old[ceil(old, old.len() - tail)..];
    tail = common.find('\n').map_or(0, |newline| common.len() - newline - 1);
    (old[..old.len() - tail].to_owned(), new[..new.len() - tail].to_owned())
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_lines_that_differ_are_kept() {
        let check = |before: &str, after: &str, expected: (&str, &str)| {
            let found = changed_lines(before, after);
            assert_eq!((found.0.as_str(), found.1.as_str()), expected);
            assert_eq!(after.replacen(&found.1, &found.0, 1), before);
        };
        check("a\nbé\nc\n", "a\nbè\nc\n", ("bé\n", "bè\n"));
        check("a\nb\nc\n", "a\nb\nx\nc\n", ("c\n", "x\nc\n"));
        check("a\nc", "a\nx\nc", ("c", "x\nc"));
        check("a\nb", "a\nb2", ("b", "b2"));
        check("x\nx\n", "x\nx\nx\n", ("", "x\n"));
    }
}
