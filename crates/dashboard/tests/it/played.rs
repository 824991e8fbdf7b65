//! A source that plays: everything there can be on a page, for `local` alone. With a voice, every text is what the voice says.

use std::sync::Mutex;

use dashboard::view::{
    self, Artifact, Breaker, Call, CallRow, Child, Diff, Ended, Entry, Evidence, Facts, Field, Health, Hears,
    Hook, HookEvent, HostSeen, Kept, Log, Minute, Outcome, Overview, Run, RunRow, RunStatus, Seen, Server,
    ServerRow, Session, SessionRow, Thread, Tool, ToolState, Trust, Usage, Why,
};
use dashboard::{Beat, CallFilter, CancelOutcome, Key, Source, Text, Topic, Trouble};
use model::Principal;
use tokio::sync::watch;

pub(crate) const NOW: u64 = 1_794_830_400_000;

pub(crate) struct Played {
    voice: Option<String>,
    empty: bool,
    pub(crate) beat: watch::Sender<u64>,
    pub(crate) canceled: Mutex<Vec<String>>,
    pub(crate) failing: bool,
}

impl Played {
    pub(crate) fn new() -> Self {
        let (voice, empty, failing) = (None, false, false);
        Self { voice, empty, beat: watch::channel(1).0, canceled: Mutex::default(), failing }
    }

    pub(crate) fn saying(text: &str) -> Self {
        Self { voice: Some(text.to_owned()), ..Self::new() }
    }

    pub(crate) fn empty() -> Self {
        Self { empty: true, ..Self::new() }
    }

    pub(crate) fn failing() -> Self {
        Self { failing: true, ..Self::new() }
    }

    fn t(&self, text: &str) -> Text {
        Text::new(self.voice.as_deref().unwrap_or(text))
    }

    #[expect(clippy::unnecessary_wraps, reason = "most texts of a view may be missing, and here none is")]
    fn some(&self, text: &str) -> Option<Text> {
        Some(self.t(text))
    }

    fn may(&self, who: &Principal) -> Result<bool, Trouble> {
        if self.failing {
            let source = "the disk said sk-CANARY-7f3a".into();
            return Err(Trouble::Failed { doing: "read the ledger", source });
        }
        Ok(!self.empty && *who == Principal::local())
    }

    pub(crate) fn row(&self, at: usize) -> CallRow {
        let tools = ["search_issues", "create_issue", "read_file", "list_commits", "run_query"];
        let hosts = ["codex", "opencode", "claude-code", "callsign"];
        let outcomes = [
            Some(Outcome::Ok),
            Some(Outcome::Ok),
            Some(Outcome::ToolError),
            Some(Outcome::Ok),
            Some(Outcome::Refused),
            Some(Outcome::Ok),
            Some(Outcome::Timeout),
            Some(Outcome::Ok),
        ];
        let threads = ["ses_4f1c88aa02", "ses_sub_a91b", "ses_sub_77d0"];
        let outcome = if at == 0 { None } else { outcomes[at % outcomes.len()] };
        CallRow {
            key: Key::new(format!("7-{}", 9000 - at)).unwrap(),
            at: NOW - 1500 * at as u64 - 400,
            host: self.some(hosts[at % 4]),
            session: self.some("ses_4f1c88aa02"),
            thread: self.some(threads[at % 3]),
            title: at.is_multiple_of(2).then(|| self.t("Mend the importer")),
            run: self.some("run_01"),
            server: self.t(["tracker", "files", "warehouse"][at % 3]),
            tool: self.some(tools[at % 5]),
            method: self.t("tools/call"),
            trust: Trust::ALL[3 - at % 4],
            source: self.t(["channel", "seal", "header", "none"][at % 4]),
            outcome,
            duration_ms: outcome.map(|_| [0.8, 12.4, 350.0, 2200.0, 48.0][at % 5]),
            spoof: if at % 11 == 4 { vec![self.t("dev.callsign/identity")] } else { Vec::new() },
        }
    }

    fn rows(&self, count: usize) -> Vec<CallRow> {
        (0..count).map(|at| self.row(at)).collect()
    }

    fn session_row(&self, at: usize) -> SessionRow {
        SessionRow {
            host: self.t(["codex", "opencode", "callsign"][at % 3]),
            id: self.t(&format!("ses_4f1c88aa0{at}")),
            title: (at != 1).then(|| self.t(["Mend the importer", "", "Weekly report"][at % 3])),
            status: self.t(["busy", "ready", "seen"][at % 3]),
            trust: [Trust::Host, Trust::Declared, Trust::Bound][at % 3],
            threads: 1 + at as u64,
            calls: (at != 2).then_some(1234 * (at as u64 + 1)),
            last_at: Some(NOW - 60_000 * at as u64),
        }
    }

    fn run_row(&self, at: usize) -> RunRow {
        let states = [
            RunStatus::Running,
            RunStatus::Completed,
            RunStatus::Failed,
            RunStatus::Queued,
            RunStatus::Canceled,
        ];
        let status = states[at % 5];
        RunRow {
            id: self.t(&format!("run_0{at}")),
            session: self.t("sn_2b8e90"),
            session_name: at.is_multiple_of(2).then(|| self.t("importer")),
            task: self.t("Find why the importer drops the last line of a file, mend it, and write a test that fails without it."),
            status,
            created_at: NOW - 90_000 * (at as u64 + 1),
            started_at: (status != RunStatus::Queued).then_some(NOW - 80_000 * (at as u64 + 1)),
            ended_at: status.is_over().then_some(NOW - 20_000 * (at as u64 + 1)),
            last: self.some("bash cargo test importer"),
        }
    }

    fn server_row(&self, at: usize) -> ServerRow {
        ServerRow {
            name: self.t(["tracker", "files", "warehouse", "search"][at]),
            kind: self.t(if at == 2 { "http" } else { "stdio" }),
            target: self.t(if at == 2 { "https://mcp.example.org/warehouse" } else { "npx" }),
            isolation: (at != 2).then(|| self.t(if at == 1 { "shared" } else { "session" })),
            pinned: at == 0,
            health: [
                Health::Fine,
                Health::Failing(self.t("2 of its last 9 starts failed")),
                Health::Resting(self.t("6 failed starts in a minute")),
                Health::Unused,
            ][at]
                .clone(),
            children: [3, 1, 0, 0][at],
            tools: [12, 4, 31, 0][at],
            withheld: [1, 0, 0, 0][at],
            calls: [1841, 220, 96, 0][at],
            errors: [3, 0, 96, 0][at],
        }
    }

    fn field(&self, name: &str, value: &str) -> Field {
        Field { name: self.t(name), value: self.some(value) }
    }

    fn whole_call(&self, at: usize) -> Call {
        let seen = Seen {
            headers: vec![
                self.field("Callsign-Session", "ses_4f1c88aa02"),
                self.field("Callsign-Thread", "ses_sub_a91b"),
                Field { name: self.t("Authorization"), value: None },
                self.field("X-Api-Key", "sk-CANARY-7f3a"),
            ],
            meta: vec![
                self.field(
                    "dev.callsign/identity",
                    r#"{"host":"codex","session":"ses_4f1c88aa02","thread":"ses_sub_a91b","trust":"host","source":"meta"}"#,
                ),
                self.field("threadId", "\"ses_sub_a91b\""),
            ],
            environment: vec![self.field("CALLSIGN_SESSION_ID", "ses_4f1c88aa02"), self.field("CODEX_THREAD_ID", "ses_sub_a91b")],
            arguments: self.some("{\n  \"query\": \"importer\",\n  \"limit\": 20\n}"),
            result: self.some("{\"content\":[{\"type\":\"text\",\"text\":\"3 issues\"}]}"),
        };
        Call {
            row: self.row(at),
            parent: self.some("ses_4f1c88aa02"),
            turn: self.some("turn_9"),
            call: self.t("call_8f0a11"),
            workspace: self.some("/srv/importer"),
            reason: (at % 8 == 4)
                .then(|| self.t("the server requires trust host, and the caller was known with declared")),
            target: self.some("tracker[4711]"),
            trace: self.some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            digest: self.some("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"),
            size: 1834,
            result_size: Some(20_411),
            evidence: vec![
                Evidence {
                    place: self.t("_meta.threadId"),
                    said: self.t("ses_sub_a91b"),
                    taken: true,
                    why: self.t("The host's own word for this call, on a pipe that it owns."),
                },
                Evidence {
                    place: self.t("environment CODEX_THREAD_ID"),
                    said: self.t("ses_old"),
                    taken: false,
                    why: self.t("Inherited variables are never taken from Codex."),
                },
            ],
            kept: if at < 20 { Kept::Whole(Box::new(seen)) } else { Kept::DigestsOnly },
        }
    }

    fn whole_run(&self, at: usize) -> Run {
        let row = self.run_row(at);
        let beats = *self.beat.borrow();
        let line = |line: u64| format!("12:00:{:02} bash cargo test importer::line_{line} … ok\n", line % 60);
        let log = (0..20 + beats).map(line).collect::<Vec<_>>().concat();
        let ended = match row.status {
            RunStatus::Queued | RunStatus::Running => None,
            RunStatus::Completed => Some(Ended::Completed {
                output: self.t("The reader stopped at the last newline.\n\n- `importer.rs` reads to the end now\n- a test holds it"),
                structured: self.some("{\"files\": 2, \"tests\": 1}"),
            }),
            RunStatus::Failed => Some(Ended::Failed {
                code: self.t("provider_refused"),
                message: self.t("The provider answered 429 for two minutes. Submit the task again later."),
            }),
            RunStatus::Canceled => Some(Ended::Canceled { by: self.t("caller") }),
        };
        Run {
            phase: (!row.status.is_over()).then(|| self.t("prompting")),
            model: self.some("ollama/qwen3-coder"),
            cancel_requested: self.canceled.lock().unwrap().iter().any(|run| run == "run_00"),
            steps: 7,
            tools: 19,
            usage: Some(Usage { input_tokens: 48_211, output_tokens: 3_902, cost_micros: 41_300 }),
            ended,
            log: Log { text: self.t(&log), truncated: true },
            artifacts: ["runs/run_01/run.log", "workspace/src/importer.rs", "workspace/report.html"]
                .map(|path| Artifact { path: self.t(path), kind: self.t("changed"), size: 4_211, modified: NOW - 5000 })
                .into(),
            diff: Some(Diff {
                text: self.t("diff --git a/src/importer.rs b/src/importer.rs\n--- a/src/importer.rs\n+++ b/src/importer.rs\n@@ -10,5 +10,6 @@ fn read\n     let mut lines = Vec::new();\n-    while let Some(line) = next()? {\n+    // The last line may have no end.\n+    while let Some(line) = next_or_rest()? {\n         lines.push(line);\n     }\n"),
                truncated: false,
            }),
            row,
        }
    }

    fn whole_server(&self, at: usize) -> Server {
        let tool = |name: &str, state, approved: Option<&str>| Tool {
            name: self.t(name),
            description: self.t("Searches the issues of a project by words, labels and state; newest first."),
            state,
            hash: self.t("b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c"),
            approved: approved.map(|hash| self.t(hash)),
        };
        let child = |pid, session: Option<&str>, state: &str| Child {
            pid: Some(pid),
            host: session.map(|_| self.t("codex")),
            session: session.map(|session| self.t(session)),
            thread: session.map(|_| self.t("ses_sub_a91b")),
            trust: if session.is_some() { Trust::Host } else { Trust::None },
            state: self.t(state),
            under_way: u64::from(pid % 2),
            started_at: NOW - 700_000,
        };
        Server {
            row: self.server_row(at),
            require: Trust::Declared,
            hooks: vec![self.t("hooks/tenant.js")],
            children: if at == 0 {
                vec![
                    child(4711, Some("ses_4f1c88aa02"), "ready"),
                    child(4730, Some("ses_77"), "idle"),
                    child(4699, None, "lobby"),
                ]
            } else {
                Vec::new()
            },
            breaker: (at == 2).then(|| Breaker {
                failures: 6,
                until: Some(NOW + 41_000),
                last: self.t("Error: Cannot find module 'pg'\n    at warehouse.js:3"),
            }),
            catalogue: vec![
                tool("search_issues", ToolState::Same, None),
                tool(
                    "create_issue",
                    ToolState::Changed,
                    Some("7d865e959b2466918c9863afca942d0fb89d7c9ac0c99bafc3749504ded97730"),
                ),
                tool("create_issue\u{200b}", ToolState::LookAlike, None),
                tool("close_issue", ToolState::New, None),
            ],
            fingerprint: self.some("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        }
    }

    /// Every page there is, for whoever wants to look at all of them.
    pub(crate) fn addresses() -> Vec<&'static str> {
        vec![
            "/",
            "/calls",
            "/calls?outcome=refused&tool=x%22y",
            "/calls?before=7-1",
            "/calls/7-9000",
            "/calls/7-8996",
            "/calls/7-8950",
            "/sessions",
            "/sessions/codex/ses_1",
            "/runs",
            "/runs/run_00",
            "/runs/run_01",
            "/runs/run_02",
            "/runs/run_03",
            "/runs/run_04",
            "/servers",
            "/servers/tracker",
            "/servers/warehouse",
            "/hooks",
            "/why",
            "/why?host=codex&server=tracker",
            "/why?host=cursor&server=tracker",
            "/why?host=opencode&server=tracker",
        ]
    }
}

fn number(id: &str) -> Option<usize> {
    id.strip_prefix("run_0")?.parse().ok().filter(|at| *at < 5)
}

impl Source for Played {
    fn now(&self) -> u64 {
        NOW
    }

    async fn overview(&self, who: &Principal) -> Result<Overview, Trouble> {
        if !self.may(who)? {
            return Ok(Overview::default());
        }
        let minute = |at: u32| Minute {
            fine: (at * 37 % 23) + at / 3,
            errors: u32::from(at.is_multiple_of(9)) * (at % 4),
        };
        let host = |name: &str, calls, trust| HostSeen {
            name: self.t(name),
            version: self.some("0.166.0"),
            calls,
            sessions: 3,
            trust,
            last_at: Some(NOW - 3000),
        };
        Ok(Overview {
            minutes: (0..60).map(minute).collect(),
            under_way: *self.beat.borrow() % 7,
            hosts: vec![
                host("codex", 1841, Trust::Host),
                host("callsign", 322, Trust::Bound),
                host("claude-code", 96, Trust::Declared),
                host("cursor", 12, Trust::None),
            ],
            sessions: (0..3).map(|at| self.session_row(at)).collect(),
            errors: self
                .rows(30)
                .into_iter()
                .filter(|row| row.outcome.is_some_and(|outcome| outcome != Outcome::Ok))
                .collect(),
            runs: vec![self.run_row(0), self.run_row(3)],
        })
    }

    async fn calls(
        &self,
        who: &Principal,
        _: &CallFilter,
        _: Option<&Key>,
    ) -> Result<view::Page<CallRow>, Trouble> {
        if !self.may(who)? {
            return Ok(view::Page::default());
        }
        Ok(view::Page { rows: self.rows(50), older: Key::new("7-8000") })
    }

    async fn call(&self, who: &Principal, key: &Key) -> Result<Option<Call>, Trouble> {
        let at = key.as_str().strip_prefix("7-").and_then(|seq| 9000_usize.checked_sub(seq.parse().ok()?));
        Ok(at.filter(|_| self.may(who).unwrap_or(false)).map(|at| self.whole_call(at)))
    }

    async fn sessions(&self, who: &Principal, _: Option<&Key>) -> Result<view::Page<SessionRow>, Trouble> {
        if !self.may(who)? {
            return Ok(view::Page::default());
        }
        Ok(view::Page { rows: (0..3).map(|at| self.session_row(at)).collect(), older: Key::new("s-1") })
    }

    async fn session(
        &self,
        who: &Principal,
        name: (&str, &str),
        _: Option<&Key>,
    ) -> Result<Option<Session>, Trouble> {
        if !self.may(who)? || name.1 == "gone" {
            return Ok(None);
        }
        let thread = |id: &str, parent: Option<&str>, calls, errors| Thread {
            id: self.t(id),
            parent: parent.map(|parent| self.t(parent)),
            title: (calls > 10).then(|| self.t("Mend the importer")),
            calls,
            errors,
            last_at: Some(NOW - 9000),
        };
        Ok(Some(Session {
            row: self.session_row(0),
            workspace: self.some("/srv/importer"),
            runtime: self.some("local"),
            image: self.some("callsign-runtime:1"),
            limits: vec![(self.t("memory"), self.t("enforced")), (self.t("disk"), self.t("watched"))],
            threads: vec![
                thread("ses_4f1c88aa02", None, 31, 2),
                thread("ses_sub_a91b", Some("ses_4f1c88aa02"), 8, 0),
                thread("ses_sub_77d0", Some("ses_sub_a91b"), 2, 1),
            ],
            calls: self.rows(24),
            older: Key::new("7-8800"),
            runs: vec![self.run_row(0), self.run_row(1)],
        }))
    }

    async fn runs(&self, who: &Principal, _: Option<&Key>) -> Result<view::Page<RunRow>, Trouble> {
        if !self.may(who)? {
            return Ok(view::Page::default());
        }
        Ok(view::Page { rows: (0..5).map(|at| self.run_row(at)).collect(), older: None })
    }

    async fn run(&self, who: &Principal, id: &str) -> Result<Option<Run>, Trouble> {
        Ok(number(id).filter(|_| self.may(who).unwrap_or(false)).map(|at| self.whole_run(at)))
    }

    async fn artifact(&self, who: &Principal, run: &str, path: &str) -> Result<Option<Vec<u8>>, Trouble> {
        let there = self.may(who)? && number(run).is_some() && path == "workspace/report.html";
        Ok(there.then(|| b"<script>alert(1)</script>".to_vec()))
    }

    async fn cancel(&self, who: &Principal, run: &str) -> Result<Option<CancelOutcome>, Trouble> {
        if !self.may(who)? || number(run).is_none() {
            return Ok(None);
        }
        if run == "run_02" {
            return Ok(Some(CancelOutcome::Refused(self.t("storage is full"))));
        }
        self.canceled.lock().unwrap().push(run.to_owned());
        self.beat.send_modify(|beat| *beat += 1);
        Ok(Some(CancelOutcome::Asked))
    }

    async fn servers(&self, who: &Principal) -> Result<Vec<ServerRow>, Trouble> {
        Ok(if self.may(who)? { (0..4).map(|at| self.server_row(at)).collect() } else { Vec::new() })
    }

    async fn server(&self, who: &Principal, name: &str) -> Result<Option<Server>, Trouble> {
        let at = ["tracker", "files", "warehouse", "search"].iter().position(|known| *known == name);
        Ok(at.filter(|_| self.may(who).unwrap_or(false)).map(|at| self.whole_server(at)))
    }

    async fn hooks(&self, who: &Principal) -> Result<Vec<Hook>, Trouble> {
        if !self.may(who)? {
            return Ok(Vec::new());
        }
        let event = |name: &str, line| HookEvent { name: self.t(name), line };
        let hook = |file: &str, runs, failures, fault: Option<&str>| Hook {
            file: self.t(file),
            events: vec![event("mcp.call.before", 2), event("mcp.call.after", 9)],
            optional: failures > 0,
            keeps_state: runs > 1000,
            servers: if failures > 0 { vec![self.t("tracker"), self.t("files")] } else { Vec::new() },
            runs,
            failures,
            took_ms: 31.5,
            last_fault: fault.map(|fault| self.t(fault)),
        };
        Ok(vec![
            hook("hooks/tenant.js", 1841, 0, None),
            hook("hooks/guard.js", 96, 2, Some("hooks/guard.js:4: TypeError: undefined is not an object")),
        ])
    }

    async fn why(&self, who: &Principal, pair: Option<(&str, &str)>) -> Result<Why, Trouble> {
        if !self.may(who)? {
            return Ok(Why::default());
        }
        let piece = |installed| Hears::Piece { name: self.t("plugin"), installed };
        let facts = pair.map(|(host, _)| Facts {
            host: self.t(host),
            server: self.t("tracker"),
            known: true,
            entry: if host == "cursor" {
                Entry::Unreadable(self.t("line 3: expected a comma"))
            } else {
                Entry::ThroughUs
            },
            hears: if host == "opencode" { piece(false) } else { piece(true) },
            open: false,
            require: Trust::Declared,
            shared: true,
            calls: 41,
            unknown: 0,
            last: Some((Key::new("7-9000").unwrap(), NOW - 3000, Trust::Host)),
            forged: Vec::new(),
        });
        let names = |names: &[&str]| names.iter().map(|name| self.t(name)).collect();
        Ok(Why {
            hosts: names(&["codex", "opencode", "cursor"]),
            servers: names(&["tracker", "files"]),
            facts,
        })
    }

    fn watch(&self, who: &Principal, _: &Topic) -> Option<Beat> {
        (*who == Principal::local()).then(|| self.beat.subscribe())
    }
}
