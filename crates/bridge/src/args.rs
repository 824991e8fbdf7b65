//! The command line. Who writes it is the daemon, so a mistake is a mistake of ours: it is named, and nothing starts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str = "callsign-bridge [--sockets DIR] --agent PORT [--carry PORT=NAME]... \
                                [--orphan SECONDS] -- COMMAND ARGS...";

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) sockets: PathBuf,
    /// Where the agent listens, or will.
    pub(crate) agent: u16,
    pub(crate) carried: Vec<Carried>,
    /// How long the box lives without a daemon; for ever if nobody said.
    pub(crate) orphan: Option<Duration>,
    pub(crate) command: OsString,
    pub(crate) args: Vec<OsString>,
}

/// A port of the box, and the socket it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) port: u16,
    pub(crate) name: String,
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Plan, String> {
    let mut args = args.into_iter();
    let mut sockets = PathBuf::from(bridge::DIRECTORY);
    let (mut agent, mut orphan) = (None, None);
    let mut carried: Vec<Carried> = Vec::new();
    loop {
        let option = args.next().ok_or("there is no command")?;
        if option == "--" {
            break;
        }
        let name = option.to_string_lossy().into_owned();
        let mut value = || args.next().ok_or(format!("{name} has no value"));
        match name.as_str() {
            "--sockets" => sockets = value()?.into(),
            "--agent" => agent = Some(port(&text(value()?)?)?),
            "--carry" => {
                let next = carry(&text(value()?)?)?;
                if carried.iter().any(|other| other.port == next.port) {
                    return Err(format!("the port {} is carried twice", next.port));
                }
                carried.push(next);
            }
            "--orphan" => orphan = Some(seconds(&text(value()?)?)?),
            _ => return Err(format!("there is no option {name}")),
        }
    }
    let agent = agent.ok_or("--agent is missing")?;
    if carried.iter().any(|carried| carried.port == agent) {
        return Err(format!("the port {agent} is the agent's and cannot be carried"));
    }
    let command = args.next().ok_or("there is no command")?;
    Ok(Plan { sockets, agent, carried, orphan, command, args: args.collect() })
}

fn text(value: OsString) -> Result<String, String> {
    value.into_string().map_err(|value| format!("{} is no text", value.display()))
}

fn port(value: &str) -> Result<u16, String> {
    match value.parse() {
        Ok(0) | Err(_) => Err(format!("{value} is no port")),
        Ok(port) => Ok(port),
    }
}

fn carry(value: &str) -> Result<Carried, String> {
    let (number, name) = value.split_once('=').ok_or(format!("{value} is not PORT=NAME"))?;
    // A name becomes a file in the directory, and no other.
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 64 || !name.bytes().all(plain) || name == bridge::CONTROL {
        return Err(format!("{name:?} is no name of a socket that can be carried"));
    }
    Ok(Carried { port: port(number)?, name: name.to_owned() })
}

fn seconds(value: &str) -> Result<Duration, String> {
    let seconds: f64 = value.parse().map_err(|_| format!("{value} is no number of seconds"))?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() && seconds < 1e9 => Ok(duration),
        Ok(_) | Err(_) => Err(format!("{value} is no number of seconds")),
    }
}

#[cfg(test)]
mod tests;
