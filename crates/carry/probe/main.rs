//! Applies the changes of a workspace, or recovers what another left, for tests that kill it in the middle.

use std::env::args_os;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use carry::{Apply, CarryError, Compare, Git, Limits};

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = args_os().skip(1).map(PathBuf::from).collect();
    let result = match arguments.as_slice() {
        [workspace, base, to, journal] => run(workspace, base, to, journal),
        [journal] => {
            begins();
            carry::recover(journal).map(|_| ())
        }
        _ => return ExitCode::from(2),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(workspace: &Path, base: &Path, to: &Path, journal: &Path) -> Result<(), CarryError> {
    let stop = AtomicBool::new(false);
    let (workspace, base) = (workspace.to_owned(), base.to_owned());
    let compare = Compare { workspace, base, limits: Limits::default(), git: Git::default(), stop: &stop };
    let changes = carry::changes(&compare)?;
    begins();
    let apply = Apply { changes: &changes, to: to.to_owned(), journal: journal.to_owned(), stop: &stop };
    carry::apply(&apply).map(|_| ())
}

#[expect(clippy::print_stdout, reason = "tells the test that it begins")]
fn begins() {
    println!("now");
}
