//! A line of `run.log`: columns, with two spaces or more between them.
//!
//! ```text
//! 09:31:02.123   +12.3s  tool   bash  ls -la  ok, 0.4 s  [3/call_1:end]
//! 09:31:04.007   +14.2s  tool   s1  bash  started  [5/call_1]
//! clock          since   kind   a subagent's label, if it is one's; what happened; its id
//! ```
//!
//! No column has two spaces in a row, so a line can be read back: what is known of a run is what its lines say.

use std::fmt::Write as _;

use model::session::{RunUsage, UnixMillis};

use super::super::plain::{clock, plain};

/// Bytes of a line, with its end.
pub(super) const LONGEST_LINE: usize = 2048;
/// What an id ends with that says how something ended.
pub(super) const END: &str = ":end";

/// How much of an agent's id is shown as it is.
const LONGEST_ID: usize = 48;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of ours. The only kind that has an id or has none.
    Note,
    State,
    Retry,
    Step,
    Tool,
    /// Never has an id.
    Text,
    Agent,
    Asked,
}

impl Kind {
    pub(super) const ALL: [Self; 8] =
        [Self::Note, Self::State, Self::Retry, Self::Step, Self::Tool, Self::Text, Self::Agent, Self::Asked];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::State => "state",
            Self::Retry => "retry",
            Self::Step => "step",
            Self::Tool => "tool",
            Self::Text => "text",
            Self::Agent => "agent",
            Self::Asked => "asked",
        }
    }

    /// Columns between kind and id, without a label.
    fn columns(self, id: &str) -> usize {
        match self {
            Self::Note | Self::State | Self::Text => 1,
            Self::Step | Self::Tool => 2 + usize::from(id.ends_with(END)),
            Self::Asked => 2,
            Self::Retry | Self::Agent => 3,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) kind: Kind,
    /// Of the subagent that it is about; 0: of none.
    pub(super) label: u32,
    pub(super) columns: Vec<String>,
    /// Under which nothing else is ever written.
    pub(super) id: Option<String>,
}

impl Line {
    pub(super) fn new(kind: Kind, label: u32) -> Self {
        Self { kind, label, columns: Vec::new(), id: None }
    }

    /// At most `most` bytes of it.
    pub(super) fn column(mut self, text: &str, most: usize) -> Self {
        self.columns.push(plain(text, most));
        self
    }

    /// Made of [`short`] and of what it is safe to add.
    pub(super) fn id(mut self, id: String) -> Self {
        self.id = Some(id);
        self
    }

    /// All but the times and the id.
    pub(super) fn said(&self) -> String {
        let mut said = self.kind.as_str().to_owned();
        if self.label > 0 {
            let _infallible = write!(said, " s{}", self.label);
        }
        for column in &self.columns {
            said.push(' ');
            said.push_str(column);
        }
        said
    }

    pub(super) fn written(&self, at: UnixMillis, began: UnixMillis) -> String {
        let since = at.0.saturating_sub(began.0);
        let since = format!("+{}.{}s", since / 1000, since % 1000 / 100);
        let mut text = format!("{}  {since:>8}  {:<5}", clock(at), self.kind.as_str());
        if self.label > 0 {
            let _infallible = write!(text, "  s{}", self.label);
        }
        for column in &self.columns {
            text.push_str("  ");
            text.push_str(column);
        }
        if let Some(id) = &self.id {
            let _infallible = write!(text, "  [{id}]");
        }
        text.push('\n');
        text
    }

    /// None: it is no whole line of ours.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut all = text.split("  ").map(str::trim).filter(|column| !column.is_empty());
        let (_clock, _since, kind) = (all.next()?, all.next()?, all.next()?);
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
        let mut columns: Vec<String> = all.map(str::to_owned).collect();
        let bracketed = |column: &String| Some(column.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        let id = match kind {
            Kind::Text => None,
            Kind::Note if columns.len() < 2 => None,
            Kind::Note | Kind::State | Kind::Retry | Kind::Step | Kind::Tool | Kind::Agent | Kind::Asked => {
                Some(bracketed(&columns.pop()?)?)
            }
        };
        let width = kind.columns(id.as_deref().unwrap_or_default());
        let mut label = 0;
        if columns.len() == width + 1 {
            label = columns.remove(0).strip_prefix('s')?.parse().ok()?;
        }
        (columns.len() == width).then_some(Self { kind, label, columns, id })
    }
}

/// An agent's id as it may stand in a line: itself, where it looks as ids do; else its beginning and a digest.
pub(super) fn short(id: &str) -> String {
    let fine = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if !id.is_empty() && id.len() <= LONGEST_ID && id.as_bytes().iter().all(fine) {
        return id.to_owned();
    }
    let beginning: String = id.bytes().filter(fine).take(24).map(char::from).collect();
    format!("{beginning}~{:016x}", digest(id.as_bytes()))
}

/// FNV-1a. Whoever finds two ids with one digest loses a line of his own log.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |digest, byte| {
        (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `1234 tokens in, 56 out, 7 reasoning, $0.001234`: what is not there is not said, but for the first two.
pub(super) fn usage(usage: RunUsage) -> String {
    let RunUsage {
        input_tokens,
        output_tokens,
        reasoning_tokens,
        cache_read_tokens,
        cache_write_tokens,
        cost_micros,
    } = usage;
    let mut text = format!("{input_tokens} tokens in, {output_tokens} out");
    let more = [
        (reasoning_tokens, "reasoning"),
        (cache_read_tokens, "read from cache"),
        (cache_write_tokens, "written to cache"),
    ];
    for (count, what) in more.into_iter().filter(|(count, _)| *count > 0) {
        let _infallible = write!(text, ", {count} {what}");
    }
    if cost_micros > 0 {
        let _infallible = write!(text, ", ${}.{:06}", cost_micros / 1_000_000, cost_micros % 1_000_000);
    }
    text
}

/// What [`usage`] wrote.
pub(super) fn parse_usage(text: &str) -> RunUsage {
    let mut usage = RunUsage::default();
    for part in text.split(", ") {
        if let Some(cost) = part.strip_prefix('$') {
            usage.cost_micros = cost.replace('.', "").parse().unwrap_or_default();
        }
        let Some((count, what)) = part.split_once(' ') else { continue };
        let count = count.parse().unwrap_or_default();
        match what {
            "tokens in" => usage.input_tokens = count,
            "out" => usage.output_tokens = count,
            "reasoning" => usage.reasoning_tokens = count,
            "read from cache" => usage.cache_read_tokens = count,
            "written to cache" => usage.cache_write_tokens = count,
            _ => {}
        }
    }
    usage
}
