//! How calls are shown: the object of the contract, and a table for people.

use ledger::{Begin, End, Outcome};

use super::rig::{Desk, NOON, begin, end, of_subagent};

#[tokio::test]
async fn a_call_is_one_object_with_these_keys_in_this_order() {
    let desk = Desk::new();
    let writer = desk.writer();
    let whole = Begin {
        at: NOON + 7,
        host: Some("codex".into()),
        session: Some("s".into()),
        thread: Some("t".into()),
        parent: Some("s".into()),
        run: Some("r".into()),
        turn: Some("u".into()),
        call: "c".into(),
        server: "tracker".into(),
        tool: Some("search".into()),
        method: "tools/call".into(),
        workspace: Some("/srv/x".into()),
        trust: "host",
        source: Some("meta"),
        digest: Some([1; 32]),
        size: 2,
        arguments: Some("{}".into()),
        spoof: Some("_meta,Callsign-Session".into()),
        trace: None,
    };
    writer.call(whole, Outcome::ToolError).await;
    let bare = Begin {
        at: NOON + 8,
        server: "tracker".into(),
        method: "prompts/get".into(),
        trust: "none",
        ..Begin::default()
    };
    writer.begin(bare).await;
    writer.settled().await;
    let printed = desk.run(&["calls", "--json"]);
    let lines: Vec<&str> = printed.stdout.lines().collect();
    let known = r#"{"at":"2026-11-16T12:00:00.007Z","host":"codex","session":"s","thread":"t","parent":"s","run":"r","turn":"u","call":"c","server":"tracker","tool":"search","method":"tools/call","workspace":"/srv/x","trust":"host","source":"meta","outcome":"tool_error","duration_ms":1.5,"spoof":["_meta","Callsign-Session"]}"#;
    let unknown = r#"{"at":"2026-11-16T12:00:00.008Z","host":null,"session":null,"thread":null,"parent":null,"run":null,"turn":null,"call":null,"server":"tracker","tool":null,"method":"prompts/get","workspace":null,"trust":"none","source":null,"outcome":null,"duration_ms":null,"spoof":[]}"#;
    assert_eq!(lines, [known, unknown], "{}", printed.stderr);
    writer.close();
}

const LONG: &str = "01998f3e-7a11-7c55-9d2e-5b1f0c9a4e21";
const OTHER: &str = "01998f3e-aaaa-7c55-9d2e-5b1f0c9a4e99";

async fn wide(desk: &Desk) {
    let writer = desk.writer();
    writer.call(begin("c1", "ses_1", 0), Outcome::Ok).await;
    let deep = Begin { server: "a-server-with-a-name".into(), ..of_subagent("c2", (LONG, OTHER, LONG), 1) };
    let entry = writer.begin(Begin { tool: Some("find_all_open_issues".into()), ..deep }).await;
    let reason = Some("hook_refused: not from an agent, and certainly not today, whatever it says".into());
    writer.0.end(entry, End { outcome: Outcome::Refused, reason, ..end() });
    let read =
        Begin { tool: Some("file:///a".into()), method: "resources/read".into(), ..begin("c3", "ses_1", 2) };
    writer.call(Begin { spoof: Some("_meta".into()), ..read }, Outcome::Ok).await;
    writer.begin(begin("c4", "ses_1", 3)).await;
    writer.settled().await;
    std::mem::forget(writer);
}

#[tokio::test]
async fn whoever_reads_it_with_a_program_gets_whole_ids() {
    let desk = Desk::new();
    wide(&desk).await;
    let printed = desk.run(&["calls"]);
    let lines: Vec<&str> = printed.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{}", printed.stdout);
    assert!(lines[0].starts_with("TIME (UTC)           HOST      SESSION "), "{}", lines[0]);
    assert!(lines[2].contains(LONG) && lines[2].contains(OTHER), "{}", lines[2]);
    assert!(
        lines[2].ends_with(
            "refused    1.5  hook_refused: not from an agent, and certainly not today, whatever it says"
        ),
        "{}",
        lines[2]
    );
    assert!(
        lines[3].contains("resources/read file:///a") && lines[3].ends_with("forged: _meta"),
        "{}",
        lines[3]
    );
    assert!(lines[4].ends_with("search                    under way"), "{}", lines[4]);
    // The same place in every line.
    let place = lines[0].find("OUTCOME").expect("a column");
    for (line, outcome) in lines[1..].iter().zip(["ok", "refused", "ok", "under way"]) {
        assert!(line[place..].starts_with(outcome), "{line}");
    }
}

#[tokio::test]
async fn a_table_fits_its_terminal() {
    for columns in [80, 100, 132, 200] {
        let desk = Desk::new().of_width(&columns.to_string());
        wide(&desk).await;
        let printed = desk.run(&["calls"]).stdout;
        for line in printed.lines() {
            assert!(line.chars().count() <= columns, "{columns}: {line}");
        }
        let second = printed.lines().nth(2).expect("a call");
        assert!(second.starts_with("2026-11-16 12:00:00 ") && second.contains("refused"), "{printed}");
        assert!(columns > 132 || second.contains('…'), "{printed}");
        // JSON is for programs, however wide the terminal is.
        let json = desk.run(&["calls", "--json"]);
        assert_eq!(json.json()[1]["thread"], OTHER);
    }
}

#[tokio::test]
async fn what_others_wrote_is_shown_and_not_obeyed() {
    let desk = Desk::new().of_width("200");
    let writer = desk.writer();
    let nasty = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\r\n\u{202e}x\u{7f}";
    let begin = Begin {
        host: Some(nasty.into()),
        session: Some(nasty.into()),
        thread: Some(format!("t{nasty}").into()),
        parent: Some(format!("p{nasty}").into()),
        server: nasty.into(),
        tool: Some(nasty.into()),
        method: nasty.into(),
        spoof: Some(nasty.into()),
        workspace: Some(nasty.into()),
        ..begin(nasty, "s", 0)
    };
    let entry = writer.begin(begin).await;
    writer.0.end(entry, End { reason: Some(nasty.into()), outcome: Outcome::Failed, ..end() });
    writer.close();
    let acts = |character: char| character.is_control() && character != '\n' || character == '\u{202e}';
    for arguments in [
        &["calls"][..],
        &["calls", "--json"],
        &["calls", "--tree"],
        &["calls", "--tree", "--json"],
        &["ledger", "export"],
        &["ledger", "export", "--format", "otlp"],
    ] {
        let printed = desk.run(arguments);
        assert_eq!(printed.code, Some(0), "{arguments:?}: {}", printed.stderr);
        assert!(!printed.stdout.contains(acts), "{arguments:?}: {:?}", printed.stdout);
        assert!(!printed.stdout.is_empty());
    }
    assert_eq!(desk.run(&["calls", "--json"]).json()[0]["session"], nasty);
    assert_eq!(desk.run(&["ledger", "export"]).json()[0]["reason"], nasty);
    assert_eq!(desk.run(&["calls"]).stdout.lines().count(), 2);
}

#[tokio::test]
async fn a_reader_that_has_seen_enough_is_no_error() {
    let desk = Desk::new();
    let writer = desk.writer();
    for number in 0..5_000 {
        writer.call(begin(&format!("c{number}"), "ses_1", number), Outcome::Ok).await;
    }
    writer.close();
    for arguments in
        [&["calls", "--limit", "0"][..], &["calls", "--limit", "0", "--json"], &["ledger", "export"]]
    {
        let mut running = desk.start(arguments);
        running.close_stdout();
        assert_eq!(running.wait(), Some(0), "{arguments:?}");
    }
    // The table of more rows than are looked at beforehand.
    let printed = desk.run(&["calls", "--limit", "0"]).stdout;
    assert_eq!(printed.lines().count(), 5_001);
    let widths: std::collections::HashSet<usize> = printed.lines().skip(1).map(str::len).collect();
    assert_eq!(widths.len(), 1);
}
