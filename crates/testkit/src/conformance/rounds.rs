//! Requests of the modern era that need input: the server answers `input_required`, the client asks
//! its user and sends the request again with the answers.
//!
//! Nothing of an unfinished request stays here. What has to survive to the next round travels in the
//! sealed state, bound to the name of the tool, so that one tool's state is worth nothing to another.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, ClientCapabilities, ContentBlock, GetPromptResponse, GetPromptResult, InputRequest,
    InputRequests, InputRequiredResult, InputResponses, SealOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::content::{text, user};
use super::{Fixtures, literal};

/// One round of a request, as the client sent it.
pub(super) struct Round<'a> {
    pub(super) fixtures: &'a Fixtures,
    /// The tool or prompt that is asked for.
    pub(super) name: &'a str,
    /// What the client declared on this very request.
    pub(super) capabilities: ClientCapabilities,
    pub(super) responses: Option<InputResponses>,
    pub(super) state: Option<String>,
}

/// What a tool keeps from one round to the next.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Kept {
    /// The question that is open, counted from 1; 0 before any was asked.
    step: u8,
    name: Option<String>,
}

/// None for a tool that never asks in this way.
pub(super) fn tool(round: &Round<'_>) -> Option<Result<CallToolResponse, ErrorData>> {
    Some(match round.name {
        "test_input_required_result_elicitation" | "test_streaming_elicitation" => round.greet(),
        "test_input_required_result_sampling" => round.capital(),
        "test_input_required_result_list_roots" => round.roots(),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => {
            round.confirm()
        }
        "test_input_required_result_multiple_inputs" => round.three_inputs(),
        "test_input_required_result_multi_round" => round.two_questions(),
        "test_input_required_result_capabilities" => round.whatever_is_possible(),
        _ => return None,
    })
}

/// The prompt that asks for its context before it is made.
pub(super) fn prompt(round: &Round<'_>) -> Result<GetPromptResponse, ErrorData> {
    if let Some(context) = round.accepted("user_context", "context").and_then(Value::as_str) {
        let message = user(ContentBlock::text(format!("Use this context: {context}")));
        return Ok(GetPromptResult::new(vec![message]).into());
    }
    let question = question("What context should the prompt use?", "context", "string");
    Ok(round.ask([("user_context", question)], None)?.into())
}

impl Round<'_> {
    fn greet(&self) -> Result<CallToolResponse, ErrorData> {
        match self.user_name()? {
            Ok(name) => Ok(text(format!("Hello, {name}!")).into()),
            Err(asked) => Ok(asked.into()),
        }
    }

    /// The name that the user gave, or the question to send for it.
    pub(super) fn user_name(&self) -> Result<Result<String, InputRequiredResult>, ErrorData> {
        if let Some(name) = self.accepted("user_name", "name").and_then(Value::as_str) {
            return Ok(Ok(name.to_owned()));
        }
        self.ask([("user_name", name_question())], None).map(Err)
    }

    fn capital(&self) -> Result<CallToolResponse, ErrorData> {
        let answer = self.response("capital_question").map(|message| &message["content"]["text"]);
        if let Some(answer) = answer.and_then(Value::as_str) {
            return Ok(text(format!("The model said: {answer}")).into());
        }
        let question = sampling("What is the capital of France?", 100);
        Ok(self.ask([("capital_question", question)], None)?.into())
    }

    fn roots(&self) -> Result<CallToolResponse, ErrorData> {
        if let Some(roots) = self.listed_roots() {
            return Ok(text(format!("Roots: {roots}")).into());
        }
        Ok(self.ask([("client_roots", list_roots())], None)?.into())
    }

    fn confirm(&self) -> Result<CallToolResponse, ErrorData> {
        let kept = self.kept()?;
        if kept.step == 1 && self.accepted("confirm", "ok").is_some() {
            return Ok(text("state-ok").into());
        }
        let question = question("Please confirm", "ok", "boolean");
        let next = Kept { step: 1, name: None };
        Ok(self.ask([("confirm", question)], Some(&next))?.into())
    }

    fn three_inputs(&self) -> Result<CallToolResponse, ErrorData> {
        let kept = self.kept()?;
        let name = self.accepted("user_name", "name").and_then(Value::as_str);
        let greeting = self.response("greeting").and_then(|message| message["content"]["text"].as_str());
        if kept.step == 1
            && let (Some(name), Some(greeting), Some(roots)) = (name, greeting, self.listed_roots())
        {
            return Ok(text(format!("{greeting} {name}, roots: {roots}")).into());
        }
        let questions = [
            ("user_name", name_question()),
            ("greeting", sampling("Generate a greeting", 50)),
            ("client_roots", list_roots()),
        ];
        Ok(self.ask(questions, Some(&Kept { step: 1, name: None }))?.into())
    }

    fn two_questions(&self) -> Result<CallToolResponse, ErrorData> {
        let kept = self.kept()?;
        let color = self.accepted("step2", "color").and_then(Value::as_str);
        if let (2, Some(name), Some(color)) = (kept.step, &kept.name, color) {
            return Ok(text(format!("{name} likes {color}")).into());
        }
        // The first answer was given in this round, or in an earlier one that kept it.
        let given = self.accepted("step1", "name").and_then(Value::as_str).map(str::to_owned);
        let name = kept.name.or(given.filter(|_| kept.step == 1));
        if let Some(name) = name {
            let question = question("Step 2: What is your favorite color?", "color", "string");
            let next = Kept { step: 2, name: Some(name) };
            return Ok(self.ask([("step2", question)], Some(&next))?.into());
        }
        let question = question("Step 1: What is your name?", "name", "string");
        Ok(self.ask([("step1", question)], Some(&Kept { step: 1, name: None }))?.into())
    }

    /// Asks for every kind of input that the client declared, and is content with any answer.
    fn whatever_is_possible(&self) -> Result<CallToolResponse, ErrorData> {
        if self.responses.as_ref().is_some_and(|responses| !responses.is_empty()) {
            return Ok(text("Thank you").into());
        }
        let all = [
            ("user_name", name_question()),
            ("greeting", sampling("Generate a greeting", 50)),
            ("client_roots", list_roots()),
        ];
        let possible = all.into_iter().filter(|(_, request)| self.missing(request).is_none());
        let possible: Vec<_> = possible.collect();
        if possible.is_empty() {
            return Ok(text("The client can answer no question").into());
        }
        Ok(self.ask(possible, None)?.into())
    }

    fn response(&self, key: &str) -> Option<&Value> {
        self.responses.as_ref()?.get(key)
    }

    /// One field of a form that the user accepted. A response of any other shape counts as none, and
    /// the question is asked again.
    fn accepted(&self, key: &str, field: &str) -> Option<&Value> {
        let response = self.response(key)?;
        (response["action"] == "accept").then(|| response["content"].get(field)).flatten()
    }

    fn listed_roots(&self) -> Option<String> {
        let roots = self.response("client_roots")?["roots"].as_array()?;
        Some(roots.iter().filter_map(|root| root["uri"].as_str()).collect::<Vec<_>>().join(", "))
    }

    /// A state that is not ours, was changed, or has expired is an error, the same for each.
    fn kept(&self) -> Result<Kept, ErrorData> {
        let Some(state) = &self.state else {
            return Ok(Kept::default());
        };
        self.fixtures
            .states
            .open_json_with(state, self.name.as_bytes())
            .map_err(|_| ErrorData::invalid_params("requestState is not valid", None))
    }

    /// Fails where the client did not declare that it can answer.
    fn ask<'k>(
        &self,
        questions: impl IntoIterator<Item = (&'k str, Value)>,
        next: Option<&Kept>,
    ) -> Result<InputRequiredResult, ErrorData> {
        let mut requests = InputRequests::new();
        for (key, question) in questions {
            if let Some(missing) = self.missing(&question) {
                return Err(ErrorData::missing_required_client_capability(literal(missing)?));
            }
            requests.insert(key.to_owned(), literal::<InputRequest>(question)?);
        }
        let options = SealOptions::new().associated_data(self.name.as_bytes());
        let state = next
            .map(|kept| self.fixtures.states.seal_json_with(kept, &options))
            .transpose()
            .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        Ok(InputRequiredResult::new(Some(requests), state))
    }

    /// The capability that this question needs and the client lacks.
    fn missing(&self, question: &Value) -> Option<Value> {
        let (declared, needed) = match question["method"].as_str() {
            Some("sampling/createMessage") => (self.capabilities.sampling.is_some(), json!({"sampling": {}})),
            Some("roots/list") => (self.capabilities.roots.is_some(), json!({"roots": {}})),
            _ => (self.capabilities.elicitation.is_some(), json!({"elicitation": {}})),
        };
        (!declared).then_some(needed)
    }
}

pub(super) fn name_question() -> Value {
    question("What is your name?", "name", "string")
}

/// A form with one required field.
pub(super) fn question(message: &str, field: &str, kind: &str) -> Value {
    json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": {
                "type": "object",
                "properties": {field: {"type": kind}},
                "required": [field]
            }
        }
    })
}

fn sampling(prompt: &str, max_tokens: u32) -> Value {
    json!({
        "method": "sampling/createMessage",
        "params": {
            "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
            "maxTokens": max_tokens
        }
    })
}

fn list_roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}
