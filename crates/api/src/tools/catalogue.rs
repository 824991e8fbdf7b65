//! Which tools there are.

use std::sync::LazyLock;

use rmcp::model::Tool;

use super::arguments::nearest;
use super::{
    cancel_run, create_or_reuse_session, export_changes, get_run_logs, get_status, import_workspace,
    list_artifacts, list_sessions, read_artifact, submit_task, terminate_session,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    CreateOrReuseSession,
    SubmitTask,
    GetStatus,
    GetRunLogs,
    ListArtifacts,
    ReadArtifact,
    CancelRun,
    TerminateSession,
    ListSessions,
    ImportWorkspace,
    ExportChanges,
}

impl Named {
    /// In the order in which a model needs them.
    const ALL: [Self; 11] = [
        Self::CreateOrReuseSession,
        Self::SubmitTask,
        Self::GetStatus,
        Self::GetRunLogs,
        Self::ListArtifacts,
        Self::ReadArtifact,
        Self::CancelRun,
        Self::TerminateSession,
        Self::ListSessions,
        Self::ImportWorkspace,
        Self::ExportChanges,
    ];

    fn definition(self) -> Tool {
        let definition = match self {
            Self::CreateOrReuseSession => create_or_reuse_session::definition(),
            Self::SubmitTask => submit_task::definition(),
            Self::GetStatus => get_status::definition(),
            Self::GetRunLogs => get_run_logs::definition(),
            Self::ListArtifacts => list_artifacts::definition(),
            Self::ReadArtifact => read_artifact::definition(),
            Self::CancelRun => cancel_run::definition(),
            Self::TerminateSession => terminate_session::definition(),
            Self::ListSessions => list_sessions::definition(),
            Self::ImportWorkspace => import_workspace::definition(),
            Self::ExportChanges => export_changes::definition(),
        };
        definition.tool()
    }
}

static TOOLS: LazyLock<Vec<(Named, Tool)>> =
    LazyLock::new(|| Named::ALL.into_iter().map(|named| (named, named.definition())).collect());

pub(super) fn all() -> Vec<Tool> {
    TOOLS.iter().map(|(_, tool)| tool.clone()).collect()
}

pub(super) fn find(name: &str) -> Option<(Named, &'static Tool)> {
    TOOLS.iter().find(|(_, tool)| tool.name == name).map(|(named, tool)| (*named, tool))
}

/// What is said to whoever named a tool that is not there.
pub(super) fn missing(name: &str) -> String {
    let names = || TOOLS.iter().map(|(_, tool)| tool.name.as_ref());
    let advice = nearest(name, names()).map_or_else(
        || format!("there are {}", names().collect::<Vec<_>>().join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    format!("there is no tool `{name}`; {advice}")
}
