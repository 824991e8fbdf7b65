//! Random trees and random work on them: a patch, git and an apply all lead to what the box has.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Edit {
    Write(usize, Vec<u8>),
    Delete(usize),
    Executable(usize, bool),
    Change(usize, usize),
}

const NAMES: [&[u8]; 14] = [
    b"a",
    b"b",
    b"c.txt",
    b"d/e",
    b"d/f/g",
    b"d/f/h.rs",
    b"with space",
    b"\"quoted\"",
    b"new\nline",
    b"back\\slash",
    b"\xff\xfe latin",
    "d/\u{fc}ml\u{e4}ut".as_bytes(),
    b"-dash",
    b"a b/ c ",
];

fn path(number: usize) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(NAMES[number]))
}

fn content() -> impl Strategy<Value = Vec<u8>> {
    let line = prop::sample::select(vec![
        "one",
        "two",
        "",
        "three ",
        "-- a",
        "+++ b",
        "@@",
        "\tx\r",
        "\\ No newline",
        "ü",
    ]);
    let lines = |most| prop::collection::vec(line.clone(), 0..most);
    prop_oneof![
        4 => (lines(40), any::<bool>()).prop_map(|(lines, end)| {
            (lines.join("\n") + if end { "\n" } else { "" }).into_bytes()
        }),
        1 => lines(4).prop_map(|lines| lines.join("\r").into_bytes()),
        2 => prop::collection::vec(any::<u8>(), 0..300),
        1 => Just(Vec::new()),
        1 => Just(vec![0; 5000]),
    ]
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let number = 0..NAMES.len();
    let edit = prop_oneof![
        3 => (number.clone(), content()).prop_map(|(number, content)| Edit::Write(number, content)),
        2 => number.clone().prop_map(Edit::Delete),
        1 => (number.clone(), any::<bool>()).prop_map(|(number, yes)| Edit::Executable(number, yes)),
        2 => (number, 0..30_usize).prop_map(|(number, line)| Edit::Change(number, line)),
    ];
    prop::collection::vec(edit, 0..12)
}

fn contents(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let content = |item| if let Item::File { content, .. } = item { content } else { Vec::new() };
    tree(root).into_iter().map(|(path, item)| (path, content(item))).collect()
}

fn write(root: &Path, number: usize, content: &[u8]) {
    let at = root.join(path(number));
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    fs::write(at, content).unwrap();
}

fn edit(root: &Path, edit: &Edit) {
    match edit {
        Edit::Write(number, content) => write(root, *number, content),
        Edit::Delete(number) => {
            let _was_not_there = fs::remove_file(root.join(path(*number)));
        }
        Edit::Executable(number, yes) => {
            let at = root.join(path(*number));
            if at.exists() {
                executable(&at, *yes);
            }
        }
        Edit::Change(number, line) => {
            let at = root.join(path(*number));
            if let Ok(content) = fs::read(&at) {
                let mut lines: Vec<&[u8]> = content.split(|&byte| byte == b'\n').collect();
                let place = line % lines.len();
                lines[place] = b"changed";
                fs::write(at, lines.join(&b'\n')).unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_the_box_has_comes_out(
        before in prop::collection::vec((0..NAMES.len(), content(), any::<bool>()), 0..14),
        work in edits(),
        turned in any::<bool>(),
        spoilt in any::<prop::sample::Index>(),
    ) {
        let world = World::new();
        let (host, workspace) = (world.host(), world.workspace());
        for (number, content, yes) in &before {
            write(&host, *number, content);
            executable(&host.join(path(*number)), *yes);
        }
        world.import().unwrap();
        prop_assert_eq!(tree(&host), tree(&workspace));
        prop_assert!(world.changes().unwrap().is_empty());

        for one in &work {
            edit(&workspace, one);
        }
        if turned {
            // A file becomes a directory and a directory a file.
            if fs::remove_file(workspace.join("a")).is_ok() {
                put(&workspace, "a/inner/file", "x");
            }
            if fs::remove_dir_all(workspace.join("d")).is_ok() {
                put(&workspace, "d", "was a directory");
            }
        }
        let wanted = tree(&workspace);
        let changes = world.changes().unwrap();
        prop_assert!(changes.left_out.is_empty(), "{:?}", changes.left_out);

        let copy = world.at("copy");
        copy_tree(&host, &copy);
        let patch = world.patch();
        fs::write(world.at("patch"), &patch).unwrap();
        if !patch.is_empty() {
            git_must(&copy, &["apply", "--whitespace=nowarn", "../patch"]);
        }
        prop_assert_eq!(&tree(&copy), &wanted, "{}", patch);
        if !patch.is_empty() {
            git_must(&copy, &["apply", "--whitespace=nowarn", "-R", "../patch"]);
        }
        // Backwards, git forgets the mode of an empty file.
        prop_assert_eq!(contents(&copy), contents(&host), "{}", patch);
        fs::remove_dir_all(&copy).unwrap();
        copy_tree(&host, &copy);

        // Something else on the host: nothing at all is changed.
        if !changes.files.is_empty() {
            let change = spoilt.get(&changes.files);
            let at = copy.join(change.path.as_path());
            if !at.is_dir() && fs::create_dir_all(at.parent().unwrap()).is_ok() {
                fs::write(&at, "the host's own, unlike anything else").unwrap();
                let as_it_is = tree(&copy);
                let refused = world.apply_to(&copy);
                prop_assert!(matches!(&refused, Err(CarryError::Conflicts(_))), "{:?}", refused);
                prop_assert_eq!(tree(&copy), as_it_is);
            }
        }

        let applied = world.apply().unwrap();
        prop_assert_eq!(&tree(&host), &wanted);
        prop_assert_eq!(applied.changed + applied.already, changes.files.len());
        prop_assert!(world.left_nothing());
        let again = world.apply().unwrap();
        prop_assert_eq!(again.changed, 0);
    }
}
