//! The tables, made once from the results and shown alike on the console and in the
//! report.

use crate::claims::{Outcome, judge};
use crate::experiments::simulator::PROCESSORS;
use crate::format::{digits, in_unit, percent, size};
use crate::paper;
use crate::record::Record;
use crate::results::{Results, Row};
use crate::verdict::{Verdict, figures};

/// What a cell says, beyond its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or explanation.
    Text,
    /// A figure of this run.
    Figure,
    /// The best figure of its column.
    Best,
    /// A figure of the paper.
    Paper,
    /// Nothing, since nothing was measured.
    Missing,
    /// A target that is met.
    Good,
    /// A target that is missed, or damage.
    Bad,
}

/// One cell.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// What it shows.
    pub text: String,
    /// What else there is to know: the range of a figure.
    pub detail: String,
    /// How it is meant.
    pub kind: Kind,
}

impl Cell {
    /// A cell without detail.
    pub fn new(text: impl Into<String>, kind: Kind) -> Cell {
        Cell { text: text.into(), detail: String::new(), kind }
    }

    pub(crate) fn text(text: impl Into<String>) -> Cell {
        Cell::new(text, Kind::Text)
    }

    /// With as many decimals as the paper gives.
    fn paper(value: Option<f64>, decimals: usize) -> Cell {
        let text = value.map_or(String::new(), |v| format!("{v:.decimals$}").replace('-', "−"));
        Cell::new(text, Kind::Paper)
    }

    /// Three digits in units of `unit`, which the header names.
    fn scaled(record: Option<&Record>, unit: f64) -> Cell {
        let text = record.map(|r| digits(r.value / unit));
        Cell { text: text.unwrap_or_else(|| "–".into()), ..Cell::figure(record) }
    }

    pub(crate) fn figure(record: Option<&Record>) -> Cell {
        let Some(r) = record else { return Cell::new("–", Kind::Missing) };
        let range = format!("{} to {}, {} runs", in_unit(r.min, &r.unit), in_unit(r.max, &r.unit), r.runs);
        Cell { text: in_unit(r.value, &r.unit), detail: range, kind: Kind::Figure }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Of which experiment, or `targets`, or `claims`.
    pub experiment: &'static str,
    /// Its heading.
    pub title: String,
    /// What one must know to read it.
    pub note: String,
    /// The columns' heads.
    pub header: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<Cell>>,
}

/// All tables that the results have figures for, in order.
pub fn tables(results: &Results) -> Vec<Table> {
    [
        floor(results),
        logp(results),
        stress(results),
        fairness(results),
        bulk(results),
        crash(results),
        idle(results),
    ]
    .into_iter()
    .chain(crate::by_size::tables(results))
    .chain(crate::nonblocking::tables(results))
    .chain([simulator(results), targets(results), claims(results)])
    .filter(|t| !t.rows.is_empty())
    .collect()
}

fn header(names: &[&str]) -> Vec<String> {
    names.iter().map(|n| n.to_string()).collect()
}

/// Marks the best figure of a column: the one with the largest or smallest value. What
/// the model yields below zero (an overhead that a disturbance has pushed there) is not best.
pub(crate) fn mark_best(rows: &mut [Vec<Cell>], column: usize, values: &[Option<f64>], smallest: bool) {
    let better = |a: f64, b: f64| if smallest { a < b } else { a > b };
    let mut best: Option<(usize, f64)> = None;
    for (row, value) in values.iter().enumerate() {
        if let Some(value) = value.filter(|v| *v > 0.0)
            && best.is_none_or(|(_, b)| better(value, b))
        {
            best = Some((row, value));
        }
    }
    if let Some((row, _)) = best.filter(|_| values.iter().flatten().count() > 1) {
        rows[row][column].kind = Kind::Best;
    }
}

/// What the floor's figures are called.
pub fn floor_label(record: &Record) -> String {
    match (record.metric.as_str(), record.number("lines")) {
        ("line_round_trip_ns", Some(lines)) => {
            let how = if record.extra.get("pause").and_then(|p| p.as_bool()) == Some(true) {
                "spinning with pause"
            } else {
                "spinning without pause"
            };
            let what =
                if lines == 1 { "one cache line, written by both" } else { "two cache lines, one each way" };
            format!("{what}: there and back, {how}")
        }
        ("memcpy_bytes_per_s", _) => format!("memcpy of {}", size(record.number("bytes").unwrap_or(0))),
        ("futex_wake_ns", _) if record.number("sleepers") == Some(0) => "futex wake, nobody sleeps".into(),
        ("futex_wake_ns", _) => "futex wake of a sleeper on another core (the waker's cost)".into(),
        ("futex_round_trip_ns", _) if record.number("across_cores") == Some(1) => {
            "two sleepers wake each other, same core: there and back".into()
        }
        ("futex_round_trip_ns", _) => "two sleepers wake each other, across cores: there and back".into(),
        ("syscall_ns", _) => "the shortest system call".into(),
        ("context_switch_ns", _) => "switch to another process (sched_yield)".into(),
        (other, _) => other.to_string(),
    }
}

fn floor(results: &Results) -> Table {
    let rows = results
        .records
        .iter()
        .filter(|r| r.experiment == "floor")
        .map(|r| {
            let range = format!("{} to {}", in_unit(r.min, &r.unit), in_unit(r.max, &r.unit));
            vec![Cell::text(floor_label(r)), Cell::figure(Some(r)), Cell::text(range)]
        })
        .collect();
    Table {
        experiment: "floor",
        title: "The floor of this machine".into(),
        note: "What cache, memory and kernel cost by themselves: no message can be cheaper.".into(),
        header: header(&["what", "median", "from … to"]),
        rows,
    }
}

const LOGP_METRICS: [(&str, &str); 5] = [
    ("latency_ns", "L"),
    ("send_overhead_ns", "o_s"),
    ("receive_overhead_ns", "o_r"),
    ("gap_ns", "g"),
    ("round_trip_ns", "RTT"),
];

fn logp(results: &Results) -> Table {
    let rows_of = results.rows("logp");
    let floor =
        rows_of.iter().find(|r| r.is_floor()).and_then(|r| results.get("logp", "round_trip_ns", r, &[]));
    let with_paper = rows_of.iter().any(|r| paper::logp_of(&r.algorithm).is_some());
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            for (metric, _) in LOGP_METRICS {
                cells.push(Cell::scaled(results.get("logp", metric, row, &[]), 1.0));
            }
            let rtt = results.get("logp", "round_trip_ns", row, &[]);
            cells.push(match (rtt, floor) {
                (Some(rtt), Some(floor)) => rtt
                    .divided_by(floor)
                    .map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(r), Kind::Figure)),
                _ => Cell::new("–", Kind::Missing),
            });
            if with_paper {
                let column = paper::logp_of(&row.algorithm);
                for pick in [
                    |c: &paper::LogPColumn| c.latency,
                    |c: &paper::LogPColumn| c.send_overhead,
                    |c: &paper::LogPColumn| c.receive_overhead,
                    |c: &paper::LogPColumn| c.gap,
                    |c: &paper::LogPColumn| c.round_trip,
                ] {
                    cells.push(Cell::paper(column.map(pick), 1));
                }
            }
            cells
        })
        .collect();
    for (column, (metric, _)) in LOGP_METRICS.iter().enumerate().skip(1) {
        let values: Vec<Option<f64>> = rows_of
            .iter()
            .map(|r| results.get("logp", metric, r, &[]).filter(|_| !r.is_floor()).map(|r| r.value))
            .collect();
        mark_best(&mut rows, column + 1, &values, true);
    }
    let mut head = header(&["algorithm"]);
    head.extend(LOGP_METRICS.iter().map(|(_, name)| format!("{name}, ns")));
    head.push("RTT ÷ floor".into());
    if with_paper {
        head.extend(LOGP_METRICS.iter().map(|(_, name)| format!("paper {name}, µs")));
    }
    Table {
        experiment: "logp",
        title: "LogP: what one short message costs".into(),
        note: format!(
            "L: latency (negative where overheads overlap), o_s and o_r: what sender and receiver are busy with, g: gap in a long stream, \
             RTT: request and reply. Peers show their round trip only. Paper: L, {} ({}).",
            paper::LOGP.place,
            paper::LOGP.machine
        ),
        header: head,
        rows,
    }
}

fn stress(results: &Results) -> Table {
    let writers = results.numbers("stress", "writers");
    let papers: Vec<u32> =
        paper::STRESS_WRITERS.into_iter().filter(|w| writers.contains(&u64::from(*w))).collect();
    let rows_of = results.rows("stress");
    let rate = |row: &Row, w: u64| results.get("stress", "messages_per_s", row, &[("writers", w)]);
    let with_paper = rows_of.iter().any(|r| paper::STRESS_TABLE.iter().any(|c| c.algorithm == r.algorithm));
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            cells.extend(writers.iter().map(|&w| Cell::scaled(rate(row, w), 1e6)));
            if with_paper {
                for &w in &papers {
                    cells.push(match rate(row, u64::from(w)) {
                        Some(r) => Cell::new(digits(1e6 / r.value), Kind::Figure),
                        None => Cell::new("–", Kind::Missing),
                    });
                    cells.push(Cell::paper(paper::stress_of(&row.algorithm, w), 2));
                }
            }
            cells
        })
        .collect();
    for (column, &w) in writers.iter().enumerate() {
        let values: Vec<Option<f64>> = rows_of.iter().map(|r| rate(r, w).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, false);
    }
    let mut head = header(&["algorithm"]);
    head.extend(
        writers.iter().map(|w| if *w == 1 { "1 writer".to_string() } else { format!("{w} writers") }),
    );
    if with_paper {
        head.extend(papers.iter().flat_map(|w| [format!("10⁶, {w}: s"), format!("paper, {w}: s")]));
    }
    Table {
        experiment: "stress",
        title: "Stress test: many writers, one reader (million messages a second)".into(),
        note: format!(
            "Messages that the reader receives, in millions each second, by number of writers; then the seconds that a million of them take, \
             beside the paper's. Paper: L, {} ({}).",
            paper::STRESS.place,
            paper::STRESS.machine
        ),
        header: head,
        rows,
    }
}

fn fairness(results: &Results) -> Table {
    let writers: Vec<u64> = results.numbers("stress", "writers");
    let mut head = header(&["algorithm"]);
    head.extend(writers.iter().filter(|w| **w > 1).map(|w| format!("fairness, {w}")));
    head.extend(writers.iter().map(|w| format!("CPU s, {w}")));
    let rows = results
        .rows("stress")
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            for &w in writers.iter().filter(|w| **w > 1) {
                cells.push(Cell::figure(results.get("stress", "fairness", row, &[("writers", w)])));
            }
            for &w in &writers {
                let cpu = results.get("stress", "cpu_seconds", row, &[("writers", w)]);
                cells.push(Cell::scaled(cpu, 1.0));
            }
            cells
        })
        .filter(|cells: &Vec<Cell>| cells.iter().any(|c| c.kind == Kind::Figure))
        .collect();
    Table {
        experiment: "stress",
        title: "Stress test: fairness and processor time".into(),
        note: "Fairness is Jain's index over the writers when the first has finished (1: all alike, 1/n: one had everything), by number of \
               writers. Processor time is that of all processes together, in seconds per million messages. \
               With more writers than cores a short test shows the scheduler's time slices as much as the algorithm."
            .into(),
        header: head,
        rows,
    }
}

fn bulk(results: &Results) -> Table {
    let sizes = results.numbers("bulk", "bytes");
    let rows_of = results.rows("bulk");
    let rate = |row: &Row, bytes: u64| results.get("bulk", "bytes_per_s", row, &[("bytes", bytes)]);
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            cells.extend(sizes.iter().map(|&bytes| Cell::scaled(rate(row, bytes), 1e9)));
            cells
        })
        .collect();
    for (column, &bytes) in sizes.iter().enumerate() {
        let values: Vec<Option<f64>> =
            rows_of.iter().map(|r| rate(r, bytes).filter(|_| !r.is_floor()).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, false);
    }
    let mut head = header(&["GB/s"]);
    head.extend(sizes.iter().map(|&bytes| size(bytes)));
    Table {
        experiment: "bulk",
        title: "Bulk transfers".into(),
        note: format!(
            "Bandwidth in GB/s by size of a transfer, beside memcpy of the same size within one process. The paper reaches roughly {:.0} % of \
             its machine's copy rate at its peak (L, Section 4.1).",
            paper::BULK_OF_MEMCPY * 100.0
        ),
        header: head,
        rows,
    }
}

fn crash(results: &Results) -> Table {
    let metrics = ["kills", "lost", "duplicated", "leaked_slots", "recovery_us", "p999_us"];
    let rows = results
        .rows("crash")
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            for metric in metrics {
                let record = results.get("crash", metric, row, &[]);
                let mut cell = Cell::figure(record);
                if matches!(metric, "lost" | "duplicated" | "leaked_slots") {
                    cell.detail.clear();
                    cell.kind = match record {
                        Some(r) if r.value > 0.0 => Kind::Bad,
                        Some(_) => Kind::Good,
                        None => Kind::Missing,
                    };
                }
                cells.push(cell);
            }
            let longest = results.get("crash", "recovery_us", row, &[]);
            cells.push(longest.map_or(Cell::new("–", Kind::Missing), |r| {
                Cell::new(in_unit(r.max, &r.unit), Kind::Figure)
            }));
            cells
        })
        .collect();
    Table {
        experiment: "crash",
        title: "Senders killed in mid-send".into(),
        note: "Lost: published and never delivered. Duplicated: delivered twice. Leaked: slots that stayed unusable. Recovery: from the kill \
               to the next message of a survivor."
            .into(),
        header: header(&["algorithm", "kills", "lost", "duplicated", "leaked slots", "recovery", "p99.9", "longest"]),
        rows,
    }
}

fn idle(results: &Results) -> Table {
    let rows = results
        .rows("idle")
        .iter()
        .filter_map(|row| {
            let r = results.get("idle", "cpu_fraction", row, &[])?;
            let who = if row.is_ours() { format!("towpath, {} waiting", row.waiting) } else { row.label() };
            Some(vec![Cell::text(who), Cell::new(percent(r.value), Kind::Figure)])
        })
        .collect();
    Table {
        experiment: "idle",
        title: "Waiting while nothing comes".into(),
        note: "The part of a core that a waiting process uses.".into(),
        header: header(&["who", "of a core"]),
        rows,
    }
}

fn simulator(results: &Results) -> Table {
    let figure = |metric: &str, procs: u32| {
        let is_it = |r: &&Record| r.experiment == "simulator" && r.metric == metric && r.procs == procs;
        results.records.iter().find(is_it)
    };
    let metrics = ["hits_per_s", "events_per_s", "contended_accesses_per_s"];
    let rows = PROCESSORS
        .into_iter()
        .filter(|&procs| metrics.iter().any(|metric| figure(metric, procs).is_some()))
        .map(|procs| {
            let mut row = vec![Cell::text(procs.to_string())];
            row.extend(metrics.map(|metric| Cell::scaled(figure(metric, procs), 1e6)));
            row
        })
        .collect();
    Table {
        experiment: "simulator",
        title: "The simulator itself".into(),
        note: "Millions in each second of one core: accesses that hit in a simulated cache; events, and accesses, while all simulated \
               processors of an Origin2000 contend for one counter."
            .into(),
        header: header(&["processors", "hits", "events", "contended accesses"]),
        rows,
    }
}

fn targets(results: &Results) -> Table {
    let rows = figures(results)
        .into_iter()
        .map(|f| {
            let kind = match f.verdict {
                Verdict::Aim | Verdict::Met => Kind::Good,
                Verdict::Missed(_) => Kind::Bad,
                Verdict::NotMeasured(_) => Kind::Missing,
            };
            let ours = f.ours.map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(r), Kind::Figure));
            vec![
                Cell::text(&f.what),
                ours,
                Cell::text(&f.detail),
                Cell::text(f.must_text()),
                Cell::text(f.aim.to_string()),
                Cell::new(f.verdict_text(), kind),
            ]
        })
        .collect();
    Table {
        experiment: "targets",
        title: "Targets: ratios within this run".into(),
        note: "Absolute figures drift on a shared machine; each ratio is therefore the median of the ratios within \
               the rounds of one experiment, and need not be that of the medians beside it.".into(),
        header: header(&["figure", "ours", "from", "must reach", "aim", "verdict"]),
        rows,
    }
}

fn claims(results: &Results) -> Table {
    let rows = judge(results)
        .into_iter()
        .map(|j| {
            let (verdict, kind) = match j.outcome {
                Outcome::Holds => ("holds".to_string(), Kind::Good),
                Outcome::DoesNotHold(why) => (format!("does not hold: {why}"), Kind::Bad),
                Outcome::NotMeasured(why) => (format!("not measured: {why}"), Kind::Missing),
            };
            let mut measured = j.measured;
            if !j.waiting.is_empty() {
                measured = format!("({}) {measured}", j.waiting);
            }
            if !j.caveat.is_empty() {
                measured.push_str(&format!(". Note: {}", j.caveat));
            }
            vec![
                Cell::text(j.id),
                Cell::text(format!("{} ({})", j.sentence, j.tolerance)),
                Cell::text(measured),
                Cell::new(verdict, kind),
            ]
        })
        .collect();
    Table {
        experiment: "claims",
        title: "The paper's claims on this machine".into(),
        note: format!(
            "What paper L claims and this machine can confirm or refute, judged by tolerances that were fixed beforehand. A claim holds if it \
             holds in the medians and in at least {} rounds by themselves.",
            crate::claims::ROUNDS
        ),
        header: header(&["", "the paper says (holds if)", "measured", "verdict"]),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::example_results;

    #[test]
    fn every_experiment_has_a_table_whose_rows_fit_its_header() {
        let tables = tables(&example_results());
        for experiment in
            ["floor", "logp", "stress", "bulk", "crash", "idle", "simulator", "targets", "claims"]
        {
            assert!(tables.iter().any(|t| t.experiment == experiment), "{experiment}");
        }
        for table in &tables {
            for row in &table.rows {
                assert_eq!(row.len(), table.header.len(), "{}: {row:?}", table.title);
            }
        }
    }

    #[test]
    fn the_papers_figures_stand_beside_ours() {
        let tables = tables(&example_results());
        let row = |experiment: &str, label: &str| {
            let table = tables.iter().find(|t| t.experiment == experiment).unwrap();
            table.rows.iter().find(|r| r[0].text == label).unwrap().clone()
        };
        let papers = |row: &[Cell]| -> Vec<String> {
            row.iter().filter(|c| c.kind == Kind::Paper).map(|c| c.text.clone()).collect()
        };
        assert_eq!(papers(&row("logp", "lock-free")), ["−0.3", "1.9", "1.2", "3.1", "5.6"]);
        assert_eq!(papers(&row("stress", "ticket")), ["2.96", "3.18", "3.50"]);
        assert_eq!(papers(&row("stress", "towpath")), ["", "", ""]);
    }

    #[test]
    fn the_best_of_a_column_is_marked_whoever_it_is() {
        let mut results = example_results();
        let best = |results: &Results| {
            let table =
                tables(results).into_iter().find(|t| t.title.starts_with("Stress test: many")).unwrap();
            table.rows.into_iter().find(|r| r[1].kind == Kind::Best).unwrap()[0].text.clone()
        };
        assert_eq!(best(&results), "towpath");
        for r in results.records.iter_mut().filter(|r| r.algorithm == "open-mpi") {
            r.value *= 10.0;
        }
        assert_eq!(best(&results), "open-mpi");
    }

    #[test]
    fn damage_shows() {
        let mut results = example_results();
        results.records.iter_mut().find(|r| r.metric == "duplicated").unwrap().value = 3.0;
        let table = tables(&results).into_iter().find(|t| t.experiment == "crash").unwrap();
        assert!(table.rows.iter().flatten().any(|c| c.kind == Kind::Bad && c.text == "3"));
        assert!(table.rows.iter().flatten().any(|c| c.kind == Kind::Good && c.text == "0"));
    }

    #[test]
    fn no_results_make_no_tables() {
        let mut results = example_results();
        results.records.clear();
        assert!(tables(&results).is_empty());
    }
}
