//! The only place that forks.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;

use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, Pid, fork};

/// The exit code of a role that panicked. Not 0: see `spawner.rs`, which sweeps after any other code.
const PANICKED: i32 = 70;

/// Forks a process that runs `role` with default signal dispositions and ends with the code it returns.
///
/// What `role` owns is dropped in the parent: descriptors moved into it are open in the new process only.
/// The new process never returns into the caller's code, not even by a panic.
pub(crate) fn fork_into(role: impl FnOnce() -> i32) -> io::Result<Pid> {
    let threads = fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!(
            "a process can only be forked here from one thread, not {threads}"
        )));
    }
    // SAFETY: `fork` asks that the new process calls nothing that another thread could have left locked; there is
    // no other thread, as counted above, and none can appear before the call because only this one could make it.
    // `signal` asks that a handler is sound to run at any time; SIG_DFL runs no code of ours.
    #[expect(unsafe_code, reason = "a supervisor must be our own code without exec; see docs/adr/0003")]
    let forked = unsafe {
        let forked = fork()?;
        if forked.is_child() {
            for number in Signal::iterator() {
                // SIGKILL and SIGSTOP refuse; they are always at their default.
                let _ = signal(number, SigHandler::SigDfl);
            }
        }
        forked
    };
    match forked {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => exit(catch_unwind(AssertUnwindSafe(role)).unwrap_or(PANICKED)),
    }
}

#[expect(
    clippy::exit,
    reason = "the end of a forked process; unwinding into the owner's main would run it twice"
)]
fn exit(code: i32) -> ! {
    process::exit(code)
}
