//! The binary: parse, run, say how it ended.

use std::io::Write as _;
use std::process::ExitCode;

use callsign::{app, exit, keeping};

fn main() -> ExitCode {
    if let Some(code) = keeping::run_if_asked(std::env::args_os().skip(1)) {
        return code.into();
    }
    match app::run() {
        Ok(()) => exit::Code::Ok.into(),
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            let code = exit::report(&error, &mut stderr).unwrap_or(exit::Code::Unexpected);
            let _nobody_reads = stderr.flush();
            code.into()
        }
    }
}
