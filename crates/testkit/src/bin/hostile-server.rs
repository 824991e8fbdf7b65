//! `hostile-server --mode MODE [--stdio | --http ADDR]`: the modes are in `testkit::hostile`.

use std::process::ExitCode;

fn main() -> ExitCode {
    testkit::hostile::main()
}
