//! What every reader of the file needs: where it lies, and where mistakes go.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::Environment;
use super::mistake::{Mistake, position};

/// Whether `{env:NAME}` and `{file:PATH}` are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolve {
    Yes,
    /// For the servers `wrap` does not start: a host that clears the environment must not break them all.
    No,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Context<'a> {
    /// The file as the person knows it.
    pub shown: &'a Path,
    pub text: &'a str,
    /// What relative paths in the file are relative to.
    pub directory: &'a Path,
    pub environment: Environment<'a>,
    pub resolve: Resolve,
    pub found: &'a RefCell<Found>,
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub mistakes: Vec<Mistake>,
    pub warnings: Vec<Mistake>,
    /// Lines with a syntax error.
    broken: BTreeSet<usize>,
    /// Lines of which the parser's recovery is a guess: the broken ones, and what follows a broken header.
    guessed: BTreeSet<usize>,
}

impl Context<'_> {
    pub(super) fn resolving(self, resolve: Resolve) -> Self {
        Self { resolve, ..self }
    }

    /// One per line: the parser stumbles over the same thing more than once.
    pub(super) fn syntax(&self, at: usize, message: String) {
        let (line, column) = position(self.text, at);
        let mut found = self.found.borrow_mut();
        if !found.broken.insert(line) {
            return;
        }
        found.mistakes.push(Mistake { file: self.shown.to_owned(), line, column, message });
        let mut lines = self.text.lines().zip(1..).skip(line - 1);
        let is_header = |text: &str| text.trim_start().starts_with('[');
        let header_is_lost = lines.next().is_some_and(|(text, _)| is_header(text));
        let lost = lines.take_while(|(text, _)| header_is_lost && !is_header(text)).map(|(_, line)| line);
        found.guessed.extend(lost.chain([line]));
    }

    pub(super) fn mistake(&self, at: usize, message: impl Into<String>) {
        let mistake = self.at(at, message);
        let mut found = self.found.borrow_mut();
        if !found.guessed.contains(&mistake.line) {
            found.mistakes.push(mistake);
        }
    }

    /// Something that should be there is not. With a syntax error about, it may well be.
    pub(super) fn absent(&self, at: usize, message: impl Into<String>) {
        if self.found.borrow().broken.is_empty() {
            self.mistake(at, message);
        }
    }

    /// A mistake of the command line; `option` stands where the file's name would.
    pub(super) fn mistaken_option(&self, option: &str, message: impl Into<String>) {
        let mistake = Mistake { file: option.into(), line: 0, column: 0, message: message.into() };
        self.found.borrow_mut().mistakes.push(mistake);
    }

    pub(super) fn warn(&self, at: usize, message: impl Into<String>) {
        let warning = self.at(at, message);
        self.found.borrow_mut().warnings.push(warning);
    }

    /// An absolute path for one that the file names. `Err` says what is missing.
    pub(super) fn path(&self, written: &str) -> Result<PathBuf, String> {
        let under_home = written.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        match (under_home, self.environment.home()) {
            (None, _) => Ok(self.directory.join(written)),
            (Some(rest), Some(home)) => Ok(home.join(rest.trim_start_matches('/'))),
            (Some(_), None) => Err("HOME is not set, so ~ leads nowhere".to_owned()),
        }
    }

    fn at(&self, at: usize, message: impl Into<String>) -> Mistake {
        let (line, column) = position(self.text, at);
        Mistake { file: self.shown.to_owned(), line, column, message: message.into() }
    }
}
