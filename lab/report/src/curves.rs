//! Tables and plots of figures by message size and by number of processes, for
//! experiments whose figures are curves of several rivals.

use crate::format::{bandwidth, digits, nanoseconds, size};
use crate::record::metrics::{
    ALLREDUCE_US, ALLTOALL_US, BARRIER_US, BYTES_PER_S, MANY_TO_ONE_PER_S, MESSAGES_PER_S, ROUND_TRIP_US,
    TEST_US,
};
use crate::record::{Metric, Record};
use crate::report::Section;
use crate::results::Results;
use crate::svg::{Look, PlotLine, PlotValue, lines};
use crate::table::{Cell, Kind, Table, mark_best};

/// Subject that is compared with others.
pub struct Rival {
    /// Its name in the records.
    pub algorithm: &'static str,
    /// The records' field `over`; `None` if they have none.
    pub over: Option<&'static str>,
    /// The records' field `waiting`; `None` if it may be anything.
    pub waiting: Option<&'static str>,
    /// Its name in tables and plots.
    pub label: String,
    /// Its look in plots.
    pub look: Look,
}

/// The curves of an experiment's rivals.
pub struct Curves {
    /// The experiment.
    pub experiment: &'static str,
    /// Beginning of each table's title.
    pub title: &'static str,
    /// Note of each table.
    pub note: &'static str,
    /// The paper's figures whose counterparts the plots of round trip and bandwidth are.
    pub figures: [&'static str; 2],
    /// True if only figures that were measured with another `waiting` than our own too
    /// are shown.
    pub by_waiting: bool,
    /// The rivals, in the order of tables.
    pub rivals: Vec<Rival>,
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

impl Curves {
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

    /// The tables that the results have figures for, with the plots before the first.
    pub fn sections(&self, results: &Results) -> Vec<Section> {
        let mut sections: Vec<Section> = self.tables(results).into_iter().map(Section::new).collect();
        if let Some(first) = sections.first_mut() {
            first.plots = self.plots(results);
        }
        sections
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
            (ALLTOALL_US, "µs", "alltoall of 1 KiB"),
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
                let curve = |rival: &&Rival| PlotLine {
                    label: rival.label.clone(),
                    points: self
                        .sizes(results, metric, procs)
                        .into_iter()
                        // The axis is logarithmic.
                        .filter(|&bytes| bytes > 0)
                        .filter_map(|bytes| {
                            let r = self.find(results, metric, rival, procs, Some(bytes))?;
                            let [value, min, max] = [r.value, r.min, r.max].map(|v| v * scale);
                            Some((bytes as f64, PlotValue { value, min, max }))
                        })
                        .collect(),
                    look: rival.look,
                };
                let curves: Vec<PlotLine> =
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

/// Unit in which a metric is shown, as a part of its own unit.
fn scale(metric: Metric) -> f64 {
    match metric.unit {
        "us" => 1.0,
        "bytes/s" => 1e9,
        _ => 1e6,
    }
}
