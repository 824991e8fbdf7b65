//! `echo-server --stdio | --http ADDR [--page-size N] [--stream] [--log FILE] …`: see `testkit::echo`.

use std::process::ExitCode;

fn main() -> ExitCode {
    testkit::echo::main()
}
