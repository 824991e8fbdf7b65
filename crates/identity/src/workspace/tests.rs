use std::os::unix::fs::symlink;

use tempfile::TempDir;

use super::*;

/// `<root>/a`, `<root>/b c`, `<root>/file`, `<root>/to-a` → `a`, `<root>/out` → `<outside>`; and `<outside>/secret`.
struct Place {
    _directory: TempDir,
    root: PathBuf,
    outside: PathBuf,
    roots: Roots,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let base = fs::canonicalize(directory.path()).unwrap();
        let (root, outside) = (base.join("root"), base.join("outside"));
        for path in [root.join("a/deep"), root.join("b c"), outside.join("secret"), base.join("root-too")] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(root.join("file"), "").unwrap();
        symlink("a", root.join("to-a")).unwrap();
        symlink(&outside, root.join("out")).unwrap();
        symlink("loop", root.join("loop")).unwrap();
        symlink(&root, base.join("to-root")).unwrap();
        // Allowed under a name that is a link itself.
        let roots = Roots::new(vec![base.join("to-root")]);
        Self { _directory: directory, root, outside, roots }
    }

    fn path(&self, relative: &str) -> String {
        self.root.join(relative).to_str().unwrap().to_owned()
    }

    #[track_caller]
    fn check(&self, explicit: Option<&str>, ambient: Option<&str>, expected: (&str, From, Option<&str>)) {
        let (path, from, differs) = expected;
        let expected = Resolved { path: self.root.join(path), from, differs: differs.map(str::to_owned) };
        assert_eq!(resolve(explicit, ambient, &self.roots).unwrap(), expected);
    }

    #[track_caller]
    fn refused(&self, text: &str, expected: &str) {
        for (explicit, ambient) in [(Some(text), None), (None, Some(text))] {
            let message = resolve(explicit, ambient, &self.roots).unwrap_err().to_string();
            assert!(message.contains(expected), "{text:?}: {message}");
            assert!(message.contains(&format!("{:?}", text.trim())), "{message}");
        }
    }
}

#[test]
fn explicit_comes_first_then_the_session() {
    let place = Place::new();
    let (a, b, link) = (&*place.path("a"), &*place.path("b c"), &*place.path("to-a"));
    place.check(Some(a), None, ("a", From::Explicit, None));
    place.check(None, Some(a), ("a", From::Ambient, None));
    place.check(Some(a), Some(a), ("a", From::Explicit, None));
    place.check(Some(b), Some(a), ("b c", From::Explicit, Some(a)));
    // The same place under another name is no difference.
    place.check(Some(link), Some(a), ("a", From::Explicit, None));
    place.check(Some(a), Some(&format!("{a}/deep/../")), ("a", From::Explicit, None));
    place.check(Some(a), Some(&format!("file://{a}")), ("a", From::Explicit, None));
    // A session's workspace that is no good does not stand in the way of an explicit one.
    place.check(Some(a), Some("/no/such/place"), ("a", From::Explicit, Some("/no/such/place")));
    place.check(None, Some(link), ("a", From::Ambient, None));
}

#[test]
fn blank_is_absent() {
    let place = Place::new();
    let a = &*place.path("a");
    for blank in ["", " ", "\t\n "] {
        place.check(Some(blank), Some(a), ("a", From::Ambient, None));
        place.check(Some(a), Some(blank), ("a", From::Explicit, None));
        assert!(matches!(resolve(Some(blank), Some(blank), &place.roots), Err(WorkspaceError::Missing)));
    }
    place.check(Some(&format!(" {a}\n")), None, ("a", From::Explicit, None));
}

#[test]
fn neither_is_an_error_that_names_both_ways() {
    let message = resolve(None, None, &Roots::default()).unwrap_err().to_string();
    for part in ["argument `workspace`", "initialize", "orbit.workspace"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn an_explicit_one_that_is_no_good_is_not_replaced_by_the_sessions() {
    let place = Place::new();
    let missing = place.path("missing");
    let result = resolve(Some(&missing), Some(&place.path("a")), &place.roots);
    assert!(matches!(result, Err(WorkspaceError::Unreachable { .. })));
}

#[test]
fn what_is_no_workspace_is_refused_with_its_reason() {
    let place = Place::new();
    let outside = place.outside.to_str().unwrap();
    let rows = [
        (place.path("missing"), "does not exist"),
        (place.path("file"), "not a directory"),
        (place.path("file/beneath"), "does not exist"),
        (place.path("loop"), "does not exist"),
        (place.path("out"), "not beneath"),
        (place.path("out/secret"), "not beneath"),
        (place.path("out/missing"), "not beneath"),
        (place.path("a/../../outside"), "not beneath"),
        (place.path("../root-too"), "not beneath"),
        (place.path(".."), "not beneath"),
        (outside.to_owned(), "not beneath"),
        // What is there and what is not cannot be told apart outside.
        (format!("{outside}/secret"), "not beneath"),
        (format!("{outside}/missing"), "not beneath"),
        ("/".to_owned(), "not beneath"),
        ("a".to_owned(), "not an absolute path"),
        (".".to_owned(), "not an absolute path"),
        ("~/a".to_owned(), "not an absolute path"),
        ("C:\\a".to_owned(), "not an absolute path"),
        ("vscode-remote://host/a".to_owned(), "not an absolute path"),
        (place.path("a\0"), "control characters"),
        (place.path("a\nb"), "control characters"),
        (place.path("a\u{85}b"), "control characters"),
        (format!("file://{}%00", place.path("a")), "control characters"),
        (format!("file://elsewhere{}", place.path("a")), "no file URI"),
        (format!("file://{}?x=1", place.path("a")), "no file URI"),
        (format!("file://{}%4", place.path("a")), "no file URI"),
        (format!("file://{}%ff", place.path("a")), "no file URI"),
        ("file://".to_owned(), "no file URI"),
        ("file:a".to_owned(), "no file URI"),
        (format!("/{}", "x".repeat(10_000)), "not beneath"),
    ];
    for (text, expected) in rows {
        place.refused(&text, expected);
    }
}

#[test]
fn file_uris_are_paths() {
    let place = Place::new();
    let b = place.path("b c").replace(' ', "%20");
    for uri in
        [format!("file://{b}"), format!("FILE://LOCALHOST{b}"), format!("file:{b}"), format!("file://{b}/")]
    {
        place.check(Some(&uri), None, ("b c", From::Explicit, None));
    }
    place.check(Some(&format!("file://{}%2fdeep", place.path("a"))), None, ("a/deep", From::Explicit, None));
}

#[test]
fn a_root_itself_is_allowed_and_no_roots_allow_nothing() {
    let place = Place::new();
    place.check(Some(&place.path("")), None, ("", From::Explicit, None));
    for roots in
        [vec![], vec![PathBuf::from("/no/such/root")], vec![PathBuf::from("")], vec![PathBuf::from(".")]]
    {
        let result = resolve(Some(&place.path("a")), None, &Roots::new(roots));
        assert!(matches!(result, Err(WorkspaceError::OutsideRoots { .. })));
    }
}

#[test]
fn a_client_announces_its_workspace_nested_or_flat() {
    for (meta, expected) in [
        (r#"{"orbit":{"workspace":"/a"}}"#, Some("/a")),
        (r#"{"orbit.workspace":"/a"}"#, Some("/a")),
        (r#"{"orbit":{"workspace":" /a "},"x":1}"#, Some("/a")),
        (r#"{"orbit":{"workspace":"/a"},"orbit.workspace":"/b"}"#, Some("/a")),
        (r#"{"orbit":{"workspace":" "},"orbit.workspace":"/b"}"#, Some("/b")),
        (r#"{"orbit":7,"orbit.workspace":"/b"}"#, Some("/b")),
        (r#"{"orbit":{"workspace":7}}"#, None),
        (r#"{"orbit":{"workspace":""}}"#, None),
        (r#"{"orbit":{"workspace":null}}"#, None),
        (r#"{"orbit":{}}"#, None),
        (r#"{"orbit.workspace":["/a"]}"#, None),
        // Another reader may take the other one.
        (r#"{"orbit":{"workspace":"/a","workspace":"/b"}}"#, None),
        (r#"{"orbit":{"workspace":"/a"},"orbit":{"workspace":"/b"}}"#, None),
        ("{}", None),
        ("null", None),
        ("", None),
        ("{\"orbit\"", None),
    ] {
        assert_eq!(ambient_from_meta(meta.as_bytes()).as_deref(), expected, "{meta}");
    }
}
