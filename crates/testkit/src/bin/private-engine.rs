//! `private-engine docker|podman`: an engine for whoever holds its input open. It says where it is in one line,
//! `unix://…`, which is what `DOCKER_HOST` is to be.

use std::error::Error;
use std::io::{Read as _, Write as _};

use testkit::engine::{Kind, PrivateEngine};

fn main() -> Result<(), Box<dyn Error>> {
    let kind = match std::env::args().nth(1).as_deref() {
        Some("docker") => Kind::Docker,
        Some("podman") => Kind::Podman,
        _ => return Err("usage: private-engine docker|podman".into()),
    };
    let engine = PrivateEngine::start(kind);
    let mut stdout = std::io::stdout();
    writeln!(stdout, "{}", engine.host())?;
    stdout.flush()?;
    // Until nobody holds the other end any more.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    drop(engine);
    Ok(())
}
