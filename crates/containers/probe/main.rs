//! Plays the other processes of the tests: `daemon OPTIONS` does what it reads, one JSON value a line, until its input
//! ends or somebody kills it; `guard KIND DIRECTORY` keeps an engine, and leaves nothing of it when its input ends.

mod guard;

use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use containers::{Build, ContainerOptions, Containers, ImageFile, Places, Pull};
use futures_util::future::join_all;
use model::ports::sandbox::{BoxName, BoxSpec, Sandbox as _, SandboxError};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Options {
    root: PathBuf,
    owner: String,
    host: String,
}

#[derive(Deserialize)]
enum Request {
    Facts,
    Probe,
    MissingImage(String),
    Start(Box<BoxSpec>),
    /// So many at once.
    StartMany(Box<BoxSpec>, usize),
    FindAll,
    State(BoxName),
    /// So many at once.
    StateMany(BoxName, usize),
    Stop(BoxName, Duration),
    Kill(BoxName),
    Usage(BoxName),
    Forget(BoxName),
    Properties(BoxName),
    /// Base, tag, and pairs of where from and where to.
    Build(String, String, Vec<(PathBuf, PathBuf)>),
    /// What was told while images were fetched.
    Told,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["guard", kind, directory] => guard::main(kind, directory.as_ref()),
        ["daemon", options] => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let served = runtime.and_then(|runtime| runtime.block_on(serve(options)));
            ExitCode::from(u8::from(served.is_err()))
        }
        _ => ExitCode::from(2),
    }
}

async fn serve(options: &str) -> io::Result<()> {
    let Options { root, owner, host } = serde_json::from_str(options)?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let places = Places { docker_host: Some(host), runtime_dir: None };
    let heard = Arc::clone(&told);
    let progress = Arc::new(move |name: &BoxName, line: &str| {
        heard.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{name}: {line}"));
    });
    let sandbox = Containers::new(ContainerOptions { root, owner, places, pull: Pull::Missing, progress });
    // Read aside: followers go on while nobody asks.
    let (sender, mut requests) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = requests.recv().await {
        let request: Request = serde_json::from_str(&line)?;
        let answer = if matches!(request, Request::Told) {
            Ok(json(&*told.lock().unwrap_or_else(PoisonError::into_inner)))
        } else {
            answer(&sandbox, request).await
        };
        let answer = answer.unwrap_or_else(|error| serde_json::json!({ "error": error }));
        writeln!(io::stdout(), "{answer}")?;
    }
    Ok(())
}

async fn answer(sandbox: &Containers, request: Request) -> Result<serde_json::Value, String> {
    answered(sandbox, request).await.map_err(|error| told(&error))
}

async fn answered(sandbox: &Containers, request: Request) -> Result<serde_json::Value, SandboxError> {
    Ok(match request {
        Request::Told => serde_json::Value::Null,
        Request::Facts => match sandbox.facts().await {
            Ok(facts) => json(&facts.to_string()),
            Err(trouble) => json(&trouble.to_string()),
        },
        Request::Probe => {
            let ability = sandbox.probe().await?;
            let missing: Vec<_> = ability.missing.iter().map(ToString::to_string).collect();
            serde_json::json!({ "holds": ability.holds, "can_start": ability.can_start(), "missing": missing })
        }
        Request::MissingImage(image) => match sandbox.missing_image(&image).await {
            Ok(missing) => json(&missing.map(|missing| missing.to_string())),
            Err(trouble) => json(&trouble.to_string()),
        },
        Request::Start(spec) => json(&sandbox.start(*spec).await?),
        Request::StartMany(spec, times) => {
            let starts = (0..times).map(|_| sandbox.start((*spec).clone()));
            json(&join_all(starts).await.into_iter().collect::<Result<Vec<_>, _>>()?)
        }
        Request::FindAll => json(&sandbox.find_all().await?),
        Request::State(name) => json(&sandbox.state(&name).await?),
        Request::StateMany(name, times) => {
            let states = (0..times).map(|_| sandbox.state(&name));
            json(&join_all(states).await.into_iter().collect::<Result<Vec<_>, _>>()?)
        }
        Request::Stop(name, grace) => json(&sandbox.stop(&name, grace).await?),
        Request::Kill(name) => json(&sandbox.kill(&name).await?),
        Request::Usage(name) => json(&sandbox.usage(&name).await?),
        Request::Forget(name) => json(&sandbox.forget(&name).await?),
        Request::Properties(name) => json(&sandbox.properties(&name).await?),
        Request::Build(base, tag, files) => {
            let files = files.into_iter().map(|(from, to)| ImageFile { from, to }).collect();
            let lines = Mutex::new(Vec::new());
            let tell =
                |line: &str| lines.lock().unwrap_or_else(PoisonError::into_inner).push(line.to_owned());
            let built = sandbox.build(Build { base, tag, files }, &tell).await;
            let lines = lines.into_inner().unwrap_or_default();
            let (id, failed) = match built {
                Ok(built) => (Some(built.id), None),
                Err(error) => (None, Some(told(&error))),
            };
            serde_json::json!({ "lines": lines, "id": id, "failed": failed })
        }
    })
}

fn json<T: Serialize>(value: &T) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn told(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    format!("{error}{source}")
}
