//! What goes over a control socket: one request down, then commands; records up.
//!
//! The request is `u32` body length, then lists of strings: a list is its `u32` count, a string its `u32` length and
//! bytes. Numbers are little-endian. Both ends are the same binary, so there is no version.

use std::ffi::{CString, OsStr};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;

use crate::handle::Command;

/// More than the kernel takes for arguments and environment together (6 MiB).
const LONGEST: usize = 16 << 20;

pub(crate) const TERMINATE: u8 = b'T';
pub(crate) const KILL: u8 = b'K';

/// What the supervisor needs to start the main child, ready for `execve`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Program first, as the caller wrote it.
    pub(crate) argv: Vec<CString>,
    /// `NAME=value`, in the order given.
    pub(crate) envp: Vec<CString>,
    pub(crate) cwd: Option<CString>,
}

pub(crate) fn encode(command: &Command) -> io::Result<Vec<u8>> {
    let Command { program, args, env, cwd } = command;
    let mut body = vec![0; 4];
    put_number(&mut body, args.len() + 1)?;
    put_string(&mut body, &[program])?;
    for arg in args {
        put_string(&mut body, &[arg])?;
    }
    put_number(&mut body, env.len())?;
    for (name, value) in env {
        if name.is_empty() || name.as_bytes().contains(&b'=') {
            return Err(invalid("the name of an environment variable is empty or contains `=`"));
        }
        put_string(&mut body, &[name, OsStr::new("="), value])?;
    }
    put_number(&mut body, cwd.iter().len())?;
    if let Some(cwd) = cwd {
        put_string(&mut body, &[cwd.as_os_str()])?;
    }
    let length = body.len() - 4;
    if length > LONGEST {
        return Err(io::ErrorKind::ArgumentListTooLong.into());
    }
    body[..4].copy_from_slice(&number(length)?);
    Ok(body)
}

fn number(value: usize) -> io::Result<[u8; 4]> {
    u32::try_from(value).map(u32::to_le_bytes).map_err(|_| io::ErrorKind::ArgumentListTooLong.into())
}

fn put_number(body: &mut Vec<u8>, value: usize) -> io::Result<()> {
    body.extend(number(value)?);
    Ok(())
}

fn put_string(body: &mut Vec<u8>, parts: &[&OsStr]) -> io::Result<()> {
    if parts.iter().any(|part| part.as_bytes().contains(&0)) {
        return Err(invalid("a program, argument, variable or directory contains a NUL byte"));
    }
    put_number(body, parts.iter().map(|part| part.len()).sum())?;
    body.extend(parts.iter().flat_map(|part| part.as_bytes()));
    Ok(())
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

/// Reads to the end of the request and not a byte more: commands follow it.
pub(crate) fn read_request(mut from: impl Read) -> io::Result<Request> {
    let length = get_number(&mut from)?;
    let mut body = vec![0; length.min(LONGEST)];
    from.read_exact(&mut body)?;
    let mut rest = body.as_slice();
    let argv = get_list(&mut rest)?;
    let envp = get_list(&mut rest)?;
    let cwd = get_list(&mut rest)?.pop();
    Ok(Request { argv, envp, cwd })
}

fn get_number(from: &mut impl Read) -> io::Result<usize> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    usize::try_from(u32::from_le_bytes(bytes)).map_err(io::Error::other)
}

fn get_list(rest: &mut &[u8]) -> io::Result<Vec<CString>> {
    let count = get_number(rest)?;
    (0..count)
        .map(|_| {
            let length = get_number(rest)?;
            let (string, after) = rest.split_at_checked(length).ok_or(io::ErrorKind::UnexpectedEof)?;
            *rest = after;
            Ok(CString::new(string)?)
        })
        .collect()
}

/// The step of a start that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Forking, or setting up a process that is still ours.
    Process,
    WorkingDirectory,
    Program,
}

/// In this order: `Started` or `Failed`; after `Started` one `Exited`; EOF when no descendant is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Started { pid: i32 },
    Failed { step: Step, errno: Errno },
    ExitedCode(i32),
    ExitedSignal(i32),
}

impl Record {
    pub(crate) const SIZE: usize = 5;

    pub(crate) fn encode(self) -> [u8; Self::SIZE] {
        let (tag, value) = match self {
            Self::Started { pid } => (b's', pid),
            Self::Failed { step: Step::Process, errno } => (b'p', errno as i32),
            Self::Failed { step: Step::WorkingDirectory, errno } => (b'd', errno as i32),
            Self::Failed { step: Step::Program, errno } => (b'x', errno as i32),
            Self::ExitedCode(code) => (b'c', code),
            Self::ExitedSignal(signal) => (b'g', signal),
        };
        let [a, b, c, d] = value.to_le_bytes();
        [tag, a, b, c, d]
    }

    /// Returns None for bytes that no supervisor writes.
    pub(crate) fn decode([tag, a, b, c, d]: [u8; Self::SIZE]) -> Option<Self> {
        let value = i32::from_le_bytes([a, b, c, d]);
        let failed = |step| Self::Failed { step, errno: Errno::from_raw(value) };
        match tag {
            b's' => Some(Self::Started { pid: value }),
            b'p' => Some(failed(Step::Process)),
            b'd' => Some(failed(Step::WorkingDirectory)),
            b'x' => Some(failed(Step::Program)),
            b'c' => Some(Self::ExitedCode(value)),
            b'g' => Some(Self::ExitedSignal(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
