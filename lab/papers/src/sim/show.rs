//! Tables and plots of simulated machines.

use std::fmt::Write as _;
use std::path::Path;

use super::Failures;
use towpath_host::Error;
use towpath_report::console::render_table;
use towpath_report::files::write_files;
use towpath_report::format::{bandwidth, digits, in_unit, nanoseconds, size};
use towpath_report::page::plain_page;
use towpath_report::record::{Metric, Record, metrics, plainly};
use towpath_report::svg::{Look, PlotLine, PlotValue, lines};
use towpath_report::table::{Cell, Kind, Table, mark_best};
use towpath_report::{Results, Section};

/// The counts that tables show, with their heads.
const COUNTS: [(&str, &str); 20] = [
    ("SC fail", metrics::FAILED_CONDITIONALS.name),
    ("upgrade", metrics::UPGRADES.name),
    ("inval", metrics::INVALIDATIONS.name),
    ("seen", metrics::INVALIDATIONS_RECEIVED.name),
    ("interv", metrics::INTERVENTIONS.name),
    ("miss", metrics::MISSES.name),
    ("f-op", metrics::FETCH_OPS.name),
    ("message", metrics::NETWORK_MESSAGES.name),
    ("nack", metrics::REFUSALS.name),
    ("busy", metrics::HOME_OCCUPANCY.name),
    ("switch", metrics::CONTEXT_SWITCHES.name),
    ("node", metrics::NODES_PASSED.name),
    ("DCAS fail", metrics::FAILED_DOUBLES.name),
    ("count", metrics::ACTIVE_CHANGES.name),
    ("hit", metrics::HIT_RATE.name),
    ("bus", metrics::BUS_HELD.name),
    ("interrupt", metrics::MESSAGE_INTERRUPTS.name),
    ("inside", metrics::INTERRUPTS_INSIDE.name),
    ("local idle", metrics::LOCAL_IDLE.name),
    ("held", metrics::REMOTE_BUSY.name),
];

/// Figures of messages between two processors, with their heads.
const SHORT_MESSAGES: [(&str, &str); 6] = [
    ("L", metrics::LATENCY.name),
    ("o_s", metrics::SEND_OVERHEAD.name),
    ("o_r", metrics::RECEIVE_OVERHEAD.name),
    ("g", metrics::GAP.name),
    ("RTT", metrics::ROUND_TRIP.name),
    ("bandwidth", metrics::BYTES_PER_S.name),
];

/// Misses by distance.
const DISTANCES: [(&str, &str); 6] = [
    ("0", metrics::LOCAL_MISSES.name),
    ("1", metrics::MISSES_1.name),
    ("2", metrics::MISSES_2.name),
    ("3", metrics::MISSES_3.name),
    ("4", metrics::MISSES_4.name),
    ("5", metrics::MISSES_5.name),
];

/// The difference of a table from the next: the way of waiting, and all that varies but
/// the algorithm and the processors.
fn group(record: &Record, by_work: bool) -> String {
    let mut text = format!("{} waiting", record.waiting);
    // Work that is told in cycles is told.
    let by_work = by_work && !record.extra.contains_key("work_cycles");
    for (key, value) in record.extra.iter().filter(|(k, _)| by_work || *k != "work_ns") {
        let _ = write!(text, ", {key} {}", plainly(value));
    }
    text
}

/// A plot over the processors, a line for each algorithm; those at memory are dashed.
pub(crate) fn by_processors(
    title: &str,
    algorithms: &[&str],
    procs: &[u32],
    value: impl Fn(&str, u32) -> Option<PlotValue>,
    format: impl Fn(f64) -> String,
) -> String {
    by_processors_beside(title, algorithms, procs, value, &[], format)
}

/// An algorithm's points of a paper's figure, by processors.
pub(crate) type OfPaper<'a> = (&'a str, Vec<(u32, f64)>);

/// A plot like [`by_processors`], with points of the paper's figure: dashed, in the
/// algorithm's colour.
pub(crate) fn by_processors_beside(
    title: &str,
    algorithms: &[&str],
    procs: &[u32],
    value: impl Fn(&str, u32) -> Option<PlotValue>,
    paper: &[OfPaper<'_>],
    format: impl Fn(f64) -> String,
) -> String {
    let curve = |(n, name): (usize, &&str)| PlotLine {
        label: name.to_string(),
        points: procs.iter().filter_map(|&p| Some((f64::from(p), value(name, p)?))).collect(),
        look: Look { colour: n % 15, dashed: name.contains("fetch-op"), bold: false },
    };
    let theirs = |(name, points): &OfPaper<'_>| PlotLine {
        label: format!("paper: {}", name.trim_start_matches("two-ended/")),
        points: points.iter().map(|&(p, value)| (f64::from(p), PlotValue::from(value))).collect(),
        look: Look {
            colour: algorithms.iter().position(|a| a == name).unwrap_or(algorithms.len()) % 15,
            dashed: true,
            bold: false,
        },
    };
    let curves = algorithms.iter().enumerate().map(curve).chain(paper.iter().map(theirs));
    lines(title, &curves.collect::<Vec<_>>(), |x| format!("{x:.0} P"), format)
}

/// Distinct values in the order of their first appearance.
pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut all = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all
}

fn cell(record: Option<&&Record>) -> Cell {
    let Some(r) = record else { return Cell::new("–", Kind::Missing) };
    let text = if r.unit == "count" { digits(r.value) } else { in_unit(r.value, &r.unit) };
    let detail = format!("{} to {}, {} seeds", digits(r.min), digits(r.max), r.runs);
    Cell { text, detail, kind: Kind::Figure }
}

/// The tables and plots of one experiment's records among the results.
pub fn sections_of(experiment: &str, results: &Results) -> Vec<Section> {
    let records: Vec<Record> =
        results.records.iter().filter(|r| r.experiment == experiment).cloned().collect();
    sections(&records)
}

/// The tables and plots of an experiment's records.
pub fn sections(records: &[Record]) -> Vec<Section> {
    let mut sections = Vec::new();
    for (experiment, machine) in distinct(records.iter().map(|r| (&r.experiment, &r.machine))) {
        let all: Vec<&Record> =
            records.iter().filter(|r| r.experiment == *experiment && r.machine == *machine).collect();
        if all.iter().any(|r| r.number("bytes").is_some()) {
            sections.extend(by_bytes(&format!("{experiment} on {machine}"), &all));
            continue;
        }
        let by_work = distinct(all.iter().map(|r| r.number("work_ns"))).len() > 1;
        for group_name in distinct(all.iter().map(|r| group(r, by_work))) {
            let some: Vec<&Record> =
                all.iter().copied().filter(|r| group(r, by_work) == group_name).collect();
            let head = format!("{experiment} on {machine}, {group_name}");
            sections.extend(times(&head, &some));
            sections.extend(short_messages(&head, &some));
            sections.push(counts(&head, &some));
            sections.extend(distances(&head, &some));
        }
    }
    sections
}

/// A table and a plot of each figure by the length of messages.
fn by_bytes(head: &str, records: &[&Record]) -> Vec<Section> {
    let algorithms = distinct(records.iter().map(|r| r.algorithm.as_str()));
    let sizes = distinct(records.iter().filter_map(|r| r.number("bytes")));
    let section = |(metric, what): (Metric, &str)| {
        let of = |a: &str, bytes: u64| {
            records
                .iter()
                .find(|r| r.algorithm == a && r.metric == metric.name && r.number("bytes") == Some(bytes))
        };
        let sizes: Vec<u64> =
            sizes.iter().copied().filter(|&b| algorithms.iter().any(|a| of(a, b).is_some())).collect();
        let mut rows: Vec<Vec<Cell>> = algorithms
            .iter()
            .map(|a| {
                let cells = sizes.iter().map(|&bytes| cell(of(a, bytes)));
                std::iter::once(Cell::new(*a, Kind::Text)).chain(cells).collect()
            })
            .collect();
        for (column, &bytes) in sizes.iter().enumerate() {
            let values: Vec<Option<f64>> = algorithms.iter().map(|a| of(a, bytes).map(|r| r.value)).collect();
            mark_best(&mut rows, column + 1, &values, metric.unit == "us");
        }
        let scale = if metric.unit == "us" { 1e3 } else { 1.0 };
        let curves = algorithms.iter().map(|&a| {
            let point = |&bytes: &u64| {
                let [value, min, max] = of(a, bytes).map(|r| [r.value, r.min, r.max].map(|v| v * scale))?;
                Some((bytes, PlotValue { value, min, max }))
            };
            (a, sizes.iter().filter_map(point).collect())
        });
        let title = format!("{head}: {what} by size");
        let header = std::iter::once("message".to_string()).chain(sizes.iter().map(|&b| size(b))).collect();
        Section {
            plots: vec![plot_by_bytes(&title, metric, curves.collect())],
            table: Table {
                experiment: "sim",
                title,
                note: "Medians over the seeds, the range in each figure's tooltip.".into(),
                header,
                rows,
            },
        }
    };
    [(metrics::ROUND_TRIP_US, "round trip"), (metrics::BYTES_PER_S, "bandwidth")].map(section).into()
}

/// An algorithm's name, and a metric by the length of messages.
pub(crate) type BySize<'a> = (&'a str, Vec<(u64, PlotValue)>);

/// A plot over the length of messages, a line for each algorithm, Towpath's bold. Times
/// are in nanoseconds here; messages without data have no place on its logarithmic axis.
pub(crate) fn plot_by_bytes(title: &str, metric: Metric, curves: Vec<BySize<'_>>) -> String {
    let curve = |(n, (name, points)): (usize, BySize<'_>)| PlotLine {
        label: name.to_string(),
        points: points.into_iter().filter(|p| p.0 > 0).map(|(bytes, v)| (bytes as f64, v)).collect(),
        look: Look { colour: n % 15, dashed: name != "towpath", bold: name == "towpath" },
    };
    let curves: Vec<PlotLine> = curves.into_iter().enumerate().map(curve).collect();
    let format = |v| if metric.unit == "us" { nanoseconds(v) } else { bandwidth(v) };
    lines(title, &curves, |x| size(x as u64), format)
}

fn find<'a>(records: &'a [&'a Record], algorithm: &str, procs: u32, metric: &str) -> Option<&'a &'a Record> {
    records.iter().find(|r| r.algorithm == algorithm && r.procs == procs && r.metric == metric)
}

fn times(head: &str, records: &[&Record]) -> Option<Section> {
    // Copies of a program side by side: what each of them takes.
    let copies = records.iter().any(|r| r.extra.contains_key("copies"));
    let in_cycles = records.iter().any(|r| r.metric == metrics::COMPLETION_CYCLES.name);
    let counted = CountedUnit::of(records);
    let time = match (copies, in_cycles) {
        (true, _) => metrics::PROGRAM_TIME.name,
        (_, true) => metrics::COMPLETION_CYCLES.name,
        _ => metrics::TIME_PER_OPERATION.name,
    };
    let procs = distinct(records.iter().map(|r| r.procs));
    let algorithms = distinct(records.iter().map(|r| r.algorithm.as_str()));
    let mut rows: Vec<Vec<Cell>> = algorithms
        .iter()
        .map(|a| {
            let cells = procs.iter().map(|&n| cell(find(records, a, n, time)));
            std::iter::once(Cell::new(*a, Kind::Text)).chain(cells).collect()
        })
        .collect();
    for (column, &n) in procs.iter().enumerate() {
        let values: Vec<Option<f64>> =
            algorithms.iter().map(|a| find(records, a, n, time).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, true);
    }
    let header = std::iter::once("processors".to_string()).chain(procs.iter().map(u32::to_string)).collect();
    let table = Table {
        experiment: "sim",
        title: format!(
            "{head}: {}",
            if in_cycles { "cycles until the last process is done" } else { counted.time() }
        ),
        note: if in_cycles {
            "From the start until the last process is done; medians over the seeds, the range in each figure's tooltip."
        } else if counted == CountedUnit::Solution && copies {
            "The mean time until a copy of the application ends; medians over the seeds, the range in each figure's tooltip."
        } else if counted == CountedUnit::Passage {
            "The whole time by the number of passages of all processors, so that an episode of n processors takes n times that; medians over the seeds, the range in each figure's tooltip."
        } else if counted == CountedUnit::Solution {
            "The whole time of the application; medians over the seeds, the range in each figure's tooltip."
        } else if copies {
            "The mean time until a copy of the program ends, by the number of its operations; medians over the seeds, the range in each figure's tooltip."
        } else {
            "The whole time by the number of operations of all processors; medians over the seeds, the range in each figure's tooltip."
        }
        .into(),
        header,
        rows,
    };
    let plots = if procs.len() > 1 {
        let value = |a: &str, p| {
            let r = find(records, a, p, time)?;
            Some(PlotValue { value: r.value, min: r.min, max: r.max })
        };
        vec![by_processors(
            &table.title,
            &algorithms,
            &procs,
            value,
            if in_cycles { digits } else { nanoseconds },
        )]
    } else {
        Vec::new()
    };
    (!algorithms.is_empty()).then_some(Section { table, plots })
}

/// A row for each algorithm, a column for each metric that any algorithm has a value of,
/// on the most processors.
fn by_algorithm(records: &[&Record], metrics: &[(&str, &str)], title: String, note: &str) -> Section {
    let most = records.iter().map(|r| r.procs).max().unwrap_or(0);
    let algorithms = distinct(records.iter().map(|r| r.algorithm.as_str()));
    let says = |metric: &str| {
        algorithms.iter().any(|a| find(records, a, most, metric).is_some_and(|r| r.max > 0.0 || r.min < 0.0))
    };
    let columns: Vec<&(&str, &str)> = metrics.iter().filter(|(_, metric)| says(metric)).collect();
    let rows = algorithms
        .iter()
        .map(|a| {
            let cells = columns.iter().map(|(_, metric)| cell(find(records, a, most, metric)));
            std::iter::once(Cell::new(*a, Kind::Text)).chain(cells).collect()
        })
        .collect();
    let header = std::iter::once(format!("{most} processors")).chain(columns.iter().map(|c| c.0.to_string()));
    let table = Table { experiment: "sim", title, note: note.into(), header: header.collect(), rows };
    Section { table, plots: Vec::new() }
}

/// Unit by which an experiment counts times and costs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CountedUnit {
    Operation,
    /// An application's whole run.
    Solution,
    /// One processor's passage through a barrier.
    Passage,
}

impl CountedUnit {
    fn of(records: &[&Record]) -> CountedUnit {
        match records.first().map(|r| r.experiment.as_str()) {
            Some("apps") => CountedUnit::Solution,
            Some("barriers") => CountedUnit::Passage,
            _ => CountedUnit::Operation,
        }
    }

    /// Title of a table of times.
    fn time(self) -> &'static str {
        match self {
            CountedUnit::Operation => "time for each operation",
            CountedUnit::Solution => "time of the solution",
            CountedUnit::Passage => "time for each processor's passage",
        }
    }

    /// Title of a table of counts.
    fn costs(self) -> &'static str {
        match self {
            CountedUnit::Operation => "what an operation costs",
            CountedUnit::Solution => "what the solution costs",
            CountedUnit::Passage => "what a processor's passage costs",
        }
    }

    /// Beginning of a note on counts.
    fn unit(self) -> &'static str {
        match self {
            CountedUnit::Operation => "For each operation",
            CountedUnit::Solution => "For the whole solution",
            CountedUnit::Passage => "For each processor's passage",
        }
    }
}

fn counts(head: &str, records: &[&Record]) -> Section {
    let counted = CountedUnit::of(records);
    let note = ": store-conditionals that failed, requests for ownership of a line that was there, invalidations sent, and as the processors' counters see them (both of \
                a node), lines asked of an owner, lines fetched, operations at memory, messages (or bus transactions), requests refused, how busy the busiest home was, context switches; of lists: nodes passed by an insertion or deletion, double \
                compare-and-swaps that found other values and changes of a count of active threads (each pair), the part of accesses that hit, and of the time in which the bus was held; of locks by message: interrupts, and the parts of the operations in which a forwarded request interrupted the holder, that found the lock last held by the same node, and that found it held.";
    by_algorithm(
        records,
        &COUNTS,
        format!("{head}: {}", counted.costs()),
        &format!("{}{note}", counted.unit()),
    )
}

/// LogP parameters and bandwidth of messages, which are measured between two processors.
fn short_messages(head: &str, records: &[&Record]) -> Option<Section> {
    let note = "L: latency (negative where overheads overlap), o_s and o_r: the times for which sender and receiver are busy with a short message, g: time from one to the next in a long stream, RTT: \
                request and reply; the peak bandwidth of long transfers.";
    let pairs: Vec<&Record> = records.iter().copied().filter(|r| r.procs == 2).collect();
    let is_measured = pairs.iter().any(|r| r.metric == metrics::ROUND_TRIP.name);
    let title = format!("{head}: LogP parameters");
    is_measured.then(|| by_algorithm(&pairs, &SHORT_MESSAGES, title, note))
}

/// Lines fetched, by distance: if any comes from afar.
fn distances(head: &str, records: &[&Record]) -> Option<Section> {
    let unit = CountedUnit::of(records).unit();
    let note =
        ": from the own node, then through so many routers (or from the machine's next class of distance).";
    let title = format!("{head}: lines fetched, by distance");
    let section = by_algorithm(records, &DISTANCES, title, &format!("{unit}{note}"));
    (section.table.header.len() > 2).then_some(section)
}

/// Everything as text.
pub fn render(records: &[Record], failures: &Failures) -> String {
    let mut text = String::new();
    for section in sections(records) {
        let _ = writeln!(text, "{}\n{}\n", section.table.title, render_table(&section.table));
    }
    for line in missing(failures) {
        let _ = writeln!(text, "not measured: {line}");
    }
    text
}

fn missing(failures: &Failures) -> Vec<String> {
    failures.iter().map(|(s, why)| format!("{} on {} processors: {why}", s.describe(), s.procs)).collect()
}

/// Writes `results.jsonl` and `index.html` into a folder, which is made if need be.
///
/// # Errors
///
/// The system's, with the folder's name.
pub fn write(
    folder: &Path,
    title: &str,
    introduction: &str,
    advice: &[String],
    records: &[Record],
    failures: &Failures,
) -> Result<(), Error> {
    let page = plain_page(title, introduction, advice, &[], &sections(records), &missing(failures));
    let records: String = records.iter().map(|r| r.to_json() + "\n").collect();
    write_files(folder, &records, &page)
}
