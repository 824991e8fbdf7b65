//! A server behind us, whichever way it is reached.

pub mod ambient;
pub mod answer;
pub mod breaker;
pub mod catalogue;
pub mod child;
pub mod link;
pub mod minted;
pub mod old_sse;
pub mod pool;
pub mod remote;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use http::HeaderMap;
use identity::Channel;
use mcp::Message;
use model::{Id, Placeholder, Principal, ServerSpec, Transport};

use crate::caller::{self, Call, Caller, Identification};
use crate::connection::{Connection, Outlet};
use crate::hooked::Slot;
use crate::meters::Meters;
use crate::recorded::Recorder;
use crate::respond::CallError;
use catalogue::Catalogue;
use link::{Counters, LinkOptions};
use pool::{Pool, Surroundings};
use remote::Remote;

#[derive(Debug)]
pub struct Server {
    pub spec: ServerSpec,
    pub backend: Backend,
    pub counters: Arc<Counters>,
    pub identification: Arc<Identification>,
    /// The hooks of its calls.
    pub hooks: Arc<Slot>,
    pub recorder: Arc<Recorder>,
}

/// Boxes and principals for which a connection is kept in the new era.
const MOST_STATELESS: usize = 1024;

#[derive(Debug)]
pub enum Backend {
    Pipes(Pipes),
    Remote(Arc<Remote>),
}

/// A principal, or one of its boxes.
pub(crate) type Entrant = (Principal, Option<Id>);

/// A server that is processes of ours.
#[derive(Debug)]
pub struct Pipes {
    pub pool: Arc<Pool>,
    pub catalogue: Arc<Catalogue>,
    /// In the new era a request over HTTP belongs to no connection; its principal stands in for one, or its box.
    stateless: Mutex<HashMap<Entrant, Arc<Connection>>>,
}

impl Server {
    /// `fingerprints`: where what the server lists is recorded.
    pub fn new(spec: ServerSpec, around: Surroundings, fingerprints: Option<PathBuf>) -> Self {
        let counters = Arc::<Counters>::default();
        let hooks = Arc::<Slot>::default();
        let identification = Arc::clone(&around.identification);
        let ambient = spec.arguments.iter().map(|(name, _)| name.clone()).collect();
        let catalogue = Arc::new(Catalogue::new(spec.name.as_str(), spec.pin, ambient, fingerprints));
        let recorder = Arc::new(Recorder {
            sinks: Arc::clone(&around.sinks),
            server: spec.name.as_str().into(),
            capture: spec.capture,
            meters: Meters::default(),
            transport: match spec.transport {
                Transport::Stdio(_) => telemetry::Transport::Pipe,
                Transport::Http(_) => telemetry::Transport::Http,
            },
        });
        let options = Arc::new(LinkOptions {
            server: spec.name.as_str().to_owned(),
            hooks: Arc::clone(&hooks),
            timeout: spec.timeout,
            max_message: spec.max_message,
            catalogue: Arc::clone(&catalogue),
            counters: Arc::clone(&counters),
            identification: Arc::clone(&around.identification),
            recorder: Arc::clone(&recorder),
        });
        let backend = match &spec.transport {
            Transport::Stdio(stdio) => {
                let pool = Pool::new(stdio.clone(), options, around);
                Backend::Pipes(Pipes { pool, catalogue, stateless: Mutex::default() })
            }
            Transport::Http(http) => Backend::Remote(Arc::new(Remote::new(http.clone(), options, around))),
        };
        Self { spec, backend, counters, identification, hooks, recorder }
    }

    /// Finds out who makes a request, and whether this server wants to be asked by them.
    pub fn identify(
        &self,
        connection: &Connection,
        headers: Option<&HeaderMap>,
        message: Message,
    ) -> Result<Call, CallError> {
        let call = self.identification.identify(connection, headers, message)?;
        let permitted = caller::permit(self.spec.require, self.name(), &call)
            .and_then(|()| ambient::fill(&self.spec, self.catalogue(), &call));
        match permitted {
            Ok(filled) => {
                let mut call = filled.unwrap_or(call);
                call.record = self.recorder.open(&call);
                Ok(call)
            }
            Err(error) => {
                if let Some(record) = self.recorder.open(&call) {
                    record.failed(&error);
                }
                Err(error)
            }
        }
    }

    pub fn catalogue(&self) -> &Catalogue {
        match &self.backend {
            Backend::Pipes(pipes) => &pipes.catalogue,
            Backend::Remote(remote) => &remote.options.catalogue,
        }
    }

    pub fn name(&self) -> &str {
        self.spec.name.as_str()
    }

    /// Ends every process of this server.
    pub fn close(&self) {
        match &self.backend {
            Backend::Pipes(pipes) => pipes.pool.close(),
            Backend::Remote(_) => {}
        }
    }
}

/// What placeholders stand for in a call of `tool`. What is not known leaves its header or variable out.
fn values<'a>(
    server: &'a str,
    tool: Option<&'a str>,
    caller: Option<&'a Caller>,
) -> impl Fn(Placeholder) -> Option<Cow<'a, str>> {
    move |placeholder| {
        let of_call = [(Placeholder::Server, Some(server)), (Placeholder::Tool, tool)];
        let known = of_call.into_iter().find(|(name, _)| *name == placeholder);
        let of_caller = || caller.and_then(|caller| caller.value(placeholder));
        known.map_or_else(of_caller, |(_, value)| value).map(Cow::Borrowed)
    }
}

impl Pipes {
    /// The box of a session is gone, and whoever spoke from it.
    pub fn forget_box(&self, session: &str) {
        let mut gone = Vec::new();
        self.stateless.lock().unwrap_or_else(PoisonError::into_inner).retain(|(_, of), connection| {
            let is_of_it = of.as_ref().is_some_and(|id| id.as_str() == session);
            if is_of_it {
                gone.push(Arc::clone(connection));
            }
            !is_of_it
        });
        for connection in gone {
            connection.close();
            self.pool.connection_closed(&connection);
        }
        self.pool.forget_box(session);
    }

    pub fn stateless(&self, principal: &Principal, channel: &Channel) -> Arc<Connection> {
        let mut stateless = self.stateless.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (principal.clone(), channel.bound_to().cloned());
        // A box that was started again is another one, with a seal of its own.
        if let Some(connection) = stateless.get(&key).filter(|known| known.channel.is_same(channel)) {
            return Arc::clone(connection);
        }
        if stateless.len() >= MOST_STATELESS {
            // Boxes come and go. Whoever is still under way holds theirs.
            stateless.retain(|_, connection| Arc::strong_count(connection) > 1);
        }
        let connection = Arc::new(Connection::new(principal.clone(), Outlet::Stateless, channel.clone()));
        stateless.insert(key, Arc::clone(&connection));
        connection
    }
}
