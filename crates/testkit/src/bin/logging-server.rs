//! `logging-server --stdio | --http ADDR --log FILE`: the echo server, which writes down what it gets; the
//! format is in `testkit::record`.

use std::process::ExitCode;

fn main() -> ExitCode {
    testkit::echo::main()
}
