//! What the figures are held against: DESIGN §10, the first rows of its table.

use super::report::{Row, markdown};
use super::targets::{Section, Target};

#[derive(Clone, Debug, PartialEq)]
struct Goal {
    what: String,
    bound: Bound,
    /// None if a row that it needs was not measured.
    found: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn verdict(&self) -> &'static str {
        match (self.bound, self.found) {
            (_, None) => "not measured",
            (Bound::AtLeast(bound), Some(found)) if found >= bound => "met",
            (Bound::AtMost(bound), Some(found)) if found <= bound => "met",
            (_, Some(_)) => "MISSED",
        }
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut lines = vec![["goal", "target", "found", "verdict"].map(str::to_owned).to_vec()];
    for goal in goals(rows) {
        let bound = match goal.bound {
            Bound::AtLeast(bound) => format!("≥ {bound}"),
            Bound::AtMost(bound) => format!("≤ {bound}"),
        };
        let found = goal.found.map_or_else(|| "–".to_owned(), |found| format!("{found:.2}"));
        lines.push(vec![goal.what.clone(), bound, found, goal.verdict().to_owned()]);
    }
    markdown(&lines)
}

fn goals(rows: &[Row]) -> Vec<Goal> {
    let row = |section: Section, target: Target, connections: usize| {
        rows.iter().find(|row| (row.section, row.target, row.connections) == (section, target, connections))
    };
    let rate = |ours: Option<&Row>, theirs: Option<&Row>| Some(ours?.rate / theirs?.rate);
    let mut goals = Vec::new();
    let mut goal = |what: String, bound, found| goals.push(Goal { what, bound, found });

    for connections in [16, 64] {
        let at = |target| row(Section::HttpToHttp, target, connections);
        let (us, nginx, peer) = (at(Target::Callsign), at(Target::Nginx), at(Target::McpProxy));
        let what = |text: &str| format!("HTTP → HTTP at {connections}: {text}");
        goal(what("requests/s ÷ nginx"), Bound::AtLeast(0.6), rate(us, nginx));
        goal(what("requests/s ÷ mcp-proxy (crate)"), Bound::AtLeast(1.5), rate(us, peer));
        let cpu = us.and_then(|us| Some(us.cpu_ms? / nginx?.cpu_ms?));
        goal(what("CPU per call ÷ nginx"), Bound::AtMost(2.0), cpu);
        if connections == 64 {
            let hooked = at(Target::CallsignHooked);
            let cost = us.and_then(|us| Some((hooked?.cpu_ms? - us.cpu_ms?) * 1000.0));
            goal(what("CPU per call of a hook, µs"), Bound::AtMost(15.0), cost);
            let unnoted = at(Target::CallsignUnnoted);
            let cost = us.and_then(|us| Some((us.cpu_ms? - unnoted?.cpu_ms?) * 1000.0));
            goal(what("CPU per call of the ledger, µs"), Bound::AtMost(15.0), cost);
        }
    }

    let at = |target| row(Section::HttpToStdio, target, 64);
    let (shared, session) = (at(Target::CallsignShared), at(Target::CallsignSession));
    let (peer, supergateway) = (at(Target::McpProxy), at(Target::Supergateway));
    let what = |text: &str| format!("HTTP → stdio at 64: {text}");
    goal(what("shared, requests/s ÷ mcp-proxy (crate)"), Bound::AtLeast(1.3), rate(shared, peer));
    goal(what("session, requests/s ÷ mcp-proxy (crate)"), Bound::AtLeast(0.8), rate(session, peer));
    goal(what("session, requests/s ÷ supergateway"), Bound::AtLeast(5.0), rate(session, supergateway));
    let memory = session.and_then(|session| Some(session.pss_mb? / supergateway?.pss_mb?));
    goal(what("session, PSS ÷ supergateway"), Bound::AtMost(0.1), memory);

    let at = |target, depth| row(Section::Stdio, target, depth);
    let (wrap, direct) = (at(Target::CallsignWrap, 1), at(Target::Direct, 1));
    let adds = wrap.and_then(|wrap| Some(wrap.p50_us - direct?.p50_us));
    goal("wrap: added to the median, µs".into(), Bound::AtMost(60.0), adds);
    let kept = rate(at(Target::CallsignWrap, 16), at(Target::Direct, 16));
    goal("wrap: throughput kept at depth 16".into(), Bound::AtLeast(0.5), kept);
    let cpu = |target| {
        let (with, without) = (at(target, 1)?.cpu_ms?, at(Target::CallsignWrap, 1)?.cpu_ms?);
        Some((with - without) * 1000.0)
    };
    let what = |text: &str| format!("wrap: CPU per call over bare, {text}, µs");
    goal(what("identity alone"), Bound::AtMost(15.0), cpu(Target::CallsignKnown));
    goal(what("identity and assertion"), Bound::AtMost(40.0), cpu(Target::CallsignSigned));
    goal(what("identity, seal and assertion"), Bound::AtMost(40.0), cpu(Target::CallsignSealed));
    // The supervisors are forks: their RSS counts pages that are there once.
    let (resident, with_supervisors) =
        (wrap.and_then(|wrap| wrap.root_rss_mb), wrap.and_then(|wrap| wrap.pss_mb));
    goal("wrap: RSS of its process, MB".into(), Bound::AtMost(10.0), resident);
    goal("wrap: PSS with its supervisors, MB".into(), Bound::AtMost(10.0), with_supervisors);
    let start = wrap.and_then(|wrap| Some(wrap.start_ms? - direct?.start_ms?));
    goal("wrap: start beyond the server's own, ms".into(), Bound::AtMost(8.0), start);
    goals
}

#[cfg(test)]
mod tests {
    use super::{Bound, Goal, goals, table};
    use crate::bench::report::Row;
    use crate::bench::targets::{Section, Target};

    #[track_caller]
    fn check(bound: Bound, found: Option<f64>, expected: &str) {
        assert_eq!(Goal { what: String::new(), bound, found }.verdict(), expected);
    }

    #[test]
    fn a_goal_is_met_missed_or_not_measured() {
        check(Bound::AtLeast(0.6), Some(0.6), "met");
        check(Bound::AtLeast(0.6), Some(0.59), "MISSED");
        check(Bound::AtMost(2.0), Some(2.0), "met");
        check(Bound::AtMost(2.0), Some(2.1), "MISSED");
        check(Bound::AtMost(2.0), None, "not measured");
    }

    fn row(section: Section, target: Target, connections: usize, rate: f64) -> Row {
        Row {
            section,
            target,
            connections,
            rate,
            p50_us: 1e6 / rate,
            p99_us: 0.0,
            cpu_ms: Some(1.0),
            rss_mb: Some(4.0),
            root_rss_mb: Some(4.0),
            pss_mb: Some(3.0),
            start_ms: Some(2.0),
            wrong: 0,
        }
    }

    #[test]
    fn the_goals_compare_the_rows_they_name() {
        let rows = [
            row(Section::HttpToHttp, Target::Nginx, 16, 1000.0),
            row(Section::HttpToHttp, Target::Callsign, 16, 700.0),
            row(Section::Stdio, Target::Direct, 1, 20_000.0),
            row(Section::Stdio, Target::CallsignWrap, 1, 10_000.0),
        ];
        let found: Vec<_> = goals(&rows).into_iter().filter(|goal| goal.found.is_some()).collect();
        let values: Vec<_> = found.iter().map(|goal| goal.found.unwrap_or(0.0)).collect();
        assert_eq!(values, [0.7, 1.0, 50.0, 4.0, 3.0, 0.0], "{found:?}");
        assert!(table(&rows).contains("not measured"));
    }
}
