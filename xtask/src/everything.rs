//! A real peer's server, `@modelcontextprotocol/server-everything`, with and without us: every tool, resource,
//! template, prompt and completion gives the same JSON.
//!
//! ```text
//! stdio   client → server            against   client → wrap → server,   client → serve → server (stdio behind)
//! HTTP    client → server            against   client → wrap --url → server,   client → serve → server
//! ```

mod client;
mod mask;
mod survey;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use tempfile::TempDir;

use self::client::{HttpClient, StdioClient};
use self::survey::Survey;
use crate::fixture::{Daemon, READY, free_port, quoted, said};
use crate::http1::Url;
use crate::process::Program;
use crate::workspace::{Profile, Workspace};

pub(crate) fn run(workspace: &Workspace) -> Result<String> {
    let callsign = workspace.binary(Profile::Dev, "callsign")?;
    let everything = Everything {
        node: workspace.node(),
        script: workspace.tool("npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js"),
        home: TempDir::with_prefix("callsign-everything-")?,
    };
    let records = workspace.target.join("everything");
    let mut faults = Vec::new();

    let over_stdio = leg(&records, "stdio, directly", || survey::take(&mut everything.stdio(None)?))?;
    let mut against =
        |name: &str, expected: &Survey, take: &dyn Fn() -> Result<Survey>| match leg(&records, name, take) {
            Ok(survey) => faults.extend(differences(name, expected, &survey)),
            Err(error) => faults.push(format!("{error:#}")),
        };
    against("stdio, through wrap", &over_stdio, &|| {
        survey::take(&mut everything.stdio(Some(&callsign))?).with_context(|| said(&everything.log()))
    });
    against("stdio, through serve", &over_stdio, &|| served(&callsign, &everything.as_child()));

    let server = everything.http()?;
    let over_http = leg(&records, "HTTP, directly", || survey::take(&mut HttpClient::connect(&server.url)?))?;
    against("HTTP, through wrap --url", &over_http, &|| {
        let mut command = everything.command(&callsign)?;
        command.args(["wrap", "--url", &server.url]);
        let survey = survey::take(&mut StdioClient::start("callsign wrap --url", &mut command)?);
        survey.with_context(|| said(&everything.log()))
    });
    against("HTTP, through serve", &over_http, &|| {
        served(&callsign, &format!("[servers.everything]\nurl = \"{}\"\n", server.url))
    });

    for fault in &faults {
        println!("{fault}");
    }
    if !faults.is_empty() {
        bail!("{} answers differ", faults.len());
    }
    Ok(format!(
        "{} records (answers and progress) over stdio and {} over HTTP are the same",
        over_stdio.len(),
        over_http.len()
    ))
}

/// Takes a survey and keeps it in `records`, to look at what was compared.
fn leg(records: &Path, name: &str, take: impl FnOnce() -> Result<Survey>) -> Result<Survey> {
    let start = Instant::now();
    let survey = take().with_context(|| name.to_owned())?;
    std::fs::create_dir_all(records)?;
    std::fs::write(records.join(format!("{name}.json")), serde_json::to_string_pretty(&survey)?)?;
    println!("{name}: {} records in {:.1} s", survey.len(), start.elapsed().as_secs_f64());
    Ok(survey)
}

struct Everything {
    node: PathBuf,
    script: PathBuf,
    home: TempDir,
}

/// The server over HTTP, which has no option for its address: a preload keeps it on loopback.
struct Http {
    _program: Program,
    url: String,
}

impl Everything {
    /// With a small environment that `inherit_env = "safe"` passes on, so that `get-env` can be compared.
    fn command(&self, program: &Path) -> Result<Command> {
        let mut command = Command::new(program);
        command.env_clear().current_dir(self.home.path());
        command.env("PATH", "/usr/bin:/bin").env("HOME", self.home.path()).env("LANG", "C.UTF-8");
        command.stderr(File::create(self.log())?);
        Ok(command)
    }

    /// The stderr of the program that was started last.
    fn log(&self) -> PathBuf {
        self.home.path().join("stderr")
    }

    fn stdio(&self, wrapped_by: Option<&Path>) -> Result<StdioClient> {
        if let Some(callsign) = wrapped_by {
            let mut command = self.command(callsign)?;
            command.args(["wrap", "--"]).arg(&self.node).arg(&self.script).arg("stdio");
            return StdioClient::start("callsign wrap", &mut command);
        }
        StdioClient::start("server-everything", self.command(&self.node)?.arg(&self.script).arg("stdio"))
    }

    fn as_child(&self) -> String {
        format!(
            "[servers.everything]\ncommand = {}\nargs = [{}, \"stdio\"]\ninherit_env = []\n\
             env = {{ PATH = \"/usr/bin:/bin\", HOME = {}, LANG = \"C.UTF-8\" }}\n",
            quoted(&self.node),
            quoted(&self.script),
            quoted(self.home.path())
        )
    }

    fn http(&self) -> Result<Http> {
        let port = free_port()?;
        let preload = crate::fixture::loopback_preload(self.home.path())?;
        let mut command = self.command(&self.node)?;
        command.arg("--import").arg(preload).arg(&self.script).arg("streamableHttp");
        command.env("PORT", port.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
        let mut program = Program::start("server-everything streamableHttp", &mut command)?;
        let url = format!("http://127.0.0.1:{port}/mcp");
        let address = Url::parse(&url)?;
        let deadline = Instant::now() + READY;
        while address.connect(READY).is_err() {
            program.still_runs()?;
            anyhow::ensure!(Instant::now() < deadline, "server-everything does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Http { _program: program, url })
    }
}

fn served(callsign: &Path, server: &str) -> Result<Survey> {
    let daemon = Daemon::start(callsign, server)?;
    let survey = survey::take(&mut HttpClient::connect(&format!("{}/mcp/everything", daemon.url))?)
        .with_context(|| daemon.said())?;
    daemon.stop()?;
    Ok(survey)
}

/// Where two surveys part. Both are masked already.
fn differences(leg: &str, expected: &Survey, found: &Survey) -> Vec<String> {
    let mut faults = Vec::new();
    for (what, value) in expected {
        match found.iter().find(|(other, _)| other == what) {
            None => faults.push(format!("{leg}: {what}: missing")),
            Some((_, other)) if other != value => {
                faults.push(format!("{leg}: {what}: {}", first_difference("", value, other)));
            }
            Some(_) => {}
        }
    }
    for (what, _) in found.iter().filter(|(what, _)| !expected.iter().any(|(other, _)| other == what)) {
        faults.push(format!("{leg}: {what}: not there without us"));
    }
    faults
}

/// The first place at which two values differ, and what stands there.
fn first_difference(path: &str, expected: &Value, found: &Value) -> String {
    match (expected, found) {
        (Value::Object(left), Value::Object(right)) => {
            for (key, value) in left {
                match right.get(key) {
                    Some(other) if other == value => {}
                    Some(other) => return first_difference(&format!("{path}/{key}"), value, other),
                    None => return format!("{path}/{key} is missing"),
                }
            }
            let extra: Vec<_> = right.keys().filter(|key| !left.contains_key(*key)).collect();
            format!("{path} has {extra:?} as well")
        }
        (Value::Array(left), Value::Array(right)) => {
            for (index, (value, other)) in left.iter().zip(right).enumerate() {
                if value != other {
                    return first_difference(&format!("{path}/{index}"), value, other);
                }
            }
            format!("{path} has {} elements instead of {}", right.len(), left.len())
        }
        _ => format!("{path} is {found} instead of {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{differences, first_difference};

    #[test]
    fn a_difference_is_named_by_its_place() {
        let expected = json!({"a": [{"b": 1}, {"b": 2}]});
        let found = json!({"a": [{"b": 1}, {"b": 3}]});
        assert_eq!(first_difference("", &expected, &found), "/a/1/b is 3 instead of 2");
        assert_eq!(first_difference("", &json!({"a": 1}), &json!({})), "/a is missing");
        assert_eq!(first_difference("", &json!({}), &json!({"a": 1})), " has [\"a\"] as well");
        assert_eq!(first_difference("", &json!([1]), &json!([])), " has 0 elements instead of 1");
    }

    #[test]
    fn an_answer_that_is_missing_or_extra_is_a_difference() {
        let one = vec![("a".to_owned(), json!(1))];
        assert_eq!(differences("x", &one, &vec![]), ["x: a: missing"]);
        assert_eq!(differences("x", &vec![], &one), ["x: a: not there without us"]);
        assert!(differences("x", &one, &one).is_empty());
    }
}
