//! Keeps secrets that came in our environment from whoever looks at us afterwards.
//!
//! What a process was started with stays in its memory, where `/proc/PID/environ` shows it to every program of the
//! same user. The values are overwritten there, and the process made undumpable: then only root can look into it.
//! A program of the same user could have looked before; that is why a seal is no more than trust `host`.
//!
//! To be called while there is one thread, before anything is forked.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};

/// Overwrites the values of these variables. They read as empty afterwards.
pub fn overwrite(names: &[&str]) -> io::Result<()> {
    let (start, end) = environment()?;
    let mut memory = OpenOptions::new().read(true).write(true).open("/proc/self/mem")?;
    let mut block = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    memory.seek(SeekFrom::Start(start))?;
    memory.read_exact(&mut block)?;
    let mut at = 0;
    for entry in block.split(|byte| *byte == 0) {
        let value = names.iter().find_map(|name| {
            let rest = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            Some(entry.len() - rest.len()..entry.len())
        });
        if let Some(value) = value {
            memory
                .seek(SeekFrom::Start(start + u64::try_from(at + value.start).map_err(io::Error::other)?))?;
            memory.write_all(&vec![0; value.len()])?;
        }
        at += entry.len() + 1;
    }
    Ok(())
}

/// Keeps other programs of the same user out of our memory.
pub fn make_undumpable() {
    // It can fail on systems without it; what is then visible is what would be visible anyway.
    let _as_it_was = nix::sys::prctl::set_dumpable(false);
}

/// Where the kernel put our environment.
fn environment() -> io::Result<(u64, u64)> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field is a name in parentheses, which may have anything in it.
    let (_, rest) = stat.rsplit_once(')').ok_or(io::ErrorKind::InvalidData)?;
    let mut fields = rest.split_ascii_whitespace().skip(47).map(str::parse);
    match (fields.next(), fields.next()) {
        (Some(Ok(start)), Some(Ok(end))) if start < end => Ok((start, end)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
