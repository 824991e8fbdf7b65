//! Words that several modules use.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use testkit::bin;
use testkit::client::{Client, Era, Failure};
use testkit::harness::{Files, Gateway, HttpServer, Setup};

pub(crate) const CALLSIGN: &str = env!("CARGO_BIN_EXE_callsign");
/// How long something may take that happens at once.
pub(crate) const SOON: Duration = Duration::from_secs(5);

pub(crate) fn setup() -> Setup {
    Setup::new(CALLSIGN)
}

/// Whether the long sizes are wanted.
pub(crate) fn full() -> bool {
    std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1")
}

/// A gateway with the echo server as `echo`.
pub(crate) fn echo(more: &str) -> Setup {
    setup().server("echo", &[&bin("echo-server"), "--stdio"], more)
}

/// A gateway with the hostile server in this mode as `bad`.
pub(crate) fn hostile(mode: &[&str], more: &str) -> Setup {
    let program = bin("hostile-server");
    let mut command = vec![program.as_str(), "--stdio", "--mode"];
    command.extend_from_slice(mode);
    setup().server("bad", &command, more)
}

/// The stable name of a gateway's own error.
pub(crate) fn name_of(failure: &Failure) -> String {
    match failure {
        Failure::Rpc(error) => error["data"]["code"].as_str().unwrap_or_default().to_owned(),
        Failure::Status(_, body) => {
            let body: Value = serde_json::from_str(body).unwrap_or_default();
            body["error"]["data"]["code"].as_str().unwrap_or_default().to_owned()
        }
        Failure::Closed | Failure::Deadline => String::new(),
    }
}

/// The pids that a hostile server with `--count` wrote down, in the order of their starts.
pub(crate) fn started(count: &Path) -> Vec<u32> {
    let text = std::fs::read_to_string(count).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// One way through the gateway: a client of one era, and what has to live as long.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) client: Client,
    /// `stdio → http, Modern`, for messages.
    pub(crate) name: String,
    pub(crate) http_client: bool,
    /// The server behind, where it is reached by HTTP.
    _server: Option<HttpServer>,
    _keep: Keep,
}

#[derive(Debug)]
enum Keep {
    Serve { _gateway: Gateway },
    Wrap { _files: Files },
}

impl Lane {
    /// All four combinations in both eras, connected, to an echo server with these arguments.
    pub(crate) async fn all(arguments: &[&str]) -> Vec<Self> {
        let mut lanes = Vec::new();
        for era in Era::BOTH {
            lanes.extend(Self::of(era, arguments).await);
        }
        lanes
    }

    /// The four combinations in one era.
    pub(crate) async fn of(era: Era, arguments: &[&str]) -> Vec<Self> {
        let mut lanes = Vec::new();
        for (http_client, http_server) in [(false, false), (false, true), (true, false), (true, true)] {
            lanes.push(Self::open(era, http_client, http_server, arguments).await);
        }
        lanes
    }

    async fn open(era: Era, http_client: bool, http_server: bool, arguments: &[&str]) -> Self {
        let program = bin("echo-server");
        let mut command = vec![program.as_str(), "--stdio"];
        command.extend_from_slice(arguments);
        let server = http_server.then(|| HttpServer::start("echo-server", arguments));
        let word = |http: bool| if http { "http" } else { "stdio" };
        let name = format!("{} → {}, {era:?}", word(http_client), word(http_server));
        let (client, keep) = match (&server, http_client) {
            (Some(server), true) => serve(&setup().url("lane", &server.url, ""), era).await,
            (None, true) => serve(&setup().server("lane", &command, ""), era).await,
            (Some(server), false) => wrap(era, &["--url", &server.url], &[]),
            (None, false) => wrap(era, &[], &command),
        };
        if let Err(failure) = client.connect().await {
            panic!("{name}: could not connect: {failure:?}\n{}", client.stderr());
        }
        Self { client, name, http_client, _server: server, _keep: keep }
    }

    pub(crate) fn era(&self) -> Era {
        self.client.era()
    }
}

async fn serve(setup: &Setup, era: Era) -> (Client, Keep) {
    let gateway = setup.serve().await;
    (gateway.client("lane", era), Keep::Serve { _gateway: gateway })
}

fn wrap(era: Era, arguments: &[&str], command: &[&str]) -> (Client, Keep) {
    let (client, files) = setup().wrap(era, arguments, command);
    (client, Keep::Wrap { _files: files })
}
