//! Buffers that move through three stages and are not copied.

use super::primitives::{announce, part, variants};
use crate::experiment::{Bench, Measure, Variant};
use crate::primitives::MeasuredKind;
use crate::primitives::pool::{BufferKind, POOL_SIZES, PoolLoad, STAGES, pass_through};
use crate::primitives::rows::{FigureColumn, SubjectTable};
use towpath_host::Error;
use towpath_report::record::metrics::{BYTES_PER_S, CONTEXT_SWITCHES, CPU_SECONDS};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct PoolBench;

impl Experiment for PoolBench {
    fn name(&self) -> &'static str {
        "pool"
    }
    fn about(&self) -> &'static str {
        "buffers of a pool through three processes, each of which touches all bytes, beside boxes through crossbeam's channels between threads; --sizes"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        BufferKind::ALL.map(BufferKind::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        let table = SubjectTable {
            experiment: self.name(),
            title: "Buffers through three stages",
            note: "The first stage fills each buffer, the second and third read all of it; six buffers are used again and again. Processor time in µs, and context switches, of all three for each buffer that a stage passes on.",
            fields: &[("sharing", "sharing"), ("bytes", "bytes")],
            columns: &[
                FigureColumn::new("GB/s", BYTES_PER_S, 1e9),
                FigureColumn::new("cpu, µs", CPU_SECONDS, 1.0),
                FigureColumn::new("switches", CONTEXT_SWITCHES, 1.0),
            ],
        };
        vec![table.section(results)]
    }
}

impl Measure for PoolBench {
    fn seconds(&self) -> u64 {
        10
    }
    /// Returns false: it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let mut all: Vec<Variant<PoolLoad>> = Vec::new();
        for &bytes in bench.settings.primitives.sizes_or(&POOL_SIZES) {
            all.extend(variants(
                (self.name(), bench),
                (BufferKind::ALL.to_vec(), vec![STAGES]),
                |subject, way, sharing, _, _| {
                    (subject.with("bytes", bytes), PoolLoad { way, sharing, bytes })
                },
            ));
        }
        announce(bench, &all, 1);
        bench.compare(&all, |_, load, run| pass_through(load, &part(run)));
        Ok(())
    }
}
