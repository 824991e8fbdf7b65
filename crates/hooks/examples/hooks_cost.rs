//! What hooks cost: `cargo run --release -p hooks --example hooks_cost [CALLS]`. One figure a line: name, tab, value.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use hooks::{Chain, Draft, FileSpec, Hooks, Input, Limits, Rules, Spec};

const TWO_HEADERS: &str = r#"export default {
  "mcp.call.before": async (input, output) => {
    output.headers["X-Session-Id"] = input.sessionID
    output.headers["X-Call-Id"] = input.callID
  },
}
"#;
const FILES: usize = 50;

fn main() -> std::io::Result<()> {
    let calls = std::env::args().nth(1).and_then(|calls| calls.parse().ok()).unwrap_or(1_000_000_u32);
    let directory = tempfile::tempdir()?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for number in 0..FILES {
        let path = directory.path().join(format!("{number}.js"));
        std::fs::write(&path, TWO_HEADERS)?;
        paths.push(path);
    }
    let file = |path: &PathBuf| FileSpec { path: path.clone(), shown: "hook.js".to_owned(), optional: false };
    let load = |paths: &[PathBuf]| {
        let spec = Spec {
            files: paths.iter().map(file).collect(),
            env: Vec::new(),
            limits: Limits::default(),
            rules: Rules::default(),
        };
        Hooks::load(&spec).map_err(|faults| std::io::Error::other(faults[0].to_string()))
    };
    let begun = Instant::now();
    load(&paths)?;
    let loaded = begun.elapsed();

    let hooks = Arc::new(load(&paths[..1])?);
    let chain = Chain::new(&hooks, &paths[..1]);
    let input = Input {
        server: "server".into(),
        tool: Some("echo".into()),
        method: "tools/call".into(),
        thread: Some("ses_0123456789abcdef".into()),
        call: Some("call_0123456789abcdef".into()),
        host: Some("opencode".into()),
        trust: "host".into(),
        takes_arguments: true,
        ..Input::default()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (per_call, growth) = runtime.block_on(async {
        let run = || async {
            let draft = Draft { headers: vec![("X-Static".into(), "1".into())], ..Draft::default() };
            chain.run(&input, draft).await.map_err(|fault| std::io::Error::other(fault.to_string()))
        };
        for _ in 0..10_000 {
            run().await?;
        }
        let before = resident()?;
        let begun = Instant::now();
        for _ in 0..calls {
            run().await?;
        }
        std::io::Result::Ok((begun.elapsed() / calls.max(1), resident()?.saturating_sub(before)))
    })?;

    let mut out = std::io::stdout().lock();
    writeln!(out, "{FILES} files loaded, ms\t{:.2}", loaded.as_secs_f64() * 1e3)?;
    writeln!(out, "one call, two headers, µs\t{:.2}", per_call.as_secs_f64() * 1e6)?;
    writeln!(out, "memory grown over {calls} calls, kB\t{growth}")
}

/// Resident memory in kilobytes.
fn resident() -> std::io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse().unwrap_or_default())
}
