use std::path::Path;

use super::*;
use crate::config::{Environment, Purpose, Source};

#[track_caller]
fn check(error: impl Into<anyhow::Error>, code: Code, printed: &str) {
    let mut out = Vec::new();
    assert_eq!(report(&error.into(), &mut out).unwrap(), code);
    assert_eq!(String::from_utf8(out).unwrap(), printed);
}

#[test]
fn every_expected_error_has_its_code_and_its_hint() {
    check(
        Failure::new(Code::Server, "could not start `a`").with_hint("is it installed?"),
        Code::Server,
        "error: could not start `a`\nhint: is it installed?\n",
    );
    let already =
        || StateError::AlreadyRuns { path: "/s".into(), pid: Some(7), url: Some("http://x".to_owned()) };
    let hint = "hint: use that one, stop it, or choose another --state-dir\n";
    let what = "a daemon already runs on the state directory /s: pid 7, http://x";
    check(already(), Code::State, &format!("error: {what}\n{hint}"));
    check(
        anyhow::Error::from(already()).context("could not start the daemon"),
        Code::State,
        &format!("error: could not start the daemon: {what}\n{hint}"),
    );
    check(
        TokenError::State(already()),
        Code::State,
        &format!("error: could not use the tokens in the state directory: {what}\n{hint}"),
    );
    check(
        TokenError::Unknown(model::Principal::local()),
        Code::Usage,
        "error: there is no token for `local`\nhint: callsign token list\n",
    );
    check(anyhow::anyhow!("boom"), Code::Unexpected, "error: boom\n");
}

#[test]
fn every_mistake_of_a_configuration_is_a_line() {
    let source = Source { text: "x = 1\ny = 2\n", shown: Path::new("c.toml"), directory: Path::new("/") };
    let none = |_: &str| None;
    let errors = crate::config::parse(source, Purpose::Serve, Environment::new(&none)).unwrap_err();
    check(
        errors,
        Code::Configuration,
        "error: c.toml:1:1: unknown key `x`; this table takes servers, serve, workspace, hosts, hooks, ledger, telemetry, sessions\n\
         error: c.toml:2:1: unknown key `y`; this table takes servers, serve, workspace, hosts, hooks, ledger, telemetry, sessions\n",
    );
}
