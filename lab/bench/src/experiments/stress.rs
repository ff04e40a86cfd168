//! The stress test: many write to one (paper L, Table 2).

use crate::error::Error;
use crate::experiment::{Bench, Experiment, Samples, Variant};
use crate::record::metrics::{CPU_SECONDS, FAIRNESS, MESSAGES_PER_S};
use crate::stats::jain;
use crate::transport::Stress;

/// The experiment.
pub struct StressTest;

impl Experiment for StressTest {
    fn name(&self) -> &'static str {
        "stress"
    }
    fn about(&self) -> &'static str {
        "many writers and one reader, also with more processes than cores (paper L, Table 2)"
    }
    fn seconds(&self) -> u64 {
        24
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let present = bench.present(self.name(), 0);
        let mut variants = Vec::new();
        for (contender, subject) in &present {
            for &writers in &bench.settings.writers {
                let mut subject = subject.clone().with("writers", writers);
                subject.procs = writers + 1;
                variants.push(Variant { subject, key: (*contender, writers) });
            }
        }
        let messages = bench.settings.messages;
        bench.compare(&variants, |contenders, &(n, writers), run| {
            samples(&contenders[n].stress(writers, messages, run)?)
        });
        Ok(())
    }
}

fn samples(result: &Stress) -> Result<Samples, Error> {
    if result.messages == 0 || result.seconds <= 0.0 {
        return Err(Error::NotAvailable("no message arrived within the time given".into()));
    }
    let messages = result.messages as f64;
    let mut samples = Samples::one(MESSAGES_PER_S, messages / result.seconds);
    if let Some(fairness) = jain(&result.shares) {
        samples.push(FAIRNESS, fairness);
    }
    if let Some(cpu) = result.cpu_seconds {
        samples.push(CPU_SECONDS, cpu * 1e6 / messages);
    }
    samples.extra.insert("messages".into(), result.messages.into());
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Settings;
    use crate::fake::{Collected, Fake, bench_with, quick};
    use crate::transport::Contender;

    #[test]
    fn each_contender_meets_each_number_of_writers() {
        let settings = Settings { writers: vec![1, 7], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> =
            vec![Box::new(Fake::ours("ticket", 1.0)), Box::new(Fake::absent("mpich"))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| StressTest.run(b).unwrap());
        let rates: Vec<_> = sink.records.iter().filter(|r| r.metric == "messages_per_s").collect();
        assert_eq!(
            rates.iter().map(|r| (r.number("writers"), r.procs)).collect::<Vec<_>>(),
            [(Some(1), 2), (Some(7), 8)]
        );
        assert!(rates[0].value > rates[1].value);
        assert!(sink.records.iter().any(|r| r.metric == "fairness" && r.value == 1.0));
        assert!(sink.records.iter().any(|r| r.metric == "cpu_seconds"));
        assert_eq!(sink.missing.len(), 1, "what is absent is named once: {:?}", sink.missing);
    }

    #[test]
    fn a_contender_may_refuse_a_number_of_writers() {
        let settings = Settings { writers: vec![1, 200], ..quick() };
        let mut contenders: Vec<Box<dyn Contender>> = vec![Box::new(Fake::ours("ticket", 1.0))];
        let mut sink = Collected::default();
        bench_with(&settings, &mut contenders, &mut sink, |b| StressTest.run(b).unwrap());
        assert!(sink.records.iter().all(|r| r.number("writers") == Some(1)));
        assert_eq!(sink.missing, [("ticket".to_string(), "it has room for 100 writers".to_string())]);
    }

    #[test]
    fn a_test_in_which_nothing_arrived_has_no_rate() {
        assert!(samples(&Stress::default()).is_err());
    }

    #[test]
    fn processor_time_counts_per_million_messages() {
        let result =
            Stress { messages: 500_000, seconds: 0.5, shares: vec![3.0, 1.0], cpu_seconds: Some(1.0) };
        let samples = samples(&result).unwrap();
        assert_eq!(samples.values, [(MESSAGES_PER_S, 1e6), (FAIRNESS, 0.8), (CPU_SECONDS, 2.0)]);
    }
}
