//! Permissions and questions: OpenCode waits for an answer for ever, so each gets one, or is shown.

use std::collections::HashSet;

use model::ports::agent::{
    About, AgentError, Answer, Answered, Decision, Policy, Progress, QUESTION, Question, QuestionId,
};
use serde_json::json;

use super::wire::{self, PermissionAsked, QuestionAsked};
use super::{OpenCode, Path, named};

/// What a model hears. A refusal without a word would end its turn.
const DENIED: &str = "This is not permitted here. Go on without it, or say what you would need it for.";
const DECIDE: &str = "Nobody is there to answer. Choose what you think best, and go on.";
const NO_ANSWER: &str = "Questions are not answered here. Go on with what you know, and say what you lacked.";

/// How much of a question is shown, and how many parts of it.
const SHOWN: usize = 2000;
const LISTED: usize = 20;

/// What was asked in a watch so far.
#[derive(Debug, Default)]
pub(super) struct Asked(HashSet<String>);

impl OpenCode {
    /// Every question in a directory that waits.
    pub(super) async fn waiting(&self, directory: &str) -> Result<Vec<Question>, AgentError> {
        let permissions: Vec<PermissionAsked> = self.get(&Path::of("/permission", directory)).await?;
        let questions: Vec<QuestionAsked> = self.get(&Path::of("/question", directory)).await?;
        let permissions = permissions.into_iter().map(|asked| of_permission(asked, directory));
        Ok(permissions.chain(questions.into_iter().map(|asked| of_question(asked, directory))).collect())
    }

    /// Answers by policy, or shows it. None: it was seen before, or could not be answered and will be seen again.
    pub(super) async fn decide(
        &self,
        question: Question,
        policy: &Policy,
        asked: &mut Asked,
    ) -> Option<Progress> {
        if !asked.0.insert(question.id.id.clone()) {
            return None;
        }
        let (name, texts) = match &question.about {
            About::Permission { permission, .. } => (permission.as_str(), 0),
            About::Question { texts } => (QUESTION, texts.len()),
        };
        let decision = policy.decide(name);
        let say = |text: &str| Answer::Say { texts: vec![text.to_owned(); texts] };
        let answer = match (decision, &question.about) {
            (Decision::Surface, _) => return Some(Progress::Asked(question)),
            (Decision::Allow, About::Permission { .. }) => Answer::Allow,
            (Decision::Deny, About::Permission { .. }) => Answer::Deny { reason: DENIED.to_owned() },
            (Decision::Allow, About::Question { .. }) => say(DECIDE),
            (Decision::Deny, About::Question { .. }) => say(NO_ANSWER),
        };
        match self.reply(&question.id, &answer).await {
            Ok(Answered::Taken) => Some(Progress::Decided { question, decision }),
            Ok(Answered::Gone) => None,
            Err(error) => {
                tracing::debug!(question = question.id.id, %error, "a question could not be answered");
                asked.0.remove(&question.id.id);
                None
            }
        }
    }

    pub(super) async fn reply(&self, question: &QuestionId, answer: &Answer) -> Result<Answered, AgentError> {
        let QuestionId { directory, id } = question;
        named(id)?;
        let is_question = id.starts_with("que");
        let (path, body) = match answer {
            Answer::Say { texts } if is_question => {
                let answers: Vec<[&String; 1]> = texts.iter().map(|text| [text]).collect();
                (format!("/question/{id}/reply"), json!({ "answers": answers }))
            }
            Answer::Allow | Answer::Deny { .. } if is_question => {
                (format!("/question/{id}/reject"), json!({}))
            }
            Answer::Allow => (format!("/permission/{id}/reply"), json!({ "reply": "once" })),
            Answer::Deny { reason } => {
                (format!("/permission/{id}/reply"), json!({ "reply": "reject", "message": reason }))
            }
            Answer::Say { texts } => {
                let reason = texts.join("\n");
                (format!("/permission/{id}/reply"), json!({ "reply": "reject", "message": reason }))
            }
        };
        match self.post(&Path::of(path, directory), &body).await {
            Ok(_) => Ok(Answered::Taken),
            Err(AgentError::Unknown { .. }) => Ok(Answered::Gone),
            Err(error) => Err(error),
        }
    }
}

pub(super) fn of_permission(asked: PermissionAsked, directory: &str) -> Question {
    let PermissionAsked { id, session, permission, patterns } = asked;
    let patterns = patterns.iter().take(LISTED).map(|pattern| wire::cut(pattern, SHOWN)).collect();
    Question {
        id: QuestionId { directory: directory.to_owned(), id },
        thread: session,
        about: About::Permission { permission: wire::cut(&permission, SHOWN), patterns },
    }
}

pub(super) fn of_question(asked: QuestionAsked, directory: &str) -> Question {
    let QuestionAsked { id, session, questions } = asked;
    let text = |question: &wire::QuestionText| {
        let options: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        let options = if options.is_empty() { String::new() } else { format!(" ({})", options.join(" | ")) };
        wire::cut(&format!("{}{options}", question.question), SHOWN)
    };
    // All of them: an answer has one text for each.
    let texts = questions.iter().map(text).collect();
    Question {
        id: QuestionId { directory: directory.to_owned(), id },
        thread: session,
        about: About::Question { texts },
    }
}
