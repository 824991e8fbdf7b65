//! Permissions and questions: OpenCode waits for an answer for ever, so each gets one, or is shown.

use std::collections::HashSet;

use model::ports::agent::{
    About, AgentError, Answer, Answered, Decision, Policy, Progress, QUESTION, Question, QuestionId,
};
use serde_json::json;

use super::wire::{self, PermissionAsked, QuestionAsked};
use super::{OpenCode, Path, is_name, named};

/// What a model hears. A refusal without a word would end its turn.
const DENIED: &str = "This is not permitted here. Go on without it, or say what you would need it for.";
const DECIDE: &str = "Nobody is there to answer. Choose what you think best, and go on.";
const NO_ANSWER: &str = "Questions are not answered here. Go on with what you know, and say what you lacked.";

/// How much of a question is shown, and how many parts of it.
const SHOWN: usize = 2000;
const LISTED: usize = 20;

/// Questions of one turn. More are not answered.
const QUESTIONS: usize = 1024;

/// What was asked in a watch so far.
#[derive(Debug, Default)]
pub(super) struct Asked(HashSet<String>);

impl Asked {
    /// False where it was asked before, or too much was.
    fn is_new(&mut self, id: &str) -> bool {
        self.0.len() < QUESTIONS && self.0.insert(id.to_owned())
    }
}

impl OpenCode {
    /// Every question in a directory that waits.
    pub(super) async fn waiting(&self, directory: &str) -> Result<Vec<Question>, AgentError> {
        let permissions: Vec<PermissionAsked> = self.get(&Path::of("/permission", directory)).await?;
        let questions: Vec<QuestionAsked> = self.get(&Path::of("/question", directory)).await?;
        let permissions = permissions.into_iter().filter_map(|asked| of_permission(asked, directory));
        let questions = questions.into_iter().filter_map(|asked| of_question(asked, directory));
        Ok(permissions.chain(questions).take(QUESTIONS).collect())
    }

    /// Answers by policy, or shows it. None: it was seen before, or could not be answered and will be seen again.
    pub(super) async fn decide(
        &self,
        question: Question,
        policy: &Policy,
        asked: &mut Asked,
    ) -> Option<Progress> {
        if !asked.is_new(&question.id.id) {
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

/// None where it has names that OpenCode gives to nothing.
pub(super) fn of_permission(asked: PermissionAsked, directory: &str) -> Option<Question> {
    let PermissionAsked { id, session, permission, patterns } = asked;
    let patterns = patterns.iter().take(LISTED).map(|pattern| wire::cut(pattern, SHOWN)).collect();
    question(
        id,
        session,
        directory,
        About::Permission { permission: wire::cut(&permission, SHOWN), patterns },
    )
}

/// None where it has names that OpenCode gives to nothing.
pub(super) fn of_question(asked: QuestionAsked, directory: &str) -> Option<Question> {
    let QuestionAsked { id, session, questions } = asked;
    let text = |question: &wire::QuestionText| {
        let options: Vec<&str> = question.options.iter().map(|option| option.label.as_str()).collect();
        let options = if options.is_empty() { String::new() } else { format!(" ({})", options.join(" | ")) };
        wire::cut(&format!("{}{options}", question.question), SHOWN)
    };
    // An answer has one text for each; OpenCode asks four at most.
    let texts = questions.iter().take(LISTED).map(text).collect();
    question(id, session, directory, About::Question { texts })
}

fn question(id: String, thread: String, directory: &str, about: About) -> Option<Question> {
    let id = QuestionId { directory: directory.to_owned(), id };
    (is_name(&id.id) && is_name(&thread)).then_some(Question { id, thread, about })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_is_shown_within_its_bounds() {
        let texts = vec![json!({ "question": "?".repeat(5000) }); 50];
        let asked = |id: &str, thread: &str| {
            let asked = json!({ "id": id, "sessionID": thread, "questions": texts });
            of_question(serde_json::from_value(asked).unwrap(), "/w")
        };
        let Some(Question { about: About::Question { texts: shown }, .. }) = asked("que_1", "ses_1") else {
            panic!("it is a question");
        };
        assert_eq!((shown.len(), shown[0].len()), (LISTED, SHOWN));
        for (id, thread) in [("", "ses_1"), ("que_1", "../x"), (&*"q".repeat(129), "ses_1")] {
            assert_eq!(asked(id, thread), None);
        }
    }

    #[test]
    fn what_was_asked_is_remembered_within_a_bound() {
        let mut asked = Asked::default();
        assert!(asked.is_new("que_0") && !asked.is_new("que_0"));
        assert!((1..QUESTIONS).all(|number| asked.is_new(&format!("que_{number}"))));
        assert!(!asked.is_new("que_more"));
    }
}
