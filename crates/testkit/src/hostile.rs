//! The hostile server: one mode per bad input, otherwise a plain small MCP server.
//!
//! Its tools: `echo{text}` behaves in most modes; `flood` does the mode's evil. Loads are bounded.
//!
//! | mode | what it does |
//! |---|---|
//! | `long-line` | `flood` writes `--bytes` (2,000 MB) of `A` without a newline, then one; never answers |
//! | `noise` | prints log lines and colour codes before and between messages |
//! | `stray-ids` | answers ids never issued, then the call, then the call again |
//! | `deep` | `flood` writes `[` × 100,000, then answers; `deep_result` answers with such a result |
//! | `bad-utf8` | `flood` writes four broken lines, then answers; `surrogate` answers with `"\ud800"` |
//! | `deaf` | never answers `tools/call`, ignores cancels, SIGTERM and the end of its input |
//! | `crash-loop` | exits with 1 at once |
//! | `progress-flood` | `flood` reports progress 50,000 times a second for `--seconds` (10) |
//! | `stderr-flood` | `flood` writes `--bytes` (1 GB) to stderr, then answers; `echo` works meanwhile |
//! | `rug-pull` | the description changes with each list, up to `--changes N`; from the second on there is a look-alike; `--count FILE` counts lists |
//! | `big-result` | `flood{bytes}` answers with that many bytes |
//! | `never-initialize` | reads and says nothing |
//! | `slow-start` | waits `--delay` ms (2,000) before it reads |
//! | `needs-env NAME` | exits with 1 where the variable is missing or empty |
//! | `many-tools` | lists `--tools` (1,001) tools |
//! | `endless-pages` | every page of `tools/list` names a next one |
//! | `lock FILE` | exits with 1 while another process holds the lock |
//! | `oauth`, `redirect` | HTTP only: see `hostile/http.rs` |
//!
//! `--count FILE` gets one line per start of the process (in `rug-pull`: per list).

mod http;
mod stdio;

use std::io::Write as _;
use std::process::ExitCode;

/// The command line.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub mode: String,
    /// The word after the mode, for modes that take one.
    pub subject: String,
    pub http: Option<String>,
    pub count: Option<String>,
    pub bytes: Option<u64>,
    pub seconds: Option<u64>,
    pub delay: Option<u64>,
    pub tools: Option<usize>,
    pub changes: Option<usize>,
    /// Where `redirect` points.
    pub to: Option<String>,
}

impl Options {
    fn parse() -> Self {
        let mut arguments = std::env::args().skip(1);
        let mut options = Self::default();
        while let Some(argument) = arguments.next() {
            let number = |text: Option<String>| text.and_then(|text| text.parse().ok());
            match argument.as_str() {
                "--mode" => options.mode = arguments.next().unwrap_or_default(),
                "--http" => options.http = arguments.next(),
                "--count" => options.count = arguments.next(),
                "--bytes" => options.bytes = number(arguments.next()),
                "--seconds" => options.seconds = number(arguments.next()),
                "--delay" => options.delay = number(arguments.next()),
                "--tools" => options.tools = arguments.next().and_then(|text| text.parse().ok()),
                "--changes" => options.changes = arguments.next().and_then(|text| text.parse().ok()),
                "--to" => options.to = arguments.next(),
                "--stdio" => {}
                _ => options.subject = argument,
            }
        }
        options
    }

    /// Adds a line to the count file; gives how many there are now.
    fn count(&self) -> usize {
        let Some(path) = &self.count else { return 0 };
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
        if let Ok(mut file) = file {
            drop(writeln!(file, "{}", std::process::id()));
        }
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    }
}

/// The program.
pub fn main() -> ExitCode {
    let options = Options::parse();
    if options.mode != "rug-pull" {
        options.count();
    }
    match options.mode.as_str() {
        "crash-loop" => return ExitCode::FAILURE,
        "needs-env" if std::env::var_os(&options.subject).is_none_or(|value| value.is_empty()) => {
            drop(writeln!(std::io::stderr(), "{} is not set", options.subject));
            return ExitCode::FAILURE;
        }
        _ => {}
    }
    let result = match options.http.clone() {
        Some(address) => http::run(&address, &options),
        None => stdio::run(&options),
    };
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
