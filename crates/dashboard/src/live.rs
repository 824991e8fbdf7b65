//! Telling a page that its data has changed. The page fetches itself; nothing of the data is in here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::gate::{Gate, StreamPlace};
use crate::respond::{self, Body};
use crate::source::Beat;

/// The least time between two changes that are told.
const APART: Duration = Duration::from_millis(250);
/// How often something is said where nothing happens.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often it is looked whether the login still counts.
const LOOK: Duration = Duration::from_secs(1);

pub(crate) struct Live {
    pub(crate) beat: Beat,
    /// What the page shows. Anything else is news.
    pub(crate) since: Option<u64>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) place: StreamPlace,
    pub(crate) stop: CancellationToken,
}

pub(crate) fn respond(live: Live) -> http::Response<Body> {
    let frames = futures_util::StreamExt::map(events(live), |text| Ok::<_, Infallible>(Frame::data(text)));
    respond::with(StatusCode::OK, "text/event-stream", StreamBody::new(frames).boxed_unsync())
}

/// Where a stream is.
enum Stage {
    Begun,
    /// When a change may be told, and when something was last said.
    Going {
        not_before: Instant,
        said: Instant,
    },
}

fn events(live: Live) -> impl Stream<Item = Bytes> + Send {
    unfold((live, Stage::Begun), |(mut live, stage)| async move {
        let Stage::Going { not_before, mut said } = stage else {
            let now = Instant::now();
            let current = *live.beat.borrow_and_update();
            let news = live.since.is_some_and(|since| since != current);
            let begun = if news {
                format!("retry: 2000\n\n{}", changed(current))
            } else {
                "retry: 2000\n\n".to_owned()
            };
            let not_before = if news { now + APART } else { now };
            return Some((Bytes::from(begun), (live, Stage::Going { not_before, said: now })));
        };
        loop {
            let over = live.place.0.over.clone();
            tokio::select! {
                () = live.stop.cancelled() => return None,
                () = over.cancelled() => return None,
                told = next(&mut live.beat, not_before) => {
                    let number = told?;
                    let now = Instant::now();
                    let stage = Stage::Going { not_before: now + APART, said: now };
                    return Some((Bytes::from(changed(number)), (live, stage)));
                }
                () = sleep(LOOK) => {
                    if !live.gate.still(&live.place.0) {
                        return None;
                    }
                    if said.elapsed() >= HEARTBEAT {
                        said = Instant::now();
                        return Some((Bytes::from_static(b": here\n\n"), (live, Stage::Going { not_before, said })));
                    }
                }
            }
        }
    })
}

/// The next change, not before its time. None: nobody will tell any more. May be dropped and asked again.
async fn next(beat: &mut Beat, not_before: Instant) -> Option<u64> {
    sleep_until(not_before).await;
    beat.changed().await.ok()?;
    Some(*beat.borrow_and_update())
}

fn changed(number: u64) -> String {
    format!("id: {number}\nevent: changed\ndata: {number}\n\n")
}
