//! `callsign image build`: what boxes of a container engine run from.
//!
//! ```text
//! OpenCode's program, the bridge, the agent's configuration ─▶ engine, with Dockerfile.runtime ─▶ an image
//! ```
//!
//! Nothing runs while it is made, so nothing is fetched but the base, and that only where the engine has none.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use containers::{
    BASE, BRIDGE, Build, CONFIG, ContainerOptions, Containers, ImageError, ImageFile, OPENCODE, Places, Pull,
};
use model::settings::{Image, SessionSettings};
use serde::Serialize;

use crate::config::sessions::{Variables, resolve};
use crate::config::{self, Environment, Purpose, Sources};
use crate::exit::{Code, Failure, shown};
use crate::opencode;
use crate::output;
use crate::sessions::outfit::Outfit;

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make the image that boxes of Docker or Podman run from, out of a base and the OpenCode of this machine.
    Build(BuildArgs),
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// What it is made of. It brings what agents use: python3, pip, git, ripgrep and certificates.
    #[arg(long, value_name = "IMAGE", default_value = BASE)]
    base: String,
    /// Its name, if not the one that sessions ask for (`image`, or `MCP_RUNTIME_IMAGE`).
    #[arg(long)]
    tag: Option<String>,
    /// OpenCode's program, if not the one that sessions run (`command`, or `MCP_OPENCODE_COMMAND`).
    #[arg(long, value_name = "PATH")]
    opencode: Option<PathBuf>,
    /// The configuration file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    image: String,
    id: String,
    base: String,
    /// Bytes, the base included.
    size: Option<u64>,
    opencode: OpenCode,
    engine: String,
}

#[derive(Debug, Serialize)]
struct OpenCode {
    program: PathBuf,
    /// None: it came in no package that says so.
    version: Option<String>,
}

pub fn run(command: &ImageCommand) -> anyhow::Result<()> {
    match command {
        ImageCommand::Build(arguments) => build(arguments),
    }
}

fn build(arguments: &BuildArgs) -> anyhow::Result<()> {
    let environment = Environment::of_process();
    let settings = settings(arguments, environment)?;
    let base = named(&arguments.base, "--base")?;
    let tag = match &arguments.tag {
        Some(tag) => named(tag, "--tag")?,
        None => settings.image.as_str().to_owned(),
    };
    let found = program(arguments, &settings, environment)?;
    // What is packed lies here until it is; no box has this directory.
    let scratch = tempfile::tempdir().context("could not make a directory for what goes into the image")?;
    let outfit = Outfit::put_out(scratch.path()).context("what boxes need could not be written")?;
    let file = |from: PathBuf, to: &str| ImageFile { from, to: to.into() };
    let files =
        vec![file(found.program.clone(), OPENCODE), file(outfit.bridge, BRIDGE), file(outfit.config, CONFIG)];
    let containers = Containers::new(ContainerOptions {
        root: scratch.path().join("boxes"),
        owner: "image".to_owned(),
        places: places(environment),
        pull: Pull::Never,
        progress: Arc::new(|_, _| {}),
    });
    let wanted = Build { base: base.clone(), tag: tag.clone(), files };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let made = runtime.block_on(async {
        let engine = containers.facts().await.map_err(ImageError::from)?.to_string();
        tell(&format!("making {tag} of {base} with {engine}"));
        let built = containers.build(wanted, &|line| tell(&format!("  {}", line.trim_end()))).await?;
        Ok((built, engine))
    });
    let (built, engine) = made.map_err(failure)?;
    if arguments.json {
        let opencode = OpenCode { program: found.program, version: found.version };
        output::json(&Report { image: tag, id: built.id, base, size: built.size, opencode, engine })?;
    } else {
        output::line(&tag)?;
    }
    Ok(())
}

/// As sessions that are made here would have them.
fn settings(arguments: &BuildArgs, environment: Environment<'_>) -> anyhow::Result<SessionSettings> {
    let current_dir = std::env::current_dir().context("could not find the current directory")?;
    let named = arguments.config.as_deref();
    let sources = Sources { named, current_dir: &current_dir, environment, purpose: Purpose::Background };
    let variables = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())));
    let config = config::load(&sources)?;
    Ok(resolve(&config.sessions, &Variables::new(variables))?.settings)
}

fn named(written: &str, option: &str) -> Result<String, Failure> {
    let image = Image::new(written);
    let image = image.map_err(|error| Failure::new(Code::Usage, format!("{option} {written:?}: {error}")))?;
    Ok(image.as_str().to_owned())
}

fn program(
    arguments: &BuildArgs,
    settings: &SessionSettings,
    environment: Environment<'_>,
) -> anyhow::Result<opencode::Found> {
    let command = match &arguments.opencode {
        // Found as it would be in [sessions], where only whole paths are.
        Some(path) => std::path::absolute(path)?.to_string_lossy().into_owned(),
        None => settings.command.clone(),
    };
    let path = environment.get("PATH").map(OsString::from).unwrap_or_default();
    Ok(opencode::find(&command, &path).map_err(|problem| Failure::new(Code::Usage, problem))?)
}

/// Where the engine is looked for.
pub fn places(environment: Environment<'_>) -> Places {
    Places { docker_host: environment.get("DOCKER_HOST"), runtime_dir: environment.path("XDG_RUNTIME_DIR") }
}

fn failure(error: ImageError) -> anyhow::Error {
    let hint = match &error {
        ImageError::NoBase { base, .. } => Some(format!(
            "fetch it where there is a network (docker pull {base}), name another one with --base, or make one: \
             debootstrap --variant=minbase --include=python3,python3-pip,git,ripgrep,ca-certificates bookworm root, then \
             tar --create --directory root . | docker import - localhost/base:1"
        )),
        ImageError::Trouble(_)
        | ImageError::Refused(_)
        | ImageError::Pack { .. }
        | ImageError::BadPlace(_) => None,
    };
    let error = anyhow::Error::new(error);
    let failure = Failure::new(Code::Server, format!("{error:#}"));
    match hint {
        Some(hint) => failure.with_hint(hint).into(),
        None => failure.into(),
    }
}

/// How far it is, for whoever watches.
fn tell(line: &str) {
    let _nobody_reads = writeln!(io::stderr(), "{}", shown(line));
}
