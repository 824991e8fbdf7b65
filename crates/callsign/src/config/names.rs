//! Which variables and headers a configuration may name.

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

/// The names under which hosts tell a session apart. Handed on by name they mean the calling session, never
/// the value that happened to be inherited.
const IDENTITY: [&str; 6] = [
    "OPENCODE_SESSION_ID",
    "OPENCODE_SESSION_TITLE",
    "CODEX_THREAD_ID",
    "CODEX_SESSION_ID",
    "CLAUDE_CODE_SESSION_ID",
    "AGENT_SESSION_ID",
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

/// Whether a configuration may set the variable `name`. `Err` is a sentence for the person who wrote it.
pub fn check_variable(name: &str) -> Result<(), String> {
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    if !starts_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return Err(format!(
            "{name:?} is not the name of a variable; use letters, digits and _, and no digit first"
        ));
    }
    if name.starts_with("CALLSIGN_") {
        return Err(format!("`{name}` is callsign's own; take it out"));
    }
    if runs_other_code(name) {
        return Err(format!(
            "`{name}` makes a program load or run other code and cannot be given here; if it is meant, start the \
             server through a script that sets it"
        ));
    }
    Ok(())
}

/// Whether a configuration may hand the variable `name` on from our own environment.
pub fn check_inherited(name: &str) -> Result<(), String> {
    check_variable(name)?;
    if IDENTITY.contains(&name) {
        return Err(format!(
            "`{name}` is the calling session's, which is not available in this version of callsign"
        ));
    }
    Ok(())
}

/// Whether a configuration may set the header `name`.
pub fn check_header(name: &str) -> Result<(), String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header; use letters, digits and -"));
    }
    // Many servers read `_` and `-` as the same.
    let plain = name.to_ascii_lowercase().replace('_', "-");
    if plain == "callsign" || plain.starts_with("callsign-") {
        return Err(format!("`{name}` is callsign's own; take it out"));
    }
    if TRANSPORT_HEADERS.contains(&plain.as_str()) || plain.starts_with("mcp-") {
        return Err(format!("`{name}` is written by the transport; take it out"));
    }
    Ok(())
}

fn runs_other_code(name: &str) -> bool {
    RUNS_OTHER_CODE.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *known,
    })
}
