//! How long ten thousand files take.

use std::time::Instant;

use super::*;

#[test]
fn ten_thousand_files_take_seconds() {
    let world = World::new();
    let host = world.host();
    for number in 0..10_000 {
        put(
            &host,
            &format!("d{}/e{}/f{number}.txt", number % 40, number % 7),
            format!("line {number}\n").repeat(40),
        );
    }
    git_must(&host, &["init", "-q"]);
    let begun = Instant::now();
    assert_eq!(world.import().unwrap().files, 10_000);
    let imported = begun.elapsed();
    for number in 0..1000 {
        put(&world.workspace(), &format!("d{}/e{}/f{number}.txt", number % 40, number % 7), "changed\n");
    }
    let begun = Instant::now();
    let changes = world.changes().unwrap();
    let compared = begun.elapsed();
    assert_eq!(changes.files.len(), 1000);
    let begun = Instant::now();
    changes.patch(&PatchLimits::default()).unwrap();
    let patched = begun.elapsed();
    let begun = Instant::now();
    assert_eq!(world.apply().unwrap().changed, 1000);
    let applied = begun.elapsed();
    println!(
        "import {imported:?}, changes {compared:?}, patch of 1000 {patched:?}, changes and apply of 1000 {applied:?}"
    );
    // A machine that is busy may take its time; one that walks the tree for each file would take much longer.
    assert!([imported, compared, applied].iter().all(|took| took.as_secs() < 180));
}
