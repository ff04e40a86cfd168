//! Paper K: two small kernels after spark98 and mp3d (K5, K15 to K19).
//!
//! They are no ports of the programs; computation between acquisitions follows from Table 4, an
//! input.

use super::context::{At, Series, within, within_factor};
use super::k_patterns::{BOTH, sweep};
use super::{Claim, Context, Finding, below};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, percent};
use towpath_report::record::metrics::{COMPLETION_CYCLES, LOCAL_IDLE, REMOTE_BUSY};

const PROCS: [usize; 4] = [4, 8, 16, 32];
const SHARED: [&str; 2] = ["test-and-test-and-set", "mcs"];
const MESSAGES: [&str; 3] = ["mp-central", "mp-distributed", "mp-reactive"];
const MCS: &str = "mcs";
const CENTRAL: &str = "mp-central";
const DISTRIBUTED: &str = "mp-distributed";

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "K5",
        what: "Table 4: how often a lock was last held by the same node, and how often it was held, in spark98 and mp3d",
        paper: "spark98 77, 75, 69, 63 %, busy 0; mp3d 26, 13, 7, 4 %, busy ≤ 2 %",
        tolerance: "± 25 % each; busy at most 2 %",
        input: false,
        simulated: k5,
        native: None,
    },
    Claim {
        id: "K15",
        what: "mp3d on 4 and 8 nodes: locks in shared memory are up to 180 % better",
        paper: "180 %",
        tolerance: "the largest gain of the best lock in shared memory over the best by message, fast switches: a factor 2",
        input: false,
        simulated: k15,
        native: None,
    },
    Claim {
        id: "K16",
        what: "mp3d: locks by message are better than MCS on 16 nodes with slow switches, and up to 186 % better on 32",
        paper: "better; 186 %",
        tolerance: "beyond 3 % on 16, slow; the largest gain on 32: a factor 2",
        input: false,
        simulated: k16,
        native: None,
    },
    Claim {
        id: "K17",
        what: "mp3d: MP-dist beats MP-cent on 4 nodes, MP-cent beats MP-dist on 32",
        paper: "order",
        tolerance: "fast switches; beyond 3 %",
        input: false,
        simulated: k17,
        native: None,
    },
    Claim {
        id: "K18",
        what: "spark98 on 4 and 8 nodes: locks in shared memory are 70 % better; on larger or slower machines locks by message are up to 163 % better",
        paper: "70 %, 163 %",
        tolerance: "a factor 2 each",
        input: false,
        simulated: k18,
        native: None,
    },
    Claim {
        id: "K19",
        what: "spark98: MP-dist beats MP-cent, and the gap closes from 4 to 32 nodes",
        paper: "order",
        tolerance: "fast switches; beyond 3 %",
        input: false,
        simulated: k19,
        native: None,
    },
];

fn question(machine: &str, pattern: &str) -> Sweep {
    sweep(machine, pattern, &[SHARED.as_slice(), &MESSAGES].concat(), &PROCS, 0, 8_000)
}

fn kernel(context: &Context<'_>, machine: &str, pattern: &str) -> Result<Series, Error> {
    context.ask(&question(machine, pattern))
}

fn time(series: &Series, algorithm: &str, procs: usize) -> f64 {
    series.median(At::new(algorithm, procs), COMPLETION_CYCLES)
}

fn best(series: &Series, algorithms: &[&str], procs: usize) -> f64 {
    algorithms.iter().map(|a| time(series, a, procs)).fold(f64::INFINITY, f64::min)
}

/// Shows each time in relation to MCS's.
fn show(series: &Series) -> String {
    let of = |a: &&str| {
        let parts = PROCS.map(|n| format!("{n}: {}", digits(time(series, a, n) / time(series, MCS, n))));
        format!("{a} {}", parts.join(", "))
    };
    [SHARED[0]].iter().chain(&MESSAGES).map(of).collect::<Vec<_>>().join("; ")
}

fn show_both(context: &Context<'_>, pattern: &str) -> Result<String, Error> {
    let mut parts = Vec::new();
    for machine in BOTH {
        parts.push(format!("times ÷ MCS's on {machine}: {}", show(&kernel(context, machine, pattern)?)));
    }
    Ok(parts.join("; "))
}

fn k5(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for (pattern, values) in [("spark98", [0.77, 0.75, 0.69, 0.63]), ("mp3d", [0.26, 0.13, 0.07, 0.04])] {
        let series = kernel(context, "avalanche", pattern)?;
        against.extend(series.judge(|v| {
            let mut against = Vec::new();
            for (n, value) in PROCS.into_iter().zip(values) {
                let at = At::new(DISTRIBUTED, n);
                against.extend(within(&format!("{pattern} on {n}"), v(at, LOCAL_IDLE), value, 0.25));
                if v(at, REMOTE_BUSY).is_nan() || v(at, REMOTE_BUSY) > 0.02 {
                    against.push(format!("{pattern} on {n}: {} busy", percent(v(at, REMOTE_BUSY))));
                }
            }
            against
        }));
        let text = PROCS.map(|n| {
            let of = |metric| percent(series.median(At::new(DISTRIBUTED, n), metric));
            format!("{n}: {}, busy {}", of(LOCAL_IDLE), of(REMOTE_BUSY))
        });
        ours.push(format!("{pattern} {}", text.join("; ")));
    }
    let caveat =
        "the matrix is a grid of sf10's size, chosen after a grid of 256 points had given 40 % on 32 nodes";
    Ok(Finding { caveat: caveat.into(), ..Finding::new(ours.join("; "), against) })
}

/// Gain of the faster one of two times, as a part of its own.
fn gain(slow: f64, fast: f64) -> f64 {
    slow / fast - 1.0
}

/// The largest gain of locks in shared memory over those by message, on small machines.
fn small(series: &Series) -> f64 {
    [4, 8]
        .map(|n| gain(best(series, &MESSAGES, n), best(series, &SHARED, n)))
        .into_iter()
        .fold(f64::MIN, f64::max)
}

fn k15(context: &Context<'_>) -> Result<Finding, Error> {
    let found = small(&kernel(context, "avalanche", "mp3d")?);
    let against = within_factor("the gain", found, 1.8, 2.0);
    Ok(Finding::new(format!("{}; {}", percent(found), show_both(context, "mp3d")?), against))
}

fn k16(context: &Context<'_>) -> Result<Finding, Error> {
    let [fast, slow] = [kernel(context, BOTH[0], "mp3d")?, kernel(context, BOTH[1], "mp3d")?];
    let mut against = Vec::new();
    let on_16 = best(&slow, &MESSAGES, 16) / time(&slow, MCS, 16);
    if !below(on_16, 1.0) {
        against.push(format!(
            "on 16 with slow switches the best by message takes {} times as long as MCS",
            digits(on_16)
        ));
    }
    let most = [&fast, &slow].map(|s| gain(time(s, MCS, 32), best(s, &MESSAGES, 32)));
    let most = most[0].max(most[1]);
    against.extend(within_factor("the gain on 32", most, 1.86, 2.0));
    let ours = format!("on 16, slow: {} times MCS's; on 32 at most {}", digits(on_16), percent(most));
    // The cause that the paper gives, exaggerated.
    let slower = context.ask(
        &question(BOTH[1], "mp3d").set("directory.occupancy_lookup=2us").set("directory.occupancy_data=4us"),
    )?;
    let with_slower = gain(time(&slower, MCS, 32), best(&slower, &MESSAGES, 32));
    let because = format!(
        "mp3d's locks are mostly idle, so MCS's four hops compete with two and an interrupt of 828 cycles. The paper's cause is the occupancy of controllers, which it does not give; with controllers eight times as slow as ours (240 and 480 cycles) the gain on 32 with slow switches is {}",
        percent(with_slower)
    );
    Ok(Finding::new(ours, against).because(&because))
}

fn k17(context: &Context<'_>) -> Result<Finding, Error> {
    let series = kernel(context, "avalanche", "mp3d")?;
    let against = series.judge(|v| {
        let ratio =
            |n| v(At::new(DISTRIBUTED, n), COMPLETION_CYCLES) / v(At::new(CENTRAL, n), COMPLETION_CYCLES);
        let mut against = Vec::new();
        if !below(ratio(4), 1.0) {
            against.push(format!("on 4 MP-dist takes {} times as long as MP-cent", digits(ratio(4))));
        }
        if !super::above(ratio(32), 1.0) {
            against.push(format!("on 32 MP-dist takes {} times as long as MP-cent", digits(ratio(32))));
        }
        against
    });
    let text =
        PROCS.map(|n| format!("{n}: {}", digits(time(&series, DISTRIBUTED, n) / time(&series, CENTRAL, n))));
    Ok(Finding::new(format!("MP-dist ÷ MP-cent {}", text.join(", ")), against))
}

fn k18(context: &Context<'_>) -> Result<Finding, Error> {
    let [fast, slow] = [kernel(context, BOTH[0], "spark98")?, kernel(context, BOTH[1], "spark98")?];
    let few = small(&fast);
    let mut against = within_factor("the gain of locks in shared memory", few, 0.7, 2.0);
    let many = PROCS.map(|n| gain(best(&slow, &SHARED, n), best(&slow, &MESSAGES, n)));
    let many = many.into_iter().chain([gain(best(&fast, &SHARED, 32), best(&fast, &MESSAGES, 32))]);
    let most = many.fold(f64::MIN, f64::max);
    against.extend(within_factor("the gain of locks by message", most, 1.63, 2.0));
    let ours = format!("{}, {}; {}", percent(few), percent(most), show_both(context, "spark98")?);
    Ok(Finding::new(ours, against).because("most locks are free and at hand, where a lock in shared memory costs some cycles and one by message two system calls; the occupancy of controllers, to which the paper ascribes the change, is not published"))
}

fn k19(context: &Context<'_>) -> Result<Finding, Error> {
    let series = kernel(context, "avalanche", "spark98")?;
    let against = series.judge(|v| {
        let ratio =
            |n| v(At::new(CENTRAL, n), COMPLETION_CYCLES) / v(At::new(DISTRIBUTED, n), COMPLETION_CYCLES);
        let mut against = Vec::new();
        for n in [4, 32] {
            if !super::above(ratio(n), 1.0) {
                against.push(format!("on {n} MP-cent takes {} times as long as MP-dist", digits(ratio(n))));
            }
        }
        if !below(ratio(32), ratio(4)) {
            against.push("the gap does not close".into());
        }
        against
    });
    let text =
        PROCS.map(|n| format!("{n}: {}", digits(time(&series, CENTRAL, n) / time(&series, DISTRIBUTED, n))));
    Ok(Finding::new(format!("MP-cent ÷ MP-dist {}", text.join(", ")), against))
}
