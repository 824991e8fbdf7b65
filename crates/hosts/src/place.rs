//! Where hosts keep their configuration.

use std::path::{Path, PathBuf};

use crate::document::Format;
use crate::entry::Dialect;
use crate::host::{Host, Scope};
use crate::{claude_code, codex, cursor, gemini, goose, vscode};

/// A file to edit.
#[derive(Debug, Clone)]
pub struct Target {
    pub path: PathBuf,
    pub content: Content,
}

/// What a file holds.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// A list of servers.
    Servers { format: Format, dialect: Dialect },
    /// Claude Code's settings, which take our hook.
    Hook,
    /// Our plugin for `OpenCode`.
    Plugin,
}

/// What says where files are.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// A variable of the environment; empty ones count as not set.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The project's directory.
    pub project: &'a Path,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    #[error("{host} has no configuration of its own for a {scope}")]
    Scope { host: Host, scope: Scope },
    #[error("there is no home directory: HOME is not set")]
    Home,
}

pub fn targets(host: Host, scope: Scope, around: Surroundings<'_>) -> Result<Vec<Target>, NoPlace> {
    let project = around.project;
    let one = |path: PathBuf, content| Ok(vec![Target { path, content }]);
    let json = |dialect| Content::Servers { format: Format::Jsonc, dialect };
    match (host, scope) {
        (Host::Opencode, Scope::User) => {
            let base = match around.path("OPENCODE_CONFIG_DIR") {
                Some(directory) => directory,
                None => around.config()?.join("opencode"),
            };
            one(base.join("plugin/callsign.js"), Content::Plugin)
        }
        (Host::Opencode, Scope::Project) => {
            one(project.join(".opencode/plugin/callsign.js"), Content::Plugin)
        }
        (Host::Codex, Scope::User) => one(around.codex()?.join("config.toml"), toml(codex::DIALECT)),
        (Host::Codex, Scope::Project) => one(project.join(".codex/config.toml"), toml(codex::DIALECT)),
        (Host::ClaudeCode, Scope::User) => {
            let directory = around.path("CLAUDE_CONFIG_DIR");
            let settings = match &directory {
                Some(directory) => directory.clone(),
                None => around.home()?.join(".claude"),
            };
            let servers = match directory {
                Some(directory) => directory.join(".claude.json"),
                None => around.home()?.join(".claude.json"),
            };
            Ok(claude(servers, settings.join("settings.json")))
        }
        (Host::ClaudeCode, Scope::Project) => {
            Ok(claude(project.join(".mcp.json"), project.join(".claude/settings.json")))
        }
        (Host::Goose, Scope::User) => {
            let directory = match around.absolute("GOOSE_PATH_ROOT") {
                Some(root) => root.join("config"),
                None => around.config()?.join("goose"),
            };
            let content = Content::Servers { format: Format::Yaml, dialect: goose::DIALECT };
            one(directory.join("config.yaml"), content)
        }
        (Host::Goose, Scope::Project) => Err(NoPlace::Scope { host, scope }),
        (Host::Vscode, Scope::User) => {
            one(around.config()?.join("Code/User/mcp.json"), json(vscode::DIALECT))
        }
        (Host::Vscode, Scope::Project) => one(project.join(".vscode/mcp.json"), json(vscode::DIALECT)),
        (Host::Cursor, Scope::User) => one(around.home()?.join(".cursor/mcp.json"), json(cursor::DIALECT)),
        (Host::Cursor, Scope::Project) => one(project.join(".cursor/mcp.json"), json(cursor::DIALECT)),
        (Host::Gemini, Scope::User) => {
            let home = match around.path("GEMINI_CLI_HOME") {
                Some(home) => home,
                None => around.home()?,
            };
            one(home.join(".gemini/settings.json"), json(gemini::DIALECT))
        }
        (Host::Gemini, Scope::Project) => one(project.join(".gemini/settings.json"), json(gemini::DIALECT)),
    }
}

fn toml(dialect: Dialect) -> Content {
    Content::Servers { format: Format::Toml, dialect }
}

fn claude(servers: PathBuf, settings: PathBuf) -> Vec<Target> {
    let content = Content::Servers { format: Format::Jsonc, dialect: claude_code::DIALECT };
    vec![Target { path: servers, content }, Target { path: settings, content: Content::Hook }]
}

impl Surroundings<'_> {
    fn path(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// Relative ones are ignored, as the programs do that read them.
    fn absolute(&self, name: &str) -> Option<PathBuf> {
        self.path(name).filter(|path| path.is_absolute())
    }

    fn home(&self) -> Result<PathBuf, NoPlace> {
        self.absolute("HOME").ok_or(NoPlace::Home)
    }

    fn config(&self) -> Result<PathBuf, NoPlace> {
        match self.absolute("XDG_CONFIG_HOME") {
            Some(directory) => Ok(directory),
            None => Ok(self.home()?.join(".config")),
        }
    }

    fn codex(&self) -> Result<PathBuf, NoPlace> {
        match self.path("CODEX_HOME") {
            Some(directory) => Ok(directory),
            None => Ok(self.home()?.join(".codex")),
        }
    }
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").field("project", &self.project).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(host: Host, scope: Scope, variables: &[(&str, &str)]) -> Result<Vec<String>, NoPlace> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let around = Surroundings { variable: &variable, project: Path::new("/p") };
        let found = targets(host, scope, around)?;
        Ok(found.into_iter().map(|target| target.path.display().to_string()).collect())
    }

    #[test]
    fn every_host_is_found_where_it_looks_itself() {
        let check = |host, scope, variables: &[(&str, &str)], expected: &[&str]| {
            assert_eq!(paths(host, scope, variables).unwrap(), expected, "{host} {scope} {variables:?}");
        };
        let home = [("HOME", "/h")];
        check(Host::Opencode, Scope::User, &home, &["/h/.config/opencode/plugin/callsign.js"]);
        check(
            Host::Opencode,
            Scope::User,
            &[("HOME", "/h"), ("XDG_CONFIG_HOME", "/x")],
            &["/x/opencode/plugin/callsign.js"],
        );
        check(Host::Opencode, Scope::User, &[("OPENCODE_CONFIG_DIR", "/o")], &["/o/plugin/callsign.js"]);
        check(Host::Opencode, Scope::Project, &[], &["/p/.opencode/plugin/callsign.js"]);
        check(Host::Codex, Scope::User, &home, &["/h/.codex/config.toml"]);
        check(Host::Codex, Scope::User, &[("CODEX_HOME", "/c")], &["/c/config.toml"]);
        check(Host::Codex, Scope::Project, &[], &["/p/.codex/config.toml"]);
        check(Host::ClaudeCode, Scope::User, &home, &["/h/.claude.json", "/h/.claude/settings.json"]);
        check(
            Host::ClaudeCode,
            Scope::User,
            &[("HOME", "/h"), ("CLAUDE_CONFIG_DIR", "/c")],
            &["/c/.claude.json", "/c/settings.json"],
        );
        check(Host::ClaudeCode, Scope::Project, &[], &["/p/.mcp.json", "/p/.claude/settings.json"]);
        check(Host::Goose, Scope::User, &home, &["/h/.config/goose/config.yaml"]);
        check(Host::Goose, Scope::User, &[("GOOSE_PATH_ROOT", "/g")], &["/g/config/config.yaml"]);
        check(Host::Vscode, Scope::User, &home, &["/h/.config/Code/User/mcp.json"]);
        check(Host::Vscode, Scope::Project, &[], &["/p/.vscode/mcp.json"]);
        check(Host::Cursor, Scope::User, &home, &["/h/.cursor/mcp.json"]);
        check(Host::Cursor, Scope::Project, &[], &["/p/.cursor/mcp.json"]);
        check(Host::Gemini, Scope::User, &home, &["/h/.gemini/settings.json"]);
        check(Host::Gemini, Scope::User, &[("GEMINI_CLI_HOME", "/g")], &["/g/.gemini/settings.json"]);
        check(Host::Gemini, Scope::Project, &[], &["/p/.gemini/settings.json"]);
        assert!(matches!(paths(Host::Goose, Scope::Project, &home), Err(NoPlace::Scope { .. })));
        assert_eq!(paths(Host::Codex, Scope::User, &[("HOME", "")]), Err(NoPlace::Home));
    }
}
