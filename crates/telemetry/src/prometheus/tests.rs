use super::*;

/// Whoever changes it has it read by a parser that is not ours.
const GOLDEN: &str = include_str!("golden.txt");

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn families_and_samples_are_written_as_prometheus_reads_them() {
    let mut text = Text::new();
    text.family("callsign_calls_total", "Calls by how they ended.", FamilyKind::Counter)
        .sample("", &[("server", "echo"), ("outcome", "ok")], 3_u64)
        .sample("", &[("server", "a \"b\" \\ c\nd é {}=,#"), ("outcome", "tool_error")], u64::MAX);
    text.family("callsign_children", "Processes.\nA \\ line \"more\".", FamilyKind::Gauge)
        .sample("", &[], 2_usize)
        .sample("", &[("server", "")], 0_u32);
    text.family("callsign_odd", "", FamilyKind::Gauge)
        .sample("", &[("kind", "nan")], f64::NAN)
        .sample("", &[("kind", "inf")], f64::INFINITY)
        .sample("", &[("kind", "minus")], f64::NEG_INFINITY)
        .sample("", &[("kind", "small")], 1.5e-9)
        .sample("", &[("kind", "large")], 1e21)
        .sample("", &[("kind", "negative")], -2.5);
    let histogram = Histogram::new();
    for seconds in [0.0005, 0.001, 0.004, 0.3, 60.0, 61.0] {
        histogram.observe(secs(seconds));
    }
    text.family("callsign_call_duration_seconds", "How long calls took.", FamilyKind::Histogram)
        .histogram(&[("server", "echo")], &histogram.snapshot())
        .histogram(&[("server", "idle")], &Snapshot::default());
    assert_eq!(text.finish(), GOLDEN);
}

#[test]
fn a_duration_falls_into_the_bucket_whose_limit_it_does_not_exceed() {
    let (first, last) = (0, BUCKETS - 1);
    for (duration, bucket) in [
        (Duration::ZERO, first),
        (Duration::from_millis(1), first),
        (Duration::from_nanos(1_000_001), 1),
        (Duration::from_millis(2), 1),
        (Duration::from_millis(500), 8),
        (Duration::from_mins(1), last - 1),
        (Duration::from_nanos(60_000_000_001), last),
        (Duration::from_hours(1), last),
    ] {
        let histogram = Histogram::new();
        histogram.observe(duration);
        let snapshot = histogram.snapshot();
        let expected: [u64; BUCKETS] = std::array::from_fn(|at| u64::from(at >= bucket));
        assert_eq!(snapshot, Snapshot { cumulative: expected, sum: duration }, "{duration:?}");
    }
    assert!(LIMITS.is_sorted_by_key(|limit| limit.nanos));
    for limit in &LIMITS {
        assert_eq!(Duration::from_nanos(limit.nanos), secs(limit.text.parse().unwrap()));
    }
}

#[test]
fn nothing_is_lost_between_threads() {
    let (histogram, counter) = (Histogram::new(), Counter::new());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    histogram.observe(Duration::from_millis(3));
                    counter.one();
                }
            });
        }
    });
    assert_eq!((histogram.snapshot().count(), counter.get()), (40_000, 40_000));
    assert_eq!(histogram.snapshot().sum, Duration::from_mins(2));
}
