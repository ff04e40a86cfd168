//! Senders killed in mid-send, and the effect on the others.

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::{ContenderSide, Crash};
use towpath_host::Error;
use towpath_report::Metric;
use towpath_report::format::in_unit;
use towpath_report::plots::times;
use towpath_report::record::metrics::{DUPLICATED, KILLS, LEAKED_SLOTS, LOST, P999_US, RECOVERY};
use towpath_report::stats::percentile;
use towpath_report::table::{Cell, Kind, Table, header};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct CrashTest;

/// Number of processes of the world.
const PROCS: u32 = 8;

impl Experiment for CrashTest {
    fn name(&self) -> &'static str {
        "crash"
    }
    fn about(&self) -> &'static str {
        "senders are killed at random instants: what is lost, doubled or leaked, and how soon the others go on"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(crash(results))]
    }
    fn picture(&self, results: &Results) -> Option<Section> {
        let plot = times(
            results,
            self.name(),
            RECOVERY.name,
            "Recovery: from a sender's death to the next message",
        )?;
        let rows = results.leaders(self.name(), RECOVERY.name, &[], true);
        let of = |row, metric: Metric| results.get("crash", metric.name, row, &[]);
        let cells = rows.iter().map(|row| {
            let damage: Option<f64> =
                [LOST, DUPLICATED, LEAKED_SLOTS].map(|m| of(row, m).map(|r| r.value)).into_iter().sum();
            let damage = match damage {
                Some(n) if n > 0.0 => Cell::new(format!("{n:.0}"), Kind::Bad),
                Some(_) => Cell::new("0", Kind::Good),
                None => Cell::new("–", Kind::Missing),
            };
            let longest = of(row, RECOVERY).map(|r| in_unit(r.max, &r.unit));
            vec![
                Cell::text(row.label()),
                Cell::figure(of(row, KILLS)),
                damage,
                Cell::figure(of(row, RECOVERY)),
                longest.map_or(Cell::new("–", Kind::Missing), |text| Cell::new(text, Kind::Figure)),
            ]
        });
        let table = Table {
            experiment: self.name(),
            title: "Senders killed in mid-send".into(),
            note: "Messages lost or delivered twice, and slots that stayed unusable, all together; the median and the longest \
                   time from a kill to the next message of a survivor."
                .into(),
            header: header(&["", "kills", "lost, doubled, leaked", "recovery", "longest"]),
            rows: cells.collect(),
        };
        Some(Section::new(table).with([plot]))
    }
}

impl Measure for CrashTest {
    fn seconds(&self) -> u64 {
        5
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), PROCS);
        let variants: Vec<Variant<usize>> = present
            .into_iter()
            .filter(|(n, _)| bench.contenders[*n].side() == ContenderSide::Ours)
            .map(|(key, subject)| Variant { subject, key })
            .collect();
        // The kills that the user asked for are divided among the rounds, so that the total is what
        // was asked for.
        let (kills, rounds) = (bench.settings.kills, bench.settings.runs.max(1));
        let mut total: Vec<Crash> = bench.contenders.iter().map(|_| Crash::default()).collect();
        bench.compare(&variants, |contenders, &n, run| {
            let share = kills / rounds + u32::from(run.round < kills % rounds);
            if share > 0 {
                add(&mut total[n], contenders[n].crash(share, run)?);
            }
            Ok(Samples::default())
        });
        for variant in &variants {
            let result = &total[variant.key];
            if result.kills > 0 {
                bench.record(&variant.subject, samples(result));
            }
        }
        Ok(())
    }
}

fn add(total: &mut Crash, part: Crash) {
    total.kills += part.kills;
    total.lost += part.lost;
    total.duplicated += part.duplicated;
    total.leaked_slots += part.leaked_slots;
    total.recovery_us.extend(part.recovery_us);
}

fn samples(total: &Crash) -> Samples {
    let mut samples = Samples::one(KILLS, total.kills as f64);
    samples.push(LOST, total.lost as f64);
    samples.push(DUPLICATED, total.duplicated as f64);
    samples.push(LEAKED_SLOTS, total.leaked_slots as f64);
    samples.values.extend(total.recovery_us.iter().map(|&us| (RECOVERY, us)));
    if let Some(us) = percentile(&total.recovery_us, 99.9) {
        samples.push(P999_US, us);
    }
    samples
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, Fake, bench_with, quick};
    use crate::settings::BenchSettings;
    use crate::transport::Contender;

    #[test]
    fn the_kills_add_up_to_what_was_asked_for_over_all_rounds() {
        let settings = BenchSettings { kills: 10, runs: 3, ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("towpath", 1.0)), Box::new(Fake::peer("pipe", 1.0))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| CrashTest.run(b).unwrap());
        let figure = |metric: &str| sink.records.iter().find(|r| r.metric == metric).map(|r| r.value);
        assert_eq!(figure("kills"), Some(10.0));
        assert_eq!(
            (figure("lost"), figure("duplicated"), figure("leaked_slots")),
            (Some(0.0), Some(0.0), Some(0.0))
        );
        let recovery = sink.records.iter().find(|r| r.metric == "recovery_us").expect("it is recorded");
        assert_eq!((recovery.value, recovery.min, recovery.max, recovery.runs), (60.0, 50.0, 70.0, 9));
        let p999 = figure("p999_us").expect("it is recorded");
        assert!((69.9..=70.0).contains(&p999), "{p999}");
        assert!(sink.records.iter().all(|r| r.algorithm == "towpath"), "peers are not killed");
    }
}
