//! Which variables, headers, `_meta` keys and arguments a configuration may name.

use identity::names::{is_our_header, is_ours};

/// Variables whose value makes a loader, a shell or an interpreter load or run something else than the
/// server that the configuration names. A prefix ends in `*`.
const RUNS_OTHER_CODE: &[&str] = &[
    // Loaders and the C library.
    "LD_*",
    "DYLD_*",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    // Shells.
    "BASH_ENV",
    "BASH_FUNC_*",
    "BASHOPTS",
    "ENV",
    "IFS",
    "PROMPT_COMMAND",
    "PS4",
    "SHELLOPTS",
    "ZDOTDIR",
    // Node.
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_REPL_EXTERNAL_MODULE",
    "BUN_OPTIONS",
    "NPM_CONFIG_NODE_OPTIONS",
    "npm_config_node_options",
    // Python.
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    // Perl, Ruby, Lua, PHP, Tcl, R.
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "RUBYLIB",
    "RUBYOPT",
    "LUA_CPATH*",
    "LUA_INIT*",
    "LUA_PATH*",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "TCLLIBPATH",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    // Java, .NET, Erlang.
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "CORECLR_PROFILER*",
    "COR_PROFILER*",
    "DOTNET_STARTUP_HOOKS",
    "ELIXIR_ERL_OPTIONS",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_LIBS",
    "ERL_ZFLAGS",
    // Git.
    "GIT_CONFIG_*",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
];

/// Headers that the transport writes.
const TRANSPORT_HEADERS: [&str; 14] = [
    "accept",
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "last-event-id",
];

/// Headers whose value must never be taken for an id: ids are logged and handed on.
const SECRET_HEADERS: [&str; 4] = ["authorization", "cookie", "proxy-authorization", "set-cookie"];

/// Whether a configuration may set the variable `name`. `Err` is a sentence for the person who wrote it.
pub fn check_variable(name: &str) -> Result<(), String> {
    check_readable(name)?;
    if runs_other_code(name) {
        return Err(format!(
            "`{name}` makes a program load or run other code and cannot be given here; if it is meant, start the \
             server through a script that sets it"
        ));
    }
    Ok(())
}

/// Whether a configuration may name the variable `name` to have its value read. Those that make a program run other
/// code do nothing where they are only read.
pub(super) fn check_readable(name: &str) -> Result<(), String> {
    if !is_variable(name) {
        return Err(format!(
            "{name:?} is not the name of a variable; use letters, digits and _, and no digit first"
        ));
    }
    if name.starts_with("CALLSIGN_") {
        return Err(format!("`{name}` is callsign's own; take it out"));
    }
    Ok(())
}

/// Whether every program can have a variable of this name.
pub fn is_variable(name: &str) -> bool {
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts_well && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether a configuration may set the header `name`.
pub fn check_header(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header; use letters, digits and -"));
    }
    let plain = plain(name);
    if is_our_header(name) {
        return Err(format!("`{name}` is callsign's own; take it out"));
    }
    if TRANSPORT_HEADERS.contains(&plain.as_str()) || plain.starts_with("mcp-") {
        return Err(format!("`{name}` is written by the transport; take it out"));
    }
    Ok(())
}

/// Whether a host may say in the header `name` who calls.
pub(super) fn check_evidence_header(name: &str) -> Result<(), String> {
    check_header(name)?;
    if SECRET_HEADERS.contains(&plain(name).as_str()) {
        return Err(format!("`{name}` holds a secret, which is not an id; name another header"));
    }
    Ok(())
}

/// Whether a host may say under the key `name` of `params._meta` who calls.
pub(super) fn check_meta(name: &str) -> Result<(), String> {
    if is_ours(&["_meta"], name) {
        return Err(format!(
            "`{name}` is callsign's own, and removed from what a caller sends; name another key"
        ));
    }
    Ok(())
}

/// Whether a configuration may fill in the argument `name`.
pub(super) fn check_argument(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("an argument has a name; put one in the quotes".to_owned());
    }
    if is_ours(&["arguments"], name) {
        return Err(format!("`{name}` is callsign's own; take it out"));
    }
    Ok(())
}

/// Many readers take `_` and `-`, and upper and lower case, for the same.
fn plain(name: &str) -> String {
    name.trim().to_ascii_lowercase().replace('_', "-")
}

fn runs_other_code(name: &str) -> bool {
    RUNS_OTHER_CODE.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *known,
    })
}
