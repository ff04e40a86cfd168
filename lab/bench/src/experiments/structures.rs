//! Lock-free structures in shared memory, beside the same under locks and other crates':
//! throughput and tail latency, also while participants are stopped or killed (paper G).

use towpath_sync::Policy;

use super::primitives::announce_each;
use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::settings::BenchSettings;
use crate::structures::{Contest, Damage, Load, Sharing, StructureAlgorithm, kills, throughput};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{DEATH_MS, INCONSISTENT, KILLS, LEAKED_DESCRIPTORS, LOST, RECOVERY_MS};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Structures;

/// Numbers of participants unless told otherwise: throughput, with some stopped, with
/// kills.
const PROCS: [u32; 4] = [1, 2, 4, 8];
const PROCS_STOPPED: [u32; 3] = [2, 4, 8];
const PROCS_KILLED: [u32; 1] = [4];
/// Part of a measurement's time for each of the many variants: one in `PART`. A ratio of
/// two needs more.
const PART: u32 = 10;
const PART_STOPPED: u32 = 4;

impl Experiment for Structures {
    fn name(&self) -> &'static str {
        "structures"
    }
    fn about(&self) -> &'static str {
        "stack, queue, list, hash map and priority queue by DCAS, beside those under locks and other crates' (paper G); --stop, --kill, --kills"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        StructureAlgorithm::ALL.map(StructureAlgorithm::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        crate::structures::shown::sections(results)
    }
}

impl Measure for Structures {
    fn seconds(&self) -> u64 {
        60
    }
    /// Returns false: it compares so much that it runs only when it is named.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        match bench.settings.structures.kills {
            Some(count) => kill(bench, count),
            None => measure(bench),
        }
        Ok(())
    }
}

/// All contests: ours and the structures under our locks by processes; the peers by
/// threads, and ours beside them by threads.
fn contests(settings: &BenchSettings) -> Vec<Contest> {
    let chosen = |a: &StructureAlgorithm| settings.asks_for(a.name());
    let mut contests = Vec::new();
    for &structure in &settings.structures.structures {
        let algorithms: Vec<StructureAlgorithm> =
            StructureAlgorithm::ALL.into_iter().filter(|a| a.offers(structure) && chosen(a)).collect();
        let has_peers = algorithms.iter().any(|a| a.threads_only());
        for algorithm in algorithms {
            if !algorithm.threads_only() {
                contests.push(Contest { structure, algorithm, sharing: Sharing::Processes });
            }
            if algorithm.threads_only() || algorithm == StructureAlgorithm::Guerraoui && has_peers {
                contests.push(Contest { structure, algorithm, sharing: Sharing::Threads });
            }
        }
    }
    contests
}

fn procs(settings: &BenchSettings, otherwise: &[u32]) -> Vec<u32> {
    if settings.procs.is_empty() { otherwise.to_vec() } else { settings.procs.clone() }
}

fn subject(contest: Contest, policy: Policy, procs: u32) -> RecordSubject {
    let waiting = if contest.algorithm.threads_only() { "own" } else { policy.name() };
    RecordSubject::new("structures", contest.algorithm.name(), waiting, procs)
        .with("structure", contest.structure.name())
        .with("sharing", contest.sharing.name())
}

/// The variants of the throughput measurement.
fn loads(settings: &BenchSettings) -> Vec<Load> {
    let asked = &settings.structures;
    let mut loads: Vec<Load> = Vec::new();
    let all = procs(settings, if asked.stop > 0 { &PROCS_STOPPED } else { &PROCS });
    for contest in contests(settings) {
        let reads: &[u32] = if contest.structure.has_keys() { &asked.reads } else { &[0] };
        for (n, policy) in settings.policies().enumerate() {
            if contest.algorithm.threads_only() && n > 0 {
                continue; // It waits in its own way.
            }
            for &reads in reads {
                for &procs in all.iter().filter(|n| **n > asked.stop) {
                    let (stopped, kill_rate) = (asked.stop, asked.kill_rate);
                    loads.push(Load { contest, procs, stopped, reads, kill_rate, policy });
                }
            }
        }
    }
    loads
}

fn measure(bench: &mut Bench<'_>) {
    let variants: Vec<Variant<Load>> = loads(bench.settings)
        .into_iter()
        .map(|load| {
            let mut subject = subject(load.contest, load.policy, load.procs).with("stopped", load.stopped);
            if load.contest.structure.has_keys() {
                subject = subject.with("reads", load.reads);
            }
            if load.kill_rate > 0.0 {
                subject = subject.with("kill_rate", load.kill_rate);
            }
            Variant { subject, key: load }
        })
        .collect();
    let part = if bench.settings.structures.stop > 0 { PART_STOPPED } else { PART };
    announce_each(bench, &variants, bench.settings.sample / part);
    bench.compare(&variants, |_, load, run| {
        throughput(load, &Circumstances { limit: run.limit / part, ..*run })
    });
}

/// The kills that the user asked for are divided among the rounds, so that the total is
/// what was asked for.
fn kill(bench: &mut Bench<'_>, count: u32) {
    let (settings, pool) = (bench.settings, bench.settings.structures.pool);
    let (rounds, policy) = (settings.runs.max(1), settings.policies().next().unwrap_or_default());
    let mut variants: Vec<Variant<(usize, Contest, usize)>> = Vec::new();
    for contest in contests(settings) {
        if contest.sharing == Sharing::Threads && !contest.algorithm.threads_only() {
            continue;
        }
        for procs in procs(settings, &PROCS_KILLED) {
            let subject = subject(contest, policy, procs).with("stopped", 0).with("pool", pool);
            variants.push(Variant { subject, key: (variants.len(), contest, procs as usize) });
        }
    }
    let mut total: Vec<Damage> = variants.iter().map(|_| Damage::default()).collect();
    bench.compare(&variants, |_, &(n, contest, procs), run| {
        let share = count / rounds + u32::from(run.round < count % rounds);
        if share > 0 {
            total[n].add(kills(contest, share, (procs, pool, policy), run)?);
        }
        Ok(Samples::default())
    });
    for (variant, damage) in variants.iter().zip(&total) {
        if damage.kills > 0 {
            bench.record(&variant.subject, samples(damage));
        }
    }
}

fn samples(damage: &Damage) -> Samples {
    let mut samples = Samples::one(KILLS, damage.kills as f64);
    samples.push(LOST, damage.lost as f64);
    samples.push(LEAKED_DESCRIPTORS, damage.leaked as f64);
    samples.push(INCONSISTENT, damage.inconsistent as f64);
    samples.values.extend(damage.recovery_ms.iter().map(|&ms| (RECOVERY_MS, ms)));
    samples.values.extend(damage.death_ms.iter().map(|&ms| (DEATH_MS, ms)));
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};
    use crate::settings::StructureSettings;
    use crate::structures::Structure;
    use std::time::Duration;

    fn asked(structures: StructureSettings, algorithms: &[&str], procs: &[u32]) -> BenchSettings {
        BenchSettings {
            structures,
            algorithms: algorithms.iter().map(|a| a.to_string()).collect(),
            procs: procs.to_vec(),
            sample: Duration::from_millis(200),
            ..quick()
        }
    }

    #[test]
    fn rivals_are_compared_with_their_like_beside_them() {
        let structures = StructureSettings {
            structures: vec![Structure::HashMap],
            reads: vec![50, 90],
            ..StructureSettings::default()
        };
        let loads = loads(&asked(structures, &["guerraoui", "dashmap"], &[2]));
        let all: Vec<_> = loads.iter().map(|l| (l.contest.algorithm, l.contest.sharing, l.reads)).collect();
        assert_eq!(all.len(), 6, "{all:?}");
        assert!(all.contains(&(StructureAlgorithm::Guerraoui, Sharing::Threads, 90)));
        assert!(!all.contains(&(StructureAlgorithm::DashMap, Sharing::Processes, 90)));
    }

    #[test]
    fn participants_are_left_when_some_are_stopped() {
        let structures =
            StructureSettings { structures: vec![Structure::Stack], stop: 1, ..StructureSettings::default() };
        let loads = loads(&asked(structures, &["robust"], &[1, 2, 3]));
        let all: Vec<_> = loads.iter().map(|l| (l.procs, l.stopped)).collect();
        assert_eq!(all, [(2, 1), (3, 1)]);
    }

    #[test]
    fn throughput_and_latency_are_recorded() {
        let structures =
            StructureSettings { structures: vec![Structure::Fifo], stop: 1, ..StructureSettings::default() };
        let settings = asked(structures, &["guerraoui"], &[2]);
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| Structures.run(b).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        assert_eq!(sink.announced, [settings.runs as usize]);
        let rates: Vec<_> = sink.records.iter().filter(|r| r.metric == "operations_per_s").collect();
        assert_eq!(rates.iter().map(|r| (r.procs, r.number("stopped"))).collect::<Vec<_>>(), [(2, Some(1))]);
        assert!(sink.records.iter().any(|r| r.metric == "operations_per_s_without"));
        assert!(rates.iter().all(|r| r.text("structure") == Some("fifo") && r.text("sharing").is_some()));
        assert!(sink.records.iter().any(|r| r.metric == "p999_us"));
    }

    #[test]
    fn kills_add_up_and_what_cannot_be_killed_is_named() {
        let structures = StructureSettings {
            structures: vec![Structure::HashMap],
            kills: Some(7),
            pool: 4096,
            ..StructureSettings::default()
        };
        let settings = BenchSettings { runs: 2, ..asked(structures, &["guerraoui", "dashmap"], &[3]) };
        let mut sink = Collected::default();
        bench_with(&settings, &mut [], &mut sink, |b| Structures.run(b).unwrap());
        let figure = |metric: &str| sink.records.iter().find(|r| r.metric == metric).map(|r| r.value);
        assert_eq!(figure("kills"), Some(7.0));
        assert_eq!(
            (figure("lost"), figure("leaked_descriptors"), figure("inconsistent")),
            (Some(0.0), Some(0.0), Some(0.0))
        );
        assert_eq!(sink.records.iter().find(|r| r.metric == "recovery_ms").map(|r| r.runs), Some(7));
        assert_eq!(sink.missing.len(), 1);
        assert!(sink.missing[0].1.contains("thread"), "{:?}", sink.missing);
    }
}
