use std::ffi::OsString;

use super::*;

fn command(args: &[&str], env: &[(&str, &str)], cwd: Option<&str>) -> Command {
    Command {
        program: "tool".into(),
        args: args.iter().map(OsString::from).collect(),
        env: env.iter().map(|&(name, value)| (name.into(), value.into())).collect(),
        cwd: cwd.map(Into::into),
    }
}

#[track_caller]
fn check(command: &Command, argv: &[&str], envp: &[&str], cwd: Option<&str>) {
    let owned = |list: &[&str]| list.iter().map(|&item| CString::new(item).unwrap()).collect::<Vec<_>>();
    let mut bytes = encode(command).unwrap();
    bytes.push(TERMINATE);
    let mut rest = bytes.as_slice();
    let expected =
        Request { argv: owned(argv), envp: owned(envp), cwd: cwd.map(|cwd| CString::new(cwd).unwrap()) };
    assert_eq!(read_request(&mut rest).unwrap(), expected);
    assert_eq!(rest, [TERMINATE], "a command after the request is left to be read");
}

#[test]
fn a_request_arrives_as_it_was_given() {
    check(&command(&[], &[], None), &["tool"], &[], None);
    check(
        &command(&["", "a b", "ü"], &[("A", ""), ("B", "x=y")], Some("/tmp")),
        &["tool", "", "a b", "ü"],
        &["A=", "B=x=y"],
        Some("/tmp"),
    );
    let long = "v".repeat(3 << 20);
    check(&command(&[], &[("LONG", &long)], None), &["tool"], &[&format!("LONG={long}")], None);
}

#[test]
fn what_exec_could_not_take_is_refused() {
    let refused = |command: &Command| encode(command).unwrap_err().kind();
    assert_eq!(refused(&command(&["a\0b"], &[], None)), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&command(&[], &[("A=B", "")], None)), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&command(&[], &[("", "x")], None)), io::ErrorKind::InvalidInput);
    assert_eq!(refused(&command(&[&"a".repeat(17 << 20)], &[], None)), io::ErrorKind::ArgumentListTooLong);
}

#[test]
fn a_request_cut_short_is_an_error() {
    let bytes = encode(&command(&["a"], &[("A", "1")], Some("/"))).unwrap();
    for length in 0..bytes.len() {
        assert!(read_request(&bytes[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn records_survive_the_wire() {
    for record in [
        Record::Started { pid: 4_194_304 },
        Record::Failed { step: Step::Process, errno: Errno::EAGAIN },
        Record::Failed { step: Step::WorkingDirectory, errno: Errno::ENOENT },
        Record::Failed { step: Step::Program, errno: Errno::EACCES },
        Record::ExitedCode(255),
        Record::ExitedSignal(9),
    ] {
        assert_eq!(Record::decode(record.encode()), Some(record));
    }
    assert_eq!(Record::decode([0; Record::SIZE]), None);
}
