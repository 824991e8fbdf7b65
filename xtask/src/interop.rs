//! Assertions, verified by libraries that are not ours: `PyJWT` and npm `jose`, each in the few lines the README shows.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

use crate::workspace::{Profile, Workspace};

const AUDIENCE: &str = "tracker";

/// The example that signs is built with everything else.
pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let state = TempDir::with_prefix("callsign-interop-")?;
    let sign = workspace.binary(Profile::Dev, "examples/sign")?;
    let token = said(Command::new(sign).arg(state.path()).args([AUDIENCE, r#"{"b":1.0,"a":"ü"}"#]))?;
    let jwks = state.path().join("jwks.json");
    let mut tried = 0;
    for (name, verifier) in [("PyJWT", python(workspace)?), ("jose", node(workspace)?)] {
        let verify = |token: &str, audience: &str| {
            let [program, script] = &verifier;
            said(Command::new(program).arg(script).arg(token).arg(&jwks).arg(audience))
        };
        let claims = verify(&token, AUDIENCE).with_context(|| format!("{name} refused a good token"))?;
        let claims: serde_json::Value = serde_json::from_str(&claims)?;
        ensure!(claims["sub"] == "codex:session-1" && claims["thread"] == "thread-1", "{name} read {claims}");
        for (why, token, audience) in [
            ("of another session", tampered(&token)?, AUDIENCE),
            ("for another server", token.clone(), "other"),
            ("without a signature", unsigned(&token)?, AUDIENCE),
        ] {
            ensure!(verify(&token, audience).is_err(), "{name} took a token {why}");
            tried += 1;
        }
    }
    Ok(format!("2 libraries took a good token, and refused {tried} bad ones"))
}

fn python(workspace: &Workspace) -> Result<[std::path::PathBuf; 2]> {
    let program = workspace.tool("pypi-test").join("bin/python");
    ensure!(program.is_file(), "PyJWT is not installed; run cargo xtask tools");
    Ok([program, workspace.root.join("crates/identity/interop/verify.py")])
}

/// Modules are looked for from where the script lies.
fn node(workspace: &Workspace) -> Result<[std::path::PathBuf; 2]> {
    let script = workspace.tool("npm").join("verify.mjs");
    std::fs::copy(workspace.root.join("crates/identity/interop/verify.mjs"), &script)
        .context("jose is not installed; run cargo xtask tools")?;
    Ok([workspace.which("node").context("node is not installed")?, script])
}

/// The same token with another session in its claims.
fn tampered(token: &str) -> Result<String> {
    use base64::Engine as _;
    use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
    let mut parts: Vec<String> = token.split('.').map(str::to_owned).collect();
    let claims = String::from_utf8(BASE64.decode(parts.get(1).context("no claims")?)?)?;
    let other = claims.replace("session-1", "session-2");
    ensure!(claims != other, "there is no session in the claims");
    parts[1] = BASE64.encode(other);
    Ok(parts.join("."))
}

fn unsigned(token: &str) -> Result<String> {
    let (signed, _) = token.rsplit_once('.').context("no signature")?;
    Ok(format!("{signed}."))
}

/// What a command prints. One that fails is an error.
fn said(command: &mut Command) -> Result<String> {
    let output =
        command.output().with_context(|| format!("{}", Path::new(command.get_program()).display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {}", output.status, stderr.trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
