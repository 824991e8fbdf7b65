//! What the variables of a host's entry come to. Whoever knows the configuration answers.

use std::collections::BTreeMap;
use std::path::PathBuf;

use model::ports::store::ImageChoice;
use model::settings::Secret;

/// Texts of errors are for a model and for a person: which variable is wrong and what it should be. No value of a key is
/// in them.
pub trait Settler: Send + Sync {
    /// `variables`: those of the host's entry, in place of the configuration's. `image`: what the request names.
    fn settle(&self, variables: BTreeMap<String, String>, image: Option<&str>) -> Result<Settled, String>;

    /// The directory of this machine that a call is about. `explicit`: what it names; `ambient`: what is known of who
    /// calls.
    fn workspace(&self, explicit: Option<&str>, ambient: Option<&str>) -> Result<PathBuf, String>;

    /// Whether a session with these settings ([`Settled::settings`]) can use this model.
    fn check_model(&self, settings: &str, model: &str) -> Result<(), String>;
}

/// How a new session is to run.
#[derive(Debug, Clone)]
pub struct Settled {
    pub runtime: String,
    pub image: ImageChoice,
    /// As JSON, without any key.
    pub settings: String,
    pub key: Option<Secret>,
    /// What was not taken as it was written.
    pub warnings: Vec<String>,
}
