//! Calls as they end.
//!
//! The file is looked at a few times a second. It may not be there yet, lose its oldest rows, or be replaced by
//! another while it is followed; only what cannot be read for a while is an error.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ledger::{Call, Change, Changes, Connection, Filter, LedgerError, Outcome, Place};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use super::list::List;
use super::table::More;
use super::{each, note};

/// How often it is looked at.
const LOOK: u16 = 200;
/// How often it is asked whether those who make calls are still there.
const ASK: Duration = Duration::from_secs(1);
/// How long a file may be unreadable: while it is being replaced it can be.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) struct Follow<W> {
    place: Place,
    filter: Filter,
    list: List<W>,
    /// When this began, in Unix milliseconds.
    started: u64,
    end: End,
    /// Somebody was told that there is nothing yet.
    waited: bool,
    /// What was there in the beginning has been shown.
    begun: bool,
    /// When it was last asked whether those who make calls are still there.
    asked: Instant,
}

/// A ledger that is being followed.
struct Followed {
    connection: Connection,
    /// Which file it is. A path can lead to another one later.
    file: (u64, u64),
    /// The last batch that was looked at.
    seen: i64,
    /// Calls that began and have not been shown: writer and number.
    open: BTreeSet<(i64, i64)>,
}

impl<W: Write> Follow<W> {
    pub(super) fn new(place: Place, filter: Filter, list: List<W>, started: u64) -> anyhow::Result<Self> {
        let (end, asked) = (End::watch()?, Instant::now());
        Ok(Self { place, filter, list, started, end, waited: false, begun: false, asked })
    }

    /// Returns when somebody ends it.
    pub(super) fn run(mut self) -> anyhow::Result<()> {
        let mut followed = None;
        let mut failing: Option<Instant> = None;
        loop {
            match self.look(&mut followed) {
                Ok(()) => failing = None,
                Err(Stop::Out(error)) => return Err(error.into()),
                Err(Stop::Ledger(error)) => {
                    followed = None;
                    if failing.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                        return Err(error.into());
                    }
                }
            }
            if self.end.is_near()? {
                return Ok(());
            }
        }
    }

    fn look(&mut self, followed: &mut Option<Followed>) -> Result<(), Stop> {
        if followed.as_ref().is_some_and(|followed| Some(followed.file) != identify(&self.place)) {
            *followed = None;
        }
        let Some(ledger) = followed else {
            *followed = self.open()?;
            return Ok(());
        };
        if !self.changes(ledger)? {
            *followed = None;
            return Ok(());
        }
        if self.asked.elapsed() >= ASK {
            self.asked = Instant::now();
            self.lost(ledger)?;
        }
        self.list.flush().map_err(Stop::Out)
    }

    /// None: there is none yet.
    fn open(&mut self) -> Result<Option<Followed>, Stop> {
        let file = identify(&self.place);
        let connection = match self.place.read() {
            Ok(connection) => connection,
            Err(LedgerError::Absent(_)) => {
                if !std::mem::replace(&mut self.waited, true) {
                    note("no calls yet; waiting for the first");
                    self.list.settle(More::Perhaps).map_err(Stop::Out)?;
                }
                return Ok(None);
            }
            Err(error) => return Err(Stop::Ledger(error)),
        };
        let Some(file) = file.filter(|file| identify(&self.place) == Some(*file)) else { return Ok(None) };
        let mut followed = Followed { connection, file, seen: 0, open: BTreeSet::new() };
        if self.begun {
            // It is another file, so nothing says where it was left. Calls of before were shown, or never will be.
            self.filter.since = Some(self.filter.since.unwrap_or(0).max(self.started));
            note("the ledger was replaced; following the new one");
        } else {
            self.begin(&mut followed)?;
            self.begun = true;
        }
        Ok(Some(followed))
    }

    /// Shows what is there.
    fn begin(&mut self, followed: &mut Followed) -> Result<(), Stop> {
        let Followed { connection, seen, open, .. } = followed;
        // One view for both: a call is in the list, or in what comes after this batch.
        let view =
            connection.unchecked_transaction().map_err(|error| ledger::unreadable(connection, &error))?;
        *seen = ledger::last_batch(&view).map_err(|error| ledger::unreadable(connection, &error))?;
        let list = &mut self.list;
        each(&view, &self.filter, |call| {
            if call.outcome.is_some() {
                return list.add(call).map_err(Stop::Out);
            }
            open.insert((call.writer, call.seq));
            Ok(())
        })?;
        drop(view);
        self.list.settle(More::Perhaps).map_err(Stop::Out)
    }

    /// Shows what ended since. False: this is not the ledger that it was.
    fn changes(&mut self, followed: &mut Followed) -> Result<bool, Stop> {
        let Followed { connection, seen, open, .. } = followed;
        let read = |error| Stop::from(ledger::unreadable(connection, &error));
        let last = ledger::last_batch(connection).map_err(read)?;
        if last <= *seen {
            return Ok(last == *seen);
        }
        // Not by how they end: what has begun has no outcome yet.
        let filter = Filter { outcome: None, limit: None, ..self.filter.clone() };
        loop {
            let Changes { items, cursor, more } =
                ledger::changed_since(connection, *seen, &filter).map_err(read)?;
            for change in items {
                match change {
                    Change::Began(call) => {
                        open.insert((call.writer, call.seq));
                    }
                    Change::Ended(call) => {
                        open.remove(&(call.writer, call.seq));
                        self.show(&call)?;
                    }
                }
            }
            *seen = cursor;
            if !more {
                return Ok(true);
            }
        }
    }

    /// Shows calls whose makers are gone: nobody will say how they ended.
    fn lost(&mut self, followed: &mut Followed) -> Result<(), Stop> {
        let Followed { connection, open, .. } = followed;
        let read = |place: (i64, i64)| {
            ledger::call(connection, place)
                .map_err(|error| Stop::from(ledger::unreadable(connection, &error)))
        };
        let mut next = open.first().copied();
        while let Some(place) = next {
            let is_lost =
                |call: &Option<Call>| call.as_ref().is_none_or(|call| call.outcome == Some(Outcome::Unknown));
            // Twice: it may have written its end and gone between the look at the row and the look at the process.
            if is_lost(&read(place)?) && is_lost(&read(place)?) {
                open.remove(&place);
                if let Some(call) = read(place)? {
                    self.show(&call)?;
                }
                next = open.range(place..).next().copied();
            } else {
                // One call says it for all of its writer's.
                next = open.range((place.0.saturating_add(1), i64::MIN)..).next().copied();
            }
        }
        Ok(())
    }

    fn show(&mut self, call: &Call) -> Result<(), Stop> {
        if self.filter.outcome.is_some_and(|wanted| call.outcome != Some(wanted)) {
            return Ok(());
        }
        self.list.add(call).map_err(Stop::Out)
    }
}

/// Why it does not go on.
enum Stop {
    Ledger(LedgerError),
    Out(io::Error),
}

impl From<LedgerError> for Stop {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

fn identify(place: &Place) -> Option<(u64, u64)> {
    std::fs::metadata(&place.file).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// Ctrl-C and its like, and a reader that went away.
struct End(SignalFd);

impl End {
    /// From here on these signals do nothing but this.
    fn watch() -> anyhow::Result<Self> {
        let mut signals = SigSet::empty();
        for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
            signals.add(signal);
        }
        let watched = signals
            .thread_block()
            .and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK));
        watched.map(Self).context("could not listen for signals")
    }

    /// Waits for a moment, and says whether it is time to go.
    fn is_near(&self) -> anyhow::Result<bool> {
        let stdout = io::stdout();
        // Asked for nothing, a pipe still tells that nobody reads it.
        let mut watched =
            [PollFd::new(self.0.as_fd(), PollFlags::POLLIN), PollFd::new(stdout.as_fd(), PollFlags::empty())];
        match poll(&mut watched, PollTimeout::from(LOOK)) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("could not wait"),
        }
    }
}
