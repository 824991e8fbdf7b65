//! The handler: which tool answers which call.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use model::Principal;
use model::ports::store::Store;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CreateTaskResult,
    GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams, InitializeResult, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler};
use sessions::Desk;

use super::arguments::Arguments;
use super::asker::{self, Asker, Opening, asked_by};
use super::catalogue::{self, Named};
use super::refusal::Refusal;
use super::settle::Settler;
use super::{
    cancel_run, create_or_reuse_session, export_changes, get_run_logs, get_status, import_workspace,
    list_artifacts, list_sessions, read_artifact, submit_task, tasks, terminate_session,
};

type Context = RequestContext<RoleServer>;

const INSTRUCTIONS: &str = "Sessions are sandboxed coding agents, each with a workspace directory that lasts. \
    1. create_or_reuse_session, with a reuse_key if you may want the same one again. \
    2. import_workspace copies a project in, or put files into the directory `session.workspace`; the agent sees it as \
    /workspace. \
    3. submit_task says what is to be done and returns at once. \
    4. get_status with wait_seconds=30, again and again, until run.status is completed, failed or canceled. \
    5. Read run.final_output; list_artifacts and read_artifact show files, get_run_logs what happened; \
    export_changes brings back what the agent changed. \
    Submit further tasks to the same session: it remembers. Runs go on when you disconnect; list_sessions finds them \
    again. terminate_session when the work is done.";

/// One session of the old era; in the new one, one request.
pub(super) struct Server<S> {
    desk: Desk<S>,
    settler: Arc<dyn Settler>,
    opening: OnceLock<Opening>,
}

/// What a tool needs to answer.
pub(super) struct Call<'a, S> {
    pub(super) desk: &'a Desk<S>,
    pub(super) settler: &'a dyn Settler,
    pub(super) asker: &'a Asker,
    pub(super) context: &'a Context,
    pub(super) arguments: &'a Arguments,
    opening: Option<&'a Opening>,
}

impl<S> Call<'_, S> {
    pub(super) fn principal(&self) -> &Principal {
        &self.asker.principal
    }

    /// The directory that the call is about: the one it names, else that of whoever calls.
    pub(super) fn workspace(&self) -> Result<PathBuf, Refusal> {
        let explicit = self.arguments.optional_text("workspace")?;
        let ambient = asker::workspace(&self.context.meta, self.opening);
        let found = self.settler.workspace(explicit, ambient.as_deref());
        found.map_err(|problem| Refusal::new("bad_workspace", problem))
    }

    pub(super) fn asked_by(&self) -> Option<String> {
        asked_by(&self.context.meta, self.opening)
    }
}

impl<S: Store + 'static> Server<S> {
    pub(super) fn new(desk: Desk<S>, settler: Arc<dyn Settler>) -> Self {
        Self { desk, settler, opening: OnceLock::new() }
    }

    async fn answer(
        &self,
        (named, tool): (Named, &'static Tool),
        given: CallToolRequestParams,
        context: &Context,
    ) -> Result<CallToolResponse, Refusal> {
        let arguments = Arguments::new(&tool.input_schema, given.arguments)?;
        let call = Call {
            desk: &self.desk,
            settler: self.settler.as_ref(),
            asker: asker(context)?,
            context,
            arguments: &arguments,
            opening: self.opening.get(),
        };
        let answer = match named {
            Named::CreateOrReuseSession => create_or_reuse_session::answer(&call).await,
            Named::SubmitTask => {
                let (view, repeated) = submit_task::submit(&call).await?;
                if takes_tasks(context) {
                    return Ok(CreateTaskResult::new(tasks::task(&view)).into());
                }
                Ok(submit_task::answer(&view, repeated))
            }
            Named::GetStatus => get_status::answer(&call).await,
            Named::GetRunLogs => get_run_logs::answer(&call).await,
            Named::ListArtifacts => list_artifacts::answer(&call).await,
            Named::ReadArtifact => read_artifact::answer(&call).await,
            Named::CancelRun => cancel_run::answer(&call).await,
            Named::TerminateSession => terminate_session::answer(&call).await,
            Named::ListSessions => list_sessions::answer(&call).await,
            Named::ImportWorkspace => import_workspace::answer(&call).await,
            Named::ExportChanges => export_changes::answer(&call).await,
        };
        answer.map(|answer| CallToolResult::structured(answer).into())
    }
}

impl<S: Store + 'static> ServerHandler for Server<S> {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder().enable_tools().enable_tasks().build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("callsign-sessions", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: Context,
    ) -> Result<InitializeResult, ErrorData> {
        // A second one changes nothing: who opened the session stays who opened it.
        self.opening.get_or_init(|| Opening::new(&request.client_info, &context.meta));
        context.peer.set_peer_info(request.clone());
        self.negotiate_initialize(&request)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(catalogue::all()))
    }

    /// The transport compares arguments and headers of a call by the schema found here.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalogue::find(name).map(|(_, tool)| tool.clone())
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let tool = catalogue::find(&call.name)
            .ok_or_else(|| ErrorData::invalid_params(catalogue::missing(&call.name), None))?;
        let answer = self.answer(tool, call, &context).await;
        Ok(answer.unwrap_or_else(|refusal| refusal.into_result().into()))
    }

    async fn get_task(&self, request: GetTaskParams, context: Context) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.desk, principal(&context)?, &request.task_id).await
    }

    async fn update_task(&self, request: UpdateTaskParams, context: Context) -> Result<(), ErrorData> {
        tasks::update(&self.desk, principal(&context)?, &request.task_id).await
    }

    async fn cancel_task(&self, request: CancelTaskParams, context: Context) -> Result<(), ErrorData> {
        tasks::cancel(&self.desk, principal(&context)?, &request.task_id).await
    }
}

/// It was put there before the library saw the request. Without it nobody is asking, so nobody is answered.
fn asker(context: &Context) -> Result<&Asker, Refusal> {
    let parts = context.extensions.get::<Parts>();
    parts
        .and_then(|parts| parts.extensions.get::<Asker>())
        .ok_or_else(|| Refusal::new("no_principal", "it is not known who asks".to_owned()))
}

fn principal(context: &Context) -> Result<&Principal, ErrorData> {
    match asker(context) {
        Ok(asker) => Ok(&asker.principal),
        Err(refusal) => Err(ErrorData::internal_error(refusal.message, None)),
    }
}

/// The extension is the new era's. Revisions are dates, so their names sort as they came.
fn takes_tasks(context: &Context) -> bool {
    let modern = context
        .meta
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    modern && context.meta.client_capabilities().is_some_and(|declared| declared.supports_tasks())
}
