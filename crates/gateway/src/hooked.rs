//! Hooks around a call: after it is settled who calls, before anything is signed or sent; and again with the answer.
//!
//! ```text
//! Call ─ before ─→ Call with new arguments, `_meta`, headers, environment ─ stamp ─ server ─ after ─→ answer
//! ```
//!
//! A hook that throws refuses the call, or withholds its result. What it writes is checked for our own names once
//! more, the way a client's is.

use std::borrow::Cow;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use bytes::Bytes;
use hooks::{Chain, Draft, Ended, Event, Fault, FaultKind, Input, Pairs};
use mcp::splice::Edit;
use mcp::{Message, headers};
use model::Id;
use serde::Deserialize;
use tokio_util::task::TaskTracker;

use crate::caller::{Call, Caller};
use crate::front::http::MAX_INBOUND;
use crate::respond::CallError;
use crate::server::link::LinkOptions;
use crate::strip::strip;

/// What hooks are fired for.
const METHODS: [&str; 4] = ["tools/call", "tools/list", "prompts/get", "resources/read"];

/// The hooks of one server, which can change while it serves.
#[derive(Debug, Default)]
pub struct Slot(RwLock<Option<Arc<Chain>>>);

impl Slot {
    pub fn set(&self, chain: Option<Arc<Chain>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = chain;
    }

    /// Whether there is a hook for answers.
    pub fn sees_answers(&self) -> bool {
        let chain = self.0.read().unwrap_or_else(PoisonError::into_inner);
        chain.as_ref().is_some_and(|chain| chain.handles(Event::After))
    }

    /// The hooks this request is for, if there are any.
    pub fn of(&self, message: &Message) -> Option<Arc<Chain>> {
        let chain = self.0.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        METHODS.contains(&message.method()).then_some(chain)
    }
}

/// What hooks have made of a call, beside its message.
#[derive(Default)]
pub struct Hooked {
    /// The configured headers as they are now. None: nobody has looked at them.
    pub headers: Option<Arc<Pairs>>,
    /// What an answer would stand for, as the client asked it.
    pub question: Option<Bytes>,
    /// For a process that this call starts.
    pub env: Pairs,
    pub arguments_changed: bool,
    pub after: Option<Arc<After>>,
}

/// Headers and variables hold secrets.
impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hooked").field("after", &self.after).finish_non_exhaustive()
    }
}

/// Runs the hooks before a call. `configured` are the headers it would be sent with.
pub async fn before(
    chain: Arc<Chain>,
    options: &Arc<LinkOptions>,
    configured: Pairs,
    tasks: &TaskTracker,
    call: Call,
) -> Result<Call, CallError> {
    let Call { message, caller, record, .. } = call;
    let question = crate::call::stand_in_question(&message);
    let slice = |span: &Option<mcp::Span>| span.as_ref().map(|span| message.slice(span));
    let draft = Draft {
        headers: configured,
        meta: slice(&message.head().meta).filter(|meta| meta.starts_with(b"{")),
        arguments: slice(&message.head().arguments),
        ..Draft::default()
    };
    let draft = if chain.handles(Event::Before) {
        let input = input(&options.server, &message, &caller);
        let begun = Instant::now();
        let ran = chain.run(&input, draft).await;
        options.recorder.meters.hooks.observe(begun.elapsed());
        ran.map_err(|fault| options.refusal(REFUSED, &fault))?
    } else {
        draft
    };
    let message = rewritten(message, &draft)?;
    let after = chain.handles(Event::After).then(|| {
        Arc::new(After {
            chain,
            options: Arc::clone(options),
            message: message.clone(),
            caller: Arc::clone(&caller),
            begun: Instant::now(),
            tasks: tasks.clone(),
        })
    });
    let hooked = Hooked {
        headers: Some(Arc::new(draft.headers)),
        question,
        env: draft.env,
        arguments_changed: draft.arguments_changed,
        after,
    };
    Ok(Call { message, caller, hooked: Some(Arc::new(hooked)), record })
}

fn input<'a>(server: &'a str, message: &'a Message, caller: &'a Caller) -> Input<'a> {
    let identity = &caller.identity;
    let id = |id: &'a Option<Id>| id.as_ref().map(|id| Cow::Borrowed(id.as_str()));
    Input {
        server: server.into(),
        tool: headers::mirrored_name(message),
        method: message.method().into(),
        thread: id(&identity.thread).or_else(|| id(&identity.session)),
        call: id(&identity.call),
        parent: id(&identity.parent),
        host: id(&identity.host),
        workspace: caller.workspace.as_deref().map(Cow::Borrowed),
        trust: identity.trust.as_str().into(),
        takes_arguments: matches!(message.method(), "tools/call" | "prompts/get"),
    }
}

/// The message with what hooks made of its arguments and its `_meta`.
fn rewritten(message: Message, draft: &Draft) -> Result<Message, CallError> {
    if !draft.arguments_changed && !draft.meta_changed {
        return Ok(message);
    }
    let refused = |why: String| CallError::HookRefused { what: "refused by a hook:", fault: why };
    let mut message = message;
    if draft.arguments_changed {
        let arguments = draft.arguments.as_deref().unwrap_or(b"{}");
        let changed = match (&message.head().arguments, &message.head().params) {
            (Some(span), _) => message.with(&mut [Edit { span: span.clone(), with: arguments }]),
            (None, Some(params)) => {
                let is_empty = message.bytes()[params.start + 1..].trim_ascii_start().starts_with(b"}");
                let comma: &[u8] = if is_empty { b"" } else { b"," };
                let with = [br#""arguments":"#, arguments, comma].concat();
                let at = params.start + 1;
                message.with(&mut [Edit { span: at..at, with: &with }])
            }
            // A call without parameters has no tool, and its server says so.
            (None, None) => message.bytes().clone(),
        };
        message = Message::parse(changed).map_err(|why| refused(why.to_string()))?;
    }
    if draft.meta_changed {
        let meta = draft.meta.as_deref().unwrap_or(b"{}");
        let inner = &meta[1..meta.len().saturating_sub(1)];
        let changed = match (&message.head().meta, message.place_in_meta()) {
            (Some(span), _) => message.with(&mut [Edit { span: span.clone(), with: meta }]),
            (None, Some(place)) if !inner.is_empty() => {
                let with = [place.before.as_bytes(), inner, place.after.as_bytes()].concat();
                message.with(&mut [Edit { span: place.at, with: &with }])
            }
            (None, _) => message.bytes().clone(),
        };
        message = Message::parse(changed).map_err(|why| refused(why.to_string()))?;
    }
    if message.bytes().len() > MAX_INBOUND {
        return Err(refused(format!("it made a message of more than {MAX_INBOUND} bytes")));
    }
    let (message, stripped) = strip(message)?;
    if !stripped.spoof.is_empty() || stripped.seal.is_some() {
        let names = stripped.spoof.join(", ");
        return Err(refused(format!("what it wrote stands under callsign's own names: {names}")));
    }
    Ok(message)
}

const REFUSED: &str = "refused by the hook";
const WITHHELD: &str = "the call was made, and its result is withheld by the hook";
/// There is no result: perhaps nobody was asked.
const FAILED: &str = "the call failed, and why is withheld by the hook";

impl LinkOptions {
    /// What a caller is told of a hook's fault: not the secrets that the hook was shown.
    fn refusal(&self, what: &'static str, fault: &Fault) -> CallError {
        let text = self.recorder.sinks.redactor.scrub(&fault.to_string()).into_owned();
        match fault.kind {
            FaultKind::Thrown => CallError::HookRefused { what, fault: text },
            FaultKind::Load | FaultKind::Cpu | FaultKind::Wall | FaultKind::Memory | FaultKind::Settle => {
                CallError::HookFailed { what, fault: text }
            }
        }
    }
}

/// What is needed to run the hooks after a call.
#[derive(Debug)]
pub struct After {
    chain: Arc<Chain>,
    options: Arc<LinkOptions>,
    /// As it was sent.
    message: Message,
    caller: Arc<Caller>,
    begun: Instant,
    pub tasks: TaskTracker,
}

impl After {
    /// Bytes that it holds.
    pub fn size(&self) -> usize {
        self.message.bytes().len()
    }

    /// The answer as its caller gets it, or why it is withheld.
    pub async fn answer(&self, answer: Bytes) -> Result<Bytes, CallError> {
        let Ok(message) = Message::parse(answer.clone()) else { return Ok(answer) };
        Ok(self.run(&message).await?.unwrap_or(answer))
    }

    async fn run(&self, answer: &Message) -> Result<Option<Bytes>, CallError> {
        let head = answer.head();
        let result = head.result.as_ref().map(|span| answer.slice(span));
        let error = match (&result, &head.error) {
            (Some(result), _) => tool_error(result),
            (None, Some(span)) => Some(error_text(&answer.bytes()[span.clone()])),
            // It is no answer at all.
            (None, None) => return Ok(None),
        };
        let ended = Ended {
            ok: error.is_none(),
            result,
            error,
            duration_ms: self.begun.elapsed().as_secs_f64() * 1000.0,
            arguments: self.message.head().arguments.as_ref().map(|span| self.message.slice(span)),
            changed: false,
        };
        let input = input(&self.options.server, &self.message, &self.caller);
        let what = if ended.result.is_some() { WITHHELD } else { FAILED };
        let begun = Instant::now();
        let ran = self.chain.run(&input, ended).await;
        self.options.recorder.meters.hooks.observe(begun.elapsed());
        let ended = ran.map_err(|fault| self.options.refusal(what, &fault))?;
        Ok(match (ended.changed, ended.result, &head.result) {
            (true, Some(result), Some(span)) => {
                Some(answer.with(&mut [Edit { span: span.clone(), with: &result }]))
            }
            _ => None,
        })
    }
}

/// What a tool says of its failure. None: it has not failed.
fn tool_error(result: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(default, rename = "isError")]
        is_error: bool,
        #[serde(default, borrow)]
        content: Vec<Content<'a>>,
    }
    #[derive(Deserialize)]
    struct Content<'a> {
        #[serde(default, borrow)]
        text: Option<Cow<'a, str>>,
    }
    let result: Result<'_> = serde_json::from_slice(result).ok()?;
    let text = || result.content.iter().find_map(|content| content.text.as_deref());
    result.is_error.then(|| text().unwrap_or("the tool failed").to_owned())
}

fn error_text(error: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Failure<'a> {
        #[serde(borrow)]
        message: Cow<'a, str>,
    }
    let read = serde_json::from_slice::<Failure<'_>>(error);
    read.map_or_else(|_| "the call failed".to_owned(), |failure| failure.message.into_owned())
}
