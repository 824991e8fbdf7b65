//! The standing checks of the bad inputs: what must hold after every bad input.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

use super::{
    CANARY, GOOD, Gateway, alive, descendants, fd_count, peak, reset_peak, rss, wait_until, zombies,
};
use crate::client::{Client, Era};

/// The limit for memory where a case does not name one.
const GROWTH: u64 = 64 * 1024 * 1024;
const BACK_TO_BASELINE: Duration = Duration::from_secs(5);
/// How long a daemon may take to have its sessions ready.
const READY: Duration = Duration::from_secs(30);

/// Taken before the bad input; a well-behaved second session lives in it.
#[derive(Debug)]
pub struct Standing<'a> {
    gateway: &'a Gateway,
    good: Client,
    pid: u32,
    fds: usize,
    descendants: Vec<u32>,
    rss: u64,
}

impl<'a> Standing<'a> {
    pub async fn before(gateway: &'a Gateway) -> Self {
        let good = gateway.connect(GOOD, Era::Legacy).await;
        good.request("tools/list", json!({})).await.expect("the good session lists");
        // What a caller says is nobody's business: it must not be in a log either.
        assert_eq!(good.tool_text("echo", json!({ "text": CANARY })).await, CANARY);
        let pid = gateway.pid();
        let fds = gateway.descriptors_at_rest().await;
        reset_peak(pid);
        let (descendants, rss) = (descendants(pid), rss(pid));
        Self { gateway, good, pid, fds, descendants, rss }
    }

    /// While the bad input is in progress: the good session gets its list within a second, and calls work.
    pub async fn during(&self) {
        let start = Instant::now();
        let listed = self.good.request("tools/list", json!({})).await;
        let took = start.elapsed();
        assert!(listed.is_ok(), "the good session failed: {listed:?}\n{}", self.gateway.log());
        assert!(took < Duration::from_secs(1), "the good session waited {took:?} for its list");
        assert_eq!(self.good.tool_text("echo", json!({ "text": "still here" })).await, "still here");
    }

    /// How much the gateway's memory grew at most since [`Self::before`].
    pub fn growth(&self) -> u64 {
        peak(self.pid).saturating_sub(self.rss)
    }

    /// After the bad session has ended: alive, nothing left behind, nothing told.
    pub async fn after(self) {
        self.after_with(GROWTH).await;
    }

    pub async fn after_with(self, growth: u64) {
        self.during().await;
        let Self { gateway, good, pid, fds, descendants: before, rss: _ } = &self;
        assert!(alive(*pid), "the gateway died:\n{}", gateway.log());
        assert!(self.growth() <= growth, "memory grew by {} MiB", self.growth() >> 20);
        let back = || {
            let extra = descendants(*pid).iter().any(|child| !before.contains(child));
            !extra && fd_count(*pid) <= *fds && zombies(*pid).is_empty()
        };
        assert!(
            wait_until(BACK_TO_BASELINE, back).await,
            "not back to the baseline: {fds} fds then, {} now; children {before:?} then, {:?} now, zombies {:?}",
            fd_count(*pid),
            descendants(*pid),
            zombies(*pid),
        );
        assert!(good.strays().is_empty(), "answers of others reached the good session: {:?}", good.strays());
        assert!(!gateway.log().contains(CANARY), "the canary is in the log");
        no_canary_under(&gateway.files.state());
    }
}

impl Gateway {
    /// How many descriptors there are once no more are opened: sessions are got ready beside the first requests, and
    /// the socket answers when they are.
    pub async fn descriptors_at_rest(&self) -> usize {
        let (pid, socket) = (self.pid(), self.files.state().join("daemon.sock"));
        let until = Instant::now() + READY;
        while !answers(&socket).await {
            assert!(Instant::now() < until, "the socket does not answer\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let (mut count, mut same) = (fd_count(pid), 0);
        let until = Instant::now() + BACK_TO_BASELINE;
        while same < 6 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = fd_count(pid);
            same = if now == count { same + 1 } else { 0 };
            count = now;
        }
        count
    }
}

async fn answers(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket).await else { return false };
    let asked = stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(BACK_TO_BASELINE, stream.read_to_end(&mut answer)).await;
    asked.is_ok() && matches!(read, Ok(Ok(_))) && answer.starts_with(b"HTTP/1.1 200")
}

fn no_canary_under(directory: &Path) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => no_canary_under(&path),
            Ok(kind) if kind.is_file() => {
                let bytes = std::fs::read(&path).unwrap_or_default();
                let found = bytes.windows(CANARY.len()).any(|window| window == CANARY.as_bytes());
                assert!(!found, "the canary is in {}", path.display());
            }
            _ => {}
        }
    }
}
