//! Tables and plots of figures by message size, and by number of processes: for the
//! experiments whose figures are curves of several rivals.

use crate::format::{bandwidth, digits, nanoseconds, size};
use crate::ladder::Version;
use crate::record::metrics::{
    ALLREDUCE_US, ALLTOALL_US, BARRIER_US, BYTES_PER_S, MANY_TO_ONE_PER_S, MESSAGES_PER_S, ROUND_TRIP_US,
    TEST_US,
};
use crate::record::{Metric, Record};
use crate::report::{Line, Look, Value, lines};
use crate::results::Results;
use crate::tables::{Cell, Kind, Table, mark_best};

/// One of several that are compared.
struct Rival {
    /// As the records call it.
    algorithm: &'static str,
    /// What its records' field `over` must say; nothing if they have none.
    over: Option<&'static str>,
    /// What their field `waiting` must say; nothing if it may be anything.
    waiting: Option<&'static str>,
    /// As tables and plots call it.
    label: String,
    look: Look,
}

/// An experiment whose figures are shown like this.
struct Shown {
    experiment: &'static str,
    title: &'static str,
    note: &'static str,
    /// Which figures of the paper the plots are the counterparts of.
    figures: [&'static str; 2],
    /// Only what was measured with another `waiting` than our own too.
    by_waiting: bool,
    rivals: Vec<Rival>,
}

fn ladder() -> Shown {
    let rival = |(n, version): (usize, &Version)| Rival {
        algorithm: version.name(),
        over: None,
        waiting: None,
        label: version.name().into(),
        look: Look { colour: n, dashed: *version != Version::Towpath, bold: *version == Version::Towpath },
    };
    Shown {
        experiment: "ladder",
        title: "The ladder",
        note: "Ping-pong between pairs of processes, all pairs at one time; medians. The paper's four versions (M, Sections 4 to 7): System V semaphores; packet slots and semaphores; test&set \
               locks; packet slots and test&set locks. Then Towpath's endpoints.",
        figures: ["M figure 7, left", "M figure 7, right"],
        by_waiting: false,
        rivals: Version::ALL.iter().enumerate().map(rival).collect(),
    }
}

fn mpi() -> Shown {
    let mut rivals = Vec::new();
    for (n, algorithm) in ["mpich", "open-mpi", "intel"].into_iter().enumerate() {
        for (over, ours) in [("towpath", true), ("own", false)] {
            rivals.push(Rival {
                algorithm,
                over: Some(over),
                waiting: Some(if ours { "adaptive" } else { "own" }),
                label: format!("{algorithm} over {}", if ours { "Towpath" } else { "its own" }),
                look: Look { colour: n, dashed: !ours, bold: ours },
            });
        }
    }
    Shown {
        experiment: "mpi",
        title: "MPI",
        note: "Each MPI over Towpath's libfabric provider and over its own shared memory, in interleaved rounds; medians.",
        figures: ["as M figures 1 and 4 to 6, left", "as M figures 1 and 4 to 6, right"],
        by_waiting: false,
        rivals,
    }
}

fn waiting() -> Shown {
    let mut rivals = Vec::new();
    for (n, algorithm) in ["mpich", "open-mpi", "intel"].into_iter().enumerate() {
        for (waiting, how) in
            [("adaptive", "adaptive"), ("alone", "as with a core each"), ("shared", "as with shared cores")]
        {
            rivals.push(Rival {
                algorithm,
                over: Some("towpath"),
                waiting: Some(waiting),
                label: format!("{algorithm} over Towpath, {how}"),
                look: Look { colour: n, dashed: waiting != "adaptive", bold: waiting == "adaptive" },
            });
        }
    }
    Shown {
        experiment: "mpi",
        title: "MPI: how ranks wait",
        note: "The provider waits by itself as the number of processes and cores asks for; beside it what the same costs if it always looked on as with a core each, or always gave way as where cores \
               are shared (`TOWPATH_OVERSUBSCRIBED`).",
        figures: ["", ""],
        by_waiting: true,
        rivals,
    }
}

/// All of them.
fn all_shown() -> [Shown; 3] {
    [ladder(), mpi(), waiting()]
}

impl Rival {
    fn is(&self, record: &Record) -> bool {
        record.algorithm == self.algorithm
            && record.text("over") == self.over
            && self.waiting.is_none_or(|w| record.waiting == w)
    }
}

/// Values once, in order.
fn in_order<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all: Vec<T> = values.collect();
    all.sort_unstable();
    all.dedup();
    all
}

impl Shown {
    fn find<'a>(
        &self,
        results: &'a Results,
        metric: Metric,
        rival: &Rival,
        procs: u32,
        bytes: Option<u64>,
    ) -> Option<&'a Record> {
        results.records.iter().find(|r| {
            r.experiment == self.experiment
                && r.metric == metric.name
                && r.procs == procs
                && r.number("bytes") == bytes
                && rival.is(r)
        })
    }

    /// The records of a metric that have a place here.
    fn of<'a>(&self, results: &'a Results, metric: Metric) -> impl Iterator<Item = &'a Record> {
        let by_waiting = self.by_waiting;
        results
            .of(self.experiment, metric.name)
            .filter(move |r| !by_waiting || ["alone", "shared"].contains(&r.waiting.as_str()))
    }

    fn procs(&self, results: &Results, metric: Metric) -> Vec<u32> {
        in_order(self.of(results, metric).map(|r| r.procs))
    }

    fn sizes(&self, results: &Results, metric: Metric, procs: u32) -> Vec<u64> {
        let all = self.of(results, metric).filter(|r| r.procs == procs);
        in_order(all.filter_map(|r| r.number("bytes")))
    }

    /// The rivals that have any figure.
    fn present(&self, results: &Results) -> Vec<&Rival> {
        let here =
            |rival: &&Rival| results.records.iter().any(|r| r.experiment == self.experiment && rival.is(r));
        self.rivals.iter().filter(here).collect()
    }

    /// A table with a column for each of some figures.
    fn table(
        &self,
        results: &Results,
        title: String,
        unit: &str,
        columns: Vec<(String, Metric, u32, Option<u64>)>,
    ) -> Option<Table> {
        let rivals = self.present(results);
        let mut rows: Vec<Vec<Cell>> = rivals
            .iter()
            .map(|rival| {
                let cells = columns.iter().map(|(_, metric, procs, bytes)| {
                    let scale = scale(*metric);
                    match self.find(results, *metric, rival, *procs, *bytes) {
                        Some(r) => Cell {
                            text: digits(r.value / scale),
                            detail: format!("{} to {}", digits(r.min / scale), digits(r.max / scale)),
                            kind: Kind::Figure,
                        },
                        None => Cell::new("–", Kind::Missing),
                    }
                });
                std::iter::once(Cell::new(rival.label.clone(), Kind::Text)).chain(cells).collect()
            })
            .collect();
        for (column, (_, metric, procs, bytes)) in columns.iter().enumerate() {
            let value = |rival: &&Rival| self.find(results, *metric, rival, *procs, *bytes).map(|r| r.value);
            let values: Vec<Option<f64>> = rivals.iter().map(value).collect();
            mark_best(&mut rows, column + 1, &values, metric.unit == "us");
        }
        let header: Vec<String> =
            std::iter::once(unit.to_string()).chain(columns.into_iter().map(|c| c.0)).collect();
        let table = Table { experiment: self.experiment, title, note: self.note.into(), header, rows };
        (table.header.len() > 1 && !table.rows.is_empty()).then_some(table)
    }

    fn tables(&self, results: &Results) -> Vec<Table> {
        let mut tables = Vec::new();
        for procs in self.procs(results, ROUND_TRIP_US) {
            for (metric, unit, what) in
                [(ROUND_TRIP_US, "µs", "round trip"), (BYTES_PER_S, "GB/s", "bandwidth")]
            {
                let column = |bytes| (size(bytes), metric, procs, Some(bytes));
                let columns = self.sizes(results, metric, procs).into_iter().map(column).collect();
                let title = format!("{}, {procs} processes: {what} by size", self.title);
                tables.extend(self.table(results, title, unit, columns));
            }
        }
        for (metric, unit, what) in [
            (MESSAGES_PER_S, "million/s", "one-way messages"),
            (MANY_TO_ONE_PER_S, "million/s", "messages from many to one"),
            (BARRIER_US, "µs", "barrier"),
            (ALLREDUCE_US, "µs", "allreduce of 8 bytes"),
            (ALLTOALL_US, "µs", "alltoall of 1 KB"),
            (TEST_US, "µs", "a test in vain after each microsecond of work"),
        ] {
            let column = |procs: u32| (format!("{procs} processes"), metric, procs, None);
            let columns = self.procs(results, metric).into_iter().map(column).collect();
            tables.extend(self.table(results, format!("{}: {what}", self.title), unit, columns));
        }
        tables
    }

    fn plots(&self, results: &Results) -> Vec<String> {
        let mut plots = Vec::new();
        for procs in self.procs(results, ROUND_TRIP_US) {
            for (metric, what, figure, scale) in [
                (ROUND_TRIP_US, "Round trip", self.figures[0], 1e3),
                (BYTES_PER_S, "Bandwidth", self.figures[1], 1.0),
            ] {
                let curve = |rival: &&Rival| Line {
                    label: rival.label.clone(),
                    points: self
                        .sizes(results, metric, procs)
                        .into_iter()
                        // The axis is logarithmic.
                        .filter(|&bytes| bytes > 0)
                        .filter_map(|bytes| {
                            let r = self.find(results, metric, rival, procs, Some(bytes))?;
                            let [value, min, max] = [r.value, r.min, r.max].map(|v| v * scale);
                            Some((bytes as f64, Value { value, min, max }))
                        })
                        .collect(),
                    look: rival.look,
                };
                let curves: Vec<Line> =
                    self.present(results).iter().map(curve).filter(|l| l.points.len() > 1).collect();
                if curves.is_empty() {
                    continue;
                }
                let title = format!("{} by size, {procs} processes ({figure})", what);
                let format = |v| if metric == ROUND_TRIP_US { nanoseconds(v) } else { bandwidth(v) };
                plots.push(lines(&title, &curves, |x| size(x as u64), format));
            }
        }
        plots
    }
}

/// What a figure is divided by for the unit in which it is shown.
fn scale(metric: Metric) -> f64 {
    match metric.unit {
        "us" => 1.0,
        "bytes/s" => 1e9,
        _ => 1e6,
    }
}

/// The tables that the results have figures for.
pub fn tables(results: &Results) -> Vec<Table> {
    all_shown().iter().flat_map(|shown| shown.tables(results)).collect()
}

/// The plots of an experiment, if it is one of these.
pub fn plots(results: &Results, experiment: &str) -> Vec<String> {
    all_shown().iter().filter(|s| s.experiment == experiment).flat_map(|s| s.plots(results)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::made_up;
    use crate::record::Subject;

    #[test]
    fn rivals_have_a_row_each_and_the_best_is_marked() {
        let subject = |over: &str, waiting: &str| Subject::new("mpi", "mpich", waiting, 2).with("over", over);
        let results = made_up(
            vec![
                (subject("towpath", "adaptive").with("bytes", 8), ROUND_TRIP_US, vec![0.5, 0.6]),
                (subject("own", "own").with("bytes", 8), ROUND_TRIP_US, vec![1.5, 1.4]),
                (subject("towpath", "adaptive").with("bytes", 1024), ROUND_TRIP_US, vec![0.7]),
                (subject("own", "own").with("bytes", 1024), ROUND_TRIP_US, vec![1.7]),
                (subject("own", "own"), BARRIER_US, vec![9.0]),
                (subject("towpath", "shared").with("bytes", 8), ROUND_TRIP_US, vec![2.5]),
            ],
            2,
        );
        let tables = tables(&results);
        assert_eq!(tables.len(), 3, "{tables:?}");
        assert_eq!(tables[0].header, ["µs", "8 B", "1 KB"]);
        assert_eq!(tables[0].rows.len(), 2);
        assert_eq!((tables[0].rows[0][1].kind, tables[0].rows[1][1].kind), (Kind::Best, Kind::Figure));
        assert_eq!(tables[1].rows[0][1].kind, Kind::Missing);
        // How one waits is shown for what was measured so, with our own way beside it.
        assert_eq!((tables[2].header.len(), tables[2].rows.len()), (2, 2));
        assert_eq!(tables[2].rows[0][1].kind, Kind::Best);
        let plots = plots(&results, "mpi");
        assert!(plots.len() == 1 && plots[0].contains("mpich over Towpath"));
        assert!(super::plots(&results, "ladder").is_empty());
    }
}
