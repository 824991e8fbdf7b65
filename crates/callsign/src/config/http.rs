//! The keys of a server that is reached by HTTP.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::address::{HostKind, check_host};
use http::Uri;
use model::{HeadersCommand, HttpSpec, Template};

use super::context::{Context, Resolve};
use super::names::check_header;
use super::table::{Field, Table};
use super::units;
use super::value::{Carrier, placeholder_in, template};

pub(super) const KEYS: [&str; 5] = ["url", "headers", "headers_command", "cache_seconds", "allow_private"];

/// How long what `headers_command` printed is used.
const DEFAULT_CACHE: Duration = Duration::from_mins(1);

/// All but `url`, which the command line may replace.
pub(super) fn read(context: Context<'_>, table: &Table<'_>) -> HttpSpec {
    HttpSpec {
        url: String::new(),
        headers: table.get("headers").map(|field| headers(context, field)).unwrap_or_default(),
        headers_command: headers_command(context, table),
        allow_private: table
            .get("allow_private")
            .and_then(|field| field.boolean(context))
            .unwrap_or_default(),
    }
}

/// Whether `url` is one that a server may have, as far as it can be told without asking a resolver.
/// `Err` is a sentence for the person who wrote it.
pub fn check_url(url: &str, allow_private: bool) -> Result<HostKind, String> {
    check_address(url, allow_private, "https://tracker.example/mcp")
}

/// The same of any url; `example` is one in full.
pub(super) fn check_address(url: &str, allow_private: bool, example: &str) -> Result<HostKind, String> {
    if url.contains(['{', '}']) {
        return Err("placeholders are filled in for `headers`, not for the url".to_owned());
    }
    // Before it is parsed: a parser drops it without a word.
    if url.contains('#') {
        return Err("such a url has no fragment; take out what starts with #".to_owned());
    }
    let in_full = || format!("give it in full, such as {example}");
    let uri: Uri = url.parse().map_err(|error| format!("{error}; {}", in_full()))?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(in_full());
    };
    if !matches!(scheme, "http" | "https") {
        return Err(format!("{scheme}: is not supported; use http or https"));
    }
    if authority.as_str().contains('@') {
        return Err("credentials do not go in the url; put them in `headers`".to_owned());
    }
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("its port must be a number from 1 to 65535".to_owned());
    }
    check_host(authority.host(), allow_private).map_err(|refused| refused.to_string())
}

/// Checks the url of the file and warns where what is sent can be read on the way.
pub(super) fn url(context: Context<'_>, field: &Field<'_>, allow_private: bool) -> Option<String> {
    let url = field.text(context)?;
    match check_url(url, allow_private) {
        Err(problem) => {
            context.mistake(field.at, format!("`url`: {problem}"));
            return None;
        }
        Ok(HostKind::Name) if !allow_private && url.to_ascii_lowercase().starts_with("http:") => {
            context.warn(
                field.at,
                "`url` is http: what is sent, headers too, can be read on the way; use https",
            );
        }
        Ok(_) => {}
    }
    Some(url.to_owned())
}

/// The headers of a table, whose label is that of `field`.
pub(super) fn headers(context: Context<'_>, field: &Field<'_>) -> Vec<(String, Template)> {
    let path = format!("{}.", field.label.trim_matches('`'));
    let mut headers: Vec<(String, Template)> = Vec::new();
    for header in field.table(context, &path).unwrap_or_default().fields {
        if let Err(problem) = check_header(header.key) {
            context.mistake(header.key_at, problem);
        }
        if let Some((first, _)) = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(header.key)) {
            context
                .mistake(header.key_at, format!("`{}` is there already, as `{first}`; keep one", header.key));
        }
        if let Some(value) = template(context, &header, Carrier::Header) {
            headers.push((header.key.to_owned(), value));
        }
    }
    headers
}

fn headers_command(context: Context<'_>, table: &Table<'_>) -> Option<HeadersCommand> {
    let cache = table.get("cache_seconds").and_then(|field| units::seconds(context, field));
    let field = table.get("headers_command")?;
    let items = field.list(context, "a list of strings")?;
    let Some((program, args)) = items.split_first() else {
        context.mistake(field.at, "`headers_command` is empty; name a program");
        return None;
    };
    let program = program.text(context).and_then(|written| command_path(context, program, written));
    let args: Vec<_> = args.iter().map(|item| argument(context, item)).collect();
    let cwd = Some(context.directory.to_owned());
    Some(HeadersCommand {
        program: program?,
        args: args.into_iter().collect::<Option<_>>()?,
        cwd,
        cache: cache.unwrap_or(DEFAULT_CACHE),
    })
}

/// A name is looked up in PATH; what has a slash in it is a path, and relative to the file.
fn command_path(context: Context<'_>, field: &Field<'_>, written: &str) -> Option<String> {
    if !written.contains('/') {
        return Some(written.to_owned());
    }
    let path = context.path(written).and_then(|path| {
        let shown = path.display().to_string();
        // Without the `./` of the file.
        let path: PathBuf = path.components().collect();
        path.into_os_string().into_string().map_err(|_| format!("{shown} is not UTF-8, which it must be"))
    });
    let path =
        path.map_err(|problem| context.mistake(field.at, format!("`headers_command`: {problem}"))).ok()?;
    // Only a warning: it may be there by the time it is run.
    if context.resolve == Resolve::Yes && !Path::new(&path).is_file() {
        context.warn(field.at, format!("`headers_command` is not a file: {path}"));
    }
    Some(path)
}

fn argument(context: Context<'_>, item: &Field<'_>) -> Option<String> {
    let text = item.string(context).and_then(|text| item.without_nul(context, text))?;
    if let Some(name) = placeholder_in(text) {
        context.warn(item.at, format!("`headers_command` is run as it is written, with {{{name}}} in it"));
    }
    Some(text.to_owned())
}

/// Reports a key that means nothing without another.
pub(super) fn check_together(context: Context<'_>, table: &Table<'_>) {
    if let (Some(cache), None) = (table.get("cache_seconds"), table.get("headers_command")) {
        let problem = "`cache_seconds` is for what `headers_command` prints, and there is none; take it out";
        context.absent(cache.key_at, problem);
    }
}
