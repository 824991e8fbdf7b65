//! Plays the other processes of the tests: `keeper …` is the keeper of their boxes, and `daemon OPTIONS` a daemon that
//! does what it reads, one JSON value a line, until its input ends or somebody kills it.

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use model::ports::sandbox::{BoxName, BoxSpec, Level, Sandbox as _, SandboxError};
use sandbox::{Groups, KeeperCommand, LocalOptions, LocalSandbox, Ownership};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Options {
    root: PathBuf,
    owner: String,
    path: Vec<PathBuf>,
    level: Level,
    groups: bool,
}

#[derive(Deserialize)]
enum Request {
    Own,
    Probe,
    Start(Box<BoxSpec>),
    /// So many at once.
    StartMany(Box<BoxSpec>, usize),
    FindAll,
    State(BoxName),
    Stop(BoxName, Duration),
    Kill(BoxName),
    Usage(BoxName),
    Forget(BoxName),
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.split_first() {
        Some((mode, rest)) if mode == "keeper" => {
            ExitCode::from(u8::try_from(sandbox::keeper::main(rest)).unwrap_or(1))
        }
        Some((mode, [options])) if mode == "daemon" => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let served = runtime.and_then(|runtime| runtime.block_on(serve(&options.to_string_lossy())));
            ExitCode::from(u8::from(served.is_err()))
        }
        _ => ExitCode::from(2),
    }
}

async fn serve(options: &str) -> io::Result<()> {
    let Options { root, owner, path, level, groups } = serde_json::from_str(options)?;
    let keeper = KeeperCommand { program: std::env::current_exe()?, args: vec!["keeper".to_owned()] };
    let groups = if groups { Groups::Found } else { Groups::Never };
    let sandbox = LocalSandbox::new(LocalOptions { root, owner, keeper, path, level, groups });
    let mut owned = None;
    for line in io::stdin().lock().lines() {
        let answer = answer(&sandbox, serde_json::from_str(&line?)?, &mut owned).await;
        let answer = answer.unwrap_or_else(|error| serde_json::json!({ "error": told(&error) }));
        writeln!(io::stdout(), "{answer}")?;
    }
    Ok(())
}

async fn answer(
    sandbox: &LocalSandbox,
    request: Request,
    owned: &mut Option<Ownership>,
) -> Result<serde_json::Value, SandboxError> {
    Ok(match request {
        Request::Own => {
            *owned = sandbox.own().await?;
            json(&owned.is_some())
        }
        Request::Probe => {
            let ability = sandbox.probe().await?;
            let missing: Vec<_> = ability.missing.iter().map(ToString::to_string).collect();
            serde_json::json!({ "holds": ability.holds, "can_start": ability.can_start(), "missing": missing })
        }
        Request::Start(spec) => json(&sandbox.start(*spec).await?),
        Request::StartMany(spec, times) => {
            let starts = (0..times).map(|_| Box::pin(sandbox.start((*spec).clone())));
            json(&all(starts.collect()).await.into_iter().collect::<Result<Vec<_>, _>>()?)
        }
        Request::FindAll => json(&sandbox.find_all().await?),
        Request::State(name) => json(&sandbox.state(&name).await?),
        Request::Stop(name, grace) => json(&sandbox.stop(&name, grace).await?),
        Request::Kill(name) => json(&sandbox.kill(&name).await?),
        Request::Usage(name) => json(&sandbox.usage(&name).await?),
        Request::Forget(name) => json(&sandbox.forget(&name).await?),
    })
}

/// Side by side, in this one task.
async fn all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut done: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut done) {
            if output.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context)
            {
                *output = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

fn json<T: Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn told(error: &SandboxError) -> String {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
