//! Plots of rows: ours, the peers and the floor, which look alike in all plots.

use crate::format::in_unit;
use crate::names::{CLAIM_ALGORITHMS, OURS};
use crate::record::Record;
use crate::results::{Results, Row};
use crate::svg::{Bar, Look, PlotLine, PlotValue, bars, lines};

/// Number of colours for the peers, after those of our algorithms.
const PEER_COLOURS: usize = 6;
/// The colour of the floor, after all others.
const FLOOR_COLOUR: usize = CLAIM_ALGORITHMS.len() + PEER_COLOURS;

/// A record's median and range.
pub fn value(record: &Record) -> PlotValue {
    PlotValue { value: record.value, min: record.min, max: record.max }
}

/// Look of an algorithm or peer, alike in all plots of these results.
pub fn look(results: &Results, row: &Row) -> Look {
    if row.is_floor() {
        return Look { colour: FLOOR_COLOUR, dashed: true, bold: false };
    }
    match CLAIM_ALGORITHMS.iter().position(|a| a.name == row.algorithm) {
        Some(colour) => Look { colour, dashed: false, bold: row.algorithm == OURS },
        None => {
            let mut peers: Vec<&str> =
                results.records.iter().filter(|r| r.waiting == "own").map(|r| r.algorithm.as_str()).collect();
            peers.sort_unstable();
            peers.dedup();
            let n = peers.iter().position(|p| *p == row.algorithm).unwrap_or(0);
            Look { colour: CLAIM_ALGORITHMS.len() + n % PEER_COLOURS, dashed: true, bold: false }
        }
    }
}

/// Bars of a metric of `experiment`, one for each row but the floor, which is a mark.
pub fn times(results: &Results, experiment: &str, metric: &str, title: &str) -> Option<String> {
    let rows = results.rows(experiment);
    let floor = rows.iter().find(|r| r.is_floor()).and_then(|r| results.get(experiment, metric, r, &[]));
    let all: Vec<Bar> = rows
        .iter()
        .filter(|r| !r.is_floor())
        .filter_map(|r| {
            let record = results.get(experiment, metric, r, &[])?;
            Some(Bar { label: r.label(), value: value(record), look: look(results, r) })
        })
        .collect();
    let unit = results.of(experiment, metric).next()?.unit.clone();
    let mark = floor.map(|f| (f.value, "floor, two lines"));
    (!all.is_empty()).then(|| bars(title, &all, |v| in_unit(v, &unit), mark))
}

/// One plot for each of our waiting policies, each with all peers and the floor: all in
/// one would be too many lines.
pub fn by_waiting(
    results: &Results,
    experiment: &str,
    plot: impl Fn(&[Row], &str) -> Option<String>,
) -> Vec<String> {
    let rows = results.rows(experiment);
    let mut policies: Vec<&str> = rows.iter().filter(|r| r.is_ours()).map(|r| r.waiting.as_str()).collect();
    policies.sort_unstable();
    policies.dedup();
    if policies.len() < 2 {
        return plot(&rows, "").into_iter().collect();
    }
    policies
        .iter()
        .filter_map(|policy| {
            let some: Vec<Row> =
                rows.iter().filter(|r| !r.is_ours() || r.waiting == *policy).cloned().collect();
            plot(&some, &format!(", {policy} waiting"))
        })
        .collect()
}

/// A plot of a metric over an extra field, a line for each row.
pub fn over(
    results: &Results,
    rows: &[Row],
    (experiment, metric, key): (&str, &str, &str),
    title: &str,
    format_x: impl Fn(f64) -> String,
    format_y: impl Fn(f64) -> String,
) -> Option<String> {
    let all: Vec<PlotLine> = rows
        .iter()
        .filter_map(|row| {
            let points: Vec<(f64, PlotValue)> = results
                .numbers(experiment, key)
                .into_iter()
                .filter_map(|n| Some((n as f64, value(results.get(experiment, metric, row, &[(key, n)])?))))
                .collect();
            (!points.is_empty()).then(|| PlotLine { label: row.label(), points, look: look(results, row) })
        })
        .collect();
    (!all.is_empty()).then(|| lines(title, &all, format_x, format_y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordSubject, metrics::MESSAGES_PER_S};

    fn results(policies: &[&str]) -> Results {
        let mut figures = Vec::new();
        for writers in [1, 15] {
            for policy in policies {
                for name in ["ticket", "lock-free", "towpath"] {
                    figures.push((name, *policy, writers));
                }
            }
            figures.extend([("open-mpi", "own", writers), ("mpich", "own", writers)]);
        }
        let figure = |(name, waiting, writers): (&str, &str, u32)| {
            (
                RecordSubject::new("stress", name, waiting, writers + 1).with("writers", writers),
                MESSAGES_PER_S,
                vec![2e6],
            )
        };
        Results::from_figures(&figures.into_iter().map(figure).collect::<Vec<_>>(), 2)
    }

    fn plots(results: &Results) -> Vec<String> {
        by_waiting(results, "stress", |rows, suffix| {
            let figure = ("stress", "messages_per_s", "writers");
            over(
                results,
                rows,
                figure,
                &format!("Rate{suffix}"),
                |x| format!("{x:.0} writers"),
                |y| format!("{y}"),
            )
        })
    }

    #[test]
    fn waiting_policies_have_a_plot_each() {
        let one = plots(&results(&["adaptive"]));
        assert!(one.len() == 1 && one[0].contains("15 writers"));
        let two = plots(&results(&["adaptive", "park"]));
        assert_eq!(two.len(), 2);
        assert!(two[1].contains("park waiting") && two[1].contains("open-mpi"));
    }

    #[test]
    fn bars_exist_for_what_was_measured() {
        let results = results(&["adaptive"]);
        assert!(times(&results, "stress", "messages_per_s", "Rates").unwrap().contains("lock-free"));
        assert_eq!(times(&results, "stress", "gap_ns", "Gaps"), None);
    }

    #[test]
    fn contenders_look_alike_everywhere_and_differ() {
        let results = results(&["adaptive"]);
        let rows = results.rows("stress");
        let mut looks: Vec<(usize, bool)> =
            rows.iter().map(|r| look(&results, r)).map(|l| (l.colour, l.dashed)).collect();
        let count = looks.len();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), count);
    }
}
