//! `callsign-bridge`: see the library beside it.
#![forbid(unsafe_code)]

mod args;
mod carry;
mod control;
mod events;
mod init;
mod race;
mod splice;
mod tasks;

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use bridge::code;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::runtime::Builder;

use args::Plan;
use carry::Port;
use control::Control;
use events::Events;
use init::Init;
use tasks::Tasks;

/// What the kernel takes for the path of a socket, in bytes.
const LONGEST_PATH: usize = 107;
/// A name of 64 with what is before and behind it.
const LONGEST_NAME: usize = 70;

/// Why the box does not start or go on: one line for whoever reads its log, and the exit code.
#[derive(Debug)]
struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    fn system(what: &str, error: &io::Error) -> Self {
        Self { code: code::SYSTEM, message: format!("{what}: {error}") }
    }
}

fn main() -> ExitCode {
    let ended = withdraw()
        .and_then(|()| args::parse(std::env::args_os().skip(1)).map_err(|message| misused(&message)))
        .and_then(live);
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(Failure { code, message }) => {
            // There may be nobody to read it; the code says it too.
            let _unread = writeln!(io::stderr(), "callsign-bridge: {message}");
            ExitCode::from(code)
        }
    }
}

/// Before anything else: COMMAND is the same user, and must neither trace this process nor read its memory or its
/// environment. COMMAND itself is an ordinary process again as soon as it is executed.
fn withdraw() -> Result<(), Failure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|errno| Failure::system("could not keep others out of its memory", &errno.into()))
}

fn misused(message: &str) -> Failure {
    Failure { code: code::USAGE, message: format!("{message}\nusage: {}", args::USAGE) }
}

fn live(plan: Plan) -> Result<u8, Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::system("could not begin", &error))?;
    runtime.block_on(run(plan))
}

async fn run(plan: Plan) -> Result<u8, Failure> {
    let Plan { sockets, agent, carried, orphan, command, args } = plan;
    let (sockets, _held) = within_reach(sockets);
    // What is spawned ends with the runtime, and that with COMMAND.
    let tasks = Tasks::default();
    let mut ports = Vec::new();
    for carried in carried {
        ports.push(Port::bind(&carried, &sockets).await?);
    }
    let password = std::env::var_os("OPENCODE_SERVER_PASSWORD");
    let events = Arc::new(Events::new(agent, password.as_deref()));
    let control = Arc::new(Control::new(&sockets, agent, Arc::clone(&events)));
    // From here on whatever COMMAND asks for is answered.
    let init = Init::start(&command, &args)?;
    for port in ports {
        tasks.spawn(port.serve(tasks.clone()));
    }
    for _ in 0..control::IDLE {
        tasks.spawn(Arc::clone(&control).keep_one(tasks.clone()));
    }
    tasks.spawn(async move { events.read().await });
    let ended = init.wait(control.orphaned(orphan)).await;
    Ok(ended)
}

/// The kernel takes no long path for a socket. One outside of a box may be long, and leads through its directory then,
/// held open.
fn within_reach(sockets: PathBuf) -> (PathBuf, Option<File>) {
    if sockets.as_os_str().len() + LONGEST_NAME <= LONGEST_PATH {
        return (sockets, None);
    }
    match File::open(&sockets) {
        Ok(held) => (Path::new("/proc/self/fd").join(held.as_raw_fd().to_string()), Some(held)),
        // The daemon is said to be away then, which is what it is.
        Err(_) => (sockets, None),
    }
}
