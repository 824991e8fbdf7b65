//! `callsign hooks check FILE…`: loads hooks and shows what they make of a call. `callsign hooks types`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, Subcommand};
use hooks::{
    Chain, Draft, Ended, Event, Fault, FaultKind, FileSpec, Hooks, Input, Limits, Loaded, Pairs, Spec,
};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::app::Global;
use crate::config::Environment;
use crate::exit::{Code, Failure};
use crate::hooking::{mistakes, rules};
use crate::logging;
use crate::output;

#[derive(Debug, Subcommand)]
pub enum HooksCommand {
    /// Load files of hooks, show which events they handle, and run them on a sample call.
    Check(Box<CheckArgs>),
    /// Print type declarations for editors: save them as callsign-hooks.d.ts beside the hooks.
    Types,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  callsign hooks check hooks/who.js --session ses_1 --server my-server --tool search --header 'X-Team: a'"
)]
pub struct CheckArgs {
    /// Files of hooks, in the order in which they run.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    sample: Sample,
    /// A variable of our environment that `process.env` shows. Can be given more than once.
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// The call that hooks are run on.
#[derive(Debug, Args)]
struct Sample {
    /// The session that calls.
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The server that is called.
    #[arg(long, value_name = "NAME")]
    server: Option<String>,
    /// The tool that is called, or the prompt or uri.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// A configured header, as `Name: value`. Can be given more than once.
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
    /// The method.
    #[arg(long, value_name = "METHOD", value_parser = ["tools/call", "tools/list", "prompts/get", "resources/read"])]
    method: Option<String>,
    /// The host that calls.
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// The workspace of the session.
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// The call's arguments, as a JSON object.
    #[arg(long, value_name = "JSON")]
    arguments: Option<String>,
    /// The request's `_meta`, as a JSON object.
    #[arg(long, value_name = "JSON")]
    meta: Option<String>,
    /// The result, for `mcp.call.after`, as a JSON object.
    #[arg(long, value_name = "JSON")]
    result: Option<String>,
}

const SAMPLE_RESULT: &str = r#"{"content":[{"type":"text","text":"a sample"}]}"#;

pub fn run(global: &Global, command: HooksCommand) -> anyhow::Result<()> {
    match command {
        HooksCommand::Types => Ok(output::line(hooks::TYPES.trim_end())?),
        HooksCommand::Check(arguments) => check(global, &arguments),
    }
}

fn check(global: &Global, arguments: &CheckArgs) -> anyhow::Result<()> {
    logging::start(global)?;
    let environment = Environment::of_process();
    let set = |name: &String| Some((name.clone(), environment.get(name)?));
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let paths: Vec<PathBuf> = arguments.files.iter().map(|file| current_dir.join(file)).collect();
    let file = |(path, shown): (&PathBuf, &PathBuf)| FileSpec {
        path: path.clone(),
        shown: shown.display().to_string(),
        optional: false,
    };
    let spec = Spec {
        files: paths.iter().zip(&arguments.files).map(file).collect(),
        env: arguments.env.iter().filter_map(set).collect(),
        limits: Limits::default(),
        rules: rules(),
    };
    let hooks = Arc::new(Hooks::load(&spec).map_err(mistakes)?);
    let tried = if arguments.sample.is_given() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Some(runtime.block_on(arguments.sample.run(&Chain::new(&hooks, &paths)))?)
    } else {
        None
    };
    if arguments.json {
        output::json(&Report {
            files: hooks.files().map(|file| FileReport::new(&file)).collect(),
            sample: tried.as_ref(),
        })?;
    } else {
        for file in hooks.files() {
            show_file(&file)?;
        }
        match &tried {
            Some(tried) => tried.show()?,
            None => output::line("say --session, --server, --tool or --header to run them on a sample call")?,
        }
    }
    // A hook that refuses does its work; one that fails does not.
    match tried.and_then(|tried| tried.failed) {
        Some(failed) => Err(Failure::new(Code::Configuration, failed).into()),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct Report<'a> {
    files: Vec<FileReport>,
    sample: Option<&'a Tried>,
}

#[derive(Serialize)]
struct FileReport {
    file: String,
    events: Map<String, Value>,
    state: bool,
    module: bool,
}

impl FileReport {
    fn new(file: &Loaded<'_>) -> Self {
        let events = file.events.iter().map(|(event, line)| (event.name().to_owned(), json!(line)));
        Self {
            file: file.spec.shown.clone(),
            events: events.collect(),
            state: file.keeps_state,
            module: file.is_module,
        }
    }
}

fn show_file(file: &Loaded<'_>) -> std::io::Result<()> {
    output::line(&file.spec.shown)?;
    for (event, line) in &file.events {
        output::line(&format!("  {} at line {line}", event.name()))?;
    }
    if file.events.is_empty() {
        output::line("  handles nothing")?;
    }
    if file.keeps_state {
        output::line("  may keep state, so it runs one call at a time")?;
    }
    if file.is_module {
        output::line(
            "  is evaluated anew for every call, since it imports or exports more than its default",
        )?;
    }
    Ok(())
}

/// What became of the sample call.
#[derive(Serialize)]
struct Tried {
    before: State,
    /// None: it was refused.
    after: Option<State>,
    refused: Option<String>,
    #[serde(skip)]
    failed: Option<String>,
    /// Before and after `mcp.call.after`.
    result: Option<[Box<RawValue>; 2]>,
}

#[derive(Serialize)]
struct State {
    headers: Vec<[String; 2]>,
    meta: Option<Box<RawValue>>,
    arguments: Option<Box<RawValue>>,
    env: Vec<[String; 2]>,
}

impl State {
    fn of(draft: &Draft) -> Self {
        let pairs = |pairs: &Pairs| pairs.iter().map(|(name, value)| [name.clone(), value.clone()]).collect();
        Self {
            headers: pairs(&draft.headers),
            meta: draft.meta.as_ref().and_then(raw),
            arguments: draft.arguments.as_ref().and_then(raw),
            env: pairs(&draft.env),
        }
    }

    /// One line a value.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.headers.iter().map(|[name, value]| format!("header    {name}: {value}")).collect();
        lines.extend(self.meta.as_ref().map(|meta| format!("_meta     {meta}")));
        lines.extend(self.arguments.as_ref().map(|arguments| format!("arguments {arguments}")));
        lines.extend(self.env.iter().map(|[name, value]| format!("env       {name}={value}")));
        lines
    }
}

fn raw(json: &Bytes) -> Option<Box<RawValue>> {
    RawValue::from_string(String::from_utf8(json.to_vec()).ok()?).ok()
}

impl Sample {
    fn is_given(&self) -> bool {
        let Self { session, server, tool, header, method, host, workspace, arguments, meta, result } = self;
        let options = [session, server, tool, method, host, workspace, arguments, meta, result];
        !header.is_empty() || options.into_iter().any(Option::is_some)
    }

    async fn run(&self, chain: &Chain) -> anyhow::Result<Tried> {
        let method = self.method.as_deref().unwrap_or("tools/call");
        let takes_arguments = matches!(method, "tools/call" | "prompts/get");
        let text = |text: &Option<String>| text.clone().map(Into::into);
        let input = Input {
            server: self.server.clone().unwrap_or_else(|| "sample".to_owned()).into(),
            tool: text(&self.tool).or_else(|| (method != "tools/list").then(|| "sample".into())),
            method: method.into(),
            thread: text(&self.session),
            call: Some("call_1".into()),
            parent: None,
            host: text(&self.host),
            workspace: text(&self.workspace),
            trust: if self.session.is_some() { "host" } else { "none" }.into(),
            takes_arguments,
        };
        let arguments = object("--arguments", self.arguments.as_deref())?;
        let begun = Draft {
            headers: self.header.iter().map(|header| parse_header(header)).collect::<anyhow::Result<_>>()?,
            meta: object("--meta", self.meta.as_deref())?,
            arguments: arguments.or_else(|| takes_arguments.then(|| Bytes::from_static(b"{}"))),
            ..Draft::default()
        };
        let before = State::of(&begun);
        let refused = |fault: &Fault| Some(format!("refused by the hook {fault}"));
        let failed = |fault: &Fault| refused(fault).filter(|_| fault.kind != FaultKind::Thrown);
        let draft = match chain.run(&input, begun).await {
            Ok(draft) => draft,
            Err(fault) => {
                let (refused, failed) = (refused(&fault), failed(&fault));
                return Ok(Tried { before, after: None, refused, failed, result: None });
            }
        };
        let after = Some(State::of(&draft));
        if !chain.handles(Event::After) {
            return Ok(Tried { before, after, refused: None, failed: None, result: None });
        }
        let result = object("--result", self.result.as_deref())?;
        let result = result.unwrap_or(Bytes::from_static(SAMPLE_RESULT.as_bytes()));
        let arguments = draft.arguments.clone();
        let ended =
            Ended { result: Some(result.clone()), ok: true, duration_ms: 1.0, arguments, ..Ended::default() };
        Ok(match chain.run(&input, ended).await {
            Ok(ended) => {
                let pair = raw(&result).zip(ended.result.as_ref().and_then(raw));
                Tried { before, after, refused: None, failed: None, result: pair.map(|(was, is)| [was, is]) }
            }
            Err(fault) => {
                let (refused, failed) = (refused(&fault), failed(&fault));
                Tried { before, after, refused, failed, result: None }
            }
        })
    }
}

impl Tried {
    /// What goes, what comes, and what stays.
    fn show(&self) -> std::io::Result<()> {
        output::line("\nthe sample call")?;
        let before = self.before.lines();
        let after = self.after.as_ref().map_or_else(|| before.clone(), State::lines);
        for line in before.iter().filter(|line| !after.contains(line)) {
            output::line(&format!("- {line}"))?;
        }
        for line in &after {
            let mark = if before.contains(line) { ' ' } else { '+' };
            output::line(&format!("{mark} {line}"))?;
        }
        if let Some(refused) = self.refused.as_ref().filter(|_| self.failed.is_none()) {
            output::line(refused)?;
        }
        match &self.result {
            Some([was, is]) if was.get() != is.get() => {
                output::line(&format!("- result    {was}\n+ result    {is}"))
            }
            Some([was, _]) => output::line(&format!("  result    {was}")),
            None => Ok(()),
        }
    }
}

fn object(option: &str, written: Option<&str>) -> anyhow::Result<Option<Bytes>> {
    let Some(written) = written else { return Ok(None) };
    match serde_json::from_str::<Map<String, Value>>(written) {
        Ok(_) => Ok(Some(Bytes::copy_from_slice(written.trim().as_bytes()))),
        Err(error) => {
            Err(Failure::new(Code::Usage, format!("{option} must be a JSON object: {error}")).into())
        }
    }
}

fn parse_header(written: &str) -> anyhow::Result<(String, String)> {
    let wrong = |why: String| Failure::new(Code::Usage, format!("--header {written:?}: {why}"));
    let (name, value) =
        written.split_once(':').ok_or_else(|| wrong("write it as `Name: value`".to_owned()))?;
    crate::config::check_header(name.trim()).map_err(wrong)?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value() {
        assert_eq!(parse_header("X-A: b: c").unwrap(), ("X-A".to_owned(), "b: c".to_owned()));
        for bad in ["X-A", "Host: x", ": x", "Callsign-Session: x"] {
            assert!(parse_header(bad).is_err(), "{bad}");
        }
        assert!(object("--meta", Some("[1]")).is_err());
    }
}
