//! How fast bodies are glanced at: `cargo run --release -p mcp --example glance_cost`. One figure a line: name,
//! tab, MB/s.

use std::hint::black_box;
use std::io::Write as _;
use std::time::{Duration, Instant};

use mcp::glance::{EventGlance, Glance};

/// What a frame of a body holds, as it comes from a connection.
const FRAME: usize = 16 * 1024;
const SIZE: usize = 8 * 1024 * 1024;

fn main() -> std::io::Result<()> {
    let filled = |part: &str| part.repeat(SIZE / part.len());
    let text = |part: &str| {
        format!(r#"{{"id":1,"result":{{"content":[{{"type":"text","text":"{}"}}]}}}}"#, filled(part))
    };
    let list = |part: &str| {
        format!(r#"{{"id":1,"result":{{"structuredContent":[{}0],"isError":true}}}}"#, filled(part))
    };
    let members =
        format!(r#"{{"id":1,"result":{{{}"isError":true}}}}"#, filled(r#""name":"value","count":12,"#));
    let bodies = [
        ("plain text", text("The quick brown fox jumps over the lazy dog. ")),
        ("text with line breaks", text(r"a line of a program, with its end;\n")),
        ("JSON within text", text(r#"{\"name\":\"value\",\"count\":12},"#)),
        ("objects", list(r#"{"id":12345,"name":"short","tags":["a","b"],"nested":{"x":1.5,"y":null}},"#)),
        ("numbers", list("12345.678,")),
        ("brackets", list("[[]],{},")),
        ("spaces", list("\n            1,")),
        ("members of the result", members),
    ];
    let mut out = std::io::stdout().lock();
    for (name, body) in &bodies {
        let json = rate(body.len(), || {
            let mut glance = Glance::new();
            body.as_bytes().chunks(FRAME).for_each(|frame| glance.feed(frame));
            assert!(black_box(glance.finish()).is_some());
        });
        let stream = format!("event: message\ndata: {}\n\n", body.replace('\n', " "));
        let events = rate(stream.len(), || {
            let (mut glance, mut count) = (EventGlance::new(), 0);
            stream.as_bytes().chunks(FRAME).for_each(|frame| glance.feed(frame, &mut |_| count += 1));
            assert_eq!(black_box(count), 1);
        });
        writeln!(out, "{name}\t{json:.0}\n{name}, as an event\t{events:.0}")?;
    }
    let small =
        concat!("data: ", r#"{"jsonrpc":"2.0","id":12,"result":{"content":[],"isError":false}}"#, "\n\n");
    let stream = filled(small);
    let events = rate(stream.len(), || {
        let (mut glance, mut count) = (EventGlance::new(), 0);
        stream.as_bytes().chunks(FRAME).for_each(|frame| glance.feed(frame, &mut |_| count += 1));
        assert_eq!(black_box(count), stream.len() / small.len());
    });
    writeln!(out, "small events\t{events:.0}")
}

/// MB/s, the best of what fits into a second: others use the machine too.
fn rate(size: usize, mut run: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    while begun.elapsed() < Duration::from_secs(1) {
        let one = Instant::now();
        run();
        best = best.min(one.elapsed());
    }
    #[expect(clippy::cast_precision_loss, reason = "a size of a few megabytes")]
    let size = size as f64;
    size / 1e6 / best.as_secs_f64()
}
