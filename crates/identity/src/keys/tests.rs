use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use ed25519_dalek::SigningKey as KeyPair;
use serde_json::Value;
use tempfile::TempDir;

use super::*;

const NOW: u64 = 1_700_000_000;
const DIRECTORY: &str = "CALLSIGN_TEST_KEYS";

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn kids(keyring: &Keyring) -> Vec<String> {
    keyring.list().into_iter().map(|key| key.kid).collect()
}

fn published(directory: &Path) -> Vec<String> {
    let jwks: Value = serde_json::from_slice(&fs::read(directory.join(JWKS_FILE)).unwrap()).unwrap();
    jwks["keys"].as_array().unwrap().iter().map(|key| key["kid"].as_str().unwrap().to_owned()).collect()
}

fn mode(directory: &Path, name: &str) -> u32 {
    fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777
}

/// RFC 8037, appendix A.
#[test]
fn a_key_is_named_and_signs_as_the_rfc_shows() {
    let seed = BASE64.decode("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A").unwrap();
    let pair = KeyPair::from_bytes(&seed.try_into().unwrap());
    let public = pair.verifying_key().to_bytes();
    assert_eq!(BASE64.encode(public), "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
    assert_eq!(key::thumbprint(&public), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
    let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    assert_eq!(BASE64.encode(SigningKey::new(pair).sign(signed)), signature);
    let jwk: Value = serde_json::from_str(&key::jwk(&public)).unwrap();
    assert_eq!(jwk["kty"], "OKP");
    assert_eq!(jwk["x"], "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo");
}

#[test]
fn the_first_start_makes_a_key_and_the_next_finds_it() {
    let directory = directory();
    let first = Keyring::open(directory.path(), NOW).unwrap();
    let again = Keyring::open(directory.path(), NOW + 5).unwrap();
    assert_eq!(first.list(), again.list());
    assert_eq!(first.issuer(), again.issuer());
    assert!(first.issuer().starts_with("callsign:") && first.issuer().len() > 20);
    assert_eq!(published(directory.path()), kids(&first));
    assert_eq!(fs::read_to_string(first.jwks_file()).unwrap(), first.jwks());
    assert_eq!(mode(directory.path(), "keys.json"), 0o600);
    assert_eq!(mode(directory.path(), JWKS_FILE), 0o644);
    assert!(!first.jwks().contains("\"d\""));
    let seeds = fs::read_to_string(directory.path().join("keys.json")).unwrap();
    let seeds: Value = serde_json::from_str(&seeds).unwrap();
    let seed = seeds["keys"][0]["seed"].as_str().unwrap();
    assert!(!format!("{first:?}").contains(seed), "the private key is in the debug text");
}

#[test]
fn a_rotation_overlaps_and_then_drops_the_old_key() {
    let directory = directory();
    let path = directory.path();
    let old = kids(&Keyring::open(path, NOW).unwrap());
    let rotated = Keyring::rotate(path, NOW + 10).unwrap();
    assert_eq!(rotated.list().iter().map(|key| key.retired_at).collect::<Vec<_>>(), [Some(NOW + 10), None]);
    assert_eq!(kids(&rotated)[0], old[0]);
    assert_eq!(published(path), kids(&rotated));
    // A moment before its time is over, it is there.
    assert_eq!(kids(&Keyring::open(path, NOW + 10 + OVERLAP - 1).unwrap()).len(), 2);
    let after = Keyring::open(path, NOW + 10 + OVERLAP).unwrap();
    assert_eq!(kids(&after), kids(&rotated)[1..]);
    assert_eq!(published(path), kids(&after));
}

#[test]
fn a_rotation_without_keys_makes_the_first() {
    let directory = directory();
    let keyring = Keyring::rotate(directory.path(), NOW).unwrap();
    assert_eq!(keyring.list().iter().map(|key| key.retired_at).collect::<Vec<_>>(), [None]);
}

#[test]
fn a_running_process_takes_notice_within_a_second() {
    let directory = directory();
    let running = Keyring::open(directory.path(), NOW).unwrap();
    let rotated = Keyring::rotate(directory.path(), NOW).unwrap();
    // It looked in this second already.
    assert!(!running.refresh_if_changed(NOW).unwrap());
    assert_eq!(kids(&running).len(), 1);
    assert!(running.refresh_if_changed(NOW + 1).unwrap());
    assert_eq!(running.list(), rotated.list());
    assert!(!running.refresh_if_changed(NOW + 2).unwrap());
    // It drops the old one itself when its time is over.
    assert!(running.refresh_if_changed(NOW + OVERLAP).unwrap());
    assert_eq!(kids(&running), kids(&rotated)[1..]);
    assert_eq!(published(directory.path()), kids(&running));
}

#[test]
fn a_running_process_keeps_its_keys_when_the_file_breaks() {
    let directory = directory();
    let running = Keyring::open(directory.path(), NOW).unwrap();
    let before = kids(&running);
    fs::write(directory.path().join("keys.json"), "{").unwrap();
    assert!(running.refresh_if_changed(NOW + 1).is_err());
    // It is said once, not every second.
    assert!(!running.refresh_if_changed(NOW + 2).unwrap());
    assert_eq!(kids(&running), before);
    fs::remove_file(directory.path().join("keys.json")).unwrap();
    assert!(running.refresh_if_changed(NOW + 3).is_err());
    assert_eq!(kids(&running), before);
}

#[test]
fn a_lost_list_of_public_keys_is_written_again() {
    let directory = directory();
    let keyring = Keyring::open(directory.path(), NOW).unwrap();
    for broken in [None, Some("{\"keys\":[]}")] {
        match broken {
            None => fs::remove_file(keyring.jwks_file()).unwrap(),
            Some(text) => fs::write(keyring.jwks_file(), text).unwrap(),
        }
        Keyring::open(directory.path(), NOW).unwrap();
        assert_eq!(published(directory.path()), kids(&keyring));
    }
}

#[test]
fn what_a_killed_process_left_behind_is_in_nobodys_way() {
    let directory = directory();
    fs::write(directory.path().join(".new-keys.json"), "half a fi").unwrap();
    fs::write(directory.path().join(".new-jwks.json"), "half a fi").unwrap();
    Keyring::open(directory.path(), NOW).unwrap();
    Keyring::rotate(directory.path(), NOW).unwrap();
}

#[test]
fn a_file_that_others_may_read_is_refused() {
    let directory = directory();
    Keyring::open(directory.path(), NOW).unwrap();
    let path = directory.path().join("keys.json");
    for mode in [0o640, 0o604, 0o644, 0o620] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        assert!(matches!(Keyring::open(directory.path(), NOW), Err(KeyError::TooOpen { .. })), "{mode:o}");
        assert!(matches!(Keyring::rotate(directory.path(), NOW), Err(KeyError::TooOpen { .. })), "{mode:o}");
    }
}

/// Every way a file can be wrong: the error says what it is, and the file stays as it was.
#[test]
fn a_file_that_makes_no_sense_is_never_written_over() {
    let directory = directory();
    let path = directory.path().join("keys.json");
    Keyring::open(directory.path(), NOW).unwrap();
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let changed = |change: fn(&mut Value)| {
        let mut document = good.clone();
        change(&mut document);
        document.to_string()
    };
    let rows = [
        (String::new(), "line 1"),
        ("null".to_owned(), "line 1"),
        ("{\"keys\":[]}".to_owned(), "line 1"),
        (good.to_string()[..40].to_owned(), "line 1"),
        (changed(|file| file["version"] = 2.into()), "newer version"),
        (r#"{"version": 9, "something": "else"}"#.to_owned(), "newer version"),
        (changed(|file| file["keys"] = Value::Array(Vec::new())), "exactly one key"),
        (changed(|file| file["keys"][0]["retired_at"] = 5.into()), "exactly one key"),
        (changed(|file| file["keys"][0]["seed"] = "AAAA".into()), "32 bytes"),
        (changed(|file| file["keys"][0]["seed"] = "A".repeat(43).into()), "kid"),
        (changed(|file| file["keys"][0]["kid"] = "other".into()), "kid"),
        (changed(|file| file["instance"] = "a b".into()), "instance"),
        (changed(|file| file["instance"] = "".into()), "instance"),
        (changed(|file| file["more"] = 1.into()), "line 1"),
    ];
    for (text, expected) in rows {
        fs::write(&path, &text).unwrap();
        for result in [Keyring::open(directory.path(), NOW), Keyring::rotate(directory.path(), NOW)] {
            let message = result.unwrap_err().to_string();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(message.contains("keys.json"), "{message}");
        }
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}

#[test]
fn threads_that_start_at_once_agree_on_one_key() {
    for _ in 0..20 {
        let directory = directory();
        let found: BTreeSet<Vec<String>> = std::thread::scope(|scope| {
            let open = || kids(&Keyring::open(directory.path(), NOW).unwrap());
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(found.len(), 1);
        assert_eq!(published(directory.path()), *found.first().unwrap());
    }
}

#[test]
fn rotations_at_once_lose_no_key() {
    let directory = directory();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| Keyring::rotate(directory.path(), NOW).unwrap());
        }
    });
    let keyring = Keyring::open(directory.path(), NOW).unwrap();
    assert_eq!(keyring.list().iter().filter(|key| key.retired_at.is_none()).count(), 1);
    assert_eq!(keyring.list().len(), 8);
    assert_eq!(published(directory.path()), kids(&keyring));
}

/// The other half of the test below: does nothing unless that one started it.
#[test]
fn one_of_many_processes() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let keyring = Keyring::open(Path::new(&directory), NOW).unwrap();
    println!("KID={}", kids(&keyring).join(","));
}

#[test]
fn processes_that_start_at_once_agree_on_one_key() {
    let directory = directory();
    let start = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "keys::tests::one_of_many_processes", "--nocapture"]);
        command.env(DIRECTORY, directory.path()).stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let children: Vec<_> = (0..16).map(|_| start()).collect();
    let kid = |output: String| {
        let at = output.find("KID=").expect("it says which key it found");
        output[at..].lines().next().unwrap().to_owned()
    };
    let found: BTreeSet<String> = children
        .into_iter()
        .map(|child| kid(String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()))
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found.first().unwrap().as_str(), format!("KID={}", published(directory.path()).join(",")));
}
