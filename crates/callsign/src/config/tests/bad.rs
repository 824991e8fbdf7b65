//! Bad configurations and the exact words about them.

use super::*;

#[track_caller]
fn check(text: &str, expected: &[&str]) {
    assert_eq!(mistakes(text, Purpose::Serve), expected, "for\n{text}");
}

/// `line` as the second of a stdio server.
#[track_caller]
fn check_stdio(line: &str, expected: &[&str]) {
    check(&format!("[servers.a]\n{line}\ncommand = \"x\"\n"), expected);
}

/// `line` as the second of an HTTP server.
#[track_caller]
fn check_http(line: &str, expected: &[&str]) {
    check(&format!("[servers.a]\n{line}\nurl = \"https://tracker.example/mcp\"\n"), expected);
}

#[track_caller]
fn check_url(url: &str, expected: &str) {
    check(&format!("[servers.a]\nurl = \"{url}\"\n"), &[&format!("2:7: `url`: {expected}")]);
}

#[test]
fn every_mistake_of_a_file_is_reported_in_its_order() {
    check(
        r#"
[servers.one]
comand = "x"
timeout = 10

[serv]
listen = "y"

[servers.two]
command = "x"
url = "https://tracker.example"
env = { A-B = "{sesion.id} {nonsense} {host}", C = 1 }

[serve]
auth = "open"
listen = "here"
"#,
        &[
            "2:10: `one` has neither `command` nor `url`; give it one",
            "3:1: unknown key `comand`; did you mean `command`?",
            "4:11: `timeout` must be a duration such as \"10m\", \"30s\" or \"500ms\", not an integer",
            "6:2: unknown key `serv`; did you mean `serve`?",
            "11:1: `two` has both `command` and `url`; keep the one it is reached by",
            "12:9: \"A-B\" is not the name of a variable; use letters, digits and _, and no digit first",
            "12:15: `env.A-B`: unknown placeholder {sesion.id}; did you mean {session.id}?",
            "12:15: `env.A-B`: unknown placeholder {nonsense}; text with braces of its own goes in a {file:PATH}",
            "12:52: `env.C` must be a string, not an integer; put it in quotes",
            "15:8: `auth` must be \"token\" or \"none\", not \"open\"",
            "16:10: `listen` must be an address and a port such as \"127.0.0.1:7171\", not \"here\"",
        ],
    );
}

#[test]
fn syntax_errors_come_with_the_other_mistakes_and_without_echoes() {
    check(
        "[servers.a]\ncommand =\ntimeout = 5\n",
        &[
            "2:10: string values must be quoted, expected literal string",
            "3:11: `timeout` must be a duration such as \"10m\", \"30s\" or \"500ms\", not an integer",
        ],
    );
    check("[servers.a\ncommand = \"x\"\n", &["1:11: unclosed table, expected `]`"]);
    check(
        "[servers.b]\ncommand = \"y\"\n[servers.a\nurl = \"x\"\nnonsense = 1\n[serve]\nport = 1\n",
        &[
            "3:11: unclosed table, expected `]`",
            "7:1: unknown key `port`; this table takes listen, auth, allowed_origins",
        ],
    );
    check("[servers.a]\ncommand = \"x\"\ncommand = \"y\"\n", &["3:1: `command` is there already; keep one"]);
    check("[servers.a]\ncommand = \"x\"\n[servers.a]\n", &["3:10: `a` is there already; keep one"]);
}

#[test]
fn mistakes_about_sessions_stand_among_the_others_once_each_and_in_order() {
    check(
        "[sessions]\nmax_hot = 0\n[serve]\nport = 1\n[sessions.limits]\ncores = 1\n[ledger\n",
        &[
            "2:11: `sessions.max_hot` must be 1 to 10000 boxes",
            "4:1: unknown key `port`; this table takes listen, auth, allowed_origins",
            "6:1: unknown key `cores`; this table takes memory, pids, cpus, disk",
            "7:8: unclosed table, expected `]`",
        ],
    );
}

#[test]
fn unknown_keys_and_tables_of_the_wrong_shape() {
    check(
        "x = 1\n",
        &[
            "1:1: unknown key `x`; this table takes servers, serve, workspace, hosts, hooks, ledger, telemetry, sessions",
        ],
    );
    check("servers = 1\n", &["1:11: `servers` must be a table, not an integer"]);
    check("[[servers]]\n", &["1:1: `servers` must be a table, not a list"]);
    check("[servers]\na = \"x\"\n", &["2:5: `servers.a` must be a table, not a string"]);
    check(
        "[serve]\nport = 1\n",
        &["2:1: unknown key `port`; this table takes listen, auth, allowed_origins"],
    );
    check_stdio("max_childs = 1", &["2:1: unknown key `max_childs`; did you mean `max_children`?"]);
    check_stdio("Timeout = \"1s\"", &["2:1: unknown key `Timeout`; did you mean `timeout`?"]);
    check_stdio("hook = 1", &["2:1: unknown key `hook`; did you mean `hooks`?"]);
}

#[test]
fn names_of_servers() {
    let rule = "a name is 1 to 64 of the characters a-z A-Z 0-9 . _ - and starts with a letter or digit";
    check(
        "[servers.\"../x\"]\ncommand = \"x\"\n",
        &[&format!("1:10: \"../x\" is not the name of a server: {rule}")],
    );
    check(
        "[servers.sessions]\ncommand = \"x\"\n",
        &["1:10: `sessions` is callsign's own server; choose another name"],
    );
}

#[test]
fn keys_that_do_not_fit_the_transport() {
    for key in ["env = {}", "env_vars = []", "idle = \"1s\"", "max_children = 1", "args = []"] {
        let name = key.split(' ').next().unwrap_or_default();
        check_http(key, &[&format!("2:1: `{name}` is for a server with a `command`; take it out")]);
    }
    for key in ["headers = {}", "headers_command = [\"x\"]", "cache_seconds = 1", "allow_private = true"] {
        let name = key.split(' ').next().unwrap_or_default();
        check_stdio(key, &[&format!("2:1: `{name}` is for a server with a `url`; take it out")]);
    }
}

#[test]
fn values_of_the_wrong_type() {
    check("[servers.a]\ncommand = [\"x\"]\n", &["2:11: `command` must be a string, not a list"]);
    check("[servers.a]\ncommand = \"\"\n", &["2:11: `command` is empty"]);
    check("[servers.a]\ncommand = \"a\\u0000b\"\n", &["2:11: `command` holds a NUL character; take it out"]);
    check_stdio("args = \"x\"", &["2:8: `args` must be a list of strings, not a string"]);
    check_stdio(
        "args = [\"x\", 8080, \"\\u0000\"]",
        &[
            "2:14: each of `args` must be a string, not an integer; put it in quotes",
            "2:20: each of `args` holds a NUL character; take it out",
        ],
    );
    check_stdio("env = []", &["2:7: `env` must be a table, not a list"]);
    check_stdio("pin = \"yes\"", &["2:7: `pin` must be true or false, not a string"]);
    check_stdio(
        "isolation = \"none\"",
        &["2:13: `isolation` must be \"session\" or \"shared\", not \"none\""],
    );
    check_stdio(
        "inherit_env = \"all\"",
        &["2:15: `inherit_env` must be \"safe\", \"host\" or a list of names, not \"all\""],
    );
    check_stdio(
        "inherit_env = true",
        &["2:15: `inherit_env` must be \"safe\", \"host\" or a list of names, not a boolean"],
    );
    check_http("headers = \"x\"", &["2:11: `headers` must be a table, not a string"]);
}

#[test]
fn durations_sizes_and_counts() {
    let duration = "`idle` must be a duration such as \"10m\", \"30s\" or \"500ms\"";
    for (written, shown) in [("10", "\"10\""), ("10 m", "\"10 m\""), ("m", "\"m\""), ("-1s", "\"-1s\"")] {
        check_stdio(&format!("idle = {written:?}"), &[&format!("2:8: {duration}, not {shown}")]);
    }
    check_stdio("idle = 1.5", &[&format!("2:8: {duration}, not a float")]);
    check_stdio("idle = \"0s\"", &["2:8: `idle` must be longer than nothing"]);
    check_stdio("idle = \"18446744073709551615h\"", &["2:8: `idle` must be at most a year, \"8760h\""]);
    let size = "`max_message` must be a size such as \"16MiB\" or \"4KiB\", or a number of bytes";
    for written in ["\"16MB\"", "\"16\"", "0", "-1", "\"0KiB\"", "\"99999999999GiB\""] {
        check_stdio(&format!("max_message = {written}"), &[&format!("2:15: {size}")]);
    }
    check_stdio("max_message = true", &[&format!("2:15: {size}, not a boolean")]);
    check_stdio("max_children = 0", &["2:16: `max_children` must be 1 or more"]);
    check_stdio("max_children = \"4\"", &["2:16: `max_children` must be a whole number, not a string"]);
}

/// Row 21 of the bad inputs.
#[test]
fn variables_that_make_programs_run_other_code_are_refused() {
    let refused = |at: &str, name: &str| {
        format!(
            "{at}: `{name}` makes a program load or run other code and cannot be given here; if it is meant, start \
             the server through a script that sets it"
        )
    };
    check_stdio(
        r#"env = { "LD_PRELOAD" = "/opt/x.so", "NODE_OPTIONS" = "--require /opt/x.js", "BASH_ENV" = "/opt/x" }"#,
        &[&refused("2:9", "LD_PRELOAD"), &refused("2:37", "NODE_OPTIONS"), &refused("2:77", "BASH_ENV")],
    );
    check_stdio("env_vars = [\"PYTHONPATH\"]", &[&refused("2:13", "PYTHONPATH")]);
    check_stdio("env_vars = [{ name = \"DYLD_X\" }]", &[&refused("2:22", "DYLD_X")]);
    check_stdio("inherit_env = [\"PATH\", \"PERL5OPT\"]", &[&refused("2:24", "PERL5OPT")]);
    for name in [
        "LD_AUDIT",
        "ENV",
        "IFS",
        "GCONV_PATH",
        "RUBYLIB",
        "_JAVA_OPTIONS",
        "LUA_INIT_5_4",
        "GIT_CONFIG_COUNT",
    ] {
        assert!(check_variable(name).is_err(), "{name}");
    }
    for name in ["LD", "ENVIRONMENT", "NODE_ENV", "PYTHONUNBUFFERED", "GIT_AUTHOR_NAME", "PATH", "_", "PS1"] {
        assert_eq!(check_variable(name), Ok(()), "{name}");
    }
}

#[test]
fn values_that_cannot_be_loaded_or_carried() {
    check_stdio(
        "env = { A = \"{env:NOT_SET}\" }",
        &["2:13: `env.A`: {env:NOT_SET}: the variable NOT_SET is not set"],
    );
    check_stdio(
        "env = { A = \"{file:/nowhere/x}\" }",
        &[
            "2:13: `env.A`: {file:/nowhere/x}: could not read /nowhere/x: No such file or directory (os error 2)",
        ],
    );
    check_stdio("env = { A = \"{file:/}\" }", &["2:13: `env.A`: {file:/}: / is not a file"]);
    check_stdio(
        "env = { A = \"{host\" }",
        &["2:13: `env.A`: a { without its }; text with braces of its own goes in a {file:PATH}"],
    );
    check_stdio(
        "env = { A = \"\\u0000\" }",
        &["2:13: `env.A` cannot be sent: it holds a NUL character, which no variable can"],
    );
    check_http(
        "headers = { X = \"a\\r\\nY: b\" }",
        &["2:17: `headers.X` cannot be sent: it holds '\\r'; a header takes visible ASCII characters only"],
    );
    check_http(
        "headers = { X = \"é\" }",
        &["2:17: `headers.X` cannot be sent: it holds 'é'; a header takes visible ASCII characters only"],
    );
    check_http(
        "headers = { X = \"{env:TWO_LINES}\" }",
        &["2:17: `headers.X`: {env:TWO_LINES}: it holds '\\r'; a header takes visible ASCII characters only"],
    );
}

#[test]
fn headers_that_are_not_the_configurations_to_set() {
    for name in ["Callsign-Session", "callsign_thread", "CALLSIGN"] {
        check_http(
            &format!("headers = {{ {name} = \"x\" }}"),
            &[&format!("2:13: `{name}` is callsign's own; take it out")],
        );
    }
    for name in
        ["Host", "content-length", "Content_Type", "TE", "Mcp-Session-Id", "MCP_X", "Upgrade", "Accept"]
    {
        check_http(
            &format!("headers = {{ {name} = \"x\" }}"),
            &[&format!("2:13: `{name}` is written by the transport; take it out")],
        );
    }
    check_http(
        "headers = { \"X Y\" = \"x\" }",
        &["2:13: \"X Y\" is not the name of a header; use letters, digits and -"],
    );
    check_http(
        "headers = { X-A = \"1\", x-a = \"2\" }",
        &["2:24: `x-a` is there already, as `X-A`; keep one"],
    );
}

/// Row 23 of the bad inputs, as far as it can be told at load.
#[test]
fn urls() {
    let never = "is a link-local or metadata address, to which callsign never connects";
    check_url("http://169.254.169.254/", &format!("169.254.169.254 {never}"));
    let odd = "is an odd spelling of 127.0.0.1; write 127.0.0.1";
    for host in ["[::ffff:127.0.0.1]", "0x7f000001", "2130706433", "017700000001", "127.1"] {
        check_url(&format!("http://{host}/"), &format!("{host} {odd}"));
    }
    let private = "is not a public address; set `allow_private = true` for this server if it is meant";
    for host in ["10.0.0.1", "0.0.0.0"] {
        check_url(&format!("https://{host}:8443/mcp"), &format!("{host} {private}"));
    }
    check_url(
        "http://127.0.0.2/",
        "127.0.0.2 is a loopback address; write 127.0.0.1, [::1] or localhost in the url, or set \
         `allow_private = true`",
    );
    check_url("ftp://tracker.example/", "ftp: is not supported; use http or https");
    check_url("tracker.example", "give it in full, such as https://tracker.example/mcp");
    check_url("/mcp", "give it in full, such as https://tracker.example/mcp");
    check_url(
        "https://ann:sk-CANARY-7f3a@tracker.example/",
        "credentials do not go in the url; put them in `headers`",
    );
    check_url("https://tracker.example/#x", "such a url has no fragment; take out what starts with #");
    check_url("https://{host}/", "placeholders are filled in for `headers`, not for the url");
    check_url("https://tracker.example:0/", "its port must be a number from 1 to 65535");
    check_url("https://tracker.example:99999/", "its port must be a number from 1 to 65535");
    check_url(
        "https://tracker.example/a b",
        "invalid uri character; give it in full, such as https://tracker.example/mcp",
    );
    check_url("https://a..b/", "\"a..b\" is neither a host name nor an address");
    check("[servers.a]\nurl = \"\"\n", &["2:7: `url` is empty"]);
}

#[test]
fn the_working_directory() {
    check_stdio("cwd = \"\"", &["2:7: `cwd` is empty"]);
    check_stdio(
        "cwd = \"{work}\"",
        &["2:7: `cwd`: unknown placeholder {work}; text with braces of its own goes in a {file:PATH}"],
    );
}

#[test]
fn how_the_daemon_is_reached() {
    let open = "is accepted on loopback only, not on 0.0.0.0:80; listen on 127.0.0.1 or use \"token\"";
    check(
        "[serve]\nlisten = \"0.0.0.0:80\"\nauth = \"none\"\n",
        &[&format!("3:8: `auth = \"none\"` {open}")],
    );
    check("[serve]\nlisten = 7171\n", &["2:10: `listen` must be a string, not an integer; put it in quotes"]);
    for origin in ["*", "null", "app.example", "https://app.example/", "https://*.example", "https://"] {
        check(
            &format!("[serve]\nallowed_origins = [{origin:?}]\n"),
            &[&format!(
                "2:20: an origin is a scheme and a host such as \"https://app.example\", not {origin:?}"
            )],
        );
    }
}

#[test]
fn columns_count_characters_and_no_byte_order_mark() {
    check(
        "\u{feff}x = 1\n",
        &[
            "1:1: unknown key `x`; this table takes servers, serve, workspace, hosts, hooks, ledger, telemetry, sessions",
        ],
    );
    check_stdio(
        "env = { A = \"ü\", B = 1 }",
        &["2:22: `env.B` must be a string, not an integer; put it in quotes"],
    );
}
