//! A channel that is one session's alone: whoever speaks on it is that session, whatever it says.

use std::borrow::Cow;
use std::fmt;

use model::identity::{Id, Identity, Source, Trust};

use crate::adapters::BOX;
use crate::evidence::{Claim, Evidence, Keys, id};
use crate::seal::Seals;

/// The session, and what is known of it outside.
#[derive(Debug)]
pub struct Bound {
    pub session: Id,
    /// The session's own directory on this machine.
    pub workspace: Box<str>,
    /// Opens what the plugin in the box seals for this server.
    pub seals: Option<Seals>,
    pub tenant: Box<dyn Tenant>,
}

/// What only whoever runs the session knows.
pub trait Tenant: fmt::Debug + Send + Sync {
    /// The run at work now.
    fn run(&self) -> Option<Id>;

    /// Whether a conversation of the agent is this session's. One that is another's is not taken, whoever names it.
    fn owns(&self, thread: &Id) -> bool;
}

/// One session's channels to one server are the same to everybody who asks.
impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.session == other.session
    }
}

impl Eq for Bound {}

impl Bound {
    /// Session and run are the channel's. Which of its conversations calls is the agent's to say.
    pub(crate) fn identity(
        &self,
        keys: &Keys<'_>,
        evidence: &Evidence<'_>,
        spoof: &mut Vec<Cow<'static, str>>,
    ) -> Identity {
        let said = self.said(keys, evidence, spoof);
        let own = |conversation: &Option<Id>| conversation.as_ref().is_none_or(|it| self.tenant.owns(it));
        let claim = if own(&said.thread) && own(&said.parent) {
            said
        } else {
            spoof.push(Cow::Borrowed("thread: it is another session's"));
            Claim { call: said.call, ..Claim::default() }
        };
        let claim = Claim { session: Some(self.session.clone()), run: self.tenant.run(), ..claim };
        claim.into_identity(BOX, Trust::Bound, Source::Channel)
    }

    fn said(&self, keys: &Keys<'_>, evidence: &Evidence<'_>, spoof: &mut Vec<Cow<'static, str>>) -> Claim {
        if let Some(seal) = evidence.seal {
            let opened = match &self.seals {
                None => Err(Cow::Borrowed("seal: there is no key to open it with")),
                Some(seals) => seals
                    .claim(seal, evidence.tool.unwrap_or_default(), evidence.now_ms)
                    .map_err(|why| Cow::Owned(format!("seal: {why}"))),
            };
            return opened.unwrap_or_else(|why| {
                // Whoever forges one is believed nothing else.
                spoof.push(why);
                Claim::default()
            });
        }
        Claim { thread: id(keys.opencode_session), ..Claim::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::evidence::Channel;
    use crate::resolve::{Resolver, Standing};
    use crate::seal::{Payload, SealKey, seal};

    const NOW: u64 = 1_000_000;

    #[derive(Debug)]
    struct One;

    impl Tenant for One {
        fn run(&self) -> Option<Id> {
            Id::new("run_1").ok()
        }

        fn owns(&self, thread: &Id) -> bool {
            !thread.as_str().starts_with("other")
        }
    }

    fn key(byte: u8) -> SealKey {
        use base64::Engine as _;
        SealKey::parse(&base64::prelude::BASE64_URL_SAFE_NO_PAD.encode([byte; 32])).unwrap()
    }

    fn standing() -> Standing {
        let seals = Some(Seals::new(key(1), "srv"));
        let session = Id::new("session_1").unwrap();
        let bound = Bound { session, workspace: "/own".into(), seals, tenant: Box::new(One) };
        Standing::new(Channel::Bound(Arc::new(bound)))
    }

    fn sealed(by: u8, session: &str) -> String {
        sealed_for(by, session, "ses_parent")
    }

    fn sealed_for(by: u8, session: &str, parent: &str) -> String {
        let payload = Payload {
            session: session.to_owned(),
            parent: Some(parent.to_owned()),
            call: Some("call_1".to_owned()),
            directory: Some("/elsewhere".to_owned()),
            tool: "srv_echo".to_owned(),
            at: NOW,
            nonce: "n".repeat(16),
            ..Payload::default()
        };
        seal(&key(by), &payload).unwrap()
    }

    fn told(seal: &str) -> (Identity, Vec<Cow<'static, str>>, Option<Box<str>>) {
        let evidence = Evidence { seal: Some(seal), tool: Some("echo"), now_ms: NOW, ..Evidence::default() };
        let resolved = Resolver::default().resolve(&standing(), &evidence);
        (resolved.identity, resolved.spoof, resolved.workspace)
    }

    fn text(id: Option<&Id>) -> Option<&str> {
        id.map(Id::as_str)
    }

    #[test]
    fn the_plugin_says_which_conversation_calls_and_the_channel_whose_it_is() {
        let (identity, spoof, workspace) = told(&sealed(1, "ses_child"));
        assert_eq!(text(identity.host.as_ref()), Some("callsign"));
        assert_eq!(text(identity.session.as_ref()), Some("session_1"));
        assert_eq!(text(identity.thread.as_ref()), Some("ses_child"));
        assert_eq!(text(identity.parent.as_ref()), Some("ses_parent"));
        assert_eq!(text(identity.run.as_ref()), Some("run_1"));
        assert_eq!(text(identity.call.as_ref()), Some("call_1"));
        assert_eq!((identity.trust, identity.source), (Trust::Bound, Source::Channel));
        assert_eq!((spoof.len(), workspace.as_deref()), (0, Some("/own")));
    }

    #[test]
    fn another_sessions_conversation_is_not_taken_and_noted() {
        let (identity, spoof, _) = told(&sealed(1, "other_thread"));
        assert_eq!(text(identity.thread.as_ref()), Some("session_1"));
        assert_eq!(identity.parent, None);
        assert_eq!(spoof, ["thread: it is another session's"]);
        let (identity, spoof, _) = told(&sealed_for(1, "ses_child", "other_parent"));
        assert_eq!((text(identity.thread.as_ref()), identity.parent), (Some("session_1"), None));
        assert_eq!(spoof, ["thread: it is another session's"]);
    }

    #[test]
    fn whoever_forges_a_seal_is_believed_nothing_else() {
        let (seal, meta) = (sealed(2, "ses_child"), br#"{"sessionID":"ses_mine"}"#);
        let evidence = Evidence {
            seal: Some(&seal),
            meta: Some(meta),
            tool: Some("echo"),
            now_ms: NOW,
            ..Evidence::default()
        };
        let resolved = Resolver::default().resolve(&standing(), &evidence);
        assert_eq!(text(resolved.identity.thread.as_ref()), Some("session_1"));
        assert_eq!(resolved.spoof.len(), 1);
    }

    #[test]
    fn a_seal_of_another_box_is_worth_nothing_and_noted() {
        let (identity, spoof, _) = told(&sealed(2, "ses_child"));
        assert_eq!(text(identity.thread.as_ref()), Some("session_1"));
        assert_eq!(spoof.len(), 1);
        assert_eq!(identity.trust, Trust::Bound);
    }

    proptest! {
        /// Every key that any host speaks with, and whatever else: the session stays what it is.
        #[test]
        fn nothing_that_is_said_changes_the_session(
            names in proptest::collection::vec(prop_oneof![
                Just("threadId"), Just("sessionId"), Just("sessionID"), Just("claudecode/toolUseId"),
                Just("agent-session-id"), Just("vscode.conversationId"), Just("openai/session"), Just("orbit.workspace"),
                Just("dev.callsign/identity"), Just("io.modelcontextprotocol/clientInfo"),
            ], 0..6),
            value in "[a-z_0-9]{1,12}",
            client in proptest::option::of("(opencode|codex-mcp-client|claude-code|goose)"),
        ) {
            let meta: serde_json::Map<String, serde_json::Value> =
                names.into_iter().map(|name| (name.to_owned(), serde_json::json!(value))).collect();
            let meta = serde_json::to_vec(&meta).unwrap();
            let channel = standing().channel;
            let standing = Resolver::default().standing(channel, client.as_deref(), Some(&meta), &|_| Some("x".into()));
            let evidence = Evidence { meta: Some(&meta), tool: Some("echo"), now_ms: NOW, ..Evidence::default() };
            let resolved = Resolver::default().resolve(&standing, &evidence);
            prop_assert_eq!(text(resolved.identity.session.as_ref()), Some("session_1"));
            prop_assert_eq!(text(resolved.identity.run.as_ref()), Some("run_1"));
            prop_assert_eq!(resolved.identity.trust, Trust::Bound);
            prop_assert_eq!(resolved.workspace.as_deref(), Some("/own"));
        }
    }
}
