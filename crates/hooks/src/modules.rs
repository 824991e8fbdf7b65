//! `import` in a hook: siblings in its own directory, as they were when it was loaded, and nothing else.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rquickjs::loader::{ImportAttributes, Loader, Resolver};
use rquickjs::module::Declared;
use rquickjs::{Ctx, Error, Exception, Module, Result};

use crate::source::LARGEST;

/// How many files a hook may import, directly or not.
const MOST: usize = 64;

/// The modules one hook consists of.
#[derive(Debug, Clone)]
pub(crate) struct Modules(Arc<Mutex<Known>>);

#[derive(Debug)]
struct Known {
    /// The directory as messages show it, and where it is.
    shown: String,
    directory: Option<PathBuf>,
    /// By the name that messages show.
    texts: BTreeMap<String, Arc<str>>,
    /// Nothing is read from the disk any more.
    complete: bool,
}

impl Modules {
    /// For a hook that is shown as `shown` and lies at `path`.
    pub(crate) fn new(shown: &str, path: Option<&Path>) -> Self {
        let directory = path.and_then(Path::parent).map(Path::to_owned);
        let shown = shown.rsplit_once('/').map_or(String::new(), |(directory, _)| format!("{directory}/"));
        let known = Known { shown, directory, texts: BTreeMap::new(), complete: false };
        Self(Arc::new(Mutex::new(known)))
    }

    /// From now on nothing is read any more.
    pub(crate) fn complete(&self) {
        self.lock().complete = true;
    }

    /// The files that were imported.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let known = self.lock();
        let Some(directory) = &known.directory else { return Vec::new() };
        known.texts.keys().map(|name| directory.join(&name[known.shown.len()..])).collect()
    }

    /// Whether any of them satisfies `holds`.
    pub(crate) fn any(&self, holds: impl Fn(&str) -> bool) -> bool {
        self.lock().texts.values().any(|text| holds(text))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    /// The name of what `base` calls `name`.
    fn resolve(&self, base: &str, name: &str) -> std::result::Result<String, String> {
        let Some(relative) = name.strip_prefix("./").or_else(|| name.starts_with("../").then_some(name))
        else {
            return Err(format!(
                "`{name}` cannot be imported: only files beside the hook can, as \"./name.js\""
            ));
        };
        let inside = base.strip_prefix(self.shown.as_str()).unwrap_or(base);
        let mut parts: Vec<&str> = inside.split('/').collect();
        parts.pop();
        for part in relative.split('/') {
            match part {
                "" | "." => {}
                ".." if parts.pop().is_some() => {}
                ".." => {
                    return Err(format!("`{name}` cannot be imported: it lies outside the hook's directory"));
                }
                part => parts.push(part),
            }
        }
        Ok(format!("{}{}", self.shown, parts.join("/")))
    }

    fn text(&mut self, name: &str) -> std::result::Result<Arc<str>, String> {
        if let Some(text) = self.texts.get(name) {
            return Ok(Arc::clone(text));
        }
        let Some(directory) = self.directory.as_ref().filter(|_| !self.complete) else {
            return Err(format!("`{name}` cannot be imported now: import() is not available in a hook"));
        };
        let text = read_beneath(directory, &name[self.shown.len()..])
            .map_err(|why| format!("`{name}` cannot be imported: {why}"))?;
        if self.texts.len() >= MOST {
            return Err(format!("a hook can import at most {MOST} files"));
        }
        let text: Arc<str> = text.into();
        self.texts.insert(name.to_owned(), Arc::clone(&text));
        Ok(text)
    }
}

/// Reads a file that lies beneath a directory also when its links are followed.
fn read_beneath(directory: &Path, relative: &str) -> std::result::Result<String, String> {
    let path = directory.join(relative);
    let real = |path: &Path| path.canonicalize().map_err(|error| error.to_string());
    if !real(&path)?.starts_with(real(directory)?) {
        return Err("it lies outside the hook's directory".to_owned());
    }
    let is_script = [".js", ".mjs"].iter().any(|end| relative.ends_with(end));
    if !is_script {
        return Err("its name does not end in .js or .mjs".to_owned());
    }
    read(&path)
}

/// Reads a script.
pub(crate) fn read(path: &Path) -> std::result::Result<String, String> {
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a file".to_owned());
    }
    if metadata.len() > LARGEST {
        return Err(format!("it is larger than {LARGEST} bytes"));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8".to_owned())
}

impl Resolver for Modules {
    fn resolve<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        base: &str,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<String> {
        let resolved = self.lock().resolve(base, name);
        resolved.map_err(|why| throw(ctx, &why))
    }
}

impl Loader for Modules {
    fn load<'js>(
        &mut self,
        ctx: &Ctx<'js>,
        name: &str,
        _attributes: Option<ImportAttributes<'js>>,
    ) -> Result<Module<'js, Declared>> {
        let text = self.lock().text(name);
        match text {
            Ok(text) => Module::declare(ctx.clone(), name, text.as_bytes()),
            Err(why) => Err(throw(ctx, &why)),
        }
    }
}

fn throw(ctx: &Ctx<'_>, why: &str) -> Error {
    Exception::throw_reference(ctx, why)
}
