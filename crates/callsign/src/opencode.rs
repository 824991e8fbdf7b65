//! Where OpenCode's program is.
//!
//! A box is shown the program and nothing of what lies beside it, so a script that looks for the program is of no use
//! there. npm's package puts such a script into PATH where its postinstall step did not run; what that would start is
//! found here in the same way.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// How to get it.
pub const INSTALL: &str = "npm install -g opencode-ai@1.18.33";

const PACKAGE: &str = "opencode-ai";
/// No manifest is longer.
const LONGEST: u64 = 1 << 20;
/// As much of an ELF file as says for which processor it is.
const HEAD: usize = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The program itself, with no link on the way.
    pub program: PathBuf,
    /// As its package says it. None: it came in no package.
    pub version: Option<String>,
}

/// `command` is a name that is looked up in `path`, or an absolute path. The error says what to do.
pub fn find(command: &str, path: &OsStr) -> Result<Found, String> {
    find_for(command, path, Machine::this())
}

/// What decides which of the packages is the right one.
#[derive(Debug, Clone, Copy)]
struct Machine {
    /// As npm writes it.
    processor: &'static str,
    /// As ELF writes it.
    elf: u16,
    has_avx2: bool,
    has_musl: bool,
}

impl Machine {
    fn this() -> Self {
        #[cfg(target_arch = "x86_64")]
        let (processor, elf, has_avx2) = ("x64", 62, std::arch::is_x86_feature_detected!("avx2"));
        #[cfg(not(target_arch = "x86_64"))]
        let (processor, elf, has_avx2) = ("arm64", 183, true);
        let loader = |name: &str| Path::new(name).exists();
        let has_musl = loader("/lib/ld-musl-x86_64.so.1") || loader("/lib/ld-musl-aarch64.so.1");
        let has_glibc = loader("/lib64/ld-linux-x86-64.so.2") || loader("/lib/ld-linux-aarch64.so.1");
        Self { processor, elf, has_avx2, has_musl: has_musl && !has_glibc }
    }

    /// Packages that hold a program for it, the best first.
    fn packages(self) -> impl Iterator<Item = String> {
        let Self { processor, elf: _, has_avx2, has_musl } = self;
        let library = if has_musl { "-musl" } else { "" };
        let kinds = if has_avx2 { &["", "-baseline"][..] } else { &["-baseline"][..] };
        kinds.iter().map(move |kind| format!("opencode-linux-{processor}{kind}{library}"))
    }
}

fn find_for(command: &str, path: &OsStr, machine: Machine) -> Result<Found, String> {
    let located = locate(command, path)?;
    let unreadable = |error: io::Error| format!("{} cannot be read: {error}", located.display());
    let program = fs::canonicalize(&located).map_err(unreadable)?;
    match Kind::of(&program, machine).map_err(unreadable)? {
        Kind::Program => {
            let version = program.parent().and_then(Path::parent).and_then(version);
            Ok(Found { program, version })
        }
        Kind::Foreign => Err(format!("{} is for another processor; {}", located.display(), get())),
        Kind::Other => launched(&located, &program, machine),
    }
}

fn locate(command: &str, path: &OsStr) -> Result<PathBuf, String> {
    let named = Path::new(command);
    if named.is_absolute() {
        return if is_executable(named) {
            Ok(named.to_owned())
        } else {
            Err(format!("{} is not there, or is no program; {}", named.display(), get()))
        };
    }
    if command.is_empty() || command.contains('/') {
        return Err(format!("`{command}` is neither a name nor an absolute path; {}", get()));
    }
    std::env::split_paths(path)
        .filter(|directory| directory.is_absolute())
        .map(|directory| directory.join(named))
        .find(|candidate| is_executable(candidate))
        .ok_or_else(|| format!("OpenCode is not in PATH as `{command}`; {}", get()))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The end of a sentence.
fn get() -> String {
    format!(
        "get it with `{INSTALL}`, or name the program in `command` of [sessions] or in MCP_OPENCODE_COMMAND"
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// ELF, for this processor.
    Program,
    /// ELF, for another.
    Foreign,
    Other,
}

impl Kind {
    fn of(path: &Path, machine: Machine) -> io::Result<Self> {
        let mut head = Vec::with_capacity(HEAD);
        File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
        if !head.starts_with(b"\x7fELF") {
            return Ok(Self::Other);
        }
        // Both processors write the low byte first.
        let is_ours = head.get(18..HEAD) == Some(&machine.elf.to_le_bytes()[..]);
        Ok(if is_ours { Self::Program } else { Self::Foreign })
    }
}

/// What npm's script would start.
fn launched(located: &Path, script: &Path, machine: Machine) -> Result<Found, String> {
    let Some(package) = package_of(script) else {
        return Err(format!(
            "{} is a script, and a box needs the program itself (ELF); {}",
            located.display(),
            get()
        ));
    };
    let found = modules(&package)
        .flat_map(|modules| machine.packages().map(move |name| modules.join(name)))
        .find_map(|package| {
            let program = fs::canonicalize(package.join("bin/opencode")).ok()?;
            let fits = is_executable(&program) && Kind::of(&program, machine).ok()? == Kind::Program;
            fits.then(|| Found { version: version(&package), program })
        });
    found.ok_or_else(|| {
        format!(
            "{} is npm's launcher, and the program that it starts is not installed beside it: optional dependencies \
             were left out, or are for another machine; {}",
            located.display(),
            get()
        )
    })
}

/// npm's package, if the script is of it: its own launcher, or what stands for that in `.bin`.
fn package_of(script: &Path) -> Option<PathBuf> {
    let directory = script.parent()?;
    let around = directory.parent()?;
    let beside = (directory.file_name()? == ".bin").then(|| around.join(PACKAGE));
    let own = (name(around).as_deref() == Some(PACKAGE)).then(|| around.to_owned());
    own.or(beside.filter(|package| name(package).as_deref() == Some(PACKAGE)))
        .and_then(|package| fs::canonicalize(package).ok())
}

/// Where a package finds others, the nearest first.
fn modules(package: &Path) -> impl Iterator<Item = PathBuf> {
    package.ancestors().map(|directory| {
        if directory.file_name().is_some_and(|name| name == "node_modules") {
            directory.to_owned()
        } else {
            directory.join("node_modules")
        }
    })
}

/// Which version of OpenCode a package holds. None: it is no package of OpenCode's.
fn version(package: &Path) -> Option<String> {
    let manifest = manifest(package)?;
    let name = manifest["name"].as_str()?;
    (name == PACKAGE || name.starts_with("opencode-linux-"))
        .then(|| manifest["version"].as_str().map(str::to_owned))?
}

fn name(package: &Path) -> Option<String> {
    manifest(package)?["name"].as_str().map(str::to_owned)
}

fn manifest(package: &Path) -> Option<Value> {
    let file = File::open(package.join("package.json")).ok()?;
    serde_json::from_reader(io::BufReader::new(file.take(LONGEST))).ok()
}

#[cfg(test)]
mod tests;
