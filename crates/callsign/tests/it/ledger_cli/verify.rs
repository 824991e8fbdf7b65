//! `ledger verify`: what was written, what was changed, and an older copy.

use std::path::Path;

use ledger::Outcome;
use serde_json::Value;

use super::rig::{Desk, begin};

const GOOD: i32 = 0;
const UNREADABLE: i32 = 4;
const WRONG: i32 = 7;

async fn write(desk: &Desk, calls: u64) {
    let writer = desk.writer();
    for number in 0..calls {
        writer.call(begin(&format!("c{number}"), "ses_1", number), Outcome::Ok).await;
    }
    writer.close();
}

/// The exit code, the verdict, and what is on stderr.
#[track_caller]
fn verify(desk: &Desk, arguments: &[&str]) -> (i32, Value, String) {
    let printed = desk.run(&[&["ledger", "verify", "--json"], arguments].concat());
    let verdict = serde_json::from_str(&printed.stdout).unwrap_or_default();
    (printed.code.expect("a code"), verdict, printed.stderr)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[tokio::test]
async fn what_was_written_verifies_and_the_head_is_told() {
    let desk = Desk::new();
    write(&desk, 10).await;
    write(&desk, 5).await;
    let (code, verdict, stderr) = verify(&desk, &[]);
    assert_eq!((code, verdict["ok"].as_bool()), (GOOD, Some(true)), "{verdict} {stderr}");
    assert_eq!((&verdict["rows"], &verdict["writers"]), (&30.into(), &2.into()), "{verdict}");
    assert!(verdict["batches"].as_u64().is_some_and(|batches| batches >= 2), "{verdict}");
    assert!(verdict["from"].as_str() <= verdict["to"].as_str() && verdict["from"].is_string(), "{verdict}");
    assert!(verdict["findings"].as_array().is_some_and(Vec::is_empty), "{verdict}");
    let unchecked = verdict["unchecked"].to_string();
    assert!(unchecked.contains("older copy") && unchecked.contains("--head"), "{unchecked}");
    let head = verdict["head"].as_str().expect("a head");
    let (code, verdict, _) = verify(&desk, &["--head", head]);
    assert_eq!((code, verdict["unchecked"].to_string().as_str()), (GOOD, "[]"), "{verdict}");
    let printed = desk.run(&["ledger", "verify"]);
    assert_eq!(printed.code, Some(GOOD));
    assert!(printed.stdout.contains("30 rows in"), "{}", printed.stdout);
    assert!(printed.stdout.contains(&format!("head     {head}\n")), "{}", printed.stdout);
    assert!(printed.stdout.ends_with("the ledger is what was written\n"), "{}", printed.stdout);
}

#[tokio::test]
async fn the_first_row_that_was_changed_is_named() {
    let desk = Desk::new();
    write(&desk, 10).await;
    desk.tamper("UPDATE calls SET tool = 'other' WHERE call IN ('c7', 'c3')");
    let (code, verdict, stderr) = verify(&desk, &[]);
    assert_eq!((code, verdict["ok"].as_bool()), (WRONG, Some(false)), "{verdict}");
    let first = &verdict["findings"][0];
    assert_eq!(
        (&first["writer"], &first["seq"], &first["what"]),
        (&1.into(), &7.into(), &"it was changed".into())
    );
    assert!(
        stderr.contains("the ledger does not verify: batch 1, row 7 of writer 1: it was changed"),
        "{stderr}"
    );
    let printed = desk.run(&["ledger", "verify"]);
    assert!(
        printed.stdout.contains("wrong: batch 1, row 7 of writer 1: it was changed"),
        "{}",
        printed.stdout
    );
    assert!(!printed.stdout.contains("is what was written"), "{}", printed.stdout);
}

#[tokio::test]
async fn rows_that_are_gone_or_new_are_found() {
    for change in [
        "DELETE FROM calls WHERE call = 'c5'",
        "DELETE FROM ends WHERE seq > 15; DELETE FROM calls WHERE seq > 15",
        "DELETE FROM writers",
        "INSERT INTO ends SELECT writer, 999, 999, at, outcome, reason, target, micros, size, result, mark FROM ends LIMIT 1",
        "DELETE FROM head",
        "UPDATE head SET signature = zeroblob(64)",
        "UPDATE head SET kid = '', signature = x''",
    ] {
        let desk = Desk::new();
        write(&desk, 10).await;
        desk.tamper(change);
        let (code, verdict, stderr) = verify(&desk, &[]);
        assert_eq!(code, WRONG, "{change}: {verdict} {stderr}");
    }
}

#[tokio::test]
async fn an_older_copy_put_back_is_found_by_the_head() {
    let desk = Desk::new();
    write(&desk, 10).await;
    let (file, copy) = (desk.place().file, desk.state("copy.db"));
    std::fs::copy(&file, &copy).expect("a copy");
    write(&desk, 10).await;
    let head = verify(&desk, &[]).1["head"].as_str().expect("a head").to_owned();
    write(&desk, 1).await;
    assert_eq!(verify(&desk, &["--head", &head]).0, GOOD, "it has grown since");
    std::fs::copy(&copy, &file).expect("put back");
    assert_eq!(verify(&desk, &[]).0, GOOD, "by itself it is good");
    let (code, verdict, stderr) = verify(&desk, &["--head", &head]);
    assert_eq!(code, WRONG, "{verdict}");
    assert!(stderr.contains("older copy"), "{stderr}");
    // Somebody else's head is no head of this one.
    let forged = format!("1:{}", "0".repeat(64));
    assert_eq!(verify(&desk, &["--head", &forged]).0, WRONG);
}

#[tokio::test]
async fn a_copy_is_verified_with_the_public_key_alone() {
    let (desk, elsewhere) = (Desk::new(), Desk::new());
    write(&desk, 3).await;
    let (file, key) = (elsewhere.files.path().join("copy.db"), elsewhere.files.path().join("key"));
    std::fs::copy(desk.place().file, &file).expect("a copy");
    std::fs::copy(desk.state("ledger.pub"), &key).expect("a key");
    let (code, verdict, stderr) = verify(&elsewhere, &["--file", text(&file), "--key", text(&key)]);
    assert_eq!(code, GOOD, "{verdict} {stderr}");
    assert_eq!(verdict["key"], verify(&desk, &[]).1["key"]);
    // Without a key nobody vouches for it, and none is made.
    let (code, verdict, stderr) = verify(&elsewhere, &["--file", text(&file)]);
    assert_eq!(code, WRONG, "{verdict}");
    assert!(verdict["unchecked"].to_string().contains("there is no key"), "{verdict}");
    assert!(stderr.contains("there is no key to tell") && stderr.contains("hint: "), "{stderr}");
    assert_eq!(std::fs::read_dir(elsewhere.files.state()).expect("it").count(), 0);
    // Another one's key does not either.
    let other = Desk::new();
    write(&other, 1).await;
    let (code, verdict, _) = verify(&desk, &["--key", text(&other.state("ledger.pub"))]);
    assert_eq!(code, WRONG, "{verdict}");
    assert!(verdict["findings"].to_string().contains("a key that is not known"), "{verdict}");
    // A private key is for nobody to hand around.
    let (code, _, stderr) = verify(&desk, &["--key", text(&desk.state("ledger.key"))]);
    assert_eq!(code, 2, "{stderr}");
}

#[tokio::test]
async fn what_cannot_be_read_is_told_from_what_is_wrong() {
    let desk = Desk::new();
    let (code, _, stderr) = verify(&desk, &[]);
    assert_eq!(code, UNREADABLE, "{stderr}");
    assert!(stderr.contains("there is no ledger at"), "{stderr}");
    write(&desk, 100).await;
    let file = desk.place().file;
    let whole = std::fs::read(&file).expect("a file");
    let mut broken = whole.clone();
    broken[4096..8192].fill(0xff);
    std::fs::write(&file, &broken).expect("a broken file");
    let (code, verdict, stderr) = verify(&desk, &[]);
    assert_eq!(code, WRONG, "{verdict} {stderr}");
    std::fs::write(&file, "no database".repeat(100)).expect("no file of ours");
    let (code, verdict, stderr) = verify(&desk, &[]);
    assert_eq!(code, WRONG, "{verdict} {stderr}");
    assert!(stderr.contains("the file is damaged"), "{stderr}");
    std::fs::write(&file, &whole).expect("the file");
    assert_eq!(verify(&desk, &[]).0, GOOD);
    desk.tamper("PRAGMA user_version = 99");
    let (code, _, stderr) = verify(&desk, &[]);
    assert_eq!(code, UNREADABLE, "{stderr}");
    assert!(stderr.contains("a newer version"), "{stderr}");
}
