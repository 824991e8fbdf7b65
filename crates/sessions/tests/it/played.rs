//! Boxes and an agent that live in memory, and outlive every engine as real ones do.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use model::ports::agent::{
    Agent, AgentError, AgentSession, Answer, Answered, Delivery, FailedTurn, Failure, Origin, Policy,
    Progress, PromptId, PromptIntent, QuestionId, Ready, SessionRef, Spent, Turn, WantedSession,
};
use model::ports::sandbox::{
    Ability, BoxInfo, BoxName, BoxSpec, BoxState, Cause, Ending, Environment, Exit, Hits, Hold, Holds, How,
    Inside, Level, Limits, Network, Sandbox, SandboxError, Started, Strictness, Usage, User,
};
use model::session::{MessageId, RunUsage, Session, SessionId, Stamp, UnixMillis};
use model::settings::{Secret, SessionSettings};
use sessions::{Access, Ports, Rooms, SessionDirs, World};
use tokio::time::sleep;

const HOLDS: Holds = Holds {
    memory: Hold::Watched,
    pids: Hold::Enforced,
    cpus: Hold::Absent,
    disk: Hold::Watched,
    syscalls: Hold::Enforced,
};

#[derive(Debug)]
pub(crate) struct Clock {
    began: Instant,
    count: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), count: AtomicU64::new(1) }
    }
}

impl World for Clock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_700_000_000_000 + u64::try_from(self.began.elapsed().as_millis()).unwrap())
    }

    fn stamp(&self) -> Stamp {
        let mut random = [0; 10];
        random[2..].copy_from_slice(&self.count.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Stamp { millis: self.now().0, random }
    }

    fn password(&self) -> String {
        "played".to_owned()
    }
}

/// What is there, whoever looks.
#[derive(Debug, Default)]
pub(crate) struct House {
    boxes: Mutex<HashMap<String, BoxState>>,
    pub(crate) most_boxes: AtomicUsize,
    keeper: Mutex<Keeper>,
    turns: Mutex<HashMap<MessageId, Turned>>,
    conversations: Mutex<Vec<String>>,
}

/// Whoever has the boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Keeper {
    #[default]
    Answers,
    Away,
    Another,
}

#[derive(Debug, Clone)]
struct Turned {
    deliveries: u32,
    ends: tokio::time::Instant,
    text: String,
    aborted: Option<tokio::time::Instant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl House {
    pub(crate) fn running(&self) -> usize {
        lock(&self.boxes).values().filter(|state| matches!(state, BoxState::Running(_))).count()
    }

    /// Of those that run.
    pub(crate) fn names(&self) -> Vec<String> {
        let boxes = lock(&self.boxes);
        let running = boxes.iter().filter(|(_, state)| matches!(state, BoxState::Running(_)));
        running.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn runs(&self, name: &str) -> bool {
        self.names().iter().any(|running| running == name)
    }

    /// How often each prompt was delivered.
    pub(crate) fn deliveries(&self) -> Vec<u32> {
        lock(&self.turns).values().map(|turn| turn.deliveries).collect()
    }

    pub(crate) fn keep(&self, keeper: Keeper) {
        *lock(&self.keeper) = keeper;
    }

    fn ask(&self) -> Result<(), SandboxError> {
        match *lock(&self.keeper) {
            Keeper::Answers => Ok(()),
            Keeper::Away => {
                Err(SandboxError::Away { doing: "look".to_owned(), source: Box::from("it says nothing") })
            }
            Keeper::Another => Err(SandboxError::Elsewhere("it is over there".to_owned())),
        }
    }

    pub(crate) fn lose(&self, name: &str) {
        lock(&self.boxes).insert(name.to_owned(), ended(Cause::Lost));
    }
}

fn ended(cause: Cause) -> BoxState {
    BoxState::Ended(Ending { cause, exit: Exit::Unknown, hits: Hits::default(), message: None })
}

#[derive(Debug, Clone)]
pub(crate) struct PlayedSandbox(Arc<House>);

impl Sandbox for PlayedSandbox {
    async fn probe(&self) -> Result<Ability, SandboxError> {
        Ok(Ability { level: Level::Bubblewrap, holds: HOLDS, missing: Vec::new() })
    }

    async fn start(&self, spec: BoxSpec) -> Result<Started, SandboxError> {
        sleep(Duration::from_millis(3)).await;
        self.0.ask()?;
        let mut boxes = lock(&self.0.boxes);
        if let Some(BoxState::Running(info)) = boxes.get(spec.name.as_str()) {
            return Ok(Started { info: info.clone(), how: How::Found });
        }
        let info = BoxInfo {
            name: spec.name.clone(),
            level: Level::Bubblewrap,
            holds: HOLDS,
            inside: Inside { workspace: "/workspace".into(), meta: "/session-meta".into(), sockets: None },
            log: PathBuf::new(),
            labels: spec.labels,
            hits: Hits::default(),
        };
        boxes.insert(spec.name.as_str().to_owned(), BoxState::Running(info.clone()));
        let count = boxes.values().filter(|state| matches!(state, BoxState::Running(_))).count();
        self.0.most_boxes.fetch_max(count, Ordering::Relaxed);
        Ok(Started { info, how: How::Made })
    }

    async fn find_all(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        let boxes = lock(&self.0.boxes);
        if self.0.ask().is_err() {
            return Ok(boxes.keys().map(|name| (BoxName::new(name).unwrap(), BoxState::Unknown)).collect());
        }
        Ok(boxes.iter().map(|(name, state)| (BoxName::new(name).unwrap(), state.clone())).collect())
    }

    async fn state(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.0.ask()?;
        Ok(lock(&self.0.boxes).get(name.as_str()).cloned().unwrap_or(BoxState::Absent))
    }

    async fn stop(&self, name: &BoxName, _: Duration) -> Result<BoxState, SandboxError> {
        sleep(Duration::from_millis(2)).await;
        self.kill(name).await
    }

    async fn kill(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.0.ask()?;
        let mut boxes = lock(&self.0.boxes);
        match boxes.get_mut(name.as_str()) {
            Some(state @ BoxState::Running(_)) => {
                *state = ended(Cause::Asked);
                Ok(state.clone())
            }
            Some(state) => Ok(state.clone()),
            None => Ok(BoxState::Absent),
        }
    }

    async fn usage(&self, _: &BoxName) -> Result<Option<Usage>, SandboxError> {
        Ok(None)
    }

    async fn forget(&self, name: &BoxName) -> Result<(), SandboxError> {
        self.0.ask()?;
        lock(&self.0.boxes).remove(name.as_str());
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct PlayedAgent(Arc<House>);

impl PlayedAgent {
    async fn moment() {
        sleep(Duration::from_millis(1)).await;
    }
}

impl Agent for PlayedAgent {
    async fn ready(&self, _: Duration) -> Result<Ready, AgentError> {
        Self::moment().await;
        Ok(Ready { version: "played".to_owned() })
    }

    async fn ensure_session(&self, wanted: &WantedSession) -> Result<AgentSession, AgentError> {
        Self::moment().await;
        let mut all = lock(&self.0.conversations);
        let (id, origin) = match &wanted.known {
            Some(known) if all.contains(known) => (known.clone(), Origin::Reused),
            Some(lost) => (format!("ses_{}", all.len()), Origin::Replaced { lost: lost.clone() }),
            None => (format!("ses_{}", all.len()), Origin::New),
        };
        if origin != Origin::Reused {
            all.push(id.clone());
        }
        Ok(AgentSession { session: SessionRef { id, directory: wanted.directory.clone() }, origin })
    }

    /// A task says in milliseconds how long it takes.
    async fn prompt(&self, intent: &PromptIntent) -> Result<Delivery, AgentError> {
        Self::moment().await;
        let delivery = {
            let mut turns = lock(&self.0.turns);
            if turns.contains_key(&intent.prompt.message) {
                Delivery::Already
            } else {
                let millis = intent.text.split(' ').next().unwrap().parse().unwrap();
                let ends = tokio::time::Instant::now() + Duration::from_millis(millis);
                let turn = Turned { deliveries: 1, ends, text: intent.text.clone(), aborted: None };
                turns.insert(intent.prompt.message.clone(), turn);
                Delivery::Delivered
            }
        };
        // It has arrived, and whoever sent it may be killed before it hears so.
        Self::moment().await;
        Ok(delivery)
    }

    async fn was_delivered(&self, prompt: &PromptId) -> Result<bool, AgentError> {
        Self::moment().await;
        Ok(lock(&self.0.turns).contains_key(&prompt.message))
    }

    async fn watch(
        &self,
        prompt: &PromptId,
        _: &Policy,
        sink: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Turn, Box<FailedTurn>> {
        sink(Progress::StepStarted { thread: "t".to_owned(), message: prompt.message.to_string() });
        loop {
            let turn = lock(&self.0.turns).get(&prompt.message).cloned();
            let usage = RunUsage { input_tokens: 3, output_tokens: 2, ..RunUsage::default() };
            let spent = Spent { steps: 1, usage, subagents: RunUsage::default() };
            let failed = |failure| Box::new(FailedTurn { failure, partial_text: String::new(), spent });
            let Some(turn) = turn else { return Err(failed(Failure::Lost { what: "it".to_owned() })) };
            let over = turn.aborted.is_some_and(|aborted| aborted < turn.ends);
            if over {
                return Err(failed(Failure::Aborted));
            }
            if tokio::time::Instant::now() >= turn.ends {
                let final_text = format!("did {}", turn.text);
                return Ok(Turn { final_text, structured: None, finish: "stop".to_owned(), spent });
            }
            Self::moment().await;
        }
    }

    async fn answer(&self, _: &QuestionId, _: &Answer) -> Result<Answered, AgentError> {
        Ok(Answered::Taken)
    }

    async fn abort(&self, prompt: &PromptId) -> Result<(), AgentError> {
        Self::moment().await;
        let now = tokio::time::Instant::now();
        if let Some(turn) = lock(&self.0.turns).get_mut(&prompt.message) {
            turn.aborted.get_or_insert(now);
        }
        Ok(())
    }
}

#[derive(Debug)]
pub(crate) struct PlayedRooms {
    sandbox: PlayedSandbox,
    house: Arc<House>,
}

impl PlayedRooms {
    pub(crate) fn new(house: &Arc<House>) -> Self {
        Self { sandbox: PlayedSandbox(Arc::clone(house)), house: Arc::clone(house) }
    }
}

impl Rooms for PlayedRooms {
    type Sandbox = PlayedSandbox;
    type Agent = PlayedAgent;

    fn sandbox(&self) -> &PlayedSandbox {
        &self.sandbox
    }

    fn settings(&self, _: &str, _: Option<Secret>) -> Result<SessionSettings, String> {
        Ok(SessionSettings::default())
    }

    fn access(&self, _: &SessionSettings) -> Result<Access, String> {
        let password = "played".to_owned();
        let (token, seal, policy) = (String::new(), String::new(), String::new());
        let ports = Ports { agent: 1, model: 2, mcp: 3, egress: 4 };
        Ok(Access { ports, password, token, seal, policy, models: Vec::new(), heard: false })
    }

    fn spec(
        &self,
        session: &Session,
        settings: &SessionSettings,
        _: &Access,
        directories: &SessionDirs,
    ) -> Result<BoxSpec, String> {
        Ok(BoxSpec {
            name: BoxName::new(session.id.as_str()).unwrap(),
            command: "played".to_owned(),
            args: Vec::new(),
            env: Environment::default(),
            workspace: directories.workspace(),
            meta: directories.meta(),
            sockets: None,
            binds: Vec::new(),
            image: None,
            oci_runtime: None,
            tmp: 0,
            limits: Limits::default(),
            strictness: Strictness::Lenient,
            network: Network::None,
            user: User::NOBODY,
            orphan_grace: settings.orphan_grace,
            labels: BTreeMap::new(),
        })
    }

    fn announcement(&self, _: &Access) -> Option<String> {
        None
    }

    fn moor(&self, _: &Session, _: &SessionSettings, _: &Access, _: &SessionDirs) -> Result<(), String> {
        Ok(())
    }

    fn policy(&self, _: &SessionSettings) -> String {
        String::new()
    }

    fn converses(&self, _: &SessionId, _: &str) -> bool {
        true
    }

    fn forget(&self, _: &SessionId) {}

    fn unmoor(&self, _: &SessionId) {}

    fn agent(&self, _: &SessionId, _: &Access, _: &SessionSettings) -> Result<PlayedAgent, String> {
        Ok(PlayedAgent(Arc::clone(&self.house)))
    }
}
