use std::os::unix::fs::symlink;

use super::*;

const X64: Machine = Machine { processor: "x64", elf: 62, has_avx2: true, has_musl: false };
const ARM64: Machine = Machine { processor: "arm64", elf: 183, has_avx2: true, has_musl: false };

/// The head of a program for a processor.
fn elf(machine: u16) -> Vec<u8> {
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(18, 0);
    head.extend(machine.to_le_bytes());
    head.extend([0; 44]);
    head
}

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn file(&self, path: &str, bytes: &[u8]) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// A package with a version, and perhaps a program in it.
    fn package(&self, path: &str, program: Option<u16>) -> &Self {
        let name = path.rsplit('/').next().unwrap();
        self.file(
            &format!("{path}/package.json"),
            format!(r#"{{"name":"{name}","version":"1.2.3"}}"#).as_bytes(),
        );
        if let Some(machine) = program {
            self.file(&format!("{path}/bin/opencode"), &elf(machine));
        }
        self
    }

    fn link(&self, path: &str, to: &str) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
        self
    }

    /// Looks `opencode` up in `bin`.
    fn find(&self, machine: Machine) -> Result<Found, String> {
        find_for("opencode", self.path("bin").as_os_str(), machine)
    }

    #[track_caller]
    fn check(&self, machine: Machine, program: &str, version: Option<&str>) {
        let expected = Found { program: self.path(program), version: version.map(str::to_owned) };
        assert_eq!(self.find(machine), Ok(expected));
    }

    #[track_caller]
    fn refused(&self, machine: Machine, part: &str) {
        let error = self.find(machine).unwrap_err();
        assert!(error.contains(part) && error.contains(INSTALL), "{error}");
    }
}

const LAUNCHER: &[u8] = b"#!/usr/bin/env node\nrequire('child_process')\n";

/// What `npm install -g` leaves where scripts are not run.
fn npm() -> Tree {
    let tree = Tree::new();
    tree.package("lib/node_modules/opencode-ai", None)
        .file("lib/node_modules/opencode-ai/bin/opencode.exe", LAUNCHER)
        .link("bin/opencode", "../lib/node_modules/opencode-ai/bin/opencode.exe");
    tree
}

#[test]
fn a_program_is_taken_as_it_is() {
    let tree = Tree::new();
    tree.file("opt/opencode", &elf(62)).link("bin/opencode", "../opt/opencode");
    tree.check(X64, "opt/opencode", None);
    let absolute = tree.path("bin/opencode");
    let found = find_for(absolute.to_str().unwrap(), OsStr::new(""), X64).unwrap();
    assert_eq!(found.program, tree.path("opt/opencode"));
    tree.refused(ARM64, "another processor");
}

#[test]
fn a_program_that_npm_put_in_its_launchers_place_has_a_version() {
    let tree = npm();
    tree.file("lib/node_modules/opencode-ai/bin/opencode.exe", &elf(62));
    tree.check(X64, "lib/node_modules/opencode-ai/bin/opencode.exe", Some("1.2.3"));
}

#[test]
fn the_program_that_the_launcher_starts_is_found() {
    let tree = npm();
    tree.package("lib/node_modules/opencode-linux-x64", Some(62))
        .package("lib/node_modules/opencode-linux-x64-baseline", Some(62))
        .package("lib/node_modules/opencode-linux-arm64-musl", Some(183));
    let of = |name: &str| format!("lib/node_modules/{name}/bin/opencode");
    tree.check(X64, &of("opencode-linux-x64"), Some("1.2.3"));
    let old = Machine { has_avx2: false, ..X64 };
    tree.check(old, &of("opencode-linux-x64-baseline"), Some("1.2.3"));
    tree.check(Machine { has_musl: true, ..ARM64 }, &of("opencode-linux-arm64-musl"), Some("1.2.3"));
    tree.refused(ARM64, "npm's launcher");
    tree.refused(Machine { has_musl: true, ..X64 }, "npm's launcher");
}

#[test]
fn packages_lie_within_beside_and_further_up() {
    let within = npm();
    within.package("lib/node_modules/opencode-ai/node_modules/opencode-linux-x64", Some(62));
    within.check(
        X64,
        "lib/node_modules/opencode-ai/node_modules/opencode-linux-x64/bin/opencode",
        Some("1.2.3"),
    );
    // As pnpm has it: each package sees its own dependencies beside it, by links.
    let store = Tree::new();
    let own = "store/.pnpm/opencode-ai@1.2.3/node_modules";
    let other = "store/.pnpm/opencode-linux-x64@1.2.3/node_modules/opencode-linux-x64";
    store
        .package(&format!("{own}/opencode-ai"), None)
        .file(&format!("{own}/opencode-ai/bin/opencode"), LAUNCHER)
        .package(other, Some(62))
        .link(
            &format!("{own}/opencode-linux-x64"),
            "../../opencode-linux-x64@1.2.3/node_modules/opencode-linux-x64",
        )
        .link("bin/opencode", &format!("../{own}/opencode-ai/bin/opencode"));
    store.check(X64, &format!("{other}/bin/opencode"), Some("1.2.3"));
}

#[test]
fn a_shim_in_bin_leads_to_the_package() {
    let tree = Tree::new();
    tree.file("node_modules/.bin/opencode", b"#!/bin/sh\nexec node ../opencode-ai/bin/opencode\n")
        .package("node_modules/opencode-ai", None)
        .package("node_modules/opencode-linux-x64", Some(62));
    let found = find_for("opencode", tree.path("node_modules/.bin").as_os_str(), X64).unwrap();
    assert_eq!(found.program, tree.path("node_modules/opencode-linux-x64/bin/opencode"));
}

#[test]
fn any_other_script_is_refused() {
    for script in [&b"#!/bin/sh\nexec /opt/opencode \"$@\"\n"[..], LAUNCHER, b""] {
        let tree = Tree::new();
        tree.file("bin/opencode", script);
        tree.refused(X64, "ELF");
    }
    // Another's package that calls its launcher so.
    let tree = Tree::new();
    tree.package("lib/other", None)
        .file("lib/other/bin/opencode", LAUNCHER)
        .link("bin/opencode", "../lib/other/bin/opencode");
    tree.refused(X64, "ELF");
}

#[test]
fn what_is_not_there_is_said_with_how_to_get_it() {
    let tree = Tree::new();
    tree.refused(X64, "not in PATH");
    // Of relative directories of PATH it depends on the moment what they are.
    assert!(find_for("opencode", OsStr::new("bin:.:"), X64).unwrap_err().contains("not in PATH"));
    assert!(find_for("/nowhere/opencode", OsStr::new(""), X64).unwrap_err().contains("not there"));
    assert!(find_for("./opencode", OsStr::new("/bin"), X64).unwrap_err().contains("absolute"));
    // Not a program yet.
    tree.file("bin/opencode", &elf(62));
    fs::set_permissions(tree.path("bin/opencode"), fs::Permissions::from_mode(0o644)).unwrap();
    tree.refused(X64, "not in PATH");
}
