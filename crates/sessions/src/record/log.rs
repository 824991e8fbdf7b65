//! `run.log`: what happens in a run, for people, while it happens.
//!
//! ```text
//! Progress ─▶ memory.rs: was this written? ─▶ line.rs: columns ─▶ appended, in one write
//!                ▲                                                     │
//!                └────── every line, written now or found on opening ──┘
//! ```
//!
//! A second watch of a turn tells everything again, perhaps in another process. Each line that an agent's progress
//! makes ends with an id, and under an id there is one line.
//!
//! The file is a help, not a promise: it is not synced, and a run goes on when it cannot be written.

mod line;
mod memory;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use model::ports::agent::Progress;
use model::session::UnixMillis;

use super::plain::{bytes, date};
use line::{Kind, LONGEST_LINE, Line};
use memory::{FULL, Memory};

pub use memory::LogTotals;

/// What an agent can make a log grow to.
const MOST: u64 = 16 << 20;
/// What notes can make it grow to. Whoever opens it reads all of this.
const MOST_WITH_NOTES: u64 = MOST + (1 << 20);
/// How much of a note has room in a line.
const NOTE: usize = LONGEST_LINE - 64;
/// Conversations whose texts are summed up at a time.
const MOST_TEXTS: usize = 64;

/// The log of one run, open for writing. At any time one process has it open, or two whose lines are whole all the same.
#[derive(Debug)]
pub struct RunLog {
    file: File,
    /// From when the seconds are counted.
    began: UnixMillis,
    size: u64,
    /// Of the last line that says a day.
    day: String,
    /// Whether the last line has no end.
    torn: bool,
    /// Whether the last write failed.
    failing: bool,
    memory: Memory,
    texts: Vec<Text>,
}

/// What the model said in one conversation since the last line.
#[derive(Debug)]
struct Text {
    label: u32,
    bytes: u64,
    /// The last of it.
    at: UnixMillis,
}

impl RunLog {
    /// Goes on with a log that is there. `began` is the same each time: when the run was claimed first, say.
    pub fn open(path: &Path, began: UnixMillis) -> io::Result<Self> {
        let file = File::options().read(true).append(true).create(true).mode(0o600).open(path)?;
        let size = file.metadata()?.len();
        let memory = Memory::default();
        let mut log = Self {
            file,
            began,
            size,
            day: String::new(),
            torn: false,
            failing: false,
            memory,
            texts: Vec::new(),
        };
        log.recall()?;
        Ok(log)
    }

    /// A remark of ours. Not told apart from others: who says it twice is heard twice.
    pub fn note(&mut self, at: UnixMillis, line: &str) {
        self.write_texts();
        self.write(at, &Line::new(Kind::Note, 0).column(line, NOTE));
    }

    /// Nothing is written of what was written before.
    pub fn progress(&mut self, at: UnixMillis, progress: &Progress) {
        if let Progress::Text { thread, bytes } = progress {
            return self.add_text(at, self.memory.label(thread), *bytes);
        }
        if let Some(line) = self.memory.line(at, progress) {
            self.write_texts();
            self.write(at, &line);
        }
    }

    /// What all lines come to, those of earlier writers among them.
    pub fn totals(&self) -> &LogTotals {
        self.memory.totals()
    }

    fn recall(&mut self) -> io::Result<()> {
        let mut reader = BufReader::new((&self.file).take(MOST_WITH_NOTES));
        let mut bytes = Vec::new();
        while reader.read_until(b'\n', &mut bytes)? > 0 {
            let text = String::from_utf8_lossy(&bytes);
            self.torn = !text.ends_with('\n');
            if let Some(day) = text.get(..10).filter(|day| day.as_bytes()[4] == b'-') {
                day.clone_into(&mut self.day);
            } else if let Some(line) = Line::parse(text.trim_end_matches('\n')).filter(|_| !self.torn) {
                self.memory.absorb(&line);
            }
            bytes.clear();
        }
        Ok(())
    }

    fn add_text(&mut self, at: UnixMillis, label: u32, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        if let Some(text) = self.texts.iter_mut().find(|text| text.label == label) {
            text.bytes = text.bytes.saturating_add(bytes);
            text.at = at;
            return;
        }
        if self.texts.len() >= MOST_TEXTS {
            self.write_texts();
        }
        self.texts.push(Text { label, bytes, at });
    }

    fn write_texts(&mut self) {
        for text in std::mem::take(&mut self.texts) {
            self.write(text.at, &Line::new(Kind::Text, text.label).column(&bytes(text.bytes), NOTE));
        }
    }

    fn write(&mut self, at: UnixMillis, line: &Line) {
        // Remembered even if it cannot be written: the totals are right, and whoever opens the file next is told again.
        self.memory.absorb(line);
        let is_note = line.kind == Kind::Note;
        if self.memory.is_full() && !is_note {
            return;
        }
        let text = line.written(at, self.began);
        let size = self.size.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
        if size <= if is_note { MOST_WITH_NOTES } else { MOST } {
            self.append(at, &text);
        } else if !self.memory.is_full() {
            let full = Line::new(Kind::Note, 0).column("the log is full: only notes follow", NOTE);
            let full = full.id(FULL.to_owned());
            self.memory.absorb(&full);
            self.append(at, &full.written(at, self.began));
        }
    }

    fn append(&mut self, at: UnixMillis, text: &str) {
        let day = date(at);
        let mut bytes = Vec::with_capacity(text.len() + 64);
        if self.torn {
            bytes.push(b'\n');
        }
        if day != self.day {
            bytes.extend_from_slice(format!("{day}, times are UTC\n").as_bytes());
        }
        bytes.extend_from_slice(text.as_bytes());
        match self.file.write_all(&bytes) {
            Ok(()) => {
                self.size += u64::try_from(bytes.len()).unwrap_or(u64::MAX);
                self.day = day;
                self.torn = false;
                self.failing = false;
            }
            Err(error) => {
                // Once for each time that it begins to fail. Half a line may be there.
                if !self.failing {
                    tracing::warn!(%error, "run.log cannot be written; the run goes on");
                }
                self.torn = true;
                self.failing = true;
            }
        }
    }
}
