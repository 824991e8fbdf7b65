use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use super::{Carried, parse};

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

#[track_caller]
fn refused(line: &str, part: &str) {
    let message = parse(words(line)).unwrap_err();
    assert!(message.contains(part), "{line:?}: {message:?} lacks {part:?}");
}

#[test]
fn a_whole_line_is_read() {
    let line = "--sockets /s --agent 4096 --carry 4097=model --carry 4098=mcp --orphan 0.5 -- run --agent 1";
    let plan = parse(words(line)).unwrap();
    assert_eq!(plan.sockets, Path::new("/s"));
    assert_eq!(plan.agent, 4096);
    let carried = |port, name: &str| Carried { port, name: name.into() };
    assert_eq!(plan.carried, [carried(4097, "model"), carried(4098, "mcp")]);
    assert_eq!(plan.orphan, Some(Duration::from_millis(500)));
    assert_eq!(plan.command, "run");
    assert_eq!(plan.args, ["--agent", "1"]);
}

#[test]
fn little_is_needed() {
    let plan = parse(words("--agent 1 -- run")).unwrap();
    assert_eq!(plan.sockets, Path::new("/run/callsign"));
    assert!(plan.carried.is_empty() && plan.orphan.is_none() && plan.args.is_empty());
}

#[test]
fn mistakes_are_named() {
    refused("", "no command");
    refused("--agent 1", "no command");
    refused("--agent 1 --", "no command");
    refused("-- run", "--agent is missing");
    refused("--agent", "no value");
    refused("--agent 0 -- run", "no port");
    refused("--agent 65536 -- run", "no port");
    refused("--agent 1 --carry 2 -- run", "PORT=NAME");
    refused("--agent 1 --carry 2= -- run", "no name");
    refused("--agent 1 --carry 2=../x -- run", "no name");
    refused("--agent 1 --carry 2=control -- run", "no name");
    refused("--agent 1 --carry 2=a --carry 2=b -- run", "twice");
    refused("--agent 1 --carry 1=a -- run", "the agent's");
    refused("--agent 1 --orphan 0 -- run", "seconds");
    refused("--agent 1 --orphan nan -- run", "seconds");
    refused("--agent 1 --orphan -1 -- run", "seconds");
    refused("--agent 1 run", "no option run");
}
