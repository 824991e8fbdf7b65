//! Which page an address means. What does not parse is no page.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::href;
use crate::view::{Outcome, Trust};

/// The longest address that is looked at, and the longest value in it.
const LONGEST: usize = 4096;
const LONGEST_VALUE: usize = 1024;

/// The key of a row, made by [`Source`](crate::Source) and given back as it was: 1 to 64 of `a-z A-Z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key(String);

impl Key {
    pub fn new(key: impl Into<String>) -> Option<Self> {
        let key = key.into();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        ((1..=64).contains(&key.len()) && key.bytes().all(plain)).then_some(Self(key))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Which calls are wanted. None: any.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallFilter {
    pub host: Option<String>,
    pub session: Option<String>,
    pub thread: Option<String>,
    pub run: Option<String>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub outcome: Option<Outcome>,
    pub trust: Option<Trust>,
}

impl CallFilter {
    pub(crate) fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// The address of the list with this filter.
    pub(crate) fn address(&self, before: Option<&Key>) -> String {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (host, session, thread) = (text(&self.host), text(&self.session), text(&self.thread));
        let (run, server, tool) = (text(&self.run), text(&self.server), text(&self.tool));
        href::query(
            "/calls",
            &[
                ("host", &host),
                ("session", &session),
                ("thread", &thread),
                ("run", &run),
                ("server", &server),
                ("tool", &tool),
                ("outcome", self.outcome.map_or("", Outcome::as_str)),
                ("trust", self.trust.map_or("", Trust::as_str)),
                ("before", before.map_or("", Key::as_str)),
            ],
        )
    }
}

/// What a page shows, for whoever tells that it has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topic {
    Overview,
    Calls(CallFilter),
    Call(Key),
    Sessions,
    Session { host: String, id: String },
    Runs,
    Run(String),
    Servers,
    Server(String),
    Hooks,
    Why { host: String, server: String },
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// A page that can be shown and watched, and from where on its list goes.
    Page(Topic, Option<Key>),
    Artifact {
        run: String,
        path: String,
    },
    Cancel(String),
    Live {
        of: String,
        since: Option<u64>,
    },
    Asset,
    Login {
        code: Option<String>,
    },
    LogIn,
    LogOut,
}

/// Why an address is no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoute {
    Missing,
    /// It is there, for another method.
    Method,
}

impl Route {
    pub(crate) fn of(method: &Method, path: &str, query: Option<&str>) -> Result<Self, NoRoute> {
        let query = query.unwrap_or_default();
        if path.len() + query.len() > LONGEST {
            return Err(NoRoute::Missing);
        }
        let segments = segments(path).ok_or(NoRoute::Missing)?;
        let segments: Vec<&str> = segments.iter().map(AsRef::as_ref).collect();
        let asked = Asked(query);
        let (wanted, route) = match segments.as_slice() {
            ["login"] if method == Method::POST => (Method::POST, Self::LogIn),
            ["login"] => (Method::GET, Self::Login { code: asked.value("code") }),
            ["logout"] => (Method::POST, Self::LogOut),
            ["assets", _] => (Method::GET, Self::Asset),
            ["live"] => {
                let since = asked.value("since").and_then(|since| since.parse().ok());
                (Method::GET, Self::Live { of: asked.value("of").ok_or(NoRoute::Missing)?, since })
            }
            ["runs", run, "cancel"] => (Method::POST, Self::Cancel((*run).to_owned())),
            ["runs", run, "artifacts", path] => {
                (Method::GET, Self::Artifact { run: (*run).to_owned(), path: (*path).to_owned() })
            }
            _ => {
                let topic = topic(&segments, &asked).ok_or(NoRoute::Missing)?;
                (Method::GET, Self::Page(topic, asked.value("before").and_then(Key::new)))
            }
        };
        // A head without its body costs the same, and nothing here asks for one.
        if *method == wanted { Ok(route) } else { Err(NoRoute::Method) }
    }
}

fn topic(segments: &[&str], asked: &Asked<'_>) -> Option<Topic> {
    Some(match segments {
        [] => Topic::Overview,
        ["calls"] => Topic::Calls(asked.filter()),
        ["calls", key] => Topic::Call(Key::new(*key)?),
        ["sessions"] => Topic::Sessions,
        ["sessions", host, id] => Topic::Session { host: (*host).to_owned(), id: (*id).to_owned() },
        ["runs"] => Topic::Runs,
        ["runs", run] => Topic::Run((*run).to_owned()),
        ["servers"] => Topic::Servers,
        ["servers", name] => Topic::Server((*name).to_owned()),
        ["hooks"] => Topic::Hooks,
        ["why"] => Topic::Why {
            host: asked.value("host").unwrap_or_default(),
            server: asked.value("server").unwrap_or_default(),
        },
        _ => return None,
    })
}

/// The segments of a path, decoded. None where that is no text, or a segment is empty.
fn segments(path: &str) -> Option<Vec<Cow<'_, str>>> {
    let path = path.strip_prefix('/')?;
    if path.is_empty() {
        return Some(Vec::new());
    }
    path.split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().filter(|segment| !segment.is_empty()))
        .collect()
}

/// Values behind the question mark. The first of a name counts.
struct Asked<'a>(&'a str);

impl Asked<'_> {
    fn value(&self, name: &str) -> Option<String> {
        let found = form_urlencoded::parse(self.0.as_bytes()).find(|(other, _)| other == name);
        found.map(|(_, value)| value.into_owned()).filter(|value| (1..=LONGEST_VALUE).contains(&value.len()))
    }

    fn filter(&self) -> CallFilter {
        CallFilter {
            host: self.value("host"),
            session: self.value("session"),
            thread: self.value("thread"),
            run: self.value("run"),
            server: self.value("server"),
            tool: self.value("tool"),
            outcome: self.value("outcome").and_then(|word| Outcome::parse(&word)),
            trust: self.value("trust").and_then(|word| Trust::parse(&word)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(path: &str, query: Option<&str>) -> Result<Route, NoRoute> {
        Route::of(&Method::GET, path, query)
    }

    #[test]
    fn an_address_is_one_page_or_none() {
        let page = |topic| Ok(Route::Page(topic, None));
        assert_eq!(get("/", None), page(Topic::Overview));
        assert_eq!(get("/calls/1-2", None), page(Topic::Call(Key::new("1-2").unwrap())));
        let session = Topic::Session { host: "a/b".to_owned(), id: "..".to_owned() };
        assert_eq!(get("/sessions/a%2Fb/%2E%2E", None), page(session));
        for missing in
            ["", "x", "//", "/calls/", "/calls/a%20b", "/calls/%ff", "/nothing", "/runs/a/b", "/mcp/x"]
        {
            assert_eq!(get(missing, None), Err(NoRoute::Missing), "{missing}");
        }
        assert_eq!(get(&format!("/runs/{}", "x".repeat(5000)), None), Err(NoRoute::Missing));
        assert_eq!(get("/runs/r/cancel", None), Err(NoRoute::Method));
        assert_eq!(Route::of(&Method::POST, "/runs/r/cancel", None), Ok(Route::Cancel("r".to_owned())));
        assert_eq!(Route::of(&Method::POST, "/runs/r", None), Err(NoRoute::Method));
        assert_eq!(Route::of(&Method::HEAD, "/", None), Err(NoRoute::Method));
    }

    #[test]
    fn a_filter_comes_back_from_its_address() {
        let filter = CallFilter {
            tool: Some("a&b=<c>".to_owned()),
            outcome: Some(Outcome::Refused),
            trust: Some(Trust::Host),
            ..CallFilter::default()
        };
        let key = Key::new("9-1").unwrap();
        let address = filter.address(Some(&key));
        let (path, query) = address.split_once('?').unwrap();
        assert_eq!(get(path, Some(query)), Ok(Route::Page(Topic::Calls(filter), Some(key))));
        assert_eq!(CallFilter::default().address(None), "/calls");
        let odd = get("/calls", Some("outcome=x&before=a%20b&host=&tool=1&tool=2"));
        let filter = CallFilter { tool: Some("1".to_owned()), ..CallFilter::default() };
        assert_eq!(odd, Ok(Route::Page(Topic::Calls(filter), None)));
    }
}
