//! Cost of waiting when nothing comes.

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::{Contender, ContenderSide};
use towpath_host::Error;
use towpath_report::format::percent;
use towpath_report::record::metrics::CPU_FRACTION;
use towpath_report::table::{Cell, Kind, Table, header};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Idle;

impl Experiment for Idle {
    fn name(&self) -> &'static str {
        "idle"
    }
    fn about(&self) -> &'static str {
        "the part of a core that a process uses while it waits and nothing comes"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(idle(results))]
    }
}

impl Measure for Idle {
    fn seconds(&self) -> u64 {
        3
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        // Waiting depends on the policy, not on how packets are claimed: one algorithm stands for
        // all of ours.
        let mut seen: Vec<String> = Vec::new();
        let mut variants: Vec<Variant<usize>> = Vec::new();
        let mut present = bench.present(self.name(), 1);
        present.sort_by_key(|(n, _)| bench.contenders[*n].name() != towpath_report::OURS);
        for (key, subject) in present {
            if bench.contenders[key].side() == ContenderSide::Ours {
                if seen.contains(&subject.waiting) {
                    continue;
                }
                seen.push(subject.waiting.clone());
            }
            variants.push(Variant { subject, key });
        }
        bench.compare(&variants, |contenders, &n, run| {
            let contender: &mut dyn Contender = &mut *contenders[n];
            Ok(Samples::one(CPU_FRACTION, contender.idle(run)?))
        });
        Ok(())
    }
}

fn idle(results: &Results) -> Table {
    let rows = results
        .rows("idle")
        .iter()
        .filter_map(|row| {
            let r = results.get("idle", "cpu_fraction", row, &[])?;
            let waiter =
                if row.is_ours() { format!("towpath, {} waiting", row.waiting) } else { row.label() };
            Some(vec![Cell::text(waiter), Cell::new(percent(r.value), Kind::Figure)])
        })
        .collect();
    Table {
        experiment: "idle",
        title: "Waiting while nothing comes".into(),
        note: "The part of a core that a waiting process uses.".into(),
        header: header(&["waiter", "of a core"]),
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, Fake, bench_with, quick};

    #[test]
    fn idle_measures_one_of_ours_and_every_peer() {
        let mut contenders: Vec<Box<dyn Contender>> = vec![
            Box::new(Fake::ours("ticket", 2.0)),
            Box::new(Fake::ours("towpath", 1.0)),
            Box::new(Fake::peer("open-mpi", 500.0)),
        ];
        let mut sink = Collected::default();
        bench_with(&quick(), &mut contenders, &mut sink, |b| Idle.run(b).unwrap());
        let found: Vec<_> = sink.records.iter().map(|r| (r.algorithm.as_str(), r.value)).collect();
        assert_eq!(found, [("towpath", 0.002), ("open-mpi", 1.0)]);
    }
}
