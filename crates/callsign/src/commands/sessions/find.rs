//! Which session is meant: people know one by its reuse key or name.

use model::session::SessionId;
use serde_json::{Value, json};

use super::super::calls::plain;
use super::shown::field;
use crate::client::Client;
use crate::exit::{Code, Failure};

/// Sessions of one answer.
const PAGE: u32 = 200;
/// No state directory has so many pages; a daemon that says there is always one more has a mistake.
const MOST_PAGES: usize = 10_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::commands) enum Among {
    Live,
    /// Also those that were terminated.
    All,
}

/// The id of the session. What looks like an id is one, without a look at the others.
pub(in crate::commands) async fn find(client: &Client, text: &str, among: Among) -> anyhow::Result<String> {
    if SessionId::parse(text).is_ok() {
        return Ok(text.to_owned());
    }
    let live = choose(&all_pages(client, Among::Live).await?, text);
    let found = match (live, among) {
        (Err(Unclear::None), Among::All) => choose(&all_pages(client, Among::All).await?, text),
        (live, Among::Live | Among::All) => live,
    };
    found.map_err(|unclear| unclear.told(text).into())
}

/// Every session, whichever page it is on.
pub(in crate::commands) async fn all_pages(client: &Client, among: Among) -> anyhow::Result<Vec<Value>> {
    let mut sessions = Vec::new();
    let mut arguments = json!({ "all": among == Among::All, "limit": PAGE });
    for _ in 0..MOST_PAGES {
        let mut page = client.call("list_sessions", arguments.clone()).await?;
        if let Value::Array(rows) = page["sessions"].take() {
            sessions.extend(rows);
        }
        let next = page["next"].take();
        if next.is_null() {
            return Ok(sessions);
        }
        arguments["after"] = next;
    }
    anyhow::bail!("the list of sessions does not end")
}

#[derive(Debug, PartialEq, Eq)]
enum Unclear {
    None,
    /// Their ids.
    Several(Vec<String>),
}

/// A reuse key is one session's; a name may be several's.
fn choose(sessions: &[Value], text: &str) -> Result<String, Unclear> {
    for by in ["reuse_key", "name"] {
        let mut found: Vec<String> = sessions
            .iter()
            .filter(|session| session[by] == text)
            .map(|session| field(session, "id").to_owned())
            .collect();
        match found.len() {
            0 => {}
            1 => return Ok(found.remove(0)),
            _ => return Err(Unclear::Several(found)),
        }
    }
    Err(Unclear::None)
}

impl Unclear {
    fn told(self, text: &str) -> Failure {
        let text = plain(text);
        match self {
            Self::None => {
                let message = format!("there is no session with the id, reuse key or name `{text}`");
                let hint =
                    "`callsign sessions` lists them, `callsign sessions create --reuse-key KEY` makes one";
                Failure::new(Code::Usage, message).with_hint(hint)
            }
            Self::Several(ids) => {
                let message =
                    format!("`{text}` is the name of {} sessions: {}", ids.len(), plain(&ids.join(", ")));
                Failure::new(Code::Usage, message).with_hint("say which one by its id")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_goes_before_a_name_and_a_name_must_be_clear() {
        let row = |id: &str, key: Option<&str>, name: Option<&str>| json!({ "id": id, "reuse_key": key, "name": name });
        let sessions = [
            row("sn_1", None, Some("demo")),
            row("sn_2", Some("demo"), None),
            row("sn_3", None, Some("twin")),
            row("sn_4", Some("k"), Some("twin")),
        ];
        assert_eq!(choose(&sessions, "demo").as_deref(), Ok("sn_2"));
        assert_eq!(choose(&sessions, "k").as_deref(), Ok("sn_4"));
        let twins = vec!["sn_3".to_owned(), "sn_4".to_owned()];
        assert_eq!(choose(&sessions, "twin"), Err(Unclear::Several(twins)));
        assert_eq!(choose(&sessions, "other"), Err(Unclear::None));
        assert_eq!(choose(&sessions, ""), Err(Unclear::None));
    }
}
