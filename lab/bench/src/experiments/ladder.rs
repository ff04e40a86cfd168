//! The ladder: the paper's four versions of a message device, and ours: latency and
//! bandwidth by size (Gropp & Lusk 1997, Figure 7).

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::ladder::measure;
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_papers::ladder::Version;
use towpath_report::curves::{Curves, Rival};
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{BYTES_PER_S, ROUND_TRIP_US};
use towpath_report::svg::Look;
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Ladder;

/// The sizes of messages, in bytes: both sides of each protocol's limits.
pub const SIZES: [usize; 9] = [0, 8, 256, 1008, 1024, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Numbers of processes: one for each of two cores, and four times as many.
const PROCS: [usize; 2] = [2, 8];

impl Experiment for Ladder {
    fn name(&self) -> &'static str {
        "ladder"
    }
    fn about(&self) -> &'static str {
        "from System V semaphores to lock-free: four versions of MPICH's device, and ours (paper M, Figure 7)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        curves().sections(results)
    }
}

impl Measure for Ladder {
    fn seconds(&self) -> u64 {
        10
    }
    /// Its figures are about baselines: asked for by name.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let mut variants = Vec::new();
        for procs in PROCS {
            // With more processes than cores, a message of each protocol says enough.
            let sizes = SIZES.into_iter().filter(|bytes| procs == 2 || [8, 1024, 256 << 10].contains(bytes));
            for bytes in sizes {
                variants.extend(Version::ALL.map(|version| {
                    Variant {
                        subject: RecordSubject::new(self.name(), version.name(), "adaptive", procs as u32)
                            .with("bytes", bytes),
                        key: (version, procs, bytes),
                    }
                }));
            }
        }
        bench.compare(&variants, |_, &(version, procs, bytes), run| {
            // There are many sizes: each takes a part of what one measurement may.
            let run = Circumstances { limit: run.limit / 8, ..*run };
            let ns = measure(version, procs, bytes, &run)?;
            let mut samples = Samples::one(ROUND_TRIP_US, ns / 1e3);
            if bytes > 0 {
                samples.push(BYTES_PER_S, bytes as f64 * 2e9 / ns);
            }
            Ok(samples)
        });
        Ok(())
    }
}

/// Tables and plots of the versions.
fn curves() -> Curves {
    let rival = |(n, version): (usize, &Version)| Rival {
        algorithm: version.name(),
        over: None,
        waiting: None,
        label: version.name().into(),
        look: Look { colour: n, dashed: *version != Version::Towpath, bold: *version == Version::Towpath },
    };
    Curves {
        experiment: "ladder",
        title: "The ladder",
        note: "Ping-pong between pairs of processes, all pairs at one time; medians. The paper's four versions (M, Sections 4 to 7): System V semaphores; packet slots and semaphores; test&set \
               locks; packet slots and test&set locks. Then Towpath's endpoints.",
        figures: ["M figure 7, left", "M figure 7, right"],
        by_waiting: false,
        rivals: Version::ALL.iter().enumerate().map(rival).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};
    use crate::settings::BenchSettings;
    use std::time::Duration;

    #[test]
    fn all_versions_have_both_figures() {
        let settings = BenchSettings { sample: Duration::from_micros(300), ..quick() };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| Ladder.run(b).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        for version in Version::ALL {
            let of = |metric: &str| {
                sink.records.iter().filter(|r| r.algorithm == version.name() && r.metric == metric).count()
            };
            assert_eq!((of("round_trip_us"), of("bytes_per_s")), (12, 11), "{version:?}");
        }
        assert!(sink.records.iter().all(|r| r.value > 0.0 && r.number("bytes").is_some()));
    }
}
