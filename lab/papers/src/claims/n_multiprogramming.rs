//! Paper N §5: several copies of the queues' programs at one time, under time sharing and
//! under flat gang scheduling (N24 to N28). `n_multiprogrammed_barriers.rs` has the barriers'.
//!
//! Everything is scaled down together: time slices of 2.5 ms are 50 times the work and 250 times a
//! context switch, and each run is so long that its threads see about ten slices or more. A waiter
//! that blocks gives way and looks again when it is its turn (`os.blocking`, as in §3.4). Under
//! gang scheduling programs just spin, as in the paper; under time sharing each discipline of
//! waiting is run. The queue lock is the scheduler-conscious one, on 63 processors.

use towpath_sync::Policy;

use super::context::{At, Series};
use super::n_barriers::CACHED;
use super::n_constants::vary_runs;
use super::{Claim, Context, Finding, TIE, above, not_above};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{CONTEXT_SWITCHES, INVALIDATIONS, PROGRAM_TIME as TIME, STANDSTILL};
use towpath_report::stats::summarise;
use towpath_report::svg::{Bar, Look, bars};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N24",
        what: "Two and three copies of the queues' programs, 50 µs of work: gang scheduling is significantly worse than time sharing for all algorithms; the gap is wider with LL/SC",
        paper: "worse for all",
        tolerance: "order, 3 % is a tie; for every discipline under time sharing",
        input: false,
        simulated: n24,
        native: None,
    },
    Claim {
        id: "N25",
        what: "Under time sharing non-blocking queues beat multiprogramming-conscious spin locks, even those over fetch-ops",
        paper: "faster",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n25,
        native: None,
    },
    Claim {
        id: "N26",
        what: "The same of the lock-free fetch-op queue, though it is blocking",
        paper: "faster",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n26,
        native: None,
    },
    Claim {
        id: "N27",
        what: "The scheduler-conscious hybrid queue lock retains its scalability under time sharing (63 processors)",
        paper: "retains it",
        tolerance: "within 25 % of its time alone × copies",
        input: false,
        simulated: n27,
        native: None,
    },
    Claim {
        id: "N28",
        what: "Queues under time sharing: immediate blocking is the worst discipline in all cases; competitive spinning always gains a little over busy-waiting",
        paper: "worst; small gain",
        tolerance: "order, 3 % is a tie; gain 0 to 20 %",
        input: false,
        simulated: n28,
        native: None,
    },
];

pub(super) const GANG: &str = "gang";
pub(super) const SHARED: &str = "time-sharing";
pub(super) const SPIN: &str = "spin";
pub(super) const COMPETITIVE: &str = "spin-then-park";
const BLOCKING: &str = "park";
const QUANTUM: &str = "os.quantum=2500us";

/// Programs under spin locks, by primitive: these have disciplines.
pub(super) const LOCKS: [&str; 4] = [
    "two-ended/test-and-set/ll-sc",
    "two-ended/ticket/ll-sc",
    "two-ended/test-and-set/fetch-op",
    "two-ended/ticket/fetch-op",
];
pub(super) const CONSCIOUS: &str = "two-ended/scheduler-conscious";
pub(super) const NON_BLOCKING: [&str; 3] =
    ["michael-scott/ll-sc", "prakash-lee-johnson/ll-sc", "valois/ll-sc"];
/// The paper's own queue: as N20 has it, and Figure 1, corrected.
pub(super) const CUSTOM: &str = "fetch-op-tickets";
const ARRAY: &str = "fetch-op-array";

/// The queues of figure 7, with as many operations as see ten time slices under time
/// sharing, and under gang scheduling.
pub(super) const QUEUES: [(&str, u64, u64); 10] = [
    (LOCKS[0], 6_400, 2_400),
    (LOCKS[1], 3_200, 2_400),
    (LOCKS[2], 12_800, 6_400),
    (LOCKS[3], 4_800, 6_400),
    // A million by 2.5 ÷ 100 ms, as the paper's runs: it stands still now and then for a slice,
    // which takes long to even out.
    (CONSCIOUS, 25_000, 6_400),
    (NON_BLOCKING[0], 25_600, 9_600),
    (NON_BLOCKING[1], 19_200, 8_000),
    (NON_BLOCKING[2], 12_800, 4_800),
    (CUSTOM, 16_000, 12_800),
    (ARRAY, 16_000, 12_800),
];

pub(super) const DISCIPLINES: [(&str, Policy); 3] =
    [(SPIN, Policy::Spin), (COMPETITIVE, Policy::SpinThenPark), (BLOCKING, Policy::Park)];

/// The barriers of figure 8, with as many operations as see ten time slices.
pub(super) const BARRIERS: [(&str, u64); 3] =
    [(CACHED, 9_600), ("centralized/fetch-op", 19_200), ("mcs-tree", 19_200)];

/// A way to look figures up.
pub(super) type Figure<'a> = &'a dyn Fn(At<'_>, Metric) -> f64;

fn short(name: &str) -> &str {
    name.trim_start_matches("two-ended/")
}

fn is_barrier(name: &str) -> bool {
    BARRIERS.iter().any(|b| b.0 == name)
}

fn is_lock(name: &str) -> bool {
    LOCKS.contains(&name)
}

/// The disciplines of an algorithm, or none but its own.
fn disciplines(name: &str) -> &'static [(&'static str, Policy)] {
    if is_lock(name) || is_barrier(name) { &DISCIPLINES } else { &DISCIPLINES[..1] }
}

/// Disciplines and schedulers in which an algorithm runs.
pub(super) fn ways(name: &str) -> impl Iterator<Item = (&'static str, &'static str)> + use<> {
    disciplines(name).iter().map(|d| (d.0, SHARED)).chain([(SPIN, GANG)])
}

pub(super) fn procs(name: &str) -> usize {
    if name == CONSCIOUS { 63 } else { 64 }
}

pub(super) fn at<'a>(algorithm: &'a str, waiting: &'a str, copies: u64, scheduler: &'a str) -> At<'a> {
    At { algorithm, procs: procs(algorithm), waiting, copies, scheduler, ..At::default() }
}

/// An algorithm under a scheduler, in all its disciplines under time sharing, in 50 µs of
/// work.
pub(super) fn question(
    algorithm: &'static str,
    scheduler: &'static str,
    copies: &[usize],
    operations: u64,
    spread: f64,
) -> Sweep {
    let waiting = if scheduler == SHARED { disciplines(algorithm) } else { &DISCIPLINES[..1] };
    Sweep {
        waiting: waiting.iter().map(|d| d.1).collect(),
        copies: copies.to_vec(),
        schedulers: vec![scheduler.into()],
        ..Sweep::on("multiprogramming", "origin2000", &[algorithm], &[procs(algorithm)])
            .work(50_000, spread)
            .operations(operations)
            .set(QUANTUM)
    }
}

fn queues(context: &Context<'_>) -> Result<Series, Error> {
    let both = |&(name, shared, gang): &(&'static str, u64, u64)| {
        [question(name, SHARED, &[2, 3], shared, 0.2), question(name, GANG, &[2, 3], gang, 0.2)]
    };
    context.ask_all(&QUEUES.iter().flat_map(both).collect::<Vec<_>>())
}

/// Some algorithms under both schedulers, two copies, on a machine with a parameter
/// changed, by one seed.
fn changed(context: &Context<'_>, names: &[&'static str], change: &str) -> Result<Series, Error> {
    let operations = |name: &str, scheduler: &str| {
        let queue = QUEUES.iter().find(|q| q.0 == name).map(|q| if scheduler == SHARED { q.1 } else { q.2 });
        queue.unwrap_or(6_400)
    };
    let both = |&name: &&'static str| {
        [SHARED, GANG].map(|s| question(name, s, &[2], operations(name, s) / 2, 0.2).set(change))
    };
    context.ask_all_once(&names.iter().flat_map(both).collect::<Vec<_>>())
}

/// Figures 7 and 8: a chart for each number of copies, a bar for each combination.
pub(super) fn charts(series: &Series, names: &[&str], copies: &[u64], title: &str) -> Vec<String> {
    let chart = |&copies: &u64| {
        let mut all = Vec::new();
        for (n, name) in names.iter().enumerate() {
            for (waiting, scheduler) in ways(name) {
                let values = series.each(at(name, waiting, copies, scheduler), TIME);
                let Some(value) = summarise(values) else { continue };
                let how = if scheduler == GANG { GANG } else { waiting };
                all.push(Bar {
                    label: format!("{}, {how}", short(name)),
                    value: value.into(),
                    look: Look { colour: n % 15, dashed: scheduler == GANG, bold: false },
                });
            }
        }
        bars(
            &format!("{title}, {copies} copies: a program's time for each operation"),
            &all,
            nanoseconds,
            None,
        )
    };
    copies.iter().map(chart).collect()
}

pub(super) fn median(series: &Series) -> impl Fn(At<'_>, Metric) -> f64 {
    |at, metric| series.median(at, metric)
}

/// Gang scheduling's time by time sharing's.
pub(super) fn gap(f: Figure<'_>, name: &str, waiting: &str, copies: u64) -> f64 {
    f(at(name, SPIN, copies, GANG), TIME) / f(at(name, waiting, copies, SHARED), TIME)
}

/// The gaps in every discipline, for each number of copies: `3.1 1.6 2.7`.
pub(super) fn gaps(f: Figure<'_>, name: &str, copies: &[u64]) -> String {
    let one = |&n: &u64| {
        disciplines(name).iter().map(|d| digits(gap(f, name, d.0, n))).collect::<Vec<_>>().join(" ")
    };
    format!("{} {}", short(name), copies.iter().map(one).collect::<Vec<_>>().join(" | "))
}

fn n24(context: &Context<'_>) -> Result<Finding, Error> {
    let series = queues(context)?;
    let names = QUEUES.map(|q| q.0);
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for name in names {
            let failing: Vec<String> = [2, 3]
                .iter()
                .flat_map(|&n| disciplines(name).iter().map(move |d| (d.0, n)))
                .filter(|&(waiting, n)| !above(gap(f, name, waiting, n), 1.0))
                .map(|(waiting, n)| format!("{} ({waiting}, {n} copies)", digits(gap(f, name, waiting, n))))
                .collect();
            if !failing.is_empty() {
                against.push(format!("gang ÷ time sharing of {} is {}", short(name), failing.join(", ")));
            }
        }
        for (ll_sc, at_memory) in [(LOCKS[0], LOCKS[2]), (LOCKS[1], LOCKS[3])] {
            for n in [2, 3] {
                let narrower = DISCIPLINES
                    .iter()
                    .filter(|d| !not_above(gap(f, at_memory, d.0, n), gap(f, ll_sc, d.0, n)));
                let narrower: Vec<&str> = narrower.map(|d| d.0).collect();
                if !narrower.is_empty() {
                    let (name, by) = (short(ll_sc), narrower.join(", "));
                    against.push(format!(
                        "the gap of {name} is narrower than over fetch-ops ({by}, {n} copies)"
                    ));
                }
            }
        }
        against
    });
    let f = &median(&series);
    let contention = |name: &str| {
        let of = |scheduler| digits(f(at(name, SPIN, 2, scheduler), INVALIDATIONS));
        format!("{} {} and {}", short(name), of(GANG), of(SHARED))
    };
    let still = |name: &str| {
        let part = f(at(name, SPIN, 2, SHARED), STANDSTILL);
        let time = f(at(name, SPIN, 2, SHARED), TIME);
        let alone = f(at(name, SPIN, 2, GANG), TIME);
        format!(
            "{} {:.0} % (without: {} of gang's time)",
            short(name),
            part * 100.0,
            digits(time * (1.0 - part) / alone)
        )
    };
    let mut sweep = Vec::new();
    for change in ["os.switch=2us", "os.switch=50us", "os.quantum=1250us", "os.blocking=sleep"] {
        let other = changed(context, &[LOCKS[1], LOCKS[3]], change)?;
        let f = &median(&other);
        let both = [LOCKS[1], LOCKS[3]].map(|n| gaps(f, n, &[2]));
        sweep.push(format!("{change}: {}", both.join("; ")));
    }
    // Where the paper's own queue is what limits the program.
    let busy = |q: Sweep| q.work(5_000, 0.2);
    let busy = context.ask_all_once(&[SHARED, GANG].map(|s| busy(question(CUSTOM, s, &[2], 64_000, 0.2))))?;
    sweep.push(format!("5 µs of work: {}", gaps(&median(&busy), CUSTOM, &[2])));
    let ours = format!(
        "gang ÷ time sharing (spinning, competitive, blocking) for 2 | 3 copies: {}. Invalidations by gang and time sharing: {}; {}. Time sharing stands still for {}. For 2 copies with {}",
        names.map(|n| gaps(f, n, &[2, 3])).join("; "),
        contention(LOCKS[0]),
        contention(NON_BLOCKING[0]),
        QUEUES.map(|q| still(q.0)).join(", "),
        sweep.join(". ")
    );
    Ok(Finding::new(ours, against).because(N24_CAUSE).with(charts(
        &series,
        &names,
        &[2, 3],
        "Queues (N figure 7)",
    )))
}

const N24_CAUSE: &str = "the non-blocking queues show the paper's reason, fewer invalidations under time sharing; under test&set there are nearly as many. Tickets are handed to threads that have no processor: by busy-waiting the lock then gets on about once for each context switch (N28), so that its time is that of the slices (with slices half as long it takes half as long); by giving way each hand-over waits for switches (with cheaper ones ticket locks by blocking are all faster under time sharing, with dearer ones none). The paper's own queue makes a dequeuer wait for the enqueuer with the same ticket, which may have no processor: the less work, the more that tells. Test&set over fetch-ops stands still while its holder is preempted";

/// The contradictions if the algorithm's time under time sharing is not below that of
/// every lock in either conscious discipline.
fn slower_than_a_lock(f: Figure<'_>, name: &str) -> Vec<String> {
    let mut against = Vec::new();
    for copies in [2, 3] {
        let time = f(at(name, SPIN, copies, SHARED), TIME);
        for lock in LOCKS {
            for (waiting, _) in &DISCIPLINES[1..] {
                let other = f(at(lock, waiting, copies, SHARED), TIME);
                if !not_above(time, other) {
                    let (name, lock) = (short(name), short(lock));
                    against.push(format!(
                        "{name} ({} ns) is slower than {lock} by {waiting} ({}), {copies} copies",
                        digits(time),
                        digits(other)
                    ));
                }
            }
        }
    }
    against
}

/// Times of these under time sharing, and the locks' in both conscious disciplines, for
/// two and three copies.
fn beside_locks(f: Figure<'_>, names: &[&str]) -> String {
    let times =
        |name: &str, waiting: &str| [2, 3].map(|n| digits(f(at(name, waiting, n, SHARED), TIME))).join(" | ");
    let own = names.iter().map(|n| format!("{} {}", short(n), times(n, SPIN)));
    let locks = LOCKS.iter().map(|l| {
        format!("{} {} (competitive), {} (blocking)", short(l), times(l, COMPETITIVE), times(l, BLOCKING))
    });
    format!("ns for 2 | 3 copies: {}", own.chain(locks).collect::<Vec<_>>().join("; "))
}

fn n25(context: &Context<'_>) -> Result<Finding, Error> {
    let series = queues(context)?;
    let against = series.judge(|f| NON_BLOCKING.iter().flat_map(|n| slower_than_a_lock(f, n)).collect());
    // The cost of copies beyond the algorithm's own speed.
    let all = [NON_BLOCKING[0], NON_BLOCKING[1], NON_BLOCKING[2], LOCKS[2], LOCKS[3]];
    let alone = context.ask_all_once(&all.map(|n| question(n, SHARED, &[1], 9_600, 0.2)))?;
    let alone = all.map(|n| format!("{} {}", short(n), digits(alone.median(at(n, SPIN, 1, SHARED), TIME))));
    let ours = format!(
        "{}; alone on the machine: {}",
        beside_locks(&median(&series), &NON_BLOCKING),
        alone.join(", ")
    );
    Ok(Finding::new(ours, against).because(N25_CAUSE))
}

const N25_CAUSE: &str = "Michael–Scott's and Prakash–Lee–Johnson's queues do; Valois's takes as long with copies as alone, so it is robust too, but its own time, with its counts of references, is above that of a test&set lock over fetch-ops whose waiters give way, with copies as alone";

fn n26(context: &Context<'_>) -> Result<Finding, Error> {
    let asked = QUEUES.iter().filter(|q| is_lock(q.0) || [CUSTOM, ARRAY].contains(&q.0));
    let asked = asked.map(|&(name, operations, _)| {
        let mut asked = question(name, SHARED, &[2, 3], operations, 0.2);
        if is_lock(name) {
            asked.waiting.retain(|&policy| policy != Policy::Spin);
        }
        asked
    });
    let asked: Vec<Sweep> = asked.collect();
    let series = context.ask_all(&asked)?;
    let claim = |f: Figure<'_>| slower_than_a_lock(f, CUSTOM);
    let f = &median(&series);
    let still = |name| format!("{:.0}", 100.0 * f(at(name, SPIN, 3, SHARED), STANDSTILL));
    let ours = format!(
        "the queue of N20 (Figure 1 itself, corrected, is {ARRAY}: it stands still for {} % of the time with 3 copies, this one for {} %); {}",
        still(ARRAY),
        still(CUSTOM),
        beside_locks(f, &[CUSTOM, ARRAY])
    );
    let finding = Finding::new(ours, series.judge(claim));
    Ok(vary_runs(context, finding, &asked, &claim)?.because(N26_CAUSE))
}

const N26_CAUSE: &str = "it stands still while the thread whose turn it is has no processor";

fn n27(context: &Context<'_>) -> Result<Finding, Error> {
    let mut questions = vec![question(CONSCIOUS, SHARED, &[1], 9_600, 0.2)];
    questions
        .extend(QUEUES.iter().filter(|q| q.0 == CONSCIOUS).map(|q| question(q.0, SHARED, &[2, 3], q.1, 0.2)));
    let series = context.ask_all(&questions)?;
    let ratio = |f: Figure<'_>, copies: u64| {
        let alone = f(at(CONSCIOUS, SPIN, 1, SHARED), TIME);
        f(at(CONSCIOUS, SPIN, copies, SHARED), TIME) / (alone * copies as f64)
    };
    let against = series.judge(|f| {
        let off = [2, 3].into_iter().filter(|&n| !(0.75..=1.25).contains(&ratio(f, n)));
        off.map(|n| format!("with {n} copies it takes {} of its time alone × {n}", digits(ratio(f, n))))
            .collect()
    });
    let f = &median(&series);
    // Three causes: whether the lock is what limits the program; whether the holder may run on;
    // the costs of switches.
    let mut sweep = Vec::new();
    for (what, work, change) in [
        ("1 ms of work, with which the lock is not what limits a program", 1_000_000, "os.grace=1ms"),
        ("a kernel that preempts the holder too", 50_000, "os.grace=0"),
        ("switches of 50 µs", 50_000, "os.switch=50us"),
        ("slices twice as long", 50_000, "os.quantum=5ms"),
    ] {
        let other = |copies, operations| {
            question(CONSCIOUS, SHARED, copies, operations, 0.2).work(work, 0.2).set(change)
        };
        let other = context.ask_all_once(&[other(&[1], 6_400), other(&[2, 3], 12_800)])?;
        let g = &median(&other);
        sweep.push(format!("with {what} {} and {}", digits(ratio(g, 2)), digits(ratio(g, 3))));
    }
    let ours = format!(
        "{} of its time alone × 2, {} of it × 3 (alone {}); it stands still for {:.0} and {:.0} % of the time; {}",
        digits(ratio(f, 2)),
        digits(ratio(f, 3)),
        series.show(at(CONSCIOUS, SPIN, 1, SHARED), TIME) + " ns",
        100.0 * f(at(CONSCIOUS, SPIN, 2, SHARED), STANDSTILL),
        100.0 * f(at(CONSCIOUS, SPIN, 3, SHARED), STANDSTILL),
        sweep.join("; ")
    );
    Ok(Finding::new(ours, against).because(N27_CAUSE))
}

const N27_CAUSE: &str = "it does better than retain its scalability: alone the lock limits the program and the processors mostly wait, so copies use what the others leave, and each takes hardly longer than alone. With so much work that the lock does not limit it, it takes its time alone × copies exactly. It hangs on the kernel's letting the holder run on: one that does not makes all wait for a preempted holder";

/// Times by the three disciplines, relative to busy-waiting.
fn by_discipline(f: Figure<'_>, name: &str, copies: &[u64]) -> String {
    let relative = |n: u64, waiting: &str| {
        digits(f(at(name, waiting, n, SHARED), TIME) / f(at(name, SPIN, n, SHARED), TIME))
    };
    let all: Vec<String> =
        copies.iter().map(|&n| format!("{} {}", relative(n, COMPETITIVE), relative(n, BLOCKING))).collect();
    format!("{} {}", short(name), all.join(" | "))
}

fn n28(context: &Context<'_>) -> Result<Finding, Error> {
    let series = queues(context)?;
    let against = series.judge(|f| {
        let mut against = Vec::new();
        for name in LOCKS {
            for n in [2, 3] {
                let time = |waiting| f(at(name, waiting, n, SHARED), TIME);
                let relative = |waiting| digits(time(waiting) / time(SPIN));
                if ![SPIN, COMPETITIVE].iter().all(|w| not_above(time(w), time(BLOCKING))) {
                    against.push(format!(
                        "{}, {n} copies: blocking takes {} and competitive spinning {} of busy-waiting's time",
                        short(name),
                        relative(BLOCKING),
                        relative(COMPETITIVE)
                    ));
                }
                let gain = 1.0 - time(COMPETITIVE) / time(SPIN);
                if !(-TIE..=0.2).contains(&gain) {
                    let gain = format!("{:.0} %", gain * 100.0);
                    against.push(format!("{}, {n} copies: competitive spinning gains {gain}", short(name)));
                }
            }
        }
        against
    });
    let mut sweep = Vec::new();
    for change in ["os.switch=50us", "os.quantum=500us"] {
        let other = changed(context, &LOCKS, change)?;
        sweep
            .push(format!("{change}: {}", LOCKS.map(|n| by_discipline(&median(&other), n, &[2])).join("; ")));
    }
    let f = &median(&series);
    let switches =
        |name: &str| DISCIPLINES.map(|d| digits(f(at(name, d.0, 2, SHARED), CONTEXT_SWITCHES))).join(", ");
    let ours = format!(
        "competitive and blocking ÷ busy-waiting for 2 | 3 copies: {}. Context switches for each operation by the three: {}. {}",
        LOCKS.map(|n| by_discipline(f, n, &[2, 3])).join("; "),
        LOCKS.map(|n| format!("{} {}", short(n), switches(n))).join("; "),
        sweep.join(". ")
    );
    Ok(Finding::new(ours, against).because(N28_CAUSE))
}

const N28_CAUSE: &str = "busy-waiting is the worst, since the thread that is waited for may have no processor for a whole slice: a ticket lock then gets on about once for each context switch, and a test&set lock stands still while its holder is preempted (N24); a waiter that gives way lets it back. The shorter the slices, the less that matters: with 0.5 ms instead of 2.5 blocking is worse than busy-waiting under ticket locks. With switches of 50 µs instead of 10 it is worse than competitive spinning under three of the four";
