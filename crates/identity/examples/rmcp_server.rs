//! An MCP server that knows who calls it, on stdio: `rmcp_server NAME`, where NAME is what Callsign calls it.

use std::error::Error;
use std::path::PathBuf;
use std::time::SystemTime;

use callsign_identity::Trust;
use callsign_identity::assertion::Verifier;
use callsign_identity::read::{assertion_of_meta, identity_of_meta, workspace_of_meta};
use callsign_identity::workspace::{Roots, resolve};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt as _};
use serde_json::json;

struct Server {
    verifier: Verifier,
    roots: Roots,
}

impl Server {
    fn answer(&self, call: &CallToolRequestParams, meta: &[u8]) -> Result<String, Box<dyn Error>> {
        // Who says it calls, whether that is so, and which workspace it means.
        let told = identity_of_meta(meta).ok_or("this server is to be reached through Callsign")?;
        let arguments = call.arguments.as_ref().map(serde_json::to_vec).transpose()?;
        let assertion = assertion_of_meta(meta).ok_or("nobody vouches for this call")?;
        let verified = self.verifier.verify(&assertion, arguments.as_deref(), now())?;
        if !verified.is_about("tools/call", Some(&call.name)) {
            return Err("the assertion is about another call".into());
        }
        let explicit = call.arguments.as_ref().and_then(|arguments| arguments.get("workspace")?.as_str());
        let workspace = resolve(explicit, workspace_of_meta(meta).as_deref(), &self.roots)?;
        let (title, session) = (told.title, verified.identity.session);
        Ok(json!({
            "session": session.map(|id| id.to_string()), "title": title, "trust": verified.identity.trust.as_str(),
            "workspace": workspace.path, "ignored": workspace.differs,
        })
        .to_string())
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let schema = json!({ "type": "object", "properties": { "workspace": { "type": "string" } } });
        let schema = schema.as_object().cloned().unwrap_or_default();
        Ok(ListToolsResult::with_all_items(vec![Tool::new("whoami", "Says who calls", schema)]))
    }

    async fn call_tool(
        &self,
        call: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let meta = serde_json::to_vec(&context.meta).unwrap_or_default();
        let result = match self.answer(&call, &meta) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text)]),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
        };
        Ok(result.into())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).ok_or("usage: rmcp_server NAME")?;
    let keys = std::env::var_os("CALLSIGN_JWKS_FILE").ok_or("CALLSIGN_JWKS_FILE is not set")?;
    let home = std::env::var_os("HOME").ok_or("HOME is not set")?;
    let verifier = Verifier::from_file(keys)?.audience(name).require(Trust::Host);
    let server = Server { verifier, roots: Roots::new(vec![PathBuf::from(home)]) };
    server.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}

/// Unix seconds.
fn now() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a server has a clock of its own")]
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
