//! Tables and plots of `locks`, `rw-locks`, `queues`, `barriers` and `counter`.

use std::collections::BTreeSet;

use towpath_report::format::digits;
use towpath_report::record::Metric;
use towpath_report::record::Record;
use towpath_report::record::metrics::{
    ACQUISITIONS_PER_S, BARRIER_US, CONTEXT_SWITCHES, CPU_SECONDS, FAIRNESS, LEAST_SHARE, MESSAGES_PER_S,
    OPERATIONS_PER_S, P50_US, P99_US, P999_US, SLOWEST_US,
};
use towpath_report::results::Results;
use towpath_report::svg::{Look, PlotLine, PlotValue, lines};
use towpath_report::table::{Cell, Kind, Table, header, mark_best};
use towpath_report::{ADAPTIVE, Section};

use crate::structures::Sharing;

/// Table of one experiment: a metric by the number of participants.
#[derive(Clone, Copy)]
struct PrimitiveTable {
    experiment: &'static str,
    metric: Metric,
    /// Unit of a figure in that of the metric.
    scale: f64,
    what: &'static str,
    note: &'static str,
    is_best_smallest: bool,
}

const OF_LOCKS: [PrimitiveTable; 4] = [
    PrimitiveTable {
        experiment: "locks",
        metric: ACQUISITIONS_PER_S,
        scale: 1e6,
        what: "million acquisitions a second",
        note: "Of all participants together, which work in the critical section and between two (--critical-section, --between). `mutex` is `towpath::Mutex`, between processes the one by name.",
        is_best_smallest: false,
    },
    PrimitiveTable {
        experiment: "locks",
        metric: LEAST_SHARE,
        scale: 1.0,
        what: "smallest share",
        note: "Acquisitions of the participant that got fewest, by those of the mean.",
        is_best_smallest: false,
    },
    PrimitiveTable {
        experiment: "locks",
        metric: P999_US,
        scale: 1.0,
        what: "99.9th percentile of an acquisition, µs",
        note: "One acquisition in a thousand waits longer.",
        is_best_smallest: true,
    },
    PrimitiveTable {
        experiment: "locks",
        metric: CPU_SECONDS,
        scale: 1.0,
        what: "processor seconds for a million acquisitions",
        note: "With the work inside and between.",
        is_best_smallest: true,
    },
];

const OF_QUEUES: [PrimitiveTable; 2] = [
    PrimitiveTable {
        experiment: "queues",
        metric: MESSAGES_PER_S,
        scale: 1e6,
        what: "million values a second",
        note: "Values of 8 bytes from producers to one consumer, through 1,024 places.",
        is_best_smallest: false,
    },
    PrimitiveTable {
        experiment: "queues",
        metric: LEAST_SHARE,
        scale: 1.0,
        what: "smallest share of a producer",
        note: "Values of the producer that sent fewest, by those of the mean.",
        is_best_smallest: false,
    },
];

const OF_BARRIERS: [PrimitiveTable; 2] = [
    PrimitiveTable {
        experiment: "barriers",
        metric: BARRIER_US,
        scale: 1.0,
        what: "an episode, µs",
        note: "With the work between two (--between). `robust-barrier` is `World::barrier_of`, which survives deaths.",
        is_best_smallest: true,
    },
    PrimitiveTable {
        experiment: "barriers",
        metric: CPU_SECONDS,
        scale: 1.0,
        what: "processor seconds for a million arrivals",
        note: "With the work between.",
        is_best_smallest: true,
    },
];

const OF_COUNTERS: [PrimitiveTable; 2] = [
    PrimitiveTable {
        experiment: "counter",
        metric: OPERATIONS_PER_S,
        scale: 1e6,
        what: "million increments a second",
        note: "Of all participants together, with the work between two (--between). `atomics`: fetch-and-add; `ll-sc`: load-linked and store-conditional, here by compare-and-swap; `fetch-op`: fetch-and-add that orders all; the others: a word under that lock.",
        is_best_smallest: false,
    },
    PrimitiveTable {
        experiment: "counter",
        metric: LEAST_SHARE,
        scale: 1.0,
        what: "smallest share",
        note: "Increments of the participant that made fewest, by those of the mean.",
        is_best_smallest: false,
    },
];

/// Sections of `locks`.
pub fn of_locks(results: &Results) -> Vec<Section> {
    sections(results, &OF_LOCKS)
}

/// Sections of `rw-locks`.
pub fn of_rw_locks(results: &Results) -> Vec<Section> {
    let mut tables = OF_LOCKS.map(|table| PrimitiveTable { experiment: "rw-locks", ..table });
    tables[0].note = "Of all participants together; 19 of 20 acquisitions read. `rw-lock` is `towpath::RwLock`, between processes the one by name.";
    sections(results, &tables)
}

/// Sections of `queues`.
pub fn of_queues(results: &Results) -> Vec<Section> {
    sections(results, &OF_QUEUES)
}

/// Sections of `barriers`.
pub fn of_barriers(results: &Results) -> Vec<Section> {
    sections(results, &OF_BARRIERS)
}

/// Sections of `counter`.
pub fn of_counters(results: &Results) -> Vec<Section> {
    sections(results, &OF_COUNTERS)
}

/// Rival in a table: its name, its policy, and its copies.
type Rival = (String, String, String);

fn rival(record: &Record) -> Rival {
    let copies = match (record.number("copies"), record.text("scheduler")) {
        (None | Some(1), _) => String::new(),
        (Some(copies), scheduler) => format!("{copies} copies, {}", scheduler.unwrap_or_default()),
    };
    (record.algorithm.clone(), record.waiting.clone(), copies)
}

fn label((name, waiting, copies): &Rival) -> String {
    let waiting = if matches!(waiting.as_str(), ADAPTIVE | "own") { "" } else { waiting };
    let parts = [name.as_str(), waiting, copies].into_iter().filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(", ")
}

fn of<'a>(results: &'a Results, figures: &PrimitiveTable, sharing: Sharing) -> Vec<&'a Record> {
    let all = results.of(figures.experiment, figures.metric.name);
    all.filter(|r| r.text("sharing") == Some(sharing.name())).collect()
}

fn sections(results: &Results, list: &[PrimitiveTable]) -> Vec<Section> {
    let mut sections = Vec::new();
    for sharing in Sharing::ALL {
        for (n, figures) in list.iter().enumerate() {
            let records = of(results, figures, sharing);
            if records.is_empty() {
                continue;
            }
            let mut section = Section::new(table(figures, sharing, &records));
            if n == 0 {
                section.plots.push(plot(figures, sharing, &records));
            }
            sections.push(section);
        }
        if let Some(first) = list.first() {
            let most = of(results, first, sharing).iter().map(|r| r.procs).max();
            sections.extend(most.map(|procs| Section::new(details(results, first, sharing, procs))));
        }
    }
    sections
}

/// Rivals in the order in which they were measured.
fn rivals(records: &[&Record]) -> Vec<Rival> {
    let mut rivals: Vec<Rival> = Vec::new();
    for record in records {
        let rival = rival(record);
        if !rivals.contains(&rival) {
            rivals.push(rival);
        }
    }
    rivals
}

fn find<'a>(records: &[&'a Record], of: &Rival, procs: u32) -> Option<&'a Record> {
    records.iter().find(|r| r.procs == procs && rival(r) == *of).copied()
}

fn table(figures: &PrimitiveTable, sharing: Sharing, records: &[&Record]) -> Table {
    let rivals = rivals(records);
    let procs: BTreeSet<u32> = records.iter().map(|r| r.procs).collect();
    let mut rows: Vec<Vec<Cell>> = rivals
        .iter()
        .map(|rival| {
            let cells = procs.iter().map(|&n| Cell::scaled(find(records, rival, n), figures.scale));
            std::iter::once(Cell::text(label(rival))).chain(cells).collect()
        })
        .collect();
    for (column, &n) in procs.iter().enumerate() {
        let values: Vec<Option<f64>> = rivals.iter().map(|r| find(records, r, n).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, figures.is_best_smallest);
    }
    Table {
        experiment: figures.experiment,
        title: format!("{}: {}", sharing.name(), figures.what),
        note: figures.note.into(),
        header: std::iter::once(sharing.name().to_owned()).chain(procs.iter().map(u32::to_string)).collect(),
        rows,
    }
}

/// All figures with the most participants.
fn details(results: &Results, first: &PrimitiveTable, sharing: Sharing, procs: u32) -> Table {
    let columns = [P50_US, P99_US, P999_US, SLOWEST_US, FAIRNESS, LEAST_SHARE, CPU_SECONDS, CONTEXT_SWITCHES];
    let records = of(results, first, sharing);
    let rivals = rivals(&records);
    let rows = rivals.iter().filter_map(|rival| {
        find(&records, rival, procs)?;
        let cells = columns.iter().map(|metric| {
            let all: Vec<&Record> = results
                .of(first.experiment, metric.name)
                .filter(|r| r.text("sharing") == Some(sharing.name()))
                .collect();
            find(&all, rival, procs)
                .map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(r.value), Kind::Figure))
        });
        Some(std::iter::once(Cell::text(label(rival))).chain(cells).collect())
    });
    Table {
        experiment: first.experiment,
        title: format!("{procs} {}: times, fairness, costs", sharing.name()),
        note: "Times of an operation in µs; Jain's index (1: all alike); the smallest share by the mean; processor seconds for a million operations; context switches for each.".into(),
        rows: rows.collect(),
        header: header(&[
            "", "median", "p99", "p99.9", "longest", "Jain", "smallest", "seconds", "switches",
        ]),
    }
}

fn plot(figures: &PrimitiveTable, sharing: Sharing, records: &[&Record]) -> String {
    let rivals = rivals(records);
    let drawn: Vec<PlotLine> = rivals
        .iter()
        .enumerate()
        .map(|(colour, rival)| {
            let own = records.iter().filter(|r| self::rival(r) == *rival);
            let mut points: Vec<(f64, PlotValue)> = own
                .map(|r| (f64::from(r.procs), PlotValue { value: r.value, min: r.min, max: r.max }))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let bold = colour == 0;
            PlotLine { label: label(rival), points, look: Look { colour, dashed: rival.1 == "own", bold } }
        })
        .collect();
    let title = format!("{}: {}", sharing.name(), figures.what);
    lines(&title, &drawn, |x| format!("{x:.0}"), |y| digits(y / figures.scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::record::RecordSubject;

    #[test]
    fn tables_have_rows_for_rivals_and_columns_for_numbers() {
        let subject = |name: &str, waiting: &str, sharing: Sharing, procs| {
            RecordSubject::new("locks", name, waiting, procs).with("sharing", sharing.name())
        };
        let results = Results::from_figures(
            &[
                (subject("mutex", "own", Sharing::Threads, 2), ACQUISITIONS_PER_S, vec![2e6]),
                (subject("mutex", "own", Sharing::Threads, 8), ACQUISITIONS_PER_S, vec![3e6]),
                (subject("std", "own", Sharing::Threads, 8), ACQUISITIONS_PER_S, vec![4e6]),
                (subject("mcs", "park", Sharing::Processes, 8), ACQUISITIONS_PER_S, vec![1e6]),
                (
                    subject("mcs", "park", Sharing::Processes, 8).with("copies", 2).with("scheduler", "gang"),
                    ACQUISITIONS_PER_S,
                    vec![1e6],
                ),
                (subject("mutex", "own", Sharing::Threads, 8), LEAST_SHARE, vec![0.7]),
            ],
            2,
        );
        let tables: Vec<Table> = of_locks(&results).into_iter().map(|s| s.table).collect();
        assert!(tables.iter().all(|t| t.rows.iter().all(|row| row.len() == t.header.len())));
        assert_eq!(tables[0].header, ["threads", "2", "8"]);
        assert_eq!((tables[0].rows.len(), tables[0].rows[1][2].kind), (2, Kind::Best));
        assert!(tables.iter().any(|t| t.title == "8 threads: times, fairness, costs"));
        assert!(
            tables.iter().any(|t| t.title.starts_with("processes: ") && t.rows[0][0].text == "mcs, park")
        );
        assert!(tables.iter().any(|t| t.rows.iter().any(|row| row[0].text == "mcs, park, 2 copies, gang")));
        assert!(of_queues(&results).is_empty());
    }
}
