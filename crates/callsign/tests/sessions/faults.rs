//! Agents, boxes and providers that fail in the middle of a run: it ends in time, says why, and the session goes on.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use testkit::harness::{alive, kill};
use testkit::llm::provider::{Fault, Moment, Provider};

use crate::rig::{Rig, Runtime};
use crate::trial::Patient;

const CRASH: Duration = Duration::from_secs(10);
const WEDGE: Duration = Duration::from_secs(90);
/// How long a task may take that nothing is in the way of; a box may have to be started for it.
const TASK: Duration = Duration::from_mins(1);
/// How long a provider may say nothing, as the sessions of these tests have it.
const PATIENCE: u64 = 5;

struct Trial {
    // Before the rig: what it serves has to go first.
    patient: Patient,
    provider: Provider,
    session: String,
    rig: Rig,
}

impl Trial {
    /// A session that has completed a task.
    fn start(variables: &[(&str, &str)]) -> Self {
        let mut rig = Rig::new();
        let provider = Provider::start(rig.model().address());
        rig.serve();
        let patient = Patient::with(&rig, &provider, variables);
        let session = patient.create("faults");
        let trial = Self { patient, provider, session, rig };
        trial.completes("at first");
        trial
    }

    fn completes(&self, text: &str) {
        let run = self.patient.submit(&self.session, text, &json!([{ "text": text }]));
        let ended = self.patient.ended(&self.session, &run, TASK);
        assert_eq!(
            (&ended["status"], &ended["final_output"]),
            (&json!("completed"), &json!(text)),
            "{ended}"
        );
    }

    /// A run whose model has been asked for its second step, and takes its time.
    fn in_the_middle(&self, key: &str) -> String {
        let look = json!({ "command": "echo first", "description": "looks" });
        let steps = json!([{ "tool": "bash", "args": look }, { "delay": 200_000, "text": "never" }]);
        let run = self.patient.submit(&self.session, key, &steps);
        for step in 0..2 {
            assert!(self.provider.wait_for(Moment::Asked, TASK), "the model was not asked for step {step}");
        }
        run
    }

    /// The run ends as failed with one of these codes, and its message has these words.
    #[track_caller]
    fn fails(&self, run: &str, within: Duration, codes: &[&str], words: &[&str]) -> Value {
        let began = Instant::now();
        let ended = self.patient.ended(&self.session, run, within + Duration::from_secs(30));
        let took = began.elapsed();
        println!("{:.1} s: {}", took.as_secs_f32(), ended["error"]);
        assert_eq!(ended["status"], "failed", "{ended}");
        let (code, message) = (ended["error"]["code"].as_str(), ended["error"]["message"].as_str());
        let (code, message) = (code.expect("a code"), message.expect("a message"));
        assert!(codes.contains(&code), "{codes:?} was expected: {ended}");
        for word in words {
            assert!(message.to_lowercase().contains(word), "{word:?} is not in {message:?}");
        }
        // Written for a person: no type of ours, and no trace.
        let strange = ["Some(", "None", "Err(", "Error {", "::", " at /", "\\n"];
        assert!(!strange.iter().any(|strange| message.contains(strange)), "{message:?}");
        assert!(took <= within, "it took {took:?}");
        ended
    }

    /// The process of the agent, and the one that keeps its box.
    fn processes(&self) -> (u32, u32) {
        let boxes = self.rig.boxes();
        let found = boxes.iter().find(|found| found.session == self.session);
        let found = found.unwrap_or_else(|| panic!("no box of {}: {boxes:?}", self.session));
        (*found.opencode.first().unwrap_or_else(|| panic!("no agent: {boxes:?}")), found.keeper)
    }
}

#[test]
fn a_killed_agent_or_box_is_a_crash() {
    let trial = Trial::start(&[]);
    let run = trial.in_the_middle("agent");
    let (agent, keeper) = trial.processes();
    kill(agent, Signal::SIGKILL);
    trial.fails(&run, CRASH, &["agent_crashed"], &["agent", "signal 9"]);
    trial.completes("after the agent");
    assert!(!alive(agent) && !alive(keeper), "the box of the killed agent is still there");

    let run = trial.in_the_middle("box");
    let (agent, keeper) = trial.processes();
    kill(keeper, Signal::SIGKILL);
    // An engine knows how its process ended, and not that it was the box.
    let words = match Runtime::of_this_run() {
        Runtime::Local => "box was killed",
        Runtime::Docker | Runtime::Podman => "signal 9",
    };
    trial.fails(&run, CRASH, &["agent_crashed"], &[words]);
    trial.completes("after the box");
    assert!(!alive(agent) && !alive(keeper), "the agent of the killed box is still there");
}

/// Its port takes connections, since the kernel does that, and nobody answers.
#[test]
fn a_wedged_agent_is_ended() {
    let trial = Trial::start(&[]);
    let run = trial.in_the_middle("wedged");
    let (agent, keeper) = trial.processes();
    kill(agent, Signal::SIGSTOP);
    trial.fails(&run, WEDGE, &["agent_stalled"], &["answer"]);
    trial.completes("after the wedge");
    assert!(!alive(agent) && !alive(keeper), "the wedged agent is still there");
}

#[test]
fn a_provider_that_fails_is_told_by_its_cause() {
    let patience = PATIENCE.to_string();
    let trial = Trial::start(&[("MCP_OPENCODE_REQUEST_TIMEOUT", &patience)]);
    let within = Duration::from_secs(PATIENCE) + CRASH;
    let fails = |fault: Option<Fault>, key: &str, codes: &[&str], words: &[&str]| {
        trial.provider.fault(fault);
        let run = trial.patient.submit(&trial.session, key, &json!([{ "text": "never" }]));
        trial.fails(&run, within, codes, words);
        trial.provider.fault(None);
        trial.provider.up();
        trial.completes(&format!("after {key}"));
    };
    let refused = Fault::Status(401, "no such key");
    fails(Some(refused), "refused", &["provider_refused_key"], &["no such key"]);
    fails(Some(Fault::Garbage), "garbage", &["provider_failed"], &["provider"]);
    let limited = Fault::Status(429, "slow down please");
    // While the agent tries again, nobody but the provider's own words tells the one from the other.
    fails(Some(limited), "limited", &["provider_rate_limited", "provider_failed"], &["slow down please"]);
    fails(Some(Fault::Half), "half", &["provider_failed"], &["provider"]);
    fails(Some(Fault::HangUp), "hang up", &["provider_failed"], &["provider"]);
    fails(Some(Fault::Status(500, "out of order")), "broken", &["provider_failed"], &["out of order"]);
    let silent = Fault::Slow(Duration::from_secs(PATIENCE * 10));
    fails(Some(silent), "silent", &["provider_silent"], &["nothing for 5 s", "request_timeout"]);
    trial.provider.down();
    fails(None, "down", &["provider_failed"], &["connect"]);
}

/// Slow is not broken.
#[test]
fn a_slow_provider_is_waited_for() {
    let patience = (PATIENCE * 3).to_string();
    let trial = Trial::start(&[("MCP_OPENCODE_REQUEST_TIMEOUT", &patience)]);
    trial.provider.fault(Some(Fault::Slow(Duration::from_secs(PATIENCE * 2))));
    trial.completes("at last");
}

/// It ends at once, whatever is asked of it.
#[test]
fn an_agent_that_cannot_start_is_told_by_its_cause() {
    let mut rig = Rig::new();
    let provider = Provider::start(rig.model().address());
    rig.serve();
    let patient = Patient::with(&rig, &provider, &[("MCP_OPENCODE_COMMAND", "/usr/bin/false")]);
    let session = patient.create("broken");
    let trial = Trial { patient, provider, session, rig };
    let run = trial.patient.submit(&trial.session, "broken", &json!([{ "text": "never" }]));
    trial.fails(&run, CRASH, &["box_ended"], &["start", "exit code 1"]);
}
