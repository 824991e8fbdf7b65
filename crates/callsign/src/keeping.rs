//! Processes of ours that outlive whoever started them. They are this binary under another first argument, and are
//! looked for before anything else: they must be the only thread.

use std::ffi::OsString;
use std::io::{self, Write as _};

use crate::daemon::start;

/// The first argument of the process that keeps a box.
pub const BOX: &str = "__box";

/// The exit code, if this is such a process. `arguments` are those of the program, without its name.
pub fn run_if_asked(arguments: impl IntoIterator<Item = OsString>) -> Option<u8> {
    let mut arguments = arguments.into_iter();
    let first = arguments.next()?;
    if first == BOX {
        let rest: Vec<_> = arguments.collect();
        return Some(u8::try_from(sandbox::keeper::main(&rest)).unwrap_or(1));
    }
    if first == start::DETACH {
        let rest: Vec<_> = arguments.collect();
        let done = start::detach(&rest);
        return Some(done.map_or_else(
            |error| {
                let _nobody_reads = writeln!(io::stderr(), "{error}");
                1
            },
            |()| 0,
        ));
    }
    None
}
