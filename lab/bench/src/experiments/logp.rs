//! LogP: what one message costs whom, without contention (paper L, Table 1).

use std::time::Duration;

use crate::error::Error;
use crate::experiment::{Bench, Experiment, Samples, Variant, insert_beside_ours};
use crate::experiments::floor::line::{Probing, round_trip};
use crate::record::Subject;
use crate::record::metrics::{GAP, LATENCY, RECEIVE_OVERHEAD, ROUND_TRIP, SEND_OVERHEAD};
use crate::transport::{Contender, Run, Side};

/// The experiment.
pub struct LogParameters;

/// Two processes: the one that asks and the one that answers.
const PROCS: u32 = 2;

/// How long the floor is measured in each round.
const FLOOR_TIME: Duration = Duration::from_millis(60);

impl Experiment for LogParameters {
    fn name(&self) -> &'static str {
        "logp"
    }
    fn about(&self) -> &'static str {
        "what one short message costs the sender, the receiver and the wire (paper L, Table 1)"
    }
    fn seconds(&self) -> u64 {
        8
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        // The floor is measured among the others, so that their ratio to it is one of figures taken
        // under the same conditions.
        let floor = Subject::new(self.name(), "hardware", "none", PROCS).with("lines", 2);
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

fn measure(contender: &mut dyn Contender, run: &Run<'_>) -> Result<Samples, Error> {
    if contender.side() == Side::Peer {
        // What a peer's sender and receiver each do can't be told apart from outside in general;
        // its round trip can.
        return Ok(Samples::one(ROUND_TRIP, contender.round_trip(run)?));
    }
    let figures = contender.logp(run)?;
    let mut samples = Samples::default();
    samples.push(LATENCY, figures.latency);
    samples.push(SEND_OVERHEAD, figures.send_overhead);
    samples.push(RECEIVE_OVERHEAD, figures.receive_overhead);
    samples.push(GAP, figures.gap);
    samples.push(ROUND_TRIP, figures.round_trip);
    Ok(samples)
}

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
            ["latency_ns", "send_overhead_ns", "receive_overhead_ns", "gap_ns", "round_trip_ns"]
        );
        assert_eq!(of("pipe"), ["round_trip_ns"]);
        assert_eq!(
            of("hardware").len() + sink.missing.iter().filter(|(name, _)| name == "hardware").count(),
            1
        );
        assert!(sink.records.iter().all(|r| r.procs == 2 && r.experiment == "logp"));
    }
}
