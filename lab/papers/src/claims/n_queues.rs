//! Paper N §3.1, §4.2: FIFO queues under locks and lock-free (N11 to N17);
//! `n_queues_at_memory.rs` has those over fetch-ops.

use towpath_machine::Processor;
use towpath_sim::Sim;
use towpath_structures::queues::{ConcurrentQueue, TwoEnded};
use towpath_sync::LoadLinked;
use towpath_sync::locks::TestAndSet;

use super::context::{At, Series, rising, within_factor};
use super::n_constants::{vary, vary_runs};
use super::{Claim, Context, Finding};
use crate::sim::Run;
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{
    FAILED_CONDITIONALS, INTERVENTIONS, INTERVENTIONS_RECEIVED, INVALIDATIONS, INVALIDATIONS_RECEIVED,
    TIME_PER_OPERATION as TIME, UPGRADES,
};

pub(super) const PROCS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
pub(super) const MOST: usize = 64;

const TEST_AND_SET: &str = "two-ended/test-and-set/ll-sc";
const TICKET: &str = "two-ended/ticket/ll-sc";
pub(super) const QUEUE: &str = "two-ended/anderson/ll-sc";
/// The locks over LL/SC, best first, as the paper has it.
pub(super) const CACHED_LOCKS: [&str; 3] = [QUEUE, TICKET, TEST_AND_SET];

const MICHAEL_SCOTT: &str = "michael-scott/ll-sc";
const PRAKASH: &str = "prakash-lee-johnson/ll-sc";
const VALOIS: &str = "valois/ll-sc";
/// The non-blocking queues, best first, as the paper has it.
pub(super) const NON_BLOCKING: [&str; 3] = [MICHAEL_SCOTT, PRAKASH, VALOIS];

const TEST_AND_SET_AT_MEMORY: &str = "two-ended/test-and-set/fetch-op";
const TICKET_AT_MEMORY: &str = "two-ended/ticket/fetch-op";
pub(super) const HYBRID: &str = "two-ended/hybrid-queue";
/// The locks over fetch-ops, best first, as the paper has it.
pub(super) const LOCKS_AT_MEMORY: [&str; 3] = [HYBRID, TICKET_AT_MEMORY, TEST_AND_SET_AT_MEMORY];

/// The paper's sentence about its own queue: both ends are tickets.
pub(super) const TICKETS: &str = "fetch-op-tickets";
/// The paper's Figure 1, corrected: dequeuers meet in the first slot.
pub(super) const ARRAY: &str = "fetch-op-array";

pub(super) const ALL: [&str; 11] = [
    QUEUE,
    TICKET,
    TEST_AND_SET,
    MICHAEL_SCOTT,
    PRAKASH,
    VALOIS,
    HYBRID,
    TICKET_AT_MEMORY,
    TEST_AND_SET_AT_MEMORY,
    TICKETS,
    ARRAY,
];

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N11",
        what: "A queue under locks over LL/SC: the queue lock is faster than the ticket lock, and that is faster than test&set",
        paper: "queue < ticket < test&set",
        tolerance: "order at 16, 32, 64; 3 % is a tie",
        input: false,
        simulated: n11,
        native: None,
    },
    Claim {
        id: "N12",
        what: "The same on 64 processors under test&set: store-conditionals that fail for each acquisition",
        paper: "90",
        tolerance: "a factor 2",
        input: false,
        simulated: n12,
        native: None,
    },
    Claim {
        id: "N13",
        what: "Test&set over LL/SC raises invalidations and interventions by more than ten times over the same lock at memory",
        paper: "> 10, > 10",
        tolerance: "invalidations at least 10; interventions a factor 2 of that (5)",
        input: false,
        simulated: n13,
        native: None,
    },
    Claim {
        id: "N14",
        what: "The three locks over LL/SC are the worst group on 64 processors; the non-blocking queues beat them beyond 4 processors",
        paper: "worst three; from 8 on",
        tolerance: "order at 64; from 4, 8 or 16 on",
        input: false,
        simulated: n14,
        native: None,
    },
    Claim {
        id: "N15",
        what: "Michael and Scott's queue is faster than Prakash, Lee and Johnson's, and that is faster than Valois's",
        paper: "MS < PLJ < Valois",
        tolerance: "order at 8, 16, 32, 64; 3 % is a tie",
        input: false,
        simulated: n15,
        native: None,
    },
    Claim {
        id: "N16",
        what: "The best non-blocking queue's coherence overhead (the paper's four events: failing store-conditionals, invalidations and interventions received, stores to shared lines) on 64 processors as a part of that of the locks over LL/SC",
        paper: "1/4",
        tolerance: "a factor 2, against the mean of the three",
        input: false,
        simulated: n16,
        native: None,
    },
    Claim {
        id: "N17",
        what: "Its time on 64 processors as a part of that of the locks over LL/SC",
        paper: "1/2",
        tolerance: "a factor 2, against the mean of the three",
        input: false,
        simulated: n17,
        native: None,
    },
];

/// The variants of homes, on which the paper is silent and its claims may hang.
const HOMES: [&str; 3] = ["directory.service=fifo", "directory.busy=queue", "directory.occupancy_data=80ns"];

/// Lines dealt out to the nodes in turn, as this model had them at first.
///
/// IRIX places a page at the node that touches it first, which here is the main process's.
pub(super) const IN_TURN: &str = "memory.placement=in-turn";

pub(super) type Look<'a> = &'a dyn Fn(At<'_>, Metric) -> f64;

pub(super) fn at(algorithm: &str, procs: usize) -> At<'_> {
    At::new(algorithm, procs)
}

/// The paper's Figure 5.
pub(super) fn figure_5() -> Sweep {
    some(&ALL, &PROCS)
}

/// Some of the runs of Figure 5.
pub(super) fn some(algorithms: &[&'static str], procs: &[usize]) -> Sweep {
    Sweep::on("queues", "origin2000", algorithms, procs)
}

/// Some algorithms on 64 processors with a parameter changed, by one seed, to see the
/// causes.
pub(super) fn changed(
    context: &Context<'_>,
    algorithms: &[&'static str],
    change: &str,
) -> Result<Series, Error> {
    context.ask_once(&some(algorithms, &[MOST]).set(change))
}

/// Times of some, the medians, in the order given.
pub(super) fn times(series: &Series, algorithms: &[&str], procs: usize) -> String {
    let all: Vec<String> = algorithms
        .iter()
        .map(|a| format!("{a} {}", nanoseconds(series.median(at(a, procs), TIME))))
        .collect();
    all.join(", ")
}

/// The algorithms among these that do not rise in this order on so many processors.
pub(super) fn out_of_order(f: Look<'_>, algorithms: &[&'static str], procs: usize) -> Vec<String> {
    let values: Vec<(&str, f64)> = algorithms.iter().map(|a| (*a, f(at(a, procs), TIME))).collect();
    rising(&format!("on {procs}"), &values)
}

/// The contradictions if one of the first is slower than one of the others on so many
/// processors.
pub(super) fn not_faster(
    f: Look<'_>,
    fast: &[&'static str],
    slow: &[&'static str],
    procs: usize,
) -> Vec<String> {
    let pairs = fast.iter().flat_map(|a| slow.iter().map(move |b| [*a, *b]));
    pairs.flat_map(|pair| out_of_order(f, &pair, procs)).collect()
}

fn mean(f: Look<'_>, algorithms: &[&'static str], metrics: &[Metric]) -> f64 {
    let of = |a: &&'static str| metrics.iter().map(|m| f(at(a, MOST), *m)).sum::<f64>();
    algorithms.iter().map(of).sum::<f64>() / algorithms.len() as f64
}

fn n11(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let claim = |f: Look<'_>| [16, 32, 64].iter().flat_map(|&n| out_of_order(f, &CACHED_LOCKS, n)).collect();
    let ours: Vec<String> =
        [16, 32, 64].iter().map(|&n| format!("on {n}: {}", times(&series, &CACHED_LOCKS, n))).collect();
    let plots = [
        series.plot("FIFO queues with 5 µs of work (N figure 5, top)", TIME, nanoseconds),
        series.plot_beside(
            "FIFO queues: failing store-conditionals (N figure 5, bottom)",
            FAILED_CONDITIONALS,
            &[(TEST_AND_SET, vec![(MOST as u32, 90.0)])],
            digits,
        ),
        series.plot(
            "FIFO queues: invalidations received (N figure 5, bottom)",
            INVALIDATIONS_RECEIVED,
            digits,
        ),
        series.plot(
            "FIFO queues: interventions received (N figure 5, bottom)",
            INTERVENTIONS_RECEIVED,
            digits,
        ),
        series.plot("FIFO queues: stores to shared lines (N figure 5, bottom)", UPGRADES, digits),
    ];
    let finding = Finding::new(ours.join("; "), series.judge(claim)).with(plots);
    vary_runs(context, finding, &[some(&CACHED_LOCKS, &[16, 32, 64])], &claim)
}

fn n12(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let there = at(TEST_AND_SET, MOST);
    let claim = |failures| within_factor("failures", failures, 90.0, 2.0);
    let against = series.judge(|f| claim(f(there, FAILED_CONDITIONALS)));
    if context.is_sabotaged() {
        return Ok(Finding::new(String::new(), against));
    }
    let (mut bounds, mut others) = (Vec::new(), Vec::new());
    // The paper gives no bound; ours is 16 times the base.
    for doublings in [3, 5] {
        let failures = with_bound(doublings, FAILED_CONDITIONALS)?;
        let bound = format!("bounded at {} times its base", 1u32 << doublings);
        bounds.push(format!("{bound} {}", digits(failures)));
        others.extend(claim(failures).into_iter().map(|text| format!("{bound} {text}")));
    }
    let in_turn = changed(context, &[TEST_AND_SET], IN_TURN)?;
    let ours = format!(
        "{}; with back-off {}; with lines at the nodes in turn {}",
        series.show(there, FAILED_CONDITIONALS),
        bounds.join(", "),
        in_turn.show(there, FAILED_CONDITIONALS)
    );
    let finding = Finding::new(ours, against).varied("the bound of back-off", others);
    vary(finding, &|change| {
        Ok(claim(changed(context, &[TEST_AND_SET], change)?.median(there, FAILED_CONDITIONALS)))
    })
}

fn n13(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    // As the paper counts: what processors receive, and how much there is of it beyond what the
    // same lock at memory causes, which the sharing of the queue alone explains.
    let ratio = |f: Look<'_>, metrics: &[Metric]| {
        let sum = |name| metrics.iter().map(|&m| f(at(name, MOST), m)).sum::<f64>();
        sum(TEST_AND_SET) / sum(TEST_AND_SET_AT_MEMORY)
    };
    const RECEIVED: [Metric; 2] = [INVALIDATIONS_RECEIVED, INTERVENTIONS_RECEIVED];
    let claim = |f: Look<'_>| {
        let enough = [("invalidations", RECEIVED[0], 10.0), ("interventions", RECEIVED[1], 5.0)];
        let too_few = enough.into_iter().filter(|(_, metric, least)| {
            let times = ratio(f, &[*metric]);
            times.is_nan() || times < *least
        });
        too_few.map(|(name, metric, _)| format!("{} times the {name}", digits(ratio(f, &[metric])))).collect()
    };
    let against = series.judge(claim);
    let shown = |series: &Series| {
        let f = |at: At<'_>, metric| series.median(at, metric);
        format!(
            "{} times the invalidations, {} times the interventions, {} times both together",
            digits(ratio(&f, &RECEIVED[..1])),
            digits(ratio(&f, &RECEIVED[1..])),
            digits(ratio(&f, &RECEIVED))
        )
    };
    let ours = format!(
        "{} ({} and {} received an operation over LL/SC, {} and {} at memory)",
        shown(&series),
        series.show(at(TEST_AND_SET, MOST), INVALIDATIONS_RECEIVED),
        series.show(at(TEST_AND_SET, MOST), INTERVENTIONS_RECEIVED),
        series.show(at(TEST_AND_SET_AT_MEMORY, MOST), INVALIDATIONS_RECEIVED),
        series.show(at(TEST_AND_SET_AT_MEMORY, MOST), INTERVENTIONS_RECEIVED),
    );
    let in_turn = changed(context, &[TEST_AND_SET, TEST_AND_SET_AT_MEMORY], IN_TURN)?;
    let ours = format!("{ours}; with lines at the nodes in turn {}", shown(&in_turn));
    let both = [TEST_AND_SET, TEST_AND_SET_AT_MEMORY];
    if against.is_empty() {
        return vary_runs(context, Finding::new(ours, against), &[some(&both, &[MOST])], &claim);
    }
    let (mut why, mut enough) = (Vec::new(), Vec::new());
    for (what, change) in [
        ("requests that queue at busy lines", "directory.busy=queue"),
        ("homes that serve in the order of arrival", "directory.service=fifo"),
        ("homes occupied half as long", "directory.occupancy_data=80ns"),
    ] {
        let other = changed(context, &both, change)?;
        if other.judge(claim).is_empty() {
            enough.push(what);
        }
        why.push(format!("with {what} {}", shown(&other)));
    }
    for doublings in [0, 2, 8] {
        let per_operation = with_bound(doublings, INTERVENTIONS)?;
        why.push(format!(
            "with back-off bounded at {} times its base {} interventions sent for an operation over LL/SC",
            1u32 << doublings,
            digits(per_operation)
        ));
    }
    let cause = match enough.is_empty() {
        true => "not explained: no other kind of home that was tried brings enough".into(),
        false => format!("it holds with {}", enough.join(", and with ")),
    };
    Ok(Finding::new(ours, against).because(&format!("{cause}: {}", why.join("; "))))
}

/// A figure of test&set over LL/SC on 64 processors, with another bound of back-off.
fn with_bound(doublings: u32, metric: Metric) -> Result<f64, Error> {
    let question = figure_5();
    let run = Run { procs: MOST, ..question.run };
    let measured = run.measure(
        |arena| TwoEnded::<Sim, TestAndSet<Sim, LoadLinked>, LoadLinked>::new(arena, 16 * MOST, MOST),
        move |cpu, queue, patience, i| {
            let mut wait = patience.clone();
            wait.doublings = doublings;
            if i % 2 == 0 {
                queue.enqueue(cpu, &wait, cpu.id(), i + 1).expect("a queue with room for all");
            } else {
                queue.dequeue(cpu, &wait, cpu.id()).expect("a queue that no participant spoils");
            }
        },
    )?;
    Ok(measured.values.iter().find(|(m, _)| *m == metric).map_or(f64::NAN, |(_, value)| *value))
}

/// Number of processors from which on each of the first is faster than all others.
fn from(f: Look<'_>, fast: &[&'static str], slow: &[&'static str]) -> Option<usize> {
    let wins =
        |n: &&usize| fast.iter().all(|a| slow.iter().all(|b| f(at(a, **n), TIME) < f(at(b, **n), TIME)));
    PROCS.iter().rev().take_while(wins).last().copied()
}

fn n14(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let others: Vec<&'static str> = ALL.into_iter().filter(|a| !CACHED_LOCKS.contains(a)).collect();
    let against = series.judge(|f| {
        let mut against = not_faster(f, &others, &CACHED_LOCKS, MOST);
        match from(f, &NON_BLOCKING, &CACHED_LOCKS) {
            Some(4..=16) => {}
            Some(n) => against.push(format!("the non-blocking queues are faster from {n} on")),
            None => against.push("the non-blocking queues are not all faster on 64".into()),
        }
        against
    });
    let f = |at: At<'_>, metric| series.median(at, metric);
    let since = |fast: &[&'static str], slow: &[&'static str]| {
        from(&f, fast, slow).map_or("never".to_string(), |n| format!("from {n} on"))
    };
    let ours = format!(
        "on 64: {}; all three non-blocking queues are faster than test&set and ticket {}, Michael and Scott's and Prakash's than all three locks {}, Valois's {}",
        times(&series, &ALL, MOST),
        since(&NON_BLOCKING, &[TICKET, TEST_AND_SET]),
        since(&[MICHAEL_SCOTT, PRAKASH], &CACHED_LOCKS),
        since(&[VALOIS], &CACHED_LOCKS),
    );
    let traffic = |a| {
        format!(
            "{} and {}",
            digits(series.median(at(a, MOST), FAILED_CONDITIONALS)),
            digits(series.median(at(a, MOST), INVALIDATIONS))
        )
    };
    let mut sweep = Vec::new();
    for change in HOMES {
        let other = changed(context, &[QUEUE, HYBRID, VALOIS], change)?;
        sweep.push(format!("{change}: {}", times(&other, &[QUEUE, HYBRID, VALOIS], MOST)));
    }
    let why = format!(
        "the exception is the queue lock: its draws hardly ever collide and its releases reach one waiter, so over LL/SC it costs what the hybrid one costs (failing store-conditionals and invalidations an operation: {}, {} with the hybrid one; test&set {}, ticket {}), and less than Valois's queue, which counts references ({}); no other kind of home turns the two: {}",
        traffic(QUEUE),
        traffic(HYBRID),
        traffic(TEST_AND_SET),
        traffic(TICKET),
        traffic(VALOIS),
        sweep.join("; ")
    );
    Ok(Finding::new(ours, against).because(&why))
}

fn n15(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let claim =
        |f: Look<'_>| [8, 16, 32, 64].iter().flat_map(|&n| out_of_order(f, &NON_BLOCKING, n)).collect();
    let ours: Vec<String> =
        [8, 16, 32, 64].iter().map(|&n| format!("on {n}: {}", times(&series, &NON_BLOCKING, n))).collect();
    let finding = Finding::new(ours.join("; "), series.judge(claim));
    vary_runs(context, finding, &[some(&NON_BLOCKING, &[8, 16, 32, 64])], &claim)
}

/// The paper's four events of coherence activity (Section 4), as received.
const OVERHEAD: [Metric; 4] = [FAILED_CONDITIONALS, INVALIDATIONS_RECEIVED, INTERVENTIONS_RECEIVED, UPGRADES];

fn n16(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let part = |f: Look<'_>, locks: &[&'static str]| {
        mean(f, &[MICHAEL_SCOTT], &OVERHEAD) / mean(f, locks, &OVERHEAD)
    };
    let against = series.judge(|f| within_factor("the part", part(f, &CACHED_LOCKS), 0.25, 2.0));
    let f = |at: At<'_>, metric| series.median(at, metric);
    let ours = format!(
        "{} of the mean of the three; {} of test&set, {} of ticket, {} of the queue lock ({} an operation in all)",
        digits(part(&f, &CACHED_LOCKS)),
        digits(part(&f, &[TEST_AND_SET])),
        digits(part(&f, &[TICKET])),
        digits(part(&f, &[QUEUE])),
        digits(mean(&f, &[MICHAEL_SCOTT], &OVERHEAD)),
    );
    let mut sweep = Vec::new();
    for change in HOMES {
        let other = changed(context, &[MICHAEL_SCOTT, QUEUE, TICKET, TEST_AND_SET], change)?;
        let g = |at: At<'_>, metric| other.median(at, metric);
        let parts = [&CACHED_LOCKS[..], &CACHED_LOCKS[1..]].map(|locks| digits(part(&g, locks)));
        sweep.push(format!("{change} {} and {}", parts[0], parts[1]));
    }
    let why = format!(
        "the queue lock lowers the mean: it causes {} an operation (N14), and without it the part is {}. Of all three and without it, with {}",
        digits(mean(&f, &[QUEUE], &OVERHEAD)),
        digits(part(&f, &CACHED_LOCKS[1..])),
        sweep.join("; ")
    );
    Ok(Finding::new(ours, against).because(&why))
}

fn n17(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let part = |f: Look<'_>| mean(f, &[MICHAEL_SCOTT], &[TIME]) / mean(f, &CACHED_LOCKS, &[TIME]);
    let claim = |f: Look<'_>| within_factor("the part", part(f), 0.5, 2.0);
    let against = series.judge(claim);
    let f = |at: At<'_>, metric| series.median(at, metric);
    let all = [MICHAEL_SCOTT, QUEUE, TICKET, TEST_AND_SET];
    let in_turn = changed(context, &all, IN_TURN)?;
    let ours = format!(
        "{}; {}; with lines at the nodes in turn {}",
        digits(part(&f)),
        times(&series, &all, MOST),
        digits(part(&|at: At<'_>, metric| in_turn.median(at, metric)))
    );
    if against.is_empty() || context.is_sabotaged() {
        return vary_runs(context, Finding::new(ours, against), &[some(&all, &[MOST])], &claim);
    }
    let fifo = changed(context, &all, "directory.service=fifo")?;
    let g = |at: At<'_>, metric| fifo.median(at, metric);
    let why = format!(
        "it hangs on the order in which a home serves: with first in first out it is {}",
        digits(part(&g))
    );
    Ok(Finding::new(ours, against).because(&why))
}
