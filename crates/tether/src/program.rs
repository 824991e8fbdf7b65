//! The bridge as a file that a box can start.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;
use sha2::{Digest as _, Sha256};

/// The static program of the crate `bridge`, made by build.rs.
pub static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/callsign-bridge"));

const MODE: u32 = 0o755;

/// Writes the program into `dir`, which is made where it is missing, and returns its path. Its name has its digest, so
/// that boxes of an older daemon keep theirs.
///
/// Idempotent. What is there under the name is compared, and replaced where it is anything else.
pub fn install(dir: &Path) -> io::Result<PathBuf> {
    DirBuilder::new().recursive(true).mode(MODE).create(dir)?;
    let first = Sha256::digest(PROGRAM).iter().take(8).fold(0, |digits, byte| digits << 8 | u64::from(*byte));
    let name = format!("callsign-bridge-{first:016x}");
    let path = dir.join(&name);
    // One at a time, whichever process it is in; let go when it is closed.
    let held = File::open(dir)?;
    flock(&held, FlockOperation::LockExclusive)?;
    if is_whole(&path)? {
        return Ok(path);
    }
    // Perhaps left by one that was killed.
    let new = dir.join(format!(".new-{name}"));
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let written = write(&new).and_then(|()| fs::rename(&new, &path));
    if written.is_err() {
        // It is in nobody's way, and the next one removes it.
        let _stays = fs::remove_file(&new);
    }
    written.map(|()| path)
}

fn write(new: &Path) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
    file.write_all(PROGRAM)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.sync_all()
}

/// Whether what is there is the program, ours, and can be started by anybody and changed by nobody else.
fn is_whole(path: &Path) -> io::Result<bool> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path);
    let file = match opened {
        Ok(file) => file,
        // A link, a socket, or nothing.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(false),
        Err(error) if matches!(error.raw_os_error(), Some(LOOP | NO_DEVICE)) => return Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    let ours = found.is_file() && found.uid() == geteuid().as_raw() && found.mode() & 0o7777 == MODE;
    Ok(ours && found.len() == PROGRAM.len() as u64 && holds_program(file)?)
}

const LOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
const NO_DEVICE: i32 = rustix::io::Errno::NXIO.raw_os_error();

fn holds_program(file: File) -> io::Result<bool> {
    let mut content = Vec::with_capacity(PROGRAM.len());
    file.take(PROGRAM.len() as u64 + 1).read_to_end(&mut content)?;
    Ok(content == PROGRAM)
}
