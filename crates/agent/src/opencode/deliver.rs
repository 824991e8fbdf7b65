//! A prompt, once; and its end before its time.
//!
//! OpenCode keeps a prompt under the message id that we choose, and its text under a part id that we choose as well. The
//! same request sent twice is therefore one prompt, as long as its turn has not failed: a failed one would be run again.
//! So the history is asked first, and the request is repeated only where the prompt is not in it.

use std::time::Duration;

use bytes::Bytes;
use http::Method;
use model::ports::agent::{AgentError, Delivery, PromptId, PromptIntent};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::client::Trouble;
use super::history::{Depth, Found};
use super::verdict::{Verdict, judge};
use super::{MIDDLE, OpenCode, Path, refusal, wire};

/// How often a request is sent whose answer was lost and whose prompt did not arrive.
const ATTEMPTS: u32 = 3;
/// Between two looks at what became of a request.
const LOOK: Duration = Duration::from_millis(100);
/// How long an abort may take.
const ABORT: Duration = Duration::from_secs(15);

impl OpenCode {
    pub(super) async fn deliver(&self, intent: &PromptIntent) -> Result<Delivery, AgentError> {
        let mut body = body(intent)?;
        let session = &intent.prompt.session;
        let path = Path::session(&session.id, "/prompt_async", &session.directory)?;
        if self.find(&intent.prompt).await? != Found::No {
            return Ok(Delivery::Already);
        }
        // OpenCode would go on with the model of the prompt before, whoever chose that.
        if intent.model.is_none()
            && let Some(configured) = self
                .get::<wire::Config>(&Path::of("/config", &session.directory).at_most(MIDDLE))
                .await?
                .model
        {
            body["model"] = model(&configured)?;
        }
        let body = Bytes::from(body.to_string());
        let mut reason = String::new();
        for _ in 0..ATTEMPTS {
            let bounds = path.bounds(self);
            match self.client.send(Method::POST, &path.written(), Some(body.clone()), bounds).await {
                Ok(response) if response.status.is_success() => return Ok(Delivery::Delivered),
                Ok(response) if response.status.is_server_error() => {
                    reason = refusal(&path, &response).to_string();
                }
                Ok(response) => return Err(refusal(&path, &response)),
                Err(trouble @ Trouble::Refused(_)) => return Err(trouble.into()),
                Err(trouble) => reason = AgentError::from(trouble).to_string(),
            }
            if self.arrived(&intent.prompt, &reason).await? {
                return Ok(Delivery::Delivered);
            }
        }
        Err(AgentError::Uncertain { reason })
    }

    /// Whether a prompt whose request was not answered is there after all. Only a history that could be read and does not
    /// have it for a while says no.
    async fn arrived(&self, prompt: &PromptId, reason: &str) -> Result<bool, AgentError> {
        let end = Instant::now() + self.timing.settle;
        let mut absent = 0;
        loop {
            let found = self.find(prompt).await;
            match found {
                Ok(Found::Yes { .. } | Found::Hidden) => return Ok(true),
                Ok(Found::No) => absent += 1,
                Err(error @ (AgentError::Unknown { .. } | AgentError::Unauthorized)) => return Err(error),
                Err(error) if Instant::now() >= end => {
                    return Err(AgentError::Uncertain { reason: format!("{reason}; then: {error}") });
                }
                Err(_) => {}
            }
            if absent >= 3 && Instant::now() >= end {
                return Ok(false);
            }
            sleep(LOOK).await;
        }
    }

    /// Until OpenCode does not work on it any more. An abort that comes before the turn has begun has no effect, so it is
    /// repeated while there is anything to end.
    pub(super) async fn end_turn(&self, prompt: &PromptId) -> Result<(), AgentError> {
        self.remember_abort(&prompt.message);
        let session = &prompt.session;
        let path = Path::session(&session.id, "/abort", &session.directory)?;
        let begun = Instant::now();
        let mut idle_since = None;
        loop {
            self.post(&path, &json!({})).await?;
            if self.statuses(&session.directory).await?.contains_key(&session.id) {
                idle_since = None;
            } else {
                let stored = self.stored(prompt, Depth::Newest).await?;
                let idle = idle_since.get_or_insert_with(Instant::now).elapsed();
                match judge(&stored.answers) {
                    Verdict::Ended(_) | Verdict::Failed(_) => return Ok(()),
                    Verdict::Open(open) if idle >= self.timing.settled(open) => return Ok(()),
                    Verdict::Open(_) => {}
                }
            }
            if begun.elapsed() >= ABORT {
                return Err(AgentError::NoAnswer { seconds: ABORT.as_secs() });
            }
            sleep(LOOK).await;
        }
    }
}

fn body(intent: &PromptIntent) -> Result<Value, AgentError> {
    let PromptIntent { prompt, text, model: name, output_schema, system } = intent;
    let message = prompt.message.as_str();
    let part = format!("prt_{}", message.trim_start_matches("msg_"));
    let mut body = json!({ "messageID": message, "parts": [{ "type": "text", "id": part, "text": text }] });
    if let Some(name) = name {
        body["model"] = model(name)?;
    }
    if let Some(schema) = output_schema {
        let schema: Value = serde_json::from_str(schema)
            .map_err(|error| wrong(&format!("the output schema is no JSON: {error}")))?;
        if !schema.is_object() {
            return Err(wrong("the output schema is no JSON object"));
        }
        body["format"] = json!({ "type": "json_schema", "schema": schema });
    }
    if let Some(system) = system {
        body["system"] = json!(system);
    }
    Ok(body)
}

fn model(name: &str) -> Result<Value, AgentError> {
    let (provider, model) = name.split_once('/').ok_or_else(|| wrong("the model is not provider/model"))?;
    Ok(json!({ "providerID": provider, "modelID": model }))
}

/// What OpenCode would say, said before anything is sent.
fn wrong(message: &str) -> AgentError {
    AgentError::Refused { status: 400, message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use model::ports::agent::SessionRef;
    use model::session::{MessageId, Stamp};

    use super::*;

    fn intent() -> PromptIntent {
        PromptIntent {
            prompt: PromptId {
                session: SessionRef { id: "ses_1".into(), directory: "/w".into() },
                message: MessageId::new(Stamp { millis: 1, random: [7; 10] }),
            },
            text: "do it".into(),
            model: None,
            output_schema: None,
            system: None,
        }
    }

    #[test]
    fn a_prompt_has_its_ids_and_nothing_that_was_not_asked_for() {
        let intent = intent();
        let id = intent.prompt.message.as_str();
        let part = id.replace("msg_", "prt_");
        let expected = json!({ "messageID": id, "parts": [{ "type": "text", "id": part, "text": "do it" }] });
        assert_eq!(body(&intent).unwrap(), expected);
    }

    #[test]
    fn a_model_and_a_schema_are_taken_apart() {
        let model = Some("openrouter/openai/gpt-4o".to_owned());
        let output_schema = Some(r#"{"type":"object"}"#.to_owned());
        let body = body(&PromptIntent { model, output_schema, ..intent() }).unwrap();
        assert_eq!(body["model"], json!({ "providerID": "openrouter", "modelID": "openai/gpt-4o" }));
        assert_eq!(body["format"], json!({ "type": "json_schema", "schema": { "type": "object" } }));
    }

    #[test]
    fn what_cannot_be_sent_is_refused_before_it_is() {
        for (model, output_schema) in [(Some("gpt"), None), (None, Some("{")), (None, Some("[]"))] {
            let model = model.map(str::to_owned);
            let output_schema = output_schema.map(str::to_owned);
            let refused = body(&PromptIntent { model, output_schema, ..intent() }).unwrap_err();
            assert_eq!(refused.code(), "agent_refused");
        }
    }
}
