use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use model::ports::sandbox::{
    BoxInfo, Cause, Ending, Environment, Exit, Hits, Hold, Holds, Inside, Level, Limits, Network, Strictness,
    User,
};

use super::*;

const NO_HOLDS: Holds = Holds {
    memory: Hold::Absent,
    pids: Hold::Absent,
    cpus: Hold::Absent,
    disk: Hold::Absent,
    syscalls: Hold::Absent,
};

/// Boxes that only this list knows, and what was asked.
#[derive(Debug)]
struct Played {
    level: Level,
    down: bool,
    boxes: Mutex<BTreeMap<String, BoxState>>,
    asked: Mutex<Vec<String>>,
}

impl Played {
    fn new(level: Level) -> Self {
        Self { level, down: false, boxes: Mutex::default(), asked: Mutex::default() }
    }

    fn boxes(&self) -> MutexGuard<'_, BTreeMap<String, BoxState>> {
        self.boxes.lock().unwrap()
    }

    fn put(self, name: &str, state: BoxState) -> Self {
        self.boxes().insert(name.to_owned(), state);
        self
    }

    fn ask(&self, what: &str) -> Result<(), SandboxError> {
        self.asked.lock().unwrap().push(what.to_owned());
        if self.down {
            return Err(SandboxError::System {
                doing: what.to_owned(),
                source: Box::from("it does not run"),
            });
        }
        Ok(())
    }

    fn info(&self, name: &str) -> BoxInfo {
        BoxInfo {
            name: name_of(name),
            level: self.level,
            holds: NO_HOLDS,
            inside: Inside { workspace: "/w".into(), meta: "/m".into(), sockets: None },
            log: "/log".into(),
            labels: BTreeMap::new(),
            hits: Hits::default(),
        }
    }

    fn end(&self, name: &BoxName) -> BoxState {
        let mut boxes = self.boxes();
        let Some(state) = boxes.get_mut(name.as_str()) else { return BoxState::Absent };
        if matches!(state, BoxState::Running(_)) {
            *state = ended(Cause::Asked);
        }
        state.clone()
    }
}

impl Keeps for Played {
    fn keeps(&self, name: &BoxName) -> bool {
        self.boxes().contains_key(name.as_str())
    }

    fn keeps_any(&self) -> bool {
        !self.boxes().is_empty()
    }
}

impl Sandbox for Played {
    async fn probe(&self) -> Result<Ability, SandboxError> {
        let missing = Missing {
            what: format!("{:?} is not there", self.level),
            fix: String::new(),
            gravity: Gravity::Refuses,
        };
        let missing = if self.down { vec![missing] } else { Vec::new() };
        Ok(Ability { level: self.level, holds: NO_HOLDS, missing })
    }

    async fn start(&self, spec: BoxSpec) -> Result<Started, SandboxError> {
        self.ask("start")?;
        let info = self.info(spec.name.as_str());
        self.boxes().insert(spec.name.as_str().to_owned(), BoxState::Running(info.clone()));
        Ok(Started { info, how: How::Made })
    }

    async fn find_all(&self) -> Result<Vec<(BoxName, BoxState)>, SandboxError> {
        self.ask("find_all")?;
        Ok(self.boxes().iter().map(|(name, state)| (name_of(name), state.clone())).collect())
    }

    async fn state(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.ask("state")?;
        Ok(self.boxes().get(name.as_str()).cloned().unwrap_or(BoxState::Absent))
    }

    async fn stop(&self, name: &BoxName, _: Duration) -> Result<BoxState, SandboxError> {
        self.ask("stop")?;
        Ok(self.end(name))
    }

    async fn kill(&self, name: &BoxName) -> Result<BoxState, SandboxError> {
        self.ask("kill")?;
        Ok(self.end(name))
    }

    async fn usage(&self, name: &BoxName) -> Result<Option<Usage>, SandboxError> {
        self.ask("usage")?;
        let runs = matches!(self.boxes().get(name.as_str()), Some(BoxState::Running(_)));
        Ok(runs
            .then(|| Usage { pids: if self.level == Level::Container { 2 } else { 1 }, ..Usage::default() }))
    }

    async fn forget(&self, name: &BoxName) -> Result<(), SandboxError> {
        self.ask("forget")?;
        self.boxes().remove(name.as_str());
        Ok(())
    }
}

fn ended(cause: Cause) -> BoxState {
    BoxState::Ended(Ending { cause, exit: Exit::Unknown, hits: Hits::default(), message: None })
}

fn name_of(name: &str) -> BoxName {
    BoxName::new(name).unwrap()
}

fn spec(name: &str, image: Option<&str>) -> BoxSpec {
    BoxSpec {
        name: name_of(name),
        command: "/bin/true".to_owned(),
        args: Vec::new(),
        env: Environment::default(),
        workspace: "/w".into(),
        meta: "/m".into(),
        sockets: None,
        binds: Vec::new(),
        image: image.map(str::to_owned),
        oci_runtime: None,
        tmp: 0,
        limits: Limits::default(),
        strictness: Strictness::Lenient,
        network: Network::None,
        user: User::NOBODY,
        orphan_grace: Duration::ZERO,
        labels: BTreeMap::new(),
    }
}

type Both = Runtimes<Played, Played>;

fn local() -> Played {
    Played::new(Level::Bubblewrap)
}

fn engine() -> Played {
    Played::new(Level::Container)
}

fn both(local: Played, engine: Played) -> Both {
    Runtimes::new(local, Some(engine))
}

/// Nobody here waits for anything.
fn now<T>(future: impl Future<Output = T>) -> T {
    let polled = Cell::new(None);
    let mut future = pin!(future);
    if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        polled.set(Some(value));
    }
    polled.into_inner().unwrap()
}

fn started(both: &Both, spec: BoxSpec) -> (Level, How) {
    let started = now(both.start(spec)).unwrap();
    (started.info.level, started.how)
}

fn asked(played: &Played) -> Vec<String> {
    std::mem::take(&mut *played.asked.lock().unwrap())
}

const NOBODY_ASKED: Vec<String> = Vec::new();

#[test]
fn an_image_decides_where_a_box_starts_and_everything_else_goes_there() {
    let both = both(local(), engine());
    assert_eq!(started(&both, spec("a", None)), (Level::Bubblewrap, How::Made));
    assert_eq!(started(&both, spec("b", Some("i:1"))), (Level::Container, How::Made));
    let pids = |name| now(both.usage(&name_of(name))).unwrap().map(|usage| usage.pids);
    assert_eq!((pids("a"), pids("b"), pids("c")), (Some(1), Some(2), None));
    asked(&both.local);
    asked(both.engine().unwrap());
    assert_eq!(now(both.stop(&name_of("b"), Duration::ZERO)).unwrap(), ended(Cause::Asked));
    assert_eq!(now(both.kill(&name_of("a"))).unwrap(), ended(Cause::Asked));
    assert_eq!(asked(&both.local), ["state", "kill"]);
    assert_eq!(asked(both.engine().unwrap()), ["stop"]);
    assert_eq!(now(both.state(&name_of("b"))).unwrap(), ended(Cause::Asked));
    now(both.forget(&name_of("b"))).unwrap();
    assert_eq!(now(both.state(&name_of("b"))).unwrap(), BoxState::Absent);
    assert_eq!(now(both.find_all()).unwrap().len(), 1);
}

#[test]
fn an_engine_that_keeps_nothing_is_not_asked_even_if_it_is_down() {
    let both = both(local(), Played { down: true, ..engine() });
    let name = name_of("a");
    assert_eq!(now(both.state(&name)).unwrap(), BoxState::Absent);
    assert_eq!(started(&both, spec("a", None)), (Level::Bubblewrap, How::Made));
    now(both.usage(&name)).unwrap();
    now(both.kill(&name)).unwrap();
    assert_eq!(now(both.find_all()).unwrap().len(), 1);
    now(both.forget(&name)).unwrap();
    assert_eq!(asked(both.engine().unwrap()), NOBODY_ASKED);
}

#[test]
fn an_engine_that_is_down_hides_no_local_box_and_says_so_of_its_own() {
    let local = local();
    let running = BoxState::Running(local.info("a"));
    let engine = engine().put("b", ended(Cause::Exited));
    let both = both(local.put("a", running.clone()), Played { down: true, ..engine });
    assert_eq!(now(both.find_all()).unwrap(), [(name_of("a"), running.clone())]);
    assert_eq!(now(both.state(&name_of("a"))).unwrap(), running);
    assert!(now(both.state(&name_of("b"))).unwrap_err().to_string().contains("could not"));
    assert!(now(both.start(spec("c", Some("i:1")))).is_err());
}

#[test]
fn a_session_that_moves_leaves_nothing_behind_and_never_has_two_boxes() {
    let both = both(local(), engine());
    started(&both, spec("a", None));
    // It runs: whatever is asked for otherwise, this is the box.
    assert_eq!(started(&both, spec("a", Some("i:1"))), (Level::Bubblewrap, How::Found));
    now(both.kill(&name_of("a"))).unwrap();
    assert_eq!(started(&both, spec("a", Some("i:1"))), (Level::Container, How::Made));
    assert!(
        matches!(now(both.state(&name_of("a"))).unwrap(), BoxState::Running(info) if info.level == Level::Container)
    );
    assert_eq!(started(&both, spec("a", None)), (Level::Container, How::Found));
    now(both.stop(&name_of("a"), Duration::ZERO)).unwrap();
    assert_eq!(started(&both, spec("a", None)), (Level::Bubblewrap, How::Made));
    assert_eq!(now(both.find_all()).unwrap().len(), 1);
    let starting = Runtimes::new(local().put("b", BoxState::Starting), Some(engine()));
    assert!(matches!(now(starting.start(spec("b", Some("i:1")))), Err(SandboxError::Runs)));
}

#[test]
fn without_an_engine_an_image_is_refused_and_local_boxes_are_as_ever() {
    let alone: Both = Runtimes::new(local(), None);
    let error = now(alone.start(spec("a", Some("i:1")))).unwrap_err().to_string();
    assert!(error.contains("i:1") && error.contains("MCP_RUNTIME_MODE=docker"), "{error}");
    assert_eq!(started(&alone, spec("a", None)), (Level::Bubblewrap, How::Made));
    assert_eq!(now(alone.find_all()).unwrap().len(), 1);
    now(alone.kill(&name_of("a"))).unwrap();
    now(alone.forget(&name_of("a"))).unwrap();
}

#[test]
fn there_is_a_place_for_boxes_if_either_has_one() {
    let level = |local_down, engine_down| {
        let both = both(Played { down: local_down, ..local() }, Played { down: engine_down, ..engine() });
        let ability = now(both.probe()).unwrap();
        (ability.level, ability.missing.len())
    };
    assert_eq!(level(false, true), (Level::Bubblewrap, 0));
    assert_eq!(level(true, false), (Level::Container, 0));
    assert_eq!(level(true, true), (Level::Container, 2));
}
