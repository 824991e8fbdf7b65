//! The tasks of this repository: `cargo xtask test | sessions | tidy | tools | conformance | everything | bench | prove`.
//!
//! ```text
//! test.rs ─┬ tools.rs         what must be installed first
//!          │   └ engines.rs    … and what container engines are tested with
//!          ├ sessions.rs      the tests of sessions, on a container engine
//!          ├ tidy.rs          what no compiler checks
//!          ├ conformance.rs   the official suite, with and without us
//!          ├ everything.rs    a real server, with and without us
//!          ├ interop.rs       what we sign, verified by others
//!          └ bench.rs         us and our peers, in one run
//! prove.rs                    the long gates
//! ```
//!
//! **Invariants:** every program that is started here ends with us, Ctrl-C included (`process.rs`);
//! nothing is installed outside `target/tools` but Debian packages; nothing listens beyond loopback.
//! Read `test.rs` first.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a tool for people; its output is the point")]
#![expect(clippy::cast_precision_loss, reason = "figures are rounded to three digits anyway")]

mod bench;
mod conformance;
mod engines;
mod everything;
mod fixture;
mod http1;
mod interop;
mod process;
mod prove;
mod sessions;
mod test;
mod tidy;
mod tools;
mod types;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::workspace::Workspace;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of this repository")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The whole test command, or the named parts of it
    Test {
        /// Run only these parts (and what they need)
        parts: Vec<String>,
    },
    /// The tests of sessions, on one runtime
    Sessions(sessions::Options),
    /// Install what the tests need
    Tools,
    /// Check what no compiler checks: arrows between crates, file sizes, links, left-over marks
    Tidy,
    /// The official conformance suite, directly and through `callsign serve`
    Conformance,
    /// `@modelcontextprotocol/server-everything`, directly and through `wrap` and `serve`
    Everything,
    /// Measure Callsign and its peers in one run
    Bench(bench::Options),
    /// The long gates, at full size
    Prove(prove::Options),
    /// The load generator, started by `bench`
    #[command(hide = true)]
    BenchWorker {
        /// What to do, as JSON
        plan: String,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = run(cli.task);
    process::stay_if_ending();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<()> {
    if let Task::BenchWorker { plan } = &task {
        return bench::worker(plan);
    }
    process::end_children_on_signals()?;
    let workspace = Workspace::find()?;
    match task {
        Task::Test { parts } => test::run(&workspace, &parts),
        Task::Sessions(options) => sessions::run(&workspace, &options),
        Task::Tools => tools::install(&workspace),
        Task::Tidy => tidy::run(&workspace).map(|summary| println!("{summary}")),
        Task::Conformance => conformance::run(&workspace).map(|summary| println!("{summary}")),
        Task::Everything => everything::run(&workspace).map(|summary| println!("{summary}")),
        Task::Bench(options) => bench::run(&workspace, &options).map(|summary| println!("{summary}")),
        Task::Prove(options) => prove::run(&workspace, &options),
        Task::BenchWorker { .. } => Ok(()),
    }
}
