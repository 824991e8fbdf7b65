//! Data for people and programs, on stdout. A reader that goes away is not an error.

use std::io::{self, Write as _};

pub fn line(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

pub fn json(value: &impl serde::Serialize) -> io::Result<()> {
    line(&serde_json::to_string(value)?)
}
