//! Which hosts pip may reach: those that its index needs, and no other. Pure.
//!
//! ```text
//! PIP_INDEX_URL, PIP_EXTRA_INDEX_URL of the daemon ─┐
//! urls in requirements.txt ─────────────────────────┼─▶ named: by whoever runs callsign; wherever they lead
//! what pip in the box says of itself ───────────────┴─▶ told: names of public hosts, https alone; only where no index is named
//! ```

use serde::Deserialize;

use crate::config::Environment;

const INDEX: &str = "PIP_INDEX_URL";
const EXTRA: &str = "PIP_EXTRA_INDEX_URL";
/// Which hosts pip takes as they are: an index without TLS needs it.
const TRUSTED: &str = "PIP_TRUSTED_HOST";
/// What the box's pip says of itself begins so.
const WORD: &str = "callsign-index ";
/// Hosts of one bundle.
const MOST: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

impl Host {
    /// As an entry of a list of hosts.
    pub(super) fn entry(&self) -> String {
        format!("{}:{}", self.name, self.port)
    }
}

/// What is known before a box is made.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// By whoever runs callsign.
    pub(super) named: Vec<Host>,
    /// No index was named: it is the box's own.
    own: bool,
    /// What pip is told.
    pub(super) variables: Vec<(String, String)>,
}

impl Wanted {
    /// The error is for a person.
    pub(super) fn new(environment: Environment<'_>, requirements: &str) -> Result<Self, String> {
        let mut wanted = Self { own: true, ..Self::default() };
        for name in [INDEX, EXTRA] {
            let Some(value) = environment.get(name).filter(|value| !value.trim().is_empty()) else {
                continue;
            };
            for url in value.split_whitespace() {
                wanted.name(host(url).map_err(|why| format!("{name} of the daemon {why}"))?)?;
            }
            wanted.own &= name != INDEX;
            wanted.variables.push((name.to_owned(), value));
        }
        wanted.variables.extend(environment.get(TRUSTED).map(|value| (TRUSTED.to_owned(), value)));
        for (number, line) in requirements.lines().enumerate() {
            let line = line.trim();
            if line.starts_with('#') {
                continue;
            }
            wanted.own &= !["-i", "--index-url", "--no-index"].iter().any(|option| line.starts_with(option));
            for url in urls(line) {
                let host =
                    host(url).map_err(|why| format!("line {} of requirements.txt {why}", number + 1))?;
                wanted.name(host)?;
            }
        }
        Ok(wanted)
    }

    fn name(&mut self, host: Host) -> Result<(), String> {
        if !self.named.contains(&host) {
            self.named.push(host);
        }
        if self.named.len() > MOST {
            return Err(format!("requirements.txt and the index name more than {MOST} hosts"));
        }
        Ok(())
    }

    /// What the box's own pip needs besides. It is believed for what anybody may reach, and for nothing else.
    pub(super) fn told(&self, told: &Told) -> Vec<Host> {
        let public = |url: &str| host(url).ok().filter(|host| host.port == 443 && is_name(&host.name));
        let mut hosts: Vec<Host> = if self.own {
            told.indexes
                .iter()
                .filter(|url| url.starts_with("https:"))
                .filter_map(|url| public(url))
                .collect()
        } else {
            Vec::new()
        };
        // The index that pip comes with has its files elsewhere, and pip knows where.
        if let (Some(default), Some(files)) = (told.default.as_deref().and_then(public), &told.files)
            && hosts.iter().chain(&self.named).any(|host| *host == default)
        {
            hosts.extend(public(&format!("https://{files}/")));
        }
        hosts.truncate(MOST);
        hosts
    }
}

/// What the box's pip says of itself.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Told {
    #[serde(default)]
    indexes: Vec<String>,
    default: Option<String>,
    files: Option<String>,
}

impl Told {
    /// From what a box printed; None while it has not said it.
    pub(super) fn find(printed: &str) -> Option<Self> {
        let (at, _) =
            printed.match_indices(WORD).find(|(at, _)| *at == 0 || printed[..*at].ends_with('\n'))?;
        let (line, _) = printed[at + WORD.len()..].split_once('\n')?;
        // Whatever else it says there means that it knows nothing.
        Some(serde_json::from_str(line).unwrap_or_default())
    }
}

/// In a line of requirements, also behind `git+`, `name @` and options.
fn urls(line: &str) -> impl Iterator<Item = &str> {
    let begins = |at: usize| line[at..].starts_with("http://") || line[at..].starts_with("https://");
    let starts = line.char_indices().map(|(at, _)| at).filter(move |at| begins(*at));
    starts.map(|at| {
        let rest = &line[at..];
        let end = rest.find(|c: char| c.is_whitespace() || "\"';,<>".contains(c)).unwrap_or(rest.len());
        &rest[..end]
    })
}

/// Why a url cannot be used is said without what may be a secret in it.
fn host(url: &str) -> Result<Host, String> {
    let (scheme, rest) = url.split_once("://").ok_or("is no url")?;
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err("is no http or https url: a box sees no directory of this machine".to_owned()),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        let problem = "has credentials in its url, which would be in the box; let a proxy on this machine add them, and name that";
        return Err(problem.to_owned());
    }
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
            (name, port.parse().map_err(|_| "names no port that there is")?)
        }
        Some(_) | None => (authority, usual),
    };
    if name.is_empty() || port == 0 {
        return Err("names no host".to_owned());
    }
    Ok(Host { name: name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase(), port })
}

/// No address in any spelling, and no name of this machine.
fn is_name(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    host.contains('.') && last.starts_with(|c: char| c.is_ascii_alphabetic()) && last != "localhost"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(variables: &[(&str, &str)], requirements: &str) -> Result<Wanted, String> {
        let lookup = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Wanted::new(Environment::new(&lookup), requirements)
    }

    fn entries(hosts: &[Host]) -> Vec<String> {
        hosts.iter().map(Host::entry).collect()
    }

    fn told(indexes: &[&str]) -> Told {
        Told {
            indexes: indexes.iter().map(ToString::to_string).collect(),
            default: Some("https://index.example.org/simple".to_owned()),
            files: Some("files.example.net".to_owned()),
        }
    }

    #[test]
    fn hosts_are_those_of_the_index_and_of_the_file() {
        let none = wanted(&[], "six==1.0\n# --index-url http://no.example\n").unwrap();
        assert_eq!(entries(&none.named), [""; 0]);
        let own = told(&["https://index.example.org/simple"]);
        assert_eq!(entries(&none.told(&own)), ["index.example.org:443", "files.example.net:443"]);

        let pinned = wanted(&[(INDEX, "http://10.0.0.3:3141/root/+simple/")], "six").unwrap();
        assert_eq!(entries(&pinned.named), ["10.0.0.3:3141"]);
        assert_eq!(entries(&pinned.told(&own)), [""; 0]);
        // The index that pip knows, by name: its files are where pip says.
        let same = wanted(&[(INDEX, "https://index.example.org/simple")], "six").unwrap();
        assert_eq!(entries(&same.told(&told(&[]))), ["files.example.net:443"]);

        let lines = "--extra-index-url=https://More.example:8443/x\ngit+https://git.example/a.git@main\n\
                     b @ http://127.0.0.1:9/b.whl ; python_version > '3'\n-f https://files.example/\n";
        let several = wanted(&[(EXTRA, "http://a.example http://b.example/")], lines).unwrap();
        assert_eq!(
            entries(&several.named),
            [
                "a.example:80",
                "b.example:80",
                "more.example:8443",
                "git.example:443",
                "127.0.0.1:9",
                "files.example:443"
            ]
        );
        assert_eq!(several.told(&own).len(), 2);
        let replaced = wanted(&[], "-i https://other.example/simple\n").unwrap();
        assert_eq!(entries(&replaced.told(&own)), [""; 0]);
    }

    #[test]
    fn a_box_is_believed_for_public_names_alone() {
        let none = wanted(&[], "six").unwrap();
        for bad in [
            "https://127.0.0.1/simple",
            "https://10.0.0.1",
            "https://0x7f000001/",
            "https://[::1]/",
            "https://localhost/",
            "https://a.localhost./",
            "http://plain.example/",
            "https://odd.example:8443/",
            "https://a:b@secret.example/",
            "file:///srv",
            "nothing",
        ] {
            assert_eq!(entries(&none.told(&told(&[bad]))), [""; 0], "{bad}");
        }
    }

    #[test]
    fn secrets_and_directories_are_refused_without_being_repeated() {
        let canary = "https://ann:sk-CANARY@index.example/simple";
        for (variables, lines) in [
            (vec![(INDEX, canary)], "six".to_owned()),
            (vec![(EXTRA, canary)], "six".to_owned()),
            (vec![], format!("six\n--extra-index-url {canary}")),
            (vec![], "a @ https://sk-CANARY@x.example/a.whl".to_owned()),
        ] {
            let error = wanted(&variables, &lines).unwrap_err();
            assert!(error.contains("credentials") && !error.contains("CANARY"), "{error}");
        }
        for bad in ["file:///srv/wheels", "/srv/wheels", "http://", "http://a:99999/"] {
            assert!(wanted(&[(INDEX, bad)], "six").is_err(), "{bad}");
        }
    }

    #[test]
    fn what_a_box_says_is_a_line_of_its_own() {
        assert_eq!(Told::find("nothing yet"), None);
        assert_eq!(Told::find("callsign-index {\"indexes\":[\"https://a"), None);
        let said =
            "a warning\ncallsign-index {\"indexes\":[\"u\"],\"default\":null,\"files\":null}\nCollecting";
        assert_eq!(Told::find(said).unwrap().indexes, ["u"]);
        assert_eq!(Told::find("callsign-index [[[\n"), Some(Told::default()));
    }
}
