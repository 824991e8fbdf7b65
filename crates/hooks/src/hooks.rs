//! All hooks of one configuration, loaded and ready.
//!
//! ```text
//! file ─ as a function ──────────→ in every engine of the pool, side by side with the others
//!      ─ uses `state` ───────────→ in an engine of its own, one call at a time
//!      ─ must stay a module ─────→ in a new engine for every call
//! ```

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::draft::Input;
use crate::engine::{Blueprint, Built, Engine};
use crate::fault::{Fault, FaultKind, Place};
use crate::limits::Limits;
use crate::modules::{self, Modules};
use crate::rules::Rules;
use crate::source;
use crate::turn::Event;
use crate::turn::sealed::Turn;

/// Engines that are kept for later, on each shelf. Each holds about a third of a mebibyte.
const KEPT: usize = 2;
/// How often a failing optional file is mentioned in the log.
const MENTION: Duration = Duration::from_secs(10);
/// A run longer than this is too long for a thread that serves others.
const QUICK: Duration = Duration::from_millis(2);
/// A run longer than this, or with more to look at, may have left much garbage.
const MUCH: Duration = Duration::from_millis(1);
const MUCH_TO_LOOK_AT: usize = 64 << 10;
/// How many runs of a file go aside after one that was too long.
const ASIDE: u32 = 100;
/// Runs of one file that were given up and may still go on when another begins.
const ABANDONED: u32 = 2;

/// What is to be loaded.
#[derive(Clone)]
pub struct Spec {
    pub files: Vec<FileSpec>,
    /// What `process.env` shows.
    pub env: Vec<(String, String)>,
    pub limits: Limits,
    pub rules: Rules,
}

impl std::fmt::Debug for Spec {
    /// Without the values of `env`: they may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spec")
            .field("files", &self.files)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSpec {
    pub path: PathBuf,
    /// What messages call it.
    pub shown: String,
    /// Its failures are skipped.
    pub optional: bool,
}

#[derive(Debug)]
pub struct Hooks {
    files: Vec<File>,
    blueprint: Blueprint,
    /// By thread: an engine is in the caches of the core that used it last.
    pool: [Mutex<Vec<Engine>>; SHELVES],
}

/// Threads that serve, as a rule, have a shelf each.
const SHELVES: usize = 8;

/// The shelf of this thread.
fn shelf() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHELVES;
    }
    OWN.with(|own| *own)
}

#[derive(Debug)]
pub(crate) struct File {
    spec: FileSpec,
    shown: Arc<str>,
    text: Arc<str>,
    modules: Modules,
    home: Home,
    /// The line each event's handler begins at.
    lines: [Option<u32>; 2],
    /// Runs that still go aside.
    aside: AtomicU32,
    /// Runs that were given up and have not ended yet.
    abandoned: AtomicU32,
    runs: AtomicU64,
    micros: AtomicU64,
    failures: AtomicU64,
    mentioned: Mutex<Option<Instant>>,
}

#[derive(Debug)]
enum Home {
    /// It is optional and cannot be loaded.
    Nowhere,
    /// Its number in every engine of the pool, and its text as a function.
    Shared(usize, String),
    /// None: its engine was given up.
    Own(Mutex<Option<Engine>>),
    EachTime,
}

/// What can be told of a loaded file.
#[derive(Debug, Clone)]
pub struct Loaded<'a> {
    pub spec: &'a FileSpec,
    /// With the line each handler begins at.
    pub events: Vec<(Event, u32)>,
    pub keeps_state: bool,
    /// It is evaluated anew for every call.
    pub is_module: bool,
    /// How often it ran, how often it failed, and how long it took in all.
    pub runs: u64,
    pub failures: u64,
    pub took: Duration,
}

impl Hooks {
    /// Loads every file. All that is wrong is said at once.
    pub fn load(spec: &Spec) -> Result<Self, Vec<Fault>> {
        Self::reload(spec, None)
    }

    /// The same in place of others: an optional file that is broken now stays what it was.
    pub fn reload(spec: &Spec, before: Option<&Self>) -> Result<Self, Vec<Fault>> {
        let blueprint = Blueprint { limits: spec.limits, rules: spec.rules, env: spec.env.clone().into() };
        let broken = |error: rquickjs::Error| {
            let message = format!("the JavaScript engine could not be started: {error}");
            vec![Fault { file: "hooks".into(), line: 0, kind: FaultKind::Load, message }]
        };
        let engine = Engine::new(&blueprint, Built::ForMany).map_err(broken)?;
        let checker = Engine::new(&blueprint, Built::ForOne).map_err(broken)?;
        let bench = Bench { blueprint: &blueprint, shared: &engine, checker: &checker };
        let mut faults = Vec::new();
        let mut files: Vec<File> = Vec::new();
        for file in &spec.files {
            match File::load(file, &bench) {
                Ok(loaded) => files.push(loaded),
                Err(fault) if file.optional => {
                    let old =
                        before.and_then(|before| before.files.iter().find(|old| old.spec.path == file.path));
                    let old = old.filter(|old| !matches!(old.home, Home::Nowhere));
                    let old = old.and_then(|old| old.once_more(file, &bench).ok());
                    let what = if old.is_some() { "stays what it was" } else { "is left out" };
                    tracing::warn!(file = file.shown, "an optional hook {what}: {fault}");
                    files.push(old.unwrap_or_else(|| File::new(file, "".into(), Home::Nowhere)));
                }
                Err(fault) => faults.push(fault),
            }
        }
        if faults.is_empty() {
            let hooks = Self { files, blueprint, pool: Default::default() };
            hooks.give_back(engine);
            Ok(hooks)
        } else {
            Err(faults)
        }
    }

    /// Every file that would have to be read again.
    pub fn watched(&self) -> Vec<PathBuf> {
        let of_file = |file: &File| {
            let mut paths = vec![file.spec.path.clone()];
            paths.extend(file.modules.files());
            paths
        };
        self.files.iter().flat_map(of_file).collect()
    }

    pub fn files(&self) -> impl Iterator<Item = Loaded<'_>> {
        self.files.iter().map(|file| Loaded {
            spec: &file.spec,
            events: Event::ALL
                .into_iter()
                .filter_map(|event| Some((event, file.lines[event as usize]?)))
                .collect(),
            keeps_state: matches!(file.home, Home::Own(_)),
            is_module: matches!(file.home, Home::EachTime),
            runs: file.runs.load(Ordering::Relaxed),
            failures: file.failures.load(Ordering::Relaxed),
            took: Duration::from_micros(file.micros.load(Ordering::Relaxed)),
        })
    }

    pub(crate) fn file(&self, number: usize) -> &File {
        &self.files[number]
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.blueprint.limits
    }

    pub(crate) fn numbers_of(&self, paths: &[PathBuf], event: Event) -> Vec<usize> {
        let number = |path: &PathBuf| self.files.iter().position(|file| file.spec.path == *path);
        paths.iter().filter_map(number).filter(|number| self.files[*number].handles(event)).collect()
    }

    /// Runs a file for a call on this thread. None: another call is in it, and `wait` says not to wait.
    pub(crate) fn run<T: Turn>(
        &self,
        number: usize,
        input: &Input<'_>,
        turn: &T,
        wait: bool,
    ) -> Option<Result<T::Changes, Fault>> {
        let file = &self.files[number];
        let place = file.place(T::EVENT);
        let begun = Instant::now();
        let mut said = Vec::new();
        let mut go = |engine: &Engine, hook: usize| {
            let done = engine.run(hook, place, input, turn);
            said = engine.said();
            if begun.elapsed() > MUCH || turn.size() > MUCH_TO_LOOK_AT {
                engine.clean();
            }
            done
        };
        let done = match &file.home {
            Home::Nowhere => return None,
            Home::Shared(hook, _) => self.engine().and_then(|engine| {
                let done = go(&engine, *hook);
                if !done.as_ref().is_err_and(|fault| fault.kind.spoils()) {
                    self.give_back(engine);
                }
                done
            }),
            Home::Own(engine) => {
                let mut engine = match engine.try_lock() {
                    Ok(engine) => engine,
                    Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                    Err(TryLockError::WouldBlock) if wait => {
                        engine.lock().unwrap_or_else(PoisonError::into_inner)
                    }
                    Err(TryLockError::WouldBlock) => return None,
                };
                file.run_in_own(&mut engine, &self.blueprint, |engine| go(engine, 0))
            }
            Home::EachTime => file.alone(&self.blueprint, Built::ForOne).and_then(|engine| go(&engine, 0)),
        };
        // The prelude has checked what a hook wrote; what matters is checked once more where no hook can reach.
        let done = done.and_then(|changes| match T::check(&changes, &self.blueprint.rules) {
            Ok(()) => Ok(changes),
            Err(why) => Err(place.fault(FaultKind::Thrown, why)),
        });
        file.note(begun.elapsed(), done.is_err());
        for (level, line) in said {
            write_log(file, input, level, &line);
        }
        Some(done)
    }

    fn engine(&self) -> Result<Engine, Fault> {
        let own = shelf();
        for at in 0..SHELVES {
            if let Some(engine) = self.shelf((own + at) % SHELVES).pop() {
                return Ok(engine);
            }
        }
        let file = Arc::<str>::from("hooks");
        let place = Place { file: &file, line: 0 };
        let engine = Engine::new(&self.blueprint, Built::ForMany)
            .map_err(|error| place.fault(FaultKind::Memory, format!("the JavaScript engine: {error}")))?;
        for file in &self.files {
            if let Home::Shared(number, source) = &file.home {
                let added = engine.add_function(&file.shown, source)?;
                if added != *number {
                    return Err(place.fault(FaultKind::Load, "its files are not in their order"));
                }
            }
        }
        Ok(engine)
    }

    fn give_back(&self, engine: Engine) {
        let mut shelf = self.shelf(shelf());
        if shelf.len() < KEPT {
            shelf.push(engine);
        }
    }

    fn shelf(&self, at: usize) -> MutexGuard<'_, Vec<Engine>> {
        self.pool[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What files are loaded with.
struct Bench<'a> {
    blueprint: &'a Blueprint,
    /// The first of the engines that files share.
    shared: &'a Engine,
    /// For looking at texts. What it has looked at is gone with it.
    checker: &'a Engine,
}

impl File {
    fn new(spec: &FileSpec, text: Arc<str>, home: Home) -> Self {
        Self {
            spec: spec.clone(),
            shown: spec.shown.as_str().into(),
            text,
            modules: Modules::new(&spec.shown, Some(&spec.path)),
            home,
            lines: [None, None],
            aside: AtomicU32::new(1),
            abandoned: AtomicU32::new(0),
            runs: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            mentioned: Mutex::new(None),
        }
    }

    fn load(spec: &FileSpec, bench: &Bench<'_>) -> Result<Self, Fault> {
        let shown = Arc::<str>::from(spec.shown.as_str());
        let place = Place { file: &shown, line: 0 };
        let text = modules::read(&spec.path)
            .map_err(|why| place.fault(FaultKind::Load, format!("it cannot be read: {why}")))?;
        let mut file = Self::new(spec, text.into(), Home::EachTime);
        file.settle(bench)?;
        Ok(file)
    }

    /// The same file with the text it had.
    fn once_more(&self, spec: &FileSpec, bench: &Bench<'_>) -> Result<Self, Fault> {
        let mut file = Self::new(spec, Arc::clone(&self.text), Home::EachTime);
        file.modules = self.modules.clone();
        file.settle(bench)?;
        Ok(file)
    }

    /// Finds out how the file can be run, and what it handles.
    fn settle(&mut self, bench: &Bench<'_>) -> Result<(), Fault> {
        let function = source::as_function(&self.text);
        if let Some(source) = &function
            && !source::uses_state(&self.text)
            // What closes the function it is put into is no module.
            && bench.checker.is_module(&self.shown, &self.text)
            && let Ok((number, events)) = bench.shared.try_function(&self.shown, source)
        {
            self.set_lines(&events);
            self.home = Home::Shared(number, source.clone());
            return Ok(());
        }
        // As it is written: what is wrong with it is said of that.
        let engine = self.alone(bench.blueprint, Built::ForOne).map_err(|fault| self.at_import(fault))?;
        self.modules.complete();
        let events = engine.handled(&self.shown, 0)?;
        self.set_lines(&events);
        let says_state = |text: &str| text.contains("globalThis.state");
        if function.is_some() && source::uses_state(&self.text) {
            let engine = self.alone(bench.blueprint, Built::WithState)?;
            self.home = Home::Own(Mutex::new(Some(engine)));
        } else if says_state(&self.text) || self.modules.any(says_state) {
            let why = "a hook that imports, or exports more than its default, cannot keep globalThis.state";
            return Err(Place { file: &self.shown, line: 0 }.fault(FaultKind::Load, why));
        }
        Ok(())
    }

    /// An engine with this file alone in it.
    fn alone(&self, blueprint: &Blueprint, built: Built) -> Result<Engine, Fault> {
        let place = Place { file: &self.shown, line: 0 };
        let engine = Engine::new(blueprint, built)
            .map_err(|error| place.fault(FaultKind::Memory, format!("the JavaScript engine: {error}")))?;
        match source::as_function(&self.text) {
            Some(source) if built == Built::WithState => engine.add_function(&self.shown, &source)?,
            _ => engine.add_module(&self.shown, &self.text, &self.modules)?,
        };
        Ok(engine)
    }

    /// An import that fails is said without its line.
    fn at_import(&self, mut fault: Fault) -> Fault {
        let named = fault.message.split('`').nth(1).and_then(|name| name.rsplit('/').next());
        if let Some(name) = named.filter(|name| fault.line == 0 && !name.is_empty()) {
            let line = self.text.lines().position(|line| line.contains("import") && line.contains(name));
            fault.line = line.and_then(|line| u32::try_from(line + 1).ok()).unwrap_or_default();
        }
        fault
    }

    fn run_in_own<R>(
        &self,
        slot: &mut Option<Engine>,
        blueprint: &Blueprint,
        run: impl FnOnce(&Engine) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let engine = match slot.take() {
            Some(engine) => engine,
            None => self.alone(blueprint, Built::WithState)?,
        };
        let mut done = run(&engine);
        let keeps = match &mut done {
            Ok(_) => true,
            // A caller who can make it run too long, or out of memory, must not be able to make it forget.
            Err(fault) => {
                let keeps = !fault.kind.spoils() || engine.recover();
                if !keeps {
                    fault.message.push_str("; its state is gone");
                }
                keeps
            }
        };
        *slot = keeps.then_some(engine);
        done
    }

    fn set_lines(&mut self, events: &[(Event, u32)]) {
        for (event, line) in events {
            self.lines[*event as usize] = Some(*line);
        }
    }

    pub(crate) fn handles(&self, event: Event) -> bool {
        self.lines[event as usize].is_some()
    }

    pub(crate) fn place(&self, event: Event) -> Place<'_> {
        Place { file: &self.shown, line: self.lines[event as usize].unwrap_or_default() }
    }

    pub(crate) fn is_optional(&self) -> bool {
        self.spec.optional
    }

    /// Whether it has been quick lately, so that a thread that serves others can run it.
    pub(crate) fn is_quick(&self) -> bool {
        let left = self.aside.load(Ordering::Relaxed);
        if left > 0 {
            self.aside.store(left - 1, Ordering::Relaxed);
        }
        left == 0
    }

    /// A run was given up and goes on all the same.
    pub(crate) fn gave_up(&self) {
        self.abandoned.fetch_add(1, Ordering::Relaxed);
        self.aside.store(ASIDE, Ordering::Relaxed);
    }

    /// Such a run has ended.
    pub(crate) fn came_back(&self) {
        self.abandoned.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether so many runs were given up and go on that no other should begin.
    pub(crate) fn is_stuck(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed) >= ABANDONED
    }

    fn note(&self, took: Duration, failed: bool) {
        if took > QUICK {
            self.aside.store(ASIDE, Ordering::Relaxed);
        }
        self.runs.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
        self.failures.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    /// Says that it was skipped, now and then.
    pub(crate) fn mention(&self, fault: &Fault) {
        let mut mentioned = self.mentioned.lock().unwrap_or_else(PoisonError::into_inner);
        if mentioned.is_none_or(|at| at.elapsed() >= MENTION) {
            *mentioned = Some(Instant::now());
            let failures = self.failures.load(Ordering::Relaxed);
            tracing::warn!(file = &*self.shown, failures, "an optional hook failed and was skipped: {fault}");
        }
    }
}

fn write_log(file: &File, input: &Input<'_>, level: u8, line: &str) {
    let unknown = "";
    let (session, call) =
        (input.thread.as_deref().unwrap_or(unknown), input.call.as_deref().unwrap_or(unknown));
    let (file, server, tool) = (&*file.shown, &*input.server, input.tool.as_deref().unwrap_or(unknown));
    match level {
        0 => tracing::debug!(file, session, call, server, tool, "{line}"),
        1 => tracing::info!(file, session, call, server, tool, "{line}"),
        2 => tracing::warn!(file, session, call, server, tool, "{line}"),
        _ => tracing::error!(file, session, call, server, tool, "{line}"),
    }
}
