use proptest::prelude::*;

use super::*;

fn redactor(patterns: &[&str], secrets: &[&str]) -> Redactor {
    let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    let redactor = Redactor::new(&patterns).unwrap();
    for secret in secrets {
        redactor.learn(secret);
    }
    redactor
}

/// Without anything learnt or configured; what comes out stays as it is.
#[track_caller]
fn check(text: &str, expected: &str) {
    let redactor = Redactor::default();
    let once = redactor.redact(text);
    assert_eq!(once, expected, "for\n{text}");
    assert_eq!(redactor.redact(&once), expected, "the second time, for\n{text}");
}

#[track_caller]
fn untouched(text: &str) {
    assert!(matches!(Redactor::default().redact(text), Cow::Borrowed(same) if same == text), "for\n{text}");
    let json = serde_json::to_string(text).unwrap();
    assert_eq!(Redactor::default().redact(&json), json);
}

#[track_caller]
fn knows(secret: &str, text: &str, expected: &str) {
    assert_eq!(redactor(&[], &[secret]).redact(text), expected, "for {secret:?} in\n{text}");
}

#[test]
fn what_looks_like_a_credential() {
    check("Authorization: Bearer abc\r\nHost: x", "Authorization: [redacted]\r\nHost: x");
    check("-H \"authorization: Basic YW5uOnB3\" x", "-H \"authorization: [redacted]\" x");
    check("sent Bearer abc123.x-y_z~+/= to", "sent Bearer [redacted] to");
    check("Bearer%20abc123def&x", "Bearer%20[redacted]&x");
    check("a basic YW5uOnB3 b", "a basic [redacted] b");
    check("(sk-CANARY-7f3a)", "([redacted])");
    check("x=sk-ant-api03-abcdefghijkl", "x=[redacted]");
    check("ghp_0123456789abcdef, github_pat_11ABC_defghij", "[redacted], [redacted]");
    check("\"AKIAIOSFODNN7EXAMPLE\"", "\"[redacted]\"");
    check("%20ghp_0123456789abcdef \\nghp_0123456789abcdef", "%20[redacted] \\n[redacted]");
    check("jwt eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0. end", "jwt [redacted] end");
    check("a eyJhbGciOiJkaXIifQ..aXY.Y3Q.dGFn b", "a [redacted] b");
    check("postgres://ann:p%40ss@db.example/x", "postgres://ann:[redacted]@db.example/x");
    check("https://0123456789abcdef@git.example/", "https://[redacted]@git.example/");
    let key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd==\n-----END RSA PRIVATE KEY-----";
    check(&format!("a\n{key}\nb"), "a\n[redacted]\nb");
    check(&format!("{key}{key}"), "[redacted]");
    check("x -----BEGIN PRIVATE KEY-----\nMIIE cut off", "x [redacted]");
}

#[test]
fn what_has_a_telling_name() {
    check(
        "https://x.example/a?page=1&access_token=abc&b=2",
        "https://x.example/a?page=1&access_token=[redacted]&b=2",
    );
    check("?X-Amz-Security-Token=a%2Fb#c d", "?X-Amz-Security-Token=[redacted] d");
    check("to=%2Fa%3Ftoken%3Dabc%26b%3D1", "to=%2Fa%3Ftoken%3D[redacted]%26b%3D1");
    check("user[password]=hunter2&x", "user[password]=[redacted]&x");
    check(
        "export API_KEY='a b' DB_PASSWORD=hunter2 X=1",
        "export API_KEY='[redacted]' DB_PASSWORD=[redacted] X=1",
    );
    check("X-Api-Key: abc\nX-Auth-Token: Bearer abc123", "X-Api-Key: [redacted]\nX-Auth-Token: [redacted]");
    check("Set-Cookie: a=b; c=d\nx", "Set-Cookie: [redacted]\nx");
    check("{'client_secret': 'it\\'s', 'x': 1}", "{'client_secret': '[redacted]', 'x': 1}");
    check("got {\"password\" :\n \"a\\\"b\\\\\", \"x\": 1", "got {\"password\" :\n \"[redacted]\", \"x\": 1");
    check(
        "got {\"apiKey\":12345,\"tokens\":[\"a]\",{\"b\":1}],\"x\":1",
        "got {\"apiKey\":[redacted],\"tokens\":[redacted],\"x\":1",
    );
    check(r#"cut {\"password\":\"a\\\"b\\\\\",\"x\":1}"#, r#"cut {\"password\":\"[redacted]\",\"x\":1}"#);
    check(r#"cut "{\"password\":\"a" b"#, r#"cut "{\"password\":\"[redacted]" b"#);
    check("password = \"hunter2\" # toml", "password = \"[redacted]\" # toml");
}

#[test]
fn prose_and_code_stay_as_they_are() {
    for text in [
        "",
        "a bearer of bad news, a Basic understanding, basic auth",
        "risk-averse-people-2024 and disk-usage-1234567",
        "sk-learn sk-SK",
        "unexpected token } in JSON, next_token() == token::End",
        "the secret of the cookie",
        "if token == other { password != x }",
        "https://x.example/token/password?page=2",
        "git@github.com:a/b ssh://git@github.com/a",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        "eyJ and eyJabc.def",
        "AKIA and ASIA, in Asia",
        "\"has_password\": true, \"token\": null, \"secret\": \"\"",
        "token=[redacted] password: [redacted]",
    ] {
        untouched(text);
    }
}

#[test]
fn json_stays_json_and_is_looked_into() {
    check(r#"{"password": "x", "n": 1}"#, r#"{"password": "[redacted]", "n": 1}"#);
    check(r#"{"p\u0061ss-Word":{"a":[1,"}"]},"n":[ ]}"#, r#"{"p\u0061ss-Word":"[redacted]","n":[ ]}"#);
    check(
        r#"{"private_key":-1.5e3 ,"authorization":[]}"#,
        r#"{"private_key":"[redacted]" ,"authorization":[]}"#,
    );
    check(r#"[{"hasToken":true,"cookie":null}]"#, r#"[{"hasToken":true,"cookie":null}]"#);
    check(r#"{"text":"a\nBearer abc123"}"#, r#"{"text":"a\nBearer [redacted]"}"#);
    check(r#"{"Bearer abc123":1}"#, r#"{"Bearer [redacted]":1}"#);
    check(
        r#"{"content":[{"type":"text","text":"{\"token\":{\"a\":1},\"b\":\"\\u00e9\"}"}]}"#,
        r#"{"content":[{"type":"text","text":"{\"token\":\"[redacted]\",\"b\":\"\\u00e9\"}"}]}"#,
    );
    check(r#""\ud800 Bearer abc123""#, "\"\u{fffd} Bearer [redacted]\"");
    check(r#"{"token":"\ud800"}"#, r#"{"token":"[redacted]"}"#);
    let deep = format!("{}1{}", "[".repeat(129), "]".repeat(129));
    check(&deep, "\"[redacted]\"");
}

#[test]
fn what_was_learnt_goes_in_every_spelling() {
    let secret = "pä\"ss/wö rd&1";
    let json = serde_json::to_string(secret).unwrap();
    knows(secret, &format!("a {secret} b"), "a [redacted] b");
    knows(secret, &json, "\"[redacted]\"");
    knows(secret, &format!("a {json} b"), "a \"[redacted]\" b");
    knows(secret, &format!("a {} b", serde_json::to_string(&json).unwrap()), r#"a "\"[redacted]\"" b"#);
    knows(secret, r#"x "p\u00E4\"ss/w\u00f6 rd&1" x"#, "x \"[redacted]\" x");
    knows(secret, r#"x "p\u00e4\"ss\/w\u00f6 rd\u00261" x"#, "x \"[redacted]\" x");
    knows(secret, "x=p%C3%A4%22ss%2Fw%c3%b6%20rd%261&y", "x=[redacted]&y");
    knows(secret, "x=p%C3%A4%22ss%2Fw%C3%B6+rd%261&y", "x=[redacted]&y");
    knows(secret, "cMOkInNzL3fDtiByZCYx", "[redacted]");
    knows("ab?>ab?>ab?>", "YWI_PmFiPz5hYj8-", "[redacted]");
    knows("ab?>ab?>ab?>", "YWI/PmFiPz5hYj8+", "[redacted]");
    knows("12345678", r#"{"n":12345678,"m":1}"#, r#"{"n":"[redacted]","m":1}"#);
    knows("12345678", "12345678", "\"[redacted]\"");
    knows("  hunter222\n", "a hunter222 b", "a [redacted] b");
    // Two that touch or overlap are one.
    assert_eq!(redactor(&[], &["hunter222", "222swordfish"]).redact("hunter222222swordfish!"), "[redacted]!");
}

#[test]
fn what_is_part_of_a_secret_is_one() {
    knows("Bearer opaque-value", "a opaque-value b", "a [redacted] b");
    knows("Basic YW5uOnN3b3JkZmlzaA==", "a swordfish b", "a [redacted] b");
    knows("postgres://ann:sword%40fish@db/x", "a sword@fish b sword%40fish", "a [redacted] b [redacted]");
    knows(r#"{"Authorization":"Bearer opaque-value"}"#, "a opaque-value b", "a [redacted] b");
    let long = "0123456789abcdef".repeat(5000);
    knows(&long, &format!("a{long}b"), "a[redacted]b");
}

/// It could not be taken out without breaking the JSON.
#[test]
fn a_secret_across_json_takes_all_with_it() {
    knows(r#"a","b":"c"#, r#"{"x":"a","b":"c"}"#, "\"[redacted]\"");
    knows("redacted]!x", "sent Bearer abc123!x", "[redacted]");
}

#[test]
fn what_is_plainly_no_secret_is_not_learnt() {
    for value in [
        "hunter2",
        "        true        ",
        "********",
        "/usr/bin/env",
        "/usr/local/bin:/usr/bin:/bin:~/bin",
        "http://127.0.0.1:4318/",
        "https://collector.example",
        "127.0.0.1:8080",
        "localhost:3000",
        "en_US.UTF-8",
        "application/json",
        "redacted",
        "[Redacted]",
    ] {
        knows(value, &format!("a {value} b"), &format!("a {value} b"));
    }
    for value in
        ["/abcd+efgh/ijkl==", "https://hooks.example/services/T0/B0", "hunter22", "12345678", "a:b/usr/c"]
    {
        assert_eq!(redactor(&[], &[value]).redact(&format!("a {value} b")), "a [redacted] b");
    }
}

#[test]
fn the_oldest_is_forgotten_first_and_what_stays_never() {
    let redactor = Redactor::default();
    redactor.learn_for_good("configured-secret");
    redactor.learn("kept-because-used");
    redactor.learn("forgotten-one");
    for number in 0..1022 {
        redactor.learn(&format!("number-{number:06}"));
        redactor.learn("kept-because-used");
    }
    let text = "configured-secret kept-because-used forgotten-one number-000000 number-001021";
    assert_eq!(redactor.redact(text), "[redacted] [redacted] [redacted] [redacted] [redacted]");
    redactor.learn("one-more-secret");
    assert_eq!(redactor.redact(text), "[redacted] [redacted] forgotten-one number-000000 [redacted]");
    assert_eq!(redactor.redact("one-more-secret"), "[redacted]");
}

#[test]
fn of_two_that_begin_alike_the_longer_goes() {
    let redactor =
        redactor(&[], &["abcdefgh", "abcdefghij", "abcdefghijklmnop", "abcdefghik", "ABCDEFGHIJKL"]);
    for (text, expected) in [
        ("abcdefgh", "[redacted]"),
        ("abcdefghi", "[redacted]i"),
        ("abcdefghijk", "[redacted]k"),
        ("abcdefghijkm", "[redacted]km"),
        ("abcdefghijklmnoz", "[redacted]mnoz"),
        ("abcdefghijklmnopq", "[redacted]q"),
        ("abcdefghiz", "[redacted]iz"),
        ("aabcdefgabcdefgh", "aabcdefg[redacted]"),
        ("abcdefg", "abcdefg"),
    ] {
        assert_eq!(redactor.redact(text), expected);
    }
}

#[test]
fn configured_patterns() {
    let redactor = redactor(&[r"\bcase-\d+\b", "(?i)straße .*", "^4[0-9]{15}$"], &[]);
    assert_eq!(redactor.redact("see case-12 and case-345x"), "see [redacted] and case-345x");
    assert_eq!(redactor.redact("x STRASSE Straße 7, Bonn\nnext"), "x STRASSE [redacted]\nnext");
    assert_eq!(
        redactor.redact(r#"{"a":"straße \"7\"","case-1":[4111111111111111,41]}"#),
        r#"{"a":"[redacted]","[redacted]":["[redacted]",41]}"#
    );
}

#[test]
fn patterns_that_cannot_be_used() {
    let new = |patterns: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        Redactor::new(&patterns).unwrap_err()
    };
    assert_eq!(new(&["a", "(b"]), (1, "unclosed group".to_owned()));
    assert_eq!(new(&["(?=b)"]).0, 0);
    let nothing = "it matches a text without anything in it; make it want something";
    assert_eq!(new(&["x*"]), (0, nothing.to_owned()));
    let (_, problem) = new(&[r"\w{5000}{5000}"]);
    assert!(!problem.is_empty() && !problem.contains('\n'), "{problem}");
}

#[test]
fn what_it_knows_is_not_shown() {
    let shown = format!("{:?}", redactor(&["a+"], &["sk-CANARY-7f3a"]));
    assert!(shown.contains("a+") && !shown.contains("CANARY"), "{shown}");
}

/// 1 MiB of what each part likes least: milliseconds where time grows with the text, minutes where with its square.
#[test]
fn no_text_takes_long() {
    let secrets: Vec<String> = (0..1024).map(|number| format!("aaaaaaaaaaaaaaaa{number:08}\"é")).collect();
    let redactor = redactor(&[r"\bcase-\d+\b", r"(?i)iban [a-z]{2}\d+"], &[]);
    for secret in &secrets {
        redactor.learn(secret);
    }
    redactor.redact("");
    for piece in [
        "a",
        "\\",
        "\"",
        "'",
        "{\"",
        "[",
        "eyJ",
        "-eyJ",
        "xsk-",
        "sk-",
        "Bearer ",
        "bearer",
        "password",
        "password ",
        "password:",
        "\"token\":[\\",
        "\"token\":\"\\",
        "token=\\\"",
        "://",
        "://a@",
        "-----BEGIN",
        "cookie:",
        "AKIA",
        "%20AKIA",
        "-----BEGIN PRIVATE KEY",
        "aaaaaaaaaaaaaaaa0000",
        "case-",
        "\"a\",",
        "{\"token\":",
        "1,",
    ] {
        let text = piece.repeat((1 << 20) / piece.len());
        for text in
            [format!("[{}1]", text.trim_end_matches(',')), serde_json::to_string(&text).unwrap(), text]
        {
            let begun = Instant::now();
            let length = redactor.redact(&text).len();
            let took = begun.elapsed();
            assert!(took < Duration::from_secs(5), "{piece:?}: {took:?} for {length}");
        }
    }
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let word = prop_oneof![
        ".{0,12}",
        "[a-c\"\\\\/ é]{0,12}",
        Just("password".to_owned()),
        Just("{\"token\":\"a\"}".to_owned()),
        Just("Bearer abc123".to_owned()),
        Just("x\"password\":\"y".to_owned()),
    ];
    let leaf = prop_oneof![
        any::<bool>().prop_map(serde_json::Value::from),
        any::<i64>().prop_map(serde_json::Value::from),
        any::<f64>().prop_map(serde_json::Value::from),
        word.clone().prop_map(serde_json::Value::from),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(4, 32, 5, move |inner| {
        let members = prop::collection::vec((word.clone(), inner.clone()), 0..5);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
            members.prop_map(|members| members.into_iter().collect()),
            // JSON in a string.
            inner.prop_map(|inner| serde_json::Value::from(inner.to_string())),
        ]
    })
}

proptest! {
    #[test]
    fn json_remains_json_without_what_is_known(
        value in any_json(),
        pretty in any::<bool>(),
        others in prop::collection::vec("[a-c\"\\\\/:,{}é ]{8,12}|[0-9]{8}", 0..4),
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        // One that is certainly in it, wherever it lies.
        let characters: Vec<char> = text.chars().collect();
        let (from, to) = (cut.0.index(characters.len()), cut.1.index(characters.len()));
        let inside: String = characters[from.min(to)..=from.max(to)].iter().collect();
        let redactor = redactor(&["[bc]+a", "é"], &[]);
        for secret in others.iter().chain([&inside]) {
            redactor.learn(secret);
        }
        let out = redactor.redact(&text);
        prop_assert!(serde_json::from_str::<serde::de::IgnoredAny>(&out).is_ok(), "{out}");
        for secret in others.iter().chain([&inside]).filter(|secret| !known::is_plain(secret.trim())) {
            prop_assert!(!out.contains(secret.trim()), "{secret:?} in {out}");
        }
    }

    #[test]
    fn no_text_makes_it_panic_or_keeps_what_is_known(
        text in ".{0,60}|([{}\\[\\]:=,\"'\\\\ a-c&%]|token|password|Bearer |sk-|://|é|-----BEGIN|PRIVATE KEY){0,40}",
        cut in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let characters: Vec<char> = text.chars().chain(['x']).collect();
        let (from, to) = (cut.0.index(characters.len()), cut.1.index(characters.len()));
        let secret: String = characters[from.min(to)..=from.max(to)].iter().collect();
        let redactor = redactor(&["a+"], &[&secret]);
        let out = redactor.redact(&text);
        if !known::is_plain(secret.trim()) {
            prop_assert!(!out.contains(secret.trim()), "{secret:?} in {out}");
        }
    }
}
