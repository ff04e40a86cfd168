//! Locks by message beside other locks between processes (paper K).

use std::collections::BTreeMap;

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::mplocks::{LockAlgorithm, LockState, MpLockBench, p99};
use towpath_host::Error;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{NEXT_GRANT_MS, NEXT_GRANT_P99_MS};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct MpLocks;

/// Numbers of processes that contend, unless told otherwise.
const PROCS: [u32; 1] = [8];

impl Experiment for MpLocks {
    fn name(&self) -> &'static str {
        "mplocks"
    }
    fn about(&self) -> &'static str {
        "locks by message beside pthread's, flock, MPI's, etcd's and Redis': acquisition in each state, contention, death of a holder (paper K)"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        LockAlgorithm::ALL.map(LockAlgorithm::name).to_vec()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        crate::mplocks::shown::sections(results)
    }
}

impl Measure for MpLocks {
    fn seconds(&self) -> u64 {
        120
    }
    /// False: it starts servers and MPIs, and is asked for by name.
    fn is_one_of_all(&self) -> bool {
        false
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let chosen = |it: &LockAlgorithm| {
            bench.settings.algorithms.is_empty() || bench.settings.algorithms.iter().any(|n| n == it.name())
        };
        let algorithms: Vec<LockAlgorithm> = LockAlgorithm::ALL.into_iter().filter(chosen).collect();
        let procs =
            if bench.settings.procs.is_empty() { PROCS.to_vec() } else { bench.settings.procs.clone() };
        let states = match bench.settings.structures.kills {
            Some(_) => &[LockState::Killed][..],
            None => &LockState::ALL,
        };
        let mut variants = Vec::new();
        for &state in states {
            let procs = match state {
                LockState::LocalIdle => vec![1],
                LockState::Contended | LockState::BackToBack => procs.clone(),
                _ => vec![2],
            };
            for procs in procs {
                for algorithm in algorithms.iter().copied().filter(|it| it.has(state)) {
                    let subject = RecordSubject::new(self.name(), algorithm.name(), "own", procs)
                        .with("state", state.name());
                    variants.push(Variant { subject, key: (algorithm, state, procs as usize) });
                }
            }
        }
        let mut arena = MpLockBench::new()?;
        let mut grants: BTreeMap<LockAlgorithm, Vec<f64>> = BTreeMap::new();
        bench.compare(&variants, |_, &(algorithm, state, procs), run| {
            let samples = arena.measure((algorithm, state), procs, run)?;
            if state != LockState::Killed {
                return Ok(samples);
            }
            grants.entry(algorithm).or_default().extend(samples.values.iter().map(|(_, ms)| *ms));
            Ok(Samples::default())
        });
        for Variant { subject, key: (algorithm, state, _) } in &variants {
            let times = grants.get(algorithm).filter(|_| *state == LockState::Killed);
            if let Some(times) = times {
                let mut samples = Samples::default();
                times.iter().for_each(|ms| samples.push(NEXT_GRANT_MS, *ms));
                p99(times).into_iter().for_each(|ms| samples.push(NEXT_GRANT_P99_MS, ms));
                bench.record(subject, samples);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};
    use crate::settings::{BenchSettings, StructureSettings};

    fn asked(names: &[&str]) -> BenchSettings {
        let algorithms = names.iter().map(|name| name.to_string()).collect();
        BenchSettings { algorithms, procs: vec![3], runs: 1, kills: 1, ..quick() }
    }

    #[test]
    fn each_state_of_a_lock_by_message_is_recorded() {
        let mut sink = Collected::default();
        let computing = ["central-thread", "endpoint-signal"];
        let names = ["central", "flock", computing[0], computing[1]];
        bench_with(&asked(&names), &mut [], &mut sink, |b| MpLocks.run(b).unwrap());
        assert!(sink.missing.is_empty(), "{:?}", sink.missing);
        let found = |name: &str, state: LockState, metric: &str| {
            let is = |r: &&towpath_report::Record| {
                r.algorithm == name && r.metric == metric && r.text("state") == Some(state.name())
            };
            sink.records.iter().find(is).map(|r| r.value)
        };
        for name in ["central", "flock"] {
            for (state, metric) in [
                (LockState::LocalIdle, "acquire_ns"),
                (LockState::RemoteIdle, "acquire_ns"),
                (LockState::RemoteBusy, "hand_over_ns"),
                (LockState::Computing, "acquire_ns"),
                (LockState::Contended, "acquisitions_per_s"),
                (LockState::Killed, "next_grant_ms"),
            ] {
                assert!(found(name, state, metric).is_some_and(|value| value > 0.0), "{name} {state:?}");
            }
        }
        for name in computing {
            assert!(found(name, LockState::Computing, "acquire_ns").is_some_and(|ns| ns > 0.0), "{name}");
        }
        // Table 1 of paper K, half of whose acquisitions are the home's own here.
        assert_eq!(found("central", LockState::RemoteIdle, "hops_per_grant").map(f64::round), Some(1.0));
        assert_eq!(found("central", LockState::LocalIdle, "messages_per_grant"), Some(0.0));
        // Kills that are asked for are all made, and nothing else.
        let structures = StructureSettings { kills: Some(3), ..StructureSettings::default() };
        let asked = BenchSettings { structures, kills: 3, runs: 2, ..asked(&["flock"]) };
        let mut sink = Collected::default();
        bench_with(&asked, &mut [], &mut sink, |b| MpLocks.run(b).unwrap());
        assert!(sink.records.iter().all(|r| r.text("state") == Some("killed")), "{:?}", sink.records);
        assert!(
            sink.records.iter().any(|r| r.metric == "next_grant_ms" && r.runs == 3),
            "{:?}",
            sink.records
        );
    }

    #[test]
    fn lock_server_that_is_not_there_is_named_with_its_script() {
        // No lock of this host is asked for, so no process is started.
        let text = crate::mplocks::missing_server("no-such-server").to_string();
        assert!(text.contains("no-such-server") && text.contains("install-lock-servers.sh"), "{text}");
    }
}
