//! "Why does this server not know its caller?", as a list of questions. Each is asked only where those before it were answered well.

use model::identity::Trust;

use crate::route::Key;
use crate::text::Text;

/// What can be chosen, and what there is to say of the pair that was.
#[derive(Debug, Clone, Default)]
pub struct Why {
    pub hosts: Vec<Text>,
    pub servers: Vec<Text>,
    /// None: nothing was chosen, or it is not known.
    pub facts: Option<Facts>,
}

/// How a host's entry leads to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Through `callsign wrap`, or by the daemon's address.
    ThroughUs,
    /// To the server itself.
    PastUs,
    /// The host's file does not name the server.
    Missing,
    /// The file could not be read, and why.
    Unreadable(Text),
    /// There is no file that we know of: a host elsewhere, or one that is configured by hand.
    Unknown,
}

/// What a host says of its sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hears {
    /// With every call, by itself.
    PerCall,
    /// With every call, where a piece of ours is installed: its name, and whether it is.
    Piece { name: Text, installed: bool },
    /// By keys that the configuration names.
    Configured,
    /// Nothing that tells its sessions apart.
    Nothing,
}

/// What is known of one host and one server.
#[derive(Debug, Clone)]
pub struct Facts {
    pub host: Text,
    pub server: Text,
    /// The server is in the configuration, or was wrapped.
    pub known: bool,
    pub entry: Entry,
    pub hears: Hears,
    /// The host comes over HTTP, and shows no token.
    pub open: bool,
    pub require: Trust,
    /// One process for everybody: what is in its environment names nobody.
    pub shared: bool,
    /// Calls of this pair lately, and how many of them nobody was known for.
    pub calls: u64,
    pub unknown: u64,
    /// The latest, and what was known of its caller.
    pub last: Option<(Key, u64, Trust)>,
    /// Lately removed because it was forged.
    pub forged: Vec<Text>,
}

/// One question, its answer, and what helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub question: &'static str,
    /// None: it cannot be seen from here.
    pub fine: Option<bool>,
    pub words: Text,
    pub command: Option<Text>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub headline: &'static str,
    pub fine: bool,
    pub steps: Vec<Step>,
}

/// The questions up to the first that explains it.
pub fn decide(facts: &Facts) -> Verdict {
    let questions: [fn(&Facts) -> Step; 6] =
        [is_known, is_through_us, has_called, is_told, is_trusted, is_passed_on];
    let mut steps = Vec::new();
    for question in questions {
        let step = question(facts);
        let stop = step.fine == Some(false);
        steps.push(step);
        if stop {
            break;
        }
    }
    let failed = steps.last().is_some_and(|step| step.fine == Some(false));
    let headline = match (failed, facts.unknown, facts.calls) {
        (true, _, _) => "This is why",
        (false, 0, 0) => "Nothing is in the way, and nobody has called yet",
        (false, 0, _) => "It knows its caller",
        (false, _, _) => "It knows its caller for some calls",
    };
    Verdict { headline, fine: !failed, steps }
}

fn step(question: &'static str, fine: Option<bool>, words: impl Into<Text>, command: Option<String>) -> Step {
    Step { question, fine, words: words.into(), command: command.map(Text::new) }
}

/// A name that a shell takes as it is.
fn word(text: &Text) -> Option<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let text = text.raw();
    (!text.is_empty() && !text.starts_with('-') && text.bytes().all(plain)).then_some(text)
}

fn install(facts: &Facts) -> Option<String> {
    word(&facts.host).map(|host| format!("callsign install {host}"))
}

fn is_known(facts: &Facts) -> Step {
    let question = "Does callsign know this server?";
    if facts.known {
        return step(
            question,
            Some(true),
            "It is in the configuration, or callsign has carried calls to it.",
            None,
        );
    }
    let words = "No server of this name is configured, and no call to one was seen. Give the server's name as the host's entry has it.";
    step(question, Some(false), words, Some("callsign servers".to_owned()))
}

fn is_through_us(facts: &Facts) -> Step {
    let question = "Do the host's calls pass through callsign?";
    let past = "The host's entry starts the server itself, so callsign never sees the calls. Installing puts `callsign wrap` in front of it.";
    let missing = "The host's own configuration does not name this server. Add it there, then install.";
    match &facts.entry {
        Entry::ThroughUs => step(question, Some(true), "The host's entry leads through callsign.", None),
        Entry::Unknown if facts.calls > 0 => {
            step(question, Some(true), "The entry is not known, but calls have come through.", None)
        }
        Entry::PastUs => step(question, Some(false), past, install(facts)),
        Entry::Missing => step(question, Some(false), missing, install(facts)),
        Entry::Unreadable(why) => {
            let words = format!("The host's configuration could not be read: {}", why.raw());
            step(question, Some(false), words, Some("callsign doctor".to_owned()))
        }
        Entry::Unknown => {
            let words = "The configuration of this host is not on this machine, or not where it usually is.";
            step(question, None, words, Some("callsign doctor".to_owned()))
        }
    }
}

fn has_called(facts: &Facts) -> Step {
    let question = "Has it called?";
    if facts.calls > 0 {
        return step(question, Some(true), format!("{} calls lately.", facts.calls), None);
    }
    let words = "No call of this host to this server was seen lately. Listing tools is no call; use one. A host that was running before the \
                 installation has to be started again.";
    step(question, None, words, Some("callsign calls --follow".to_owned()))
}

fn is_told(facts: &Facts) -> Step {
    let question = "Does the host say which session calls?";
    match &facts.hears {
        Hears::PerCall => step(question, Some(true), "It says so with every call, by itself.", None),
        Hears::Configured => step(
            question,
            Some(true),
            "The configuration names the keys or headers that it says it with.",
            None,
        ),
        Hears::Piece { name, installed: true } => step(
            question,
            Some(true),
            format!("The {} is installed and says so with every call.", name.raw()),
            None,
        ),
        Hears::Piece { name, installed: false } => {
            let words = format!("It does only with our {}, which is not installed.", name.raw());
            step(question, Some(false), words, install(facts))
        }
        Hears::Nothing => {
            let words = "This host sends nothing that tells its sessions apart. If it sends a header or a `_meta` key that does, name it \
                         under [hosts] in callsign.toml; the check says how.";
            step(question, Some(false), words, Some("callsign config check".to_owned()))
        }
    }
}

fn is_trusted(facts: &Facts) -> Step {
    let question = "Is what it says believed?";
    if !facts.forged.is_empty() {
        let forged = facts.forged.iter().map(Text::raw).collect::<Vec<_>>().join(", ");
        let words = format!(
            "Something in its calls was forged or did not verify, and was removed: {forged}. If the plugin or the keys are old, install anew."
        );
        return step(question, Some(false), words, install(facts));
    }
    if facts.open {
        let words = "It comes over HTTP without a token, so what it says counts as declared. With a token it counts as the host's own word.";
        let fine = facts.require <= Trust::Declared;
        return step(question, Some(fine), words, Some("callsign token create NAME".to_owned()));
    }
    match &facts.last {
        Some((_, _, trust)) if *trust < facts.require => {
            let words = format!(
                "The last call was known with trust {trust}, and the server requires {}.",
                facts.require
            );
            step(question, Some(false), words, Some("callsign doctor".to_owned()))
        }
        Some((_, _, Trust::None)) => {
            let words = "The last call came without any evidence, though the host can give some. It may be older than callsign needs.";
            step(question, Some(false), words, Some("callsign doctor".to_owned()))
        }
        Some((_, _, trust)) => {
            step(question, Some(true), format!("The last call was known with trust {trust}."), None)
        }
        None => step(question, None, "There is no call to judge by.", None),
    }
}

fn is_passed_on(facts: &Facts) -> Step {
    let question = "Does the server get to see it?";
    if facts.shared {
        let words = "One process serves everybody (isolation = \"shared\"), so its environment names nobody: the server has to read \
                     `dev.callsign/identity` in `_meta` of each call. With isolation = \"session\" each caller gets a process of its own, with \
                     CALLSIGN_SESSION_ID and the host's own variables.";
        return step(question, None, words, Some("callsign servers --json".to_owned()));
    }
    let words = "Its process has CALLSIGN_SESSION_ID and the host's own variables; every request has `dev.callsign/identity` in `_meta`, and \
                 over HTTP the Callsign-* headers. What a single call carried is on that call's page.";
    step(question, Some(true), words, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            host: "codex".into(),
            server: "tracker".into(),
            known: true,
            entry: Entry::ThroughUs,
            hears: Hears::PerCall,
            open: false,
            require: Trust::None,
            shared: false,
            calls: 3,
            unknown: 0,
            last: Some((Key::new("1-1").unwrap(), 0, Trust::Host)),
            forged: Vec::new(),
        }
    }

    #[track_caller]
    fn check(facts: &Facts, question: &str, command: Option<&str>) {
        let verdict = decide(facts);
        let last = verdict.steps.last().unwrap();
        assert!(!verdict.fine && last.question.contains(question), "{verdict:?}");
        assert_eq!(last.command.as_ref().map(Text::raw), command);
    }

    #[test]
    fn the_first_thing_in_the_way_is_the_last_that_is_said() {
        assert!(decide(&facts()).fine);
        check(
            &Facts { known: false, entry: Entry::PastUs, ..facts() },
            "know this server",
            Some("callsign servers"),
        );
        check(&Facts { entry: Entry::PastUs, ..facts() }, "pass through", Some("callsign install codex"));
        check(&Facts { hears: Hears::Nothing, ..facts() }, "say which", Some("callsign config check"));
        let hears = Hears::Piece { name: "PreToolUse hook".into(), installed: false };
        check(&Facts { hears, ..facts() }, "say which", Some("callsign install codex"));
        check(&Facts { forged: vec!["seal".into()], ..facts() }, "believed", Some("callsign install codex"));
        check(&Facts { require: Trust::Bound, ..facts() }, "believed", Some("callsign doctor"));
        check(
            &Facts { open: true, require: Trust::Host, ..facts() },
            "believed",
            Some("callsign token create NAME"),
        );
    }

    #[test]
    fn a_name_that_a_shell_would_take_apart_is_in_no_command() {
        let host = Text::new("codex; rm -rf ~");
        check(&Facts { host, entry: Entry::PastUs, ..facts() }, "pass through", None);
        check(&Facts { host: "--all".into(), entry: Entry::PastUs, ..facts() }, "pass through", None);
    }

    #[test]
    fn who_has_not_called_yet_is_told_what_to_do() {
        let verdict = decide(&Facts { calls: 0, last: None, ..facts() });
        assert!(verdict.fine && verdict.headline.contains("nobody has called yet"));
        assert_eq!(verdict.steps[2].command, Some("callsign calls --follow".into()));
    }
}
