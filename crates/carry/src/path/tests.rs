use super::*;

#[track_caller]
fn check(path: &[u8], expected: Result<(), BadPath>) {
    assert_eq!(Rel::new(path).map(|_| ()), expected, "{}", shown(path));
}

#[test]
fn plain_paths_are_taken_whatever_their_bytes() {
    for path in [
        &b"a"[..],
        b"a/b/c.txt",
        b"with space/\"quoted\"\n",
        b"\xff\xfe",
        b".gitignore",
        b"a/.gitattributes",
        b".github/workflows/ci.yml",
        b"..a/...b",
        b"git/x",
        b"digit",
        b"a:b",
        b"back\\slash",
        b".hgignore",
    ] {
        check(path, Ok(()));
    }
}

#[test]
fn what_leads_out_or_is_no_path_is_refused() {
    for path in [
        &b""[..],
        b"/",
        b"/etc/passwd",
        b"..",
        b"a/../b",
        b"a//b",
        b"a/",
        b"./a",
        b"a/.",
        b"a\0b",
        b"a\\..\\b",
    ] {
        check(path, Err(BadPath::NotPlain));
    }
    check(&[b'a'; 256], Err(BadPath::TooLong));
    check(&b"a/".repeat(20_000), Err(BadPath::TooLong));
    check("a/".repeat(DEEPEST + 1).trim_end_matches('/').as_bytes(), Err(BadPath::TooLong));
}

#[test]
fn no_spelling_of_dot_git_is_taken() {
    for path in [
        ".git",
        ".git/config",
        "a/b/.git/hooks/post-checkout",
        ".GIT/config",
        ".Git",
        ".git.",
        ".git ",
        ".git. . .",
        ".git::$INDEX_ALLOCATION/config",
        ".git:stream",
        "git~1/config",
        "GIT~2",
        ".g\u{200c}it/config",
        "\u{feff}.git",
        ".gi\u{ad}t",
        ".g\u{131}t",
        ".G\u{130}T",
        "a\\.git\\config",
        ".git\\config",
        ".hg/hgrc",
        "sub/.SVN",
    ] {
        check(path.as_bytes(), Err(BadPath::VersionControl));
    }
    for path in [".gitmodules", ".GitModules", "gitmod~1", "gi7eba~1", ".gitmodules "] {
        check(path.as_bytes(), Err(BadPath::Submodules));
    }
    check(b".callsign-apply-1/x", Err(BadPath::Ours));
    check(b"a/.callsign-apply-1", Ok(()));
}

#[test]
fn a_path_comes_back_from_json_as_it_was() {
    for bytes in [&b"a/b"[..], b"\xff\xfe", b"new\nline", "ü".as_bytes()] {
        let path = Rel::new(bytes).unwrap();
        let text = serde_json::to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Rel>(&text).unwrap(), path);
    }
    assert!(serde_json::from_str::<Rel>("\"../a\"").is_err());
}

#[test]
fn a_message_shows_no_control_characters() {
    assert_eq!(shown(b"a\n\x1b[31m"), "a\\u{a}\\u{1b}[31m");
}
