use proptest::prelude::*;

use super::*;

const NOW: u64 = 1_700_000_000_000;

fn key() -> SealKey {
    SealKey::parse(&BASE64.encode([7; 32])).unwrap()
}

fn payload() -> Payload {
    Payload {
        session: "ses_child".to_owned(),
        parent: Some("ses_middle".to_owned()),
        root: Some("ses_root".to_owned()),
        call: Some("call_1".to_owned()),
        title: Some("A title — ü".to_owned()),
        directory: Some("/home/u/p".to_owned()),
        tool: "my_server_read_file".to_owned(),
        at: NOW,
        nonce: "0123456789abcdefghij".to_owned(),
    }
}

#[track_caller]
fn check(change: impl FnOnce(&mut Payload), expected: Result<(), BadSeal>) {
    let mut payload = payload();
    change(&mut payload);
    let token = seal(&key(), &payload).unwrap();
    let opened = Seals::new(key(), "my.server").open(&token, "read file", NOW);
    assert_eq!(opened.map(drop), expected, "{payload:?}");
}

#[test]
fn a_seal_says_who_calls() {
    let seals = Seals::new(key(), "my.server");
    let opened = seals.open(&seal(&key(), &payload()).unwrap(), "read file", NOW).unwrap();
    let id = |text: &str| Id::new(text).unwrap();
    let expected = Opened {
        session: id("ses_child"),
        parent: Some(id("ses_middle")),
        root: Some(id("ses_root")),
        call: Some(id("call_1")),
        title: Some("A title — ü".into()),
        directory: Some("/home/u/p".into()),
    };
    assert_eq!(opened, expected);
}

/// The same seal, made with Node's own HMAC.
#[test]
fn a_seal_made_elsewhere_opens() {
    let payload = Payload {
        session: "ses_a".to_owned(),
        tool: "srv_whoami".to_owned(),
        at: NOW,
        nonce: "AAAAAAAAAAAAAAAA".to_owned(),
        ..Payload::default()
    };
    let theirs = concat!(
        "v1.eyJzZXNzaW9uIjoic2VzX2EiLCJ0b29sIjoic3J2X3dob2FtaSIsImF0IjoxNzAwMDAwMD",
        "AwMDAwLCJub25jZSI6IkFBQUFBQUFBQUFBQUFBQUEifQ",
        ".zcbKXrty9r1ufmZkC95yJrFIQlJuPcEhISfW5GCJj7o",
    );
    assert_eq!(seal(&key(), &payload).unwrap(), theirs);
    let claim = Seals::new(key(), "srv").claim(theirs, "whoami", NOW).unwrap();
    assert_eq!(claim.session, claim.thread);
    assert_eq!(claim.parent, None);
}

#[test]
fn a_claim_names_the_root_as_the_session() {
    let seals = Seals::new(key(), "my.server");
    let claim = seals.claim(&seal(&key(), &payload()).unwrap(), "read file", NOW).unwrap();
    let text = |id: Option<Id>| id.unwrap().to_string();
    assert_eq!(
        (text(claim.session), text(claim.thread), text(claim.parent)),
        ("ses_root".to_owned(), "ses_child".to_owned(), "ses_middle".to_owned())
    );
    assert_eq!(claim.workspace.as_deref(), Some("/home/u/p"));
}

#[test]
fn time_and_tool_are_checked() {
    check(|_| (), Ok(()));
    check(|payload| payload.tool = "my_server_write_file".to_owned(), Err(BadSeal::OtherTool));
    check(|payload| payload.tool = "other_read_file".to_owned(), Err(BadSeal::OtherTool));
    check(|payload| payload.at = NOW + SKEW_MS, Ok(()));
    check(|payload| payload.at = NOW + SKEW_MS + 1, Err(BadSeal::Early));
    check(|payload| payload.at = u64::MAX, Err(BadSeal::Early));
    check(|payload| payload.at = NOW - MAX_AGE_MS, Ok(()));
    check(|payload| payload.at = NOW - MAX_AGE_MS - 1, Err(BadSeal::Late));
    check(|payload| payload.at = 0, Err(BadSeal::Late));
}

#[test]
fn what_identifies_must_be_right_and_what_describes_may_go() {
    check(|payload| payload.session = String::new(), Err(BadSeal::Malformed));
    check(|payload| payload.session = "a b".to_owned(), Err(BadSeal::Malformed));
    check(|payload| payload.parent = Some("ü".to_owned()), Err(BadSeal::Malformed));
    check(|payload| payload.root = Some("\n".to_owned()), Err(BadSeal::Malformed));
    check(|payload| payload.nonce = "short".to_owned(), Err(BadSeal::Malformed));
    check(|payload| payload.title = Some("a\nb".to_owned()), Ok(()));
    check(|payload| payload.call = Some("x".repeat(300)), Ok(()));
    check(|payload| payload.title = Some("x".repeat(20_000)), Err(BadSeal::Malformed));
}

#[test]
fn a_seal_opens_once() {
    let seals = Seals::new(key(), "my.server");
    let token = seal(&key(), &payload()).unwrap();
    // Refused elsewhere first: that does not use it up.
    assert_eq!(seals.open(&token, "other", NOW), Err(BadSeal::OtherTool));
    assert!(seals.open(&token, "read file", NOW).is_ok());
    assert_eq!(seals.open(&token, "read file", NOW), Err(BadSeal::Replayed));
    // A new seal with the old nonce.
    let again = seal(&key(), &Payload { at: NOW + 1, ..payload() }).unwrap();
    assert_eq!(seals.open(&again, "read file", NOW), Err(BadSeal::Replayed));
}

#[test]
fn nonsense_is_refused() {
    let token = seal(&key(), &payload()).unwrap();
    let (signed, code) = token.rsplit_once('.').unwrap();
    let seals = Seals::new(key(), "my.server");
    for (bad, why) in [
        (String::new(), BadSeal::Malformed),
        ("v1.".to_owned(), BadSeal::Malformed),
        ("v1..".to_owned(), BadSeal::Forged),
        (signed.to_owned(), BadSeal::Malformed),
        (format!("{signed}."), BadSeal::Forged),
        (format!("{signed}.{code}="), BadSeal::Malformed),
        (format!("v2{}", &token[2..]), BadSeal::Malformed),
        (format!(" {token}"), BadSeal::Malformed),
        (format!("{signed}.{}", BASE64.encode([0; 32])), BadSeal::Forged),
        (format!("{signed}.{}", BASE64.encode(&BASE64.decode(code).unwrap()[..16])), BadSeal::Forged),
        ("x".repeat(1 << 20), BadSeal::Malformed),
    ] {
        assert_eq!(seals.open(&bad, "read file", NOW), Err(why), "{bad:.80}");
    }
    let other = SealKey::parse(&BASE64.encode([8; 32])).unwrap();
    assert_eq!(seals.open(&seal(&other, &payload()).unwrap(), "read file", NOW), Err(BadSeal::Forged));
    for raw in ["", "null", "[]", "{}", r#"{"session":"a","session":"b"}"#] {
        let mut token = format!("v1.{}", BASE64.encode(raw));
        let code = hmac::sign(&key().0, token.as_bytes());
        token = format!("{token}.{}", BASE64.encode(code));
        assert_eq!(seals.open(&token, "read file", NOW), Err(BadSeal::Malformed), "{raw}");
    }
    assert!(seals.open(&token, "read file", NOW).is_ok());
}

#[test]
fn a_key_has_32_bytes() {
    for bad in ["", "AAAA", &BASE64.encode([0; 31]), &BASE64.encode([0; 33]), &BASE64.encode([0; 64])] {
        assert!(SealKey::parse(bad).is_err(), "{bad}");
    }
    assert!(SealKey::parse(&format!("{}=", BASE64.encode([0; 32]))).is_err());
    assert_eq!(format!("{:?}", key()), "SealKey(..)");
}

#[test]
fn tools_are_named_as_opencode_names_them() {
    for (server, tool, name) in [
        ("std", "whoami", "std_whoami"),
        ("my.server", "read file", "my_server_read_file"),
        ("a-b_c", "x/y:z", "a-b_c_x_y_z"),
        ("é", "😀", "____"),
    ] {
        assert_eq!(tool_name(server, tool), name);
    }
}

#[test]
fn memory_is_bounded_and_what_is_forgotten_stays_refused() {
    let mut memory = Memory::default();
    let count = memory::CAPACITY as u64;
    for at in 1..=count {
        assert_eq!(memory.recall(&at.to_string(), at), Recall::New);
    }
    assert_eq!(memory.recall("one more", count + 1), Recall::New);
    let half = count / 2 + 1;
    assert_eq!(memory.recall("never seen", half), Recall::Forgotten);
    for at in [1, half, half + 1, count] {
        let expected = if at <= half { Recall::Forgotten } else { Recall::Seen };
        assert_eq!(memory.recall(&at.to_string(), at), expected, "{at}");
    }
    assert_eq!(memory.recall("new and newer", half + 1), Recall::New);
}

proptest! {
    #[test]
    fn no_changed_byte_opens(place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let token = seal(&key(), &payload()).unwrap();
        let mut changed = token.clone().into_bytes();
        let place = place.index(changed.len());
        prop_assume!(changed[place] != byte && byte.is_ascii());
        changed[place] = byte;
        let changed = String::from_utf8(changed).unwrap();
        prop_assert!(Seals::new(key(), "my.server").open(&changed, "read file", NOW).is_err());
    }

    #[test]
    fn nothing_opens_twice_whatever_the_order(times in prop::collection::vec(0..50_u64, 1..200)) {
        let mut memory = Memory::default();
        for (index, at) in times.iter().enumerate() {
            prop_assert_eq!(memory.recall(&index.to_string(), *at), Recall::New);
        }
        for (index, at) in times.iter().enumerate() {
            prop_assert_eq!(memory.recall(&index.to_string(), *at), Recall::Seen);
        }
    }
}
