//! Paper N §3.1, §4.2: FIFO queues over fetch-ops at memory (N18 to N20); `n_queues.rs`
//! has those over LL/SC.

use super::context::rising;
use super::n_constants::vary_runs;
use super::n_queues::{
    ALL, ARRAY, CACHED_LOCKS, HYBRID, IN_TURN, LOCKS_AT_MEMORY, Look, MOST, NON_BLOCKING, PROCS, QUEUE,
    TICKETS, at, changed, figure_5, not_faster, out_of_order, some, times,
};
use super::{Claim, Context, Finding};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::metrics::{
    FAILED_CONDITIONALS, FETCH_OPS, INTERVENTIONS, INVALIDATIONS, LOCAL_MISSES, REMOTE_MISSES,
    TIME_PER_OPERATION as TIME,
};

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N18",
        what: "The queues over compare-and-swap are slower than the locks over fetch-ops",
        paper: "slower",
        tolerance: "order of every pair at 64; 3 % is a tie",
        input: false,
        simulated: n18,
        native: None,
    },
    Claim {
        id: "N19",
        what: "Among the locks over fetch-ops the order is the same, and the hybrid queue lock is the best lock of all",
        paper: "hybrid < ticket < test&set; hybrid < all",
        tolerance: "order at 64; 3 % is a tie",
        input: false,
        simulated: n19,
        native: None,
    },
    Claim {
        id: "N20",
        what: "The lock-free queue over fetch-ops is the best of all and scales up to 64 processors; its only coherence traffic is cold misses",
        paper: "best; falls up to 64; 0",
        tolerance: "order; counts exact",
        input: false,
        simulated: n20,
        native: None,
    },
];

fn n18(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let claim = |f: Look<'_>| not_faster(f, &LOCKS_AT_MEMORY, &NON_BLOCKING, MOST);
    let against = series.judge(claim);
    let both = [NON_BLOCKING, LOCKS_AT_MEMORY].concat();
    let in_turn = changed(context, &both, IN_TURN)?;
    let ours = format!(
        "{}; with lines at the nodes in turn {}",
        times(&series, &both, MOST),
        times(&in_turn, &both, MOST)
    );
    if against.is_empty() || context.is_sabotaged() {
        return vary_runs(context, Finding::new(ours, against), &[some(&both, &[MOST])], &claim);
    }
    let word = context.ask_once(&Sweep::on("locks", "origin2000", &["hybrid-queue"], &[MOST]))?;
    let fifo = changed(context, &both, "directory.service=fifo")?;
    let why = format!(
        "under a lock the queue's own lines move one after the other while no other may begin: the hybrid lock around a single word takes {}, so no queue under it can take less. And it hangs on the order in which a home serves: with first in first out {}",
        nanoseconds(word.median(at("hybrid-queue", MOST), TIME)),
        times(&fifo, &both, MOST)
    );
    Ok(Finding::new(ours, against).because(&why))
}

fn n19(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_5())?;
    let claim = |f: Look<'_>| {
        let mut against = out_of_order(f, &LOCKS_AT_MEMORY, MOST);
        against.extend(not_faster(f, &[HYBRID], &CACHED_LOCKS, MOST));
        against
    };
    let against = series.judge(claim);
    let one_by_one = changed(context, &LOCKS_AT_MEMORY, "processor.store_buffer=0")?;
    let ours = format!(
        "{}; the best over LL/SC: {}; with stores that each wait for their line {}",
        times(&series, &LOCKS_AT_MEMORY, MOST),
        times(&series, &[QUEUE], MOST),
        times(&one_by_one, &LOCKS_AT_MEMORY, MOST)
    );
    if against.is_empty() || context.is_sabotaged() {
        let all = [&LOCKS_AT_MEMORY[..], &CACHED_LOCKS].concat();
        return vary_runs(context, Finding::new(ours, against), &[some(&all, &[MOST])], &claim);
    }
    let mut sweep = Vec::new();
    for service in ["10.3ns", "41ns", "100ns", "164ns", "244ns"] {
        let other = changed(context, &LOCKS_AT_MEMORY, &format!("fetch_op.occupancy={service}"))?;
        sweep.push(format!("with {service} {}", times(&other, &LOCKS_AT_MEMORY, MOST)));
    }
    // The same locks around a single word.
    const WORD: [&str; 3] = ["hybrid-queue", "ticket/fetch-op", "test-and-set/fetch-op"];
    let word = context.ask_once(&Sweep::on("locks", "origin2000", &WORD, &[MOST]))?;
    let why = format!(
        "it hangs on how long a poll at memory occupies the home (chosen for N7): {}. The queue's own lines do not decide, it is the same around a single word: {}",
        sweep.join("; "),
        times(&word, &WORD, MOST)
    );
    Ok(Finding::new(ours, against).because(&why))
}

fn n20(context: &Context<'_>) -> Result<Finding, Error> {
    let question = figure_5();
    let operations = question.run.operations as f64;
    let series = context.ask(&question)?;
    let others: Vec<&'static str> = ALL.into_iter().filter(|a| ![TICKETS, ARRAY].contains(a)).collect();
    let claim = |f: Look<'_>| {
        let mut against = not_faster(f, &[TICKETS], &others, MOST);
        let names = PROCS.map(|n| n.to_string());
        let falling: Vec<(&str, f64)> = PROCS
            .iter()
            .zip(&names)
            .rev()
            .map(|(n, name)| (name.as_str(), f(at(TICKETS, *n), TIME)))
            .collect();
        against.extend(rising("time by processors", &falling));
        for metric in [FAILED_CONDITIONALS, INVALIDATIONS, INTERVENTIONS] {
            let count = f(at(TICKETS, MOST), metric);
            if count != 0.0 {
                against.push(format!("{} is {}", metric.name, digits(count)));
            }
        }
        // Each processor has one line of its own, which it misses once.
        let misses = (f(at(TICKETS, MOST), LOCAL_MISSES) + f(at(TICKETS, MOST), REMOTE_MISSES)) * operations;
        if misses.is_nan() || misses > MOST as f64 + 0.5 {
            against.push(format!("{} misses in all, more than one for each processor", digits(misses)));
        }
        against
    };
    let against = series.judge(claim);
    let all = |a| PROCS.map(|n| digits(series.median(at(a, n), TIME))).join(", ");
    let ours = format!(
        "{TICKETS}: {} ns on 1 to 64; 0 invalidations, {} fetch-ops an operation; the best of the others on 64: {}. (Figure 1 itself, corrected, {ARRAY}: {} ns; {} fetch-ops on 64, since its dequeuers meet in the first slot. It differs from the printed text in drawing from the tail and in telling values by a mark; {TICKETS}, which is what the paper's text says of the queue, also in drawing from the head before looking.)",
        all(TICKETS),
        digits(series.median(at(TICKETS, MOST), FETCH_OPS)),
        others
            .iter()
            .map(|a| series.median(at(a, MOST), TIME))
            .min_by(f64::total_cmp)
            .map_or(String::new(), nanoseconds),
        all(ARRAY),
        digits(series.median(at(ARRAY, MOST), FETCH_OPS)),
    );
    if against.is_empty() || context.is_sabotaged() {
        let asked = [some(&others, &[MOST]), some(&[TICKETS], &PROCS)];
        return vary_runs(context, Finding::new(ours, against), &asked, &claim);
    }
    let faster = context.ask_once(
        &Sweep::on("queues", "origin2000", &[TICKETS], &PROCS)
            .set("fetch_op.occupancy=10ns")
            .set("fetch_op.occupancy_miss=10ns"),
    )?;
    let why = format!(
        "the home of an end serves two fetch-ops for each operation, and its service time (not in the paper) bounds it from below; with 10 ns: {} ns",
        PROCS.map(|n| digits(faster.median(at(TICKETS, n), TIME))).join(", ")
    );
    Ok(Finding::new(ours, against).because(&why))
}
