//! Paper N §4.3: barriers (N22, N23).

use super::context::{At, rising};
use super::n_constants::vary_runs;
use super::n_queues::Look;
use super::{Claim, Context, Finding};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::record::metrics::{
    FAILED_CONDITIONALS, INTERVENTIONS, INTERVENTIONS_RECEIVED, INVALIDATIONS, INVALIDATIONS_RECEIVED,
    TIME_PER_OPERATION as TIME,
};

const PROCS: [usize; 6] = [2, 4, 8, 16, 32, 64];
const AT_MEMORY: &str = "centralized/fetch-op";
pub(super) const CACHED: &str = "centralized/ll-sc";
const TREE: &str = "mcs-tree";

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "N22",
        what: "The centralised barrier over fetch-ops is the best and the one over LL/SC the worst; the two-tree barrier scales but is radically worse than the best",
        paper: "fetch-op < tree < LL/SC",
        tolerance: "order at 2 to 64, 3 % is a tie; the tree takes at least twice as long at 64",
        // N7 allows a service time of three cycles of the hub or of four, and this claim hangs on
        // which: three was taken with that known.
        input: true,
        simulated: n22,
        native: None,
    },
    Claim {
        id: "N23",
        what: "The two-tree barrier has significant coherence traffic though it has no atomic operation",
        paper: "0 failures; traffic",
        tolerance: "0; more than 0",
        input: false,
        simulated: n23,
        native: None,
    },
];

/// The paper's Figure 6. An operation is one processor's passage.
fn figure_6() -> Sweep {
    Sweep::on("barriers", "origin2000", &[AT_MEMORY, TREE, CACHED], &PROCS)
}

/// An episode: all processors' passages.
fn episode(f: Look<'_>, algorithm: &str, procs: usize) -> f64 {
    f(At::new(algorithm, procs), TIME) * procs as f64
}

fn n22(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_6())?;
    let against = series.judge(|f| {
        let mut against: Vec<String> = PROCS
            .iter()
            .flat_map(|&n| {
                let values = [AT_MEMORY, TREE, CACHED].map(|a| (a, f(At::new(a, n), TIME)));
                rising(&format!("on {n}"), &values)
            })
            .collect();
        let ratio = f(At::new(TREE, 64), TIME) / f(At::new(AT_MEMORY, 64), TIME);
        if ratio.is_nan() || ratio < 2.0 {
            against.push(format!("on 64 the tree takes {} times as long", digits(ratio)));
        }
        against
    });
    let f = |at: At<'_>, metric| series.median(at, metric);
    let all = |a| PROCS.map(|n| nanoseconds(episode(&f, a, n))).join(", ");
    let ours = format!(
        "an episode on 2 to 64, work included: fetch-op {}; tree {}; LL/SC {}",
        all(AT_MEMORY),
        all(TREE),
        all(CACHED)
    );
    let plots = [
        series.plot(
            "Barriers with 5 µs of work: time for each passage (N figure 6, left)",
            TIME,
            nanoseconds,
        ),
        series.plot("Barriers: failing store-conditionals (N figure 6, right)", FAILED_CONDITIONALS, digits),
        series.plot("Barriers: invalidations received (N figure 6, right)", INVALIDATIONS_RECEIVED, digits),
        series.plot("Barriers: interventions received (N figure 6, right)", INTERVENTIONS_RECEIVED, digits),
    ];
    // It hangs on a parameter that the paper does not give (chosen for N7), so this is shown
    // whatever comes out.
    let mut sweep = Vec::new();
    for (what, change) in [
        ("fetch-ops that occupy a home for two cycles of the hub", "fetch_op.occupancy=20.5ns"),
        ("for four", "fetch_op.occupancy=41ns"),
        ("for 100 ns", "fetch_op.occupancy=100ns"),
        ("for 244 ns", "fetch_op.occupancy=244ns"),
        ("homes that serve in the order of arrival", "directory.service=fifo"),
        ("polls 2 µs apart", "fetch_op.poll=2us"),
    ] {
        let question = Sweep::on("barriers", "origin2000", &[AT_MEMORY, TREE], &[64]).set(change);
        let changed = context.ask_once(&question)?;
        let g = |at: At<'_>, metric| changed.median(at, metric);
        sweep.push(format!("with {what} {}", digits(episode(&g, TREE, 64) / episode(&g, AT_MEMORY, 64))));
    }
    let ratio = series.each(At::new(TREE, 64), TIME).iter().zip(series.each(At::new(AT_MEMORY, 64), TIME));
    let ratios: Vec<String> = ratio.map(|(tree, best)| digits(tree / best)).collect();
    let ours = format!(
        "{ours}. On 64 the tree takes {} times as long (by seed; the three cycles of the hub that a fetch-op occupies a home were chosen for N7); {}",
        ratios.join(", "),
        sweep.join(", ")
    );
    Ok(Finding::new(ours, against).with(plots).because(
        "waiters poll the sense at memory, and the arrivals have to queue up behind their polls at the same home, so it is the service time of fetch-ops (not in the paper) that decides on 64",
    ))
}

fn n23(context: &Context<'_>) -> Result<Finding, Error> {
    let series = context.ask(&figure_6())?;
    let there = At::new(TREE, 64);
    let claim = |f: Look<'_>| {
        let mut against = Vec::new();
        if f(there, FAILED_CONDITIONALS) != 0.0 {
            against.push(format!("{} store-conditionals fail", digits(f(there, FAILED_CONDITIONALS))));
        }
        for metric in [INVALIDATIONS, INTERVENTIONS] {
            let count = f(there, metric);
            if count.is_nan() || count <= 0.0 {
                against.push(format!("{} is {}", metric.name, digits(count)));
            }
        }
        against
    };
    let ours = format!(
        "0 failures; {} invalidations and {} interventions for each passage on 64",
        series.show(there, INVALIDATIONS),
        series.show(there, INTERVENTIONS)
    );
    let asked = Sweep::on("barriers", "origin2000", &[TREE], &[64]);
    vary_runs(context, Finding::new(ours, series.judge(claim)), &[asked], &claim)
}
