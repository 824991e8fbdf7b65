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
    package: &'static str,
    filter: &'static str,
}

const GATES: [Gate; 3] = [
    Gate {
        name: "sessions",
        what: "1,000 sessions at once, 100 calls each, in either isolation; 500 that come and go",
        package: "callsign",
        filter: "binary(it) & test(/^scale::/)",
    },
    Gate {
        name: "hostile",
        what: "every row of bad input, with its standing checks",
        package: "callsign",
        filter: "binary(it) & test(/^bad_inputs::/)",
    },
    Gate {
        name: "hooks",
        what: "every hostile hook, and ten thousand of them for what they leave behind",
        package: "hooks",
        filter: "binary(it) & test(/^hostile::/)",
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
            gate.package,
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
