//! What the box writes while an import is under way: between looking and writing git makes a repository, and here the box
//! is what git was told to be.

use std::os::unix::fs::symlink;

use super::*;

/// A host's repository with files `a`, `b` and `c`, and a box that runs `does` in the workspace once all was looked at.
fn world(does: &str) -> World {
    let mut world = World::new();
    for name in ["a", "b", "c"] {
        put(&world.host(), name, "host");
    }
    git_must(&world.host(), &["init", "-q"]);
    let script = world.at("git.sh");
    let workspace = world.workspace();
    let text = format!(
        "#!/bin/sh\ncase \"$*\" in *fast-import*) (cd '{}' && {does});; esac\nexec git \"$@\"\n",
        workspace.display()
    );
    fs::write(&script, text).unwrap();
    executable(&script, true);
    world.git.program = script;
    world
}

/// What the box did stays, and all else is as it was before.
#[track_caller]
fn refused(world: &World, changed: &[(&str, Option<Item>)]) {
    let mut expected = tree(&world.workspace());
    for (path, item) in changed {
        match item {
            Some(item) => expected.insert((*path).into(), item.clone()),
            None => expected.remove(Path::new(path)),
        };
    }
    let result = world.import();
    let named = matches!(&result, Err(CarryError::Different(list)) if list.first[0].to_string() == "b");
    assert!(named, "{result:?}");
    assert_eq!(tree(&world.workspace()), expected);
    assert!(!world.workspace().join(".git").exists());
    assert!(matches!(world.changes(), Err(CarryError::NoBaseline)));
}

fn file(content: &str) -> Item {
    Item::File { content: content.into(), executable: false }
}

#[test]
fn what_it_makes_is_not_overwritten() {
    for existing in [Existing::Refuse, Existing::Replace] {
        let world = World { existing, ..world("printf box >b") };
        refused(&world, &[("b", Some(file("box")))]);
    }
}

#[test]
fn what_is_replaced_is_what_was_looked_at() {
    let check = |does: &str, made: &[(&str, Option<Item>)]| {
        let world = World { existing: Existing::Replace, ..world(does) };
        for name in ["a", "b", "c"] {
            put(&world.workspace(), name, "old");
        }
        refused(&world, made);
    };
    check("printf box >b", &[("b", Some(file("box")))]);
    // As editors do it.
    check("printf box >x && mv x b", &[("b", Some(file("box")))]);
    check("rm b && mkdir b && printf box >b/x", &[("b", None), ("b/x", Some(file("box")))]);
    check("rm b && ln -s a b", &[("b", Some(Item::Link("a".into())))]);
    check("chmod +x b", &[("b", Some(Item::File { content: b"old".into(), executable: true }))]);
}

#[test]
fn a_file_too_big_to_be_read_is_replaced_only_as_it_was() {
    let big = |does| {
        let mut world = World { existing: Existing::Replace, ..world(does) };
        world.limits.one_file = 100;
        put(&world.workspace(), "b", vec![b'x'; 200]);
        world
    };
    let world = big("printf y >>b");
    refused(&world, &[("b", Some(file(&("x".repeat(200) + "y"))))]);
    let world = big("true");
    world.import().unwrap();
    assert_eq!(fs::read(world.workspace().join("b")).unwrap(), b"host");
}

#[test]
fn what_it_removes_meanwhile_comes_back_only_where_all_is_replaced() {
    let world = world("rm b");
    // Imported, and changed on the host since.
    let first = World { git: Git::default(), ..world };
    first.import().unwrap();
    fs::remove_dir_all(first.workspace().join(".git")).unwrap();
    put(&first.host(), "b", "newer");
    let mut again = World { git: Git { program: first.at("git.sh"), ..Git::default() }, ..first };
    let result = again.import();
    assert!(matches!(&result, Err(CarryError::Different(_))), "{result:?}");
    assert!(!again.workspace().join("b").exists());
    put(&again.workspace(), "b", "box");
    again.existing = Existing::Replace;
    again.import().unwrap();
    assert_eq!(fs::read(again.workspace().join("b")).unwrap(), b"newer");
}

#[test]
fn links_are_replaced_only_as_they_were() {
    let world = World { existing: Existing::Replace, ..world("rm b && ln -s c b") };
    symlink("a", world.workspace().join("b")).unwrap();
    refused(&world, &[("b", Some(Item::Link("c".into())))]);
}
