//! `scripted-model --port N [--log FILE]`: the script language is in `testkit::llm`.

use std::error::Error;
use std::io::Write as _;
use std::path::PathBuf;

use testkit::llm::ScriptedModel;

const USAGE: &str = "usage: scripted-model --port N [--log FILE]";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (mut port, mut log) = (0, None);
    while let Some(argument) = arguments.next() {
        match (argument.as_str(), arguments.next()) {
            ("--port", Some(value)) => port = value.parse()?,
            ("--log", Some(value)) => log = Some(PathBuf::from(value)),
            _ => return Err(USAGE.into()),
        }
    }
    let model = ScriptedModel::start_at(port, log.as_deref())?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening on {}", model.url())?;
    stdout.flush()?;
    model.wait();
    Ok(())
}
