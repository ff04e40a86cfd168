//! What the report shows of the ladder: latency and bandwidth by size, the versions' curves superimposed as in the paper's Figure 7.

use super::Version;
use crate::format::{bandwidth, digits, nanoseconds, size};
use crate::record::Record;
use crate::record::metrics::{BYTES_PER_S, ROUND_TRIP_US};
use crate::report::{Line, Look, Value, lines};
use crate::results::Results;
use crate::tables::{Cell, Kind, Table, mark_best};

/// A version's record of a metric, with so many processes, at that size.
fn find<'a>(
    results: &'a Results,
    metric: &'a str,
    procs: u32,
    version: Version,
    bytes: u64,
) -> Option<&'a Record> {
    results
        .of("ladder", metric)
        .find(|r| r.procs == procs && r.algorithm == version.name() && r.number("bytes") == Some(bytes))
}

/// With how many processes it was climbed.
fn procs(results: &Results) -> Vec<u32> {
    let mut procs: Vec<u32> = results.of("ladder", ROUND_TRIP_US.name).map(|r| r.procs).collect();
    procs.sort_unstable();
    procs.dedup();
    procs
}

/// The sizes that were measured with so many processes.
fn sizes(results: &Results, metric: &str, procs: u32) -> Vec<u64> {
    let all = results.of("ladder", metric).filter(|r| r.procs == procs);
    let mut sizes: Vec<u64> = all.filter_map(|r| r.number("bytes")).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The tables: for each number of processes one of latencies and one of bandwidths.
pub fn tables(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for procs in procs(results) {
        for (metric, unit, scale, title, smallest) in [
            (ROUND_TRIP_US.name, "µs", 1.0, "round trip", true),
            (BYTES_PER_S.name, "GB/s", 1e9, "bandwidth", false),
        ] {
            let sizes = sizes(results, metric, procs);
            let mut rows: Vec<Vec<Cell>> = Version::ALL
                .iter()
                .map(|v| {
                    let cells = sizes.iter().map(|&bytes| match find(results, metric, procs, *v, bytes) {
                        Some(r) => Cell {
                            text: digits(r.value / scale),
                            detail: format!("{} to {}", digits(r.min / scale), digits(r.max / scale)),
                            kind: Kind::Figure,
                        },
                        None => Cell::new("–", Kind::Missing),
                    });
                    std::iter::once(Cell::new(v.name(), Kind::Text)).chain(cells).collect()
                })
                .collect();
            for (column, &bytes) in sizes.iter().enumerate() {
                let values: Vec<Option<f64>> = Version::ALL
                    .iter()
                    .map(|v| find(results, metric, procs, *v, bytes).map(|r| r.value))
                    .collect();
                mark_best(&mut rows, column + 1, &values, smallest);
            }
            let header = std::iter::once(unit.to_string()).chain(sizes.iter().map(|&b| size(b)));
            tables.push(Table {
                experiment: "ladder",
                title: format!("The ladder, {procs} processes: {title} by size"),
                note: "Ping-pong between pairs of processes, all pairs at one time; medians. The paper's four versions (M, Sections 4 to 7): System V semaphores; packet slots and \
                       semaphores; test&set locks; packet slots and test&set locks. Then Towpath's endpoints."
                    .into(),
                header: header.collect(),
                rows,
            });
        }
    }
    tables.retain(|t| t.header.len() > 1);
    tables
}

/// The plots: for each number of processes one of latencies and one of bandwidths.
pub fn plots(results: &Results) -> Vec<String> {
    let mut plots = Vec::new();
    for procs in procs(results) {
        let curves = |metric: &'static str, scale: f64| -> Vec<Line> {
            let curve = |(n, version): (usize, &Version)| Line {
                label: version.name().into(),
                points: sizes(results, metric, procs)
                    .into_iter()
                    // The axis is logarithmic.
                    .filter(|&bytes| bytes > 0)
                    .filter_map(|bytes| {
                        let r = find(results, metric, procs, *version, bytes)?;
                        let value = Value { value: r.value * scale, min: r.min * scale, max: r.max * scale };
                        Some((bytes as f64, value))
                    })
                    .collect(),
                look: Look {
                    colour: n,
                    dashed: *version != Version::Towpath,
                    bold: *version == Version::Towpath,
                },
            };
            Version::ALL.iter().enumerate().map(curve).filter(|l| !l.points.is_empty()).collect()
        };
        let x = |x: f64| size(x as u64);
        let (times, rates) = (curves(ROUND_TRIP_US.name, 1e3), curves(BYTES_PER_S.name, 1.0));
        if !times.is_empty() {
            plots.push(lines(
                &format!("Round trip by size, {procs} processes (M figure 7, left)"),
                &times,
                x,
                nanoseconds,
            ));
        }
        if !rates.is_empty() {
            plots.push(lines(
                &format!("Bandwidth by size, {procs} processes (M figure 7, right)"),
                &rates,
                x,
                bandwidth,
            ));
        }
    }
    plots
}
