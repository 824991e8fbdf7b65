//! The arguments of `callsign wrap`, as `install` writes them, and what they say when they are read back.

use std::path::Path;

/// The variable that holds an entry's headers.
pub(crate) const HEADERS_VARIABLE: &str = "CALLSIGN_ENTRY_HEADERS";

/// What an entry that runs `callsign wrap` stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrapped {
    pub target: Target,
    pub headers_variable: Option<String>,
    /// `--host` is there: `install` wrote it. A person who wraps by hand has no need of it.
    pub by_install: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    Command { command: String, args: Vec<String> },
    Url(String),
}

/// Options of `wrap` that are followed by a value.
const WITH_VALUE: [&str; 10] = [
    "--name",
    "--entry",
    "--host",
    "--config",
    "--state-dir",
    "--log",
    "--inherit-env",
    "--pass-env",
    "--headers-env",
    "--url",
];

/// Whether an entry runs `callsign mcp`, which finds out who calls by itself: wrapped, its daemon would end with it.
pub(crate) fn is_own_server(command: &str, args: &[String]) -> bool {
    let program = Path::new(command).file_stem().and_then(|stem| stem.to_str());
    program == Some("callsign") && args.first().is_some_and(|first| first == "mcp")
}

/// None: the entry runs something else.
pub(crate) fn read(command: &str, args: &[String]) -> Option<Wrapped> {
    let program = Path::new(command).file_stem()?.to_str()?;
    let (first, mut rest) = args.split_first()?;
    if program != "callsign" || first != "wrap" {
        return None;
    }
    let mut headers_variable = None;
    let mut url = None;
    let mut by_install = false;
    while let Some((option, others)) = rest.split_first() {
        if option == "--" {
            let (command, args) = others.split_first()?;
            let target = Target::Command { command: command.clone(), args: args.to_vec() };
            return Some(Wrapped { target, headers_variable, by_install });
        }
        if option == "--allow-private" {
            rest = others;
            continue;
        }
        let (name, value) = if let Some((name, value)) = option.split_once('=') {
            rest = others;
            (name, value.to_owned())
        } else {
            let (value, others) = others.split_first()?;
            rest = others;
            (option.as_str(), value.clone())
        };
        match name {
            "--host" => by_install = true,
            "--url" => url = Some(value),
            "--headers-env" => headers_variable = Some(value),
            other if WITH_VALUE.contains(&other) => {}
            _ => return None,
        }
    }
    Some(Wrapped { target: Target::Url(url?), headers_variable, by_install })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_server_is_known_by_its_command() {
        assert!(is_own_server("/usr/bin/callsign", &words("mcp --config /c.toml")));
        for (command, args) in [("callsign", "wrap -- callsign mcp"), ("other", "mcp"), ("callsign", "")] {
            assert!(!is_own_server(command, &words(args)), "{command} {args}");
        }
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn what_was_wrapped_is_read_back() {
        let command = |line: &str| {
            let words = words(line);
            Target::Command { command: words[0].clone(), args: words[1..].to_vec() }
        };
        let check = |args: &str, expected: Option<(Target, bool)>| {
            let found = read("/opt/bin/callsign", &words(args)).map(|found| (found.target, found.by_install));
            assert_eq!(found, expected, "{args}");
        };
        check("wrap --name a --host codex -- npx -y a -- b", Some((command("npx -y a -- b"), true)));
        check("wrap --name=a --host=codex -- npx", Some((command("npx"), true)));
        check("wrap -- npx", Some((command("npx"), false)));
        check(
            "wrap --host x --allow-private --url http://a/b",
            Some((Target::Url("http://a/b".into()), true)),
        );
        check("wrap --host x --url http://a/b", Some((Target::Url("http://a/b".into()), true)));
        check("wrap --host x", None);
        check("wrap --host x --", None);
        check("wrap --unheard-of x -- npx", None);
        check("serve", None);
        assert_eq!(read("/opt/bin/other", &words("wrap -- npx")), None);
    }
}
