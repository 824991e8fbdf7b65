//! Plays every process of the tests: the owner that gets killed, and families that are hard to end.
//!
//! ```text
//! own                    an owner; takes commands from its stdin, see owner.rs
//! family MARK [FLAGS]    middle ──▶ leaf, waits until the leaf runs, says "ready", stays (or leaves: `leave`)
//! middle MARK [FLAGS]    starts a leaf and ends, so that the leaf is an orphan
//! leaf MARK [FLAGS]      in a session of its own; stays for ever (`stubborn`: with all signals blocked)
//! ```
//!
//! MARK is how a test finds them in `/proc`.

mod owner;

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;

use nix::sys::signal::SigSet;
use nix::unistd::setsid;

fn main() -> io::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (role, rest) = arguments.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let has = |flag: &str| rest.iter().any(|argument| argument == flag);
    if has("stubborn") {
        SigSet::all().thread_block()?;
    }
    match role.as_str() {
        "own" => return owner::run(),
        "family" => {
            start("middle", rest)?.status()?;
            say("ready")?;
            if has("leave") {
                return Ok(());
            }
        }
        "middle" => {
            let mut leaf = start("leaf", rest)?.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
            let stdout = leaf.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            BufReader::new(stdout).read_line(&mut String::new())?;
            return Ok(());
        }
        "leaf" => {
            // Fails for a main child, which leads a session already.
            let _ = setsid();
            say("up")?;
        }
        _ => return Err(io::ErrorKind::InvalidInput.into()),
    }
    loop {
        thread::park();
    }
}

fn start(role: &str, rest: &[String]) -> io::Result<Command> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(role).args(rest);
    Ok(command)
}

fn say(line: &str) -> io::Result<()> {
    let mut stdout = io::stdout();
    writeln!(stdout, "{line}")?;
    stdout.flush()
}
