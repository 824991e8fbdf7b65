//! Applies the changes of a workspace, for tests that kill it in the middle.

use std::env::args_os;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use carry::{Apply, CarryError, Compare, Git, Limits};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = args_os().skip(1).map(PathBuf::from).collect();
    let [workspace, base, to, journal] = arguments.as_slice() else { return ExitCode::from(2) };
    match run(workspace, base, to, journal) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(workspace: &Path, base: &Path, to: &Path, journal: &Path) -> Result<(), CarryError> {
    let stop = AtomicBool::new(false);
    let (workspace, base) = (workspace.to_owned(), base.to_owned());
    let compare = Compare { workspace, base, limits: Limits::default(), git: Git::default(), stop: &stop };
    let changes = carry::changes(&compare)?;
    #[expect(clippy::print_stdout, reason = "tells the test that the apply begins")]
    {
        println!("now");
    }
    let apply = Apply { changes: &changes, to: to.to_owned(), journal: journal.to_owned(), stop: &stop };
    carry::apply(&apply).map(|_| ())
}
