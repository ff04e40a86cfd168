//! Which plots the report has, and how their parts look.

use super::svg::{Bar, Line, Look, Value, bars, lines};
use crate::format::{bandwidth, message_rate, nanoseconds, size};
use crate::record::Record;
use crate::results::{Results, Row};
use crate::transport::{CLAIM_ALGORITHMS, OURS};

/// How many colours there are for the peers, after those of our algorithms.
const PEER_COLOURS: usize = 6;
/// The colour of the floor, after all others.
const FLOOR_COLOUR: usize = CLAIM_ALGORITHMS.len() + PEER_COLOURS;

fn value(record: &Record) -> Value {
    Value { value: record.value, min: record.min, max: record.max }
}

/// The same look for the same algorithm or peer in all plots.
fn look(results: &Results, row: &Row) -> Look {
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

/// The plots of one experiment.
pub fn plots(results: &Results, experiment: &str) -> Vec<String> {
    match experiment {
        "floor" => copying(results),
        "logp" => [
            ("round_trip_ns", "Round trip of a request and its reply"),
            ("gap_ns", "Gap: from one message to the next in a stream"),
        ]
        .into_iter()
        .filter_map(|(metric, title)| times(results, metric, title))
        .collect(),
        "stress" => by_waiting(results, "stress", |rows, suffix| {
            over(
                results,
                rows,
                ("stress", "messages_per_s", "writers"),
                &format!("Messages received each second, by number of writers{suffix}"),
                |x| format!("{x:.0} writer{}", if x == 1.0 { "" } else { "s" }),
                message_rate,
            )
        }),
        "bulk" => by_waiting(results, "bulk", |rows, suffix| {
            over(
                results,
                rows,
                ("bulk", "bytes_per_s", "bytes"),
                &format!("Bandwidth by size of a transfer{suffix}"),
                |x| size(x as u64),
                bandwidth,
            )
        }),
        "structures" => crate::structures::shown::plots(results),
        other => crate::by_size::plots(results, other),
    }
}

fn copying(results: &Results) -> Vec<String> {
    let points: Vec<(f64, Value)> = results
        .of("floor", "memcpy_bytes_per_s")
        .filter_map(|r| Some((r.number("bytes")? as f64, value(r))))
        .collect();
    if points.len() < 2 {
        return Vec::new();
    }
    let line = Line { label: "memcpy".into(), points, look: Look { colour: 0, dashed: false, bold: false } };
    vec![lines("Copying within one process, by size", &[line], |x| size(x as u64), bandwidth)]
}

fn times(results: &Results, metric: &str, title: &str) -> Option<String> {
    let rows = results.rows("logp");
    let floor = rows.iter().find(|r| r.is_floor()).and_then(|r| results.get("logp", metric, r, &[]));
    let all: Vec<Bar> = rows
        .iter()
        .filter(|r| !r.is_floor())
        .filter_map(|r| {
            let record = results.get("logp", metric, r, &[])?;
            Some(Bar { label: r.label(), value: value(record), look: look(results, r) })
        })
        .collect();
    let mark = floor.map(|f| (f.value, "floor, two lines"));
    (!all.is_empty()).then(|| bars(title, &all, nanoseconds, mark))
}

/// One plot for each of our waiting policies, each with all peers and the floor: all in
/// one would be too many lines.
fn by_waiting(
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

fn over(
    results: &Results,
    rows: &[Row],
    (experiment, metric, key): (&str, &str, &str),
    title: &str,
    format_x: impl Fn(f64) -> String,
    format_y: impl Fn(f64) -> String,
) -> Option<String> {
    let all: Vec<Line> = rows
        .iter()
        .filter_map(|row| {
            let points: Vec<(f64, Value)> = results
                .numbers(experiment, key)
                .into_iter()
                .filter_map(|n| Some((n as f64, value(results.get(experiment, metric, row, &[(key, n)])?))))
                .collect();
            (!points.is_empty()).then(|| Line { label: row.label(), points, look: look(results, row) })
        })
        .collect();
    (!all.is_empty()).then(|| lines(title, &all, format_x, format_y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;

    #[test]
    fn the_experiments_with_something_to_see_have_plots() {
        let results = example_results();
        for (experiment, count) in [("floor", 1), ("logp", 2), ("stress", 1), ("bulk", 1), ("crash", 0)] {
            assert_eq!(plots(&results, experiment).len(), count, "{experiment}");
        }
        assert!(plots(&results, "bulk")[0].contains("memcpy"));
        assert!(plots(&results, "stress")[0].contains("15 writers"));
    }

    #[test]
    fn several_waiting_policies_have_a_plot_each() {
        let mut results = example_results();
        let more: Vec<Record> = results
            .records
            .iter()
            .filter(|r| r.waiting == "adaptive")
            .map(|r| Record { waiting: "park".into(), ..r.clone() })
            .collect();
        results.records.extend(more);
        let plots = plots(&results, "stress");
        assert_eq!(plots.len(), 2);
        assert!(plots[1].contains("park waiting") && plots[1].contains("open-mpi"));
    }

    #[test]
    fn contenders_look_alike_everywhere_and_differ_from_each_other() {
        let results = example_results();
        let rows = results.rows("stress");
        let mut looks: Vec<(usize, bool)> =
            rows.iter().map(|r| look(&results, r)).map(|l| (l.colour, l.dashed)).collect();
        let count = looks.len();
        looks.sort_unstable();
        looks.dedup();
        assert_eq!(looks.len(), count);
    }
}
