//! The fixtures on standard input and output, both eras; ends when the client closes its side.

use std::error::Error;

use rmcp::ServiceExt;

use super::Fixtures;
use super::server::Server;

pub async fn serve(fixtures: Fixtures) -> Result<(), Box<dyn Error>> {
    let running = Server::new(fixtures).serve(rmcp::transport::stdio()).await?;
    running.waiting().await?;
    Ok(())
}
