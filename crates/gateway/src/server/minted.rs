//! `headers_command`: headers that a program prints, kept for a while, for each caller its own.
//!
//! The program finds who calls in its environment, as a server on a pipe would. What it prints is a secret: it is
//! never logged.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use identity::projection;
use model::{HeadersCommand, InheritEnv, Isolation, StdioSpec};
use supervise::{Command, ExitStatus, Spawner};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::pool::Surroundings;
use crate::caller::{Caller, Known};
use crate::environment::{self, HostEnvironment};
use crate::redact::Redactor;
use crate::respond::CallError;

/// How long the program may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much it may print.
const MOST: usize = 64 * 1024;
/// Callers whose headers are kept.
const CALLERS: usize = 1024;
/// Those of them that are in one box: each may start a program.
const BOX_CALLERS: usize = 8;

#[derive(Debug)]
pub struct Minted {
    command: HeadersCommand,
    server: String,
    spawner: Arc<Spawner>,
    host: Arc<HostEnvironment>,
    /// Learns what it prints, and takes it out of what it says.
    redactor: Arc<Redactor>,
    kept: Mutex<Slots>,
}

/// One caller's headers. Who needs them first fetches them; the others wait for that.
#[derive(Debug, Default)]
struct Slot(tokio::sync::Mutex<Option<(Instant, Arc<Headers>)>>);

type Slots = HashMap<Option<Known>, Arc<Slot>>;

type Headers = BTreeMap<String, String>;

impl Minted {
    pub fn new(command: HeadersCommand, server: &str, around: &Surroundings) -> Self {
        let (spawner, host) = (Arc::clone(&around.spawner), Arc::clone(&around.host));
        let redactor = Arc::clone(&around.sinks.redactor);
        Self { command, server: server.to_owned(), spawner, host, redactor, kept: Mutex::default() }
    }

    pub async fn headers(&self, caller: Option<&Caller>) -> Result<Arc<Headers>, CallError> {
        let failed = |reason| CallError::HeadersCommand { server: self.server.clone(), reason };
        let slot = slot(
            &mut self.kept.lock().unwrap_or_else(PoisonError::into_inner),
            caller.and_then(Caller::known),
        );
        let slot = slot.ok_or_else(|| failed(format!("it runs {BOX_CALLERS} times for this box already")))?;
        let mut kept = slot.0.lock().await;
        if let Some((at, headers)) = &*kept
            && at.elapsed() < self.command.cache
        {
            return Ok(Arc::clone(headers));
        }
        let fresh = self.run(caller).await.map_err(failed)?;
        let fresh = Arc::new(fresh);
        *kept = Some((Instant::now(), Arc::clone(&fresh)));
        Ok(fresh)
    }

    async fn run(&self, caller: Option<&Caller>) -> Result<Headers, String> {
        let child = self.spawner.spawn(self.program(caller)).map_err(|error| error.to_string())?;
        let supervise::Child { stdin, stdout, stderr, mut control } = child;
        drop(stdin);
        let ran = async {
            control.started().await.map_err(|error| error.to_string())?;
            let (printed, said) = tokio::join!(read(stdout), read(stderr));
            Ok::<_, String>((printed, said, control.exited().await))
        };
        let outcome = tokio::time::timeout(PATIENCE, ran).await;
        let (printed, said, status) = match outcome {
            Ok(outcome) => outcome?,
            Err(_late) => {
                control.kill();
                return Err(format!("it took longer than {} s", PATIENCE.as_secs()));
            }
        };
        if status != ExitStatus::Code(0) {
            let said = String::from_utf8_lossy(&said);
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
            let last = self.redactor.redact(last);
            let last: String = last.chars().filter(|character| !character.is_control()).take(200).collect();
            return Err(format!("{status}; its last words: {last}"));
        }
        let headers = parse(&printed)?;
        for value in headers.values() {
            self.redactor.learn(value);
        }
        Ok(headers)
    }

    fn program(&self, caller: Option<&Caller>) -> Command {
        let spec = StdioSpec {
            command: String::new(),
            args: Vec::new(),
            env: Vec::new(),
            env_vars: Vec::new(),
            isolation: Isolation::Session,
            cwd: None,
            inherit_env: InheritEnv::Host,
            idle: Duration::ZERO,
            max_children: 1,
        };
        let mut env = environment::build(&spec, &self.host, &|_| None).variables;
        let told = caller.map(|caller| projection::variables(&caller.identity, caller.workspace.as_deref()));
        for (name, value) in told.into_iter().flatten() {
            env.push((OsString::from(name), OsString::from(value.as_ref())));
        }
        env.push((OsString::from("CALLSIGN_SERVER"), OsString::from(&self.server)));
        Command {
            program: OsString::from(&self.command.program),
            args: self.command.args.iter().map(OsString::from).collect(),
            env,
            cwd: self.command.cwd.clone(),
        }
    }
}

/// The place of a caller. None: all that its box may have are in use. Else one of them makes room.
fn slot(kept: &mut Slots, caller: Option<Known>) -> Option<Arc<Slot>> {
    let session = caller.as_ref().and_then(Known::bound_to);
    if let Some(session) = session.filter(|_| !kept.contains_key(&caller)) {
        let own = |known: &Option<Known>| known.as_ref().and_then(Known::bound_to) == Some(session);
        if kept.keys().filter(|known| own(known)).count() >= BOX_CALLERS {
            let unused = kept.iter().find(|(known, slot)| own(known) && Arc::strong_count(slot) == 1);
            let unused = unused.map(|(known, _)| known.clone())?;
            kept.remove(&unused);
        }
    }
    if kept.len() >= CALLERS && !kept.contains_key(&caller) {
        kept.clear();
    }
    Some(Arc::clone(kept.entry(caller).or_default()))
}

async fn read(input: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut bytes = Vec::new();
    // What is missing shows when it is parsed.
    let _short = input.take(MOST as u64).read_to_end(&mut bytes).await;
    bytes
}

fn parse(printed: &[u8]) -> Result<Headers, String> {
    let headers: Headers = serde_json::from_slice(printed)
        .map_err(|_| "what it printed is not a JSON object of strings".to_owned())?;
    for (name, value) in &headers {
        let plain = name.to_ascii_lowercase().replace('_', "-");
        let reserved = ["host", "connection", "transfer-encoding", "te", "upgrade", "trailer", "keep-alive"];
        if http::HeaderName::try_from(name.as_str()).is_err() {
            return Err(format!("{name:?} is not the name of a header"));
        }
        if identity::names::is_our_header(name)
            || plain.starts_with("mcp-")
            || plain.starts_with("content-")
            || reserved.contains(&plain.as_str())
        {
            return Err(format!("`{name}` is not for it to set"));
        }
        if value.bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(format!("the value of `{name}` has a line break or a zero byte in it"));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{Id, Identity, Principal, Trust};

    fn known(session: &str, thread: &str, trust: Trust) -> Option<Known> {
        let id = |text: &str| Id::new(text).ok();
        let identity = Identity { session: id(session), thread: id(thread), trust, ..Identity::default() };
        Caller { identity, ..Caller::nobody(Principal::local()) }.known()
    }

    #[test]
    fn one_box_does_not_put_out_what_is_kept_for_others() {
        let mut kept = Slots::new();
        let others = known("s", "t", Trust::Host);
        drop(slot(&mut kept, others.clone()).unwrap());
        for number in 0..2 * CALLERS {
            drop(slot(&mut kept, known("box", &format!("t{number}"), Trust::Bound)).unwrap());
        }
        assert!(kept.contains_key(&others));
        assert_eq!(kept.len(), 1 + BOX_CALLERS);
        // While they are in use there are no more, for that box alone.
        let held: Vec<_> = kept.values().cloned().collect();
        assert!(slot(&mut kept, known("box", "one_more", Trust::Bound)).is_none());
        assert!(slot(&mut kept, known("other_box", "t", Trust::Bound)).is_some());
        drop(held);
        assert!(slot(&mut kept, known("box", "one_more", Trust::Bound)).is_some());
    }

    #[test]
    fn only_headers_that_are_its_own_are_taken() {
        assert_eq!(parse(br#"{"Authorization":"Bearer x"}"#).unwrap()["Authorization"], "Bearer x");
        for bad in [
            "",
            "[]",
            r#"{"a":1}"#,
            r#"{"a b":"x"}"#,
            r#"{"Callsign_Session":"x"}"#,
            r#"{"Mcp-Name":"x"}"#,
            r#"{"Host":"x"}"#,
            r#"{"X":"a\nb"}"#,
        ] {
            assert!(parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
