//! Tables and plots of the experiment `structures`.

use std::collections::BTreeSet;

use super::{Structure, StructureAlgorithm};
use towpath_report::ADAPTIVE;
use towpath_report::Section;
use towpath_report::format::{digits, percent};
use towpath_report::record::Record;
use towpath_report::record::metrics::WITHOUT_PER_S;
use towpath_report::results::Results;
use towpath_report::svg::{Bar, Look, PlotLine, PlotValue, bars, lines};
use towpath_report::table::ratio;
use towpath_report::table::{Cell, Kind, Table, mark_best};

/// A rival: algorithm (in the order of tables), kind of participants, waiting policy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StructureRival {
    algorithm: StructureAlgorithm,
    sharing: String,
    waiting: String,
}

impl StructureRival {
    fn of(record: &Record) -> Option<StructureRival> {
        Some(StructureRival {
            algorithm: StructureAlgorithm::from_name(&record.algorithm)?,
            sharing: record.text("sharing")?.into(),
            waiting: record.waiting.clone(),
        })
    }

    fn label(&self) -> String {
        let waiting = match self.waiting.as_str() {
            ADAPTIVE | "own" => String::new(),
            other => format!(", {other}"),
        };
        format!("{}, {}{waiting}", self.algorithm.name(), self.sharing)
    }

    fn look(&self) -> Look {
        let colour = StructureAlgorithm::ALL.iter().position(|a| *a == self.algorithm).unwrap_or(0);
        Look {
            colour,
            dashed: self.sharing == "threads",
            bold: self.algorithm == StructureAlgorithm::Guerraoui && self.sharing == "processes",
        }
    }
}

/// The metric of as many fewer participants, in the same rounds.
pub const WITHOUT: &str = WITHOUT_PER_S.name;

/// A part of the figures: structure, and number of operations in a hundred that read
/// (`None` for those without keys).
type Panel = (Structure, Option<u64>);

fn panel(record: &Record) -> Option<Panel> {
    Some((Structure::from_name(record.text("structure")?)?, record.number("reads")))
}

fn all<'a>(results: &'a Results, metric: &'a str) -> impl Iterator<Item = &'a Record> {
    results.of("structures", metric)
}

/// Throughput and latency without kills.
fn undisturbed<'a>(results: &'a Results, metric: &'a str) -> impl Iterator<Item = &'a Record> {
    all(results, metric).filter(|r| !r.extra.contains_key("kill_rate"))
}

fn panels(results: &Results) -> BTreeSet<Panel> {
    undisturbed(results, "operations_per_s").filter_map(panel).collect()
}

fn title(panel: Panel) -> String {
    match panel.1 {
        Some(reads) => format!("{}, {reads} % reads", panel.0.name()),
        None => panel.0.name().into(),
    }
}

fn find<'a>(
    results: &'a Results,
    metric: &'a str,
    panel: Panel,
    rival: &StructureRival,
    procs: u32,
    stopped: u64,
) -> Option<&'a Record> {
    undisturbed(results, metric).find(|r| {
        self::panel(r) == Some(panel)
            && r.procs == procs
            && r.number("stopped") == Some(stopped)
            && StructureRival::of(r).as_ref() == Some(rival)
    })
}

/// The figure of an algorithm that waits as it does by default.
pub fn figure(
    results: &Results,
    (structure, reads): (Structure, Option<u64>),
    (algorithm, sharing): (StructureAlgorithm, super::Sharing),
    procs: u32,
    stopped: u64,
) -> Option<&Record> {
    let waiting = if algorithm.threads_only() { "own" } else { ADAPTIVE };
    let rival = StructureRival { algorithm, sharing: sharing.name().into(), waiting: waiting.into() };
    find(results, "operations_per_s", (structure, reads), &rival, procs, stopped)
}

fn rivals(results: &Results, panel: Panel) -> Vec<StructureRival> {
    let here = undisturbed(results, "operations_per_s").filter(|r| self::panel(r) == Some(panel));
    here.filter_map(StructureRival::of).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Numbers of participants of which none is stopped.
fn procs(results: &Results, panel: Panel) -> Vec<u32> {
    let unstopped = undisturbed(results, "operations_per_s")
        .filter(|r| self::panel(r) == Some(panel) && r.number("stopped") == Some(0));
    unstopped.map(|r| r.procs).collect::<BTreeSet<_>>().into_iter().collect()
}

/// A row for each rival, a column for each number of participants.
fn by_procs(results: &Results, panel: Panel, metric: &str, scale: f64, what: &str, note: &str) -> Table {
    let (rivals, procs) = (rivals(results, panel), procs(results, panel));
    let of = |rival: &StructureRival, procs| find(results, metric, panel, rival, procs, 0);
    let mut rows: Vec<Vec<Cell>> = rivals
        .iter()
        .map(|rival| {
            let cells = procs.iter().map(|&n| match of(rival, n) {
                Some(r) => Cell {
                    text: digits(r.value / scale),
                    detail: format!("{} to {}", digits(r.min / scale), digits(r.max / scale)),
                    kind: Kind::Figure,
                },
                None => Cell::new("–", Kind::Missing),
            });
            std::iter::once(Cell::text(rival.label())).chain(cells).collect()
        })
        .collect();
    for (column, &n) in procs.iter().enumerate() {
        let values: Vec<Option<f64>> = rivals.iter().map(|rival| of(rival, n).map(|r| r.value)).collect();
        mark_best(&mut rows, column + 1, &values, metric == "p999_us");
    }
    rows.retain(|row| row.iter().any(|c| matches!(c.kind, Kind::Figure | Kind::Best)));
    Table {
        experiment: "structures",
        title: format!("{}: {what}", title(panel)),
        note: note.into(),
        header: std::iter::once("participants".to_string()).chain(procs.iter().map(u32::to_string)).collect(),
        rows,
    }
}

/// Throughput while some are stopped, beside that of as many fewer.
fn stopped(results: &Results) -> Table {
    let mut rows = Vec::new();
    for record in undisturbed(results, "operations_per_s") {
        let (Some(panel), Some(rival), Some(stopped)) =
            (panel(record), StructureRival::of(record), record.number("stopped").filter(|n| *n > 0))
        else {
            continue;
        };
        let without = find(results, WITHOUT, panel, &rival, record.procs, stopped);
        let standing = find(results, "standstill", panel, &rival, record.procs, stopped);
        let late = find(results, "p999_us", panel, &rival, record.procs, stopped);
        let million = |r: Option<&Record>| r.map_or("–".into(), |r| digits(r.value / 1e6));
        rows.push(vec![
            Cell::text(title(panel)),
            Cell::text(rival.label()),
            Cell::text(format!("{stopped} of {}", record.procs)),
            Cell::new(million(Some(record)), Kind::Figure),
            Cell::new(million(without), Kind::Figure),
            ratio(Some(record), without),
            standing.map_or(Cell::new("–", Kind::Missing), |r| Cell::new(percent(r.value), Kind::Figure)),
            Cell::figure(late),
        ]);
    }
    Table {
        experiment: "structures",
        title: "While participants are stopped".into(),
        note: "Million operations a second of those that are not stopped, beside what they do while those wait outside: as many fewer participants, on the same cores; the ratio within the rounds. Processes are stopped by SIGSTOP, threads by a signal whose handler \
               stays, at random moments for 20 ms each. Stands still: the part of these times in which the others ended no more than the operations that they were in."
            .into(),
        header: ["", "", "stopped", "with", "without", "ratio", "stands still", "p99.9"]
            .map(String::from)
            .to_vec(),
        rows,
    }
}

fn killed(results: &Results) -> Table {
    let mut rows = Vec::new();
    for record in all(results, "kills").filter(|r| r.extra.contains_key("pool")) {
        let Some(structure) = record.text("structure") else { continue };
        let of = |metric| {
            all(results, metric).find(|r| {
                r.algorithm == record.algorithm && r.procs == record.procs && r.extra == record.extra
            })
        };
        let damage = |metric| {
            let found = of(metric);
            let kind = match found {
                Some(r) if r.value > 0.0 => Kind::Bad,
                Some(_) => Kind::Good,
                None => Kind::Missing,
            };
            Cell::new(found.map_or("–".into(), |r| format!("{:.0}", r.value)), kind)
        };
        let ms = |metric, pick: fn(&Record) -> f64| {
            of(metric).map_or(Cell::new("–", Kind::Missing), |r| Cell::new(digits(pick(r)), Kind::Figure))
        };
        let mut row =
            vec![Cell::text(format!("{structure}, {}", record.algorithm)), Cell::figure(Some(record))];
        row.extend(["lost", "leaked_descriptors", "inconsistent"].map(damage));
        row.push(ms("recovery_ms", |r| r.value));
        row.extend([ms("recovery_ms", |r| r.min), ms("recovery_ms", |r| r.max)]);
        row.push(ms("death_ms", |r| r.value));
        rows.push(row);
    }
    Table {
        experiment: "structures",
        title: "Processes killed in mid-operation".into(),
        note: "Lost: put in by an operation that had ended, and not to be found. Leaked: descriptors that are neither free nor in the structure after recovery. Inconsistent: what came out twice or with other contents. \
               Recovery: milliseconds from the kill until a survivor has freed all that the dead one had, while the others go on: median, least, longest. Dying: how much of it passes before the system says that it is dead (a process that shares a core must \
               get it to die), median."
            .into(),
        header: ["", "kills", "lost", "leaked", "inconsistent", "recovery, ms", "least", "longest", "dying"]
            .map(String::from)
            .to_vec(),
        rows,
    }
}

/// Throughput while some are killed and replaced.
fn dying(results: &Results) -> Table {
    let mut rows = Vec::new();
    for record in all(results, "operations_per_s").filter(|r| r.extra.contains_key("kill_rate")) {
        let (Some(panel), Some(rival)) = (panel(record), StructureRival::of(record)) else { continue };
        let of = |metric| {
            all(results, metric).find(|r| {
                r.procs == record.procs
                    && r.extra == record.extra
                    && StructureRival::of(r).as_ref() == Some(&rival)
            })
        };
        let rate = record.extra.get("kill_rate").map_or(String::new(), |rate| rate.to_string());
        rows.push(vec![
            Cell::text(title(panel)),
            Cell::text(rival.label()),
            Cell::text(record.procs.to_string()),
            Cell::text(rate),
            Cell::figure(of("kills")),
            Cell::new(digits(record.value / 1e6), Kind::Figure),
            Cell::figure(of("p999_us")),
        ]);
    }
    Table {
        experiment: "structures",
        title: "While participants are killed".into(),
        note: "Million operations a second while so many processes are killed each second, recovered from, and replaced; what holds the others up for ever counts as it is.".into(),
        header: ["", "", "participants", "kills/s", "kills", "million/s", "p99.9"].map(String::from).to_vec(),
        rows,
    }
}

/// The tables that the results have figures for, with the plots before the first.
pub fn sections(results: &Results) -> Vec<Section> {
    let mut sections: Vec<Section> =
        tables(results).into_iter().filter(|t| !t.rows.is_empty()).map(Section::new).collect();
    if let Some(first) = sections.first_mut() {
        first.plots = plots(results);
    }
    sections
}

/// The tables.
fn tables(results: &Results) -> Vec<Table> {
    let mut tables = Vec::new();
    for panel in panels(results) {
        let threads = "Millions each second, by number of participants, with nothing between operations. Threads share one process and its heap: what processes cannot share is measured so, and ours beside it.";
        tables.push(by_procs(
            results,
            panel,
            "operations_per_s",
            1e6,
            "million operations a second",
            threads,
        ));
        let late = "One operation in a thousand takes longer; with more participants than cores that is a time slice's business.";
        tables.push(by_procs(results, panel, "p999_us", 1.0, "99.9th percentile, µs", late));
    }
    tables.extend([stopped(results), dying(results), killed(results)]);
    tables
}

/// The plots: throughput by the number of participants, and its rest while some are
/// stopped.
fn plots(results: &Results) -> Vec<String> {
    let value = |r: &Record| PlotValue { value: r.value, min: r.min, max: r.max };
    let rate = |v: f64| format!("{} M/s", digits(v / 1e6));
    let mut plots = Vec::new();
    for panel in panels(results) {
        let curve = |rival: &StructureRival| PlotLine {
            label: rival.label(),
            points: procs(results, panel)
                .into_iter()
                .filter_map(|n| {
                    let r = find(results, "operations_per_s", panel, rival, n, 0)?;
                    Some((f64::from(n), value(r)))
                })
                .collect(),
            look: rival.look(),
        };
        let curves: Vec<PlotLine> =
            rivals(results, panel).iter().map(curve).filter(|l| l.points.len() > 1).collect();
        if !curves.is_empty() {
            let title = format!("{}: operations each second, by number of participants", title(panel));
            plots.push(lines(&title, &curves, |x| format!("{x:.0}"), rate));
        }
    }
    let cases: BTreeSet<(Panel, u32, u64)> = undisturbed(results, "operations_per_s")
        .filter_map(|r| Some((panel(r)?, r.procs, r.number("stopped").filter(|n| *n > 0)?)))
        .collect();
    for (panel, procs, stopped) in cases {
        let mut pair = Vec::new();
        for rival in rivals(results, panel) {
            let with = find(results, "operations_per_s", panel, &rival, procs, stopped);
            let without = find(results, WITHOUT, panel, &rival, procs, stopped);
            if let (Some(with), Some(without)) = (with, without) {
                let look = rival.look();
                let label = rival.label();
                pair.push(Bar { label: label.clone(), value: value(without), look });
                let look = Look { dashed: true, bold: false, ..look };
                pair.push(Bar { label: format!("… {stopped} stopped"), value: value(with), look });
            }
        }
        if !pair.is_empty() {
            let others = procs.saturating_sub(stopped as u32);
            let title = format!(
                "{}: {others} participants by themselves, and beside {stopped} more that {} stopped",
                title(panel),
                if stopped == 1 { "is" } else { "are" }
            );
            plots.push(bars(&title, &pair, rate, None));
        }
    }
    plots
}

#[cfg(test)]
mod tests {
    use super::*;
    use towpath_report::record::RecordSubject;
    use towpath_report::record::metrics::{
        KILLS, LOST, OPERATIONS_PER_S, P999_US, RECOVERY_MS, STANDSTILL, WITHOUT_PER_S,
    };

    fn subject(algorithm: &str, procs: u32, stopped: u32) -> RecordSubject {
        RecordSubject::new("structures", algorithm, "adaptive", procs)
            .with("structure", "stack")
            .with("sharing", "processes")
            .with("stopped", stopped)
    }

    #[test]
    fn throughput_latency_and_what_is_left_of_it_are_shown() {
        let results = Results::from_figures(
            &[
                (subject("guerraoui", 1, 0), OPERATIONS_PER_S, vec![10e6, 20e6]),
                (subject("guerraoui", 2, 0), OPERATIONS_PER_S, vec![5e6, 6e6]),
                (subject("guerraoui", 2, 1), OPERATIONS_PER_S, vec![9.5e6, 19e6]),
                (subject("guerraoui", 2, 1), WITHOUT_PER_S, vec![10e6, 20e6]),
                (subject("guerraoui", 2, 1), STANDSTILL, vec![0.0, 0.0]),
                (subject("robust", 1, 0), OPERATIONS_PER_S, vec![30e6, 40e6]),
                (subject("robust", 2, 1), OPERATIONS_PER_S, vec![3e6, 2e6]),
                (subject("robust", 2, 1), WITHOUT_PER_S, vec![30e6, 40e6]),
                (subject("robust", 2, 1), STANDSTILL, vec![0.9, 0.9]),
                (subject("robust", 1, 0), P999_US, vec![2.0]),
            ],
            2,
        );
        let tables: Vec<Table> = tables(&results).into_iter().filter(|t| !t.rows.is_empty()).collect();
        assert_eq!(tables.len(), 3, "{tables:?}");
        assert_eq!(tables[0].header, ["participants", "1", "2"]);
        assert_eq!((tables[0].rows[0][1].kind, tables[0].rows[1][1].kind), (Kind::Figure, Kind::Best));
        let ratios: Vec<&str> = tables[2].rows.iter().map(|row| row[5].text.as_str()).collect();
        assert_eq!(ratios, ["0.950", "0.075"]);
        let plots = plots(&results);
        assert_eq!(plots.len(), 2);
        assert!(plots[1].contains("1 more that is stopped") && plots[1].contains("robust"));
    }

    #[test]
    fn damage_shows() {
        let pool = || subject("guerraoui", 4, 0).with("pool", 4096);
        let results = Results::from_figures(
            &[(pool(), KILLS, vec![10.0]), (pool(), LOST, vec![1.0]), (pool(), RECOVERY_MS, vec![1.0, 3.0])],
            2,
        );
        let all = tables(&results);
        let table = all.iter().find(|t| !t.rows.is_empty()).unwrap();
        assert_eq!(table.rows[0].len(), table.header.len());
        assert!(table.rows[0].iter().any(|c| c.kind == Kind::Bad && c.text == "1"));
        assert!(table.rows[0].iter().any(|c| c.text == "2.00"));
        assert_eq!(results.defects().len(), 1);
    }
}
