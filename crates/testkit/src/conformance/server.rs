//! The handler: which fixture answers which request.

#![expect(deprecated, reason = "the suite tests log levels, which the library retires")]

use std::sync::{Mutex, PoisonError};

use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, ClientCapabilities,
    CompleteRequestParams, CompleteResult, ContentBlock, GetPromptRequestParams, GetPromptResponse,
    GetTaskParams, GetTaskResult, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, LoggingLevel, PaginatedRequestParams, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities, ServerConfig,
    SetLevelRequestMethod, SetLevelRequestParams, SubscribeRequestParams, SubscriptionFilter, Tool,
    UnsubscribeRequestParams, UpdateTaskParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use rmcp::{ErrorData, ServerHandler};
use serde_json::json;

use super::changes::{Change, Changes};
use super::content::text;
use super::rounds::Round;
use super::{Fixtures, catalogue, content, conversation, rounds, tasks};

type Context = RequestContext<RoleServer>;
type Page = Option<PaginatedRequestParams>;

/// One legacy session or one stdio connection; in the modern era over HTTP, one request.
pub(super) struct Server {
    fixtures: Fixtures,
    /// Set by `logging/setLevel`, which the legacy era has; until then every message is sent.
    level: Mutex<LoggingLevel>,
}

impl Server {
    pub(super) fn new(fixtures: Fixtures) -> Self {
        Self { fixtures, level: Mutex::new(LoggingLevel::Debug) }
    }

    /// The least level this request wants. In the modern era none, unless it says so itself.
    fn least_level(&self, context: &Context) -> Option<LoggingLevel> {
        if is_modern(context) {
            context.meta.log_level()
        } else {
            Some(*self.level.lock().unwrap_or_else(PoisonError::into_inner))
        }
    }

    async fn announce(&self, context: &Context, change: Change) -> Result<CallToolResponse, ErrorData> {
        self.fixtures.changes.announce(change).await;
        // In the modern era a request's own stream must not carry it.
        if !is_modern(context) {
            Changes::announce_to(&context.peer, change)
                .await
                .map_err(|error| ErrorData::internal_error(error.to_string(), None))?;
        }
        Ok(text("The list has changed").into())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_completions()
            .enable_logging()
            .enable_tasks()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("conformance-server", env!("CARGO_PKG_VERSION")))
    }

    async fn list_tools(&self, _: Page, _: Context) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(catalogue::tools()?))
    }

    /// The transport compares arguments and headers of a call by the schema found here.
    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalogue::tools().ok()?.into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = call.arguments.unwrap_or_default();
        let name = call.name.as_ref();
        if let Some(answer) = content::tool(name) {
            return Ok(answer.into());
        }
        if let Some(answer) = content::echo(name, &arguments) {
            return answer.map(Into::into);
        }
        let round = Round {
            fixtures: &self.fixtures,
            name,
            capabilities: context.client_capabilities().unwrap_or_default(),
            responses: call.input_responses,
            state: call.request_state,
        };
        if let Some(answer) = rounds::tool(&round) {
            return answer;
        }
        if let Some(answer) = tasks::tool(&round, &arguments).await {
            return answer;
        }
        let answer = match name {
            "test_tool_with_logging" => conversation::logging(&context, self.least_level(&context)).await?,
            "test_logging_tool" => {
                conversation::log(&context, self.least_level(&context), "Tool called").await?;
                text("Logged where logs are wanted")
            }
            "test_tool_with_progress" => conversation::progress(&context).await?,
            // The library would send the question even so, where the connection is stdio.
            name if is_modern(&context) && conversation::asks(name) => {
                CallToolResult::error(vec![ContentBlock::text("This tool asks in the legacy era only")])
            }
            "test_sampling" => conversation::sampling(&context, &arguments).await?,
            "test_elicitation" => conversation::elicitation(&context, &arguments).await?,
            "test_elicitation_sep1034_defaults" => conversation::elicitation_defaults(&context).await?,
            "test_elicitation_sep1330_enums" => conversation::elicitation_enums(&context).await?,
            catalogue::RECONNECTION_TOOL => conversation::reconnection(&self.fixtures, &context).await,
            "test_missing_capability" if round.capabilities.sampling.is_none() => {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            "test_missing_capability" => text("The client can sample"),
            "test_trigger_tool_change" => return self.announce(&context, Change::Tools).await,
            "test_trigger_prompt_change" => return self.announce(&context, Change::Prompts).await,
            _ => return Err(ErrorData::invalid_params(format!("unknown tool `{name}`"), None)),
        };
        Ok(answer.into())
    }

    async fn list_prompts(&self, _: Page, _: Context) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(catalogue::prompts()?))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        if request.name == "test_input_required_result_prompt" {
            return rounds::prompt(&Round {
                fixtures: &self.fixtures,
                name: &request.name,
                capabilities: context.client_capabilities().unwrap_or_default(),
                responses: request.input_responses,
                state: request.request_state,
            });
        }
        let arguments = request.arguments.unwrap_or_default();
        Ok(content::prompt(&request.name, &arguments)?.into())
    }

    async fn list_resources(&self, _: Page, _: Context) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(catalogue::resources()))
    }

    async fn list_resource_templates(
        &self,
        _: Page,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(catalogue::resource_templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        Ok(ReadResourceResult::new(vec![content::resource(&request.uri)?]).into())
    }

    async fn subscribe(&self, request: SubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        known_resource(&request.uri)
    }

    async fn unsubscribe(&self, request: UnsubscribeRequestParams, _: Context) -> Result<(), ErrorData> {
        known_resource(&request.uri)
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, subscription: SubscriptionContext) -> Result<(), ErrorData> {
        self.fixtures.changes.listen(subscription).await
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let values = content::completion(&request.r#ref, &request.argument.value)?;
        Ok(CompleteResult::new(values))
    }

    async fn set_level(&self, request: SetLevelRequestParams, context: Context) -> Result<(), ErrorData> {
        if is_modern(&context) {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = request.level;
        Ok(())
    }

    async fn get_task(&self, request: GetTaskParams, _: Context) -> Result<GetTaskResult, ErrorData> {
        Ok(GetTaskResult::new(self.fixtures.tasks.get_task(&request.task_id)?))
    }

    async fn update_task(&self, request: UpdateTaskParams, _: Context) -> Result<(), ErrorData> {
        self.fixtures.tasks.update_task(&request.task_id, request.input_responses)
    }

    async fn cancel_task(&self, request: CancelTaskParams, _: Context) -> Result<(), ErrorData> {
        self.fixtures.tasks.cancel_task(&request.task_id)
    }
}

/// Revisions are dates, so their names sort as they came.
fn is_modern(context: &Context) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn known_resource(uri: &str) -> Result<(), ErrorData> {
    if catalogue::resources().iter().any(|resource| resource.uri == uri) {
        return Ok(());
    }
    Err(ErrorData::resource_not_found("resource not found", Some(json!({"uri": uri}))))
}
