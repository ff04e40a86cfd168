//! Records: an experiment's figures, one flat JSON object per line.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::stats::{percentile, summarise};
use towpath_host::Host;

/// The `machine` of everything that is measured on the machine at hand (simulated
/// machines have names of their own).
pub const NATIVE: &str = "native";

/// Maximum number of samples in a record.
pub const MOST_SAMPLES: usize = 64;

/// An extra field's value as people read it: text without quotes.
pub fn plainly(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

/// One measured figure, with where it comes from. Serialises to one flat object: the
/// fields below, then the host's, then the extra ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The experiment: `floor`, `logp`, `stress`, `bulk`, `crash`, `idle`.
    pub experiment: String,
    /// The machine: [`NATIVE`], or a simulated machine's name.
    pub machine: String,
    /// The claim algorithm or peer; in the floor `hardware`, `memcpy` or `kernel`.
    pub algorithm: String,
    /// The waiting policy; `own` where a peer has its own, `none` where there is no
    /// waiter.
    pub waiting: String,
    /// Number of processes.
    pub procs: u32,
    /// The metric, with its unit at the end of its name.
    pub metric: String,
    /// The unit.
    pub unit: String,
    /// The median of the runs.
    pub value: f64,
    /// The smallest of the runs.
    pub min: f64,
    /// The largest of the runs.
    pub max: f64,
    /// Number of runs.
    pub runs: u32,
    /// The value of each run, in the order of the runs: figures of one experiment with
    /// equal places were taken one shortly after the other. Left out where there are more than
    /// [`MOST_SAMPLES`].
    #[serde(default)]
    pub samples: Vec<f64>,
    /// Seed of the experiment's pseudo-random parts.
    pub seed: u64,
    /// The host's description.
    #[serde(flatten)]
    pub host: Host,
    /// Other circumstances of this figure: `writers`, `bytes`, `lines`, `path`, …
    #[serde(flatten)]
    pub extra: Extra,
}

/// The fields of a record beyond the common ones.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// The subject of a measurement: a [`Record`] before its value is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecordSubject {
    /// See [`Record::experiment`].
    pub experiment: String,
    /// See [`Record::algorithm`].
    pub algorithm: String,
    /// See [`Record::waiting`].
    pub waiting: String,
    /// See [`Record::procs`].
    pub procs: u32,
    /// See [`Record::extra`].
    pub extra: Extra,
}

impl RecordSubject {
    /// A subject without extra fields.
    pub fn new(experiment: &str, algorithm: &str, waiting: &str, procs: u32) -> Self {
        RecordSubject {
            experiment: experiment.into(),
            algorithm: algorithm.into(),
            waiting: waiting.into(),
            procs,
            extra: Extra::new(),
        }
    }

    /// The subject in a few words, for progress and tables.
    pub fn describe(&self) -> String {
        let mut text = self.algorithm.clone();
        if !matches!(self.waiting.as_str(), "" | "own" | "none") {
            text.push_str(&format!(" ({})", self.waiting));
        }
        for (key, value) in &self.extra {
            text.push_str(&format!(" {key}={}", plainly(value)));
        }
        text
    }

    /// The subject with one more extra field.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extra.insert(key.into(), value.into());
        self
    }

    /// The record of one of its metrics, from the value of each run; `None` if no run
    /// yielded a finite value.
    pub fn record(&self, metric: Metric, samples: &[f64], seed: u64, host: &Host) -> Option<Record> {
        let summary = summarise(samples)?;
        let all_finite = samples.iter().all(|s| s.is_finite());
        Some(Record {
            experiment: self.experiment.clone(),
            machine: NATIVE.into(),
            algorithm: self.algorithm.clone(),
            waiting: self.waiting.clone(),
            procs: self.procs,
            metric: metric.name.into(),
            unit: metric.unit.into(),
            value: summary.median,
            min: summary.min,
            max: summary.max,
            runs: summary.runs,
            samples: if all_finite && samples.len() <= MOST_SAMPLES { samples.to_vec() } else { Vec::new() },
            seed,
            host: host.clone(),
            extra: self.extra.clone(),
        })
    }
}

impl Record {
    /// An extra field as a number, if it is there and is one.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.extra.get(key)?.as_u64()
    }

    /// An extra field as text, if it is there and is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.extra.get(key)?.as_str()
    }

    /// This figure divided by another one of the same experiment: the median of the
    /// ratios within each round, so that what disturbs the machine for a while disturbs both. Where
    /// rounds can't be matched, the ratio of the medians.
    pub fn divided_by(&self, other: &Record) -> Option<f64> {
        let matched = !self.samples.is_empty() && self.samples.len() == other.samples.len();
        let ratio = if matched {
            let ratios: Vec<f64> = self.samples.iter().zip(&other.samples).map(|(a, b)| a / b).collect();
            percentile(&ratios, 50.0)
        } else {
            Some(self.value / other.value)
        };
        ratio.filter(|r| r.is_finite())
    }

    /// The record as one line of JSON, without the line's end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a record has only string keys and finite numbers")
    }
}

/// The name of a metric and its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Metric {
    /// Name, see [`Record::metric`].
    pub name: &'static str,
    /// Unit, see [`Record::unit`].
    pub unit: &'static str,
}

/// The metrics of this laboratory.
pub mod metrics {
    use super::Metric;

    macro_rules! metrics {
        ($($(#[$doc:meta])* $constant:ident = $name:literal, $unit:literal;)*) => {
            $($(#[$doc])* pub const $constant: Metric = Metric { name: $name, unit: $unit };)*
            /// All of them.
            pub const ALL: &[Metric] = &[$($constant),*];
        };
    }

    metrics! {
        /// `floor`: one or two cache lines (extra field `lines`) to another process and
        /// back.
        LINE_ROUND_TRIP = "line_round_trip_ns", "ns";
        /// `floor`: copying `bytes` within one process.
        MEMCPY = "memcpy_bytes_per_s", "bytes/s";
        /// `floor`: cost of waking `sleepers` (0 or 1) processes for their waker.
        FUTEX_WAKE = "futex_wake_ns", "ns";
        /// `floor`: from one sleeper to the other and back, on `across_cores` (1 or 2)
        /// cores.
        FUTEX_ROUND_TRIP = "futex_round_trip_ns", "ns";
        /// `floor`: the shortest system call.
        SYSCALL = "syscall_ns", "ns";
        /// `floor`: one switch from one process to another on the same core.
        CONTEXT_SWITCH = "context_switch_ns", "ns";
        /// `logp`: L.
        LATENCY = "latency_ns", "ns";
        /// `logp`: o_s.
        SEND_OVERHEAD = "send_overhead_ns", "ns";
        /// `logp`: o_r.
        RECEIVE_OVERHEAD = "receive_overhead_ns", "ns";
        /// `logp`: g.
        GAP = "gap_ns", "ns";
        /// `ladder`, `mpi`: a message of `bytes` to the partner and one back.
        ROUND_TRIP_US = "round_trip_us", "us";
        /// `mpi`: messages that rank 0 receives from all others.
        MANY_TO_ONE_PER_S = "many_to_one_per_s", "messages/s";
        /// `mpi`: a barrier of all ranks. `barriers`: an episode.
        BARRIER_US = "barrier_us", "us";
        /// `mpi`: the sum of 8 bytes of each rank.
        ALLREDUCE_US = "allreduce_us", "us";
        /// `mpi`: 1,024 bytes from each rank to each other.
        ALLTOALL_US = "alltoall_us", "us";
        /// `mpi`: cost of a test that finds nothing, for a rank that works for a
        /// microsecond between two.
        TEST_US = "test_us", "us";
        /// `logp`: request and reply.
        ROUND_TRIP = "round_trip_ns", "ns";
        /// `logp`: round trip by that of two cache lines, which the same processes
        /// measure in turn.
        ROUND_TRIP_OVER_FLOOR = "round_trip_over_floor", "ratio";
        /// `stress`: messages that the reader receives. `queues`: values received.
        /// `broadcast`: messages that each reader receives.
        MESSAGES_PER_S = "messages_per_s", "messages/s";
        /// `stress`: Jain's index over the writers' rates (1: all alike, 1/n: one has
        /// everything).
        FAIRNESS = "fairness", "ratio";
        /// `stress`: processor time that all processes used together, per million
        /// messages.
        CPU_SECONDS = "cpu_seconds", "s";
        /// `bulk`: payload bandwidth at transfers of `bytes`. `pool`: of buffers through
        /// three stages.
        BYTES_PER_S = "bytes_per_s", "bytes/s";
        /// `structures`: operations of all participants that were not stopped. `counter`:
        /// increments.
        OPERATIONS_PER_S = "operations_per_s", "operations/s";
        /// `structures`: the same while those that are stopped otherwise wait outside, in
        /// the same rounds: as many fewer participants.
        WITHOUT_PER_S = "operations_per_s_without", "operations/s";
        /// `structures`: one operation in a thousand takes longer; of all participants,
        /// also what those that were stopped took meanwhile. `crash`: one recovery in a thousand
        /// does.
        P999_US = "p999_us", "us";
        /// `locks`, `barriers`: half of the acquisitions, or episodes, take longer.
        /// `broadcast`: of the wake-ups at a message each 5 ms.
        P50_US = "p50_us", "us";
        /// `locks`, `barriers`, `broadcast`: one in a hundred takes longer.
        P99_US = "p99_us", "us";
        /// `locks`, `barriers`: the longest.
        SLOWEST_US = "slowest_us", "us";
        /// `apps`: from the start of the first processor to the end of the last one.
        SOLUTION_MS = "solution_ms", "ms";
        /// `structures`: descriptors that are neither free nor in the structure after
        /// recovery.
        LEAKED_DESCRIPTORS = "leaked_descriptors", "count";
        /// `structures`: items that came out twice, were there though they should not be,
        /// or had other contents.
        INCONSISTENT = "inconsistent", "count";
        /// `structures`: from the kill until all descriptors of the dead one are
        /// recovered.
        RECOVERY_MS = "recovery_ms", "ms";
        /// `structures`: how much of that passes until the system says that it is dead:
        /// before, it may still act.
        DEATH_MS = "death_ms", "ms";
        /// `kills` and its like: kills after which a participant did not get on.
        HUNG = "hung", "count";
        /// `crash`, `structures`, `kills`: how many were killed.
        KILLS = "kills", "count";
        /// `crash`: messages that were published and never arrived; `structures`: items
        /// that an operation that had ended put in, and that can't be found.
        LOST = "lost", "count";
        /// `crash`: messages that arrived twice.
        DUPLICATED = "duplicated", "count";
        /// `crash`: slots that stayed unusable after recovery.
        LEAKED_SLOTS = "leaked_slots", "count";
        /// `crash`: from the kill to the next message of a survivor.
        RECOVERY = "recovery_us", "us";
        /// `idle`: how much of a core a waiting process uses. `broadcast`: a reader at a
        /// message each 5 ms.
        CPU_FRACTION = "cpu_fraction", "ratio";
        /// `dcas`: one double compare-and-swap with the reads of its two words;
        /// contended: the time by the number of those of all processes that succeeded.
        DCAS_NS = "dcas_ns", "ns";
        /// `dcas`: one compare-and-swap with the loads of two words, in the same rounds.
        CAS_NS = "cas_ns", "ns";
        /// `simulator`: accesses that hit in a simulated cache, by one of `procs`
        /// simulated processors, per second of the host.
        HITS_PER_S = "hits_per_s", "1/s";
        /// `simulator`: events, while `procs` simulated processors contend for a line.
        EVENTS_PER_S = "events_per_s", "1/s";
        /// `simulator`: accesses meanwhile.
        CONTENDED_ACCESSES_PER_S = "contended_accesses_per_s", "1/s";
        /// Simulated: the whole time by the number of operations of all processors.
        TIME_PER_OPERATION = "time_per_operation_ns", "ns";
        /// Simulated: store-conditionals that failed, for each operation (and so the
        /// following).
        FAILED_CONDITIONALS = "failed_conditionals_per_operation", "count";
        /// Simulated: invalidations that homes (or the bus) sent.
        INVALIDATIONS = "invalidations_per_operation", "count";
        /// Simulated: invalidations as the processors' counters see them (both of a
        /// node).
        INVALIDATIONS_RECEIVED = "invalidations_received_per_operation", "count";
        /// Simulated: lines that were asked of an owner.
        INTERVENTIONS = "interventions_per_operation", "count";
        /// Simulated: the same as the processors' counters see them.
        INTERVENTIONS_RECEIVED = "interventions_received_per_operation", "count";
        /// Simulated: lines fetched.
        MISSES = "misses_per_operation", "count";
        /// Simulated: lines fetched within the node.
        LOCAL_MISSES = "local_misses_per_operation", "count";
        /// Simulated: lines fetched from elsewhere.
        REMOTE_MISSES = "remote_misses_per_operation", "count";
        /// Simulated: lines fetched through one router, or of the second class of
        /// distance (and so the following).
        MISSES_1 = "misses_at_distance_1_per_operation", "count";
        /// See above.
        MISSES_2 = "misses_at_distance_2_per_operation", "count";
        /// See above.
        MISSES_3 = "misses_at_distance_3_per_operation", "count";
        /// See above.
        MISSES_4 = "misses_at_distance_4_per_operation", "count";
        /// See above; and farther.
        MISSES_5 = "misses_at_distance_5_per_operation", "count";
        /// Simulated: requests for ownership of a line that was there (exclusive stores
        /// to shared lines).
        UPGRADES = "upgrades_per_operation", "count";
        /// Simulated: operations at memory.
        FETCH_OPS = "fetch_ops_per_operation", "count";
        /// Simulated: messages in the network, or transactions on the bus.
        NETWORK_MESSAGES = "network_messages_per_operation", "count";
        /// Simulated: requests that a home refused.
        REFUSALS = "refusals_per_operation", "count";
        /// Simulated: the busiest home's share of time in which it was busy.
        HOME_OCCUPANCY = "home_occupancy", "ratio";
        /// `locks`, `queues`, `barriers`, simulated: context switches.
        CONTEXT_SWITCHES = "context_switches_per_operation", "count";
        /// Simulated `messages`: requests that a poll delivered which found one.
        REQUESTS_PER_POLL = "requests_per_poll", "count";
        /// Simulated: compare-and-swaps that found another value.
        FAILED_EXCHANGES = "failed_exchanges_per_operation", "count";
        /// Simulated `messages`: how long a writer has the queue's lock, or is between
        /// reading the tail and the end of its compare-and-swap.
        WINDOW = "window_ns", "ns";
        /// `mplocks`: one acquisition of a lock that is free, by `state`.
        ///
        /// Where that is local idle, with the release.
        ACQUIRE_NS = "acquire_ns", "ns";
        /// `mplocks`: that of a lock across hosts, as the agent sees it.
        ACQUIRE_AT_AGENT_NS = "acquire_at_agent_ns", "ns";
        /// `mplocks`: from a release to the waiter's return with the lock.
        HAND_OVER_NS = "hand_over_ns", "ns";
        /// `mplocks`, `locks`: acquisitions of all, which want the lock all the time.
        ACQUISITIONS_PER_S = "acquisitions_per_s", "1/s";
        /// `mplocks`: messages between processes for each acquisition.
        MESSAGES_PER_GRANT = "messages_per_grant", "count";
        /// `mplocks`: those of them that a grant waits for.
        ///
        /// From the request on, or from the release where the lock is busy.
        HOPS_PER_GRANT = "hops_per_grant", "count";
        /// `mplocks`: from `kill -9` of a holder until the waiter has the lock.
        NEXT_GRANT_MS = "next_grant_ms", "ms";
        /// `mplocks`: one such time in a hundred is longer.
        NEXT_GRANT_P99_MS = "next_grant_p99_ms", "ms";
        /// `mplocks`: the slowest process's part of an equal share.
        ///
        /// Simulated `messages`: the slowest writer's.
        LEAST_SHARE = "least_share", "ratio";
        /// Simulated `messages`: compare-and-swaps of one short message without
        /// contention.
        EXCHANGES_SHORT = "exchanges_of_a_short_message", "count";
        /// Simulated `messages`: compare-and-swaps of one bulk transfer without
        /// contention.
        EXCHANGES_BULK = "exchanges_of_a_bulk_transfer", "count";
        /// Simulated `messages`: the bandwidth of bulk transfers as a part of the rate at
        /// which a processor copies memory.
        OF_COPY_RATE = "of_copy_rate", "ratio";
        /// Simulated: how long a copy of the program takes on average, from the start to
        /// its own end, for each of its operations.
        PROGRAM_TIME = "program_time_per_operation", "ns";
        /// Simulated: how many of a program's threads are within an operation, on
        /// average: they work on what is shared or wait for it, whether they have a processor or
        /// not. Too many under time sharing: a thread that loses its processor between its work and
        /// its operation counts as within it.
        CONTENDERS = "threads_in_operation", "count";
        /// `structures`: the part of the times in which participants were stopped in
        /// which the others did nothing. Simulated: the part of a program's time in which none of
        /// its operations ended for a quarter of a time slice or longer (under time sharing:
        /// the participant that was to go on had no processor).
        STANDSTILL = "standstill", "ratio";
        /// Simulated `list`: from the start until the last process is done, in cycles of
        /// the machine.
        COMPLETION_CYCLES = "completion_cycles", "count";
        /// Simulated `list`: the part of all accesses to shared memory that the caches
        /// satisfied at once.
        HIT_RATE = "hit_rate", "ratio";
        /// Simulated `list`: nodes of the list that an insertion or a deletion passed.
        NODES_PASSED = "nodes_per_operation", "count";
        /// Simulated: the part of the time in which the bus was held.
        BUS_HELD = "bus_held", "ratio";
        /// Simulated `list`: double compare-and-swaps that found other values, for each
        /// pair of an insertion and a deletion.
        FAILED_DOUBLES = "failed_doubles_per_operation", "count";
        /// Simulated `list`: changes of a count of active threads by the operating
        /// system.
        ACTIVE_CHANGES = "active_changes_per_operation", "count";
        /// Simulated `list`: holders of locks that the operating system has rolled back.
        ROLL_BACKS = "roll_backs_per_operation", "count";
        /// Simulated: interrupts by messages.
        MESSAGE_INTERRUPTS = "interrupts_per_operation", "count";
        /// Simulated: the part of the operations in whose critical sections a forwarded
        /// request interrupted the holder.
        INTERRUPTS_INSIDE = "interrupts_inside_sections", "ratio";
        /// Simulated: the part of the operations in whose critical sections a forwarded
        /// request for the lock itself interrupted the holder.
        HOLDERS_ASKED = "holders_asked_for_their_lock", "ratio";
        /// Simulated: time in kernels, by system calls and interrupts about messages.
        KERNEL_TIME = "kernel_time_per_operation", "ns";
        /// Simulated `mplocks`, its programs: computation, all threads together. Kernels'
        /// time counts as none of this and the following three.
        COMPUTING_TIME = "computing_time_per_operation", "ns";
        /// Simulated `mplocks`, its programs: accesses to shared data.
        SHARED_TIME = "shared_data_time_per_operation", "ns";
        /// Simulated `mplocks`, its programs: waiting at barriers.
        BARRIER_TIME = "barrier_time_per_operation", "ns";
        /// Simulated `mplocks`, its programs: acquiring and releasing locks.
        LOCK_TIME = "lock_time_per_operation", "ns";
        /// Simulated `mplocks`: the part of the acquisitions that found the lock free and
        /// last held by the same node.
        LOCAL_IDLE = "local_idle", "ratio";
        /// Simulated `mplocks`: the part that found it free, last held elsewhere.
        REMOTE_IDLE = "remote_idle", "ratio";
        /// Simulated `mplocks`: the part that found it held.
        REMOTE_BUSY = "remote_busy", "ratio";
        /// Simulated `apps`: acquisitions of locks.
        ACQUISITIONS = "acquisitions", "count";
        /// Simulated `apps`: the part of all threads' time from asking for a lock to
        /// having it, and for releases.
        IN_LOCKS = "time_in_locks", "ratio";
        /// Simulated `apps`: the part of all threads' time within barriers.
        IN_BARRIERS = "time_in_barriers", "ratio";
        /// Simulated `apps`: requests that all ranks have sent.
        REQUESTS = "requests", "count";
        /// Simulated: how many time slices a thread has had on average, counting the end
        /// of each that another thread waited for.
        SLICES = "time_slices_per_thread", "count";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Record {
        record(&[3.0, 1.5, 2.0])
    }

    fn record(samples: &[f64]) -> Record {
        RecordSubject::new("stress", "towpath", "adaptive", 8)
            .with("writers", 7)
            .with("path", "direct")
            .record(metrics::MESSAGES_PER_S, samples, 42, &Host::detect("none"))
            .expect("there are samples")
    }

    #[test]
    fn ratios_are_taken_within_rounds_where_rounds_match() {
        // The machine was three times as slow in the second round, and half as slow again in the
        // third: every round says 2.
        assert_eq!(record(&[2.0, 6.0, 3.0]).divided_by(&record(&[1.0, 3.0, 1.5])), Some(2.0));
        assert_eq!(record(&[8.0, 9.0, 10.0]).divided_by(&record(&[3.0])), Some(3.0));
        assert_eq!(record(&[1.0]).divided_by(&record(&[0.0])), None);
    }

    #[test]
    fn many_samples_and_unfinished_ones_are_not_kept_but_counted() {
        let many = record(&[1.0; MOST_SAMPLES + 1]);
        assert_eq!((many.samples.len(), many.runs), (0, MOST_SAMPLES as u32 + 1));
        let broken = record(&[1.0, f64::NAN]);
        assert_eq!((broken.samples.len(), broken.runs), (0, 1));
    }

    #[test]
    fn a_record_survives_the_journey_through_json() {
        let record = example();
        let line = record.to_json();
        assert!(!line.contains('\n'));
        let back: Record = serde_json::from_str(&line).expect("what was written can be read");
        assert_eq!(back, record);
        assert_eq!(back.number("writers"), Some(7));
        assert_eq!(back.text("path"), Some("direct"));
    }

    #[test]
    fn a_record_is_one_flat_object_with_the_agreed_names() {
        let value: serde_json::Value = serde_json::from_str(&example().to_json()).expect("it is JSON");
        let object = value.as_object().expect("it is an object");
        for field in [
            "experiment",
            "machine",
            "algorithm",
            "waiting",
            "procs",
            "metric",
            "unit",
            "value",
            "min",
            "max",
            "runs",
            "samples",
            "seed",
            "cpu",
            "cores",
            "kernel",
            "commit",
            "pinning",
            "governor",
            "not_available",
            "writers",
            "path",
        ] {
            assert!(object.contains_key(field), "{field} is missing from {value}");
        }
        assert!(object.values().all(|v| !v.is_object()), "{value} is not flat");
        assert_eq!((value["value"].as_f64(), value["min"].as_f64()), (Some(2.0), Some(1.5)));
        assert_eq!((value["max"].as_f64(), value["runs"].as_u64()), (Some(3.0), Some(3)));
    }
}
