//! The long gates: what every test run does in small, at full size.

use anyhow::{Result, bail};
use clap::Args;

use crate::process;
use crate::workspace::Workspace;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only this gate
    #[arg(long)]
    gate: Option<String>,
}

/// A gate is a selection of the wire tests, run with `CALLSIGN_FULL=1`.
struct Gate {
    name: &'static str,
    what: &'static str,
    filter: &'static str,
}

const GATES: [Gate; 2] = [
    Gate {
        name: "sessions",
        what: "1,000 sessions at once, 100 calls each, in either isolation; 500 that come and go",
        filter: "binary(it) & test(/^scale::/)",
    },
    Gate {
        name: "hostile",
        what: "every row of bad input, with its standing checks",
        filter: "binary(it) & test(/^bad_inputs::/)",
    },
];

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let wanted = |gate: &&Gate| options.gate.as_ref().is_none_or(|name| name == gate.name);
    let gates: Vec<&Gate> = GATES.iter().filter(wanted).collect();
    if gates.is_empty() {
        let names: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
        bail!("there is no such gate; there are: {}", names.join(", "));
    }
    process::run(workspace.cargo().args(["build", "--quiet", "--package", "testkit", "--bins"]))?;
    for gate in gates {
        println!("gate {}: {}", gate.name, gate.what);
        let mut command = workspace.cargo();
        command.args([
            "nextest",
            "run",
            "--package",
            "callsign",
            "--test",
            "it",
            "--cargo-quiet",
            "-E",
            gate.filter,
        ]);
        process::run(command.env("CALLSIGN_FULL", "1"))?;
    }
    Ok(())
}
