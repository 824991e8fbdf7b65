//! One `[servers.NAME]`.

use model::server::DEFAULT_MAX_MESSAGE;
use model::{Capture, HttpSpec, ServerName, ServerSpec, StdioSpec, Template, Transport, Trust};

use super::context::{Context, Resolve};
use super::names::check_argument;
use super::table::{Field, Table};
use super::value::{Carrier, template};
use super::{Defaults, Target, http, stdio, units};

/// `hooks` is among them and not read here: what it says is no part of the server.
const SHARED_KEYS: [&str; 7] = ["timeout", "pin", "max_message", "require", "arguments", "hooks", "capture"];

/// The name of callsign's own server.
pub const OWN: &str = "sessions";

/// Where it is behind the door that leads to it. Nobody looks the host up.
const OWN_URL: &str = "http://callsign/mcp/sessions";

/// Callsign's own server, as `mcp` names it.
pub fn own_target() -> Target {
    Target::Url(OWN_URL.to_owned())
}

/// The same, as `serve` has it beside those of the file.
pub fn own_server() -> anyhow::Result<ServerSpec> {
    Ok(ServerSpec {
        name: ServerName::new(OWN)?,
        transport: Transport::Http(HttpSpec {
            url: OWN_URL.to_owned(),
            headers: Vec::new(),
            headers_command: None,
            allow_private: false,
        }),
        // Longer than the longest wait that its tools offer.
        timeout: Some(super::SERVE_TIMEOUT * 2),
        max_message: DEFAULT_MAX_MESSAGE,
        pin: false,
        require: Trust::None,
        arguments: Vec::new(),
        capture: Capture::default(),
    })
}

/// The name of the server a table is for.
pub(super) fn name(context: Context<'_>, field: &Field<'_>) -> Option<ServerName> {
    if field.key == OWN {
        context.mistake(field.key_at, format!("`{OWN}` is callsign's own server; choose another name"));
        return None;
    }
    match ServerName::new(field.key) {
        Ok(name) => Some(name),
        Err(problem) => {
            context.mistake(field.key_at, format!("{:?} is not the name of a server: {problem}", field.key));
            None
        }
    }
}

/// Reads every key whatever the transport is, so that every mistake is found at once. What is returned where
/// there was one is of no use; the caller drops it.
pub(super) fn read(
    context: Context<'_>,
    section: &Section<'_, '_>,
    target: Option<&Target>,
    defaults: &Defaults,
) -> Option<ServerSpec> {
    let table = section.table;
    let known: Vec<_> = [&stdio::KEYS[..], &http::KEYS, &SHARED_KEYS].concat();
    table.check_keys(context, &known, &[]);
    let timeout = table.get("timeout").and_then(|field| units::duration(context, field));
    let max_message = table.get("max_message").and_then(|field| units::size(context, field));
    let pin = table.get("pin").and_then(|field| field.boolean(context));
    let require = table.get("require").and_then(|field| require(context, field));
    let arguments = table.get("arguments").map(|field| arguments(context, field));
    let capture = table.get("capture").and_then(|field| capture(context, field));
    let specs = (stdio::read(context, table, defaults), http::read(context, table));
    Some(ServerSpec {
        name: section.name.clone(),
        transport: transport(context, section, target, specs)?,
        timeout: timeout.or(defaults.timeout),
        max_message: max_message.unwrap_or(DEFAULT_MAX_MESSAGE),
        pin: pin.unwrap_or_default(),
        require: require.unwrap_or_default(),
        arguments: arguments.unwrap_or_default(),
        capture: capture.unwrap_or_default(),
    })
}

fn require(context: Context<'_>, field: &Field<'_>) -> Option<Trust> {
    let written = field.string(context)?;
    let trust = Trust::parse(written);
    if trust.is_none() {
        let expected = "\"none\", \"declared\", \"host\" or \"bound\"";
        context.mistake(field.at, format!("`require` must be {expected}, not {written:?}"));
    }
    trust
}

fn capture(context: Context<'_>, field: &Field<'_>) -> Option<Capture> {
    let written = field.string(context)?;
    let capture = Capture::parse(written);
    if capture.is_none() {
        let expected = "\"digests\", \"arguments\" or \"full\"";
        context.mistake(field.at, format!("`capture` must be {expected}, not {written:?}"));
    }
    capture
}

fn arguments(context: Context<'_>, field: &Field<'_>) -> Vec<(String, Template)> {
    let mut arguments = Vec::new();
    for argument in field.table(context, "arguments.").unwrap_or_default().fields {
        if let Err(problem) = check_argument(argument.key) {
            context.mistake(argument.key_at, problem);
        }
        if let Some(value) = template(context, &argument, Carrier::Argument) {
            arguments.push((argument.key.to_owned(), value));
        }
    }
    arguments
}

/// The table of one server, empty where the file has none.
#[derive(Debug)]
pub(super) struct Section<'t, 'i> {
    pub name: &'t ServerName,
    pub at: usize,
    pub table: &'t Table<'i>,
}

/// Keys, and whose they are.
type Others<'a> = (&'a [&'a str], &'a str);

fn transport(
    context: Context<'_>,
    section: &Section<'_, '_>,
    target: Option<&Target>,
    (mut stdio, mut http): (StdioSpec, HttpSpec),
) -> Option<Transport> {
    let table = section.table;
    let command = table.get("command").map(|field| (field, field.text(context).map(str::to_owned)));
    let args = table.get("args").and_then(|field| stdio::args(context, field));
    let url = table.get("url").map(|field| (field, http::url(context, field, http.allow_private)));
    match (target, command, url) {
        (Some(Target::Command { command, args }), _, _) => {
            stdio.command.clone_from(command);
            stdio.args.clone_from(args);
        }
        (Some(target @ (Target::Url(url) | Target::PrivateUrl(url))), _, _) => {
            http.allow_private |= matches!(target, Target::PrivateUrl(_));
            if let Err(problem) = http::check_url(url, http.allow_private) {
                context.mistaken_option("--url", problem);
            }
            http.url.clone_from(url);
        }
        (None, Some((command, _)), Some((url, _))) => {
            let at = command.key_at.max(url.key_at);
            let message =
                format!("`{}` has both `command` and `url`; keep the one it is reached by", section.name);
            context.mistake(at, message);
            return None;
        }
        (None, None, None) => {
            // A section that `wrap` does not use may be half of one whose other half is on a command line.
            if context.resolve == Resolve::Yes {
                let message = format!("`{}` has neither `command` nor `url`; give it one", section.name);
                context.absent(section.at, message);
            }
            return None;
        }
        (None, Some((_, command)), None) => {
            stdio.command = command?;
            stdio.args = args.unwrap_or_default();
        }
        (None, None, Some((_, url))) => http.url = url?,
    }
    if http.url.is_empty() {
        refuse_others(context, table, target, (&http::KEYS, "a server with a `url`"));
        return Some(Transport::Stdio(stdio));
    }
    refuse_others(context, table, target, (&stdio::KEYS, "a server with a `command`"));
    http::check_together(context, table);
    Some(Transport::Http(http))
}

/// Reports the keys that belong to the other transport, but for those that the command line has overruled.
fn refuse_others(
    context: Context<'_>,
    table: &Table<'_>,
    target: Option<&Target>,
    (others, whose): Others<'_>,
) {
    for field in &table.fields {
        let overruled = target.is_some() && ["command", "args", "url"].contains(&field.key);
        if others.contains(&field.key) && !overruled {
            context.mistake(field.key_at, format!("`{}` is for {whose}; take it out", field.key));
        }
    }
}
