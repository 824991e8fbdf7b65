//! Which file is read, and what it may load.

use std::fs;

use super::*;

/// A home, and a directory to be in, with the variables that lead there.
struct Places {
    root: tempfile::TempDir,
}

impl Places {
    fn new(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self { root }
    }

    fn load(
        &self,
        purpose: Purpose<'_>,
        named: Option<&str>,
        variables: &[(&str, &str)],
    ) -> Result<Config, String> {
        let root = self.root.path();
        let lookup = |name: &str| {
            let of_row = variables.iter().find(|(variable, _)| *variable == name);
            let value = of_row.map(|(_, value)| root.join(value).display().to_string());
            value.or_else(|| (name == "HOME").then(|| root.join("home").display().to_string()))
        };
        let here = root.join("here");
        let environment = Environment::new(&lookup);
        let sources = Sources { named: named.map(Path::new), current_dir: &here, environment, purpose };
        load(&sources).map_err(|errors| errors.to_string().replace(&root.display().to_string(), "ROOT"))
    }
}

fn node() -> Wrapped {
    let target = Target::Command { command: "node".to_owned(), args: Vec::new() };
    Wrapped {
        name: ServerName::new("n").unwrap(),
        section: UseSection::No,
        target: Some(target),
        inherit_env: None,
    }
}

const HERE: &str = "here/callsign.toml";
const USERS: &str = "home/.config/callsign/callsign.toml";

#[test]
fn the_nearest_file_wins_and_wrap_never_reads_the_directory_it_is_in() {
    let places =
        Places::new(&[(HERE, ""), (USERS, ""), ("other.toml", ""), ("x/callsign/callsign.toml", "")]);
    let wrapped = node();
    let wrap = Purpose::Wrap(&wrapped);
    let rows: [(_, _, &[_], _); 8] = [
        (Purpose::Serve, None, &[], HERE),
        (wrap, None, &[], USERS),
        (Purpose::Background, None, &[], USERS),
        (Purpose::Background, None, &[("CALLSIGN_CONFIG", "other.toml")], "other.toml"),
        (wrap, None, &[("XDG_CONFIG_HOME", "x")], "x/callsign/callsign.toml"),
        (Purpose::Serve, None, &[("CALLSIGN_CONFIG", "other.toml")], "other.toml"),
        (wrap, Some("callsign.toml"), &[("CALLSIGN_CONFIG", "other.toml")], HERE),
        (wrap, Some("../other.toml"), &[], "here/../other.toml"),
    ];
    for (purpose, named, variables, expected) in rows {
        let path = places.load(purpose, named, variables).unwrap().path;
        assert_eq!(path, Some(places.root.path().join(expected)), "{named:?} {variables:?}");
    }
}

#[test]
fn no_file_is_the_empty_configuration_and_a_named_one_must_be_there() {
    let places = Places::new(&[("here/x", "")]);
    let empty = Config {
        servers: Vec::new(),
        serve: ServeConfig::default(),
        roots: vec![places.root.path().join("home")],
        hosts: Vec::new(),
        hooks: HooksConfig::default(),
        ledger: LedgerConfig::default(),
        telemetry: None,
        sessions: SessionSettings::default(),
        path: None,
        warnings: Vec::new(),
    };
    assert_eq!(places.load(Purpose::Serve, None, &[]), Ok(empty));
    let missing = |shown: &str| Err(format!("{shown}: there is no such file"));
    assert_eq!(places.load(Purpose::Serve, Some("mine.toml"), &[]), missing("mine.toml"));
    assert_eq!(places.load(Purpose::Serve, None, &[("CALLSIGN_CONFIG", "a.toml")]), missing("ROOT/a.toml"));
    let wrapped = places.load(Purpose::Wrap(&node()), None, &[]).unwrap();
    assert_eq!((wrapped.servers.len(), wrapped.path), (1, None));
}

#[test]
fn a_file_that_is_no_text_is_refused_at_its_place() {
    let places = Places::new(&[(HERE, "")]);
    fs::write(places.root.path().join(HERE), b"[serve]\nx = \"\xff\"\n").unwrap();
    let expected = "callsign.toml:2:6: the file is not UTF-8 from here on; save it as UTF-8";
    assert_eq!(places.load(Purpose::Serve, None, &[]), Err(expected.to_owned()));
}

#[test]
fn files_named_in_values_are_relative_to_the_configuration() {
    let header = |path: &str| {
        format!("[servers.a]\nurl = \"https://a.example\"\nheaders = {{ X = \"Bearer {{file:{path}}}\" }}\n")
    };
    let long = "x".repeat(64 * 1024 + 1);
    let rows = [
        ("secret", Ok("sk-1")),
        ("~/secret", Ok("sk-2")),
        ("long", Err("ROOT/here/long is larger than 64 KiB")),
        ("lines", Err("it holds '\\n'; a header takes visible ASCII characters only")),
    ];
    for (path, expected) in rows {
        let places = Places::new(&[
            (HERE, &header(path)),
            ("here/secret", "sk-1\r\n"),
            ("home/secret", "sk-2"),
            ("here/long", &long),
            ("here/lines", "a\nb\n"),
        ]);
        let outcome =
            places.load(Purpose::Serve, None, &[]).map(|config| match &config.servers[0].transport {
                model::Transport::Http(http) => http.headers[0].1.clone(),
                model::Transport::Stdio(_) => unreachable!(),
            });
        let expected = expected
            .map(|value| model::Template::parse("Bearer {file:x}", &|_| Ok(value.to_owned())).unwrap())
            .map_err(|reason| format!("callsign.toml:3:17: `headers.X`: {{file:{path}}}: {reason}"));
        assert_eq!(outcome, expected);
    }
}
