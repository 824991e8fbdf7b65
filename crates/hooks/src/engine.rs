//! One JavaScript engine with hooks in it.
//!
//! An engine whose hooks are functions is locked down: nothing that outlives a call can be changed in it, so it is
//! used again. One with a module in it serves a single call, or a single file that keeps `state`.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::Args;
use rquickjs::promise::PromiseState;
use rquickjs::{Array, Context, Ctx, Error, Exception, FromJs, Function, IntoJs, Module, Runtime, Value};

use crate::draft::{Input, Pairs};
use crate::fault::{Fault, FaultKind, Place};
use crate::json;
use crate::limits::{Guard, Limits, STACK};
use crate::modules::Modules;
use crate::pairs::Writing;
use crate::rules::{Kind, Rules};
use crate::turn::sealed::Turn;
use crate::turn::{Event, Given};

/// What our own part of a stack trace is called.
pub(crate) const PRELUDE: &str = "callsign";

/// Lines and bytes of `console` that one run can write.
const LINES: usize = 20;
const LINE: usize = 1000;

type Intrinsics = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::Proxy,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// What every engine of one configuration has in common.
#[derive(Clone)]
pub(crate) struct Blueprint {
    pub(crate) limits: Limits,
    pub(crate) rules: Rules,
    /// What `process.env` shows.
    pub(crate) env: Arc<[(String, String)]>,
}

impl std::fmt::Debug for Blueprint {
    /// Without the values of `env`: they may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Blueprint").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// What becomes of an engine's built-in objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Built {
    /// Frozen: it will serve many calls.
    ForMany,
    /// Frozen, with `globalThis.state`.
    WithState,
    /// As they are: it will serve one call.
    ForOne,
}

pub(crate) struct Engine {
    context: Context,
    runtime: Runtime,
    guard: Arc<Guard>,
    turn: Arc<Mutex<Current>>,
}

/// What the functions that hooks call look at.
#[derive(Debug)]
struct Current {
    given: Given,
    headers: Writing,
    env: Writing,
    lines: Vec<(u8, String)>,
}

/// Functions of the prelude, in its order; hooks follow.
type Functions<'js> = Vec<Function<'js>>;
const RUN: usize = 0;
const FINISH: usize = 1;
const HANDLED: usize = 2;
const LOCKDOWN: usize = 3;
const HOOKS: usize = 4;

impl Engine {
    pub(crate) fn new(blueprint: &Blueprint, built: Built) -> Result<Self, Error> {
        let runtime = Runtime::new()?;
        runtime.set_memory_limit(blueprint.limits.memory);
        runtime.set_max_stack_size(STACK);
        let guard = Arc::new(Guard::new(blueprint.limits));
        let watching = Arc::clone(&guard);
        runtime.set_interrupt_handler(Some(Box::new(move || watching.must_end())));
        let context = Context::custom::<Intrinsics>(&runtime)?;
        let turn = Arc::new(Mutex::new(Current {
            given: Given::default(),
            headers: Writing::new(Kind::Header),
            env: Writing::new(Kind::Variable),
            lines: Vec::new(),
        }));
        context.with(|ctx| {
            let prelude: Function<'_> = eval(&ctx, PRELUDE, include_str!("prelude.js"))?;
            let mut args = Args::new(ctx.clone(), 7);
            let rules = blueprint.rules;
            args.push_arg(pairs_functions(&ctx, &turn, rules)?)?;
            args.push_arg(Function::new(ctx.clone(), move |kind: u8, name: Text| {
                let name = name.0.unwrap_or_default();
                Kind::from(kind).and_then(|kind| rules.check(kind, &name, None).err())
            })?)?;
            let given = Arc::clone(&turn);
            args.push_arg(Function::new(ctx.clone(), move |which: u8| lock(&given).shown(which))?)?;
            let log = Arc::clone(&turn);
            args.push_arg(Function::new(ctx.clone(), move |level: u8, said: String| {
                lock(&log).say(level, &said);
            })?)?;
            args.push_arg(Function::new(ctx.clone(), random_bytes)?)?;
            let env: Vec<&str> =
                blueprint.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]).collect();
            args.push_arg(env)?;
            args.push_arg(built == Built::WithState)?;
            let functions: Functions<'_> = args.apply(&prelude)?;
            if built != Built::ForOne {
                functions[LOCKDOWN].call::<_, ()>(())?;
            }
            keep(&ctx, functions)
        })?;
        Ok(Self { context, runtime, guard, turn })
    }

    /// Adds a hook that has been made a function, if it is one. Returns its number, and what it handles.
    pub(crate) fn try_function(
        &self,
        file: &Arc<str>,
        source: &str,
    ) -> Result<(usize, Vec<(Event, u32)>), Fault> {
        let number = self.add_function(file, source)?;
        let handled = self.handled(file, number);
        if handled.is_err() {
            // It must not take up a number: engines that are made later do not have it.
            self.context.with(|ctx| take_last(&ctx));
        }
        Ok((number, handled?))
    }

    /// Adds a hook that has been made a function. Returns its number.
    pub(crate) fn add_function(&self, file: &Arc<str>, source: &str) -> Result<usize, Fault> {
        let place = Place { file, line: 0 };
        self.guard.start();
        self.context.with(|ctx| {
            let added = eval(&ctx, file, source).and_then(|function| add(&ctx, function));
            added.map_err(|error| self.fault(&ctx, place, &error, FaultKind::Load))
        })
    }

    /// Whether a text is a module, by its grammar.
    pub(crate) fn is_module(&self, file: &Arc<str>, source: &str) -> bool {
        self.context.with(|ctx| {
            let declared = Module::declare(ctx.clone(), &**file, source).is_ok();
            if !declared {
                drop(ctx.catch());
            }
            declared
        })
    }

    /// Evaluates a hook as the module it is. Returns its number.
    pub(crate) fn add_module(
        &self,
        file: &Arc<str>,
        source: &str,
        modules: &Modules,
    ) -> Result<usize, Fault> {
        let place = Place { file, line: 0 };
        self.guard.start();
        self.runtime.set_loader(modules.clone(), modules.clone());
        self.context.with(|ctx| {
            let fault = |error: &Error| self.fault(&ctx, place, error, FaultKind::Load);
            let declared = Module::declare(ctx.clone(), &**file, source).map_err(|error| fault(&error))?;
            let (module, evaluated) = declared.eval().map_err(|error| fault(&error))?;
            self.settle(&ctx, place, evaluated.into_value()).map_err(|mut fault| {
                fault.kind = FaultKind::Load;
                fault
            })?;
            let exported: Option<Value<'_>> =
                module.namespace().and_then(|exports| exports.get("default")).ok();
            let Some(exported) = exported.filter(|exported| !exported.is_undefined()) else {
                let why = "it has no default export: export default { \"mcp.call.before\": … }";
                return Err(place.fault(FaultKind::Load, why));
            };
            let factory: Function<'_> =
                eval(&ctx, PRELUDE, "(function (exported) { return () => exported })")
                    .map_err(|error| fault(&error))?;
            let factory: Function<'_> = factory.call((exported,)).map_err(|error| fault(&error))?;
            add(&ctx, factory).map_err(|error| fault(&error))
        })
    }

    /// Which events a hook handles, each with the line its handler begins at.
    pub(crate) fn handled(&self, file: &Arc<str>, hook: usize) -> Result<Vec<(Event, u32)>, Fault> {
        let place = Place { file, line: 0 };
        self.guard.start();
        self.context.with(|ctx| {
            let asked = function(&ctx, HANDLED)
                .and_then(|handled| handled.call::<_, Vec<u32>>((function(&ctx, HOOKS + hook)?,)));
            let flat = asked.map_err(|error| self.fault(&ctx, place, &error, FaultKind::Load));
            // What loading has begun or said belongs to no call.
            let drained = self.drain(&ctx);
            let flat = flat?;
            lock(&self.turn).lines.clear();
            self.guard.must_end();
            if let Some(over) = drained.err().or(self.guard.over()) {
                return Err(Fault { kind: FaultKind::Load, ..place.over(over, self.guard.limits()) });
            }
            let events = flat.chunks_exact(2).filter_map(|pair| {
                let event = Event::ALL.into_iter().find(|event| *event as u32 == pair[0])?;
                Some((event, pair[1]))
            });
            Ok(events.collect())
        })
    }

    /// Runs a hook for one call.
    pub(crate) fn run<T: Turn>(
        &self,
        hook: usize,
        place: Place<'_>,
        input: &Input<'_>,
        turn: &T,
    ) -> Result<T::Changes, Fault> {
        lock(&self.turn).begin(turn.given());
        self.guard.start();
        let outcome = self.context.with(|ctx| {
            let fault = |error: &Error| self.fault(&ctx, place, error, FaultKind::Thrown);
            let returned = begin(&ctx, hook, input, turn).map_err(|error| fault(&error));
            let settled = returned.and_then(|returned| self.settle(&ctx, place, returned));
            let collected = settled.and_then(|()| {
                let finish = function(&ctx, FINISH).and_then(|finish| finish.call::<_, Array<'_>>(()));
                let collected = finish.map_err(|error| fault(&error))?;
                T::read(&collected, lock(&self.turn).written())
                    .ok_or_else(|| place.fault(FaultKind::Thrown, "what it left behind makes no sense"))
            });
            // What was begun and not waited for must not run in somebody else's call.
            let drained = self.drain(&ctx);
            // Some of what an engine does is not interrupted; that counts all the same.
            self.guard.must_end();
            match (drained.and(self.guard.over().map_or(Ok(()), Err)), collected) {
                (Ok(()), collected) => collected,
                (Err(_), Err(fault)) if fault.kind.spoils() => Err(fault),
                (Err(over), _) => Err(place.over(over, self.guard.limits())),
            }
        });
        lock(&self.turn).given = Given::default();
        outcome
    }

    /// What has been written to the console since it was last asked for.
    pub(crate) fn said(&self) -> Vec<(u8, String)> {
        std::mem::take(&mut lock(&self.turn).lines)
    }

    /// Leaves no garbage to the next call, where there may be much.
    pub(crate) fn clean(&self) {
        self.runtime.run_gc();
    }

    /// Ends what a run that hit a limit has left behind. False: it cannot be ended, or there is no room for another.
    pub(crate) fn recover(&self) -> bool {
        self.guard.start();
        let drained = self.context.with(|ctx| {
            let drained = self.drain(&ctx).is_ok();
            ctx.run_gc();
            drained
        });
        let used = usize::try_from(self.runtime.memory_usage().malloc_size).unwrap_or(usize::MAX);
        drained && used < self.guard.limits().memory / 2
    }

    fn settle<'js>(&self, ctx: &Ctx<'js>, place: Place<'_>, returned: Value<'js>) -> Result<(), Fault> {
        let Some(promise) = returned.into_promise() else { return Ok(()) };
        loop {
            match promise.state() {
                PromiseState::Resolved => return Ok(()),
                PromiseState::Rejected => {
                    let error =
                        promise.result::<Value<'_>>().and_then(Result::err).unwrap_or(Error::Exception);
                    return Err(self.fault(ctx, place, &error, FaultKind::Thrown));
                }
                PromiseState::Pending => {}
            }
            if let Some(over) = self.guard.over() {
                return Err(place.over(over, self.guard.limits()));
            }
            if !self.step(ctx) {
                let why = "its promise never settles: there is no timer and no network that could do it";
                return Err(place.fault(FaultKind::Settle, why));
            }
        }
    }

    fn drain(&self, ctx: &Ctx<'_>) -> Result<(), crate::limits::Over> {
        while self.step(ctx) {
            if let Some(over) = self.guard.over() {
                return Err(over);
            }
        }
        Ok(())
    }

    /// Runs one job. A chain of short ones never makes the engine look at the clock, so we do.
    fn step(&self, ctx: &Ctx<'_>) -> bool {
        let ran = ctx.execute_pending_job();
        if ran {
            self.guard.count_step();
        }
        ran
    }

    fn fault(&self, ctx: &Ctx<'_>, place: Place<'_>, error: &Error, kind: FaultKind) -> Fault {
        let mut fault = if error.is_exception() {
            place.exception(ctx, &self.guard, kind)
        } else {
            place.fault(kind, error.to_string())
        };
        if kind == FaultKind::Load {
            fault.kind = kind;
        }
        fault
    }
}

fn lock(turn: &Mutex<Current>) -> MutexGuard<'_, Current> {
    turn.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Current {
    fn begin(&mut self, mut given: Given) {
        // What nobody's turn has said is nobody's.
        self.lines.clear();
        self.headers.begin(std::mem::take(&mut given.headers));
        self.env.begin(std::mem::take(&mut given.env));
        self.given = given;
    }

    /// Headers and variables, as far as they were written.
    fn written(&mut self) -> (Option<Pairs>, Option<Pairs>) {
        (self.headers.end(), self.env.end())
    }

    fn writing(&mut self, kind: Kind) -> &mut Writing {
        if kind == Kind::Header { &mut self.headers } else { &mut self.env }
    }

    fn shown(&self, which: u8) -> Shown {
        let json = match which {
            1 => &self.given.arguments,
            2 => &self.given.meta,
            _ => &self.given.result,
        };
        json.clone().map_or(Shown::Nothing, Shown::Json)
    }

    fn say(&mut self, level: u8, said: &str) {
        if self.lines.len() == LINES {
            self.lines.push((2, "… and more, which is not shown".to_owned()));
        }
        if self.lines.len() < LINES {
            let visible = |character: char| if character.is_control() { ' ' } else { character };
            self.lines.push((level, said.chars().map(visible).take(LINE).collect()));
        }
    }
}

/// Something that a hook looks at.
enum Shown {
    Nothing,
    Json(Bytes),
}

impl<'js> IntoJs<'js> for Shown {
    fn into_js(self, ctx: &Ctx<'js>) -> rquickjs::Result<Value<'js>> {
        match self {
            Self::Nothing => Ok(Value::new_undefined(ctx.clone())),
            Self::Json(json) => {
                // A hook would see one of two members of the same name, and the server perhaps the other.
                let json = std::str::from_utf8(&json)?;
                if let Some(name) = json::repeated(json) {
                    let why = format!(
                        "what it looks at has `{name}` twice in one object, so that two readers could see two things; whoever sent it should send each name once"
                    );
                    return Err(Exception::throw_type(ctx, &why));
                }
                json.into_js(ctx)
            }
        }
    }
}

/// Calls a hook's handler with its input and a new output.
fn begin<'js, T: Turn>(
    ctx: &Ctx<'js>,
    hook: usize,
    input: &Input<'_>,
    turn: &T,
) -> Result<Value<'js>, Error> {
    let outcome = turn.outcome();
    let mut args = Args::new(ctx.clone(), 16);
    args.push_arg(function(ctx, HOOKS + hook)?)?;
    args.push_arg(T::EVENT as u32)?;
    args.push_arg(outcome.failed)?;
    args.push_arg(&*input.server)?;
    args.push_arg(input.tool.as_deref())?;
    args.push_arg(&*input.method)?;
    for text in [&input.thread, &input.call, &input.parent, &input.host, &input.workspace] {
        args.push_arg(text.as_deref())?;
    }
    args.push_arg(&*input.trust)?;
    args.push_arg(input.takes_arguments)?;
    if T::EVENT == Event::After {
        args.push_arg(outcome.ok)?;
        args.push_arg(outcome.duration_ms)?;
        args.push_arg(outcome.error)?;
    }
    args.apply(&function(ctx, RUN)?)
}

/// A text of a hook; none where half a character is in it.
struct Text(Option<String>);

impl<'js> FromJs<'js> for Text {
    fn from_js(_: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<Self> {
        Ok(Self(value.as_string().and_then(|text| text.to_string().ok())))
    }
}

/// For headers and for variables: put, get, names and clear.
fn pairs_functions<'js>(
    ctx: &Ctx<'js>,
    turn: &Arc<Mutex<Current>>,
    rules: Rules,
) -> Result<Vec<Function<'js>>, Error> {
    let mut functions = Vec::with_capacity(8);
    for kind in [Kind::Header, Kind::Variable] {
        let [put, get, names, clear] = [(); 4].map(|()| Arc::clone(turn));
        // As a proxy calls it: the target, the name, the value.
        functions.push(Function::new(
            ctx.clone(),
            move |ctx: Ctx<'_>, _: Value<'_>, name: Value<'_>, value: Value<'_>| {
                put_pair(&ctx, &put, (kind, &rules), (&name, &value))
            },
        )?);
        functions.push(Function::new(ctx.clone(), move |name: Text| {
            name.0.and_then(|name| lock(&get).writing(kind).get(&name))
        })?);
        functions.push(Function::new(ctx.clone(), move || lock(&names).writing(kind).names())?);
        functions.push(Function::new(ctx.clone(), move || lock(&clear).writing(kind).clear())?);
    }
    Ok(functions)
}

fn put_pair(
    ctx: &Ctx<'_>,
    turn: &Mutex<Current>,
    (kind, rules): (Kind, &Rules),
    (name, value): (&Value<'_>, &Value<'_>),
) -> rquickjs::Result<bool> {
    lock(turn).writing(kind).put(ctx, rules, name, value)
}

fn eval<'js>(ctx: &Ctx<'js>, file: &str, source: &str) -> Result<Function<'js>, Error> {
    let mut options = EvalOptions::default();
    options.filename = Some(file.to_owned());
    ctx.eval_with_options(source, options)
}

/// Functions are kept with the engine: it alone can say when they are gone.
fn keep<'js>(ctx: &Ctx<'js>, functions: Functions<'js>) -> Result<(), Error> {
    ctx.store_userdata(functions).map(drop).map_err(|_| Error::Unknown)
}

fn add<'js>(ctx: &Ctx<'js>, function: Function<'js>) -> Result<usize, Error> {
    let mut functions = ctx.remove_userdata::<Functions<'js>>().ok().flatten().ok_or(Error::Unknown)?;
    functions.push(function);
    let number = functions.len() - 1 - HOOKS;
    keep(ctx, *functions)?;
    Ok(number)
}

fn take_last(ctx: &Ctx<'_>) {
    if let Ok(Some(mut functions)) = ctx.remove_userdata::<Functions<'_>>() {
        drop(functions.pop());
        // It was there, so there is room for it.
        let _kept = keep(ctx, *functions);
    }
}

fn function<'js>(ctx: &Ctx<'js>, number: usize) -> Result<Function<'js>, Error> {
    let functions = ctx.userdata::<Functions<'js>>().ok_or(Error::Unknown)?;
    functions.get(number).cloned().ok_or(Error::Unknown)
}

#[expect(clippy::needless_pass_by_value, reason = "so the engine calls it")]
fn random_bytes(ctx: Ctx<'_>, count: usize) -> rquickjs::Result<Vec<u8>> {
    let mut bytes = vec![0; count.min(65536)];
    getrandom::fill(&mut bytes)
        .map_err(|_| Exception::throw_internal(&ctx, "the system has no random bytes"))?;
    Ok(bytes)
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}
