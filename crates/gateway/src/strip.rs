//! Takes out of a client's message whatever stands there under our names.
//!
//! It runs on every message before anything else looks at it. Almost none has anything to take out, so the first
//! look is a quick one.

use std::borrow::Cow;

use identity::names;
use mcp::splice::Edit;
use mcp::{Message, cut, envelope};

use crate::recorded::MOST_FORGED;

/// What was taken out.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stripped {
    /// The reserved argument where our plugin puts it. Worth nothing until it verifies.
    pub seal: Option<String>,
    /// Everything else, by name. So many of them that it can be seen; there may be as many as fit into a message.
    pub spoof: Vec<Cow<'static, str>>,
}

/// The message without them. One that cannot be told apart from a message of ours is never passed on.
pub fn strip(message: Message) -> Result<(Message, Stripped), mcp::Refused> {
    if !names::may_name_us(message.bytes()) {
        return Ok((message, Stripped::default()));
    }
    // The whole message: what stands beside the parameters is passed on as well. The names on the way down count
    // from within the parameters, or the result.
    let goes = |inside: &[String], name: &str| names::is_ours(inside.get(1..).unwrap_or_default(), name);
    // What has been parsed once can be searched; anything else would be a mistake of ours.
    let cuts = cut::find(message.bytes(), &goes).map_err(|_| mcp::Refused::TooDeep)?;
    if cuts.ranges.is_empty() {
        return Ok((message, Stripped::default()));
    }
    let mut stripped = Stripped::default();
    for found in &cuts.found {
        let at = found.value.clone();
        // A member of the arguments themselves, spelled as the plugin spells it, and the first one.
        let is_seal = found.depth == 2
            && found.name == names::ARGUMENT
            && message.method() == "tools/call"
            && message.head().arguments.as_ref().is_some_and(|span| span.contains(&at.start))
            && stripped.seal.is_none();
        match is_seal.then(|| envelope::decode_string(&message.bytes()[at])).flatten() {
            Some(seal) => stripped.seal = Some(seal.into_owned()),
            None if stripped.spoof.len() < MOST_FORGED => stripped.spoof.push(Cow::Owned(shown(&found.name))),
            None => {}
        }
    }
    let mut edits: Vec<Edit<'_>> =
        cuts.ranges.into_iter().map(|span| Edit { span, with: b"" as &[u8] }).collect();
    let bytes = message.with(&mut edits);
    Ok((Message::parse(bytes)?, stripped))
}

/// A name as it may stand in a log.
fn shown(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[track_caller]
    fn check(params: &str, left: &str, seal: Option<&str>, spoofs: usize) {
        let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
        let (message, stripped) = strip(Message::parse(Bytes::from(text)).unwrap()).unwrap();
        let span = message.head().params.clone().unwrap();
        assert_eq!(std::str::from_utf8(&message.bytes()[span]).unwrap(), left, "{params}");
        assert_eq!(stripped.seal.as_deref(), seal, "{params}");
        assert_eq!(stripped.spoof.len(), spoofs, "{params}: {:?}", stripped.spoof);
    }

    #[test]
    fn of_many_that_were_forged_some_are_kept_and_all_go() {
        let many = vec![r#""__callsign":1"#; 10_000].join(",");
        check(&format!(r#"{{"name":"t","a":{{{many}}}}}"#), r#"{"name":"t","a":{}}"#, None, MOST_FORGED);
    }

    #[test]
    fn our_names_go_from_beside_the_parameters_too() {
        for (text, left) in [
            (
                r#"{"dev.callsign/identity":{},"jsonrpc":"2.0","id":1,"method":"x","_meta":{"__callsign":1}}"#,
                r#"{"jsonrpc":"2.0","id":1,"method":"x","_meta":{}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":{"dev.callsign/identity":1}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"","data":{}}}"#,
            ),
            (
                r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{"callsign-session":1}}}"#,
                r#"{"jsonrpc":"2.0","id":1,"result":{"_meta":{}}}"#,
            ),
        ] {
            let (message, _) = strip(Message::parse(Bytes::from(text)).unwrap()).unwrap();
            assert_eq!(std::str::from_utf8(message.bytes()).unwrap(), left);
        }
    }

    #[test]
    fn our_names_go_and_the_seal_is_kept_apart() {
        check(r#"{"name":"t","arguments":{"a":1}}"#, r#"{"name":"t","arguments":{"a":1}}"#, None, 0);
        check(
            r#"{"name":"t","arguments":{"a":1,"__callsign":"v1.x.y"}}"#,
            r#"{"name":"t","arguments":{"a":1}}"#,
            Some("v1.x.y"),
            0,
        );
        check(
            r#"{"name":"t","arguments":{"__callsign":"a","__callsign":"b","\u005f_CALLSIGN":"c"}}"#,
            r#"{"name":"t","arguments":{}}"#,
            Some("a"),
            2,
        );
        check(
            r#"{"__callsign":"x","name":"t","arguments":{"deep":[{"__callsign":"y"}]}}"#,
            r#"{"name":"t","arguments":{"deep":[{}]}}"#,
            None,
            2,
        );
        check(
            r#"{"name":"t","_meta":{"Dev.Callsign/Identity":{"session":"x"},"callsign_session":"y","threadId":"z"}}"#,
            r#"{"name":"t","_meta":{"threadId":"z"}}"#,
            None,
            2,
        );
        // A flight has a callsign too.
        check(
            r#"{"name":"t","arguments":{"callsign":"DLH1","callsign_session":"z"}}"#,
            r#"{"name":"t","arguments":{"callsign":"DLH1","callsign_session":"z"}}"#,
            None,
            0,
        );
    }
}
