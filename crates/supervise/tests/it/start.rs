//! Starting a child, and hearing of its end.

use std::process::Command;

use crate::owner::{Owner, PROBE};

/// Each row: what to spawn, what the owner hears of the start, and of the end.
#[track_caller]
fn check(spawn: &str, start: &str, end: &str) {
    let mut owner = Owner::start();
    let answer = owner.ask(&format!("spawn\t{spawn}"));
    assert!(answer.starts_with(start), "{answer}");
    assert_eq!(owner.ask("exited\t0"), end);
    assert_eq!(owner.ask("exited\t0"), end, "the same again");
}

#[track_caller]
fn check_output(spawn: &str, expected: &str) {
    let mut owner = Owner::start();
    owner.ask(&format!("spawn\t{spawn}"));
    assert_eq!(owner.ask("output\t0"), expected);
}

#[test]
fn the_exit_code_is_reported() {
    check("\t\tsh\t-c\texit 3", "started ", "exit code 3");
    check("\t\ttrue", "started ", "exit code 0");
}

#[test]
fn the_signal_is_reported() {
    check("\t\tsh\t-c\tkill -9 $$", "started ", "signal 9");
}

#[test]
fn a_missing_program_is_told_from_a_missing_directory() {
    check(
        "/\t\tno-such-program",
        "could not start `no-such-program`: No such file or directory — is it installed and in PATH?",
        "an unknown exit status",
    );
    check(
        "/no/such/directory\t\ttrue",
        "could not start `true`: its working directory `/no/such/directory` cannot be entered: No such file or directory",
        "an unknown exit status",
    );
    check("\t\t/etc/passwd", "could not start `/etc/passwd`: Permission denied", "an unknown exit status");
}

#[test]
fn the_path_is_that_of_the_given_environment() {
    check("\tPATH=/no/such/directory\ttrue", "could not start `true`", "an unknown exit status");
    check("\tPATH=/no/such/directory:/bin:/usr/bin\ttrue", "started ", "exit code 0");
}

#[test]
fn what_no_program_could_take_is_refused() {
    assert!(Owner::start().ask("spawn\t\t\ttr\0ue").starts_with("refused "));
}

#[test]
fn the_environment_is_exactly_the_given_one() {
    check_output("\tA=1;B=x y\tenv", "A=1|B=x y");
    check_output("\t\tenv", "");
}

#[test]
fn the_child_runs_in_the_given_directory() {
    check_output("/usr\t\tpwd", "/usr");
}

#[test]
fn the_child_has_no_descriptor_but_its_pipes() {
    // The fourth is the listing's own.
    check_output("\t\tls\t/proc/self/fd", "0|1|2|3");
}

#[test]
fn the_child_has_no_blocked_and_no_ignored_signals() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP INT USR1 PIPE; exec \"$0\" own", PROBE]);
    let mut owner = Owner::start_as(&mut shell);
    owner.ask("spawn\t\t\tgrep\t-E\t^Sig(Blk|Ign)\t/proc/self/status");
    let output = owner.ask("output\t0");
    let masks = output.split('|').filter_map(|line| u64::from_str_radix(line.split_once('\t')?.1, 16).ok());
    // Signals 32 and 33 belong to the C library, which lets nobody change them, and 34 up to nobody.
    let standard: Vec<u64> = masks.map(|mask| mask & 0x7fff_ffff).collect();
    assert_eq!(standard, [0, 0], "{output}");
}

#[test]
fn a_large_environment_arrives() {
    // Fifteen variables of 100 KB: more than a socket buffer holds, less than the kernel refuses.
    let variables: Vec<String> = (0..15).map(|index| format!("V{index}={}", "v".repeat(100_000))).collect();
    let expected: usize = variables.iter().map(|variable| variable.len() + 1).sum();
    check_output(&format!("\t{}\tsh\t-c\tenv | grep ^V | wc -c", variables.join(";")), &expected.to_string());
}
