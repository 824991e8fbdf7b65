//! What is wrong with a configuration, and where.

use std::fmt;
use std::path::PathBuf;

/// One thing to put right. The message says what to do and never shows a value that may be a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// As the person knows it: the path they gave, or an option of the command line.
    pub file: PathBuf,
    /// From 1. 0: the file as a whole.
    pub line: usize,
    /// From 1, in characters. 0: the file as a whole.
    pub column: usize,
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column, message } = self;
        if *line == 0 {
            return write!(f, "{}: {message}", file.display());
        }
        if *column == 0 {
            return write!(f, "{}:{line}: {message}", file.display());
        }
        write!(f, "{}:{line}:{column}: {message}", file.display())
    }
}

/// Every mistake of a configuration, in the order of the file. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<Mistake>);

impl ConfigErrors {
    /// A mistake that has no line.
    pub(super) fn of_file(file: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        Self(vec![Mistake { file: file.into(), line: 0, column: 0, message: message.into() }])
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Line and column, both from 1, of a byte offset.
pub(super) fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    // A byte order mark is not a column.
    let column = before[line_start..].chars().filter(|character| *character != '\u{feff}').count() + 1;
    (line, column)
}
