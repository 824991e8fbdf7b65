//! A turn as OpenCode has stored it.
//!
//! A prompt with an output schema cannot be shown by OpenCode 1.18: asked for it, alone or in a page with others, it
//! answers 400. Such a prompt is there all the same, and the answers to it can be had one by one.

use bytes::Bytes;
use http::{Method, StatusCode};
use model::ports::agent::{AgentError, PromptId, SessionRef};
use model::session::RunUsage;

use super::wire::{self, Entry, Role};
use super::{LARGE, MIDDLE, OpenCode, Path, is_name, parse, refusal};

/// Messages of one page.
const PAGE: usize = 20;
/// Pages that are read of one turn. A turn of more steps is counted from its end.
const PAGES: usize = 500;
/// What is read and kept of one turn, over all its pages.
const BYTES: usize = 64 * 1024 * 1024;
const PARTS: usize = 100_000;
/// Subagents that are looked at.
const CHILDREN: usize = 64;
/// Where OpenCode says how to go on.
const CURSOR: &str = "x-next-cursor";

/// Whether a prompt is in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    No,
    Yes {
        /// What it is to be answered by.
        model: Option<wire::ModelRef>,
    },
    /// It is there, and cannot be shown.
    Hidden,
}

/// How far back is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// What is on the last page.
    Newest,
    Whole,
}

/// What a model said to a prompt, in order.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) found: Found,
    pub(super) answers: Vec<Entry>,
}

/// What may still come of a turn.
struct Room {
    bytes: usize,
    parts: usize,
}

enum Page {
    Entries {
        entries: Vec<Entry>,
        before: Option<String>,
        bytes: usize,
    },
    /// A hidden prompt is in it.
    Hidden,
}

impl OpenCode {
    pub(super) async fn find(&self, prompt: &PromptId) -> Result<Found, AgentError> {
        let SessionRef { id, directory } = &prompt.session;
        let path = Path::session(id, &format!("/message/{}", prompt.message), directory)?.at_most(LARGE);
        let response = self.client.send(Method::GET, &path.written(), None, path.bounds(self)).await?;
        match response.status {
            StatusCode::OK => {
                let entry: Entry = parse(&path, response.body).await?;
                Ok(Found::Yes { model: entry.info.model })
            }
            StatusCode::NOT_FOUND if wire::error_message(&response.body).contains("Session") => {
                Err(AgentError::Unknown { what: format!("the session {id}") })
            }
            StatusCode::NOT_FOUND => Ok(Found::No),
            StatusCode::BAD_REQUEST if is_hidden(&response.body) => Ok(Found::Hidden),
            _ => Err(refusal(&path, &response)),
        }
    }

    /// What was said in the turn that `prompt` began.
    pub(super) async fn stored(&self, prompt: &PromptId, depth: Depth) -> Result<Stored, AgentError> {
        // Both at once: somebody may be waiting for the answer.
        let (found, first) = tokio::join!(self.find(prompt), self.page(&prompt.session, PAGE, None));
        let found = found?;
        // A page without the prompt may be older than the prompt: it would lead to the answers of the turn before.
        let mut first = Some(first).filter(|first| shows(first, prompt.message.as_str()));
        let mut answers = Vec::new();
        if found == Found::No {
            return Ok(Stored { found, answers });
        }
        let mut room = Room { bytes: BYTES, parts: PARTS };
        let (mut size, mut before) = (PAGE, None);
        for _ in 0..PAGES {
            let page = match first.take() {
                Some(page) => page,
                None => self.page(&prompt.session, size, before.as_deref()).await,
            };
            match page? {
                Page::Entries { entries, before: next, bytes } => {
                    room.take(&entries, bytes)?;
                    if collect(entries, prompt.message.as_str(), &mut answers) || depth == Depth::Newest {
                        break;
                    }
                    let Some(next) = next else { break };
                    before = Some(next);
                }
                // One by one, up to the prompt that cannot be shown. There is no way past it, and no need.
                Page::Hidden if size > 1 => size = 1,
                Page::Hidden => break,
            }
        }
        answers.reverse();
        Ok(Stored { found, answers })
    }

    async fn page(
        &self,
        session: &SessionRef,
        size: usize,
        before: Option<&str>,
    ) -> Result<Page, AgentError> {
        let before = before.map(|before| format!("&before={}", super::encoded(before))).unwrap_or_default();
        let path = Path::session(&session.id, &format!("/message?limit={size}{before}"), &session.directory)?;
        let path = path.at_most(LARGE);
        let response = self.client.send(Method::GET, &path.written(), None, path.bounds(self)).await?;
        match response.status {
            StatusCode::OK => {
                let before = response.headers.get(CURSOR).and_then(|value| value.to_str().ok());
                let (before, bytes) = (before.map(str::to_owned), response.body.len());
                let entries: wire::AtMost<Entry, PAGE> = parse(&path, response.body).await?;
                Ok(Page::Entries { entries: entries.0, before, bytes })
            }
            StatusCode::BAD_REQUEST if is_hidden(&response.body) => Ok(Page::Hidden),
            _ => Err(refusal(&path, &response)),
        }
    }

    /// The sessions that were started by tools of this one, with theirs.
    pub(super) async fn descendants(&self, session: &SessionRef) -> Result<Vec<wire::Session>, AgentError> {
        let mut all: Vec<wire::Session> = Vec::new();
        let mut next = 0;
        let mut parent = session.id.clone();
        loop {
            let path = Path::session(&parent, "/children", &session.directory)?.at_most(MIDDLE);
            let children: Vec<wire::Session> = self.get(&path).await?;
            let room = CHILDREN.saturating_sub(all.len());
            all.extend(children.into_iter().rev().filter(|child| is_name(&child.id)).take(room));
            let Some(child) = all.get(next) else { return Ok(all) };
            parent.clone_from(&child.id);
            next += 1;
        }
    }

    /// What subagents took that were started in this turn.
    pub(super) async fn subagents_usage(
        &self,
        prompt: &PromptId,
        answers: &[Entry],
    ) -> Result<RunUsage, AgentError> {
        let mut usage = RunUsage::default();
        let parts = || answers.iter().flat_map(|entry| &entry.parts.0);
        if !parts().any(|part| part.tool == "task") {
            return Ok(usage);
        }
        let begun = answers.first().and_then(|entry| entry.info.time.created);
        for child in self.descendants(&prompt.session).await? {
            if child.time.created >= begun {
                wire::add(&mut usage, &child.usage());
            }
        }
        Ok(usage)
    }

    /// Whether OpenCode has this model; none where it does not say.
    pub(super) async fn has_model(&self, directory: &str, wanted: &wire::ModelRef) -> Option<bool> {
        let path = Path::of("/config/providers", directory).at_most(MIDDLE);
        let all: wire::Providers = self.get(&path).await.ok()?;
        let mut providers = all.providers.iter().filter(|provider| provider.id == wanted.provider);
        Some(providers.any(|provider| provider.models.contains_key(&wanted.model)))
    }
}

impl Room {
    /// A part may be as short as two brackets, and is a hundred times as long once it is read: both are counted.
    fn take(&mut self, entries: &[Entry], bytes: usize) -> Result<(), AgentError> {
        let parts = entries.iter().map(|entry| entry.parts.0.len()).sum();
        match (self.bytes.checked_sub(bytes), self.parts.checked_sub(parts)) {
            (Some(bytes), Some(parts)) => {
                *self = Self { bytes, parts };
                Ok(())
            }
            (None, _) | (_, None) => {
                Err(AgentError::Protocol { what: "a turn over the limit of size".to_owned() })
            }
        }
    }
}

/// Whether a page is of a time at which the prompt was stored.
fn shows(page: &Result<Page, AgentError>, prompt: &str) -> bool {
    match page {
        Ok(Page::Entries { entries, .. }) => entries.iter().any(|entry| entry.info.id == prompt),
        Ok(Page::Hidden) | Err(_) => false,
    }
}

/// Adds answers, newest first, until the prompt. True: it was reached.
fn collect(entries: Vec<Entry>, prompt: &str, answers: &mut Vec<Entry>) -> bool {
    for entry in entries.into_iter().rev() {
        if entry.info.id == prompt {
            return true;
        }
        match entry.info.role {
            Role::Assistant => answers.push(entry),
            // OpenCode says itself that it goes on, after it has summed up a long conversation.
            Role::User if goes_on(&entry) => {}
            // What was found so far belongs to a later prompt.
            Role::User => answers.clear(),
        }
    }
    false
}

fn goes_on(entry: &Entry) -> bool {
    !entry.parts.0.is_empty() && entry.parts.0.iter().all(|part| part.synthetic || part.kind == "compaction")
}

/// `{"name": "BadRequest", "data": {"message": "Expected OutputFormat… at [\"info\"][\"format\"]", "kind": "Body"}}`
fn is_hidden(body: &Bytes) -> bool {
    let message = wire::error_message(body);
    message.contains("OutputFormat") && message.contains("format")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_of_a_turn_has_a_bound() {
        let parts = vec![json!({}); wire::PARTS];
        let entry = || -> Entry {
            serde_json::from_value(json!({ "info": { "id": "msg_1", "role": "user" }, "parts": parts }))
                .unwrap()
        };
        let mut room = Room { bytes: BYTES, parts: PARTS };
        for _ in 0..PARTS / wire::PARTS {
            room.take(&[entry()], BYTES / 1000).unwrap();
        }
        assert_eq!(room.take(&[entry()], 1).unwrap_err().code(), "agent_protocol");
        let mut room = Room { bytes: BYTES, parts: PARTS };
        room.take(&[], BYTES).unwrap();
        assert_eq!(room.take(&[], 1).unwrap_err().code(), "agent_protocol");
    }

    #[test]
    fn only_what_follows_the_prompt_belongs_to_it() {
        let entry = |id: &str, role: &str, parts: serde_json::Value| -> Entry {
            serde_json::from_value(json!({ "info": { "id": id, "role": role }, "parts": parts })).unwrap()
        };
        let text = json!([{ "type": "text", "text": "x" }]);
        let history = || {
            vec![
                entry("msg_old", "assistant", text.clone()),
                entry("msg_ours", "user", text.clone()),
                entry("msg_a", "assistant", text.clone()),
                entry("msg_sum", "user", json!([{ "type": "compaction" }])),
                entry("msg_b", "assistant", text.clone()),
                entry("msg_go", "user", json!([{ "type": "text", "text": "go on", "synthetic": true }])),
                entry("msg_c", "assistant", text.clone()),
            ]
        };
        let ids = |answers: &[Entry]| answers.iter().map(|entry| entry.info.id.clone()).collect::<Vec<_>>();
        let mut answers = Vec::new();
        assert!(collect(history(), "msg_ours", &mut answers));
        assert_eq!(ids(&answers), ["msg_c", "msg_b", "msg_a"]);
        let mut later = history();
        later.push(entry("msg_next", "user", text.clone()));
        later.push(entry("msg_d", "assistant", text.clone()));
        let mut answers = Vec::new();
        assert!(collect(later, "msg_ours", &mut answers));
        assert_eq!(ids(&answers), ["msg_c", "msg_b", "msg_a"]);
    }
}
