//! Everything the server has, asked for one by one.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::client::Client;
use super::mask;

/// What was asked, and the masked answer.
pub(super) type Survey = Vec<(String, Value)>;

/// Tools with sample arguments. A tool of the server that is missing here is an error: the table must be complete.
fn samples() -> Vec<(&'static str, Value)> {
    let data = "data:text/plain;base64,aGVsbG8gd29ybGQ=";
    vec![
        ("echo", json!({"message": "grüße, 世界 🦀"})),
        ("get-annotated-message", json!({"messageType": "error", "includeImage": true})),
        ("get-annotated-message", json!({"messageType": "debug"})),
        ("get-env", json!({})),
        ("get-resource-links", json!({"count": 4})),
        ("get-resource-reference", json!({"resourceType": "Blob", "resourceId": 3})),
        ("get-resource-reference", json!({"resourceType": "Text", "resourceId": 4})),
        ("get-roots-list", json!({})),
        ("get-structured-content", json!({"location": "Chicago"})),
        ("get-sum", json!({"a": 0.1, "b": 12_345_678_901_i64})),
        ("get-sum", json!({"a": "not a number"})),
        ("get-tiny-image", json!({})),
        ("gzip-file-as-resource", json!({"name": "a.gz", "data": data, "outputType": "resourceLink"})),
        ("gzip-file-as-resource", json!({"name": "b.gz", "data": data, "outputType": "resource"})),
        ("toggle-simulated-logging", json!({})),
        ("toggle-simulated-logging", json!({})),
        ("toggle-subscriber-updates", json!({})),
        ("toggle-subscriber-updates", json!({})),
        ("trigger-elicitation-request", json!({})),
        ("trigger-elicitation-request-async", json!({})),
        ("trigger-long-running-operation", json!({"duration": 0.4, "steps": 4})),
        ("trigger-sampling-request", json!({"prompt": "hello", "maxTokens": 10})),
        ("trigger-sampling-request-async", json!({"prompt": "hello", "maxTokens": 10})),
        ("trigger-url-elicitation", json!({"url": "https://example.org/", "errorPath": true})),
        ("trigger-url-elicitation", json!({"url": "https://example.org/a"})),
        ("there-is-no-such-tool", json!({})),
    ]
}

/// The tool that answers with a task only; it is called by `task`.
const TASK_TOOL: &str = "simulate-research-query";

pub(super) fn take(client: &mut dyn Client) -> Result<Survey> {
    let mut survey = Surveyor { client, survey: Vec::new() };
    survey.ask("initialize", "", initialize())?;
    survey.client.notify("notifications/initialized")?;
    survey.ask("ping", "", json!({}))?;
    survey.ask("logging/setLevel", "", json!({"level": "debug"}))?;
    let tools = survey.list("tools/list", "tools", "name")?;
    let resources = survey.list("resources/list", "resources", "uri")?;
    survey.list("resources/templates/list", "resourceTemplates", "uriTemplate")?;
    let prompts = survey.list("prompts/list", "prompts", "name")?;
    survey.tools(&tools)?;
    survey.task()?;
    survey.resources(&resources)?;
    survey.prompts(&prompts)?;
    survey.completions()?;
    survey.ask("no/such/method", "", json!({}))?;
    // The session resources that the gzip tool has made are listed now.
    survey.list("resources/list", "resources", "uri").map(drop)?;
    survey.client.close().context("closing the session")?;
    Ok(survey.survey)
}

fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-11-25",
        "clientInfo": {"name": "xtask", "version": "1"},
        "capabilities": {
            "roots": {"listChanged": true},
            "sampling": {},
            "elicitation": {"form": {}, "url": {}},
            "tasks": {"requests": {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}}
        }
    })
}

struct Surveyor<'a> {
    client: &'a mut dyn Client,
    survey: Survey,
}

impl Surveyor<'_> {
    fn ask(&mut self, method: &str, what: &str, params: Value) -> Result<Value> {
        let answer = self.client.request(method, params).with_context(|| format!("{method} {what}"))?;
        let mut masked = answer.clone();
        if what.starts_with("get-env") {
            mask::environment(&mut masked["result"]);
        }
        mask::mask(&mut masked);
        let nth = self.survey.len();
        self.survey.push((format!("{nth}: {method} {what}"), masked));
        Ok(answer)
    }

    /// All pages; the names or URIs of what is listed.
    fn list(&mut self, method: &str, key: &str, name: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut params = json!({});
        loop {
            let answer = self.ask(method, "", params)?;
            let rows = answer["result"][key].as_array().with_context(|| format!("{method}: {answer}"))?;
            names.extend(rows.iter().filter_map(|row| row[name].as_str().map(str::to_owned)));
            match answer["result"].get("nextCursor") {
                Some(cursor) => params = json!({"cursor": cursor}),
                None => return Ok(names),
            }
        }
    }

    fn tools(&mut self, listed: &[String]) -> Result<()> {
        let samples = samples();
        for tool in listed {
            let known = tool == TASK_TOOL || samples.iter().any(|(name, _)| name == tool);
            anyhow::ensure!(known, "the tool {tool} has no sample arguments in the survey");
        }
        for (name, arguments) in samples {
            self.client.notifications();
            let meta = json!({"progressToken": format!("token of {name}")});
            self.ask("tools/call", name, json!({"name": name, "arguments": arguments, "_meta": meta}))?;
            // Log messages come at random and list changes when they like; progress belongs to this call.
            let progress: Vec<Value> = self
                .client
                .notifications()
                .into_iter()
                .filter(|message| message["method"] == "notifications/progress")
                .collect();
            self.survey.push((format!("progress of {name} {}", self.survey.len()), Value::Array(progress)));
        }
        Ok(())
    }

    fn task(&mut self) -> Result<()> {
        let arguments = json!({"topic": "carrier pigeons", "ambiguous": true});
        let call = json!({"name": TASK_TOOL, "arguments": arguments, "task": {"ttl": 60_000}});
        let answer = self.ask("tools/call", TASK_TOOL, call)?;
        let task = answer["result"]["task"]["taskId"].as_str().context("the call made no task")?.to_owned();
        // Blocks until the task is done, and carries the server's question about the ambiguity.
        self.ask("tasks/result", "", json!({"taskId": task}))?;
        self.ask("tasks/get", "", json!({"taskId": task}))?;
        self.ask("tasks/get", "unknown", json!({"taskId": "unknown"}))?;
        Ok(())
    }

    fn resources(&mut self, listed: &[String]) -> Result<()> {
        let dynamic = ["text/1", "blob/2", "text/none"].map(|end| format!("demo://resource/dynamic/{end}"));
        let made = ["demo://resource/session/a.gz".to_owned(), "demo://resource/session/b.gz".to_owned()];
        for uri in listed.iter().chain(&dynamic).chain(&made) {
            self.ask("resources/read", uri, json!({"uri": uri}))?;
        }
        self.ask("resources/subscribe", "", json!({"uri": dynamic[0]}))?;
        self.ask("resources/unsubscribe", "", json!({"uri": dynamic[0]}))?;
        Ok(())
    }

    fn prompts(&mut self, listed: &[String]) -> Result<()> {
        let arguments = json!({
            "city": "Ulm", "state": "BW", "department": "Sales", "name": "Eve",
            "resourceType": "Text", "resourceId": "7"
        });
        for name in listed {
            self.ask("prompts/get", name, json!({"name": name, "arguments": arguments}))?;
            self.ask("prompts/get", &format!("{name} without arguments"), json!({"name": name}))?;
        }
        Ok(())
    }

    fn completions(&mut self) -> Result<()> {
        let prompt = json!({"type": "ref/prompt", "name": "completable-prompt"});
        let template = json!({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"});
        let rows = [
            (&prompt, "department", "S", json!({})),
            (&prompt, "name", "", json!({"arguments": {"department": "Sales"}})),
            (&template, "resourceId", "12", json!({})),
            (&template, "resourceId", "x", json!({})),
        ];
        for (reference, name, value, context) in rows {
            let argument = json!({"name": name, "value": value});
            let params = json!({"ref": reference, "argument": argument, "context": context});
            self.ask("completion/complete", &format!("{name} {value}"), params)?;
        }
        Ok(())
    }
}
