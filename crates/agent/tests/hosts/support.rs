//! A real `OpenCode` with what the driver makes for a box, and words for stories.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use agent::{BoxConfig, BoxModel, OpenCode, Options, Place, Timing, environment};
use model::ports::agent::{
    Agent as _, Decision, Delivery, FailedTurn, Policy, Progress, PromptId, PromptIntent, SessionRef, Turn,
    WantedSession,
};
use model::session::{MessageId, Stamp};
use testkit::hosts::opencode::Settings;
use testkit::hosts::{Home, Host, binary};
use testkit::llm::{ScriptedModel, script};
use tokio::process::Child;
use tokio::time::{Instant, sleep, timeout};

use crate::provider::{BAD, Provider};

const PASSWORD: &str = "a-password-of-this-test";
const BOOT: Duration = Duration::from_mins(1);
const TURN: Duration = Duration::from_mins(1);

/// All that a story needs. Drop ends it.
#[derive(Debug)]
pub(crate) struct Rig {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) home: Arc<Home>,
    pub(crate) model: ScriptedModel,
    provider: Provider,
}

pub(crate) fn timing() -> Timing {
    Timing {
        settle: Duration::from_millis(800),
        gone: Duration::from_secs(1),
        poll: Duration::from_secs(2),
        ..Timing::default()
    }
}

impl Rig {
    pub(crate) async fn start() -> Self {
        let model = ScriptedModel::start();
        let provider = Provider::start(model.address()).await;
        let home = Home::new();
        // What OpenCode would fetch from npm at its first start; its configuration is not this file's.
        Settings::new().write(&home, &model);
        std::fs::write(home.opencode().join("opencode.json"), "{}").expect("a file");
        std::fs::write(home.project().join("file.txt"), "a line").expect("a file");
        let (child, address) = launch(&home, &provider).await;
        Self { child, address, home, model, provider }
    }

    /// The process is killed, with nothing said to it.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("it can be killed");
    }

    /// Again, in the same home, at another port.
    pub(crate) async fn restart(&mut self) {
        (self.child, self.address) = launch(&self.home, &self.provider).await;
    }

    pub(crate) fn driver(&self) -> OpenCode {
        Self::driver_at(Place::Tcp(self.address), timing())
    }

    pub(crate) fn driver_at(place: Place, timing: Timing) -> OpenCode {
        OpenCode::new(Options { place, password: PASSWORD.to_owned(), timing })
    }

    pub(crate) async fn session(&self, driver: &OpenCode) -> SessionRef {
        driver.ensure_session(&self.wanted(None)).await.expect("a session").session
    }

    pub(crate) fn wanted(&self, known: Option<&str>) -> WantedSession {
        let directory = self.home.project().display().to_string();
        WantedSession { known: known.map(str::to_owned), title: "a story".to_owned(), directory }
    }

    /// How often the model was asked to begin with a prompt that has this word. Later steps end with what a tool said.
    pub(crate) fn turns_with(&self, word: &str) -> usize {
        let begins = |body: &serde_json::Value| {
            let last = body["messages"].as_array().and_then(|messages| messages.last());
            last.is_some_and(|last| last["role"] == "user" && last.to_string().contains(word))
        };
        self.model.asked().iter().filter(|asked| begins(&asked.body)).count()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let below = self.child.id().map(testkit::harness::descendants).unwrap_or_default();
        drop(self.child.start_kill());
        let end = std::time::Instant::now() + Duration::from_secs(5);
        while matches!(self.child.try_wait(), Ok(None)) && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(below.iter().all(|pid| !testkit::harness::alive(*pid)), "OpenCode left something behind");
    }
}

async fn launch(home: &Arc<Home>, provider: &Provider) -> (Child, SocketAddr) {
    let model = |id: &str| BoxModel { id: id.to_owned(), limits: None };
    let config = BoxConfig {
        provider: "ollama".to_owned(),
        base_url: format!("http://{}/v1", provider.address),
        api_key: "placeholder".to_owned(),
        model: model("one"),
        small_model: model("one"),
        more_models: BAD.iter().copied().map(model).collect(),
        permissions: Policy::all(Decision::Allow)
            .with("bash", Decision::Surface)
            .with("doom_loop", Decision::Surface)
            .with("question", Decision::Surface),
        mcp: BTreeMap::new(),
        password: PASSWORD.to_owned(),
    };
    let (out, err) = (home.log("opencode.out"), home.log("opencode.err"));
    let mut command = home.command(&binary(Host::OpenCode));
    command
        .args(["serve", "--hostname", "127.0.0.1", "--port", "0", "--print-logs"])
        .envs(environment(&config));
    command.stdin(Stdio::null()).stdout(std::fs::File::create(&out).expect("a file"));
    command.stderr(std::fs::File::create(&err).expect("a file")).kill_on_drop(true);
    let mut child = command.spawn().expect("OpenCode starts");
    let end = Instant::now() + BOOT;
    loop {
        if let Some(address) = listening(&out) {
            let place = Place::Tcp(address);
            let driver = OpenCode::new(Options { place, password: PASSWORD.to_owned(), timing: timing() });
            driver.ready(BOOT).await.expect("OpenCode answers");
            return (child, address);
        }
        let said = || std::fs::read_to_string(&err).unwrap_or_default();
        assert!(
            matches!(child.try_wait(), Ok(None)) && Instant::now() < end,
            "OpenCode is not up: {}",
            said()
        );
        sleep(Duration::from_millis(20)).await;
    }
}

fn listening(out: &Path) -> Option<SocketAddr> {
    let text = std::fs::read_to_string(out).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("opencode server listening on http://"))?;
    text.ends_with('\n').then(|| line.trim().parse().ok())?
}

/// A new id, as a run would have one.
pub(crate) fn message() -> MessageId {
    let mut random = [0; 10];
    getrandom::fill(&mut random).expect("random bytes");
    #[expect(clippy::disallowed_methods, reason = "the time of a test is the time")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    MessageId::new(Stamp {
        millis: u64::try_from(now.as_millis()).expect("before the year 500 million"),
        random,
    })
}

/// A prompt with a script for the model.
pub(crate) fn intent(session: &SessionRef, steps: &serde_json::Value) -> PromptIntent {
    PromptIntent {
        prompt: PromptId { session: session.clone(), message: message() },
        text: script(steps),
        model: None,
        output_schema: None,
        system: None,
    }
}

/// What a watch told and how it ended.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) progress: Vec<Progress>,
    pub(crate) ended: Result<Turn, Box<FailedTurn>>,
}

impl Watched {
    #[track_caller]
    pub(crate) fn turn(&self) -> &Turn {
        self.ended.as_ref().unwrap_or_else(|failed| panic!("{failed}: {failed:?}\n{:#?}", self.progress))
    }

    #[track_caller]
    pub(crate) fn failed(&self) -> &FailedTurn {
        self.ended.as_ref().expect_err("the turn fails")
    }
}

pub(crate) fn allow() -> Policy {
    Policy::all(Decision::Allow)
}

pub(crate) async fn watch(driver: &OpenCode, prompt: &PromptId, policy: &Policy) -> Watched {
    let mut progress = Vec::new();
    let mut sink = |told: Progress| progress.push(told);
    let ended = timeout(TURN, driver.watch(prompt, policy, &mut sink)).await;
    let ended = ended.unwrap_or_else(|_late| panic!("a watch without an end"));
    Watched { progress, ended }
}

/// Delivers and watches.
pub(crate) async fn run(driver: &OpenCode, intent: &PromptIntent, policy: &Policy) -> Watched {
    assert_eq!(driver.prompt(intent).await, Ok(Delivery::Delivered));
    watch(driver, &intent.prompt, policy).await
}

/// Delivers, watches, and expects this text.
pub(crate) async fn says(driver: &OpenCode, session: &SessionRef, text: &str) {
    let watched = run(driver, &intent(session, &serde_json::json!([{ "text": text }])), &allow()).await;
    assert_eq!(watched.turn().final_text, text);
}
