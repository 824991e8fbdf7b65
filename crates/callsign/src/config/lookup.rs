//! Which file is the configuration.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::mistake::{ConfigErrors, Mistake, position};
use super::{Config, Environment, Purpose, Source, parse};

const FILE_NAME: &str = "callsign.toml";
const LARGEST: u64 = 4 * 1024 * 1024;

/// Where a configuration may come from.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// `--config`.
    pub named: Option<&'a Path>,
    /// Absolute.
    pub current_dir: &'a Path,
    pub environment: Environment<'a>,
    pub purpose: Purpose<'a>,
}

/// Finds, reads and checks the configuration. With no file anywhere it is the empty one; a file that was named
/// and is not there is a mistake.
pub fn load(sources: &Sources<'_>) -> Result<Config, ConfigErrors> {
    let Sources { current_dir, environment, purpose, .. } = *sources;
    let Some((path, text)) = find(sources)? else {
        let source = Source { text: "", shown: Path::new(FILE_NAME), directory: current_dir };
        return parse(source, purpose, environment);
    };
    let directory = path.parent().unwrap_or(current_dir);
    let config =
        parse(Source { text: &text, shown: shown(sources, &path), directory }, purpose, environment)?;
    Ok(Config { path: Some(path), ..config })
}

fn find(sources: &Sources<'_>) -> Result<Option<(PathBuf, String)>, ConfigErrors> {
    let environment = sources.environment;
    let named = sources.named.map(Path::to_owned).or_else(|| environment.path("CALLSIGN_CONFIG"));
    if let Some(named) = named {
        let path = sources.current_dir.join(named);
        return match read(sources, &path)? {
            Some(text) => Ok(Some((path, text))),
            None => Err(ConfigErrors::of_file(shown(sources, &path), "there is no such file")),
        };
    }
    // Hosts start `wrap` in directories that are not to be trusted: what lies there is not ours. Nor is what lies where
    // nobody chose to be.
    let here = match sources.purpose {
        Purpose::Serve => Some(sources.current_dir.join(FILE_NAME)),
        Purpose::Wrap(_) | Purpose::Background => None,
    };
    let of_user = environment.config_home().map(|directory| directory.join(FILE_NAME));
    for path in here.into_iter().chain(of_user) {
        if let Some(text) = read(sources, &path)? {
            return Ok(Some((path, text)));
        }
    }
    Ok(None)
}

/// None: there is no such file.
fn read(sources: &Sources<'_>, path: &Path) -> Result<Option<String>, ConfigErrors> {
    let shown = shown(sources, path);
    let mut bytes = Vec::new();
    let outcome = fs::File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(ConfigErrors::of_file(shown, format!("could not read the file: {error}"))),
        Ok(length) if length as u64 > LARGEST => {
            return Err(ConfigErrors::of_file(shown, "a configuration is at most 4 MiB"));
        }
        Ok(_) => {}
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
        let (line, column) = position(&text, valid);
        let message = "the file is not UTF-8 from here on; save it as UTF-8".to_owned();
        ConfigErrors(vec![Mistake { file: shown.to_owned(), line, column, message }])
    })
}

/// Short where it is short for the person: relative to where they are.
fn shown<'a>(sources: &Sources<'_>, path: &'a Path) -> &'a Path {
    path.strip_prefix(sources.current_dir).unwrap_or(path)
}
