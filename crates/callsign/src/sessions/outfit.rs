//! What every box has of ours: the bridge, and the agent's configuration with our plugin in it.
//!
//! Both are named by what is in them, so that boxes of an older daemon keep theirs. The box sees them read-only: that
//! also keeps OpenCode from fetching a package for plugins, which in a box without a network it waits for in vain.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::Digest as _;

/// For everybody: the user of a box is another one where the daemon is root.
const MODE: u32 = 0o755;

#[derive(Debug, Clone)]
pub(crate) struct Outfit {
    pub(crate) bridge: PathBuf,
    /// `XDG_CONFIG_HOME` of the agent.
    pub(crate) config: PathBuf,
}

impl Outfit {
    /// Idempotent.
    pub(crate) fn put_out(directory: &Path) -> io::Result<Self> {
        let bridge = tether::install(directory)?;
        let plugin = hosts::box_plugin();
        let digest = sha2::Sha256::digest(plugin.as_bytes());
        let name = digest.iter().take(8).fold("config-".to_owned(), |text, byte| format!("{text}{byte:02x}"));
        let config = directory.join(&name);
        if !config.is_dir() {
            let new = directory.join(format!(".new-{name}"));
            match fs::remove_dir_all(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            let plugins = new.join("opencode/plugin");
            DirBuilder::new().recursive(true).mode(MODE).create(&plugins)?;
            let script = plugins.join("callsign.js");
            fs::write(&script, plugin)?;
            // OpenCode writes one itself where there is none, and fails where it cannot.
            let ignore = new.join("opencode/.gitignore");
            fs::write(&ignore, "*\n")?;
            // Whatever the umask says.
            for directory in [&new, &new.join("opencode"), &plugins] {
                fs::set_permissions(directory, Permissions::from_mode(MODE))?;
            }
            for file in [&script, &ignore] {
                fs::set_permissions(file, Permissions::from_mode(0o644))?;
            }
            fs::rename(&new, &config)?;
        }
        Ok(Self { bridge, config })
    }
}
