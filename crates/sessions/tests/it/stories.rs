//! What must hold, whoever is killed when.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use model::Principal;
use model::ports::store::{ImageChoice, Listed, Page};
use model::session::{Ending, Keep, RunState, SessionStatus};
use sessions::{Desk, Engine, Layout, Live, NewTask, Options, RunView, Temper, Terms, Wanted, World};
use store::{Place, SqliteStore};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::played::{Clock, House, Keeper, PlayedRooms};

pub(crate) struct Daemon {
    pub(crate) desk: Desk<SqliteStore>,
    pub(crate) engine: JoinHandle<()>,
    pub(crate) stop: CancellationToken,
}

pub(crate) fn local() -> Principal {
    Principal::local()
}

pub(crate) async fn start(state: &Path, house: &Arc<House>, clock: &Arc<Clock>, options: Options) -> Daemon {
    let store = Arc::new(SqliteStore::open(&Place::of(state)).await.unwrap());
    let (live, layout) = (Arc::new(Live::default()), Layout::new(state.join("sessions")));
    let world: Arc<dyn World> = Arc::clone(clock) as Arc<dyn World>;
    let rooms = Arc::new(PlayedRooms::new(house));
    let parts = (layout.clone(), Arc::clone(&world));
    let mut engine = Engine::new(Arc::clone(&store), rooms, Arc::clone(&live), parts, options);
    let stop = CancellationToken::new();
    let token = stop.clone();
    let places = (layout, Terms::default());
    let desk = Desk::new(store, live, places, world, Arc::new(|| Box::pin(async { Ok(()) })));
    #[expect(clippy::disallowed_methods, reason = "its handle is what a test kills")]
    let engine = tokio::spawn(async move {
        engine.recover().await.unwrap();
        engine.run(token).await;
    });
    Daemon { desk, engine, stop }
}

pub(crate) fn wanted(key: &str) -> Wanted {
    Wanted {
        name: None,
        reuse_key: Some(key.to_owned()),
        image: ImageChoice::Default("x".to_owned()),
        runtime: "local".to_owned(),
        settings: "{}".to_owned(),
        key: None,
        made_by: None,
    }
}

impl Daemon {
    /// As by SIGKILL: nothing that it was doing goes on, nothing is tidied up.
    pub(crate) async fn kill(self) {
        self.engine.abort();
        let _ended = self.engine.await;
    }

    pub(crate) async fn create(&self, key: &str) -> String {
        let wanted = wanted(key);
        self.desk.create(&local(), wanted).await.unwrap().0.session.id.to_string()
    }

    pub(crate) async fn submit(&self, session: &str, task: &str) -> String {
        let task = NewTask { task: task.to_owned(), ..NewTask::default() };
        self.desk.submit(&local(), session, task).await.unwrap().0.run.id.to_string()
    }

    pub(crate) async fn ended(&self, run: &str) -> RunView {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let view = self.desk.run(&local(), run).await.unwrap();
            if view.run.state.is_ended() {
                return view;
            }
            let mut following = self.desk.follow(&view.run.id);
            assert!(Instant::now() < until, "{run} does not end: {:?}", view.run.state);
            let _late = timeout(Duration::from_millis(100), following.changed()).await;
        }
    }

    /// A run is over a moment before its worker rests.
    pub(crate) async fn at_rest(&self, session: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            let view = self.desk.session(&local(), session).await.unwrap();
            if view.hot.is_none_or(|hot| hot.temper == Temper::Ready) {
                return;
            }
            assert!(Instant::now() < until, "{session} does not come to rest: {:?}", view.hot);
            sleep(Duration::from_millis(5)).await;
        }
    }
}

pub(crate) fn options(max_hot: usize) -> Options {
    Options { max_hot, idle: Duration::from_mins(1), warm: 0 }
}

pub(crate) fn output(view: &RunView) -> &str {
    match &view.run.state {
        RunState::Ended(Ending::Completed { final_output, .. }) => final_output,
        state @ (RunState::Queued | RunState::Running { .. } | RunState::Ended(_)) => panic!("{state:?}"),
    }
}

/// Numbers that look like chance and are the same each time.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[tokio::test]
async fn tasks_of_a_session_are_done_one_after_the_other() {
    let (state, house, clock) = (tempfile::tempdir().unwrap(), Arc::default(), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(2)).await;
    let session = daemon.create("a").await;
    let mut runs = Vec::new();
    for number in 0..5 {
        runs.push(daemon.submit(&session, &format!("20 {number}")).await);
    }
    let mut last = None;
    for (number, run) in runs.iter().enumerate() {
        let view = daemon.ended(run).await;
        assert_eq!(output(&view), format!("did 20 {number}"));
        assert!(view.run.started_at >= last, "it began before the one before had ended");
        last = view.run.ended_at;
        assert_eq!(view.run.usage.unwrap().input_tokens, 3);
    }
    let (_, tail) = daemon.desk.logs(&local(), &runs[4], 50).await.unwrap();
    assert!(tail.text.contains("completed"), "{}", tail.text);
    let kept = daemon.desk.artifacts(&local(), &session, Some(&runs[4])).await.unwrap();
    assert_eq!(kept.len(), 4, "{kept:?}");
    daemon.at_rest(&session).await;
    daemon.stop.cancel();
    daemon.engine.await.unwrap();
    assert_eq!(house.running(), 0, "a box at rest was left at a clean end");
}

#[tokio::test]
async fn there_are_never_more_boxes_than_places_and_everybody_gets_a_turn() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(3)).await;
    let mut runs = Vec::new();
    for number in 0..20 {
        let session = daemon.create(&format!("s{number}")).await;
        runs.push(daemon.submit(&session, "5 x").await);
        runs.push(daemon.submit(&session, "5 y").await);
    }
    for run in &runs {
        daemon.ended(run).await;
    }
    assert!(house.most_boxes.load(Ordering::Relaxed) <= 3);
    daemon.kill().await;
}

#[tokio::test]
async fn whoever_is_killed_when_no_run_is_lost_and_no_prompt_sent_twice() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let mut runs = Vec::new();
    for round in 0..150 {
        let daemon = start(state.path(), &house, &clock, options(3)).await;
        for _ in 0..2 {
            let session = daemon.create(&format!("s{}", dice.below(6))).await;
            runs.push(daemon.submit(&session, &format!("{} {round}", dice.below(30))).await);
        }
        if dice.below(8) == 0 {
            let all = daemon.desk.list(&local(), Listed::Live, Page::default()).await.unwrap();
            let some = usize::try_from(dice.below(all.len() as u64)).unwrap();
            house.lose(all[some].0.session.id.as_str());
        }
        sleep(Duration::from_millis(dice.below(60))).await;
        daemon.kill().await;
    }
    let daemon = start(state.path(), &house, &clock, options(3)).await;
    let mut completed = 0;
    for run in &runs {
        match daemon.ended(run).await.run.state {
            RunState::Ended(Ending::Completed { .. }) => completed += 1,
            // A box that was lost takes the turn in it along.
            RunState::Ended(Ending::Failed { code, .. }) => assert_eq!(code, "agent_crashed"),
            state @ (RunState::Queued | RunState::Running { .. } | RunState::Ended(_)) => panic!("{state:?}"),
        }
    }
    assert!(completed > runs.len() / 2, "{completed} of {}", runs.len());
    assert!(house.deliveries().iter().all(|deliveries| *deliveries == 1));
    assert!(house.most_boxes.load(Ordering::Relaxed) <= 3);
    daemon.kill().await;
}

#[tokio::test]
async fn a_run_that_is_canceled_around_its_end_ends_once_and_as_was_said() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(4)).await;
    let session = daemon.create("a").await;
    let mut dice = Dice(77);
    let mut outcomes = [0, 0];
    for _ in 0..150 {
        let run = daemon.submit(&session, "15 x").await;
        sleep(Duration::from_millis(dice.below(40))).await;
        let said = daemon.desk.cancel(&local(), &run).await.unwrap().run;
        assert!(said.state.is_ended(), "{:?}", said.state);
        sleep(Duration::from_millis(2)).await;
        let is = daemon.desk.run(&local(), &run).await.unwrap().run;
        assert_eq!(said.state, is.state);
        outcomes[usize::from(is.state.as_str() == "canceled")] += 1;
    }
    assert!(outcomes[0] > 10 && outcomes[1] > 10, "{outcomes:?}");
    daemon.kill().await;
}

#[tokio::test]
async fn a_box_at_rest_is_stopped_and_woken_with_its_conversation() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon =
        start(state.path(), &house, &clock, Options { idle: Duration::from_millis(50), ..options(2) }).await;
    let session = daemon.create("a").await;
    let run = daemon.submit(&session, "1 x").await;
    daemon.ended(&run).await;
    let until = Instant::now() + Duration::from_secs(5);
    while house.running() > 0 {
        assert!(Instant::now() < until, "it is not stopped");
        sleep(Duration::from_millis(10)).await;
    }
    let before = daemon.desk.session(&local(), &session).await.unwrap().session.agent_session;
    let run = daemon.submit(&session, "1 y").await;
    daemon.ended(&run).await;
    let after = daemon.desk.session(&local(), &session).await.unwrap().session.agent_session;
    assert_eq!(before, after);
    daemon.kill().await;
}

#[tokio::test]
async fn a_session_that_is_terminated_ends_its_run_its_box_and_what_is_not_kept() {
    let (state, house, clock) =
        (tempfile::tempdir().unwrap(), Arc::<House>::default(), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(2)).await;
    for keep in [Keep::Directories, Keep::Nothing] {
        let session = daemon.create("a").await;
        let view = daemon.desk.session(&local(), &session).await.unwrap();
        let runs = [daemon.submit(&session, "60000 x").await, daemon.submit(&session, "1 y").await];
        sleep(Duration::from_millis(30)).await;
        daemon.desk.terminate(&local(), &session, keep).await.unwrap();
        for run in &runs {
            assert_eq!(daemon.ended(run).await.run.state.as_str(), "canceled");
        }
        let until = Instant::now() + Duration::from_secs(5);
        while daemon.desk.session(&local(), &session).await.unwrap().session.status.as_str() != "terminated" {
            assert!(Instant::now() < until, "it does not end");
            sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(house.running(), 0);
        assert_eq!(Path::new(&view.session.workspace).exists(), keep == Keep::Directories);
    }
    // At rest, too.
    let session = daemon.create("b").await;
    let run = daemon.submit(&session, "1 x").await;
    daemon.ended(&run).await;
    daemon.desk.terminate(&local(), &session, Keep::Nothing).await.unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while house.running() > 0 {
        assert!(Instant::now() < until, "its box goes on");
        sleep(Duration::from_millis(10)).await;
    }
    daemon.kill().await;
}

#[tokio::test]
async fn who_keeps_a_box_and_does_not_answer_costs_no_run_and_no_box() {
    let state = tempfile::tempdir().unwrap();
    let (house, clock) = (Arc::new(House::default()), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(4)).await;
    let (one, two) = (daemon.create("one").await, daemon.create("two").await);
    let first = daemon.submit(&one, "1 first").await;
    daemon.ended(&first).await;
    daemon.at_rest(&one).await;
    house.keep(Keeper::Away);
    let queued = daemon.submit(&one, "1 queued").await;
    let unwanted = daemon.submit(&two, "1 unwanted").await;
    sleep(Duration::from_millis(1500)).await;
    let view = daemon.desk.run(&local(), &queued).await.unwrap();
    assert!(matches!(view.run.state, RunState::Running { .. }), "{:?}", view.run.state);
    let since = Instant::now();
    daemon.desk.cancel(&local(), &unwanted).await.unwrap();
    let ended = daemon.ended(&unwanted).await;
    assert!(matches!(ended.run.state, RunState::Ended(Ending::Canceled { .. })), "{:?}", ended.run.state);
    assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
    // Another daemon does not know more, and takes the box for what it was.
    daemon.kill().await;
    let daemon = start(state.path(), &house, &clock, options(4)).await;
    sleep(Duration::from_millis(500)).await;
    house.keep(Keeper::Answers);
    assert!(!output(&daemon.ended(&queued).await).is_empty());
    assert!(house.deliveries().iter().all(|times| *times == 1), "{:?}", house.deliveries());
    assert_eq!(house.running(), 1, "the box at rest was made anew, or another one was");
    daemon.kill().await;
}

#[tokio::test]
async fn a_box_that_another_keeps_gets_no_second_one_and_its_session_still_ends() {
    let state = tempfile::tempdir().unwrap();
    let (house, clock) = (Arc::new(House::default()), Arc::new(Clock::new()));
    let daemon = start(state.path(), &house, &clock, options(4)).await;
    let session = daemon.create("one").await;
    house.keep(Keeper::Another);
    let run = daemon.submit(&session, "1 never").await;
    let ended = daemon.ended(&run).await;
    let RunState::Ended(Ending::Failed { code, message }) = &ended.run.state else {
        panic!("{:?}", ended.run.state)
    };
    assert_eq!((code.as_str(), message.as_str()), ("engine_changed", "it is over there"));
    daemon.desk.terminate(&local(), &session, Keep::Nothing).await.unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while !matches!(
        daemon.desk.session(&local(), &session).await.unwrap().session.status,
        SessionStatus::Terminated { .. }
    ) {
        assert!(Instant::now() < until, "it does not end");
        sleep(Duration::from_millis(20)).await;
    }
    daemon.kill().await;
}
