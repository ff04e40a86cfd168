//! What happens to the others when senders are killed in mid-send.

use crate::error::Error;
use crate::experiment::{Bench, Experiment, Samples, Variant};
use crate::record::metrics::{DUPLICATED, KILLS, LEAKED_SLOTS, LOST, P999_US, RECOVERY};
use crate::stats::percentile;
use crate::transport::{Crash, Side};

/// The experiment.
pub struct CrashTest;

/// How many processes the world has.
const PROCS: u32 = 8;

impl Experiment for CrashTest {
    fn name(&self) -> &'static str {
        "crash"
    }
    fn about(&self) -> &'static str {
        "senders are killed at random instants: what is lost, doubled or leaked, and how soon the others go on"
    }
    fn seconds(&self) -> u64 {
        8
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), PROCS);
        let variants: Vec<Variant<usize>> = present
            .into_iter()
            .filter(|(n, _)| bench.contenders[*n].side() == Side::Ours)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::fake::{Collected, Fake, bench_with, quick};
    use crate::transport::Contender;

    #[test]
    fn the_kills_add_up_to_what_was_asked_for_over_all_rounds() {
        let settings = Settings { kills: 10, runs: 3, ..quick() };
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
