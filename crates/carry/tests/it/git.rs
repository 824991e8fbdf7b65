//! Repositories as people have them.

use std::os::unix::fs::symlink;

use carry::{Repository, Why};

use super::*;

const CANARY: &str = "sk-CANARY-7f3a";

fn repository(at: &Path) {
    fs::create_dir_all(at).unwrap();
    git_must(at, &["init", "-q", "-b", "main"]);
    put(at, "README.md", "hello\n");
    put(at, "src/main.rs", "fn main() {}\n");
    put(at, "run.sh", "#!/bin/sh\n");
    executable(&at.join("run.sh"), true);
    put(at, ".gitignore", "*.log\n/build/\n.env\n");
    put(at, "sub/.gitignore", "local\n");
    git_must(at, &["add", "."]);
    git_must(at, &["commit", "-qm", "first"]);
}

fn names(world: &World) -> Vec<String> {
    tree(&world.workspace()).keys().map(|path| path.display().to_string()).collect()
}

/// No file of the workspace, `.git` included, has the canary in its name or content, packed or not.
fn no_canary(world: &World) {
    let found = Command::new("grep").args(["-ral", CANARY]).arg(world.workspace()).output().unwrap();
    assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    let objects = git(&world.workspace(), &["cat-file", "--batch-all-objects", "--batch"]);
    assert!(!String::from_utf8_lossy(&objects.stdout).contains(CANARY));
}

#[test]
fn what_git_ignores_stays_out_and_git_works_in_the_box() {
    let world = World::new();
    let host = world.host();
    repository(&host);
    put(&host, ".env", CANARY);
    put(&host, "debug.log", CANARY);
    put(&host, "build/out", CANARY);
    put(&host, "sub/local", CANARY);
    put(&host, "untracked.txt", "new");
    put(&host, "private", CANARY);
    put(&host, ".git/info/exclude", "private\n");
    fs::remove_file(host.join("src/main.rs")).unwrap();
    let imported = world.import().unwrap();
    assert_eq!(imported.repository, Repository::Made);
    assert!(imported.left_out.is_empty(), "{:?}", imported.left_out);
    assert_eq!(names(&world), [".gitignore", "README.md", "run.sh", "sub/.gitignore", "untracked.txt"]);
    no_canary(&world);

    let workspace = world.workspace();
    assert_eq!(git_must(&workspace, &["status", "--porcelain"]), "");
    assert_eq!(git_must(&workspace, &["log", "--format=%s"]), "Workspace as it was imported\n");
    assert_eq!(git_must(&workspace, &["branch", "--show-current"]), "main\n");
    git_must(&workspace, &["fsck", "--strict"]);
    put(&workspace, "README.md", "hello\nworld\n");
    git_must(&workspace, &["commit", "-qam", "work"]);

    // What a build leaves is not carried back, by the rules of the host's exclude as well.
    put(&workspace, "build/big", "x");
    put(&workspace, "more.log", "x");
    put(&workspace, "private", "x");
    put(&workspace, "made.txt", "x");
    let changes = world.changes().unwrap();
    assert_eq!(changes.ignored, Some(3));
    let paths: Vec<_> = changes.files.iter().map(|change| change.path.to_string()).collect();
    assert_eq!(paths, ["README.md", "made.txt"]);
    world.apply().unwrap();
    assert_eq!(
        git_must(&host, &["status", "--porcelain"]),
        " M README.md\n D src/main.rs\n?? made.txt\n?? untracked.txt\n"
    );
    assert_eq!(fs::read_to_string(host.join("private")).unwrap(), CANARY);
}

#[test]
fn nothing_of_the_hosts_repository_enters() {
    let world = World::new();
    let host = world.host();
    repository(&host);
    // In the history, and removed for a reason.
    put(&host, "secret.txt", CANARY);
    git_must(&host, &["add", "."]);
    git_must(&host, &["commit", "-qm", &format!("oops {CANARY}")]);
    git_must(&host, &["rm", "-q", "secret.txt"]);
    git_must(&host, &["commit", "-qm", "better"]);
    git_must(&host, &["remote", "add", "origin", &format!("https://user:{CANARY}@example.com/x.git")]);
    git_must(&host, &["config", "http.extraHeader", CANARY]);
    git_must(&host, &["branch", CANARY, "HEAD~1"]);
    // What would run if we let it.
    let ran = world.at("ran");
    let trap = format!("touch {}", ran.display());
    for key in ["core.fsmonitor", "core.pager", "filter.trap.clean", "filter.trap.smudge", "core.sshCommand"]
    {
        git_must(&host, &["config", key, &trap]);
    }
    put(&host, ".gitattributes", "* filter=trap\n");
    for hook in ["post-index-change", "post-checkout", "pre-commit", "reference-transaction"] {
        put(&host, &format!(".git/hooks/{hook}"), format!("#!/bin/sh\n# {CANARY}\n{trap}\n"));
        executable(&host.join(".git/hooks").join(hook), true);
    }
    let index = fs::metadata(host.join(".git/index")).unwrap().modified().unwrap();
    world.import().unwrap();
    no_canary(&world);
    assert!(!ran.exists(), "something of the repository ran");
    assert_eq!(fs::metadata(host.join(".git/index")).unwrap().modified().unwrap(), index);
    let config = fs::read_to_string(world.workspace().join(".git/config")).unwrap();
    assert!(!config.contains("remote") && !world.workspace().join(".git/hooks").exists());
    assert_eq!(git_must(&world.workspace(), &["status", "--porcelain"]), "");
}

#[test]
fn a_boxs_repository_never_makes_us_run_anything() {
    let world = World::new();
    repository(&world.host());
    world.import().unwrap();
    let workspace = world.workspace();
    let ran = world.at("ran");
    let trap = format!("touch {}; false", ran.display());
    for key in ["core.fsmonitor", "core.pager", "filter.trap.clean", "diff.external", "core.hooksPath"] {
        git_must(&workspace, &["config", key, &trap]);
    }
    put(&workspace, ".gitattributes", "* filter=trap diff=trap\n");
    put(&workspace, "new.txt", "x");
    put(&workspace, "sub/.git/config", "[core]\n\tfsmonitor = touch\n");
    let changes = world.changes().unwrap();
    changes.patch(&PatchLimits::default()).unwrap();
    world.apply().unwrap();
    world.import().unwrap();
    assert!(!ran.exists(), "something of the box's repository ran");
    assert!(!world.host().join("sub/.git").exists());
    assert_eq!(changes.left_out.first[0].path, "sub/.git");
}

#[test]
fn submodules_and_clones_within_come_along_as_files() {
    let world = World::new();
    let host = world.host();
    repository(&world.at("other"));
    put(&world.at("other"), "left.log", CANARY);
    repository(&host);
    git_must(&host, &["submodule", "--quiet", "add", "../other", "lib"]);
    git_must(&host, &["commit", "-qm", "with a submodule"]);
    put(&host.join("lib"), "ignored.log", CANARY);
    repository(&host.join("clone"));
    put(&host, "clone/.env", CANARY);
    let imported = world.import().unwrap();
    let names = names(&world);
    for name in ["lib/README.md", "lib/src/main.rs", "clone/README.md"] {
        assert!(names.iter().any(|other| other == name), "{names:?}");
    }
    assert!(!names.iter().any(|name| name.split('/').any(|part| part == ".git")));
    // Where the submodule comes from is left behind, and told.
    assert_eq!(imported.left_out.first[0].path, ".gitmodules");
    no_canary(&world);
    put(&world.workspace(), "lib/README.md", "changed\n");
    world.apply().unwrap();
    assert_eq!(fs::read_to_string(host.join("lib/README.md")).unwrap(), "changed\n");
}

#[test]
fn a_worktree_and_a_part_of_a_repository_are_fine() {
    let world = World::new();
    let main = world.at("main");
    repository(&main);
    fs::remove_dir(world.host()).unwrap();
    git_must(&main, &["worktree", "add", "-q", "../host"]);
    put(&world.host(), "x.log", CANARY);
    assert_eq!(world.import().unwrap().files, 5);
    no_canary(&world);
    put(&world.workspace(), "README.md", "changed\n");
    world.apply().unwrap();
    assert_eq!(git_must(&world.host(), &["status", "--porcelain"]), " M README.md\n");

    let part = World::new();
    repository(&part.host());
    put(&part.host(), "src/x.log", CANARY);
    part.import_from(part.host().join("src")).unwrap();
    assert_eq!(names(&part), ["main.rs"]);
}

#[test]
fn a_directory_that_an_outer_repository_ignores_is_taken_as_it_is() {
    let world = World::new();
    let host = world.host();
    git_must(&host, &["init", "-q"]);
    put(&host, ".gitignore", "*\n");
    put(&host, "project/a.txt", "a");
    put(&host, "project/node_modules/x/y.js", "y");
    let imported = world.import_from(host.join("project")).unwrap();
    assert_eq!((imported.files, imported.repository), (1, Repository::None));
    assert_eq!(imported.left_out.first[0].why, Why::NeverWanted);
}

#[test]
fn repositories_in_a_directory_that_is_none_keep_their_ignored_files() {
    let world = World::new();
    repository(&world.host().join("one"));
    put(&world.host(), "one/.env", CANARY);
    put(&world.host(), "notes.txt", "n");
    world.import().unwrap();
    no_canary(&world);
    assert!(names(&world).contains(&"notes.txt".to_owned()));
}

#[test]
fn where_git_refuses_nothing_is_guessed() {
    let world = World::new();
    git_must(&world.host(), &["init", "-q", "--bare"]);
    assert!(matches!(world.import(), Err(CarryError::NoWorkTree { .. })));

    let world = World::new();
    put(&world.host(), ".git", "gitdir: /nowhere/at/all\n");
    put(&world.host(), "a", "a");
    assert!(matches!(world.import(), Err(CarryError::Git { .. })), "a `.git` that leads nowhere");

    let world = World::new();
    repository(&world.host());
    put(&world.host(), ".git/index", "damaged");
    assert!(matches!(world.import(), Err(CarryError::Git { .. })), "a damaged index");
    assert!(tree(&world.workspace()).is_empty());

    // Only root can give it to somebody else.
    let world = World::new();
    repository(&world.host());
    let given = Command::new("chown").args(["-R", "12345"]).arg(world.host()).status().unwrap();
    if given.success() {
        let refused = world.import().unwrap_err();
        assert!(matches!(refused, CarryError::NotTrusted { .. }), "{refused}");
        assert!(refused.to_string().contains("safe.directory"));
    }
}

#[test]
fn files_go_to_the_owner_that_was_named() {
    use std::os::unix::fs::MetadataExt as _;
    let world = World::new();
    repository(&world.host());
    symlink("README.md", world.host().join("link")).unwrap();
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        return; // Only root can give files away.
    }
    carry::import(Import {
        from: world.host(),
        into: world.workspace(),
        base: world.at("base"),
        limits: world.limits,
        git: Git::default(),
        owner: Some((12345, 12346)),
        existing: Existing::Refuse,
        stop: &AtomicBool::new(false),
        progress: &mut |_| {},
    })
    .unwrap();
    for path in ["README.md", "src", "src/main.rs", "link", ".git", ".git/HEAD", ".git/objects/pack"] {
        let metadata = world.workspace().join(path).symlink_metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (12345, 12346), "{path}");
    }
}

#[test]
fn what_is_ignored_further_up_is_not_carried_back() {
    let world = World::new();
    let host = world.host();
    repository(&host);
    put(&host, ".gitignore", "*.log\n/part/deep/out/\n!keep.log\nsecret\n");
    put(&host, "part/.gitignore", "*.tmp\n");
    put(&host, "part/deep/.gitignore", "!fine.tmp\n");
    put(&host, "part/deep/a.txt", "a");
    put(&host, "part/deep/tracked.log", "t");
    put(&host, "local", "*.own\n");
    put(&host, ".git/info/exclude", "/part/deep/private\n/private2\n");
    git_must(&host, &["config", "core.excludesFile", host.join("local").to_str().unwrap()]);
    git_must(&host, &["add", "-f", "part/deep/tracked.log"]);
    world.import_from(host.join("part/deep")).unwrap();
    assert_eq!(names(&world), [".gitignore", "a.txt", "tracked.log"]);

    let workspace = world.workspace();
    let made = ["x.log", "sub/x.log", "out/x", "x.tmp", "private", "x.own", "sub/secret", ":(top)x.log"];
    for name in made {
        put(&workspace, name, "x");
    }
    let wanted = ["fine.tmp", "keep.log", "private2", "sub/out/x", ":(glob)x"];
    for name in wanted.into_iter().chain(["tracked.log", "a.txt"]) {
        put(&workspace, name, "wanted");
    }
    let check = || {
        let changes = world.changes().unwrap();
        let mut paths: Vec<_> = changes.files.iter().map(|change| change.path.to_string()).collect();
        let mut expected = [&wanted[..], &["tracked.log", "a.txt"]].concat();
        paths.sort_unstable();
        expected.sort_unstable();
        assert_eq!(paths, expected);
        assert_eq!(changes.ignored, Some(made.len()));
        changes
    };
    check();
    // The host's git agrees.
    world.apply_to(&host.join("part/deep")).unwrap();
    let is_ignored = |name| {
        let name = format!("part/deep/{name}");
        git(&host, &["check-ignore", "-q", "--no-index", &name]).status.success()
    };
    assert!(made.into_iter().all(is_ignored) && !wanted.into_iter().any(is_ignored));
    // A `.gitignore` that is not carried back leaves the host's own where it is.
    fs::remove_file(workspace.join(".gitignore")).unwrap();
    symlink("a.txt", workspace.join(".gitignore")).unwrap();
    check();
}

#[test]
fn a_part_of_a_worktree_that_was_pruned_is_not_taken_for_none() {
    let world = World::new();
    let main = world.at("main");
    repository(&main);
    fs::remove_dir(world.host()).unwrap();
    git_must(&main, &["worktree", "add", "-q", "../host"]);
    put(&world.host(), "sub/deep/.env", CANARY);
    fs::remove_dir_all(main.join(".git/worktrees")).unwrap();
    for from in [world.host(), world.host().join("sub"), world.host().join("sub/deep")] {
        let refused = world.import_from(from).unwrap_err();
        assert!(matches!(refused, CarryError::Git { .. }), "{refused}");
        assert!(refused.to_string().contains("host/.git leads to no repository"), "{refused}");
    }
    assert!(tree(&world.workspace()).is_empty());
}
