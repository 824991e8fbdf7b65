//! Why a program did not start, in words for the person who configured it.

use std::path::PathBuf;

use nix::errno::Errno;

/// There is no source below these: the errno is all that the system says, so it is part of the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    #[error("could not start `{program}`: {}{}", .errno.desc(), hint(program, *.errno))]
    Program { program: String, errno: Errno },
    #[error("could not start `{program}`: its working directory `{}` cannot be entered: {}", .cwd.display(), .errno.desc())]
    WorkingDirectory { program: String, cwd: PathBuf, errno: Errno },
    #[error("could not start `{program}`: the system gave no new process: {}", .errno.desc())]
    Process { program: String, errno: Errno },
    #[error("could not start `{program}`: its supervisor ended before it could say why")]
    Vanished { program: String },
}

fn hint(program: &str, errno: Errno) -> &'static str {
    if errno == Errno::ENOENT && program.contains('/') {
        " — is the path right, and the interpreter it names installed?"
    } else if errno == Errno::ENOENT {
        " — is it installed and in PATH?"
    } else if errno == Errno::EACCES {
        " — is it an executable file?"
    } else {
        ""
    }
}
