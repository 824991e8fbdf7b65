//! What the engine says of a container, as the port says it. Pure.

use bollard::models::{ContainerInspectResponse, ContainerStateStatusEnum};
use model::ports::sandbox::{BoxName, Cause, Ending, Exit, Hits};

use crate::body::{BOX, Kept, ORPHANED, OWNER, container_name};

/// A container of ours.
#[derive(Debug, Clone)]
pub(crate) struct Mine {
    pub(crate) id: String,
    pub(crate) kept: Kept,
    pub(crate) life: Life,
    /// Of its init, as the host sees it; None if it does not run.
    pub(crate) pid: Option<u32>,
    pub(crate) exit_code: i64,
    pub(crate) out_of_memory: bool,
    /// Why the engine could not start it.
    pub(crate) error: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// Made, and never started.
    Made,
    Running,
    Ended,
    /// About to be removed by somebody.
    Going,
}

/// None if it is somebody else's: then it is no business of ours, whatever its name is.
pub(crate) fn mine(owner: &str, name: &BoxName, inspect: &ContainerInspectResponse) -> Option<Mine> {
    let labels = inspect.config.as_ref()?.labels.as_ref()?;
    let says = |label: &str, value: &str| labels.get(label).is_some_and(|found| found == value);
    // An image made of a container of ours has its labels: whatever runs from it has another name.
    let named = inspect.name.as_deref()?.trim_start_matches('/') == container_name(owner, name);
    if !(named && says(OWNER, owner) && says(BOX, name.as_str())) {
        return None;
    }
    let state = inspect.state.as_ref()?;
    let life = match state.status? {
        ContainerStateStatusEnum::CREATED | ContainerStateStatusEnum::EMPTY => Life::Made,
        ContainerStateStatusEnum::RUNNING
        | ContainerStateStatusEnum::PAUSED
        | ContainerStateStatusEnum::RESTARTING
        | ContainerStateStatusEnum::STOPPING => Life::Running,
        ContainerStateStatusEnum::REMOVING => Life::Going,
        ContainerStateStatusEnum::EXITED | ContainerStateStatusEnum::DEAD => Life::Ended,
    };
    Some(Mine {
        id: inspect.id.clone()?,
        kept: Kept::of(labels)?,
        life,
        pid: state.pid.and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0),
        exit_code: state.exit_code.unwrap_or(0),
        out_of_memory: state.oom_killed == Some(true),
        error: state.error.clone().unwrap_or_default(),
    })
}

/// How a container ended that does not run any more.
pub(crate) fn ending(mine: &Mine, noted: Option<Cause>, hits: Hits, message: Option<String>) -> Ending {
    let unstarted = mine.life == Life::Made || (!mine.error.is_empty() && noted.is_none());
    if unstarted {
        let message = if mine.error.is_empty() { message } else { Some(mine.error.clone()) };
        return Ending { cause: Cause::NotStarted, exit: Exit::Unknown, hits, message };
    }
    let exit = match i32::try_from(mine.exit_code) {
        // Engines tell a signal so; a command that ends with such a code by itself means one too.
        Ok(code @ 129..=192) => Exit::Signal(code - 128),
        Ok(code) => Exit::Code(code),
        Err(_) => Exit::Unknown,
    };
    let killed = exit == Exit::Signal(9);
    let starved = killed && (mine.out_of_memory || hits.memory > 0);
    let cause = match noted {
        Some(cause) => cause,
        None if starved => Cause::Memory,
        None if exit == Exit::Code(ORPHANED) => Cause::Orphaned,
        None => Cause::Exited,
    };
    let hits = if starved { Hits { memory: hits.memory.max(1), ..hits } } else { hits };
    Ending { cause, exit, hits, message }
}

/// How a command ended that should have gone on.
pub(crate) fn at_once(ending: &Ending) -> String {
    let exit = match ending.exit {
        Exit::Code(code) => format!(" with exit code {code}"),
        Exit::Signal(signal) => format!(" by signal {signal}"),
        Exit::Unknown => String::new(),
    };
    let said = ending.message.as_deref().map(str::trim).filter(|said| !said.is_empty());
    let said = said.map(|said| format!(": {said}")).unwrap_or_default();
    format!("its command ended at once{exit}{said}")
}
