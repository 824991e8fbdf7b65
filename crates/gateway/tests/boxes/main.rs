//! Boxes that mean harm, at a real front with real processes: what one does is no other's trouble.
//!
//! A harness of its own, as far as `cargo test` and nextest need one: it forks before there are threads.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a surprise ends the test, and the harness speaks on stdout"
)]

mod door;
mod log;
mod many;
mod rig;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use supervise::Spawner;

type Story = fn(Arc<Spawner>) -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! stories {
    ($($module:ident::$name:ident),* $(,)?) => {
        [$((concat!(stringify!($module), "::", stringify!($name)), (|spawner| Box::pin($module::$name(spawner))) as Story)),*]
    };
}

fn main() -> ExitCode {
    let spawner = Arc::new(Spawner::start().expect("a process with one thread"));
    let stories = stories![
        many::one_box_does_not_take_the_processes_of_a_server_from_others,
        many::a_box_that_asks_what_a_server_is_over_and_over_has_two_processes,
        many::starts_that_a_box_makes_fail_are_its_own_trouble,
        many::one_box_has_so_many_sessions_and_its_own_oldest_go,
        many::only_a_request_opens_a_session_and_a_box_that_is_gone_has_none,
        door::what_is_turned_away_at_the_door_is_noted,
        door::those_who_knock_without_end_are_counted,
        log::a_box_does_not_write_the_log_as_fast_as_it_likes,
    ];
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|arg| arg == flag);
    let (mut filters, mut skipped) = (Vec::new(), Vec::new());
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        match arg.as_str() {
            "--skip" => skipped.extend(rest.next()),
            "--format" | "--color" | "--test-threads" => drop(rest.next()),
            flag if flag.starts_with('-') => {}
            _ => filters.push(arg),
        }
    }
    let wanted = |name: &str| {
        let fits = |filter: &&String| {
            if has("--exact") { filter.as_str() == name } else { name.contains(filter.as_str()) }
        };
        (filters.is_empty() || filters.iter().any(fits)) && !skipped.iter().any(fits)
    };
    if has("--list") {
        // None is ignored.
        for (name, _) in stories.iter().filter(|_| !has("--ignored")) {
            println!("{name}: test");
        }
        return ExitCode::SUCCESS;
    }
    let mut code = ExitCode::SUCCESS;
    for (name, story) in stories.into_iter().filter(|(name, _)| wanted(name)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let told = catch_unwind(AssertUnwindSafe(|| runtime.block_on(story(Arc::clone(&spawner)))));
        println!("test {name} ... {}", if told.is_ok() { "ok" } else { "FAILED" });
        if told.is_err() {
            code = ExitCode::FAILURE;
        }
    }
    code
}
