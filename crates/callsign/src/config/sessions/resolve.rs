//! Variables over settings.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use model::settings::{ApiKey, ModelName, Provider, Runtime, Secret, SessionSettings};

use super::super::{ConfigErrors, Environment, Mistake};
use super::document::Document;
use super::values;
use super::variables::{
    API_KEY, BASE_URL, COMMAND, EXTRAS_DIR, MODEL, OLLAMA_API_KEY, OLLAMA_BASE_URL, POLL_INTERVAL, PROVIDER,
    REQUEST_TIMEOUT, RUNTIME_IMAGE, RUNTIME_MODE, SECRETS, SMALL_MODEL, START_TIMEOUT, Variables,
};

/// A longer value is none that somebody has typed.
const LONGEST: usize = 4096;

/// What came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    pub settings: SessionSettings,
    /// What to keep with a session, so that the same comes out again.
    pub document: Document,
    /// What to keep apart from it.
    pub key: Option<Secret>,
    /// What is allowed and probably not meant.
    pub warnings: Vec<Mistake>,
}

/// What the variables say, and `base` where they say nothing. Of `base`, only what belongs to the provider that came
/// out is used, and its key only for its own url: who may choose a url must not be sent a key by that.
pub fn resolve(base: &SessionSettings, variables: &Variables) -> Result<Resolved, ConfigErrors> {
    let reading = Reading { variables, found: RefCell::default() };
    let runtime = reading.read(RUNTIME_MODE, values::runtime).unwrap_or(base.runtime);
    let image = reading.read(RUNTIME_IMAGE, values::image);
    if image.is_some() && runtime == Runtime::Local {
        let doubt =
            format!("is for docker, and the runtime is local; set {RUNTIME_MODE}=docker to have it used");
        reading.warn(RUNTIME_IMAGE, doubt);
    }
    let command = reading.read(COMMAND, values::command);
    let spoken = spoken(&reading, base);
    let start_timeout = reading.seconds(START_TIMEOUT, &values::START_TIMEOUT);
    let request_timeout = reading.seconds(REQUEST_TIMEOUT, &values::REQUEST_TIMEOUT);
    let poll_interval = reading.seconds(POLL_INTERVAL, &values::POLL_INTERVAL);
    let extras_dir = reading.read(EXTRAS_DIR, values::absolute);
    reading.look_at_unknown();
    let Found { mistakes, warnings, kept, key } = reading.found.into_inner();
    // `spoken` is there unless it has noted a mistake.
    let Some(spoken) = spoken.filter(|_| mistakes.is_empty()) else {
        return Err(ConfigErrors(mistakes));
    };
    let Spoken { model, small_model, base_url, api_key } = spoken;
    let settings = SessionSettings {
        runtime,
        image: image.unwrap_or_else(|| base.image.clone()),
        command: command.unwrap_or_else(|| base.command.clone()),
        model,
        small_model,
        base_url,
        api_key,
        start_timeout: start_timeout.unwrap_or(base.start_timeout),
        request_timeout: request_timeout.unwrap_or(base.request_timeout),
        poll_interval: poll_interval.unwrap_or(base.poll_interval),
        extras_dir: extras_dir.or_else(|| base.extras_dir.clone()),
        ..base.clone()
    };
    let (name, key) = key.unzip();
    Ok(Resolved { settings, document: Document::new(kept, name), key, warnings })
}

/// The key itself. None: the provider is spoken to without one.
pub fn key(settings: &SessionSettings, environment: Environment<'_>) -> Result<Option<Secret>, Mistake> {
    let name = match &settings.api_key {
        None => return Ok(None),
        Some(ApiKey::Given(secret)) => return Ok(Some(secret.clone())),
        Some(ApiKey::Variable(name)) => name,
    };
    let found = environment.get(name).filter(|value| !value.is_empty());
    let found = found.ok_or_else(|| {
        let provider = settings.provider();
        format!(
            "is not set, and `sessions.api_key_env` names it for the key of {provider}; set it for the daemon"
        )
    });
    found.and_then(|found| values::secret(&found)).map(Some).map_err(|problem| mistake(name, problem))
}

/// What depends on the provider.
struct Spoken {
    model: ModelName,
    small_model: Option<ModelName>,
    base_url: String,
    api_key: Option<ApiKey>,
}

/// None where there was a mistake.
fn spoken(reading: &Reading<'_>, base: &SessionSettings) -> Option<Spoken> {
    let provider = match reading.variables.get(PROVIDER) {
        None => Some(base.provider()),
        Some(_) => reading.read(PROVIDER, values::provider),
    };
    let Some(provider) = provider else {
        // Whether a model fits cannot be told; what else is wrong can.
        for name in [BASE_URL, OLLAMA_BASE_URL] {
            reading.read(name, |text| values::base_url(text, API_KEY));
        }
        for name in SECRETS {
            reading.secret(name);
        }
        return None;
    };
    // What the layer below says of another provider says nothing of this one.
    let below = (provider == base.provider()).then_some(base);
    let parse = |text: &str| values::model(provider, text, PROVIDER);
    let (model, small_model) = (reading.read(MODEL, parse), reading.read(SMALL_MODEL, parse));
    let model = model.or_else(|| below.map(|below| below.model.clone()));
    if model.is_none() && reading.variables.get(MODEL).is_none() {
        let example = provider.example();
        reading.mistake(
            MODEL,
            format!("is not set, and {provider} needs a model; set it, such as to {example}"),
        );
    }
    let small_model = small_model.or_else(|| below?.small_model.clone());
    let (base_url, api_key) = connection(reading, provider, below)?;
    Some(Spoken { model: model?, small_model, base_url, api_key })
}

/// Where the provider is, and with which key it is spoken to.
fn connection(
    reading: &Reading<'_>,
    provider: Provider,
    below: Option<&SessionSettings>,
) -> Option<(String, Option<ApiKey>)> {
    let url_name = reading.choose(provider, BASE_URL, OLLAMA_BASE_URL);
    let key_name = reading.choose(provider, API_KEY, OLLAMA_API_KEY);
    let key = reading.secret(key_name);
    let written = reading.read(url_name, |text| values::base_url(text, API_KEY));
    if written.is_none() && reading.variables.get(url_name).is_some() {
        return None;
    }
    for doubt in written.iter().flat_map(|url| url.doubts(key.is_some())) {
        reading.warn(url_name, doubt);
    }
    let usual = || below.map_or_else(|| provider.base_url().to_owned(), |below| below.base_url.clone());
    let base_url = written.map_or_else(usual, |written| written.url);
    let key_is_given = reading.variables.get(key_name).is_some();
    let key_below = below.filter(|_| !key_is_given).and_then(|below| below.api_key.clone());
    let goes_along = below.is_some_and(|below| below.base_url == base_url);
    if key_below.is_some() && !goes_along {
        let doubt =
            format!("leads elsewhere than the configuration, whose key is not sent there; set {API_KEY}");
        reading.warn(url_name, doubt);
    }
    let api_key = key.map(ApiKey::Given).or_else(|| key_below.filter(|_| goes_along));
    if provider.needs_key() && api_key.is_none() && !key_is_given && base_url == provider.base_url() {
        let how = if reading.variables.is_empty(API_KEY) { "is empty" } else { "is not set" };
        let problem = format!("{how}, and {provider} needs a key; set it, or `api_key_env` in [sessions]");
        reading.mistake(API_KEY, problem);
    }
    Some((base_url, api_key))
}

/// Variables on their way to settings.
struct Reading<'v> {
    variables: &'v Variables,
    found: RefCell<Found>,
}

#[derive(Default)]
struct Found {
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    /// What was used, but for the key.
    kept: BTreeMap<&'static str, String>,
    key: Option<(&'static str, Secret)>,
}

impl Reading<'_> {
    fn mistake(&self, name: &str, problem: impl Into<String>) {
        self.found.borrow_mut().mistakes.push(mistake(name, problem));
    }

    fn warn(&self, name: &str, doubt: impl Into<String>) {
        self.found.borrow_mut().warnings.push(mistake(name, doubt));
    }

    /// None: it is not set, or wrong.
    fn read<T>(&self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        let value = parse(text).map_err(|problem| self.mistake(name, problem)).ok()?;
        self.found.borrow_mut().kept.insert(name, text.to_owned());
        Some(value)
    }

    fn seconds(&self, name: &'static str, range: &RangeInclusive<Duration>) -> Option<Duration> {
        self.read(name, |text| values::seconds(text, range))
    }

    fn secret(&self, name: &'static str) -> Option<Secret> {
        let secret = values::secret(self.text(name)?).map_err(|problem| self.mistake(name, problem)).ok()?;
        self.found.borrow_mut().key = Some((name, secret.clone()));
        Some(secret)
    }

    fn text(&self, name: &'static str) -> Option<&str> {
        let text = self.variables.get(name)?;
        if text.len() > LONGEST {
            self.mistake(name, "must be at most 4 KiB long");
            return None;
        }
        Some(text)
    }

    /// The variable to go by: the general one, or the older one that says the same for ollama.
    fn choose(&self, provider: Provider, general: &'static str, alias: &'static str) -> &'static str {
        let (of_all, of_ollama) = (self.variables.get(general), self.variables.get(alias));
        match (of_all, of_ollama) {
            (_, None) => general,
            (None, Some(_)) if provider == Provider::Ollama => alias,
            (_, Some(_)) if provider != Provider::Ollama => {
                let doubt = format!("is for ollama, and the provider is {provider}; use {general}");
                self.warn(alias, doubt);
                general
            }
            (of_all, of_ollama) => {
                if of_all != of_ollama {
                    self.warn(alias, format!("is not used: {general} is set to something else; keep one"));
                }
                general
            }
        }
    }

    fn look_at_unknown(&self) {
        for unknown in self.variables.unknown() {
            match unknown.meant() {
                Some(problem) => self.mistake(&unknown.shown(), problem),
                None => self.warn(&unknown.shown(), "is no setting of sessions, and is not used"),
            }
        }
    }
}

/// The variable's name stands where a file's would.
fn mistake(name: &str, message: impl Into<String>) -> Mistake {
    Mistake { file: name.into(), line: 0, column: 0, message: message.into() }
}
