//! What a setting may say, whoever wrote it: the file or a variable.
//!
//! Each `Err` is the rest of a sentence that begins with the setting's name, and shows nothing that may be a secret:
//! people put keys into the wrong place.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gateway::address::HostKind;
use gateway::redact::Redactor;
use model::settings::{BadModel, BoxIsolation, Image, ModelName, Provider, Runtime, Secret};

use super::super::http::check_address;
use super::super::names::is_variable;
use super::super::table::nearest;
use super::super::value::Carrier;

pub(super) const START_TIMEOUT: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(1);
pub(super) const REQUEST_TIMEOUT: RangeInclusive<Duration> =
    Duration::from_secs(1)..=Duration::from_hours(24);
/// Less would keep a core busy with asking.
pub(super) const POLL_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_mins(1);

/// Runtimes of engines that people know by name.
const ENGINES: [&str; 6] = ["crun", "kata", "kata-runtime", "krun", "runc", "runsc"];
/// The name by which containers reach their host.
const HOST_FROM_A_CONTAINER: &str = "host.docker.internal";
/// The same place, seen from that host.
const LOOPBACK: &str = "127.0.0.1";

pub(super) fn runtime(written: &str) -> Result<Runtime, String> {
    let found = Runtime::ALL.into_iter().find(|runtime| runtime.name() == written);
    found.ok_or_else(|| format!("must be \"local\" or \"docker\"{}", but_not(written)))
}

/// What may stand there depends on what boxes are made with.
pub(super) fn isolation(runtime: Runtime, written: &str) -> Result<BoxIsolation, String> {
    match (BoxIsolation::parse(written), runtime) {
        (Some(found @ (BoxIsolation::Bubblewrap | BoxIsolation::None)), _)
        | (Some(found @ BoxIsolation::Engine(_)), Runtime::Docker) => Ok(found),
        (Some(BoxIsolation::Engine(_)) | None, Runtime::Local) => {
            let advice =
                if ENGINES.contains(&written) { "; that one needs `runtime = \"docker\"`" } else { "" };
            Err(format!("must be \"bwrap\" or \"none\"{}{advice}", but_not(written)))
        }
        (None, Runtime::Docker) => {
            Err(format!("must be the name of a runtime of the engine, such as \"runsc\"{}", but_not(written)))
        }
    }
}

pub(super) fn provider(written: &str) -> Result<Provider, String> {
    let names = Provider::ALL.map(Provider::name);
    Provider::parse(written).ok_or_else(|| {
        let advice = nearest(written, names.into_iter())
            .map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
        format!("must be one of {}{}{advice}", names.join(", "), but_not(written))
    })
}

/// `of_provider` is how messages call the setting that names the provider.
pub(super) fn model(provider: Provider, written: &str, of_provider: &str) -> Result<ModelName, String> {
    let problem = match ModelName::parse(provider, written) {
        Ok(model) => return Ok(model),
        Err(problem) => problem,
    };
    let example = provider.example();
    match problem {
        BadModel::Nothing | BadModel::Character(_) | BadModel::Length => {
            Err(format!("must be a model such as {example:?}; {problem}"))
        }
        BadModel::Prefix => {
            let first = written.split_once('/');
            let meant = match first {
                Some((first, rest)) if first.eq_ignore_ascii_case(provider.name()) => {
                    format!("{provider}/{rest}")
                }
                Some(_) | None => format!("{provider}/{written}"),
            };
            let is_well = ModelName::parse(provider, &meant).is_ok() && may_be_shown(written);
            let advice =
                if is_well { format!("write {meant:?}") } else { format!("write it like {example:?}") };
            let other = first.and_then(|(first, _)| Provider::parse(first));
            let other = other.map_or_else(String::new, |other| format!(", or set {of_provider} to {other}"));
            Err(format!("must begin with \"{provider}/\", as the provider is {provider}; {advice}{other}"))
        }
    }
}

pub(super) fn image(written: &str) -> Result<Image, String> {
    Image::new(written).map_err(|problem| format!("cannot be used: {problem}"))
}

/// Not split into words: a path may have spaces in it.
pub(super) fn command(written: &str) -> Result<String, String> {
    let is_odd = written.chars().any(char::is_control) || written.starts_with('-');
    let is_name = !written.contains(['/', ' ']);
    if !is_odd && (is_name || written.starts_with('/')) {
        return Ok(written.to_owned());
    }
    Err("must be the name of one program, or its absolute path; arguments go in a script that it names"
        .to_owned())
}

pub(super) fn absolute(written: &str) -> Result<PathBuf, String> {
    if !written.contains('\0') && Path::new(written).is_absolute() {
        return Ok(PathBuf::from(written));
    }
    Err("must be an absolute path".to_owned())
}

/// A number of seconds, perhaps with a fraction.
pub(super) fn seconds(written: &str, range: &RangeInclusive<Duration>) -> Result<Duration, String> {
    let value = thousandths(written).map(Duration::from_millis);
    value.filter(|value| range.contains(value)).ok_or_else(|| {
        let (least, most) = (range.start().as_secs_f64(), range.end().as_secs_f64());
        format!("must be a number of seconds from {least} to {most}{}", but_not(written))
    })
}

/// `"0.2"` → 200. What is finer is cut off.
pub(super) fn thousandths(written: &str) -> Option<u64> {
    let (whole, fraction) = written.split_once('.').unwrap_or((written, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !digits(whole) || !digits(fraction) {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let fraction: u64 = fraction.chars().chain("000".chars()).take(3).collect::<String>().parse().ok()?;
    whole.checked_mul(1000)?.checked_add(fraction)
}

/// A key as a provider takes it, in a header.
pub(super) fn secret(written: &str) -> Result<Secret, String> {
    Carrier::Header.check(written).map_err(|problem| format!("cannot be sent: {problem}"))?;
    if written.trim() != written {
        return Err("must be without a space before or after it".to_owned());
    }
    if is_unfilled(written) {
        return Err("names a variable that nobody has filled in; write the key itself".to_owned());
    }
    Ok(Secret::new(written))
}

/// `$NAME`, `${NAME}` and `{env:NAME}`, which some hosts replace and others pass on as they are.
fn is_unfilled(written: &str) -> bool {
    let braced = |open: &str| written.strip_prefix(open).and_then(|rest| rest.strip_suffix('}'));
    let name = braced("${").or_else(|| braced("{env:")).or_else(|| written.strip_prefix('$'));
    name.is_some_and(is_variable)
}

/// Where a provider is.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct BaseUrl {
    /// As the settings have it.
    pub(super) url: String,
    /// What is sent can be read on the way.
    is_open: bool,
    has_path: bool,
}

impl BaseUrl {
    /// What is probably not meant, each the rest of a sentence that begins with the setting's name.
    pub(super) fn doubts(&self, has_key: bool) -> Vec<&'static str> {
        let open = (self.is_open && has_key).then_some("is http: the key can be read on the way; use https");
        let path = (!self.has_path).then_some("has no path; most providers answer beneath one, such as /v1");
        open.into_iter().chain(path).collect()
    }
}

/// `of_key` is how messages call the setting that holds the key.
pub(super) fn base_url(written: &str, of_key: &str) -> Result<BaseUrl, String> {
    if written.contains(['{', '}']) {
        return Err("must be the url itself; placeholders are not filled in here".to_owned());
    }
    if written.contains('?') {
        return Err("must be without a query; take out what starts with ?".to_owned());
    }
    let in_full = "must be a url in full, such as http://127.0.0.1:11434/v1";
    let (scheme, rest) = written.split_once("://").ok_or(in_full)?;
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    if authority.contains('@') {
        return Err(format!("must be without credentials; the key goes in {of_key}"));
    }
    let (scheme, authority) = (scheme.to_ascii_lowercase(), authority.to_ascii_lowercase());
    let path = path.trim_end_matches('/');
    let url = format!("{scheme}://{}{path}", seen_from_here(&authority));
    let kind = check_address(&url, true, "http://127.0.0.1:11434/v1");
    let kind = kind.map_err(|problem| format!("cannot be used: {problem}"))?;
    let is_open = scheme == "http" && kind == HostKind::Name;
    Ok(BaseUrl { url, is_open, has_path: !path.is_empty() })
}

/// The daemon speaks to the provider, and it is on the host, whatever the box is.
fn seen_from_here(authority: &str) -> String {
    let (host, port) = authority.find(':').map_or((authority, ""), |at| authority.split_at(at));
    if host.strip_suffix('.').unwrap_or(host) == HOST_FROM_A_CONTAINER {
        return format!("{LOOPBACK}{port}");
    }
    authority.to_owned()
}

/// The end of a sentence on what should be there.
fn but_not(written: &str) -> String {
    if may_be_shown(written) { format!(", not {written:?}") } else { String::new() }
}

/// Keys are long and without a slash, or look like one.
fn may_be_shown(written: &str) -> bool {
    let is_short = written.len() <= 24 || (written.len() <= 64 && written.contains('/'));
    is_short && Redactor::default().redact(written) == written
}
