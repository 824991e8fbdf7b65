//! Newline-delimited messages on stdin and stdout, without a runtime.

use std::io::{BufRead as _, BufReader, Write as _};
use std::sync::Arc;

use super::{Job, Options, Outlet, Reply, Session};

/// Tool threads are small: a thousand of these servers run at once.
const STACK: usize = 128 * 1024;

#[derive(Debug)]
struct Stdout;

impl Outlet for Stdout {
    fn send(&self, mut message: Vec<u8>) -> bool {
        message.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        // One write per message: the buffer of stdout is empty between messages and passes whole lines on.
        stdout.write_all(&message).and_then(|()| stdout.flush()).is_ok()
    }
}

/// Serves until stdin ends.
pub fn run(options: Options) -> std::io::Result<()> {
    let record = options.record.clone();
    let session = Session::new(options);
    let outlet: Arc<dyn Outlet> = Arc::new(Stdout);
    let mut input = BufReader::with_capacity(32 * 1024, std::io::stdin().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if let Some(record) = &record {
            record.line(line.strip_suffix(b"\n").unwrap_or(&line));
        }
        match session.handle(&line, &[]) {
            Reply::Nothing => {}
            Reply::Now(answer) | Reply::Status(_, answer) => {
                if !outlet.send(answer) {
                    return Ok(());
                }
            }
            Reply::Later(slow) | Reply::Stream(slow) => start(slow.job, outlet.clone())?,
        }
        // One large message must not be kept for ever.
        if line.capacity() > 1024 * 1024 {
            line = Vec::new();
        }
    }
}

fn start(job: Job, outlet: Arc<dyn Outlet>) -> std::io::Result<()> {
    let work = move || {
        if let Some(answer) = job(&outlet) {
            outlet.send(answer);
        }
    };
    // The thread ends with its call or with the process.
    std::thread::Builder::new().stack_size(STACK).spawn(work).map(drop)
}
