//! Ambient arguments: filled in where a tool takes them and the caller left them out.
//!
//! An explicit argument always wins and passes as it is: it is the server's own business. A blank one counts as
//! left out. Where neither the call nor its session says the value, the call is refused and the server not asked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use mcp::Message;
use mcp::envelope::{decode_string, span_in};
use mcp::splice::Edit;
use model::ServerSpec;
use serde_json::value::RawValue;

use super::catalogue::Catalogue;
use crate::caller::Call;
use crate::respond::CallError;

/// The call with its ambient arguments. None: it takes none.
pub fn fill(spec: &ServerSpec, catalogue: &Catalogue, call: &Call) -> Result<Option<Call>, CallError> {
    if spec.arguments.is_empty() || call.message.method() != "tools/call" {
        return Ok(None);
    }
    let Some(tool) = call.message.name().map(Cow::into_owned) else { return Ok(None) };
    let mut message = call.message.clone();
    for (argument, template) in &spec.arguments {
        if !catalogue.takes(&tool, argument) {
            continue;
        }
        let values = super::values(spec.name.as_str(), Some(&tool), Some(&call.caller));
        let ambient = template.render(&values).map(Cow::into_owned);
        let explicit = explicit(&message, argument);
        if let Explicit::Given(given) = &explicit {
            note_difference(spec, &tool, argument, given.as_deref(), ambient.as_deref());
            continue;
        }
        let Some(ambient) = ambient else {
            let reason = call.caller.workspace_refused.clone();
            return Err(CallError::MissingArgument {
                tool: tool.clone(),
                argument: argument.clone(),
                reason,
            });
        };
        message = with_argument(&message, argument, &ambient, &explicit)?;
    }
    Ok(Some(Call::new(message, Arc::clone(&call.caller))))
}

/// What the call itself says of an argument.
enum Explicit {
    /// Text, if it is text.
    Given(Option<String>),
    /// It is there and empty, in this range.
    Blank(mcp::Span),
    Absent,
}

fn explicit(message: &Message, argument: &str) -> Explicit {
    let Some(span) = message.head().arguments.clone() else { return Explicit::Absent };
    let arguments = &message.bytes()[span];
    let Ok(members) = serde_json::from_slice::<HashMap<Cow<'_, str>, &RawValue>>(arguments) else {
        return Explicit::Absent;
    };
    let Some(raw) = members.get(argument) else { return Explicit::Absent };
    let text = decode_string(raw.get().as_bytes());
    let blank = raw.get() == "null" || text.as_ref().is_some_and(|text| text.trim().is_empty());
    if blank {
        Explicit::Blank(span_in(message.bytes(), raw))
    } else {
        Explicit::Given(text.map(Cow::into_owned))
    }
}

fn with_argument(
    message: &Message,
    argument: &str,
    value: &str,
    explicit: &Explicit,
) -> Result<Message, CallError> {
    let text = |text: &str| serde_json::to_string(text).unwrap_or_default();
    let value = text(value);
    let member = format!("{}:{value}", text(argument));
    let head = message.head();
    let inside = |span: &mcp::Span, member: String| {
        let rest = message.bytes()[span.start + 1..].trim_ascii_start();
        let comma = if rest.starts_with(b"}") { "" } else { "," };
        (span.start + 1..span.start + 1, format!("{member}{comma}"))
    };
    let (span, with) = match (explicit, &head.arguments, &head.params) {
        (Explicit::Blank(span), _, _) => (span.clone(), value),
        (_, Some(arguments), _) if message.bytes()[arguments.start] == b'{' => inside(arguments, member),
        // `"arguments": null` is the same as none.
        (_, Some(arguments), _) => (arguments.clone(), format!("{{{member}}}")),
        (_, None, Some(params)) => inside(params, format!(r#""arguments":{{{member}}}"#)),
        (_, None, None) => return Ok(message.clone()),
    };
    let bytes = message.with(&mut [Edit { span, with: with.as_bytes() }]);
    Ok(Message::parse(bytes)?)
}

fn note_difference(
    spec: &ServerSpec,
    tool: &str,
    argument: &str,
    given: Option<&str>,
    ambient: Option<&str>,
) {
    let (Some(given), Some(ambient)) = (given, ambient) else { return };
    let same_place = || {
        let real = |path: &str| Path::new(path).canonicalize().ok();
        Path::new(given).is_absolute() && real(given).is_some_and(|given| Some(given) == real(ambient))
    };
    if given != ambient && !same_place() {
        let server = spec.name.as_str();
        tracing::info!(
            server,
            tool,
            argument,
            given,
            ambient,
            "the explicit argument overrides the session's"
        );
    }
}
