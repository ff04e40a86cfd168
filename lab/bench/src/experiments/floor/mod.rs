//! The floor: costs of the machine and the operating system themselves, below which no
//! message can go.

pub mod kernel;
pub mod line;
pub mod memcpy;
pub mod two_copies;

use std::time::Duration;
use towpath_report::format::{in_unit, size};
use towpath_report::record::Record;
use towpath_report::table::{Cell, Table, header};

use crate::experiment::{Bench, Measure, Samples, Variant};
use crate::transport::Circumstances;
use line::Probing;
use towpath_host::Error;
use towpath_report::format::bandwidth;
use towpath_report::plots::value;
use towpath_report::record::RecordSubject;
use towpath_report::record::metrics::{
    CONTEXT_SWITCH, FUTEX_ROUND_TRIP, FUTEX_WAKE, LINE_ROUND_TRIP, MEMCPY, SYSCALL,
};
use towpath_report::svg::{Look, PlotLine, PlotValue, lines};
use towpath_report::{Experiment, Results, Section};

/// The experiment.
pub struct Floor;

/// The sizes that are copied.
const SIZES: [usize; 6] = [64, 1 << 12, 1 << 16, 1 << 20, 1 << 22, 1 << 26];

/// Maximum time of one measurement.
const TIME: Duration = Duration::from_millis(60);

#[derive(Clone, Copy)]
enum Probe {
    Line(usize, Probing),
    Copy(usize),
    WakeWithoutSleeper,
    WakeSleeper,
    SleepingRoundTrip { across: bool },
    SystemCall,
    Switch,
}

impl Experiment for Floor {
    fn name(&self) -> &'static str {
        "floor"
    }
    fn about(&self) -> &'static str {
        "what this machine costs below any algorithm: cache lines, copying, wake-ups, system calls"
    }
    fn algorithms(&self) -> Vec<&'static str> {
        crate::experiment::claim_algorithms()
    }
    fn sections(&self, results: &Results) -> Vec<Section> {
        vec![Section::new(floor(results)).with(copying(results))]
    }
}

impl Measure for Floor {
    fn seconds(&self) -> u64 {
        4
    }
    fn run(&self, bench: &mut Bench<'_>) -> Result<(), Error> {
        let variants = variants(self.name());
        let mut copier = memcpy::Copier::new(SIZES[SIZES.len() - 1])?;
        bench.compare(&variants, |_, &probe, run| measure(probe, run, &mut copier));
        Ok(())
    }
}

fn variants(experiment: &str) -> Vec<Variant<Probe>> {
    let subject = |what: &str, procs| RecordSubject::new(experiment, what, "none", procs);
    let mut variants = Vec::new();
    for lines in [1, 2] {
        for (probing, pause) in [(Probing::Pausing, true), (Probing::Bare, false)] {
            let subject = subject("hardware", 2).with("lines", lines).with("pause", pause);
            variants.push(Variant { subject, key: Probe::Line(lines, probing) });
        }
    }
    for bytes in SIZES {
        variants
            .push(Variant { subject: subject("memcpy", 1).with("bytes", bytes), key: Probe::Copy(bytes) });
    }
    variants
        .push(Variant { subject: subject("kernel", 1).with("sleepers", 0), key: Probe::WakeWithoutSleeper });
    variants.push(Variant { subject: subject("kernel", 2).with("sleepers", 1), key: Probe::WakeSleeper });
    for (cores, across) in [(1, false), (2, true)] {
        let subject = subject("kernel", 2).with("across_cores", cores);
        variants.push(Variant { subject, key: Probe::SleepingRoundTrip { across } });
    }
    variants.push(Variant { subject: subject("kernel", 1), key: Probe::SystemCall });
    variants.push(Variant { subject: subject("kernel", 2), key: Probe::Switch });
    variants
}

fn measure(probe: Probe, run: &Circumstances<'_>, copier: &mut memcpy::Copier) -> Result<Samples, Error> {
    let (placement, time) = (run.placement, run.limit.min(TIME));
    Ok(match probe {
        Probe::Line(lines, probing) => {
            Samples::one(LINE_ROUND_TRIP, line::round_trip(lines, probing, placement, time)?)
        }
        Probe::Copy(bytes) => Samples::one(MEMCPY, copier.measure(bytes, placement.core(0))),
        Probe::WakeWithoutSleeper => Samples::one(FUTEX_WAKE, kernel::wake_without_sleeper(placement)),
        Probe::WakeSleeper => Samples::one(FUTEX_WAKE, kernel::wake_sleeper(placement, time)?),
        Probe::SleepingRoundTrip { across } => {
            Samples::one(FUTEX_ROUND_TRIP, kernel::sleeping_round_trip(placement, across, time)?)
        }
        Probe::SystemCall => Samples::one(SYSCALL, kernel::system_call(placement)),
        Probe::Switch => Samples::one(CONTEXT_SWITCH, kernel::context_switch(placement, time)?),
    })
}

fn floor(results: &Results) -> Table {
    let rows = results
        .records
        .iter()
        .filter(|r| r.experiment == "floor")
        .map(|r| {
            let range = format!("{} to {}", in_unit(r.min, &r.unit), in_unit(r.max, &r.unit));
            vec![Cell::text(floor_label(r)), Cell::figure(Some(r)), Cell::text(range)]
        })
        .collect();
    Table {
        experiment: "floor",
        title: "The floor of this machine".into(),
        note: "What cache, memory and kernel cost by themselves: no message can be cheaper.".into(),
        header: header(&["what", "median", "from … to"]),
        rows,
    }
}

/// Name of a figure of the floor.
fn floor_label(record: &Record) -> String {
    match (record.metric.as_str(), record.number("lines")) {
        ("line_round_trip_ns", Some(lines)) => {
            let how = if record.extra.get("pause").and_then(|p| p.as_bool()) == Some(true) {
                "spinning with pause"
            } else {
                "spinning without pause"
            };
            let what =
                if lines == 1 { "one cache line, written by both" } else { "two cache lines, one each way" };
            format!("{what}: there and back, {how}")
        }
        ("memcpy_bytes_per_s", _) => format!("memcpy of {}", size(record.number("bytes").unwrap_or(0))),
        ("futex_wake_ns", _) if record.number("sleepers") == Some(0) => "futex wake, no sleeper".into(),
        ("futex_wake_ns", _) => "futex wake of a sleeper on another core (the waker's cost)".into(),
        ("futex_round_trip_ns", _) if record.number("across_cores") == Some(1) => {
            "two sleepers wake each other, same core: there and back".into()
        }
        ("futex_round_trip_ns", _) => "two sleepers wake each other, across cores: there and back".into(),
        ("syscall_ns", _) => "the shortest system call".into(),
        ("context_switch_ns", _) => "switch to another process (sched_yield)".into(),
        (other, _) => other.to_string(),
    }
}

/// Bandwidth of copying within one process, over the size.
fn copying(results: &Results) -> Option<String> {
    let points: Vec<(f64, PlotValue)> = results
        .of("floor", "memcpy_bytes_per_s")
        .filter_map(|r| Some((r.number("bytes")? as f64, value(r))))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let line =
        PlotLine { label: "memcpy".into(), points, look: Look { colour: 0, dashed: false, bold: false } };
    Some(lines("Copying within one process, by size", &[line], |x| size(x as u64), bandwidth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Collected, bench_with, quick};

    #[test]
    fn floor_figure_is_recorded_or_its_absence_explained() {
        let mut sink = Collected::default();
        bench_with(&quick(), &mut [], &mut sink, |b| Floor.run(b).unwrap());
        assert_eq!(sink.records.len() + sink.missing.len(), variants("floor").len());
        assert!(sink.records.iter().all(|r| r.value > 0.0), "{:?}", sink.records);
        for metric in ["memcpy_bytes_per_s", "syscall_ns", "context_switch_ns", "futex_wake_ns"] {
            assert!(sink.records.iter().any(|r| r.metric == metric), "{metric} is missing");
        }
        let two_cores =
            sink.records.iter().any(|r| r.metric == "line_round_trip_ns" && r.number("lines") == Some(2));
        assert!(two_cores || sink.missing.iter().any(|(_, reason)| reason.contains("two cores")));
    }
}
