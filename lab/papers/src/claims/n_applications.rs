//! Paper N, Section 6: Cholesky, LU and Radiosity on 64 processors, in two copies under
//! time sharing and under gang scheduling (N32), and alone (N33).
//!
//! The programs are those of the room `apps`. As in the paper the queues of tasks of Cholesky and
//! Radiosity are what varies, and LU's barrier. The runs last for some milliseconds: time slices
//! are as much shorter than the paper's, so that each thread sees several of them, and longer than
//! a context switch.

use super::context::{At, Series, judge_together};
use super::n_barriers::CACHED;
use super::n_multiprogramming::{
    BARRIERS, COMPETITIVE, CONSCIOUS, CUSTOM, GANG, LOCKS, NON_BLOCKING, QUEUES, SHARED, SPIN, procs,
    question, ways,
};
use super::{Claim, Context, Finding, above, below};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, percent};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{PROGRAM_TIME as TIME, SLICES};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N32",
        what: "Two copies of Cholesky and Radiosity on 64 processors: the combinations of queue, discipline and scheduler are in the order of the queues' own program; LU under competitive spinning and time sharing beats gang scheduling",
        paper: "unchanged; faster",
        tolerance: "order of every pair that differs beyond 3 % in both programs; LU beyond 3 % with every barrier",
        input: false,
        simulated: n32,
        native: None,
    },
    Claim {
        id: "N33",
        what: "The applications alone: more scalable synchronisation improves their time by more than 2 % only beyond 32 processors",
        paper: "beyond 32",
        tolerance: "the best over the least scalable one, for each application: more than 2 % from 32 or 64 processors on",
        input: false,
        simulated: n33,
        native: None,
    },
];

/// Processors that the paper's programs ran on.
const MOST: usize = 64;
/// Applications with queues of tasks, and the one with barriers.
const WITH_QUEUES: [&str; 2] = ["cholesky/small", "radiosity/tiny"];
const WITH_BARRIERS: &str = "lu/medium";
/// Time slices: 25 context switches.
const QUANTUM: &str = "os.quantum=250us";
/// Copies of a program.
const COPIES: usize = 2;

/// The queues that Cholesky and Radiosity run with.
const TASK_QUEUES: [&str; 7] = [LOCKS[0], LOCKS[1], LOCKS[2], LOCKS[3], CONSCIOUS, NON_BLOCKING[0], CUSTOM];

/// Way to look figures up, by the series' place.
type Look<'a> = &'a dyn Fn(usize, At<'_>, Metric) -> f64;

/// Combination of an algorithm, a discipline and a scheduler.
#[derive(Clone, Copy)]
struct Combination {
    algorithm: &'static str,
    waiting: &'static str,
    scheduler: &'static str,
}

impl Combination {
    fn name(self) -> String {
        let how = if self.scheduler == GANG { GANG } else { self.waiting };
        format!("{}, {how}", self.algorithm.trim_start_matches("two-ended/"))
    }

    fn at(self, pattern: &str) -> At<'_> {
        At {
            algorithm: self.algorithm,
            procs: procs(self.algorithm),
            waiting: self.waiting,
            copies: COPIES as u64,
            scheduler: self.scheduler,
            pattern,
            ..At::default()
        }
    }
}

/// Combinations that algorithms run in.
fn combinations(algorithms: &[&'static str]) -> Vec<Combination> {
    let of = |&algorithm: &&'static str| {
        ways(algorithm).map(move |(waiting, scheduler)| Combination { algorithm, waiting, scheduler })
    };
    algorithms.iter().flat_map(of).collect()
}

/// The paper's Figure 9: a chart for each application, a bar for each combination.
fn figure_9(applications: &Series) -> Vec<String> {
    let chart = |pattern: &str, all: &[Combination]| {
        let places: Vec<(String, Option<f64>)> = all.iter().map(|c| (c.name(), None)).collect();
        let time = |c: &Combination, seed| applications.with_seed(c.at(pattern), TIME, seed);
        let worst = |seed| all.iter().map(|c| time(c, seed)).fold(f64::NEG_INFINITY, f64::max);
        let title = format!("{pattern} in two copies: time by the worst combination's (N figure 9)");
        applications.bars_beside(&title, &places, &|n, seed| time(&all[n], seed) / worst(seed), digits)
    };
    let [cholesky, radiosity] = WITH_QUEUES.map(|pattern| chart(pattern, &combinations(&TASK_QUEUES)));
    vec![cholesky, chart(WITH_BARRIERS, &combinations(&BARRIERS.map(|b| b.0))), radiosity]
}

/// An application's runs in several copies, as [`question`] asks for the program's.
fn multiprogrammed(pattern: &str, algorithm: &'static str, scheduler: &'static str) -> Sweep {
    let own = question(algorithm, scheduler, &[COPIES], 1, 0.0);
    Sweep { experiment: "apps", patterns: vec![pattern.into()], ..own }.set(QUANTUM)
}

/// Pairs of combinations whose order is another one than in the queues' program.
fn out_of_order(f: Look<'_>, pattern: &str, all: &[Combination]) -> Vec<String> {
    let mut against = Vec::new();
    for (n, &a) in all.iter().enumerate() {
        for &b in &all[n + 1..] {
            let of =
                |place: usize, pattern: &str| (f(place, a.at(pattern), TIME), f(place, b.at(pattern), TIME));
            let (program, application) = (of(0, ""), of(1, pattern));
            let known = [program.0, program.1, application.0, application.1].iter().all(|t| t.is_finite());
            let turned = above(program.0, program.1) && below(application.0, application.1)
                || below(program.0, program.1) && above(application.0, application.1);
            if !known || turned {
                let name = pattern.split('/').next().unwrap_or(pattern);
                against.push(format!("{name}: {} and {}", a.name(), b.name()));
            }
        }
    }
    against
}

/// Gang scheduling's time of LU by competitive spinning's under time sharing.
fn gain_of_lu(f: Look<'_>, barrier: &'static str) -> f64 {
    let of = |waiting, scheduler| {
        f(1, Combination { algorithm: barrier, waiting, scheduler }.at(WITH_BARRIERS), TIME)
    };
    of(SPIN, GANG) / of(COMPETITIVE, SHARED)
}

fn n32(context: &Context<'_>) -> Result<Finding, Error> {
    let all = combinations(&TASK_QUEUES);
    let mut programs = Vec::new();
    for name in TASK_QUEUES {
        let (shared, gang) = QUEUES.iter().find(|q| q.0 == name).map_or((6_400, 6_400), |q| (q.1, q.2));
        programs.push(question(name, SHARED, &[2, 3], shared, 0.2));
        programs.push(question(name, GANG, &[2, 3], gang, 0.2));
    }
    let programs = context.ask_all(&programs)?;
    let mut sweeps = Vec::new();
    for scheduler in [SHARED, GANG] {
        for pattern in WITH_QUEUES {
            sweeps.extend(TASK_QUEUES.map(|name| multiprogrammed(pattern, name, scheduler)));
        }
        sweeps.extend(BARRIERS.map(|(name, _)| multiprogrammed(WITH_BARRIERS, name, scheduler)));
    }
    let applications = context.ask_all(&sweeps)?;
    let slow = |f: Look<'_>| -> Vec<String> {
        let gains = BARRIERS.map(|(name, _)| (name, gain_of_lu(f, name)));
        let slow = gains.into_iter().filter(|(_, gain)| !above(*gain, 1.0));
        slow.map(|(name, gain)| format!("LU with {name}: gang's time is {} of it", digits(gain))).collect()
    };
    let pairs = all.len() * (all.len() - 1) / 2;
    let against = judge_together(&[&programs, &applications], &|f| {
        let turned = |pattern: &&str| {
            let turned = out_of_order(f, pattern, &all);
            let some = turned.iter().take(3).cloned().collect::<Vec<_>>().join("; ");
            (!turned.is_empty()).then(|| format!("{} of {pairs} pairs are turned ({some} …)", turned.len()))
        };
        WITH_QUEUES.iter().filter_map(turned).chain(slow(f)).collect()
    });
    let median = |place: usize, at: At<'_>, metric| [&programs, &applications][place].median(at, metric);
    let worst =
        |pattern: &str| all.iter().map(|c| median(1, c.at(pattern), TIME)).fold(f64::NEG_INFINITY, f64::max);
    let row = |pattern: &str| {
        let one = |c: &Combination| {
            format!("{} {}", c.name(), digits(median(1, c.at(pattern), TIME) / worst(pattern)))
        };
        let slices = median(1, all[0].at(pattern), SLICES);
        let times = all.iter().map(one).collect::<Vec<_>>().join("; ");
        format!("{pattern} ({} slices a thread), by the worst: {times}", digits(slices))
    };
    let lu = BARRIERS.map(|(name, _)| format!("{name} {}", digits(gain_of_lu(&median, name))));
    let ours = format!(
        "{}. LU, gang ÷ competitive spinning under time sharing: {}",
        WITH_QUEUES.map(row).join(". "),
        lu.join(", ")
    );
    Ok(Finding::new(ours, against).with(figure_9(&applications)))
}

/// Numbers of processors of the programs alone.
const ALONE: [usize; 4] = [8, 16, 32, 64];

/// An application, its least scalable algorithm, and the others.
const SCALED: [(&str, &str, &[&str]); 3] = [
    (WITH_QUEUES[0], LOCKS[0], &["two-ended/anderson/ll-sc", NON_BLOCKING[0], CUSTOM]),
    (WITH_QUEUES[1], LOCKS[0], &["two-ended/anderson/ll-sc", NON_BLOCKING[0], CUSTOM]),
    (WITH_BARRIERS, CACHED, &["centralized/fetch-op", "mcs-tree"]),
];

/// Gain of the best algorithm over the least scalable one, as a part of the best's time.
fn gain(f: &dyn Fn(At<'_>, Metric) -> f64, (pattern, least, others): (&str, &str, &[&str]), n: usize) -> f64 {
    let time = |algorithm: &str| f(At { pattern, ..At::new(algorithm, n) }, TIME);
    let best = others.iter().map(|a| time(a)).fold(f64::INFINITY, f64::min);
    time(least) / best - 1.0
}

fn n33(context: &Context<'_>) -> Result<Finding, Error> {
    let sweeps = SCALED.map(|(pattern, least, others)| {
        let all: Vec<&str> = others.iter().copied().chain([least]).collect();
        let sweep = Sweep::on("apps", "origin2000", &all, &ALONE);
        Sweep { patterns: vec![pattern.into()], copies: vec![1], ..sweep }
    });
    let series: Series = context.ask_all(&sweeps)?;
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for scaled in SCALED {
            let first = ALONE.iter().find(|&&n| gain(f, scaled, n) > 0.02);
            match first {
                Some(32 | 64) => {}
                Some(n) => against.push(format!("{} gains more than 2 % from {n} on", scaled.0)),
                None => against.push(format!("{} gains at most 2 % up to {MOST}", scaled.0)),
            }
        }
        against
    });
    let f = |at: At<'_>, metric| series.median(at, metric);
    let row = |scaled: (&str, &str, &[&str])| {
        let gains = ALONE.map(|n| format!("{n}: {}", percent(gain(&f, scaled, n))));
        let time = |n| f(At { pattern: scaled.0, ..At::new(scaled.2[0], n) }, TIME);
        let speed_up = digits(time(ALONE[0]) / time(32));
        format!("{} {} (from 8 to 32 processors {speed_up} times as fast)", scaled.0, gains.join(", "))
    };
    let because = "the paper chose problem sizes with which its programs scale to 32 processors; of ours LU does, Cholesky and Radiosity don't (see ours), nor with larger problems, so that a better queue tells earlier";
    let finding = Finding::new(format!("gain: {}", SCALED.map(row).join("; ")), against);
    Ok(finding.because(because))
}
