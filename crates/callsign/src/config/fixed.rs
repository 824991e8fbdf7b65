//! What is fixed when a process starts, its environment and its directory, and so what cannot be in it.

use model::template::PLACEHOLDERS;
use model::{Isolation, Placeholder};

use super::context::Context;

/// How often what a placeholder stands for changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Varies {
    Never,
    PerCaller,
    PerCall,
}

pub(super) fn varies(placeholder: Placeholder) -> Varies {
    match placeholder {
        Placeholder::Server => Varies::Never,
        Placeholder::SessionId
        | Placeholder::SessionTitle
        | Placeholder::ThreadId
        | Placeholder::ParentId
        | Placeholder::Host
        | Placeholder::Workspace
        | Placeholder::RunId
        | Placeholder::User => Varies::PerCaller,
        Placeholder::TurnId | Placeholder::CallId | Placeholder::Tool => Varies::PerCall,
    }
}

/// Something that a process is started with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fixed<'a> {
    pub at: usize,
    /// How messages call the value.
    pub label: &'a str,
    /// What of the process it is: its environment, its directory.
    pub what: &'a str,
    pub isolation: Isolation,
}

/// Reports the placeholders whose value is not known when the process starts, or is not the same for all it serves.
pub(super) fn check(context: Context<'_>, fixed: Fixed<'_>, used: &[Placeholder]) {
    let Fixed { at, label, what, isolation } = fixed;
    for placeholder in used {
        let spelling = spelling(*placeholder);
        match (varies(*placeholder), isolation) {
            (Varies::Never, _) | (Varies::PerCaller, Isolation::Session) => {}
            (Varies::PerCaller, Isolation::Shared) => {
                let problem = one_for_all(&format!("{{{spelling}}}"));
                context.mistake(at, format!("{label}: {problem}"));
            }
            (Varies::PerCall, _) => {
                let problem = format!(
                    "{{{spelling}}} differs per call, and a process has its {what} from its start on; take it out: \
                     every call has it in `_meta`"
                );
                context.mistake(at, format!("{label}: {problem}"));
            }
        }
    }
}

pub(super) fn one_for_all(subject: &str) -> String {
    format!(
        "{subject} differs per caller, and `isolation = \"shared\"` is one process for all; take one of the two out"
    )
}

fn spelling(placeholder: Placeholder) -> &'static str {
    let row = PLACEHOLDERS.iter().find(|(_, other)| *other == placeholder);
    row.map_or("", |(spelling, _)| spelling)
}
