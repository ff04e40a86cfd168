//! LogP: costs of one message for sender and receiver, without contention (paper L, Table
//! 1).

use std::time::Duration;
use towpath_papers::paper;
use towpath_report::format::digits;
use towpath_report::table::{Cell, Kind, Table, header, mark_best, ratio};

use crate::experiment::{Bench, Measure, Samples, Variant, insert_beside_ours};
use crate::experiments::floor::line::{Probing, round_trip};
use crate::transport::{Circumstances, Contender, ContenderSide, ShortMessage};
use towpath_host::Error;
use towpath_report::plots::times;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{
    GAP, LATENCY, RECEIVE_OVERHEAD, ROUND_TRIP, ROUND_TRIP_OVER_FLOOR, SEND_OVERHEAD,
};
use towpath_report::results::Row;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct LogParameters;

/// Two processes: the one that asks and the one that answers.
const PROCS: u32 = 2;

/// Time for the floor in each round.
const FLOOR_TIME: Duration = Duration::from_millis(60);

impl Experiment for LogParameters {
    fn name(&self) -> &'static str {
        "logp"
    }
    fn about(&self) -> &'static str {
        "what one short message costs the sender, the receiver and the wire (paper L, Table 1)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![
            Section::new(logp(results)).with(
                [
                    ("round_trip_ns", ROUND_TRIP_TITLE),
                    ("gap_ns", "Gap: from one message to the next in a stream"),
                ]
                .into_iter()
                .filter_map(|(metric, title)| times(results, "logp", metric, title)),
            ),
        ]
    }
    fn picture(&self, results: &Results) -> Option<Section> {
        let plot = times(results, self.name(), ROUND_TRIP.name, ROUND_TRIP_TITLE)?;
        let rows = results.leaders(self.name(), ROUND_TRIP.name, &[], true);
        let of = |row| results.get("logp", ROUND_TRIP.name, row, &[]);
        let cells = rows.iter().map(|row| {
            let over = if row.is_floor() { Cell::text("") } else { over_floor(results, row) };
            vec![Cell::text(row.label()), Cell::figure(of(row)), over]
        });
        let table = Table {
            experiment: self.name(),
            title: "Round trip of a request and its reply".into(),
            note: format!(
                "Medians; the floor is what two cache lines take, written by one process each. {RATIO_NOTE}"
            ),
            header: header(&["", "round trip", "÷ floor"]),
            rows: cells.collect(),
        };
        Some(Section::new(table).with([plot]))
    }
}

impl Measure for LogParameters {
    fn seconds(&self) -> u64 {
        5
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        // The floor by itself, among the others; our own measure their ratio to it themselves.
        let floor = RecordSubject::new(self.name(), "hardware", "none", PROCS).with("lines", 2);
        let mut variants: Vec<Variant<Option<usize>>> = bench
            .present(self.name(), PROCS)
            .into_iter()
            .map(|(n, subject)| Variant { subject, key: Some(n) })
            .collect();
        insert_beside_ours(&mut variants, Variant { subject: floor, key: None });
        bench.compare(&variants, |contenders, &key, run| match key {
            Some(n) => measure(&mut *contenders[n], run),
            None => round_trip(2, Probing::Pausing, run.placement, run.limit.min(FLOOR_TIME))
                .map(|ns| Samples::one(ROUND_TRIP, ns)),
        });
        Ok(())
    }
}

fn measure(contender: &mut dyn Contender, run: &Circumstances<'_>) -> Result<Samples, Error> {
    if contender.side() == ContenderSide::Peer {
        // The work of a peer's sender and that of its receiver can't be told apart from outside in
        // general; its round trip can.
        return Ok(Samples::one(ROUND_TRIP, contender.round_trip(run)?));
    }
    let ShortMessage { logp: figures, round_trip_over_floor } = contender.logp(run)?;
    let mut samples = Samples::default();
    let pushed = [
        (LATENCY, figures.latency),
        (SEND_OVERHEAD, figures.send_overhead),
        (RECEIVE_OVERHEAD, figures.receive_overhead),
    ];
    // A figure that the contender could not measure is absent.
    samples.values.extend(pushed.into_iter().filter(|(_, ns)| ns.is_finite()));
    samples.push(GAP, figures.gap);
    samples.push(ROUND_TRIP, figures.round_trip);
    if let Some(ratio) = round_trip_over_floor {
        samples.push(ROUND_TRIP_OVER_FLOOR, ratio);
    }
    Ok(samples)
}

/// The round trip of a row by the floor's, with the smallest and the largest of the
/// rounds: as its processes measured it, else the median of the rounds' ratios.
fn over_floor(results: &Results, row: &Row) -> Cell {
    let of = |metric: &str, row| results.get("logp", metric, row, &[]);
    if let Some(r) = of(ROUND_TRIP_OVER_FLOOR.name, row) {
        let range = format!("{} ({} to {})", digits(r.value), digits(r.min), digits(r.max));
        return Cell::new(range, Kind::Figure);
    }
    let rows = results.rows("logp");
    let floor = rows.iter().find(|row| row.is_floor());
    ratio(of(ROUND_TRIP.name, row), floor.and_then(|floor| of(ROUND_TRIP.name, floor)))
}

/// The sentence on ratios to the floor in the notes of tables.
const RATIO_NOTE: &str = "The ratio of each of ours, and its range over the rounds, is of batches that the \
                          same two processes measured in turn; a peer's is of figures taken one after the other.";

const LOGP_METRICS: [(&str, &str); 5] = [
    ("latency_ns", "L"),
    ("send_overhead_ns", "o_s"),
    ("receive_overhead_ns", "o_r"),
    ("gap_ns", "g"),
    ("round_trip_ns", "RTT"),
];

fn logp(results: &Results) -> Table {
    let rows_of = results.rows("logp");
    let with_paper = rows_of.iter().any(|r| paper::logp_of(&r.algorithm).is_some());
    let mut rows: Vec<Vec<Cell>> = rows_of
        .iter()
        .map(|row| {
            let mut cells = vec![Cell::text(row.label())];
            for (metric, _) in LOGP_METRICS {
                cells.push(Cell::scaled(results.get("logp", metric, row, &[]), 1.0));
            }
            cells.push(over_floor(results, row));
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
             RTT: request and reply. Peers show their round trip only. {RATIO_NOTE} Paper: L, {} ({}).",
            paper::LOGP.place,
            paper::LOGP.machine
        ),
        header: head,
        rows,
    }
}

/// Title of the plot of round trips.
const ROUND_TRIP_TITLE: &str = "Round trip of a request and its reply";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, Fake, bench_with, quick};

    #[test]
    fn our_algorithms_get_all_parameters_and_peers_the_round_trip() {
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("ticket", 1.0)), Box::new(Fake::peer("pipe", 100.0))];
        let mut sink = Collected::default();
        bench_with(&quick(), &mut contenders, &mut sink, |b| LogParameters.run(b).unwrap());
        let of = |name: &str| -> Vec<&str> {
            sink.records.iter().filter(|r| r.algorithm == name).map(|r| r.metric.as_str()).collect()
        };
        assert_eq!(
            of("ticket"),
            [
                "latency_ns",
                "send_overhead_ns",
                "receive_overhead_ns",
                "gap_ns",
                "round_trip_ns",
                "round_trip_over_floor"
            ]
        );
        assert_eq!(of("pipe"), ["round_trip_ns"]);
        assert_eq!(
            of("hardware").len() + sink.missing.iter().filter(|(name, _)| name == "hardware").count(),
            1
        );
        assert!(sink.records.iter().all(|r| r.procs == 2 && r.experiment == "logp"));
    }

    #[test]
    fn ratio_to_the_floor_is_absent_where_there_is_none() {
        let mut contenders: Vec<Box<dyn Contender>> = vec![
            Box::new(Fake::ours("towpath", 1.0)),
            Box::new(Fake::ours("ticket", 2.0).without_floor()),
            Box::new(Fake::peer("pipe", 100.0)),
        ];
        let mut sink = Collected::default();
        let settings = crate::settings::BenchSettings { runs: 3, ..quick() };
        bench_with(&settings, &mut contenders, &mut sink, |b| LogParameters.run(b).unwrap());
        let ratios: Vec<_> = sink.records.iter().filter(|r| r.metric == "round_trip_over_floor").collect();
        let [one] = ratios[..] else { panic!("only towpath has the floor beside it: {ratios:?}") };
        assert_eq!((one.algorithm.as_str(), one.value, one.min, one.max), ("towpath", 1.25, 1.25, 1.25));
        assert_eq!((one.runs, one.unit.as_str(), one.waiting.as_str()), (3, "ratio", "adaptive"));
    }

    #[test]
    fn receive_overhead_of_a_single_core_is_absent_and_so_is_l() {
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("ticket", 2.0).without_floor())];
        let mut sink = Collected::default();
        bench_with(&quick(), &mut contenders, &mut sink, |b| LogParameters.run(b).unwrap());
        let records = sink.records.iter().filter(|r| r.algorithm == "ticket");
        let metrics: Vec<&str> = records.map(|r| r.metric.as_str()).collect();
        assert_eq!(metrics, ["send_overhead_ns", "gap_ns", "round_trip_ns"]);
    }

    #[test]
    fn tables_show_the_ratio_and_its_range() {
        let subject = |name: &str, waiting: &str| RecordSubject::new("logp", name, waiting, PROCS);
        let floor = RecordSubject::new("logp", "hardware", "none", PROCS).with("lines", 2);
        let figures = [
            (subject("towpath", "adaptive"), ROUND_TRIP, vec![120.0, 240.0]),
            (subject("towpath", "adaptive"), ROUND_TRIP_OVER_FLOOR, vec![1.25, 1.35]),
            (subject("pipe", "own"), ROUND_TRIP, vec![3000.0, 3000.0]),
            (floor, ROUND_TRIP, vec![200.0, 100.0]),
        ];
        let results = Results::from_figures(&figures, 2);
        for table in [logp(&results), LogParameters.picture(&results).unwrap().table] {
            let rows: Vec<String> =
                table.rows.iter().map(|r| r.iter().map(|c| &*c.text).collect::<Vec<_>>().join("|")).collect();
            assert!(rows[0].contains("1.30 (1.25 to 1.35)"), "not the ratio of the medians: {rows:?}");
            assert!(rows[1].contains("22.5") && !rows[1].contains("to"), "{rows:?}");
        }
    }

    #[test]
    fn every_claim_algorithm_measures_the_floor_beside_it() {
        use towpath_host::topology::{Pin, Placement};
        let (settings, placement) = (quick(), Placement::detect(Pin::Auto));
        let limit = std::time::Duration::from_millis(20);
        let run = Circumstances { settings: &settings, placement: &placement, round: 0, seed: 1, limit };
        for algorithm in towpath::Algorithm::ALL {
            let mut ours = crate::ours::Ours::new(algorithm, towpath::Policy::Adaptive);
            let found = ours.logp(&run).unwrap();
            let ratio = found.round_trip_over_floor;
            assert_eq!(ratio.is_some(), placement.cores() >= 2, "{algorithm:?}");
            assert!(ratio.is_none_or(|r| r.is_finite() && r > 0.0), "{algorithm:?} {ratio:?}");
        }
    }
}
