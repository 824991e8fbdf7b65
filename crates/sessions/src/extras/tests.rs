use std::os::unix::fs::{PermissionsExt as _, symlink};

use model::session::{SessionId, Stamp};

use super::*;
use crate::layout::Layout;

struct Scene {
    root: tempfile::TempDir,
    dirs: SessionDirs,
}

impl Scene {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let sessions = Layout::new(root.path().join("sessions"));
        let dirs = sessions.of(&SessionId::new(Stamp { millis: 1, random: [1; 10] }));
        dirs.make().unwrap();
        fs::create_dir_all(root.path().join("bundle/skills/a/b")).unwrap();
        Self { root, dirs }
    }

    fn bundle(&self) -> PathBuf {
        self.root.path().join("bundle")
    }

    fn put(&self, path: &str, text: &str) {
        fs::write(self.bundle().join(path), text).unwrap();
    }

    fn snapshot(&self) -> Result<Bundle, String> {
        snapshot(&self.bundle(), Some(&self.dirs.stage()), None)
    }

    fn extras(&self) -> Extras {
        let bundle = self.snapshot().unwrap();
        Extras::new(bundle, Vec::new(), Vec::new(), String::new())
    }

    #[track_caller]
    fn refused(&self, expected: &str) {
        let error = self.snapshot().unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert_eq!(snapshot(&self.bundle(), None, None).unwrap_err(), error);
    }
}

#[test]
fn what_is_read_is_hashed_and_kept() {
    let scene = Scene::new();
    scene.put("requirements.txt", "six\n");
    scene.put("skills/a/b/deep.md", "abc");
    scene.put("skills/run", "#!/bin/sh\n");
    fs::set_permissions(scene.bundle().join("skills/run"), fs::Permissions::from_mode(0o700)).unwrap();
    let bundle = scene.snapshot().unwrap();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let deep = Digested { path: "skills/a/b/deep.md".to_owned(), sha256: abc.to_owned(), bytes: 3 };
    assert_eq!(bundle.skills[0], deep);
    assert_eq!(bundle.skills[1].path, "skills/run");
    assert_eq!(bundle.requirements.as_ref().unwrap().bytes, 4);
    let stage = scene.dirs.stage();
    assert_eq!(fs::read_to_string(stage.work().join("requirements.txt")).unwrap(), "six\n");
    let mode = |path: &str| fs::metadata(stage.skills().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a/b/deep.md"), mode("run"), mode("a")), (0o644, 0o755, 0o755));
    // Looked at without being kept, it is the same.
    assert_eq!(snapshot(&scene.bundle(), None, None).unwrap(), bundle);
}

#[test]
fn links_pipes_and_floods_are_refused() {
    let scene = Scene::new();
    let skills = scene.bundle().join("skills");
    symlink("/etc/passwd", skills.join("a/link")).unwrap();
    scene.refused("skills/a/link of the extras is a link");
    fs::remove_file(skills.join("a/link")).unwrap();
    symlink("a", skills.join("inner")).unwrap();
    scene.refused("skills/inner of the extras is a link");
    fs::remove_file(skills.join("inner")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, skills.join("pipe"), rustix::fs::Mode::RWXU).unwrap();
    scene.refused("neither a file nor a directory");
    fs::remove_file(skills.join("pipe")).unwrap();
    let large = File::create(skills.join("large")).unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    scene.refused("too large at skills/large");
    fs::remove_file(skills.join("large")).unwrap();
    for number in 0..5 {
        File::create(skills.join(format!("part-{number}"))).unwrap().set_len(60 << 20).unwrap();
    }
    scene.refused("all together 256 MiB");
    for number in 0..5 {
        fs::remove_file(skills.join(format!("part-{number}"))).unwrap();
    }
    fs::write(skills.join("bad\nname"), "").unwrap();
    scene.refused("no text");
    fs::remove_file(skills.join("bad\nname")).unwrap();
    let deep = (0..40).fold(skills.join("deep"), |path, _| path.join("d"));
    fs::create_dir_all(&deep).unwrap();
    scene.refused("deeper than 32");
    fs::remove_dir_all(skills.join("deep")).unwrap();
    symlink("/etc/passwd", scene.bundle().join("requirements.txt")).unwrap();
    scene.refused("requirements.txt of the extras is a link");
    fs::remove_file(scene.bundle().join("requirements.txt")).unwrap();
    fs::create_dir(scene.bundle().join("requirements.txt")).unwrap();
    scene.refused("where a file belongs");
    fs::remove_dir(scene.bundle().join("requirements.txt")).unwrap();
    assert_eq!(scene.snapshot().unwrap().skills, []);
    fs::remove_dir_all(scene.bundle()).unwrap();
    scene.refused("MCP_RUNTIME_EXTRAS_DIR");
}

#[test]
fn nothing_in_the_workspace_is_overwritten_or_followed() {
    let scene = Scene::new();
    let outside = scene.root.path().join("outside");
    fs::create_dir(&outside).unwrap();
    for path in ["skills/a/mine", "skills/a/new", "skills/led", "skills/a/b/in"] {
        scene.put(path, "theirs");
    }
    let skills = scene.dirs.workspace().join("skills");
    fs::create_dir_all(skills.join("a")).unwrap();
    fs::write(skills.join("a/mine"), "mine").unwrap();
    symlink(&outside, skills.join("a/b")).unwrap();
    symlink(outside.join("gone"), skills.join("led")).unwrap();
    let done = scene.dirs.place_extras(scene.extras(), None).unwrap();
    assert_eq!(done.kept, ["skills/a/b", "skills/a/b/in", "skills/a/mine", "skills/led"]);
    assert_eq!(fs::read_to_string(skills.join("a/mine")).unwrap(), "mine");
    assert_eq!(fs::read_to_string(skills.join("a/new")).unwrap(), "theirs");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(done.state, Standing::Done);
    assert_eq!(scene.dirs.extras().unwrap(), Some(done));
    assert!(!scene.dirs.root().join(STAGE).exists());
}

#[test]
fn whoever_is_cut_off_while_placing_is_followed_by_one_that_finishes() {
    let scene = Scene::new();
    scene.put("skills/one", "1");
    scene.put("skills/two", "2");
    scene.put("requirements.txt", "six\n");
    let extras = scene.extras();
    let stage = scene.dirs.stage();
    fs::create_dir_all(stage.meta().join("python/lib")).unwrap();
    // As far as one got that was cut off.
    fs::create_dir(scene.dirs.workspace().join("skills")).unwrap();
    fs::rename(stage.skills().join("one"), scene.dirs.workspace().join("skills/one")).unwrap();
    fs::rename(stage.meta().join("python"), scene.dirs.meta().join("python")).unwrap();
    let done = scene.dirs.place_extras(extras, None).unwrap();
    assert_eq!(done.kept, [""; 0]);
    assert_eq!(fs::read_to_string(scene.dirs.workspace().join("skills/two")).unwrap(), "2");
    assert!(scene.dirs.has_packages());
    // And once more, by one that was cut off before it could tell.
    assert_eq!(scene.dirs.place_extras(done.clone(), None).unwrap(), done);
}

#[test]
fn a_copy_replaces_a_link_and_packages_replace_nothing() {
    let scene = Scene::new();
    scene.put("requirements.txt", "six\n");
    let precious = scene.root.path().join("precious");
    fs::write(&precious, "kept").unwrap();
    symlink(&precious, scene.dirs.meta().join(RECORD)).unwrap();
    scene.dirs.place_extras(scene.extras(), None).unwrap();
    assert_eq!(fs::read_to_string(&precious).unwrap(), "kept");
    assert!(fs::read_to_string(scene.dirs.meta().join(RECORD)).unwrap().contains("requirements.txt"));

    let extras = scene.extras();
    fs::create_dir(scene.dirs.stage().meta().join("python")).unwrap();
    symlink(scene.root.path(), scene.dirs.meta().join("python")).unwrap();
    let error = scene.dirs.place_extras(extras, None).unwrap_err();
    assert!(error.contains("already"), "{error}");
}

#[test]
fn packages_are_named_by_their_own_directories() {
    let scene = Scene::new();
    let site = scene.dirs.stage().meta().join("python/lib/python3.11/site-packages");
    for directory in
        ["six-1.16.0.dist-info", "old-2-py3.11.egg-info", "six", "bad name-1.dist-info", "x.dist-info"]
    {
        fs::create_dir_all(site.join(directory)).unwrap();
    }
    fs::write(site.join("six-1.16.0.dist-info/RECORD"), "abc").unwrap();
    symlink("/etc/passwd", site.join("old-2-py3.11.egg-info/RECORD")).unwrap();
    let packages = scene.dirs.stage().packages().unwrap();
    let told: Vec<_> =
        packages.iter().map(|package| (package.name.as_str(), package.version.as_str())).collect();
    assert_eq!(told, [("old", "2"), ("six", "1.16.0")]);
    assert!(packages[1].sha256.as_ref().unwrap().starts_with("ba7816bf"));
    assert_eq!(packages[0].sha256, None);
}
