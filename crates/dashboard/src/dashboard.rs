//! Requests in, responses out. Read this first.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use model::Principal;
use tokio_util::sync::CancellationToken;

use crate::gate::{self, Auth, Denied, Gate, Login};
use crate::layout::{self, Shell};
use crate::live::{self, Live};
use crate::pages::{self, Page, Problem};
use crate::respond::{self, Body};
use crate::route::{Key, NoRoute, Route, Topic};
use crate::source::{CancelOutcome, Source, Trouble};
use crate::{assets, href};

/// The largest form, and how long it may take.
const FORM: usize = 16 * 1024;
const FORM_TIME: Duration = Duration::from_secs(10);
/// A request of a page that keeps itself fresh has this header.
const FRESH: &str = "callsign-fresh";

#[derive(Debug)]
pub struct Options {
    pub auth: Auth,
    /// Live pages end with it.
    pub stop: CancellationToken,
}

/// The pages over one source. Whoever serves it has checked `Host`.
pub struct Dashboard<S> {
    source: S,
    gate: Arc<Gate>,
    stop: CancellationToken,
}

impl<S> fmt::Debug for Dashboard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("gate", &self.gate).finish_non_exhaustive()
    }
}

/// Why there is no page.
enum NoPage {
    Missing,
    Trouble(Trouble),
}

impl From<Trouble> for NoPage {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl<S: Source> Dashboard<S> {
    pub fn new(source: S, options: Options) -> Self {
        Self { source, gate: Arc::new(Gate::new(options.auth)), stop: options.stop }
    }

    /// An address on this server that lets its reader in as the holder of `token`: once, within two minutes. None: nobody holds
    /// that token, or none is wanted.
    pub fn one_time_link(&self, token: &str) -> Option<String> {
        self.gate.mint(token).map(|code| href::query("/login", &[("code", &code)]))
    }

    /// Answers any request; what is no page of ours is a page that says so. `peer` is whoever connected, where that is known.
    pub async fn handle<B>(&self, request: Request<B>, peer: Option<IpAddr>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (parts, body) = request.into_parts();
        let fresh = parts.headers.contains_key(FRESH);
        let login = self.gate.login(&parts.headers, !fresh);
        let ours = if parts.method == Method::GET {
            gate::may_read(&parts.headers)
        } else {
            gate::may_change(&parts.headers)
        };
        if !ours {
            return problem(&Problem::Origin, login.as_deref());
        }
        let route = match Route::of(&parts.method, parts.uri.path(), parts.uri.query()) {
            Ok(route) => route,
            // Whoever is nobody learns nothing of what there is.
            Err(_) if login.is_none() => return login_page(StatusCode::UNAUTHORIZED, None, "/"),
            Err(NoRoute::Missing) => return problem(&Problem::Missing, login.as_deref()),
            Err(NoRoute::Method) => return problem(&Problem::Method, login.as_deref()),
        };
        match (route, login) {
            (Route::Asset, login) => match assets::find(parts.uri.path()) {
                Some(asset) => respond::asset(asset.kind, asset.content),
                None => problem(&Problem::Missing, login.as_deref()),
            },
            (Route::Login { .. } | Route::LogIn, Some(_)) => respond::see("/"),
            (Route::Login { code }, None) => self.greet(&parts.headers, code, peer),
            (Route::LogIn, None) => self.log_in(form(body).await, peer),
            (Route::Page(..), None) => {
                let to = parts.uri.path_and_query().map_or("/", |asked| asked.as_str());
                login_page(StatusCode::UNAUTHORIZED, None, to)
            }
            (Route::Artifact { .. } | Route::Cancel(_) | Route::Live { .. } | Route::LogOut, None) => {
                login_page(StatusCode::UNAUTHORIZED, None, "/")
            }
            (Route::Page(topic, before), Some(login)) => {
                self.page(&login, &topic, before.as_ref(), &parts).await
            }
            (Route::Live { of, since }, Some(login)) => {
                let last =
                    parts.headers.get("last-event-id").and_then(|last| last.to_str().ok()?.parse().ok());
                self.live(&login, &of, last.or(since))
            }
            (Route::Artifact { run, path }, Some(login)) => self.artifact(&login, &run, &path).await,
            (Route::Cancel(run), Some(login)) => match form(body).await {
                Some(form) if login.is_csrf(form.value("csrf")) => self.cancel(&login, &run).await,
                Some(_) => problem(&Problem::Form, Some(&login)),
                None => problem(&Problem::TooLarge, Some(&login)),
            },
            (Route::LogOut, Some(login)) => match form(body).await {
                Some(form) if login.is_csrf(form.value("csrf")) => {
                    self.gate.end(&login);
                    let mut response = respond::see("/login");
                    response.headers_mut().insert(header::SET_COOKIE, gate::end_cookie());
                    response
                }
                Some(_) => problem(&Problem::Form, Some(&login)),
                None => problem(&Problem::TooLarge, Some(&login)),
            },
        }
    }

    async fn page(
        &self,
        login: &Login,
        topic: &Topic,
        before: Option<&Key>,
        parts: &Parts,
    ) -> Response<Body> {
        // Before the data: what changes in between is news.
        let beat = self.source.watch(&login.principal, topic).map(|beat| *beat.borrow());
        match self.fill(login, topic, before).await {
            Ok(page) => {
                let address = parts.uri.path_and_query().map_or("/", |asked| asked.as_str());
                let live = beat.map(|beat| (href::query("/live", &[("of", address)]), beat));
                respond::page(StatusCode::OK, shell(&page, Some(login), live))
            }
            Err(NoPage::Missing) => problem(&Problem::Missing, Some(login)),
            Err(NoPage::Trouble(trouble)) => troubled(&trouble, login),
        }
    }

    async fn fill(&self, login: &Login, topic: &Topic, before: Option<&Key>) -> Result<Page, NoPage> {
        let (source, who, now) = (&self.source, &login.principal, self.source.now());
        let there = |page: Option<Page>| page.ok_or(NoPage::Missing);
        Ok(match topic {
            Topic::Overview => pages::overview::page(&source.overview(who).await?, now),
            Topic::Calls(filter) => {
                pages::calls::page(&source.calls(who, filter, before).await?, filter, before.is_some(), now)
            }
            Topic::Call(key) => {
                there(source.call(who, key).await?.map(|call| pages::call::page(&call, now)))?
            }
            Topic::Sessions => {
                pages::sessions::page(&source.sessions(who, before).await?, before.is_some(), now)
            }
            Topic::Session { host, id } => {
                let session = source.session(who, (host, id), before).await?;
                there(session.map(|session| pages::session::page(&session, before.is_some(), now)))?
            }
            Topic::Runs => pages::runs::page(&source.runs(who, before).await?, before.is_some(), now),
            Topic::Run(id) => {
                there(source.run(who, id).await?.map(|run| pages::run::page(&run, &login.csrf, now)))?
            }
            Topic::Servers => pages::servers::page(&source.servers(who).await?),
            Topic::Server(name) => {
                there(source.server(who, name).await?.map(|server| pages::server::page(&server, now)))?
            }
            Topic::Hooks => pages::hooks::page(&source.hooks(who).await?),
            Topic::Why { host, server } => {
                let pair =
                    (!host.is_empty() && !server.is_empty()).then_some((host.as_str(), server.as_str()));
                pages::why::page(&source.why(who, pair).await?, (host, server), now)
            }
        })
    }

    fn live(&self, login: &Arc<Login>, of: &str, since: Option<u64>) -> Response<Body> {
        let (path, query) = of.split_once('?').map_or((of, None), |(path, query)| (path, Some(query)));
        let Ok(Route::Page(topic, _)) = Route::of(&Method::GET, path, query) else {
            return problem(&Problem::Missing, Some(login));
        };
        let Some(beat) = self.source.watch(&login.principal, &topic) else {
            return problem(&Problem::Missing, Some(login));
        };
        let Some(place) = login.stream() else { return problem(&Problem::TooOften, Some(login)) };
        live::respond(Live { beat, since, gate: Arc::clone(&self.gate), place, stop: self.stop.clone() })
    }

    async fn artifact(&self, login: &Login, run: &str, path: &str) -> Response<Body> {
        match self.source.artifact(&login.principal, run, path).await {
            Ok(Some(content)) => respond::download(path, content),
            Ok(None) => problem(&Problem::Missing, Some(login)),
            Err(trouble) => troubled(&trouble, login),
        }
    }

    async fn cancel(&self, login: &Login, run: &str) -> Response<Body> {
        match self.source.cancel(&login.principal, run).await {
            Ok(Some(CancelOutcome::Asked | CancelOutcome::Ended)) => {
                respond::see(&href::path(&["runs", run]))
            }
            Ok(Some(CancelOutcome::Refused(why))) => problem(&Problem::Refused(why), Some(login)),
            Ok(None) => problem(&Problem::Missing, Some(login)),
            Err(trouble) => troubled(&trouble, login),
        }
    }

    /// The login page, or in at once by the code of a link. Where a page sent the person here, they are asked first.
    fn greet(&self, headers: &HeaderMap, code: Option<String>, peer: Option<IpAddr>) -> Response<Body> {
        match code {
            Some(code) if gate::is_unasked(headers) => enter(self.gate.by_code(&code, peer), "/"),
            Some(code) => {
                let page = pages::login::confirm(&code);
                respond::page(StatusCode::OK, shell(&page, None, None))
            }
            None => login_page(StatusCode::OK, None, "/"),
        }
    }

    fn log_in(&self, form: Option<Form>, peer: Option<IpAddr>) -> Response<Body> {
        let Some(form) = form else { return problem(&Problem::TooLarge, None) };
        let to = own_page(form.value("to")).unwrap_or("/");
        let code = form.value("code");
        let entered = if code.is_empty() {
            self.gate.by_token(form.value("token").trim(), peer)
        } else {
            self.gate.by_code(code, peer)
        };
        enter(entered, to)
    }
}

fn enter(entered: Result<String, Denied>, to: &str) -> Response<Body> {
    match entered {
        Ok(cookie) => {
            let mut response = respond::see(to);
            if let Some(cookie) = gate::set_cookie(&cookie) {
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            response
        }
        Err(Denied::Wrong) => login_page(StatusCode::UNAUTHORIZED, Some(&Denied::Wrong), to),
        Err(Denied::TooOften) => {
            let mut response = login_page(StatusCode::TOO_MANY_REQUESTS, Some(&Denied::TooOften), to);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("10"));
            response
        }
        Err(Denied::Random) => problem(&Problem::Failed(incident()), None),
    }
}

fn login_page(status: StatusCode, denied: Option<&Denied>, to: &str) -> Response<Body> {
    respond::page(status, shell(&pages::login::page(denied, to), None, None))
}

fn troubled(trouble: &Trouble, login: &Login) -> Response<Body> {
    match trouble {
        Trouble::Busy => problem(&Problem::Busy, Some(login)),
        Trouble::Failed { .. } => {
            let incident = incident();
            let error: &dyn std::error::Error = trouble;
            tracing::error!(error, incident, principal = %login.principal, "a page could not be made");
            problem(&Problem::Failed(incident), Some(login))
        }
    }
}

fn problem(problem: &Problem, login: Option<&Login>) -> Response<Body> {
    respond::page(problem.status(), shell(&pages::problem::page(problem), login, None))
}

fn shell(page: &Page, login: Option<&Login>, live: Option<(String, u64)>) -> maud::Markup {
    let who: Option<(&Principal, &str)> = login.map(|login| (&login.principal, login.csrf.as_str()));
    layout::shell(&Shell { page, who, live })
}

/// The address, if it is a page of ours.
fn own_page(address: &str) -> Option<&str> {
    let (path, query) = address.split_once('?').map_or((address, None), |(path, query)| (path, Some(query)));
    let ascii = address.bytes().all(|byte| byte.is_ascii_graphic());
    (ascii && matches!(Route::of(&Method::GET, path, query), Ok(Route::Page(..)))).then_some(address)
}

/// By what a failure is found in the log.
fn incident() -> String {
    let mut bytes = [0; 4];
    // Without random bytes it is one of many zeros, which is still found.
    let _none = getrandom::fill(&mut bytes);
    format!("{:08x}", u32::from_be_bytes(bytes))
}

/// The fields of a form.
struct Form(Vec<(String, String)>);

impl Form {
    fn value(&self, name: &str) -> &str {
        self.0.iter().find(|(other, _)| other == name).map_or("", |(_, value)| value)
    }
}

/// None: it is too large, too slow, or broke off.
async fn form<B>(body: B) -> Option<Form>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let body = std::pin::pin!(Limited::new(body, FORM));
    let collected = tokio::time::timeout(FORM_TIME, body.collect()).await.ok()?.ok()?;
    Some(Form(form_urlencoded::parse(&collected.to_bytes()).into_owned().collect()))
}
