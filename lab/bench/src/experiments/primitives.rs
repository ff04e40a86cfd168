//! Locks, queues and barriers of this machine, beside libc's, std's, other crates'.

use std::time::Duration;

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::primitives::barriers::{BarrierKind, BarrierLoad, meet};
use crate::primitives::copies::{copied, measure_copies};
use crate::primitives::counter::{CounterKind, CounterLoad, increment};
use crate::primitives::locks::{LockKind, LockLoad, contend};
use crate::primitives::queues::{QueueLoad, ValueQueue, transfer};
use crate::primitives::{MeasuredKind, PrimitiveSettings, shown};
use crate::structures::{MOST, Sharing};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::{Experiment, Results, Section};
use towpath_sync::Policy;

/// Part of a measurement's time for each of the many variants: one in `PART`.
const PART: u32 = 5;

/// Circumstances with that part of the time.
pub(super) fn part<'a>(run: &Circumstances<'a>) -> Circumstances<'a> {
    Circumstances { limit: run.limit / PART, ..*run }
}

/// Time that the system needs to start and end the participants of a measurement, about.
const AROUND: Duration = Duration::from_millis(20);

/// Announces how long it takes to measure all variants, each for that many parts of the
/// time of a measurement.
pub(super) fn announce<T>(bench: &mut Bench<'_>, variants: &[Variant<T>], parts: u32) {
    announce_each(bench, variants, bench.settings.sample / PART * parts);
}

/// Announces how long it takes to measure all variants, each for that time.
pub(super) fn announce_each<T>(bench: &mut Bench<'_>, variants: &[Variant<T>], time: Duration) {
    // Participants run for a tenth of the time before it is measured.
    let each = time * 11 / 10 + AROUND;
    let measurements = variants.len() * bench.settings.runs.max(1) as usize;
    if let Some(first) = variants.first() {
        bench.sink.announce(&first.subject.experiment, measurements, each * measurements as u32);
    }
}

/// Locks.
pub struct LockBench;
/// Readers–writer locks.
pub struct RwLockBench;
/// Bounded queues of values.
pub struct QueueBench;
/// Barriers.
pub struct BarrierBench;
/// Counters.
pub struct CounterBench;

/// Numbers of participants unless told otherwise: alone, and up to eight for each core.
fn procs(bench: &Bench<'_>, least: u32) -> Vec<u32> {
    let mut procs = bench.settings.procs.clone();
    if procs.is_empty() {
        let cores = bench.placement.cores() as u32;
        procs = vec![least, cores, 2 * cores, 4 * cores, 8 * cores];
        procs.iter_mut().for_each(|n| *n = (*n).clamp(least, MOST as u32));
        procs.sort_unstable();
        procs.dedup();
    }
    procs
}

/// The variants that are asked for: each primitive, by each kind and number of
/// participants, under each policy.
pub(super) fn variants<K: MeasuredKind, L>(
    (experiment, bench): (&str, &Bench<'_>),
    (kinds, procs): (Vec<K>, Vec<u32>),
    load: impl Fn(RecordSubject, K, Sharing, u32, Policy) -> (RecordSubject, L),
) -> Vec<Variant<L>> {
    let settings = bench.settings;
    let mut variants = Vec::new();
    for &sharing in &settings.primitives.sharing {
        for &kind in kinds.iter().filter(|kind| settings.asks_for(kind.name())) {
            // The others wait in their own way.
            let policies = if kind.has_policy() { usize::MAX } else { 1 };
            for policy in settings.policies().take(policies) {
                let waiting = if kind.has_policy() { policy.name() } else { "own" };
                for &procs in procs.iter().filter(|&&procs| kind.is_for(sharing, procs)) {
                    let subject = RecordSubject::new(experiment, kind.name(), waiting, procs);
                    let (subject, key) =
                        load(subject.with("sharing", sharing.name()), kind, sharing, procs, policy);
                    variants.push(Variant { subject, key });
                }
            }
        }
    }
    variants
}

/// Measures all variants, each by as many copies as are asked for.
fn compare<L: Clone>(
    bench: &mut Bench<'_>,
    variants: Vec<Variant<L>>,
    measure: impl Fn(&L, &Circumstances<'_>) -> Result<Samples, Error>,
) {
    let PrimitiveSettings { copies, schedulers, .. } = &bench.settings.primitives;
    let variants = copied(variants, copies, schedulers);
    announce(bench, &variants, 1);
    bench.compare(&variants, |_, load, run| measure_copies(load, &part(run), &measure));
}

impl Experiment for LockBench {
    fn name(&self) -> &'static str {
        "locks"
    }
    fn about(&self) -> &'static str {
        "all locks under load, by threads and by processes, beside pthread's, std's, parking_lot's, Concurrency Kit's where it is installed; --critical-section, --between, --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LockKind::all().into_iter().map(LockKind::name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::of_locks(results)
    }
}

impl Measure for LockBench {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        compare_locks(self.name(), bench, LockKind::all());
        Ok(())
    }
}

fn compare_locks(experiment: &str, bench: &mut Bench<'_>, kinds: Vec<LockKind>) {
    let settings = &bench.settings.primitives;
    let &PrimitiveSettings { inside, between, .. } = settings;
    let replay = settings.replay.as_deref();
    let variants =
        variants((experiment, bench), (kinds, procs(bench, 1)), |subject, lock, sharing, procs, policy| {
            let subject = match replay {
                None => subject.with("inside_ns", inside).with("between_ns", between),
                Some(replay) => subject.with("replayed", replay.acquisitions),
            };
            (subject, LockLoad { lock, sharing, procs, policy, inside, between, replay })
        });
    compare(bench, variants, contend);
}

impl Experiment for RwLockBench {
    fn name(&self) -> &'static str {
        "rw-locks"
    }
    fn about(&self) -> &'static str {
        "readers–writer locks of which 95 % of the acquisitions read, by threads and by processes, beside pthread's, std's, parking_lot's, Concurrency Kit's where it is installed; --critical-section, --between, --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LockKind::READERS_WRITER.map(LockKind::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::of_rw_locks(results)
    }
}

impl Measure for RwLockBench {
    fn seconds(&self) -> u64 {
        30
    }
    /// Returns false: it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        compare_locks(self.name(), bench, LockKind::READERS_WRITER.to_vec());
        Ok(())
    }
}

impl Experiment for QueueBench {
    fn name(&self) -> &'static str {
        "queues"
    }
    fn about(&self) -> &'static str {
        "bounded queues of values, many producers to one consumer, by threads and by processes, beside std's, crossbeam's, kanal's, crossfire's; --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        ValueQueue::ALL.map(ValueQueue::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::of_queues(results)
    }
}

impl Measure for QueueBench {
    fn seconds(&self) -> u64 {
        30
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let asked = &bench.settings.procs;
        // One consumer, and 1, 3, 7 producers.
        let procs = if asked.is_empty() { vec![2, 4, 8] } else { asked.clone() };
        let variants = variants(
            (self.name(), bench),
            (ValueQueue::ALL.to_vec(), procs),
            |subject, queue, sharing, procs, _| (subject, QueueLoad { queue, sharing, procs }),
        );
        compare(bench, variants, transfer);
        Ok(())
    }
}

impl Experiment for BarrierBench {
    fn name(&self) -> &'static str {
        "barriers"
    }
    fn about(&self) -> &'static str {
        "all barriers, by threads and by processes, beside pthread's and std's, Concurrency Kit's where it is installed; --between, --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        BarrierKind::all().into_iter().map(BarrierKind::name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::of_barriers(results)
    }
}

impl Measure for BarrierBench {
    fn seconds(&self) -> u64 {
        30
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let between = bench.settings.primitives.between;
        let variants = variants(
            (self.name(), bench),
            (BarrierKind::all(), procs(bench, 2)),
            |subject, barrier, sharing, procs, policy| {
                let subject = subject.with("between_ns", between);
                (subject, BarrierLoad { barrier, sharing, procs, policy, between })
            },
        );
        compare(bench, variants, meet);
        Ok(())
    }
}

impl Experiment for CounterBench {
    fn name(&self) -> &'static str {
        "counter"
    }
    fn about(&self) -> &'static str {
        "a counter that all participants add one to, by each primitive and under each lock, by threads and by processes; --between, --sharing"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        CounterKind::all().into_iter().map(CounterKind::name).collect()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        shown::of_counters(results)
    }
}

impl Measure for CounterBench {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let between = bench.settings.primitives.between;
        let variants = variants(
            (self.name(), bench),
            (CounterKind::all(), procs(bench, 1)),
            |subject, counter, sharing, procs, policy| {
                let subject = subject.with("between_ns", between);
                (subject, CounterLoad { counter, sharing, procs, policy, between })
            },
        );
        compare(bench, variants, increment);
        Ok(())
    }
}
