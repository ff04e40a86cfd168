//! Broadcast rings of this machine, beside iceoryx2's publish-subscribe.

use super::primitives::{announce, part, variants};
use crate::experiment::{Bench, Measure, Variant};
use crate::primitives::MeasuredKind;
use crate::primitives::broadcast::{BROADCAST_SIZES, BroadcastLoad, RingKind, fan_out};
use crate::primitives::rows::{FigureColumn, SubjectTable};
use towpath_host::Error;
use towpath_report::record::metrics::{CPU_FRACTION, CPU_SECONDS, MESSAGES_PER_S, P50_US, P99_US};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct BroadcastBench;

/// Numbers of participants unless told otherwise: one writer, and 1, 3, 4 readers.
const PROCS: [u32; 3] = [2, 4, 5];

impl Experiment for BroadcastBench {
    fn name(&self) -> &'static str {
        "broadcast"
    }
    fn about(&self) -> &'static str {
        "one writer and readers that each get every message, by threads and by processes: throughput, and a message each 5 ms; with --peers beside iceoryx2; --sizes, --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        RingKind::ALL.map(RingKind::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        let table = SubjectTable {
            experiment: self.name(),
            title: "One writer, and readers that each get every message",
            note: "Participants: the writer and its readers. Messages that each reader gets while the writer sends as fast as they take them, and processor time of all in µs for each that is sent or received. At a message each 5 ms: the time from the writer's call until a reader has it, and how much of a core a reader uses.",
            fields: &[("sharing", "sharing"), ("bytes", "bytes")],
            columns: &[
                FigureColumn::new("thousand/s", MESSAGES_PER_S, 1e3),
                FigureColumn::new("wake-up, µs", P50_US, 1.0),
                FigureColumn::new("reader, %", CPU_FRACTION, 0.01),
                FigureColumn::new("p99, µs", P99_US, 1.0),
                FigureColumn::new("cpu, µs", CPU_SECONDS, 1.0),
            ],
        };
        vec![table.section(results)]
    }
}

impl Measure for BroadcastBench {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let settings = bench.settings;
        let is_named = |ring: RingKind| settings.algorithms.iter().any(|name| name == ring.name());
        let is_asked = |ring: &RingKind| settings.peers || !ring.is_peer() || is_named(*ring);
        let rings: Vec<RingKind> = RingKind::ALL.into_iter().filter(is_asked).collect();
        let procs = if settings.procs.is_empty() { PROCS.to_vec() } else { settings.procs.clone() };
        let mut all: Vec<Variant<BroadcastLoad>> = Vec::new();
        for &bytes in settings.primitives.sizes_or(&BROADCAST_SIZES) {
            all.extend(variants(
                (self.name(), bench),
                (rings.clone(), procs.clone()),
                |subject, ring, sharing, procs, _| {
                    (subject.with("bytes", bytes), BroadcastLoad { ring, sharing, procs, bytes })
                },
            ));
        }
        // As fast as readers take, and for twice as long a message now and then.
        announce(bench, &all, 3);
        bench.compare(&all, |_, load, run| fan_out(load, &part(run)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};
    use crate::primitives::PrimitiveSettings;
    use crate::settings::BenchSettings;
    use crate::structures::Sharing;

    #[test]
    fn broadcast_records_both_parts_of_each_size() {
        let primitives = PrimitiveSettings {
            sharing: vec![Sharing::Threads],
            sizes: vec![64, 128],
            ..PrimitiveSettings::default()
        };
        let settings = BenchSettings { primitives, procs: vec![3], ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |bench| BroadcastBench.run(bench).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        for (metric, bytes) in [("messages_per_s", 64), ("cpu_fraction", 64), ("p50_us", 128)] {
            let is_it = |r: &&towpath_report::Record| r.metric == metric && r.number("bytes") == Some(bytes);
            assert!(sink.records.iter().any(|r| is_it(&r)), "{metric}, {bytes}");
        }
    }
}
