//! A disk that is full, at every moment at which it can be.

use std::io::Write as _;
use std::path::PathBuf;

use super::children::{given, mount, role, run_with_mounts};
use super::*;

/// A file system that has so much room.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn with_room(path: PathBuf, kib: u64) -> Self {
        std::fs::create_dir(&path).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=16m", "tmpfs", path.to_str().unwrap()]);
        let disk = Self { path };
        disk.fill(kib);
        disk
    }

    /// Leaves so much.
    fn fill(&self, kib: u64) {
        let mut file = std::fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        let block = [7; 4096];
        while file.write_all(&block).is_ok() {}
        let length = file.metadata().unwrap().len();
        file.set_len(length.saturating_sub(kib * 1024)).unwrap();
    }

    fn free(&self) {
        std::fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

/// How often the disk was full, and at what.
#[derive(Debug, Default)]
struct Hits {
    opening: u32,
    submitting: u32,
    ending: u32,
    never: u32,
}

/// Submits until it is full, reads all the same, and goes on when it is not.
async fn submitting(disk: &Disk, hits: &mut Hits) {
    let store = match SqliteStore::open(&Place::of(&disk.path)).await {
        Ok(store) => store,
        Err(OpenError::StorageFull) => {
            hits.opening += 1;
            disk.free();
            // What was begun is gone on with.
            SqliteStore::open(&Place::of(&disk.path)).await.unwrap()
        }
        Err(other) => panic!("{other:?}"),
    };
    let session = match store.create_or_reuse(&alice(), wanted(Some("k")), at(1)).await {
        Ok(CreateOutcome::Created(session)) => session.id,
        Ok(other) => panic!("{other:?}"),
        Err(StoreError::StorageFull) => {
            hits.submitting += 1;
            disk.free();
            new_session(&store, &alice()).await
        }
        Err(other) => panic!("{other:?}"),
    };
    let mut acknowledged = Vec::new();
    let full = loop {
        if acknowledged.len() == 300 {
            break false;
        }
        match store.submit(&alice(), task(&session, &"x".repeat(4_000)), at(2)).await {
            Ok(SubmitOutcome::Submitted(run)) => acknowledged.push(run.id),
            Ok(other) => panic!("{other:?}"),
            Err(StoreError::StorageFull) => break true,
            Err(other) => panic!("{other:?}"),
        }
    };
    let all_there = async |store: &SqliteStore, acknowledged: &[RunId]| {
        for run in acknowledged {
            assert!(store.run(&alice(), run).await.unwrap().is_some(), "acknowledged and lost");
        }
        let runs = store.list_runs(&alice(), &session, Page { after: None, limit: 1_000 }).await.unwrap();
        assert_eq!(runs.len(), acknowledged.len(), "refused and yet there");
    };
    all_there(&store, &acknowledged).await;
    if full {
        hits.submitting += 1;
        for _ in 0..3 {
            let refused = store.submit(&alice(), task(&session, &"x".repeat(50_000)), at(2)).await;
            assert!(matches!(refused, Err(StoreError::StorageFull)), "{refused:?}");
        }
        all_there(&store, &acknowledged).await;
        disk.free();
    } else {
        hits.never += 1;
    }
    let run = submit(&store, &alice(), task(&session, "again")).await;
    acknowledged.push(run.id);
    all_there(&store, &acknowledged).await;
    store.close().await;
    let store = open(&disk.path).await;
    all_there(&store, &acknowledged).await;
    store.close().await;
}

/// A run that cannot end for want of room ends later, once.
async fn ending(disk: &Disk, room: u64, hits: &mut Hits) {
    let store = open(&disk.path).await;
    let session = new_session(&store, &alice()).await;
    let run = submit(&store, &alice(), task(&session, "x")).await.id;
    let owner = owner(&store, TakeOver::Everybody).await;
    let lease = lease(&store, &session, &owner).await;
    next(&store, &lease).await;
    disk.fill(room);
    let large = completed(&"x".repeat(100_000));
    match store.finish(&lease, &run, large.clone(), at(9)).await {
        Ok(FinishOutcome::Finished(_)) => hits.never += 1,
        Ok(other) => panic!("{other:?}"),
        Err(StoreError::StorageFull) => {
            hits.ending += 1;
            let running = store.run(&alice(), &run).await.unwrap().unwrap();
            assert_eq!(running.state, RunState::Running { phase: Phase::Starting, attempt: 1 });
            disk.free();
            let finished = store.finish(&lease, &run, large, at(9)).await.unwrap();
            assert!(matches!(finished, FinishOutcome::Finished(_)));
        }
        Err(other) => panic!("{other:?}"),
    }
    assert!(matches!(finish(&store, &lease, &run, failed()).await, FinishOutcome::Already(_)));
    store.close().await;
}

/// What is done where file systems can be mounted.
#[test]
fn small_disks() {
    if !role("small disks") {
        return;
    }
    let directory = PathBuf::from(given("STORE_STATE"));
    let step = if full_size() { 1 } else { 6 };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut hits = Hits::default();
    runtime.block_on(async {
        // Kibibytes of room: for the first pages one by one; a mebibyte; and for what a log takes that is as long as it
        // gets.
        let levels = (0..=320).step_by(4 * step).chain([1_024]).chain((3_000..=8_000).step_by(200 * step));
        for room in levels {
            let disk = Disk::with_room(directory.join(format!("s{room}")), room);
            submitting(&disk, &mut hits).await;
        }
        for room in (0..=240).step_by(4 * step) {
            let disk = Disk::with_room(directory.join(format!("e{room}")), 15_000);
            ending(&disk, room, &mut hits).await;
        }
    });
    println!("\n{hits:?}");
    assert!(hits.opening > 0 && hits.submitting > 0 && hits.ending > 0 && hits.never > 0, "{hits:?}");
}

#[test]
fn a_full_disk_refuses_what_is_new_and_loses_nothing_that_was_acknowledged() {
    let state = tempfile::tempdir().unwrap();
    let text = run_with_mounts("tests::full::small_disks", "small disks", state.path());
    println!("{text}");
}
