//! Scripts that misbehave, each in a file of its own that says what is to become of it.
//!
//! `// expect: WORD` and `// line: N` at the head of each. After every one of them a well-behaved hook runs in the
//! same engines and must find nothing of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hooks::{Chain, Draft, Fault, FaultKind, FileSpec, Hooks, Limits};

use crate::{draft, input};

/// Time is short for those that are to run out of it. The others end by themselves, and must not be taken for them on
/// a busy machine: filling memory or a stack takes some milliseconds when it is quiet.
fn limits(script: &Script) -> Limits {
    let cpu = Duration::from_millis(match script.expect.as_str() {
        "cpu" | "wall" | "late" => 10,
        _ => 1000,
    });
    let limits = Limits::new(cpu, 8 << 20);
    match script.expect.as_str() {
        // Whoever waits for a core is not yet late, and memory is not what these run out of.
        "cpu" => Limits { wall: Duration::from_secs(5), memory: 32 << 20, ..limits },
        _ => limits,
    }
}

/// What a limit may be exceeded by on a busy machine.
const NOISE: Duration = Duration::from_secs(3);

struct Script {
    path: PathBuf,
    name: String,
    expect: String,
    line: u32,
}

fn scripts() -> Vec<Script> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let mut scripts: Vec<Script> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "js"))
        .map(|path| {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            let head = |key: &str| {
                let line = text.lines().take(2).find_map(|line| line.strip_prefix(key));
                line.unwrap_or_else(|| panic!("{} does not say {key}", path.display())).trim().to_owned()
            };
            let (expect, line) = (head("// expect:"), head("// line:").parse().unwrap());
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            Script { path, name, expect, line }
        })
        .collect();
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    scripts
}

const PROBE: &str = r#"export default {
  "mcp.call.before"(input, output) {
    const found = []
    const natives = [[].push, JSON.stringify, Map.prototype.get, Promise.prototype.then, "".toLowerCase, RegExp.prototype.exec]
    if (!natives.every((native) => Function.prototype.toString.call(native).includes("native code"))) found.push("natives")
    if (globalThis["st" + "ate"] !== undefined) found.push("kept")
    if (Object.keys(globalThis).length !== 0) found.push("globals")
    if ({}.polluted !== undefined || [].polluted !== undefined) found.push("prototypes")
    if (output.headers["X-Static"] !== "1" || Object.keys(output.headers).length !== 2) found.push("headers")
    if (Object.keys(output.env).length !== 0 || output.arguments.text !== "hello") found.push("output")
    output.headers["X-Probe"] = found.join() || "clean"
  },
}
"#;

struct Rig {
    hooks: Arc<Hooks>,
    hostile: PathBuf,
    probe: PathBuf,
    _directory: tempfile::TempDir,
}

impl Rig {
    fn load(script: &Script) -> Result<Self, Fault> {
        let directory = tempfile::tempdir().unwrap();
        let probe = directory.path().join("probe.js");
        std::fs::write(&probe, PROBE).unwrap();
        let hostile = script.path.clone();
        let file = |path: &Path, shown: &str| FileSpec {
            path: path.to_owned(),
            shown: shown.to_owned(),
            optional: false,
        };
        let files = vec![file(&hostile, &format!("hostile/{}", script.name)), file(&probe, "probe.js")];
        match crate::load(files, limits(script)) {
            Ok(hooks) => Ok(Self { hooks, hostile, probe, _directory: directory }),
            Err(mut faults) => Err(faults.remove(0)),
        }
    }

    async fn run(&self, path: &Path) -> Result<Draft, Fault> {
        Chain::new(&self.hooks, &[path.to_owned()]).run(&input(), draft()).await
    }
}

fn verdict(outcome: &Result<Draft, Fault>) -> (&'static str, u32) {
    match outcome {
        Ok(_) => ("ok", 0),
        Err(fault) => {
            let word = match fault.kind {
                FaultKind::Load => "load",
                FaultKind::Cpu => "cpu",
                FaultKind::Wall => "wall",
                FaultKind::Memory => "memory",
                FaultKind::Settle => "settle",
                FaultKind::Thrown if fault.message.contains("is reserved") => "reserved",
                FaultKind::Thrown if fault.message.contains("too deeply") => "stack",
                FaultKind::Thrown => "throw",
            };
            (word, fault.line)
        }
    }
}

/// `throw` and `value` differ only in who throws.
fn agrees(script: &Script, (word, line): (&str, u32)) -> bool {
    let agrees = match script.expect.as_str() {
        "value" => word == "throw",
        // What cannot be interrupted is refused at its time, by whichever limit.
        "late" => word == "cpu" || word == "wall",
        // Without memory for anything there are several ways to end.
        "any" => true,
        expected => expected == word,
    };
    agrees && (script.line == 0 || script.line == line)
}

#[tokio::test]
async fn every_hostile_script_ends_in_its_refusal_and_leaves_nothing_behind() {
    let mut wrong = Vec::new();
    let scripts = scripts();
    assert!(scripts.len() >= 60, "only {} scripts", scripts.len());
    for script in &scripts {
        let begun = Instant::now();
        let rig = Rig::load(script);
        let outcome = match &rig {
            Ok(rig) => rig.run(&rig.hostile).await,
            Err(fault) => Err(fault.clone()),
        };
        let took = begun.elapsed();
        let (word, line) = verdict(&outcome);
        let said = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        if !agrees(script, (word, line)) {
            wrong.push(format!(
                "{}: {word} line {line}, not {} line {}: {said}",
                script.name, script.expect, script.line
            ));
        }
        if took > limits(script).wall + NOISE {
            wrong.push(format!("{}: took {took:?}", script.name));
        }
        if said.bytes().any(|byte| byte < b' ') || said.len() > 1000 {
            wrong.push(format!("{}: what it says is not fit to be shown: {said:?}", script.name));
        }
        let Ok(rig) = rig else { continue };
        for _ in 0..2 {
            let after = rig.run(&rig.probe).await.map(|draft| draft.headers.last().cloned());
            if !matches!(&after, Ok(Some((_, value))) if value == "clean") {
                wrong.push(format!("{}: the next call found {after:?}", script.name));
            }
        }
        // And again, in engines that it has been in before.
        let again = verdict(&rig.run(&rig.hostile).await);
        if !agrees(script, again) {
            wrong.push(format!("{}: the second time {again:?}", script.name));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), scripts.len(), wrong.join("\n"));
}

/// Resident memory in kilobytes, and open descriptors.
fn held() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident = resident.trim().trim_end_matches(" kB").parse().unwrap();
    (resident, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// `CALLSIGN_FULL=1` for ten thousand of them; else as many as fit.
#[tokio::test]
async fn memory_and_descriptors_are_back_after_many_hostile_scripts() {
    let full = std::env::var_os("CALLSIGN_FULL").is_some_and(|value| value == "1");
    let runs = if full { 10_000 } else { 1_500 };
    // Those that cannot be interrupted would only be waited for.
    let scripts: Vec<Script> = scripts().into_iter().filter(|script| script.expect != "late").collect();
    let (mut done, mut before) = (0, None);
    for script in scripts.iter().cycle() {
        if done == runs {
            break;
        }
        if let Ok(rig) = Rig::load(script) {
            let _outcome = rig.run(&rig.hostile).await;
        }
        done += 1;
        if done % 2_500 == 0 {
            println!("{done} runs: {:?}", held());
        }
        // The first round is for what is made once: pages, caches, arenas of the allocator.
        if done == scripts.len() {
            before = Some(held());
        }
    }
    let (before, after) = (before.unwrap(), held());
    println!(
        "{done} hostile runs: resident {} → {} kB, descriptors {} → {}",
        before.0, after.0, before.1, after.1
    );
    assert!(after.0 < before.0 + 16 * 1024, "resident memory grew from {} to {} kB", before.0, after.0);
    assert!(after.1 <= before.1, "descriptors grew from {} to {}", before.1, after.1);
}
