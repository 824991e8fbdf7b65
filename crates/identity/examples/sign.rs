//! Signs an assertion with the keys of a state directory, to try verifiers with: `sign DIRECTORY AUDIENCE ARGUMENTS`.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use callsign_identity::assertion::{About, Signer};
use callsign_identity::keys::Keyring;
use callsign_identity::{Id, Identity, Source, Trust};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, server, arguments] = arguments.as_slice() else {
        return Err("usage: sign DIRECTORY AUDIENCE ARGUMENTS".into());
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "the edge: everything beneath takes the time as a parameter"
    )]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let keys = Keyring::open(Path::new(directory), now.as_secs())?;
    let identity = Identity {
        host: Some(Id::new("codex")?),
        session: Some(Id::new("session-1")?),
        thread: Some(Id::new("thread-1")?),
        parent: Some(Id::new("session-1")?),
        trust: Trust::Host,
        source: Source::Meta,
        ..Identity::default()
    };
    let about = About {
        server,
        method: "tools/call",
        name: Some("whoami"),
        call: "call-1",
        arguments: Some(arguments.as_bytes()),
    };
    let milliseconds = u64::try_from(now.as_millis())?;
    let token = Signer::new(Arc::new(keys))?.sign(&identity, &about, milliseconds)?;
    writeln!(std::io::stdout(), "{token}")?;
    Ok(())
}
