//! The ledger beside everybody else's word: five sessions of `OpenCode` and two threads of Codex at once, and each
//! is listed with its own calls, as the host keeps them, as the servers got them, and as hooks and shells saw them.

mod agents;
mod told;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use testkit::harness::wait_until;
use testkit::hosts::{Arrived, Home, codex, opencode};
use testkit::llm::{ScriptedModel, script};

use self::agents::{Agents, Thread};
use self::told::{COLUMNS, Call, Event, OF_THE_LEDGER, optional, string};
use crate::support::{CALLSIGN, Servers, calls, check_env, check_headers, identity, install, text, words};

const OPENCODE: &str = "opencode";
const CODEX: &str = "codex";
const SESSIONS: usize = 5;
const THREADS: usize = 2;
/// The calls of a session's two turns, and those of a subagent, which the first session of each host has.
const OWN: usize = 8;
const BENEATH: usize = 2;

/// `echo` with this text is a tool that fails, and `sleep` with this time a request that the server refuses.
const FAILS: &str = "a tool error";
const REFUSED: &str = "soon";
/// Makes an answer with that text one that says so.
const FAILING: &str =
    r#""$@" | sed -u 's/"content":\[{"type":"text","text":"a tool error"}\]/"isError":true,&/'"#;
/// How long calls take that others shall fall into.
const PAUSE_MS: u64 = 2500;
const SOON: Duration = Duration::from_secs(30);

/// A plugin of the user's own, beside ours, that keeps a record of what runs.
const NOTES: &str = r#"
import { appendFileSync } from "node:fs"
const note = (event) => async ({ tool, sessionID, callID }) =>
  appendFileSync(`${process.env.HOME}/noted.jsonl`, JSON.stringify({ event, tool, sessionID, callID }) + "\n")
export const Notes = async () => ({
  "tool.execute.before": note("before"),
  "tool.execute.after": note("after"),
  "shell.env": note("shell"),
})
"#;

#[tokio::test]
async fn seven_sessions_at_once_are_each_listed_with_their_own_calls() {
    let rig = Rig::new();
    let agents = Agents::start(&rig.home).await;
    agents.turns(|host, number| rig.first_turn(host, number), || rig.sleeps() > 0).await;
    agents.turns(second_turn, || rig.sleeps() > SESSIONS).await;
    let threads = agents.threads().await;
    let total = (SESSIONS + THREADS) * OWN + 2 * BENEATH;
    // Codex does not wait for its subagent, whose last step is a shell.
    let over = || {
        let ended = rig.rows(&[]).iter().filter(|row| !row["outcome"].is_null()).count();
        ended >= total && rig.shells().len() >= threads.len()
    };
    assert!(wait_until(SOON, over).await, "not everything ended: {:#?}", rig.rows(&[]));
    let rows = rig.rows(&[]);

    let made = agents.history(&threads).await;
    assert_eq!(made.len(), total, "calls in the histories of both hosts");
    check_whole(&rows, &made, "the whole ledger");
    for session in threads.iter().filter(|thread| thread.parent.is_none()) {
        let own: Vec<Call> = made.iter().filter(|call| call.session == session.id).cloned().collect();
        check_whole(&rig.rows(&["--session", &session.id]), &own, &session.id);
    }
    for thread in &threads {
        let own: Vec<Call> = made.iter().filter(|call| call.thread == thread.id).cloned().collect();
        let listed = rig.rows(&["--thread", &thread.id]);
        check_whole(&listed, &own, &thread.id);
        let listed: Vec<Call> = listed.iter().map(Call::of_row).collect();
        assert_eq!(steps(&listed, ""), steps(&own, ""), "the order of calls of {}", thread.id);
    }
    check_at_once(&rows);
    rig.check_servers(&rows, &threads);
    rig.check_hooks(&rows).await;
    rig.check_shells(&rows, &agents, &threads).await;
    rig.check_tree(&threads);
    rig.verify();

    drop(agents);
    rig.verify();
    assert_eq!(rig.rows(&[]), rows, "the ledger changed when the hosts ended");
}

/// A user of both hosts, with the same two servers in each, and hooks of their own.
struct Rig {
    home: Arc<Home>,
    _model: ScriptedModel,
    servers: Servers,
}

impl Rig {
    fn new() -> Self {
        let (home, model) = (Home::new(), ScriptedModel::start());
        let servers = Servers::new(&home);
        let mut command: Vec<String> = ["sh", "-c", FAILING, "sh"].map(str::to_owned).into();
        command.extend(servers.command());
        let command = words(&command);
        opencode::Settings::new()
            .local("std", &command, &json!({}))
            .remote("rem", &servers.http.url, &json!({}))
            .write(&home, &model);
        std::fs::create_dir_all(home.opencode().join("plugin")).expect("a directory");
        std::fs::write(home.opencode().join("plugin/notes.js"), NOTES).expect("a plugin");

        for directory in ["before", "after", "shells"] {
            std::fs::create_dir_all(home.log(directory)).expect("a directory");
        }
        let hook = |event: &str, directory: &str| {
            // A file each: hooks of parallel calls run at once.
            let command = format!("cat > $(mktemp {}/XXXXXXXX)", text(&home.log(directory)));
            let run = format!("type = \"command\"\ncommand = \"{command}\"");
            format!("[[hooks.{event}]]\n[[hooks.{event}.hooks]]\n{run}")
        };
        // Codex makes calls one by one where nothing is said.
        let parallel = "supports_parallel_tool_calls = true";
        codex::Settings::new()
            .toml(&hook("PreToolUse", "before"))
            .toml(&hook("PostToolUse", "after"))
            .stdio("std", &command, parallel)
            .http("rem", &servers.http.url, parallel)
            .write(&home, &model);
        for host in [OPENCODE, CODEX] {
            install(&home, host);
        }
        Self { home, _model: model, servers }
    }

    /// Calls at once, one that fails, one that is refused, a shell, and for the first of each host a subagent.
    fn first_turn(&self, host: &str, number: usize) -> String {
        let pause = json!({ "ms": PAUSE_MS });
        let mut all = vec![
            json!({ "calls": [
                { "tool": "std/sleep", "args": pause },
                { "tool": "rem/sleep", "args": pause },
                whoami("std"),
            ] }),
            json!({ "tool": "std/echo", "args": { "text": FAILS } }),
            self.shell(host),
            json!({ "tool": "rem/sleep", "args": { "ms": REFUSED } }),
        ];
        if number == 0 {
            let beneath =
                json!([{ "calls": [whoami("std"), whoami("rem")] }, self.shell(host), { "text": "end" }]);
            all.push(json!({ "spawn": script(&beneath) }));
        }
        all.push(json!({ "text": "end" }));
        script(&Value::Array(all))
    }

    /// A command that writes down the environment it finds.
    fn shell(&self, host: &str) -> Value {
        let file = format!("{}/$$", text(&self.home.log("shells")));
        let command = format!("env > {file}.part && mv {file}.part {file}");
        if host == CODEX {
            return json!({ "tool": "exec_command", "args": { "cmd": command, "yield_time_ms": 10_000 } });
        }
        json!({ "tool": "bash", "args": { "command": command, "description": "Shows the environment" } })
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = self.home.run(Path::new(CALLSIGN), arguments);
        let (stdout, stderr) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "callsign {arguments:?}: {}\n{stdout}\n{stderr}", output.status);
        stdout.into_owned()
    }

    fn rows(&self, filters: &[&str]) -> Vec<Value> {
        let said = self.run(&[&["calls", "--json", "--limit", "0"], filters].concat());
        said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The long calls of `OpenCode` that have begun: one of each session in each turn.
    fn sleeps(&self) -> usize {
        let sleeps =
            |call: &&Arrived| identity(call)["tool"] == "sleep" && identity(call)["host"] == OPENCODE;
        calls(self.servers.stdio()).iter().filter(sleeps).count()
    }

    /// The environments that shells found.
    fn shells(&self) -> Vec<String> {
        files(&self.home.log("shells"))
    }

    fn verify(&self) {
        self.run(&["ledger", "verify"]);
    }

    /// Each server got the calls of its rows, under the same names, in the same order, and answered them so.
    #[track_caller]
    fn check_servers(&self, rows: &[Value], threads: &[Thread]) {
        let listed: Vec<Call> = rows.iter().map(Call::of_row).collect();
        let by_call: BTreeMap<&str, &Value> =
            rows.iter().map(|row| (row["call"].as_str().expect("an id"), row)).collect();
        for (server, arrived) in [("std", calls(self.servers.stdio())), ("rem", calls(self.servers.http()))] {
            let mut got = Vec::new();
            for call in &arrived {
                let told = identity(call);
                let id = told["call"].as_str().unwrap_or_else(|| panic!("no id: {}", call.raw));
                let row =
                    by_call.get(id).unwrap_or_else(|| panic!("{id} is not in the ledger: {}", call.raw));
                for name in COLUMNS.iter().filter(|name| !OF_THE_LEDGER.contains(name)) {
                    assert_eq!(row[name], told[name], "`{name}` of {row} and of {}", call.raw);
                }
                assert_eq!(told["server"], server, "the server of {}", call.raw);
                let outcome = outcome_at_server(call);
                assert_eq!(row["outcome"], outcome, "{row} and what the server answered to {}", call.raw);
                check_process(call, row);
                got.push(Call::of_row(row));
            }
            let here = listed.iter().filter(|call| call.server == server).count();
            let different: BTreeSet<&str> = got.iter().map(|call| call.id.as_str()).collect();
            assert_eq!((got.len(), different.len()), (here, here), "calls at {server}, and different ones");
            for thread in threads {
                let of = |calls: &[Call]| -> Vec<Call> {
                    calls.iter().filter(|call| call.thread == thread.id).cloned().collect()
                };
                let (got, listed) = (of(&got), of(&listed));
                assert_eq!(steps(&got, server), steps(&listed, server), "the order at {server}, {thread:?}");
            }
        }
    }

    /// Every call was announced to the hooks of its host, and its success; under the names that it has in the ledger.
    async fn check_hooks(&self, rows: &[Value]) {
        let listed: Vec<Call> = rows.iter().map(Call::of_row).collect();
        for (event, only) in [("before", None), ("after", Some("ok"))] {
            let joined = listed.iter().filter(|call| only.is_none_or(|only| call.outcome == only));
            let mut expected: Vec<Event> = joined.map(Event::of_call).collect();
            expected.sort_unstable();
            let seen = || {
                let mut seen = self.events(event);
                seen.retain(Event::is_of_a_server);
                seen.sort_unstable();
                seen
            };
            wait_until(SOON, || seen().len() >= expected.len()).await;
            assert_eq!(seen(), expected, "what hooks saw {event} calls, and the rows");
        }
    }

    /// The shells that agents ran name the threads of the ledger, each once; what hooks saw of them leads on to turns.
    async fn check_shells(&self, rows: &[Value], agents: &Agents, threads: &[Thread]) {
        let mut hooked = self.events("before");
        hooked.retain(|event| ["bash", "Bash"].contains(&event.tool.as_str()));
        let (mut in_shells, mut in_codex) = (Vec::new(), Vec::new());
        for shell in self.shells() {
            let of = |name: &str| {
                let line = shell.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
                line.map(str::to_owned)
            };
            if let Some(thread) = of("CODEX_THREAD_ID") {
                let (session, call) = (of("CODEX_SESSION_ID"), of("CODEX_TOOL_CALL_ID"));
                in_codex.push((session, thread.clone(), call.unwrap_or_else(|| panic!("no call: {shell}"))));
                in_shells.push(thread);
            } else {
                in_shells.push(of("OPENCODE_SESSION_ID").unwrap_or_else(|| panic!("no session: {shell}")));
            }
        }
        in_shells.sort_unstable();
        let in_ledger: BTreeSet<&str> =
            rows.iter().map(|row| row["thread"].as_str().expect("a thread")).collect();
        assert_eq!(in_shells, Vec::from_iter(in_ledger), "threads in shells, and in the ledger");

        // Codex tells the shell its call, too.
        let (mut codex, mut opencode): (Vec<&Event>, Vec<&Event>) =
            hooked.iter().partition(|event| event.turn.is_some());
        codex.sort_unstable();
        in_codex.sort_unstable();
        let own: Vec<_> = codex
            .iter()
            .map(|event| (event.session.clone(), event.thread.clone(), event.call.clone()))
            .collect();
        assert_eq!(in_codex, own, "shells of Codex, and what its hooks saw of them");
        for event in codex {
            let of_thread = rows.iter().filter(|row| row["thread"] == event.thread);
            // The shell ran in the turn of the first call.
            let turn = of_thread.map(|row| &row["turn"]).next().expect("a row");
            assert_eq!((turn, &event.session), (&json!(event.turn), &Some(event.session_of(rows))));
        }
        let mut at_start: Vec<Event> = self.events("shell");
        at_start.sort_unstable();
        opencode.sort_unstable();
        let pair = |event: &Event| (event.thread.clone(), event.call.clone());
        let at_start: Vec<_> = at_start.iter().map(pair).collect();
        let own: Vec<_> = opencode.iter().map(|event| pair(event)).collect();
        assert_eq!(at_start, own, "shells of OpenCode, and the calls that its hooks saw");
        let mut kept = Vec::new();
        for thread in threads.iter().filter(|thread| thread.host == OPENCODE) {
            let parts = agents.parts(&thread.id).await;
            let shells = parts.iter().filter(|part| part["tool"] == "bash");
            kept.extend(shells.map(|part| (thread.id.clone(), string(&part["callID"]))));
        }
        kept.sort_unstable();
        assert_eq!(kept, own, "shells in the history of OpenCode, and what its hooks saw of them");
    }

    /// What hooks of both hosts wrote down: `before` or `after` a call, or at the start of a `shell`.
    fn events(&self, event: &str) -> Vec<Event> {
        let noted = std::fs::read_to_string(self.home.path().join("noted.jsonl")).unwrap_or_default();
        let noted = noted.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut all: Vec<Event> = noted
            .filter(|noted| noted["event"] == event)
            .map(|noted| Event {
                session: None,
                thread: string(&noted["sessionID"]),
                turn: None,
                call: string(&noted["callID"]),
                tool: optional(&noted["tool"]).unwrap_or_default(),
            })
            .collect();
        // A hook that is still at it has written half.
        let hooked = files(&self.home.log(event)).into_iter();
        all.extend(hooked.filter_map(|hook| serde_json::from_str::<Value>(&hook).ok()).map(|hook| Event {
            session: optional(&hook["session_id"]),
            thread: optional(&hook["agent_id"]).unwrap_or_else(|| string(&hook["session_id"])),
            turn: optional(&hook["turn_id"]),
            call: string(&hook["tool_use_id"]),
            tool: string(&hook["tool_name"]),
        }));
        all
    }

    /// Seven sessions, and the two subagents beneath those that started them.
    #[track_caller]
    fn check_tree(&self, threads: &[Thread]) {
        let said = self.run(&["calls", "--tree", "--json"]);
        let roots: Vec<Value> =
            said.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect();
        let names: BTreeSet<&str> = roots.iter().filter_map(|root| root["thread"].as_str()).collect();
        let sessions = threads.iter().filter(|thread| thread.parent.is_none());
        assert_eq!(names, sessions.map(|thread| thread.id.as_str()).collect(), "{said}");
        assert_eq!(roots.len(), SESSIONS + THREADS, "{said}");
        let text = self.run(&["calls", "--tree"]);
        for root in &roots {
            let beneath: Vec<&Thread> = threads
                .iter()
                .filter(|thread| thread.parent.is_some() && root["thread"] == thread.session)
                .collect();
            let subagents = root["subagents"].as_array().unwrap_or_else(|| panic!("no subagents: {root}"));
            assert_eq!((&root["calls"], &root["errors"]), (&json!(OWN), &json!(2)), "{root}");
            assert_eq!(subagents.len(), beneath.len(), "{root}");
            for (subagent, thread) in subagents.iter().zip(beneath) {
                let shown = (&subagent["thread"], &subagent["parent"], &subagent["calls"]);
                assert_eq!(shown, (&json!(thread.id), &root["thread"], &json!(BENEATH)), "{root}");
                let line = text.lines().position(|line| line.contains(&thread.id));
                let line = line.unwrap_or_else(|| panic!("{} is not in the tree:\n{text}", thread.id));
                let above = text.lines().nth(line - 1).unwrap_or_default();
                assert!(above.starts_with(&thread.session), "not beneath its parent:\n{text}");
            }
        }
    }
}

fn whoami(server: &str) -> Value {
    // No variable begins so: the answer stays short.
    json!({ "tool": format!("{server}/whoami"), "args": { "prefix": "=" } })
}

fn second_turn(host: &str, number: usize) -> String {
    let echo = |server: &str| {
        let args = json!({ "text": format!("{host} {number} to {server}") });
        json!({ "tool": format!("{server}/echo"), "args": args })
    };
    let sleep = json!({ "tool": "std/sleep", "args": { "ms": PAUSE_MS } });
    script(&json!([{ "calls": [sleep, echo("rem")] }, echo("std"), { "text": "end" }]))
}

/// The rows are these calls, each once, and in the order of time.
#[track_caller]
fn check_whole(rows: &[Value], made: &[Call], what: &str) {
    let mut listed: Vec<Call> = rows.iter().map(Call::of_row).collect();
    let mut made = made.to_vec();
    listed.sort_unstable();
    made.sort_unstable();
    assert_eq!(listed, made, "the rows and the host's history of {what}");
    let times: Vec<&str> = rows.iter().filter_map(|row| row["at"].as_str()).collect();
    assert!(times.is_sorted() && times.len() == rows.len(), "the times of {what}: {times:?}");
}

/// The answers of the model that made the calls to a server, in order; to any, where none is named. Calls out of one
/// answer have no order among them.
fn steps<'a>(calls: &'a [Call], server: &str) -> Vec<&'a str> {
    let here = calls.iter().filter(|call| server.is_empty() || call.server == server);
    let mut steps: Vec<&str> =
        here.map(|call| call.id.rsplit_once('_').map_or("", |(step, _)| step)).collect();
    steps.dedup();
    steps
}

/// What the server answers to such a call.
fn outcome_at_server(call: &Arrived) -> &'static str {
    match call.arguments() {
        arguments if arguments["text"] == FAILS => "tool_error",
        arguments if arguments["ms"] == REFUSED => "failed",
        _ => "ok",
    }
}

/// A process finds the same thread in its environment as the agent's shell; a server behind a URL in headers.
#[track_caller]
fn check_process(call: &Arrived, row: &Value) {
    if !call.headers.is_empty() {
        let own = json!({
            "callsign-session": row["session"], "callsign-thread": row["thread"], "callsign-call": row["call"],
        });
        return check_headers(call, &own);
    }
    let own = if row["host"] == CODEX { "CODEX_THREAD_ID" } else { "OPENCODE_SESSION_ID" };
    check_env(call, &json!({ own: row["thread"], "CALLSIGN_SESSION_ID": row["session"] }));
}

/// By the ledger's own times: calls of each session ran at once, and calls of different ones.
#[track_caller]
fn check_at_once(rows: &[Value]) {
    let spans: Vec<(&Value, f64, f64)> = rows.iter().map(span).collect();
    let meet = |one: &(&Value, f64, f64), other: &(&Value, f64, f64)| one.1 < other.2 && other.1 < one.2;
    let sessions: BTreeSet<&str> = rows.iter().filter_map(|row| row["session"].as_str()).collect();
    for session in &sessions {
        let own: Vec<_> = spans.iter().filter(|(row, ..)| row["session"] == **session).collect();
        let among = own.iter().any(|one| own.iter().any(|other| one.0 != other.0 && meet(one, other)));
        assert!(among, "{session} made no two calls at once: {rows:#?}");
        let others = || spans.iter().filter(|(row, ..)| row["session"] != **session);
        let across = own.iter().any(|one| others().any(|other| meet(one, other)));
        assert!(across, "no other session called while {session} did: {rows:#?}");
    }
    let of = |host: &'static str| spans.iter().filter(move |(row, ..)| row["host"] == host);
    let across = of(OPENCODE).any(|one| of(CODEX).any(|other| meet(one, other)));
    assert!(across, "the hosts did not call at once: {rows:#?}");
}

/// When a call began and ended, in milliseconds of its day or the next.
#[track_caller]
fn span(row: &Value) -> (&Value, f64, f64) {
    let at = row["at"].as_str().unwrap_or_else(|| panic!("no time: {row}"));
    let number = |range: std::ops::Range<usize>| -> f64 {
        at.get(range).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no time: {at}"))
    };
    // 2026-11-16T12:34:56.789Z
    let (day, hour, minute, seconds) = (number(8..10), number(11..13), number(14..16), number(17..23));
    let began = (((day * 24.0 + hour) * 60.0 + minute) * 60.0 + seconds) * 1000.0;
    let took = row["duration_ms"].as_f64().unwrap_or_else(|| panic!("no duration: {row}"));
    (row, began, began + took)
}

/// The texts of the files in a directory that are whole.
fn files(directory: &Path) -> Vec<String> {
    let paths = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let whole = paths.filter(|path| path.extension().is_none());
    whole.map(|path| std::fs::read_to_string(path).unwrap_or_default()).collect()
}
