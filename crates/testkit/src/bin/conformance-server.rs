//! The fixture server of the MCP conformance suite: `--listen ADDR` or `--stdio`.

use std::error::Error;
use std::net::SocketAddr;

use testkit::conformance::{Fixtures, http, stdio};

const USAGE: &str = "usage: conformance-server --listen ADDR | --stdio";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["--listen", address] => {
            let address: SocketAddr = address.parse()?;
            http::serve(Fixtures::new()?, address).await?;
        }
        ["--stdio"] => stdio::serve(Fixtures::new()?).await?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}
