//! Paper N §4.1: the shared counter over LL/SC and over fetch-ops at memory (N1 to N10).

use super::context::{At, rising, within, within_factor};
use super::n_constants::vary_runs;
use super::n_queues::Look;
use super::{Claim, Context, Finding};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::metrics::{
    FAILED_CONDITIONALS, FETCH_OPS, INTERVENTIONS, INTERVENTIONS_RECEIVED, INVALIDATIONS,
    INVALIDATIONS_RECEIVED, REMOTE_MISSES, TIME_PER_OPERATION as TIME,
};

const PROCS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const BOTH: [&str; 2] = ["ll-sc", "fetch-op"];

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N1",
        what: "64 processors update a counter by LL/SC with 5 µs of work: store-conditionals that fail for each update",
        paper: "11",
        tolerance: "± 25 %",
        input: true,
        simulated: n1,
        native: None,
    },
    Claim {
        id: "N2",
        what: "The same: invalidations for each successful store-conditional",
        paper: "13",
        tolerance: "± 25 %",
        input: true,
        simulated: n2,
        native: None,
    },
    Claim {
        id: "N3",
        what: "The same: coherence misses satisfied remotely, for each update (the counter of interventions that processors receive)",
        paper: "2.5",
        tolerance: "a factor 2",
        // That both processors of a node count an intervention has no source but this count.
        input: true,
        simulated: n3,
        native: None,
    },
    Claim {
        id: "N4",
        what: "The same with fetch-ops: no failures, no invalidations, only cold misses",
        paper: "0, 0",
        tolerance: "exact",
        input: false,
        simulated: n4,
        native: None,
    },
    Claim {
        id: "N5",
        what: "Without work the LL/SC counter does not scale at all: its time rises from one processor on",
        paper: "rises",
        tolerance: "order, 3 % is a tie",
        input: false,
        simulated: n5,
        native: None,
    },
    Claim {
        id: "N6",
        what: "With 5 µs of work the LL/SC counter scales up to 8 processors only",
        paper: "least time at 8",
        tolerance: "4 to 16",
        input: false,
        simulated: n6,
        native: None,
    },
    Claim {
        id: "N7",
        what: "The fetch-op counter scales up to 64 processors; without work its curve flattens from 32 to 64",
        paper: "falls up to 64; flat from 32",
        tolerance: "order; flat from 16, 32 or 64 on",
        input: true,
        simulated: n7,
        native: None,
    },
    Claim {
        id: "N8",
        what: "On one processor a cached increment is about ten times faster than a fetch-op on local memory",
        paper: "10",
        tolerance: "a factor 2",
        // Both times follow from the sentence that it checks (N §4.1).
        input: true,
        simulated: n8,
        native: None,
    },
    Claim {
        id: "N9",
        what: "Without work the fetch-op counter is slower on 1 and 2 processors and faster beyond one node",
        paper: "crosses between 2 and 4",
        tolerance: "by one power of two",
        input: false,
        simulated: n9,
        native: None,
    },
    Claim {
        id: "N10",
        what: "With 5 µs of work the latency of fetch-ops does not show on 1 and 2 processors",
        paper: "hidden",
        tolerance: "at most 10 % slower",
        input: false,
        simulated: n10,
        native: None,
    },
];

fn with_work() -> Sweep {
    Sweep::on("counter", "origin2000", &BOTH, &PROCS)
}

fn without_work() -> Sweep {
    with_work().work(0, 0.0)
}

fn ll_sc(procs: usize) -> At<'static> {
    At::new("ll-sc", procs)
}

fn fetch_op(procs: usize) -> At<'static> {
    At::new("fetch-op", procs)
}

fn n1(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&with_work())?;
    let against = series.judge(|f| within("failures", f(ll_sc(64), FAILED_CONDITIONALS), 11.0, 0.25));
    Ok(Finding::new(series.show(ll_sc(64), FAILED_CONDITIONALS), against))
}

fn n2(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&with_work())?;
    let against = series.judge(|f| within("invalidations", f(ll_sc(64), INVALIDATIONS), 13.0, 0.25));
    let ours = format!(
        "{} messages to nodes; {} as both processors of a node count them",
        series.show(ll_sc(64), INVALIDATIONS),
        series.show(ll_sc(64), INVALIDATIONS_RECEIVED)
    );
    Ok(Finding::new(ours, against))
}

fn n3(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&with_work())?;
    let against =
        series.judge(|f| within_factor("interventions", f(ll_sc(64), INTERVENTIONS_RECEIVED), 2.5, 2.0));
    let ours = format!(
        "{} as both processors of a node count them, {} sent",
        series.show(ll_sc(64), INTERVENTIONS_RECEIVED),
        series.show(ll_sc(64), INTERVENTIONS)
    );
    let counts = [
        ("failing store-conditionals", FAILED_CONDITIONALS, 11.0),
        ("invalidations sent", INVALIDATIONS, 13.0),
        ("interventions received", INTERVENTIONS_RECEIVED, 2.5),
    ];
    let plots = counts.map(|(what, metric, of_paper)| {
        let title = format!("Shared counter with 5 µs of work: {what} (N figure 4)");
        series.plot_beside(&title, metric, &[(BOTH[0], vec![(64, of_paper)])], digits)
    });
    Ok(Finding::new(ours, against).with(plots))
}

fn n4(context: &Context<'_>) -> Result<Finding, Error> {
    let claim = |f: Look<'_>| {
        let mut against = Vec::new();
        for metric in [FAILED_CONDITIONALS, INVALIDATIONS, INTERVENTIONS, REMOTE_MISSES] {
            let value = f(fetch_op(64), metric);
            if value != 0.0 {
                against.push(format!("{} is {}", metric.name, digits(value)));
            }
        }
        if f(fetch_op(64), FETCH_OPS) != 1.0 {
            against.push("not one fetch-op for each update".into());
        }
        against
    };
    let against = context.ask(&with_work())?.judge(claim);
    let finding = Finding::new("0 failures, 0 invalidations, 0 misses, 1 fetch-op".into(), against);
    vary_runs(context, finding, &[with_work()], &claim)
}

/// Our Figure 3, one chart.
fn chart(context: &Context<'_>, question: &Sweep, title: &str) -> Result<String, Error> {
    Ok(context.ask(question)?.plot(title, TIME, nanoseconds))
}

fn n5(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&without_work())?;
    let claim = |f: Look<'_>| {
        let names = PROCS.map(|n| n.to_string());
        let values: Vec<(&str, f64)> =
            PROCS.iter().zip(&names).map(|(&n, name)| (name.as_str(), f(ll_sc(n), TIME))).collect();
        rising("time by processors", &values)
    };
    let ours = PROCS.map(|n| digits(series.median(ll_sc(n), TIME))).join(", ") + " ns";
    let plot = chart(context, &without_work(), "Shared counter without work (N figure 3, left)")?;
    let finding = Finding::new(ours, series.judge(claim)).with([plot]);
    vary_runs(context, finding, &[without_work()], &claim)
}

/// The place of the least time.
fn best(f: Look<'_>, at: impl Fn(usize) -> At<'static>) -> usize {
    PROCS.into_iter().min_by(|&a, &b| f(at(a), TIME).total_cmp(&f(at(b), TIME))).unwrap_or(0)
}

fn n6(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&with_work())?;
    let claim = |f: Look<'_>| match best(f, ll_sc) {
        4..=16 => Vec::new(),
        n => vec![format!("the time is least at {n} processors")],
    };
    let least = best(&|at, metric| series.median(at, metric), ll_sc);
    let ours =
        format!("least at {least}; {} ns", PROCS.map(|n| digits(series.median(ll_sc(n), TIME))).join(", "));
    let plot = chart(context, &with_work(), "Shared counter with 5 µs of work (N figure 3, right)")?;
    let finding = Finding::new(ours, series.judge(claim)).with([plot]);
    vary_runs(context, finding, &[with_work()], &claim)
}

/// Number of processors from which on the time never falls by a tenth any more; 0 if it
/// does up to the end.
fn flat(f: Look<'_>) -> usize {
    let steps =
        PROCS.windows(2).rev().take_while(|w| f(fetch_op(w[1]), TIME) > 0.9 * f(fetch_op(w[0]), TIME));
    steps.last().map_or(0, |w| w[0])
}

/// Service times of a fetch-op: one to five cycles of the hub, and the estimates that
/// were there before anything was run (the last one is the rate that is remembered as published).
const SERVICE: [&str; 8] = ["10.3ns", "20.5ns", "30.8ns", "41ns", "51.3ns", "100ns", "164ns", "244ns"];

fn n7(context: &Context<'_>) -> Result<Finding, Error> {
    let (busy, empty) = (context.ask(&with_work())?, context.ask(&without_work())?);
    let falling = |f: Look<'_>| {
        let names = PROCS.map(|n| n.to_string());
        let values: Vec<(&str, f64)> =
            PROCS.iter().zip(&names).rev().map(|(&n, name)| (name.as_str(), f(fetch_op(n), TIME))).collect();
        rising("time by processors", &values)
    };
    let mut against = busy.judge(falling);
    against.extend(empty.judge(|f| match flat(f) {
        16..=64 => Vec::new(),
        n => vec![format!("without work it is flat from {n} processors on")],
    }));
    let mut sweep = Vec::new();
    for service in SERVICE {
        let set = |question: Sweep| {
            let mut question = question.set(&format!("fetch_op.occupancy={service}"));
            question.algorithms = vec![BOTH[1].into()];
            question
        };
        let (busy, empty) = (context.ask_once(&set(with_work()))?, context.ask_once(&set(without_work()))?);
        let from = match flat(&|at, metric| empty.median(at, metric)) {
            0 => "never flat".to_string(),
            n => format!("flat from {n}"),
        };
        let last = [16, 32, 64].map(|n| digits(empty.median(fetch_op(n), TIME))).join(", ");
        let scales = if busy.judge(falling).is_empty() { "falls" } else { "does not fall" };
        sweep.push(format!("{service}: {last}, {from}; with work it {scales} up to 64"));
    }
    let ours = format!(
        "with work {} ns; without {} ns, flat from {}. The service time of fetch-ops, of which the paper says nothing else, was chosen by this: of the whole numbers of the hub's cycles the one with which the curve without work still falls most up to 32 processors and is flat from there. By service time, without work on 16, 32 and 64: {}",
        PROCS.map(|n| digits(busy.median(fetch_op(n), TIME))).join(", "),
        PROCS.map(|n| digits(empty.median(fetch_op(n), TIME))).join(", "),
        flat(&|at, metric| empty.median(at, metric)),
        sweep.join(". "),
    );
    Ok(Finding::new(ours, against).because(
        "one home serves all fetch-ops on one variable, so it is its service time that decides where the curve flattens, and no bandwidth of the network",
    ))
}

fn n8(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&without_work())?;
    let ratio = |f: Look<'_>| f(fetch_op(1), TIME) / f(ll_sc(1), TIME);
    let against = series.judge(|f| within_factor("the ratio", ratio(f), 10.0, 2.0));
    let ours = format!(
        "{} ({} ÷ {})",
        digits(ratio(&|at, metric| series.median(at, metric))),
        nanoseconds(series.median(fetch_op(1), TIME)),
        nanoseconds(series.median(ll_sc(1), TIME))
    );
    Ok(Finding::new(ours, against))
}

fn n9(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&without_work())?;
    // The paper: between 2 and 4; one power of two either way: between 1 and 2, or between 4 and 8.
    let claim = |f: Look<'_>| {
        let slower = |n| f(fetch_op(n), TIME) > f(ll_sc(n), TIME);
        let mut against = Vec::new();
        if !slower(1) {
            against.push("it is not slower on 1 processor".into());
        }
        against.extend(
            PROCS.into_iter().filter(|&n| n >= 8 && slower(n)).map(|n| format!("it is slower on {n}")),
        );
        against
    };
    let ours = format!(
        "fetch-op {}, LL/SC {} ns on 1, 2, 4, 8",
        [1, 2, 4, 8].map(|n| digits(series.median(fetch_op(n), TIME))).join(", "),
        [1, 2, 4, 8].map(|n| digits(series.median(ll_sc(n), TIME))).join(", ")
    );
    let finding = Finding::new(ours, series.judge(claim));
    vary_runs(context, finding, &[without_work()], &claim)
}

fn n10(context: &Context<'_>) -> Result<Finding, Error> {
    let asked = if context.own_sabotage() == 0 { with_work() } else { without_work() };
    let series = context.ask(&asked)?;
    let ratio = |f: Look<'_>, n| f(fetch_op(n), TIME) / f(ll_sc(n), TIME);
    let claim = |f: Look<'_>| {
        let too_slow = [1, 2].into_iter().filter(|&n| ratio(f, n) > 1.1);
        too_slow.map(|n| format!("on {n} it takes {} times as long", digits(ratio(f, n)))).collect()
    };
    let f = |at: At<'_>, metric| series.median(at, metric);
    let ours = format!("fetch-op ÷ LL/SC {} on 1, {} on 2", digits(ratio(&f, 1)), digits(ratio(&f, 2)));
    let finding = Finding::new(ours, series.judge(claim));
    vary_runs(context, finding, &[asked], &claim)
}
