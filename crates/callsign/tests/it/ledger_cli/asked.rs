//! Which calls are shown: filters, times, limits.

use ledger::{Begin, Outcome};

use super::rig::{Desk, NOON, begin, of_subagent};

async fn desk() -> Desk {
    let desk = Desk::new();
    let writer = desk.writer();
    writer.call(begin("c1", "ses_1", 0), Outcome::Ok).await;
    writer.call(of_subagent("c2", ("ses_1", "sub_1", "ses_1"), 1_000), Outcome::ToolError).await;
    let other = Begin { server: "files".into(), tool: Some("read".into()), ..begin("c3", "ses_2", 60_000) };
    writer.call(other, Outcome::Refused).await;
    let run =
        Begin { host: Some("codex".into()), run: Some("run_1".into()), ..begin("c4", "ses_3", 3_600_000) };
    writer.call(run, Outcome::Timeout).await;
    writer.begin(begin("c5", "ses_2", 7_200_000)).await;
    writer.close();
    desk
}

#[tokio::test]
async fn each_filter_leaves_what_it_names() {
    let desk = desk().await;
    for (arguments, expected) in [
        (&[][..], &["c1", "c2", "c3", "c4", "c5"][..]),
        (&["--session", "ses_1"], &["c1", "c2"]),
        (&["--thread", "sub_1"], &["c2"]),
        (&["--thread", "ses_1"], &["c1"]),
        (&["--run", "run_1"], &["c4"]),
        (&["--call", "c3"], &["c3"]),
        (&["--server", "files"], &["c3"]),
        (&["--tool", "read"], &["c3"]),
        (&["--host", "codex"], &["c4"]),
        (&["--outcome", "ok"], &["c1"]),
        (&["--outcome", "tool_error"], &["c2"]),
        (&["--outcome", "canceled"], &[]),
        (&["--since", "2026-11-16T12:01:00Z"], &["c3", "c4", "c5"]),
        (&["--until", "2026-11-16T13:01:00+01:00"], &["c1", "c2"]),
        (&["--since", "2026-11-16T12:00:01Z", "--until", "2026-11-16T13:00:00Z"], &["c2", "c3"]),
        (&["--since", "2026-11-16", "--until", "2026-11-17"], &["c1", "c2", "c3", "c4", "c5"]),
        (&["--session", "ses_2", "--outcome", "refused"], &["c3"]),
        (&["--session", "' OR 1=1 --"], &[]),
        (&["--limit", "2"], &["c4", "c5"]),
        (&["--limit", "0"], &["c1", "c2", "c3", "c4", "c5"]),
    ] {
        assert_eq!(desk.calls(arguments), expected, "{arguments:?}");
    }
    // The state of a process that is here, and then of one that is not.
    let row = &desk.run(&["calls", "--json", "--call", "c5"]).json()[0];
    assert!(row["outcome"].is_null() && row["duration_ms"].is_null(), "{row}");
    desk.tamper("UPDATE writers SET life = 'another'");
    assert_eq!(desk.calls(&["--outcome", "unknown"]), ["c5"]);
}

#[tokio::test]
async fn an_age_counts_back_from_now() {
    let desk = Desk::new();
    let now = callsign::identification::now_ms();
    let writer = desk.writer();
    for (call, ago) in [("old", 3 * 3600), ("young", 60)] {
        writer.call(Begin { at: now - ago * 1000, ..begin(call, "ses_1", 0) }, Outcome::Ok).await;
    }
    writer.close();
    assert_eq!(desk.calls(&["--since", "2h"]), ["young"]);
    assert_eq!(desk.calls(&["--until", "10m"]), ["old"]);
    assert_eq!(desk.calls(&["--since", "1d"]), ["old", "young"]);
}

#[tokio::test]
async fn the_newest_fifty_are_shown_unless_somebody_says_otherwise() {
    let desk = Desk::new();
    let writer = desk.writer();
    for number in 0..120 {
        writer.call(begin(&format!("c{number}"), "ses_1", number), Outcome::Ok).await;
    }
    writer.close();
    let shown = desk.calls(&[]);
    assert_eq!((shown.len(), shown[0].as_str(), shown[49].as_str()), (50, "c70", "c119"));
    assert_eq!(desk.calls(&["--limit", "0"]).len(), 120);
    assert_eq!(desk.calls(&["--limit", "0", "--since", &callsign_time(NOON + 100)]).len(), 20);
}

fn callsign_time(at: u64) -> String {
    assert_eq!(at / 60_000, NOON / 60_000, "the same minute");
    let within = at - NOON;
    format!("2026-11-16T12:00:{:02}.{:03}Z", within / 1000, within % 1000)
}

#[test]
fn without_a_ledger_there_is_a_hint_and_no_error() {
    let desk = Desk::new();
    for arguments in
        [&["calls"][..], &["calls", "--json"], &["calls", "--tree"], &["calls", "--session", "s"]]
    {
        let printed = desk.run(arguments);
        assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), ""), "{}", printed.stderr);
        assert!(printed.stderr.starts_with("no calls yet; "), "{}", printed.stderr);
    }
    assert_eq!(std::fs::read_dir(desk.files.state()).expect("it").count(), 0, "nothing was made");
    let printed = desk.run(&["ledger", "export"]);
    assert_eq!(printed.code, Some(4), "{}", printed.stderr);
    assert!(printed.stderr.contains("there is no ledger"), "{}", printed.stderr);
}

#[tokio::test]
async fn nothing_that_is_like_that_is_said_too() {
    let desk = desk().await;
    let printed = desk.run(&["calls", "--session", "nobody"]);
    assert_eq!((printed.code, printed.stdout.as_str()), (Some(0), ""));
    assert!(printed.stderr.starts_with("no call is like that"), "{}", printed.stderr);
}

#[test]
fn what_makes_no_sense_is_a_mistake_of_the_command_line() {
    let desk = Desk::new();
    for (arguments, part) in [
        (&["calls", "--since", "yesterday"][..], "write a time such as"),
        (&["calls", "--outcome", "good"], "tool_error"),
        (&["calls", "--limit", "few"], "limit"),
        (&["calls", "--follow", "--tree"], "cannot be used with"),
        (&["ledger", "verify", "--head", "12:abc"], "a head is"),
        (&["ledger", "export", "--format", "csv"], "jsonl"),
    ] {
        let printed = desk.run(arguments);
        assert_eq!(printed.code, Some(2), "{arguments:?}: {}", printed.stderr);
        assert!(printed.stderr.contains(part), "{arguments:?}: {}", printed.stderr);
    }
}

#[test]
fn a_file_that_is_no_ledger_is_said_to_be_none() {
    let desk = Desk::new();
    std::fs::write(desk.place().file, "this is no database at all, and long enough to be one ".repeat(20))
        .expect("a file");
    for arguments in [&["calls"][..], &["calls", "--tree"], &["ledger", "export"]] {
        let printed = desk.run(arguments);
        assert_eq!(printed.code, Some(4), "{arguments:?}: {}", printed.stderr);
        assert!(printed.stderr.contains("is damaged"), "{arguments:?}: {}", printed.stderr);
    }
}
