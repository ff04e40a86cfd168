//! Several copies of a measurement at one time, by the system's time sharing or as gangs.
//!
//! Each copy is a group of processes. As gangs the groups take turns: all of a group are stopped
//! (SIGSTOP) while another one runs.

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, setpgid};

use crate::experiment::{Samples, Variant};
use crate::shared::Left;
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{Child, ChildState, SharedPages, SharedRow, fork_on, wait};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{ALL, LEAST_SHARE, SLOWEST_US};

/// Turn of a gang.
const TURN: Duration = Duration::from_millis(20);
/// Time after which copies that do not end are given up, beyond the measurement's own.
const PATIENCE: Duration = Duration::from_secs(90);
/// Maximum number of copies.
pub const MOST_COPIES: u32 = 8;

/// The way in which copies share the cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyScheduler {
    /// The system's own scheduling.
    TimeSharing,
    /// Turns of the copies, in each of which all processes of one run.
    Gang,
}

impl CopyScheduler {
    /// All of them.
    pub const ALL: [CopyScheduler; 2] = [CopyScheduler::TimeSharing, CopyScheduler::Gang];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            CopyScheduler::TimeSharing => "time-sharing",
            CopyScheduler::Gang => "gang",
        }
    }
}

/// Load of which several copies are measured at one time.
#[derive(Clone, Copy, Debug)]
pub struct CopiedLoad<L> {
    load: L,
    copies: u32,
    scheduler: CopyScheduler,
}

/// Each of the variants by each number of copies and scheduler; a copy alone has no
/// scheduler. Without numbers: each as it is.
pub fn copied<L: Clone>(
    variants: Vec<Variant<L>>,
    copies: &[u32],
    schedulers: &[CopyScheduler],
) -> Vec<Variant<CopiedLoad<L>>> {
    let mut all = Vec::new();
    for Variant { subject, key } in variants {
        let load = |copies, scheduler| CopiedLoad { load: key.clone(), copies, scheduler };
        if copies.is_empty() {
            all.push(Variant { subject: subject.clone(), key: load(1, CopyScheduler::TimeSharing) });
        }
        for &number in copies {
            let schedulers = if number == 1 { &CopyScheduler::ALL[..1] } else { schedulers };
            for &scheduler in schedulers {
                let name = if number == 1 { "none" } else { scheduler.name() };
                let subject = subject.clone().with("copies", number).with("scheduler", name);
                all.push(Variant { subject, key: load(number, scheduler) });
            }
        }
    }
    all
}

/// Words of the copies' common memory.
const READY: usize = 0;
const GO: usize = 1;
/// Maximum number of figures of a copy.
const FIGURES: usize = 32;
/// Exit code of a copy that was not measured.
const NOT_MEASURED: i32 = 3;

/// Measures all copies at one time. Rates are those of all together, the slowest of all,
/// the smallest share of all; the others are means.
///
/// # Errors
///
/// Those of the system and of a copy.
pub fn measure_copies<L>(
    copied: &CopiedLoad<L>,
    run: &Circumstances<'_>,
    measure: impl Fn(&L, &Circumstances<'_>) -> Result<Samples, Error>,
) -> Result<Samples, Error> {
    let CopiedLoad { load, copies, scheduler } = copied;
    let copies = *copies as usize;
    if copies < 2 {
        return measure(load, run);
    }
    let words = SharedPages::new(2)?;
    let figures = SharedRow::<Left>::row(copies * FIGURES * 2)?;
    let mut groups: Vec<Child> = Vec::new();
    for copy in 0..copies {
        let figures = &figures[copy * FIGURES * 2..][..FIGURES * 2];
        groups.push(fork_on(None, || {
            // A group that can't be made would be stopped with this process: the first word says
            // that it is there.
            if setpgid(None, None).is_err() {
                return NOT_MEASURED;
            }
            words.word(READY).fetch_add(1, Relaxed);
            while words.word(GO).load(Relaxed) == 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            match measure(load, run) {
                Ok(samples) => {
                    leave(figures, &samples);
                    0
                }
                Err(why) => {
                    // The reason of a child, whose exit code says that it was not measured.
                    #[allow(clippy::disallowed_methods)]
                    let _ = writeln!(std::io::stderr(), "towpath: copy {copy}: {why}");
                    NOT_MEASURED
                }
            }
        })?);
    }
    let deadline = Instant::now() + PATIENCE + run.limit * 4;
    // Relaxed, all: they order nothing; figures are read when their process has ended.
    while (words.word(READY).load(Relaxed) as usize) < copies {
        if groups.iter().any(|group| !is_alive(group)) || Instant::now() > deadline {
            return Err(Error::NotAvailable("a copy could not form a group of processes".into()));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    words.word(GO).store(1, Relaxed);
    if *scheduler == CopyScheduler::Gang {
        take_turns(&groups, deadline);
    }
    for (copy, group) in groups.iter_mut().enumerate() {
        if wait(group, deadline)?.code != 0 {
            let how = format!("copy {copy} was not measured");
            return Err(Error::Process { rank: group.pid() as u32, how });
        }
    }
    Ok(together(figures.chunks(FIGURES * 2)))
}

fn is_alive(group: &Child) -> bool {
    group.state() == ChildState::Alive
}

/// Lets one group run at a time, until only one is left.
fn take_turns(groups: &[Child], deadline: Instant) {
    // The leader of a group is waited for later, so that its number is not another group's.
    let signal = |group: &Child, signal| {
        if let Some(leader) = Pid::from_raw(group.pid()) {
            let _ = kill_process_group(leader, signal);
        }
    };
    groups.iter().for_each(|group| signal(group, Signal::STOP));
    for n in (0..groups.len()).cycle() {
        if groups.iter().filter(|group| is_alive(group)).count() < 2 || Instant::now() > deadline {
            break;
        }
        if !is_alive(&groups[n]) {
            continue;
        }
        signal(&groups[n], Signal::CONT);
        groups[n].sleep_until_it_ends(TURN);
        signal(&groups[n], Signal::STOP);
    }
    groups.iter().for_each(|group| signal(group, Signal::CONT));
}

/// Leaves figures: the number of each metric plus one, and its value.
fn leave(figures: &[Left], samples: &Samples) {
    for (place, (metric, value)) in figures.chunks_exact(2).zip(&samples.values) {
        if let Some(number) = ALL.iter().position(|it| it == metric) {
            place[0].put((number + 1) as f64);
            place[1].put(*value);
        }
    }
}

/// Figures of all copies together.
fn together<'a>(copies: impl Iterator<Item = &'a [Left]>) -> Samples {
    let mut by_metric: Vec<(Metric, Vec<f64>)> = Vec::new();
    for place in copies.flat_map(|figures| figures.chunks_exact(2)) {
        let Some(metric) = (place[0].get() as usize).checked_sub(1).and_then(|n| ALL.get(n)) else {
            continue;
        };
        match by_metric.iter_mut().find(|(it, _)| it == metric) {
            Some((_, values)) => values.push(place[1].get()),
            None => by_metric.push((*metric, vec![place[1].get()])),
        }
    }
    let mut samples = Samples::default();
    for (metric, values) in by_metric {
        let sum: f64 = values.iter().sum();
        let value = match metric {
            SLOWEST_US => values.iter().copied().fold(0.0, f64::max),
            LEAST_SHARE => values.iter().copied().fold(f64::INFINITY, f64::min),
            _ if metric.unit.ends_with("/s") => sum,
            _ => sum / values.len() as f64,
        };
        samples.push(metric, value);
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;
    use towpath_report::record::RecordSubject;
    use towpath_report::record::metrics::{MESSAGES_PER_S, P50_US};

    fn of(copies: u32, scheduler: CopyScheduler) -> CopiedLoad<()> {
        CopiedLoad { load: (), copies, scheduler }
    }

    #[test]
    fn rates_add_up_and_others_are_means() {
        with_circumstances(Duration::from_millis(5), |run| {
            let measure = |_: &(), _: &Circumstances<'_>| {
                let mut samples = Samples::one(MESSAGES_PER_S, 3.0);
                samples.push(P50_US, 7.0);
                samples.push(LEAST_SHARE, 0.5);
                Ok(samples)
            };
            for scheduler in CopyScheduler::ALL {
                let samples = measure_copies(&of(3, scheduler), run, measure).unwrap();
                assert_eq!(samples.values, [(MESSAGES_PER_S, 9.0), (P50_US, 7.0), (LEAST_SHARE, 0.5)]);
            }
            let refused = measure_copies(&of(2, CopyScheduler::Gang), run, |_, _| {
                Err(Error::NotAvailable("not here".into()))
            });
            assert!(refused.is_err());
        });
    }

    /// Short spans of a copy in which the other one got on, too, of 100 each.
    fn spans_together(scheduler: CopyScheduler, run: &Circumstances<'_>) -> f64 {
        let words = SharedPages::new(3).unwrap();
        let measure = |_: &(), _: &Circumstances<'_>| {
            let me = words.word(2).fetch_add(1, Relaxed) as usize;
            let (mine, other) = (words.word(me), words.word(1 - me));
            let (mut spans, mut together) = (0, 0);
            while spans < 100 {
                let (start, before) = (Instant::now(), other.load(Relaxed));
                while start.elapsed() < Duration::from_millis(1) {
                    mine.fetch_add(1, Relaxed);
                }
                // Otherwise it did not run all the time.
                if start.elapsed() < Duration::from_millis(2) {
                    spans += 1;
                    together += u32::from(other.load(Relaxed) != before);
                }
            }
            Ok(Samples::one(MESSAGES_PER_S, together.into()))
        };
        measure_copies(&of(2, scheduler), run, measure).unwrap().values[0].1
    }

    #[test]
    fn gangs_run_one_at_a_time() {
        with_circumstances(Duration::from_millis(5), |run| {
            let together = spans_together(CopyScheduler::Gang, run);
            assert!(together < 100.0, "{together}");
        });
    }

    #[test]
    fn copies_are_variants_and_one_alone_has_no_scheduler() {
        let subject = RecordSubject::new("locks", "mutex", "own", 2);
        let variants = || vec![Variant { subject: subject.clone(), key: () }];
        assert_eq!(copied(variants(), &[], &CopyScheduler::ALL).len(), 1);
        let all = copied(variants(), &[1, 2], &CopyScheduler::ALL);
        let name = |n: usize| all[n].subject.extra["scheduler"].as_str().unwrap();
        assert_eq!((all.len(), name(0), name(1), name(2)), (3, "none", "time-sharing", "gang"));
    }
}
