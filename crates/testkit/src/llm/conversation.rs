//! What a request says about the conversation, whatever its wire form.

use serde_json::{Map, Value, json};

use super::script::{self, Answer, Next, Planned};

/// The text for requests that want no turn: titles and summaries.
const PLAIN: &str = "A plain text";

#[derive(Debug, Default)]
pub(super) struct Conversation {
    /// The script in force.
    pub(super) script: Option<String>,
    /// The ids of the calls that were made under it.
    pub(super) calls: Vec<String>,
    pub(super) last_result: String,
    pub(super) tools: Vec<Tool>,
    /// How this host names an MCP server's tool.
    pub(super) style: Style,
}

/// A tool that the host offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tool {
    pub(super) namespace: Option<String>,
    pub(super) name: String,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// `server_tool`
    #[default]
    OpenCode,
    /// `tool` in the namespace `mcp__server`
    Codex,
    /// `mcp__server__tool`
    Claude,
}

/// What the model says.
#[derive(Debug)]
pub(super) enum Say {
    Text(String),
    Calls(Vec<Spelled>),
}

/// A call in the host's own spelling.
#[derive(Debug)]
pub(super) struct Spelled {
    pub(super) tool: Tool,
    /// JSON, unless the script wants something else.
    pub(super) arguments: String,
}

/// Names for what one answer holds.
#[derive(Debug)]
pub(super) struct Ids {
    pub(super) number: u64,
    pub(super) step: usize,
}

impl Ids {
    pub(super) fn call(&self, prefix: &str, index: usize) -> String {
        format!("{prefix}_{}_{}_{index}", self.number, self.step)
    }

    /// The step in an id that [`Self::call`] made.
    fn step_of(id: &str) -> Option<usize> {
        id.rsplit('_').nth(1)?.parse().ok()
    }
}

impl Conversation {
    pub(super) fn next(&self) -> Next {
        let text = |text: &str| Next { delay: 0, step: 0, answer: Answer::Text(text.to_owned()) };
        if self.tools.is_empty() {
            return text(PLAIN);
        }
        let Some(script) = &self.script else { return text("there is no script in the prompt") };
        let start = self.calls.iter().filter_map(|id| Ids::step_of(id)).max().map_or(0, |step| step + 1);
        script::next(script, start, &self.last_result)
    }

    /// The calls as this host wants them; a tool that it does not offer is said instead.
    pub(super) fn spell(&self, planned: &[Planned]) -> Say {
        let mut calls = Vec::new();
        for call in planned {
            let (wanted, arguments) = match &call.spawn {
                Some(prompt) => (self.style.subagent_tools(), self.style.subagent_arguments(prompt)),
                None => (vec![call.tool.clone().unwrap_or_default()], Value::Object(call.args.clone())),
            };
            let Some(tool) = wanted.iter().find_map(|name| self.find(name)) else {
                let offered: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).collect();
                return Say::Text(format!("NO SUCH TOOL {wanted:?}; offered: {}", offered.join(" ")));
            };
            let arguments = call.raw_args.clone().unwrap_or_else(|| arguments.to_string());
            calls.push(Spelled { tool, arguments });
        }
        Say::Calls(calls)
    }

    fn find(&self, wanted: &str) -> Option<Tool> {
        let wanted = match wanted.split_once('/') {
            Some((server, name)) => self.style.spell(server, name),
            None => Tool { namespace: None, name: wanted.to_owned() },
        };
        let fits = |tool: &&Tool| {
            tool.name == wanted.name && (wanted.namespace.is_none() || tool.namespace == wanted.namespace)
        };
        self.tools.iter().find(fits).cloned()
    }
}

impl Style {
    fn spell(self, server: &str, name: &str) -> Tool {
        match self {
            Self::OpenCode => Tool { namespace: None, name: format!("{server}_{name}") },
            Self::Codex => Tool { namespace: Some(format!("mcp__{server}")), name: name.to_owned() },
            Self::Claude => Tool { namespace: None, name: format!("mcp__{server}__{name}") },
        }
    }

    fn subagent_tools(self) -> Vec<String> {
        let names: &[&str] = match self {
            Self::OpenCode => &["task"],
            Self::Codex => &["spawn_agent"],
            // The tool was renamed; older versions still have the second name.
            Self::Claude => &["Agent", "Task"],
        };
        names.iter().map(ToString::to_string).collect()
    }

    fn subagent_arguments(self, prompt: &str) -> Value {
        match self {
            Self::OpenCode => {
                json!({ "description": "a subagent", "prompt": prompt, "subagent_type": "general" })
            }
            Self::Codex => json!({ "message": prompt }),
            Self::Claude => {
                json!({ "description": "a subagent", "prompt": prompt, "subagent_type": "general-purpose" })
            }
        }
    }
}

/// The text of a message's content: a string, or a list of parts that have one.
pub(super) fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

pub(super) fn list<'a>(body: &'a Value, name: &str) -> &'a [Value] {
    body[name].as_array().map_or(&[], Vec::as_slice)
}

/// The place of the last item that has a script, and the script.
pub(super) fn last_script(
    items: &[Value],
    user_text: impl Fn(&Value) -> Option<String>,
) -> Option<(usize, String)> {
    items.iter().enumerate().rev().find_map(|(index, item)| {
        let text = user_text(item)?;
        Some((index, script::find(&text)?.to_owned()))
    })
}

/// One server-sent event; without a name where the wire form has none.
pub(super) fn event(name: Option<&str>, data: &Value) -> String {
    match name {
        Some(name) => format!("event: {name}\ndata: {data}\n\n"),
        None => format!("data: {data}\n\n"),
    }
}

/// `base` and `more` in one object.
pub(super) fn joined(base: &Value, more: Value) -> Value {
    let mut all: Map<String, Value> = base.as_object().cloned().unwrap_or_default();
    if let Value::Object(more) = more {
        all.extend(more);
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(style: Style, offered: (Option<&str>, &str), wanted: &str) {
        let tool = Tool { namespace: offered.0.map(str::to_owned), name: offered.1.to_owned() };
        let conversation = Conversation { style, tools: vec![tool.clone()], ..Conversation::default() };
        assert_eq!(conversation.find(wanted), Some(tool));
    }

    #[test]
    fn a_servers_tool_is_found_in_each_hosts_spelling() {
        check(Style::OpenCode, (None, "std_whoami"), "std/whoami");
        check(Style::Codex, (Some("mcp__std"), "whoami"), "std/whoami");
        check(Style::Claude, (None, "mcp__std__whoami"), "std/whoami");
        check(Style::Claude, (None, "Bash"), "Bash");
    }

    #[test]
    fn the_next_step_follows_the_last_call_in_whatever_order_they_stand() {
        let conversation = Conversation {
            script: Some(r#"[{"tool":"a"},{"tool":"a"},{"text":"end"}]"#.into()),
            calls: vec!["call_7_1_0".into(), "call_3_0_0".into()],
            tools: vec![Tool { namespace: None, name: "a".into() }],
            ..Conversation::default()
        };
        assert_eq!(conversation.next().answer, Answer::Text("end".into()));
    }
}
