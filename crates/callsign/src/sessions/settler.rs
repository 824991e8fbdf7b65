//! What a session is made with: the variables that came with it, over the settings of this daemon.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use api::tools::{Settled, Settler};
use identity::workspace::{Roots, WorkspaceError, resolve as resolve_workspace};
use model::ports::store::ImageChoice;
use model::settings::{Image, ModelName, Runtime, SessionSettings};
use tokio::sync::watch;

use crate::config::sessions::{Document, Variables, resolve};
use crate::opencode;

#[derive(Debug, Clone)]
pub(super) struct FromVariables {
    pub(super) base: watch::Receiver<Arc<SessionSettings>>,
    /// Where programs are sought.
    pub(super) path: OsString,
    /// Beneath which directories a workspace may lie.
    pub(super) roots: watch::Receiver<Roots>,
    /// Where our own files lie: no workspace.
    pub(super) state: PathBuf,
}

impl Settler for FromVariables {
    fn settle(&self, variables: BTreeMap<String, String>, image: Option<&str>) -> Result<Settled, String> {
        let resolved =
            resolve(&self.base.borrow(), &Variables::new(variables)).map_err(|errors| errors.to_string())?;
        let settings = resolved.settings;
        // Said now rather than by the first task.
        opencode::find(&settings.command, &self.path)?;
        let mut warnings: Vec<String> = resolved.warnings.iter().map(ToString::to_string).collect();
        warnings.extend(extras_doubt(&settings));
        let image = match image {
            None => ImageChoice::Default(settings.image.as_str().to_owned()),
            Some(image) => {
                let image = Image::new(image).map_err(|error| format!("`image`: {error}"))?;
                if settings.runtime == Runtime::Local {
                    let doubt = "`image` is kept with the session, and has no effect: a local box has the system of this \
                                 machine; set MCP_RUNTIME_MODE=docker to have it used";
                    warnings.push(doubt.to_owned());
                }
                ImageChoice::Asked(image.as_str().to_owned())
            }
        };
        let document = resolved.document.reaching(&settings).to_json().map_err(|error| error.to_string())?;
        let runtime = settings.runtime.name().to_owned();
        Ok(Settled { runtime, image, settings: document, key: resolved.key, warnings })
    }

    fn workspace(&self, explicit: Option<&str>, ambient: Option<&str>) -> Result<PathBuf, String> {
        let resolved =
            resolve_workspace(explicit, ambient, &self.roots.borrow()).map_err(|error| match error {
                WorkspaceError::OutsideRoots { .. } => {
                    format!("{error}; whoever runs callsign can add one to `roots` of [workspace]")
                }
                WorkspaceError::Missing
                | WorkspaceError::ControlCharacter { .. }
                | WorkspaceError::BadUri { .. }
                | WorkspaceError::NotAbsolute { .. }
                | WorkspaceError::Unreachable { .. }
                | WorkspaceError::NotADirectory { .. } => error.to_string(),
            })?;
        // What lies there is ours, keys and other sessions included. It has no links left in it, and neither has this.
        let state = std::fs::canonicalize(&self.state).unwrap_or_else(|_| self.state.clone());
        if resolved.path.starts_with(&state) || state.starts_with(&resolved.path) {
            return Err(format!(
                "the workspace {} holds the state directory of callsign, or lies in it; name another directory",
                resolved.path.display()
            ));
        }
        if let Some(other) = &resolved.differs {
            tracing::info!(named = %resolved.path.display(), other, "a call names another workspace than its session's");
        }
        Ok(resolved.path)
    }

    fn check_model(&self, settings: &str, model: &str) -> Result<(), String> {
        let document = Document::from_json(settings).map_err(|error| error.to_string())?;
        let provider = document.provider().unwrap_or_else(|| self.base.borrow().provider());
        let example = provider.example();
        ModelName::parse(provider, model).map(drop).map_err(|error| {
            format!("{error}; models of this session are written `{provider}/NAME`, such as `{example}`")
        })
    }
}

/// Said now rather than by the first task. Not refused: a session that has its extras needs the directory no more.
fn extras_doubt(settings: &SessionSettings) -> Option<String> {
    let directory = settings.extras_dir.as_ref().filter(|directory| !directory.is_dir())?;
    Some(format!(
        "there is no directory {} (MCP_RUNTIME_EXTRAS_DIR, or `extras_dir` in [sessions]); the first task of a new session will fail",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settler() -> FromVariables {
        let (sender, base) = watch::channel(Arc::new(SessionSettings::default()));
        drop(sender);
        // Programs are sought nowhere: what is found is named in full.
        let (_, roots) = watch::channel(Roots::default());
        FromVariables { base, path: OsString::new(), roots, state: PathBuf::from("/nowhere") }
    }

    fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[track_caller]
    fn refused(pairs: &[(&str, &str)], expected: &str) {
        let error = settler().settle(variables(pairs), None).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn what_cannot_be_had_is_refused_before_there_is_a_session() {
        refused(&[("MCP_RUNTIME_EXTRAS_DIR", "extras")], "MCP_RUNTIME_EXTRAS_DIR");
        refused(&[("MCP_OPENCODE_MODEL", "openai/x")], "MCP_OPENCODE_MODEL");
        refused(&[], "npm install");
    }

    #[test]
    fn a_key_is_kept_apart_and_an_image_is_told_to_have_no_effect() {
        let program = std::env::current_exe().unwrap();
        let key = ("MCP_OPENCODE_API_KEY", "sk-CANARY-7f3a");
        let pairs = [key, ("MCP_OPENCODE_COMMAND", program.to_str().unwrap())];
        let settled = settler().settle(variables(&pairs), Some("boxes/a:1")).unwrap();
        assert!(!settled.settings.contains("CANARY"), "{}", settled.settings);
        assert_eq!(settled.key.unwrap().expose(), key.1);
        assert_eq!(settled.image, ImageChoice::Asked("boxes/a:1".to_owned()));
        assert!(
            settled.warnings.iter().any(|warning| warning.contains("no effect")),
            "{:?}",
            settled.warnings
        );
        let bad = settler().settle(variables(&pairs), Some("--privileged")).map(|_| ()).unwrap_err();
        assert!(bad.contains("`image`"), "{bad}");
    }

    #[test]
    fn a_model_is_of_the_sessions_own_provider() {
        let document = r#"{"variables":{"MCP_OPENCODE_PROVIDER":"openai"}}"#;
        assert_eq!(settler().check_model(document, "openai/x"), Ok(()));
        let error = settler().check_model(document, "ollama/x").unwrap_err();
        assert!(error.contains("openai/NAME"), "{error}");
        assert_eq!(settler().check_model(r#"{"variables":{}}"#, "ollama/x"), Ok(()));
    }
}
