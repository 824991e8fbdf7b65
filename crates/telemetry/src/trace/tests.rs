use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[track_caller]
fn check(text: &str, expected: Result<&str, TraceError>) {
    let read = TraceParent::parse(text).map(|parent| parent.to_string());
    assert_eq!(read, expected.map(str::to_owned), "{text:?}");
    assert_eq!(text.parse::<TraceParent>().map(|parent| parent.to_string()), read);
}

#[test]
fn what_is_well_formed_is_read() {
    check(GOOD, Ok(GOOD));
    for flags in ["00", "01", "02", "03", "09", "ff"] {
        let text = format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}");
        check(&text, Ok(&text));
    }
    let smallest = "00-00000000000000000000000000000001-0000000000000001-00";
    check(smallest, Ok(smallest));
    let largest = "00-ffffffffffffffffffffffffffffffff-ffffffffffffffff-ff";
    check(largest, Ok(largest));
}

#[test]
fn a_version_that_is_not_known_yet_is_read_as_far_as_it_is_known() {
    for version in ["01", "02", "0a", "cc", "fe"] {
        let plain = format!("{version}-{}", &GOOD[3..]);
        check(&plain, Ok(GOOD));
        check(&format!("{plain}-"), Ok(GOOD));
        check(&format!("{plain}-what-the-future-will-be-like"), Ok(GOOD));
        check(&format!("{plain}.what"), Err(TraceError::Layout));
        check(&format!("{plain}0"), Err(TraceError::Layout));
        check(&plain[..54], Err(TraceError::Length));
    }
}

#[test]
fn what_is_malformed_is_refused() {
    use TraceError::{Digits, Layout, Length, Version, Zero};
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let span = "00f067aa0ba902b7";
    let rows: &[(String, TraceError)] = &[
        (String::new(), Length),
        ("00".to_owned(), Length),
        ("-".to_owned(), Length),
        (trace.to_owned(), Length),
        // Too short, too long, cut anywhere.
        (GOOD[..54].to_owned(), Length),
        (GOOD[1..].to_owned(), Length),
        (format!("{GOOD}0"), Length),
        (format!("{GOOD}-"), Length),
        (format!("{GOOD}-00"), Length),
        (format!("{GOOD},{GOOD}"), Length),
        // Space around it is the transport's to take off.
        (format!(" {GOOD}"), Digits),
        (format!("{GOOD} "), Length),
        (format!("{GOOD}\n"), Length),
        (format!("\t{}", &GOOD[..54]), Digits),
        // Versions.
        (format!("ff-{trace}-{span}-01"), Version),
        (format!("ff-{trace}-{span}-01-more"), Version),
        (format!("FF-{trace}-{span}-01"), Digits),
        (format!("0A-{trace}-{span}-01"), Digits),
        (format!("0x-{trace}-{span}-01"), Digits),
        (format!(".0-{trace}-{span}-01"), Digits),
        (format!("0-{trace}-{span}-01"), Length),
        (format!("000-{trace}-{span}-01"), Length),
        (format!("000-{trace}-{span}-1"), Layout),
        // Dashes.
        (format!("00_{trace}-{span}-01"), Layout),
        (format!("00-{trace}_{span}-01"), Layout),
        (format!("00-{trace}-{span}_01"), Layout),
        (format!("00-{trace}{span}--01"), Layout),
        (format!("00--{trace}{span}-01"), Layout),
        (format!("00{trace}-{span}--01"), Layout),
        // Ids.
        (format!("00-{}-{span}-01", "0".repeat(32)), Zero),
        (format!("00-{trace}-{}-01", "0".repeat(16)), Zero),
        (format!("01-{}-{span}-01-x", "0".repeat(32)), Zero),
        (format!("00-{}-{span}-01", trace.to_uppercase()), Digits),
        (format!("00-{trace}-{}-01", span.to_uppercase()), Digits),
        (format!("00-{}g-{span}-01", &trace[..31]), Digits),
        (format!("00-{trace}-{}g-01", &span[..15]), Digits),
        (format!("00- {}-{span}-01", &trace[..31]), Digits),
        (format!("00-+{}-{span}-01", &trace[..31]), Digits),
        (format!("00-{}-{span}-01", &trace[..31]), Length),
        (format!("00-{trace}0-{span}-01"), Length),
        (format!("00-{trace}-{span}0-1"), Layout),
        // Flags.
        (format!("00-{trace}-{span}-0"), Length),
        (format!("00-{trace}-{span}-0g"), Digits),
        (format!("00-{trace}-{span}-0A"), Digits),
        (format!("00-{trace}-{span}-FF"), Digits),
        (format!("00-{trace}-{span}--1"), Digits),
        (format!("00-{trace}-{span}-.1"), Digits),
        // Letters of more than one byte, also across the places that are cut at.
        (format!("00-{}é-{span}-01", &trace[..30]), Digits),
        (format!("é-{trace}-{span}-01"), Digits),
        (format!("0é{trace}-{span}-01"), Digits),
        (format!("00-{trace}-{span}é1"), Layout),
        ("é".repeat(28), Digits),
        ("\0".repeat(55), Digits),
        ("-".repeat(55), Digits),
        ("0".repeat(55), Layout),
    ];
    for (text, expected) in rows {
        check(text, Err(*expected));
    }
    for at in 0..GOOD.len() {
        assert!(TraceParent::parse(&GOOD[..at]).is_err());
    }
}

#[test]
fn a_trace_goes_on_below_the_span_that_was_named() {
    let parent = TraceParent::parse(GOOD).unwrap();
    let trace = Trace::continuing(&parent);
    assert_eq!(trace.trace_id, parent.trace_id);
    assert_eq!(trace.parent, Some(parent.parent));
    assert_ne!(trace.span, parent.parent);
    assert!(trace.sampled());
    let passed_on = TraceParent::parse(&trace.traceparent()).unwrap();
    assert_eq!(passed_on, TraceParent { parent: trace.span, ..parent });
}

#[test]
fn flags_that_nobody_has_defined_are_not_passed_on() {
    for (given, expected) in [(0xff, 0x03), (0x00, 0x00), (0xfc, 0x00), (0x02, 0x02), (0x81, 0x01)] {
        let parent = TraceParent { flags: given, ..TraceParent::parse(GOOD).unwrap() };
        assert_eq!(Trace::continuing(&parent).flags, expected);
    }
    let unsampled = TraceParent { flags: 0x02, ..TraceParent::parse(GOOD).unwrap() };
    assert!(!Trace::continuing(&unsampled).sampled());
}

#[test]
fn fresh_ids_do_not_repeat_on_any_thread() {
    let make = || (0..20_000).map(|_| Trace::fresh()).collect::<Vec<_>>();
    let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
    let traces: Vec<Trace> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    assert!(traces.iter().all(|trace| trace.sampled() && trace.parent.is_none()));
    assert_eq!(traces.iter().map(|trace| trace.trace_id).collect::<HashSet<_>>().len(), traces.len());
    assert_eq!(traces.iter().map(|trace| trace.span).collect::<HashSet<_>>().len(), traces.len());
    // Each bit is set about half of the time.
    for bit in 0..64 {
        let set = traces.iter().filter(|trace| u64::from_be_bytes(trace.span) >> bit & 1 == 1).count();
        assert!((38_000..42_000).contains(&set), "bit {bit}: {set}");
    }
}

#[test]
fn a_row_without_a_trace_always_gets_the_same_one() {
    let row = Trace::derived(Some("ses_1"), "call_1", (3, 7));
    assert_eq!(row, Trace::derived(Some("ses_1"), "call_1", (3, 7)));
    let other_row = Trace::derived(Some("ses_1"), "call_2", (3, 8));
    assert_eq!(row.trace_id, other_row.trace_id, "a session is one trace");
    assert_ne!(row.span, other_row.span);
    assert_ne!(row.trace_id, Trace::derived(Some("ses_2"), "call_1", (3, 7)).trace_id);
    // Calls of nobody in particular may all have the same id.
    let nobody = Trace::derived(None, "callsign", (3, 7));
    assert_ne!(nobody.trace_id, Trace::derived(None, "callsign", (3, 8)).trace_id);
    assert_ne!(nobody.trace_id, Trace::derived(Some("callsign"), "x", (3, 7)).trace_id);
    assert!(row.sampled() && row.parent.is_none());
    // Part of what is exported: whoever exports again must get the same ids.
    assert_eq!(row.to_column(), "126db9238ce650ac6ed3ba55b658bf7d-68f86f16ef3733bb--01");
}

#[test]
fn a_column_that_is_not_ours_is_refused() {
    let good = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-b7ad6b7169203331-01";
    assert_eq!(Trace::from_column(good).unwrap().to_column(), good);
    let root = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7--01";
    assert_eq!(Trace::from_column(root).unwrap().parent, None);
    assert_eq!(Trace::from_column(root).unwrap().to_column(), root);
    let bad = [
        "",
        "---",
        "-",
        GOOD,
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7--01-",
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7--",
        "4bf92f3577b34da6a3ce929d0e0e4736--b7ad6b7169203331-01",
        "00000000000000000000000000000000-00f067aa0ba902b7--01",
        "4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000--01",
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0000000000000000-01",
        "4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7--01",
        "4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7--01",
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7--1",
        "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7--é",
    ];
    for text in bad {
        assert!(Trace::from_column(text).is_err(), "{text:?}");
    }
}

fn some_id<const N: usize>() -> impl Strategy<Value = [u8; N]> {
    prop::array::uniform(any::<u8>()).prop_filter("zero means none", |id| *id != [0; N])
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        trace_id in some_id::<16>(), span in some_id::<8>(), parent in prop::option::of(some_id::<8>()), flags: u8,
    ) {
        let trace = Trace { trace_id, span, parent, flags };
        prop_assert_eq!(Trace::from_column(&trace.to_column()), Ok(trace));
        let passed_on = TraceParent { trace_id, parent: span, flags };
        prop_assert_eq!(TraceParent::parse(&trace.traceparent()), Ok(passed_on));
    }

    #[test]
    fn no_text_is_too_odd(text in "\\PC{0,80}", cut in 0..56_usize) {
        let _any = (TraceParent::parse(&text), Trace::from_column(&text));
        let mixed: String = GOOD.chars().take(cut).chain(text.chars()).collect();
        if let Ok(parent) = TraceParent::parse(&mixed) {
            prop_assert_eq!(TraceParent::parse(&parent.to_string()), Ok(parent));
        }
    }
}
