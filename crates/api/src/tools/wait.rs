//! Waiting for the end of a run. Nothing is held meanwhile; who goes away stops the wait and nothing else.

use std::time::Duration;

use model::ports::store::Store;
use rmcp::model::ProgressNotificationParam;
use sessions::{DeskError, RunView, SessionView};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::server::Call;

/// Seconds.
pub(super) const LONGEST: u64 = 600;

/// The store is asked this often even where nobody says anything.
const LOOK: Duration = Duration::from_secs(1);
/// And not more often than this, however much happens.
const BREATH: Duration = Duration::from_millis(25);
/// Between two notifications.
const PAUSE: Duration = Duration::from_millis(500);

type Status = (SessionView, Option<RunView>);

/// Without a run: the one that is the latest now. Where there is none, there is nothing to wait for.
pub(super) async fn until_ended<S: Store>(
    call: &Call<'_, S>,
    session: &str,
    run: Option<&str>,
    wait: Duration,
) -> Result<Status, DeskError> {
    let until = Instant::now() + wait;
    let (view, found) = call.desk.status(call.principal(), session, run).await?;
    let id = match &found {
        Some(found) if !found.run.state.is_ended() && !wait.is_zero() => found.run.id.clone(),
        Some(_) | None => return Ok((view, found)),
    };
    let mut pace = Pace::default();
    loop {
        // Anew each time: a run that is begun again is told of in another place.
        let mut following = call.desk.follow(&id);
        let looked = Instant::now();
        let (view, found) = call.desk.status(call.principal(), session, Some(id.as_str())).await?;
        let Some(run) = found else { return Ok((view, None)) };
        if run.run.state.is_ended() || looked >= until || call.context.ct.is_cancelled() {
            return Ok((view, Some(run)));
        }
        let mut wake = until.min(looked + LOOK);
        if let Some(token) = call.context.meta.get_progress_token() {
            let sight = Sight::of(&run);
            if let Some(number) = pace.due(sight, looked) {
                let told =
                    ProgressNotificationParam::new(token, f64::from(number)).with_message(message(&run));
                if call.context.peer.notify_progress(told).await.is_err() {
                    return Ok((view, Some(run))); // Nobody is there any more.
                }
            }
            wake = pace.owed(sight).map_or(wake, |owed| wake.min(owed));
        }
        tokio::select! {
            () = call.context.ct.cancelled() => {}
            _ = timeout_at(wake, following.changed()) => sleep_until(until.min(looked + BREATH)).await,
        }
    }
}

/// What can change about a run that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sight {
    status: &'static str,
    beat: u64,
}

impl Sight {
    fn of(view: &RunView) -> Self {
        let beat = view.progress.as_ref().map_or(0, |progress| progress.beat);
        Self { status: view.run.state.as_str(), beat }
    }
}

fn message(view: &RunView) -> String {
    let status = view.run.state.as_str();
    match &view.progress {
        Some(progress) if !progress.last.is_empty() => format!("{status}: {}", progress.last),
        Some(_) | None => status.to_owned(),
    }
}

/// Says when there is something to tell, and not too often.
#[derive(Debug, Default)]
struct Pace {
    told: Option<(Sight, Instant)>,
    count: u32,
}

impl Pace {
    /// The number of this notification, if there is to be one: more each time, whatever is told.
    fn due(&mut self, sight: Sight, now: Instant) -> Option<u32> {
        let due = match self.told {
            None => true,
            Some((told, at)) => told != sight && now >= at + PAUSE,
        };
        if !due {
            return None;
        }
        self.told = Some((sight, now));
        self.count += 1;
        Some(self.count)
    }

    /// When something that was not told yet may be.
    fn owed(&self, sight: Sight) -> Option<Instant> {
        self.told.filter(|(told, _)| *told != sight).map(|(_, at)| at + PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_and_two_a_second_at_most() {
        let (begin, mut pace) = (Instant::now(), Pace::default());
        let at = |millis| begin + Duration::from_millis(millis);
        let running = |beat| Sight { status: "running", beat };
        let rows = [
            (0, Sight { status: "queued", beat: 0 }, Some(1), None),
            (100, Sight { status: "queued", beat: 0 }, None, None),
            (200, running(1), None, Some(500)),
            (400, running(5), None, Some(500)),
            (500, running(5), Some(2), None),
            (501, running(6), None, Some(1000)),
            (5000, running(6), Some(3), None),
            (9000, running(6), None, None),
            // It was begun again, and its beats are counted anew.
            (9001, running(1), Some(4), None),
        ];
        for (now, sight, due, owed) in rows {
            assert_eq!(pace.due(sight, at(now)), due, "at {now}");
            assert_eq!(pace.owed(sight), owed.map(at), "at {now}");
        }
    }
}
