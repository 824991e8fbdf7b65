//! What is kept of a run: what was asked before it is asked, what came of it before the run ends.

use std::io;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use model::ports::agent::{SessionRef, Spent};
use model::ports::sandbox::Holds;
use model::ports::store::{AdvanceOutcome, FinishOutcome, RunResult, Store, StoreForScheduler, Written};
use model::session::{Artifact, CanceledBy, Ending, Phase, RunUsage};
use serde_json::{Value, json};

use super::run::{Came, Claimed, Log};
use super::{Gone, Shared, persist};
use crate::boxes::Ready;
use crate::record::{self, Answer, CHANGED_CAPS, Context, RunLog};
use crate::turn::{Failed, Outcome};
use crate::world::Rooms;

impl<S: Store + StoreForScheduler, R: Rooms> Claimed<'_, S, R> {
    /// Nothing depends on it.
    pub(super) fn keep_context(&self, ready: &Ready<R::Agent>) {
        let directory = self.worker.dirs().run(&self.run.id);
        let read = |text: &Option<String>| -> Value {
            text.as_deref().and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
        };
        let context = Context {
            run: &self.run.id,
            session: &self.session.id,
            task: &self.run.task,
            output_schema: self.run.output_schema.as_deref(),
            model: self.run.model.as_deref(),
            settings: &serde_json::from_str(&self.session.settings).unwrap_or_default(),
            asked_by: &json!({ "run": read(&self.run.asked_by), "session": read(&self.session.made_by) }),
            limits: &limits(ready.info.holds),
        };
        if let Err(error) = record::write_context(&directory, &context) {
            tracing::warn!(run = %self.run.id, %error, "context.json could not be written");
        }
    }

    /// The turn is over: what came of it is kept, then the run ends.
    pub(super) async fn finish(&self, came: Came, log: &Log) -> Result<Written, Gone> {
        let Came { outcome, asked } = came;
        if asked.is_some() {
            match self.advance(Phase::Finishing).await? {
                AdvanceOutcome::Fenced => return Ok(Written::Fenced),
                AdvanceOutcome::Advanced(_)
                | AdvanceOutcome::CancelRequested(_)
                | AdvanceOutcome::OutOfOrder(_)
                | AdvanceOutcome::NotRunning(_) => {}
            }
        }
        if matches!(&outcome, Outcome::Failed(Failed { ends_box: true, .. })) {
            self.worker.end_box(Duration::ZERO).await;
        }
        self.worker.shared.live.close(&self.run.id).await;
        let changed = self.changed().await;
        self.note(log, &closing(&outcome));
        let ending = self.ending(&outcome, changed.len(), log).await?;
        self.keep_answer(&outcome, asked.as_ref(), &ending);
        let mut artifacts = record::records(&self.worker.dirs().run(&self.run.id), &self.run.id);
        artifacts.extend(changed);
        let Shared { store, world, .. } = &*self.worker.shared;
        let keep = || store.record_artifacts(self.lease, &self.run.id, artifacts.clone());
        if persist("keep the artifacts", keep).await? == Written::Fenced {
            return Ok(Written::Fenced);
        }
        let result = RunResult { ending, usage: self.used(&outcome) };
        let write = || store.finish(self.lease, &self.run.id, result.clone(), world.now());
        Ok(match persist("finish", write).await? {
            FinishOutcome::Finished(_) | FinishOutcome::Already(_) | FinishOutcome::NotRunning(_) => {
                Written::Done
            }
            FinishOutcome::Fenced => Written::Fenced,
        })
    }

    /// What the provider said of its answers counts; what it cost is known to the agent alone.
    fn used(&self, outcome: &Outcome) -> Option<RunUsage> {
        let told = usage(outcome);
        let metered = self.worker.shared.live.metered(&self.run.id).usage;
        // Of one that was taken over, only the agent knows all of it.
        if metered == RunUsage::default() || (self.adopted && told.is_some()) {
            return told;
        }
        Some(RunUsage { cost_micros: told.unwrap_or_default().cost_micros, ..metered })
    }

    /// On a thread of its own: a workspace may hold very many files.
    async fn changed(&self) -> Vec<Artifact> {
        let since = self.run.started_at.unwrap_or(self.run.created_at);
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(since.0);
        let workspace = PathBuf::from(&self.session.workspace);
        let look = move || record::changed_files(&workspace, since, CHANGED_CAPS);
        let changed = tokio::task::spawn_blocking(look).await.map_err(io::Error::other);
        changed.flatten().unwrap_or_else(|error| {
            tracing::warn!(run = %self.run.id, %error, "the workspace could not be looked through");
            Vec::new()
        })
    }

    fn keep_answer(&self, outcome: &Outcome, asked: Option<&SessionRef>, ending: &Ending) {
        let outcome = match (outcome, ending) {
            (Outcome::Completed(turn), _) => record::Outcome::Completed(turn),
            (Outcome::Failed(Failed { code, message, partial, spent, .. }), _) => {
                record::Outcome::Failed { code, message, partial_text: partial, spent: *spent }
            }
            (Outcome::Canceled { partial, spent }, Ending::Failed { code, message }) => {
                record::Outcome::Failed { code, message, partial_text: partial, spent: *spent }
            }
            (Outcome::Canceled { partial, spent }, ending) => {
                let by = match ending {
                    Ending::Canceled { by } => *by,
                    Ending::Completed { .. } | Ending::Failed { .. } => CanceledBy::Daemon,
                };
                record::Outcome::Canceled { by, partial_text: partial, spent: *spent }
            }
        };
        let answer = Answer {
            run: &self.run.id,
            session: &self.session.id,
            agent_session: asked.map(|asked| asked.id.as_str()),
            message: asked.and(self.run.message_id.as_ref()),
            model: self.run.model.as_deref(),
            outcome,
        };
        if let Err(error) = record::write_answer(&self.worker.dirs().run(&self.run.id), &answer) {
            tracing::warn!(run = %self.run.id, %error, "the answer could not be written to a file");
        }
    }

    /// Who wanted it to end was perhaps written down only after it was claimed.
    pub(super) async fn canceled_by(&self) -> Result<Option<CanceledBy>, Gone> {
        let Shared { store, .. } = &*self.worker.shared;
        let run = persist("read", || store.run(&self.worker.principal, &self.run.id)).await?;
        Ok(run.and_then(|run| run.cancel_requested))
    }

    async fn ending(&self, outcome: &Outcome, changed: usize, log: &Log) -> Result<Ending, Gone> {
        Ok(match outcome {
            Outcome::Completed(turn) => {
                let took = self.now().0.saturating_sub(self.run.started_at.unwrap_or(self.run.created_at).0);
                let log = log.lock().unwrap_or_else(PoisonError::into_inner);
                let totals = log.as_ref().map(RunLog::totals).cloned().unwrap_or_default();
                let took = Duration::from_millis(took);
                Ending::Completed {
                    final_output: turn.final_text.clone(),
                    structured_output: turn.structured.clone(),
                    result_summary: record::result_summary(&totals, changed, took, &turn.final_text),
                }
            }
            Outcome::Canceled { .. } => match self.canceled_by().await? {
                Some(by) => Ending::Canceled { by },
                None => Ending::Failed {
                    code: "aborted".to_owned(),
                    message: "the turn was aborted, and nobody asked for that here; get_run_logs shows how far it came, \
                              and it may be submitted again"
                        .to_owned(),
                },
            },
            Outcome::Failed(Failed { code, message, .. }) => {
                Ending::Failed { code: (*code).to_owned(), message: message.clone() }
            }
        })
    }
}

fn limits(holds: Holds) -> Value {
    holds.words().into_iter().map(|(name, word)| (name.to_owned(), Value::from(word))).collect()
}

fn closing(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed(turn) => format!("completed: {}", turn.finish),
        Outcome::Canceled { .. } => "canceled".to_owned(),
        Outcome::Failed(Failed { code, message, .. }) => format!("failed ({code}): {message}"),
    }
}

/// Subagents spend for the run as well. None where the agent never got to work.
fn usage(outcome: &Outcome) -> Option<RunUsage> {
    let spent = match outcome {
        Outcome::Completed(turn) => turn.spent,
        Outcome::Canceled { spent, .. } | Outcome::Failed(Failed { spent, .. }) => *spent,
    };
    let Spent { steps, usage, subagents } = spent;
    (steps > 0).then(|| usage.plus(subagents))
}
