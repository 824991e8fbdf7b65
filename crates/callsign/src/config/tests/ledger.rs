//! `[ledger]`, and the `capture` of a server.

use model::Capture;

use super::*;

fn node(section: UseSection) -> Wrapped {
    let target = Some(Target::Command { command: "node".to_owned(), args: Vec::new() });
    Wrapped { name: ServerName::new("a").unwrap(), section, target, inherit_env: None }
}

/// For the daemon and for `wrap`.
#[track_caller]
fn check(text: &str, expected: &LedgerConfig) {
    for purpose in [Purpose::Serve, Purpose::Wrap(&node(UseSection::No))] {
        let config = read(text, purpose).unwrap_or_else(|errors| panic!("{errors}\nfor\n{text}"));
        assert_eq!(&config.ledger, expected, "for\n{text}");
        assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    }
}

#[track_caller]
fn bad(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
    assert_eq!(mistakes(text, Purpose::Wrap(&node(UseSection::No))), expected, "for wrap, for\n{text}");
}

/// `line` as the second of `[ledger]`.
#[track_caller]
fn bad_line(line: &str, expected: &[&str]) {
    bad(&format!("[ledger]\n{line}\n"), expected);
}

#[test]
fn without_a_word_it_is_kept_for_a_while() {
    let expected = LedgerConfig {
        enabled: true,
        strict: false,
        keep: Some(Duration::from_hours(90 * 24)),
        max_size: 1 << 30,
        redact: Vec::new(),
    };
    check("", &expected);
    check("[ledger]\n", &expected);
    let off = LedgerConfig { enabled: false, ..expected };
    check("[ledger]\nenabled = false\n", &off);
    check("[ledger]\nenabled = false\nstrict = false\n", &off);
}

#[test]
fn ages_sizes_and_patterns() {
    let of = |line: &str, expected: LedgerConfig| check(&format!("[ledger]\n{line}\n"), &expected);
    for (written, hours) in [("1d", 24), ("36500d", 36_500 * 24), ("12h", 12), ("60m", 1), ("3600s", 1)] {
        let keep = Some(Duration::from_hours(hours));
        of(&format!("keep = \"{written}\""), LedgerConfig { keep, ..LedgerConfig::default() });
    }
    of("keep = \"forever\"", LedgerConfig { keep: None, ..LedgerConfig::default() });
    for written in ["\"1MiB\"", "\"1024KiB\"", "1048576"] {
        of(&format!("max_size = {written}"), LedgerConfig { max_size: 1 << 20, ..LedgerConfig::default() });
    }
    let redact = vec![r"\d{16}".to_owned(), "(?i)straße [^,]+".to_owned()];
    of(r"redact = ['\d{16}', '(?i)straße [^,]+']", LedgerConfig { redact, ..LedgerConfig::default() });
}

#[test]
fn strict_is_nothing_without_a_ledger() {
    let problem =
        "`ledger.strict` wants every call written down, and `enabled = false` none; take one of the two out";
    bad("[ledger]\nenabled = false\nstrict = true\n", &[&format!("3:1: {problem}")]);
    bad("[ledger]\nstrict = true\nenabled = false\n", &[&format!("2:1: {problem}")]);
}

#[test]
fn keys_and_shapes() {
    bad("ledger = true\n", &["1:10: `ledger` must be a table, not a boolean"]);
    bad("[[ledger]]\n", &["1:1: `ledger` must be a table, not a list"]);
    bad("[leger]\n", &["1:2: unknown key `leger`; did you mean `ledger`?"]);
    bad_line("x = 1", &["2:1: unknown key `x`; this table takes enabled, strict, keep, max_size, redact"]);
    bad_line("maxsize = 1", &["2:1: unknown key `maxsize`; did you mean `max_size`?"]);
    bad_line("enabled = \"yes\"", &["2:11: `ledger.enabled` must be true or false, not a string"]);
    bad_line("strict = 1", &["2:10: `ledger.strict` must be true or false, not an integer"]);
    bad_line(
        "redact = \"x\"",
        &["2:10: `ledger.redact` must be a list of regular expressions, not a string"],
    );
}

#[test]
fn ages_and_sizes_that_are_none() {
    let age = "2:8: `ledger.keep` must be an age such as \"90d\" or \"12h\", or \"forever\"";
    for written in ["90", "d", "1.5d", "90 d", "-1d", "90days", "3mod", "Forever", "", "1w"] {
        bad_line(&format!("keep = {written:?}"), &[&format!("{age}, not {written:?}")]);
    }
    bad_line("keep = 90", &[&format!("{age}, not an integer")]);
    for written in ["0d", "0s"] {
        bad_line(&format!("keep = {written:?}"), &["2:8: `ledger.keep` must be longer than nothing"]);
    }
    for written in ["36501d", "18446744073709551615d", "18446744073709551615h"] {
        let problem = "`ledger.keep` must be at most a century, \"36500d\"; \"forever\" is longer";
        bad_line(&format!("keep = {written:?}"), &[&format!("2:8: {problem}")]);
    }
    let size = "2:12: `ledger.max_size` must be a size such as \"16MiB\" or \"4KiB\", or a number of bytes";
    for written in ["\"1GB\"", "\"forever\"", "0", "-1"] {
        bad_line(&format!("max_size = {written}"), &[size]);
    }
    bad_line("max_size = true", &[&format!("{size}, not a boolean")]);
    for written in ["1048575", "\"4KiB\""] {
        bad_line(&format!("max_size = {written}"), &["2:12: `ledger.max_size` must be at least \"1MiB\""]);
    }
}

#[test]
fn every_pattern_is_tried() {
    bad(
        "[ledger]\nredact = [\n  'fine',\n  '(open',\n  1,\n  '',\n  'x*',\n  '[z-a]',\n  '(?=ahead)',\n]\n",
        &[
            "4:3: \"(open\" cannot be used: unclosed group",
            "5:3: each of `ledger.redact` must be a string, not an integer; put it in quotes",
            "6:3: each of `ledger.redact` is empty",
            "7:3: \"x*\" cannot be used: it matches a text without anything in it; make it want something",
            "8:3: \"[z-a]\" cannot be used: invalid character class range, the start must be <= the end",
            "9:3: \"(?=ahead)\" cannot be used: look-around, including look-ahead and look-behind, is not supported",
        ],
    );
    let errors = mistakes("[ledger]\nredact = ['\\w{999}{999}']\n", Purpose::Serve);
    assert!(errors.len() == 1 && errors[0].starts_with("2:11: "), "{errors:?}");
}

#[test]
fn what_is_captured_of_a_server() {
    let capture = |text: &str, purpose: Purpose<'_>| read(text, purpose).unwrap().servers[0].capture;
    let rows = [
        ("", Capture::Digests),
        ("capture = \"digests\"", Capture::Digests),
        ("capture = \"arguments\"", Capture::Arguments),
        ("capture = \"full\"", Capture::Full),
    ];
    for (line, expected) in rows {
        for target in ["command = \"x\"", "url = \"https://a.example/mcp\""] {
            assert_eq!(capture(&format!("[servers.a]\n{target}\n{line}\n"), Purpose::Serve), expected);
        }
        let text = format!("[servers.a]\n{line}\n");
        assert_eq!(capture(&text, Purpose::Wrap(&node(UseSection::Yes))), expected);
        assert_eq!(capture(&text, Purpose::Wrap(&node(UseSection::No))), Capture::Digests);
    }
    let problem = "`capture` must be \"digests\", \"arguments\" or \"full\", not \"all\"";
    bad("[servers.a]\ncapture = \"all\"\ncommand = \"x\"\n", &[&format!("2:11: {problem}")]);
    bad(
        "[servers.a]\ncapture = true\ncommand = \"x\"\n",
        &["2:11: `capture` must be a string, not a boolean; put it in quotes"],
    );
    bad(
        "[servers.a]\ncaptures = 1\ncommand = \"x\"\n",
        &["2:1: unknown key `captures`; did you mean `capture`?"],
    );
}
