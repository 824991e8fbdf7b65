//! Images: fetched where one is missing, and made.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::models::{BuildInfo, CreateImageInfo, ImageInspect, ProgressDetail};
use bollard::query_parameters::{BuildImageOptions, CreateImageOptions};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::engine::{CALL, Engine, Fault, Trouble};

/// What boxes run from unless somebody names another image. Never fetched: under this name a registry could only have
/// somebody else's.
const RUNTIME: &str = "opencode-as-mcp-runtime";
/// How an image of ours is made; its base is an argument.
pub const DOCKERFILE: &str = include_str!("../../../Dockerfile.runtime");
/// The base unless somebody names another. In full, since Podman knows no default registry.
pub const BASE: &str = "docker.io/library/debian:12-slim";
/// Where things lie in an image of ours: the agent's program, the box's init, and what the agent is configured with.
pub const OPENCODE: &str = "/opt/callsign/opencode";
pub const BRIDGE: &str = "/opt/callsign/bridge";
pub const CONFIG: &str = "/opt/callsign/config";

/// How long an engine may say nothing while it works on an image.
const SILENCE: Duration = Duration::from_mins(3);
const NAME: &str = "Dockerfile.runtime";
const PIECE: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// In the engine's own words.
    #[error("the engine could not make the image: {0}")]
    Refused(String),
    /// With the engine's own words, where it was asked for it.
    #[error("the base image {base} is not there{}", .said.as_ref().map(|said| format!(", and the engine could not fetch it: {said}")).unwrap_or_default())]
    NoBase { base: String, said: Option<String> },
    #[error("could not pack {}", .path.display())]
    Pack {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("`{}` is no place in an image: {} and what lies beneath is", .0.display(), ROOT)]
    BadPlace(PathBuf),
}

const ROOT: &str = "/opt/callsign";

/// What to make an image of.
#[derive(Debug, Clone)]
pub struct Build {
    pub base: String,
    pub tag: String,
    pub files: Vec<ImageFile>,
}

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// `sha256:…`
    pub id: String,
    /// Bytes, its base included.
    pub size: Option<u64>,
}

/// A file or a whole directory of the host, and where it lies in the image. Links stay links.
#[derive(Debug, Clone)]
pub struct ImageFile {
    pub from: PathBuf,
    /// Beneath `/opt/callsign`.
    pub to: PathBuf,
}

/// None if the engine does not have it.
pub(crate) async fn find(engine: &Engine, image: &str) -> Result<Option<ImageInspect>, Fault> {
    match engine.call(CALL, engine.docker.inspect_image(image)).await {
        Ok(found) => Ok(Some(found)),
        Err(Fault::NotFound(_)) => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// Whether a registry can have it at all.
pub(crate) fn is_local(image: &str) -> bool {
    let name = image.split_once([':', '@']).map_or(image, |(name, _)| name);
    name == RUNTIME || image.starts_with("localhost/") || image.starts_with("sha256:")
}

pub(crate) async fn pull(
    engine: &Engine,
    image: &str,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Fault> {
    // Without a tag, an engine would fetch all of them.
    let last = image.rsplit('/').next().unwrap_or(image);
    let whole = if last.contains([':', '@']) { image.to_owned() } else { format!("{image}:latest") };
    let options = CreateImageOptions { from_image: Some(whole), ..CreateImageOptions::default() };
    let lines = engine.docker.create_image(Some(options), None, None);
    let lines = lines.map(|line| {
        line.map(|CreateImageInfo { id, status, progress_detail, .. }| {
            let words = [id, status, progress_detail.and_then(share)];
            words.into_iter().flatten().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        })
    });
    told(engine, lines, tell).await
}

fn share(ProgressDetail { current, total }: ProgressDetail) -> Option<String> {
    let (current, total) = (current?, total.filter(|total| *total > 0)?);
    Some(format!("{} %", current.saturating_mul(100) / total))
}

pub(crate) async fn build(
    engine: &Engine,
    build: Build,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<Built, ImageError> {
    let Build { base, tag, files } = build;
    for file in &files {
        let plain = file
            .to
            .components()
            .all(|part| matches!(part, std::path::Component::RootDir | std::path::Component::Normal(_)));
        if !plain || !file.to.starts_with(ROOT) {
            return Err(ImageError::BadPlace(file.to.clone()));
        }
        // Before the engine is told anything.
        std::fs::metadata(&file.from)
            .map_err(|source| ImageError::Pack { path: file.from.clone(), source })?;
    }
    if is_local(&base) && find(engine, &base).await.map_err(refused)?.is_none() {
        return Err(ImageError::NoBase { base, said: None });
    }
    let (sender, receiver) = mpsc::channel(4);
    let packing = tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces { sender, held: Vec::with_capacity(PIECE) };
        pack(&files, &mut pieces)
            .and_then(|()| pieces.flush().map_err(|source| ImageError::Pack { path: NAME.into(), source }))
            .inspect_err(|error| {
                // Otherwise half a tree would look like a whole one.
                let cut = io::Error::other(error.to_string());
                let _gone = pieces.sender.blocking_send(Err(cut));
            })
    });
    let body =
        stream::unfold(receiver, async |mut receiver| receiver.recv().await.map(|piece| (piece, receiver)));
    let options = BuildImageOptions {
        dockerfile: NAME.to_owned(),
        t: Some(tag.clone()),
        rm: true,
        forcerm: true,
        buildargs: Some(HashMap::from([("BASE".to_owned(), base.clone())])),
        networkmode: Some("none".to_owned()),
        ..BuildImageOptions::default()
    };
    let lines = engine.docker.build_image(options, None, Some(bollard::body_try_stream(body)));
    let lines = lines.map(|line| match line {
        Ok(BuildInfo { error_detail: Some(detail), .. }) => {
            Err(bollard::errors::Error::DockerStreamError { error: detail.message.unwrap_or_default() })
        }
        other => other.map(|BuildInfo { stream, status, .. }| stream.or(status).unwrap_or_default()),
    });
    let built = told(engine, lines, tell).await;
    // What it was not told is why it did not build.
    if let Ok(Err(error)) = packing.await
        && !matches!(&error, ImageError::Pack { source, .. } if source.kind() == io::ErrorKind::BrokenPipe)
    {
        return Err(error);
    }
    match built.map_err(refused) {
        Err(ImageError::Refused(said)) if find(engine, &base).await.map_err(refused)?.is_none() => {
            return Err(ImageError::NoBase { base, said: Some(said) });
        }
        other => other?,
    }
    let made = find(engine, &tag).await.map_err(refused)?;
    let lost = || ImageError::Refused(format!("it says that it made {tag}, and does not have it"));
    let made = made.ok_or_else(lost)?;
    let size = made.size.and_then(|size| u64::try_from(size).ok());
    Ok(Built { id: made.id.unwrap_or_default(), size })
}

fn refused(fault: Fault) -> ImageError {
    match fault {
        Fault::Trouble(trouble) => ImageError::Trouble(trouble),
        Fault::NotFound(words) | Fault::Conflict(words) | Fault::Refused(words) => ImageError::Refused(words),
    }
}

/// Passes lines on until there are no more, or one is an error, or there are none for too long.
async fn told(
    engine: &Engine,
    lines: impl Stream<Item = Result<String, bollard::errors::Error>>,
    tell: &(dyn Fn(&str) + Send + Sync),
) -> Result<(), Fault> {
    let mut lines = std::pin::pin!(lines);
    loop {
        match timeout(SILENCE, lines.next()).await {
            Err(_) => return Err(Trouble::Silent(engine.facts.socket.clone(), SILENCE).into()),
            Ok(None) => return Ok(()),
            Ok(Some(Err(error))) => return Err(engine.fault(error)),
            Ok(Some(Ok(line))) => line.lines().filter(|line| !line.trim().is_empty()).for_each(tell),
        }
    }
}

/// The same bytes for the same files: owners and times of the host stay on the host.
fn pack(files: &[ImageFile], to: &mut Pieces) -> Result<(), ImageError> {
    let mut tar = tar::Builder::new(to);
    tar.follow_symlinks(false);
    tar.mode(tar::HeaderMode::Deterministic);
    let mut header = tar::Header::new_gnu();
    header.set_size(DOCKERFILE.len() as u64);
    header.set_mode(0o644);
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ImageError::Pack { path, source }
    };
    tar.append_data(&mut header, NAME, DOCKERFILE.as_bytes()).map_err(failed(Path::new(NAME)))?;
    for ImageFile { from, to } in files {
        let to = Path::new("root").join(to.strip_prefix("/").unwrap_or(to));
        let packed = if from.is_dir() {
            tar.append_dir_all(&to, from)
        } else {
            // A link on the host to a file is that file.
            from.canonicalize().and_then(|from| tar.append_path_with_name(from, &to))
        };
        packed.map_err(failed(from))?;
    }
    tar.into_inner().map(|_| ()).map_err(failed(Path::new(NAME)))
}

/// Bytes on their way to the engine, a few pieces at a time.
#[derive(Debug)]
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    held: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.held.extend_from_slice(bytes);
        if self.held.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.held.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.held, Vec::with_capacity(PIECE));
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use model::settings::SessionSettings;

    use super::{BASE, DOCKERFILE, RUNTIME, is_local};

    #[test]
    fn the_image_of_a_session_that_names_none_is_ours_and_the_recipe_has_our_base() {
        let image = SessionSettings::default().image;
        assert_eq!(image.as_str(), format!("{RUNTIME}:latest"));
        assert!(DOCKERFILE.contains(&format!("ARG BASE={BASE}\n")));
    }

    #[test]
    fn what_only_this_machine_can_have_is_never_fetched() {
        for (image, expected) in [
            ("opencode-as-mcp-runtime:latest", true),
            ("opencode-as-mcp-runtime", true),
            ("opencode-as-mcp-runtime@sha256:1", true),
            ("localhost/x", true),
            ("debian:12", false),
            ("ghcr.io/acme/opencode-as-mcp-runtime", false),
            ("opencode-as-mcp-runtime/x", false),
        ] {
            assert_eq!(is_local(image), expected, "{image}");
        }
    }
}
