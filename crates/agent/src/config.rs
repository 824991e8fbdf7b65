//! What a box starts OpenCode with.
//!
//! **Invariant:** the same settings give the same variables, byte for byte; a key is in them only if the caller put one
//! where a placeholder belongs.

use std::collections::BTreeMap;
use std::fmt;

use model::ports::agent::{Decision, Policy, QUESTION};
use serde_json::{Map, Value, json};

/// All that OpenCode needs to know.
#[derive(Clone)]
pub struct BoxConfig {
    /// The name before the slash of each model.
    pub provider: String,
    /// Where the box reaches it. It speaks as `OpenAI` does.
    pub base_url: String,
    /// What the box shows the provider: a placeholder that a broker outside replaces.
    pub api_key: String,
    /// As the provider calls it, without its own name before it.
    pub model: BoxModel,
    /// For titles and the like.
    pub small_model: BoxModel,
    /// Others that a prompt may name.
    pub more_models: Vec<BoxModel>,
    /// What OpenCode asks about at all. A watch has to answer what this surfaces.
    pub permissions: Policy,
    pub mcp: BTreeMap<String, McpEntry>,
    /// For its own API; random for each box.
    pub password: String,
}

impl fmt::Debug for BoxConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { provider, base_url, model, small_model, more_models, permissions, mcp, .. } = self;
        f.debug_struct("BoxConfig")
            .field("provider", provider)
            .field("base_url", base_url)
            .field("model", model)
            .field("small_model", small_model)
            .field("more_models", more_models)
            .field("permissions", permissions)
            .field("mcp", &mcp.keys())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoxModel {
    pub id: String,
    /// In tokens, of what is read and of what is written. Without them OpenCode does not know when a conversation is
    /// too long and has to be summed up.
    pub limits: Option<(u64, u64)>,
}

/// A server that the agent may call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum McpEntry {
    Local { command: Vec<String>, environment: BTreeMap<String, String> },
    Remote { url: String, headers: BTreeMap<String, String> },
}

/// The variables for `opencode serve`, sorted by name.
pub fn environment(config: &BoxConfig) -> Vec<(String, String)> {
    // Nothing is fetched, updated, shared or scanned that nobody asked for: a box has no network, and a home that is not
    // the user's.
    const OFF: [&str; 8] = [
        "OPENCODE_DISABLE_AUTOUPDATE",
        "OPENCODE_DISABLE_CLAUDE_CODE",
        "OPENCODE_DISABLE_EMBEDDED_WEB_UI",
        "OPENCODE_DISABLE_FFF",
        "OPENCODE_DISABLE_LSP_DOWNLOAD",
        "OPENCODE_DISABLE_MODELS_FETCH",
        "OPENCODE_DISABLE_SHARE",
        "OPENCODE_DISABLE_TERMINAL_TITLE",
    ];
    let mut all: Vec<(String, String)> =
        OFF.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect();
    all.push(("OPENCODE_CONFIG_CONTENT".to_owned(), content(config).to_string()));
    all.push(("OPENCODE_SERVER_PASSWORD".to_owned(), config.password.clone()));
    all.sort();
    all
}

/// `OPENCODE_CONFIG_CONTENT`: it wins over every file that OpenCode finds.
fn content(config: &BoxConfig) -> Value {
    let BoxConfig {
        provider,
        base_url,
        api_key,
        model,
        small_model,
        more_models,
        permissions: policy,
        mcp,
        password: _,
    } = config;
    let models: Map<String, Value> = [model, small_model]
        .into_iter()
        .chain(more_models)
        .map(|model| (model.id.clone(), describe(model)))
        .collect();
    let mcp: Map<String, Value> = mcp.iter().map(|(name, entry)| (name.clone(), server(entry))).collect();
    let mut providers = Map::new();
    providers.insert(
        provider.clone(),
        json!({
            "npm": "@ai-sdk/openai-compatible",
            "name": provider,
            "options": { "baseURL": base_url, "apiKey": api_key },
            "models": models,
        }),
    );
    json!({
        "autoupdate": false,
        "share": "disabled",
        "model": format!("{provider}/{}", model.id),
        "small_model": format!("{provider}/{}", small_model.id),
        "enabled_providers": [provider],
        "provider": providers,
        "permission": permissions(policy),
        // A refusal is an answer for the model, not the end of its turn.
        "experimental": { "continue_loop_on_deny": true },
        "mcp": mcp,
    })
}

fn describe(model: &BoxModel) -> Value {
    let mut described = json!({ "name": model.id, "tool_call": true });
    if let Some((context, output)) = model.limits {
        described["limit"] = json!({ "context": context, "output": output });
    }
    described
}

fn server(entry: &McpEntry) -> Value {
    match entry {
        McpEntry::Local { command, environment } => {
            json!({ "type": "local", "command": command, "environment": environment })
        }
        // Without OAuth: there is no browser in a box.
        McpEntry::Remote { url, headers } => {
            json!({ "type": "remote", "url": url, "headers": headers, "oauth": false })
        }
    }
}

/// Names in the order of the alphabet, `*` before all of them: OpenCode takes the last that fits.
fn permissions(policy: &Policy) -> Map<String, Value> {
    let action = |decision| match decision {
        Decision::Allow => "allow",
        Decision::Deny => "deny",
        Decision::Surface => "ask",
    };
    let mut all = Map::new();
    all.insert("*".to_owned(), json!(action(policy.otherwise)));
    for (name, _) in &policy.rules {
        all.insert(name.clone(), json!(action(policy.decide(name))));
    }
    // Else there would be a question whether there may be a question.
    let question = match policy.decide(QUESTION) {
        Decision::Allow | Decision::Surface => "allow",
        Decision::Deny => "deny",
    };
    all.insert(QUESTION.to_owned(), json!(question));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> BoxConfig {
        let model = |id: &str| BoxModel { id: id.to_owned(), limits: None };
        BoxConfig {
            provider: "ollama".into(),
            base_url: "http://127.0.0.1:1/v1".into(),
            api_key: "placeholder".into(),
            model: BoxModel { limits: Some((1000, 100)), ..model("gpt-oss:20b") },
            small_model: model("small"),
            more_models: vec![model("openai/gpt-4o")],
            permissions: Policy::all(Decision::Allow)
                .with("bash", Decision::Surface)
                .with("bash", Decision::Deny)
                .with(QUESTION, Decision::Surface),
            mcp: BTreeMap::new(),
            password: "CANARY".into(),
        }
    }

    fn read(config: &BoxConfig) -> Value {
        let all = environment(config);
        let content = all.iter().find(|(name, _)| name == "OPENCODE_CONFIG_CONTENT").unwrap();
        serde_json::from_str(&content.1).unwrap()
    }

    #[test]
    fn models_have_their_provider_and_limits_where_there_are_some() {
        let read = read(&config());
        assert_eq!(read["model"], "ollama/gpt-oss:20b");
        assert_eq!(read["small_model"], "ollama/small");
        let models = read["provider"]["ollama"]["models"].as_object().unwrap();
        let names: Vec<_> = models.keys().collect();
        assert_eq!(names, ["gpt-oss:20b", "openai/gpt-4o", "small"]);
        assert_eq!(models["gpt-oss:20b"]["limit"], json!({ "context": 1000, "output": 100 }));
        assert!(models["small"]["limit"].is_null());
    }

    #[test]
    fn a_policy_becomes_permissions_and_a_question_is_never_asked_about() {
        let read = read(&config());
        assert_eq!(read["permission"], json!({ "*": "allow", "bash": "ask", "question": "allow" }));
        let asking = BoxConfig { permissions: Policy::all(Decision::Surface), ..config() };
        assert_eq!(self::read(&asking)["permission"], json!({ "*": "ask", "question": "allow" }));
        let denying = BoxConfig { permissions: Policy::all(Decision::Deny), ..config() };
        assert_eq!(self::read(&denying)["permission"], json!({ "*": "deny", "question": "deny" }));
    }

    #[test]
    fn servers_are_written_as_opencode_reads_them() {
        let headers = BTreeMap::from([("X".to_owned(), "y".to_owned())]);
        let remote = McpEntry::Remote { url: "http://127.0.0.1:2/mcp/a".into(), headers };
        let local = McpEntry::Local { command: vec!["a".into(), "b".into()], environment: BTreeMap::new() };
        let mcp = BTreeMap::from([("far".to_owned(), remote), ("near".to_owned(), local)]);
        let expected = json!({
            "far": { "type": "remote", "url": "http://127.0.0.1:2/mcp/a", "headers": { "X": "y" }, "oauth": false },
            "near": { "type": "local", "command": ["a", "b"], "environment": {} },
        });
        assert_eq!(read(&BoxConfig { mcp, ..config() })["mcp"], expected);
    }

    #[test]
    fn nothing_secret_is_shown_or_in_the_content() {
        assert!(!format!("{:?}", config()).contains("CANARY"));
        assert!(!read(&config()).to_string().contains("CANARY"));
        let all = environment(&config());
        assert!(all.contains(&("OPENCODE_SERVER_PASSWORD".to_owned(), "CANARY".to_owned())));
        assert!(all.is_sorted());
    }
}
