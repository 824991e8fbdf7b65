use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use proptest::prelude::*;
use ring::hmac;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::replay::{CAPACITY, Use, Used};
use super::*;
use crate::keys::{Keyring, OVERLAP};
use crate::{Id, Identity, Source, Trust};

const NOW: u64 = 1_700_000_000;

struct Place {
    directory: TempDir,
    keys: Arc<Keyring>,
    signer: Signer,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let keys = Arc::new(Keyring::open(directory.path(), NOW).unwrap());
        let signer = Signer::new(keys.clone()).unwrap();
        Self { directory, keys, signer }
    }

    fn sign(&self, arguments: Option<&str>) -> String {
        let about = About { arguments: arguments.map(str::as_bytes), ..about() };
        self.signer.sign(&identity(), &about, NOW * 1000 + 999).unwrap()
    }

    fn verifier(&self) -> Verifier {
        Verifier::new(&self.keys.jwks()).unwrap().audience("tracker")
    }
}

fn id(text: &str) -> Id {
    Id::new(text).unwrap()
}

fn identity() -> Identity {
    Identity {
        host: Some(id("codex")),
        session: Some(id("ses\"\\1")),
        thread: Some(id("thread-1")),
        parent: Some(id("ses\"\\1")),
        run: Some(id("run-1")),
        turn: Some(id("turn-1")),
        call: Some(id("call-1")),
        title: Some("A title".into()),
        trust: Trust::Host,
        source: Source::Meta,
    }
}

fn about() -> About<'static> {
    About {
        server: "tracker",
        method: "tools/call",
        name: Some("sëarch \"x\"\n"),
        call: "call-1",
        arguments: None,
    }
}

fn part(token: &str, index: usize) -> Value {
    serde_json::from_slice(&BASE64.decode(token.split('.').nth(index).unwrap()).unwrap()).unwrap()
}

/// Signs anything with a key of its own, and gives the set of public keys.
fn forge(header: &Value, claims: &str) -> (String, String) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let x = BASE64.encode(pair.public_key());
    let jwks = json!({ "keys": [{ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k" }] }).to_string();
    let signed = format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims));
    let signature = BASE64.encode(pair.sign(signed.as_bytes()));
    (format!("{signed}.{signature}"), jwks)
}

fn header() -> Value {
    json!({ "alg": "EdDSA", "typ": TYPE, "kid": "k" })
}

fn claims() -> Value {
    json!({
        "iss": "callsign:x", "aud": "tracker", "sub": "codex:s", "host": "codex", "session": "s", "call": "c",
        "trust": "host", "source": "meta", "method": "tools/list",
        "ah": "RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o", "jti": "j", "iat": NOW, "exp": NOW + 60,
    })
}

#[track_caller]
fn check(header: &Value, claims: &Value, expected: Result<(), Reject>) {
    let (token, jwks) = forge(header, &claims.to_string());
    let verifier = Verifier::new(&jwks).unwrap().audience("tracker");
    assert_eq!(verifier.verify(&token, None, NOW).map(drop), expected, "{header} {claims}");
}

fn with(mut object: Value, key: &str, value: impl Into<Value>) -> Value {
    object[key] = value.into();
    object
}

#[test]
fn the_claims_are_those_of_the_contract() {
    let place = Place::new();
    let token = place.sign(Some(r#"{"b":1,"a":2}"#));
    let kid = &place.keys.list()[0].kid;
    assert_eq!(part(&token, 0), json!({ "alg": "EdDSA", "typ": "agent-identity+jwt", "kid": kid }));
    let mut claims = part(&token, 1);
    let jti = claims["jti"].take();
    assert!(jti.as_str().unwrap().len() > 16);
    let digest = ring::digest::digest(&ring::digest::SHA256, br#"{"a":2,"b":1}"#);
    let expected = json!({
        "iss": place.keys.issuer(), "aud": "tracker", "sub": "codex:ses\"\\1", "host": "codex",
        "session": "ses\"\\1", "thread": "thread-1", "parent": "ses\"\\1", "run": "run-1", "call": "call-1",
        "trust": "host", "source": "meta", "method": "tools/call", "name": "sëarch \"x\"\n",
        "ah": BASE64.encode(digest), "jti": null, "iat": NOW, "exp": NOW + 60,
    });
    assert_eq!(claims, expected);
    let big = part(&place.sign(Some(r#"{"n":12345678901234567890}"#)), 1);
    assert!(big["ah"].is_null());
    let digest = ring::digest::digest(&ring::digest::SHA256, br#"{"n":12345678901234567890}"#);
    assert_eq!(big["ahx"], BASE64.encode(digest));
}

#[test]
fn what_was_signed_verifies_and_says_the_same() {
    let place = Place::new();
    let token = place.sign(Some(r#"{"b":1.0,"a":2}"#));
    let verified = place.verifier().verify(&token, Some(br#" {"a":2 ,"b":1}"#), NOW).unwrap();
    let expected = Identity { turn: None, title: None, ..identity() };
    assert_eq!(verified.identity, expected);
    assert_eq!(verified.audience, "tracker");
    assert_eq!((verified.issued_at, verified.expires_at), (NOW, NOW + 60));
    assert!(verified.is_about("tools/call", Some("sëarch \"x\"\n")));
    assert!(!verified.is_about("tools/call", None) && !verified.is_about("prompts/get", about().name));
}

#[test]
fn nobody_is_not_vouched_for() {
    let place = Place::new();
    let sign = |identity: &Identity| place.signer.sign(identity, &about(), NOW * 1000);
    for nobody in [
        Identity { trust: Trust::None, ..identity() },
        Identity { host: None, ..identity() },
        Identity { session: None, ..identity() },
        Identity::default(),
    ] {
        assert_eq!(sign(&nobody), Err(SignError::Nobody));
    }
    let few = Identity { thread: None, parent: None, run: None, ..identity() };
    assert!(sign(&few).is_ok());
    let long = "x".repeat(MAX_CLAIMS);
    let about = About { name: Some(&long), ..about() };
    assert_eq!(place.signer.sign(&identity(), &about, NOW * 1000), Err(SignError::TooLong));
    let about = About { arguments: Some(br#"{"a":1,"a":2}"#), ..about };
    let refused = place.signer.sign(&identity(), &about, NOW * 1000);
    assert!(matches!(refused, Err(SignError::Arguments(_))));
}

#[test]
fn each_reason_to_refuse_has_its_word() {
    let place = Place::new();
    let verify = |verifier: Verifier, arguments: Option<&str>, now| {
        let verified = verifier.verify(&place.sign(None), arguments.map(str::as_bytes), now);
        verified.map_or_else(Reject::as_str, |_| "ok")
    };
    assert_eq!(verify(place.verifier(), None, NOW), "ok");
    assert_eq!(verify(place.verifier(), None, NOW + 59), "ok");
    assert_eq!(verify(place.verifier(), None, NOW + 60), "expired");
    assert_eq!(verify(place.verifier(), None, NOW - 30), "ok");
    assert_eq!(verify(place.verifier(), None, NOW - 31), "time");
    assert_eq!(verify(place.verifier().audience("other"), None, NOW), "audience");
    assert_eq!(verify(Verifier::new(&place.keys.jwks()).unwrap(), None, NOW), "audience");
    assert_eq!(verify(place.verifier().require(Trust::Host), None, NOW), "ok");
    assert_eq!(verify(place.verifier().require(Trust::Bound), None, NOW), "trust");
    assert_eq!(verify(place.verifier(), Some("{}"), NOW), "ok");
    assert_eq!(verify(place.verifier(), Some("{\"a\":1}"), NOW), "args_digest");
    assert_eq!(verify(place.verifier(), Some("nonsense"), NOW), "args_digest");
    let strangers = Place::new();
    assert_eq!(verify(strangers.verifier(), None, NOW), "kid");
    for (index, reject) in Reject::ALL.into_iter().enumerate() {
        assert!(Reject::ALL[..index].iter().all(|other| other.as_str() != reject.as_str()));
    }
}

#[test]
fn an_assertion_is_good_once_and_a_refused_one_is_not_used_up() {
    let place = Place::new();
    let (verifier, token) = (place.verifier(), place.sign(None));
    assert_eq!(verifier.verify(&token, Some(b"{\"a\":1}"), NOW), Err(Reject::Arguments));
    assert_eq!(verifier.verify_for("other", &token, None, NOW), Err(Reject::Audience));
    assert!(verifier.verify(&token, None, NOW).is_ok());
    assert_eq!(verifier.verify(&token, None, NOW), Err(Reject::Replay));
    assert_eq!(verifier.verify(&token, None, NOW + 59), Err(Reject::Replay));
    assert!(verifier.verify(&place.sign(None), None, NOW).is_ok());
}

/// One with `none`; one whose HMAC key is the public key; one of a key nobody knows. Each has a reason of its own.
#[test]
fn there_is_one_algorithm() {
    check(&header(), &claims(), Ok(()));
    for algorithm in ["none", "None", "HS256", "ES256", "RS256", "eddsa", "Ed25519", ""] {
        check(&with(header(), "alg", algorithm), &claims(), Err(Reject::Algorithm));
    }
    check(&json!({ "typ": TYPE, "kid": "k" }), &claims(), Err(Reject::Algorithm));

    let body = |header: Value| {
        format!("{}.{}", BASE64.encode(header.to_string()), BASE64.encode(claims().to_string()))
    };
    let (_, jwks) = forge(&header(), "");
    let verify = |token: &str| {
        let verifier = Verifier::new(&jwks).unwrap().audience("tracker");
        verifier.verify(token, None, NOW).unwrap_err()
    };
    assert_eq!(verify(&format!("{}.", body(with(header(), "alg", "none")))), Reject::Algorithm);
    let public = Ed25519KeyPair::from_seed_unchecked(&[9; 32]).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, public.public_key().as_ref());
    for algorithm in ["HS256", "EdDSA"] {
        let signed = body(with(header(), "alg", algorithm));
        let code = BASE64.encode(hmac::sign(&key, signed.as_bytes()));
        let expected = if algorithm == "EdDSA" { Reject::Signature } else { Reject::Algorithm };
        assert_eq!(verify(&format!("{signed}.{code}")), expected);
    }
    check(&with(header(), "kid", "other"), &claims(), Err(Reject::Key));
    check(&with(header(), "kid", Value::Null), &claims(), Err(Reject::Key));
    // A key that a token brings along is no key.
    let own = json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    check(&with(with(header(), "jwk", own), "kid", "other"), &claims(), Err(Reject::Key));
}

#[test]
fn times_that_make_no_sense_are_refused() {
    for (issued, expires, expected) in [
        (json!(NOW), json!(NOW + 60), Ok(())),
        (json!(NOW + 30), json!(NOW + 31), Ok(())),
        (json!(NOW + 31), json!(NOW + 60), Err(Reject::Time)),
        (json!(NOW + 600), json!(NOW + 660), Err(Reject::Time)),
        (json!(NOW), json!(NOW), Err(Reject::Time)),
        (json!(NOW), json!(NOW - 1), Err(Reject::Time)),
        (json!(NOW), json!(NOW + 61), Err(Reject::Time)),
        (json!(NOW), json!(1_u64 << 63), Err(Reject::Time)),
        (json!(NOW), json!(u64::MAX), Err(Reject::Time)),
        (json!(0), json!(u64::MAX), Err(Reject::Time)),
        (json!(u64::MAX - 1), json!(u64::MAX), Err(Reject::Time)),
        (json!(NOW), json!(1e300), Err(Reject::Time)),
        (json!(NOW), json!(-1), Err(Reject::Time)),
        (json!(-1), json!(NOW + 1), Err(Reject::Time)),
        (json!(NOW - 60), json!(NOW), Err(Reject::Expired)),
        (json!(0), json!(60), Err(Reject::Expired)),
        (json!(NOW), json!((NOW + 60).to_string()), Err(Reject::Malformed)),
        (json!(NOW), Value::Null, Err(Reject::Malformed)),
    ] {
        check(&header(), &with(with(claims(), "iat", issued), "exp", expires), expected);
    }
}

#[test]
fn claims_that_make_no_sense_are_refused() {
    for (key, value) in [
        ("sub", json!("codex:other")),
        ("session", json!("a b")),
        ("host", json!("")),
        ("parent", json!("\n")),
        ("trust", json!("none")),
        ("trust", json!("most")),
        ("source", json!("none")),
        ("source", json!("elsewhere")),
        ("ah", json!("AAAA")),
        ("ah", Value::Null),
        ("ahx", json!("RBNvo1WzZ4oRRq0W9-hknpT7T8If536DEMBg9hyq_4o")),
        ("aud", json!(["tracker", "other"])),
        ("jti", Value::Null),
        ("method", Value::Null),
    ] {
        check(&header(), &with(claims(), key, value), Err(Reject::Malformed));
    }
    check(&with(header(), "typ", "JWT"), &claims(), Err(Reject::Malformed));
    check(&with(header(), "crit", json!(["exp"])), &claims(), Err(Reject::Malformed));
    let twice = claims().to_string().replacen('{', "{\"aud\":\"other\",", 1);
    let (token, jwks) = forge(&header(), &twice);
    let verifier = Verifier::new(&jwks).unwrap().audience("tracker");
    assert_eq!(verifier.verify(&token, None, NOW), Err(Reject::Malformed));
}

#[test]
fn base64_has_one_way_to_write_a_token() {
    let place = Place::new();
    let token = place.sign(None);
    let last = token.chars().next_back().unwrap();
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let index = letters.iter().position(|letter| char::from(*letter) == last).unwrap();
    // 64 bytes leave four bits of the last letter unused.
    let same_bytes = format!("{}{}", &token[..token.len() - 1], char::from(letters[index | 1]));
    assert_ne!(same_bytes, token);
    for changed in
        [same_bytes, format!("{token}="), format!("{token}=="), format!("{token}\n"), format!(" {token}")]
    {
        assert_eq!(place.verifier().verify(&changed, None, NOW), Err(Reject::Malformed), "{changed}");
    }
    for nonsense in ["", ".", "..", "...", "a.b", "a.b.c", &"x".repeat(1 << 20)] {
        assert_eq!(place.verifier().verify(nonsense, None, NOW), Err(Reject::Malformed));
    }
    let parts: Vec<_> = token.split('.').collect();
    for changed in [format!("{}.{}", parts[0], parts[1]), format!("{token}.{}", parts[2])] {
        assert!(place.verifier().verify(&changed, None, NOW).is_err(), "{changed}");
    }
    assert_eq!(
        place.verifier().verify(&format!("{}.{}.", parts[0], parts[1]), None, NOW),
        Err(Reject::Signature)
    );
}

#[test]
fn a_rotation_reaches_signer_and_verifier() {
    let place = Place::new();
    let verifier = Verifier::from_file(place.keys.jwks_file()).unwrap().audience("tracker");
    let old = place.sign(None);
    Keyring::rotate(place.directory.path(), NOW).unwrap();
    assert!(place.keys.refresh_if_changed(NOW + 1).unwrap());
    let new = place.sign(None);
    assert_ne!(part(&old, 0)["kid"], part(&new, 0)["kid"]);
    // What the old key signed is good as long as it would have been.
    assert!(verifier.verify(&new, None, NOW).is_ok());
    assert!(verifier.verify(&old, None, NOW).is_ok());
    assert_eq!(place.verifier().verify(&old, None, NOW + 60), Err(Reject::Expired));
    // In the end its key is gone, for the verifier as well.
    let later = NOW + OVERLAP;
    Keyring::open(place.directory.path(), later).unwrap();
    assert_eq!(verifier.verify(&old, None, later), Err(Reject::Key));
    std::fs::write(place.keys.jwks_file(), "nonsense").unwrap();
    assert_eq!(verifier.verify(&new, None, later + 1), Err(Reject::Expired));
}

#[test]
fn a_set_without_a_key_of_ours_is_refused() {
    assert!(matches!(Verifier::new("nonsense"), Err(BadJwks::Garbled(_))));
    let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
    for key in [
        json!({ "kty": "RSA", "kid": "k", "n": "AQAB", "e": "AQAB" }),
        json!({ "kty": "OKP", "crv": "X25519", "x": x, "kid": "k" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": "AAAA", "kid": "k" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k", "use": "enc" }),
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": "k", "alg": "HS256" }),
    ] {
        let set = json!({ "keys": [key] }).to_string();
        assert!(matches!(Verifier::new(&set), Err(BadJwks::Empty)), "{set}");
    }
    assert!(matches!(Verifier::from_file("/no/such/file"), Err(BadJwks::Read(_))));
}

fn token_id(number: usize) -> [u8; 16] {
    (number as u128).to_le_bytes()
}

#[test]
fn memory_is_bounded_and_sound_when_full() {
    let mut used = Used::default();
    for number in 0..CAPACITY {
        assert_eq!(used.once(token_id(number), NOW + 60, NOW), Use::First);
    }
    assert_eq!(used.once(token_id(CAPACITY), NOW + 60, NOW), Use::Full);
    assert_eq!(used.once(token_id(0), NOW + 60, NOW), Use::Again);
    // There is room again when they have expired.
    assert_eq!(used.once(token_id(CAPACITY), NOW + 120, NOW + 60), Use::First);
    // A clock that goes back does not make them new.
    assert_eq!(used.once(token_id(0), NOW + 60, NOW), Use::Expired);
    assert_eq!(used.once(token_id(CAPACITY), NOW + 120, NOW), Use::Again);
}

proptest! {
    #[test]
    fn no_changed_byte_verifies(place in any::<prop::sample::Index>(), byte in 0x20..0x7f_u8) {
        let (token, jwks) = forge(&header(), &claims().to_string());
        let mut changed = token.into_bytes();
        let place = place.index(changed.len());
        prop_assume!(changed[place] != byte);
        changed[place] = byte;
        let changed = String::from_utf8(changed).unwrap();
        let verifier = Verifier::new(&jwks).unwrap().audience("tracker");
        prop_assert!(verifier.verify(&changed, None, NOW).is_err());
    }

    #[test]
    fn any_words_come_back_as_they_were(server in any::<String>(), name in any::<String>(), call in any::<String>()) {
        let place = Place::new();
        let about = About { server: &server, method: "tools/call", name: Some(&name), call: &call, arguments: None };
        let token = place.signer.sign(&identity(), &about, NOW * 1000).unwrap();
        let verified = place.verifier().verify_for(&server, &token, None, NOW).unwrap();
        prop_assert_eq!((verified.audience, verified.name, verified.call), (server, Some(name), call));
    }
}
