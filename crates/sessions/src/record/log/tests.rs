use std::fs;

use model::ports::agent::{About, Decision, Question, QuestionId, Status};
use model::session::RunUsage;
use proptest::prelude::*;

use super::line::{LONGEST_LINE, parse_usage, usage};
use super::*;

/// 2026-11-16 09:30:00 UTC.
const BEGAN: UnixMillis = UnixMillis(1_794_821_400_000);

fn after(millis: u64) -> UnixMillis {
    UnixMillis(BEGAN.0 + millis)
}

struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("run.log")
    }

    fn open(&self) -> RunLog {
        RunLog::open(&self.path(), BEGAN).unwrap()
    }

    fn text(&self) -> String {
        fs::read_to_string(self.path()).unwrap()
    }
}

fn step(thread: &str, message: &str) -> Progress {
    Progress::StepStarted { thread: thread.into(), message: message.into() }
}

fn step_end(thread: &str, message: &str, finish: &str, tokens: (u64, u64)) -> Progress {
    let usage = RunUsage { input_tokens: tokens.0, output_tokens: tokens.1, ..RunUsage::default() };
    Progress::StepFinished { thread: thread.into(), message: message.into(), finish: finish.into(), usage }
}

fn tool(thread: &str, call: &str, name: &str, at: u64) -> Progress {
    Progress::ToolStarted { thread: thread.into(), call: call.into(), tool: name.into(), at: after(at) }
}

fn tool_end(thread: &str, call: &str, name: &str, title: &str, error: Option<&str>) -> Progress {
    let (thread, call, tool) = (thread.into(), call.into(), name.into());
    let error = error.map(str::to_owned);
    Progress::ToolFinished {
        thread,
        call,
        tool,
        title: title.into(),
        error,
        started_at: after(3000),
        at: after(3400),
    }
}

fn text(thread: &str, bytes: usize) -> Progress {
    Progress::Text { thread: thread.into(), bytes }
}

fn question(thread: &str, id: &str, about: About) -> Question {
    Question {
        id: QuestionId { directory: "/workspace".into(), id: id.into() },
        thread: thread.into(),
        about,
    }
}

fn permission(patterns: &[&str]) -> About {
    let patterns = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    About::Permission { permission: "bash".into(), patterns }
}

/// A turn with everything in it.
fn turn() -> Vec<(u64, Progress)> {
    let retry = Status::Retry { attempt: 1, message: "429 slow\ndown".into(), next_at: after(2700) };
    let asked = About::Question { texts: vec!["Which one? (a | b)".into()] };
    let cached = RunUsage {
        input_tokens: 900,
        output_tokens: 40,
        reasoning_tokens: 7,
        cache_read_tokens: 800,
        cache_write_tokens: 20,
        cost_micros: 1_234_567,
    };
    let subagent = Progress::Subagent {
        thread: "ses_sub".into(),
        parent: "ses_main".into(),
        title: "Look around".into(),
    };
    let nested =
        Progress::Subagent { thread: "ses_nested".into(), parent: "ses_sub".into(), title: String::new() };
    vec![
        (100, Progress::Status(Status::Busy)),
        (200, step("ses_main", "msg_1")),
        (700, Progress::Status(retry)),
        (2700, Progress::Status(Status::Busy)),
        (2800, text("ses_main", 1000)),
        (2900, text("ses_main", 234)),
        (3000, tool("ses_main", "call_1", "bash", 3000)),
        (3100, Progress::Asked(question("ses_main", "que_1", asked.clone()))),
        (
            3200,
            Progress::Decided {
                question: question("ses_main", "per_1", permission(&["ls -la", "pwd"])),
                decision: Decision::Allow,
            },
        ),
        (3400, tool_end("ses_main", "call_1", "bash", "ls -la", None)),
        (3500, step_end("ses_main", "msg_1", "tool-calls", (1200, 30))),
        // The provider counts calls in each step anew.
        (3600, step("ses_main", "msg_2")),
        (3700, tool("ses_main", "call_1", "task", 3700)),
        (3800, subagent),
        (3900, step("ses_sub", "msg_3")),
        (4000, tool("ses_sub", "call_1", "edit", 4000)),
        (4100, text("ses_main", 5)),
        (4150, text("ses_sub", 2_500_000)),
        (4160, text("ses_main", 5)),
        (4200, tool_end("ses_sub", "call_1", "edit", "a.txt", Some("no such file:\n\ta.txt"))),
        (4300, nested),
        (4400, step_end("ses_sub", "msg_3", "stop", (10, 1))),
        (9000, tool_end("ses_main", "call_1", "task", "Look around", None)),
        (
            9100,
            Progress::Decided { question: question("ses_nested", "que_2", asked), decision: Decision::Deny },
        ),
        (
            65_432,
            Progress::StepFinished {
                thread: "ses_main".into(),
                message: "msg_2".into(),
                finish: "stop".into(),
                usage: cached,
            },
        ),
    ]
}

const TURN: &str = "\
2026-11-16, times are UTC
09:30:00.000     +0.0s  note   queued
09:30:00.100     +0.1s  state  the agent works  [busy]
09:30:00.200     +0.2s  step   1  started  [msg_1]
09:30:00.700     +0.7s  retry  attempt 1 failed  429 slow down  again in 2.0 s  [1.1794821402700]
09:30:02.700     +2.7s  state  the agent works  [busy]
09:30:02.900     +2.9s  text   1.2 kB
09:30:03.000     +3.0s  tool   bash  started  [1/call_1]
09:30:03.100     +3.1s  asked  it asks: Which one? (a | b)  waits for an answer  [que_1]
09:30:03.200     +3.2s  asked  may it use bash: ls -la; pwd  yes  [per_1:end]
09:30:03.400     +3.4s  tool   bash  ls -la  ok, 0.4 s  [1/call_1:end]
09:30:03.500     +3.5s  step   1  tool-calls  1200 tokens in, 30 out  [msg_1:end]
09:30:03.600     +3.6s  step   2  started  [msg_2]
09:30:03.700     +3.7s  tool   task  started  [2/call_1]
09:30:03.800     +3.8s  agent  s1  started  Look around  [ses_sub]
09:30:03.900     +3.9s  step   s1  3  started  [msg_3]
09:30:04.000     +4.0s  tool   s1  edit  started  [3/call_1]
09:30:04.160     +4.1s  text   10 B
09:30:04.150     +4.1s  text   s1  2.5 MB
09:30:04.200     +4.2s  tool   s1  edit  a.txt  failed after 0.4 s: no such file: a.txt  [3/call_1:end]
09:30:04.300     +4.3s  agent  s2  started by s1  -  [ses_nested]
09:30:04.400     +4.4s  step   s1  3  stop  10 tokens in, 1 out  [msg_3:end]
09:30:09.000     +9.0s  tool   task  Look around  ok, 0.4 s at 09:30:03.400  [2/call_1:end]
09:30:09.100     +9.1s  asked  s2  it asks: Which one? (a | b)  told that nobody answers  [que_2:end]
09:31:05.432    +65.4s  step   2  stop  900 tokens in, 40 out, 7 reasoning, 800 read from cache, 20 written to cache, $1.234567  [msg_2:end]
";

fn totals() -> LogTotals {
    let tools = [("bash", 1), ("edit", 1), ("task", 1)].map(|(name, count)| (name.to_owned(), count)).into();
    let tokens = RunUsage {
        input_tokens: 2110,
        output_tokens: 71,
        reasoning_tokens: 7,
        cache_read_tokens: 800,
        cache_write_tokens: 20,
        cost_micros: 1_234_567,
    };
    let last =
        "step 2 stop 900 tokens in, 40 out, 7 reasoning, 800 read from cache, 20 written to cache, $1.234567";
    LogTotals { steps: 2, tools, subagents: 2, tokens, last: last.into() }
}

#[test]
fn a_turn_reads_well() {
    let place = Place::new();
    let mut log = place.open();
    assert_eq!(log.totals(), &LogTotals::default());
    log.note(BEGAN, "queued");
    assert_eq!(log.totals().last, "note queued");
    for (at, progress) in turn() {
        log.progress(after(at), &progress);
    }
    assert_eq!(place.text(), TURN);
    assert_eq!(log.totals(), &totals());
    assert_eq!(place.open().totals(), &totals());
}

#[test]
fn what_is_told_again_is_not_written_again() {
    let turn = turn();
    // At whatever moment the first one is killed; the second hears everything, but nothing that passed by.
    for killed in 0..=turn.len() {
        let place = Place::new();
        let mut first = place.open();
        first.note(BEGAN, "queued");
        for (at, progress) in &turn[..killed] {
            first.progress(after(*at), progress);
        }
        drop(first);
        let mut second = place.open();
        for (place, (at, progress)) in turn.iter().enumerate() {
            let passes_by = matches!(progress, Progress::Text { .. } | Progress::Status(_));
            let passed_by = passes_by && place < killed;
            if !passed_by {
                second.progress(after(*at), progress);
            }
        }
        let without_texts = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.contains("  text   ")).map(str::to_owned).collect()
        };
        assert_eq!(without_texts(&place.text()), without_texts(TURN), "killed after {killed}");
        assert_eq!(second.totals(), &totals(), "killed after {killed}");
        // And the same one, which watches again.
        let before = place.text();
        for (at, progress) in turn
            .iter()
            .filter(|(_, progress)| !matches!(progress, Progress::Status(_) | Progress::Text { .. }))
        {
            second.progress(after(*at), progress);
        }
        assert_eq!(place.text(), before);
    }
}

#[test]
fn a_status_is_written_when_it_is_another() {
    let place = Place::new();
    let retry = Progress::Status(Status::Retry { attempt: 1, message: "m".into(), next_at: after(9) });
    let busy = Progress::Status(Status::Busy);
    for statuses in [vec![&busy, &retry], vec![&retry, &busy], vec![&busy]] {
        let mut log = place.open();
        for status in statuses {
            log.progress(BEGAN, status);
        }
    }
    let kinds: Vec<String> = place.text().lines().skip(1).map(|line| line[24..29].to_owned()).collect();
    assert_eq!(kinds, ["state", "retry", "state"]);
}

#[test]
fn a_tool_that_ends_after_the_next_step_began_is_the_same_when_told_again() {
    let place = Place::new();
    let (begun, ended) = (tool("t", "c", "bash", 1), tool_end("t", "c", "bash", "x", None));
    let mut log = place.open();
    for progress in [&step("t", "m1"), &begun, &step("t", "m2"), &ended] {
        log.progress(BEGAN, progress);
    }
    let before = place.text();
    let mut log = place.open();
    for progress in [&step("t", "m1"), &begun, &ended, &step("t", "m2")] {
        log.progress(BEGAN, progress);
    }
    assert_eq!(place.text(), before);
    assert_eq!(log.totals().tools["bash"], 1);
}

#[test]
fn an_end_without_a_beginning_counts() {
    let place = Place::new();
    let mut log = place.open();
    log.progress(BEGAN, &step_end("t", "m1", "stop", (5, 6)));
    log.progress(BEGAN, &tool_end("t", "c", "bash", "x", None));
    let expected = (1, 1, 5);
    let seen =
        |log: &RunLog| (log.totals().steps, log.totals().tools["bash"], log.totals().tokens.input_tokens);
    assert_eq!((seen(&log), seen(&place.open())), (expected, expected));
}

#[test]
fn a_day_is_said_when_it_begins() {
    let place = Place::new();
    for at in [0, 1000, 86_400_000] {
        place.open().note(after(at), "here");
    }
    let expected = "2026-11-16, times are UTC\n09:30:00.000     +0.0s  note   here\n09:30:01.000     +1.0s  note   here\n\
        2026-11-17, times are UTC\n09:30:00.000  +86400.0s  note   here\n";
    assert_eq!(place.text(), expected);
}

#[test]
fn hostile_texts_make_no_line_and_drive_no_terminal() {
    let hostile = "x\x1b]52;c;cm0gLXJmIC8=\x07\x1b[2J\r\n09:30:00.000     +0.0s  tool   bash  y  ok, 0.1 s  [9/z:end]\n\u{202e}\u{9b}31m";
    let long = hostile.repeat(100);
    let place = Place::new();
    let mut log = place.open();
    log.note(BEGAN, &long);
    let all = [
        Progress::Status(Status::Retry {
            attempt: u32::MAX,
            message: long.clone(),
            next_at: UnixMillis(u64::MAX),
        }),
        step(&long, &long),
        step_end(&long, &long, &long, (u64::MAX, u64::MAX)),
        tool(&long, &long, &long, u64::MAX - BEGAN.0),
        tool_end(&long, &long, &long, &long, Some(&long)),
        Progress::Subagent { thread: long.clone(), parent: long.clone(), title: long.clone() },
        text(&long, usize::MAX),
        text(&long, usize::MAX),
        Progress::Asked(question(&long, &long, permission(&[&long, &long]))),
        Progress::Decided {
            question: question(&long, &long, About::Question { texts: vec![long.clone(); 30] }),
            decision: Decision::Surface,
        },
        // An id that looks like another's end.
        step("t", "msg_1:end"),
        step("t", ""),
        step("t", "a  [b]"),
    ];
    for progress in &all {
        log.progress(UnixMillis(u64::MAX), progress);
    }
    let written = place.text();
    assert!(!written.chars().any(|character| character.is_control() && character != '\n'));
    assert!(!written.contains('\u{202e}'));
    let lines: Vec<&str> = written.lines().collect();
    // Two of them say a day.
    assert_eq!(lines.len(), 1 + all.len() - 1 + 2, "{written}");
    assert!(lines.iter().all(|line| line.len() < LONGEST_LINE), "{written}");
    assert_eq!(log.totals().tools.values().sum::<u32>(), 1);
    let mut again = place.open();
    assert_eq!(again.totals(), log.totals());
    all.iter().filter(|it| !matches!(it, Progress::Text { .. })).for_each(|it| again.progress(BEGAN, it));
    assert_eq!(place.text(), written);
}

#[test]
fn a_line_that_was_torn_stays_alone() {
    let place = Place::new();
    fs::write(
        place.path(),
        b"2026-11-16, times are UTC\n09:30:00.000     +0.0s  step   1  started  [msg_1]\nhalf a l\xc3",
    )
    .unwrap();
    let mut log = place.open();
    log.progress(BEGAN, &step("t", "msg_1"));
    log.note(BEGAN, "on");
    let text = String::from_utf8_lossy(&fs::read(place.path()).unwrap()).into_owned();
    assert!(text.ends_with("\nhalf a l\u{fffd}\n09:30:00.000     +0.0s  note   on\n"), "{text}");
    assert_eq!(log.totals().steps, 1);
}

#[test]
fn a_full_log_says_so_once_and_takes_notes() {
    let place = Place::new();
    let mut log = place.open();
    let title = "x".repeat(2000);
    let calls = 25_000;
    let tell = |log: &mut RunLog| {
        for call in 0..calls {
            log.progress(BEGAN, &tool_end("t", &call.to_string(), "bash", &title, None));
        }
    };
    tell(&mut log);
    log.note(BEGAN, "ended");
    let size = fs::metadata(place.path()).unwrap().len();
    assert!((MOST - 2048..MOST + 2048).contains(&size), "{size}");
    assert_eq!(log.totals().tools["bash"], calls, "counted all the same");
    let mut again = place.open();
    tell(&mut again);
    again.note(BEGAN, "ended again");
    assert_eq!(again.totals(), &LogTotals { last: "note ended again".into(), ..log.totals().clone() });
    let text = place.text();
    let notes: Vec<&str> =
        text.lines().filter(|line| line.contains("  note   ")).map(|line| &line[31..]).collect();
    assert_eq!(notes, ["the log is full: only notes follow  [full]", "ended", "ended again"]);
    // Notes end as well.
    for _ in 0..2000 {
        again.note(BEGAN, &title);
    }
    let size = fs::metadata(place.path()).unwrap().len();
    assert!((MOST_WITH_NOTES - 2048..=MOST_WITH_NOTES).contains(&size), "{size}");
}

#[test]
fn a_log_that_cannot_be_written_is_no_trouble() {
    let mut log = RunLog::open(Path::new("/dev/full"), BEGAN).unwrap();
    log.note(BEGAN, "queued");
    log.progress(BEGAN, &step("t", "m"));
    assert_eq!(log.totals().steps, 1);
}

#[test]
fn tools_of_too_many_names_are_counted_together() {
    let place = Place::new();
    let mut log = place.open();
    for number in 0..150 {
        log.progress(BEGAN, &tool("t", &format!("c{number}"), &format!("tool{number}"), 1));
    }
    assert_eq!(log.totals().tools.len(), 101);
    assert_eq!(log.totals().tools["others"], 50);
    assert_eq!(place.open().totals(), log.totals());
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec!["a", "s1", "", "[x]", "started", "1", "-", "ses_2", "a:end"])
            .prop_map(str::to_owned),
        any::<String>(),
    ]
}

fn progress() -> impl Strategy<Value = Progress> {
    let usage = (any::<u32>(), any::<u64>(), any::<[u16; 4]>()).prop_map(|(input, output, rest)| RunUsage {
        input_tokens: input.into(),
        output_tokens: output,
        reasoning_tokens: rest[0].into(),
        cache_read_tokens: rest[1].into(),
        cache_write_tokens: rest[2].into(),
        cost_micros: rest[3].into(),
    });
    let names = || (word(), word());
    prop_oneof![
        names().prop_map(|(thread, message)| step(&thread, &message)),
        (names(), word(), usage).prop_map(|((thread, message), finish, usage)| Progress::StepFinished {
            thread,
            message,
            finish,
            usage
        }),
        (names(), word()).prop_map(|((thread, call), name)| tool(&thread, &call, &name, 5)),
        (names(), names(), prop::option::of(word())).prop_map(|((thread, call), (name, title), error)| {
            tool_end(&thread, &call, &name, &title, error.as_deref())
        }),
        (names(), word()).prop_map(|((thread, parent), title)| Progress::Subagent { thread, parent, title }),
        (word(), any::<usize>()).prop_map(|(thread, bytes)| text(&thread, bytes)),
        (names(), word()).prop_map(|((thread, id), text)| Progress::Asked(question(
            &thread,
            &id,
            permission(&[&text])
        ))),
        (any::<u32>(), word(), any::<u64>()).prop_map(|(attempt, message, next)| {
            Progress::Status(Status::Retry { attempt, message, next_at: UnixMillis(next) })
        }),
        Just(Progress::Status(Status::Busy)),
    ]
}

proptest! {
    #[test]
    fn whatever_is_told_is_known_to_whoever_opens_it_next(
        told in prop::collection::vec((any::<u64>(), progress()), 0..40), note in word(),
    ) {
        let place = Place::new();
        let mut log = place.open();
        for (at, progress) in &told {
            log.progress(UnixMillis(*at), progress);
        }
        log.note(BEGAN, &note);
        let again = place.open();
        prop_assert_eq!(again.totals(), log.totals());
        let text = place.text();
        for line in text.lines().filter(|line| line.as_bytes()[4] != b'-') {
            prop_assert!(line.len() < LONGEST_LINE);
            prop_assert!(Line::parse(line).is_some(), "{}", line);
        }
        // Under an id there is one line, but that the agent works again.
        let mut ids: Vec<(&str, &str)> = text
            .lines()
            .filter(|line| line.ends_with(']') && line.as_bytes()[4] != b'-')
            .filter_map(|line| Some((line.split("  ").map(str::trim).filter(|it| !it.is_empty()).nth(2)?, line.rsplit_once("  [")?.1)))
            .filter(|(kind, _)| !matches!(*kind, "state" | "note"))
            .collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), count);
    }

    #[test]
    fn figures_of_usage_are_read_back(numbers: [u64; 6]) {
        let used = RunUsage {
            input_tokens: numbers[0],
            output_tokens: numbers[1],
            reasoning_tokens: numbers[2],
            cache_read_tokens: numbers[3],
            cache_write_tokens: numbers[4],
            cost_micros: numbers[5],
        };
        prop_assert_eq!(parse_usage(&usage(used)), used);
    }
}
