//! The long gates: what every test run does in small, at full size.

use std::process::Command;

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

/// A gate is a selection of tests, run with `CALLSIGN_FULL=1`.
struct Gate {
    name: &'static str,
    what: &'static str,
    package: &'static str,
    /// Which tests of the package are built.
    built: &'static str,
    filter: &'static str,
}

const GATES: [Gate; 5] = [
    Gate {
        name: "scale",
        what: "1,000 sessions at once, 100 calls each, in either isolation; 500 that come and go",
        package: "callsign",
        built: "--test=it",
        filter: "binary(it) & test(/^scale::/)",
    },
    Gate {
        name: "sessions",
        what: "300 kills of the daemon, 1,000 cancels, 1,000 sessions of which 20 are hot, and everything that fails in mid-run",
        package: "callsign",
        built: "--test=sessions",
        filter: "binary(sessions) & test(/^(killed|canceled|many|faults)::/)",
    },
    Gate {
        name: "hostile",
        what: "every row of bad input, with its standing checks",
        package: "callsign",
        built: "--test=it",
        filter: "binary(it) & test(/^bad_inputs::/)",
    },
    Gate {
        name: "hooks",
        what: "every hostile hook, and ten thousand of them for what they leave behind",
        package: "hooks",
        built: "--test=it",
        filter: "binary(it) & test(/^hostile::/)",
    },
    Gate {
        name: "ledger",
        what: "32 processes that are killed while they write, a disk that is full at every write, every byte flipped",
        package: "ledger",
        built: "--lib",
        filter: "test(killed) | test(full) | test(tampered) | test(every_change) | test(removed_added) | test(older_copy)",
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
            gate.built,
            "--cargo-quiet",
            "-E",
            gate.filter,
        ]);
        process::run(at_full_size(workspace, &mut command))?;
    }
    Ok(())
}

/// In `.config/nextest.toml` tests have the time that their small size needs.
pub(crate) fn at_full_size<'a>(workspace: &Workspace, command: &'a mut Command) -> &'a mut Command {
    let limits = format!("xtask:{}", workspace.root.join("xtask/src/prove.toml").display());
    command.args(["--tool-config-file", &limits, "--profile", "prove"]).env("CALLSIGN_FULL", "1")
}

#[cfg(test)]
mod tests {
    use super::GATES;

    #[test]
    fn a_name_is_one_gates_own() {
        for (index, gate) in GATES.iter().enumerate() {
            let same = GATES.iter().position(|other| other.name == gate.name);
            assert_eq!(same, Some(index), "{} is there twice", gate.name);
        }
    }
}
