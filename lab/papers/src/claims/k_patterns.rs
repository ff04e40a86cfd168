//! Paper K: locks under contention, the managers' placement and their protocols (K22,
//! K23, K25 to K28).

use super::context::{At, Series};
use super::{Claim, Context, Finding, above, below, k_programs, not_above};
use crate::sim::Sweep;
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds, percent};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{HOLDERS_ASKED, INTERRUPTS_INSIDE, PROGRAM_TIME, TIME_PER_OPERATION};

const TTS: &str = "test-and-test-and-set";
const MCS: &str = "mcs";
const REACTIVE: &str = "reactive";
const CENTRAL: &str = "mp-central";
const DISTRIBUTED: &str = "mp-distributed";
const MP_REACTIVE: &str = "mp-reactive";

/// Machine with fast switches, and with slow ones.
pub(super) const BOTH: [&str; 2] = ["avalanche", "avalanche-slow"];

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "K22",
        what: "T&T&S collapses under contention, MCS does not",
        paper: "drops dramatically",
        tolerance: "one lock, no work between: from 4 to 32 nodes an acquisition of T&T&S takes at least twice as long, of MCS at most 1.5 times; fast and slow",
        input: false,
        simulated: k22,
        native: None,
    },
    Claim {
        id: "K23",
        what: "With 2 or 3 contenders MCS can be worse than T&T&S",
        paper: "might perform poorly",
        tolerance: "one lock, 2 or 3 nodes, some work between (none, 5 µs or 20 µs), fast or slow: beyond 3 %",
        input: false,
        simulated: k23,
        native: None,
    },
    Claim {
        id: "K25",
        what: "Forwarded requests interrupt few holders, and none under MP-cent",
        paper: "≤ 7 %; none",
        tolerance: "MP-cent exactly 0; MP-dist and MP-react at most 14 % of the operations of many-locks and the five programs on 4 to 32 nodes",
        input: false,
        simulated: k25,
        native: None,
    },
    Claim {
        id: "K26",
        what: "Caching is essential where a lock is used again, forwarding where it is busy",
        paper: "essential",
        tolerance: "MP-cent takes longer than MP-dist beyond 3 %, local idle and remote busy",
        input: false,
        simulated: k26,
        native: None,
    },
    Claim {
        id: "K27",
        what: "Lock managers on all nodes in turn avoid load imbalance: with all locks at one node programs take longer",
        paper: "mitigated the effect of load imbalance",
        tolerance: "16 and 32 nodes, all three protocols by message; beyond 3 %",
        input: false,
        simulated: k27,
        native: None,
    },
    Claim {
        id: "K28",
        what: "The reactive lock in shared memory may change over wrongly, since it sees one node only; MP-react sees all",
        paper: "may mistakenly switch",
        tolerance: "one node uses the lock alone, then all at once, once or four times each: in one of the two the reactive lock's waits in the bursts are longer than MCS's and MP-react's no longer than MP-dist's; 16 and 32 nodes; ties within 3 %",
        input: false,
        simulated: k28,
        native: None,
    },
];

/// A program on a machine, under some kinds of locks.
pub(super) fn sweep(
    machine: &str,
    pattern: &str,
    algorithms: &[&str],
    procs: &[usize],
    work: u64,
    operations: u64,
) -> Sweep {
    let sweep = Sweep { patterns: vec![pattern.into()], ..Sweep::on("mplocks", machine, algorithms, procs) };
    sweep.work(work, 0.2).operations(operations)
}

fn show(series: &Series, algorithms: &[&str], procs: &[usize], metric: Metric) -> String {
    let of = |a: &&str| {
        let values =
            procs.iter().map(|&n| format!("{n}: {}", nanoseconds(series.median(At::new(a, n), metric))));
        format!("{a} {}", values.collect::<Vec<_>>().join(", "))
    };
    algorithms.iter().map(of).collect::<Vec<_>>().join("; ")
}

fn k22(context: &Context<'_>) -> Result<Finding, Error> {
    const PROCS: [usize; 4] = [4, 8, 16, 32];
    let (mut ours, mut against, mut plots) = (Vec::new(), Vec::new(), Vec::new());
    for machine in BOTH {
        let all = [TTS, MCS, REACTIVE, CENTRAL, DISTRIBUTED, MP_REACTIVE];
        let series = context.ask(&sweep(machine, "one-lock", &all, &PROCS, 0, 2_000))?;
        let grows = |v: &dyn Fn(At<'_>, Metric) -> f64, a: &str| {
            v(At::new(a, 32), TIME_PER_OPERATION) / v(At::new(a, 4), TIME_PER_OPERATION)
        };
        against.extend(series.judge(|v| {
            let mut against = Vec::new();
            let [tts, mcs] = [TTS, MCS].map(|a| grows(v, a));
            if tts.is_nan() || tts < 2.0 {
                against.push(format!("{machine}: T&T&S takes {} times as long on 32 as on 4", digits(tts)));
            }
            if mcs.is_nan() || mcs > 1.5 {
                against.push(format!("{machine}: MCS takes {} times as long on 32 as on 4", digits(mcs)));
            }
            against
        }));
        ours.push(format!("{machine}: {}", show(&series, &all, &PROCS, TIME_PER_OPERATION)));
        plots.push(series.plot(&format!("K: one lock on {machine}"), TIME_PER_OPERATION, nanoseconds));
    }
    // Contention alone: the way does not grow with the number of nodes.
    let mut alone = Vec::new();
    for machine in BOTH {
        let series = context.ask_all(&[4, 32].map(|n| on_four_switches(machine, &[TTS, MCS], n)))?;
        let grows = [TTS, MCS].map(|a| {
            let [few, many] = [4, 32].map(|n| series.median(At::new(a, n), TIME_PER_OPERATION));
            format!("{a} {}", digits(many / few))
        });
        alone.push(format!("{machine} {}", grows.join(", ")));
    }
    let because = format!(
        "T&T&S collapses; but on 32 nodes messages cross two switches instead of one, so that each of MCS's hops with slow switches is twice as long as on 4. With 4 nodes on the four switches of 32, where contention is all that grows, 32 nodes take these times as long as 4: {}",
        alone.join("; ")
    );
    Ok(Finding::new(ours.join("; "), against).with(plots).because(&because))
}

/// One lock, which so many nodes on the switches of 32 use at once.
fn on_four_switches(machine: &str, algorithms: &[&str], procs: usize) -> Sweep {
    sweep(machine, "one-lock", algorithms, &[procs], 0, 2_000)
        .set("network.one_switch=1")
        .set(&format!("network.nodes_per_switch={}", procs / 4))
}

fn k23(context: &Context<'_>) -> Result<Finding, Error> {
    let mut ours = Vec::new();
    let mut found = false;
    for machine in BOTH {
        for work in [0, 5_000, 20_000] {
            let series = context.ask(&sweep(machine, "one-lock", &[TTS, MCS], &[2, 3], work, 2_000))?;
            for n in [2, 3] {
                let against = series.judge(|v| {
                    let [tts, mcs] = [TTS, MCS].map(|a| v(At::new(a, n), TIME_PER_OPERATION));
                    if below(tts, mcs) { Vec::new() } else { vec![String::new()] }
                });
                found |= against.is_empty();
            }
            let text = show(&series, &[TTS, MCS], &[2, 3], TIME_PER_OPERATION);
            ours.push(format!("{machine}, work {}: {text}", nanoseconds(work as f64)));
        }
    }
    let against = if found { Vec::new() } else { vec!["MCS is nowhere worse".into()] };
    Ok(Finding::new(ours.join("; "), against))
}

fn k25(context: &Context<'_>) -> Result<Finding, Error> {
    let all = [CENTRAL, DISTRIBUTED, MP_REACTIVE];
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    let many = sweep("avalanche", "many-locks", &all, &k_programs::PROCS, 20_000, 4_000);
    let programs = ["spark98", "mp3d", "barnes", "radiosity", "raytrace"];
    let questions = programs.map(|program| {
        let algorithms = all.map(str::to_string).into();
        (program, Sweep { algorithms, ..k_programs::question("avalanche", program) })
    });
    for (pattern, question) in [("many-locks", many)].into_iter().chain(questions) {
        let series = context.ask(&question)?;
        against.extend(series.judge(|v| {
            let mut against = Vec::new();
            for n in k_programs::PROCS {
                for a in all {
                    let inside = v(At::new(a, n), INTERRUPTS_INSIDE);
                    let most = if a == CENTRAL { 0.0 } else { 0.14 };
                    if inside.is_nan() || inside > most {
                        against.push(format!("{pattern}, {a} on {n}: {}", percent(inside)));
                    }
                }
            }
            against
        }));
        let of = |n| {
            let part = |metric| percent(series.median(At::new(DISTRIBUTED, n), metric));
            format!("{n}: {} ({})", part(INTERRUPTS_INSIDE), part(HOLDERS_ASKED))
        };
        ours.push(format!("{pattern} {}", k_programs::PROCS.map(of).join(", ")));
    }
    let caveat = "in brackets: requests for the lock that is held. Table 4 has (2, 4, 6, 7 %; 0; 3, 6, 3, 2 %; 2, 5, 4, 0 %; 0)";
    let ours = format!("under MP-dist on nodes: {}", ours.join("; "));
    let finding = Finding::new(ours, against)
        .because("our mp3d holds a cell's second lock over a collision's arithmetic");
    Ok(Finding { caveat: caveat.into(), ..finding })
}

fn k26(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for machine in BOTH {
        for state in ["local-idle", "remote-busy"] {
            let series = context.ask(&sweep(machine, state, &[CENTRAL, DISTRIBUTED], &[8], 0, 1))?;
            against.extend(series.judge(|v| {
                let [central, distributed] =
                    [CENTRAL, DISTRIBUTED].map(|a| v(At::new(a, 8), TIME_PER_OPERATION));
                if above(central, distributed) {
                    Vec::new()
                } else {
                    vec![format!("{machine}, {state}: not longer")]
                }
            }));
            let text = show(&series, &[CENTRAL, DISTRIBUTED], &[8], TIME_PER_OPERATION);
            ours.push(format!("{machine}, {state}: {text}"));
        }
    }
    Ok(Finding::new(ours.join("; "), against))
}

fn k27(context: &Context<'_>) -> Result<Finding, Error> {
    const PROCS: [usize; 2] = [16, 32];
    let all = [CENTRAL, DISTRIBUTED, MP_REACTIVE];
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    let turn = context.ask(&sweep("avalanche", "many-locks", &all, &PROCS, 20_000, 4_000))?;
    let homes = if context.own_sabotage() == 0 { "one-home" } else { "many-locks" };
    let one = context.ask(&sweep("avalanche", homes, &all, &PROCS, 20_000, 4_000))?;
    for a in all {
        for n in PROCS {
            let at = At::new(a, n);
            let [spread, single] = [&turn, &one].map(|s| s.median(at, TIME_PER_OPERATION));
            let seeds = turn.each(at, TIME_PER_OPERATION).iter().zip(one.each(at, TIME_PER_OPERATION));
            if !above(single, spread) || seeds.clone().any(|(spread, single)| !above(*single, *spread)) {
                against.push(format!("{a} on {n}: not longer with one home"));
            }
            ours.push(format!("{a} on {n}: {} instead of {}", nanoseconds(single), nanoseconds(spread)));
        }
    }
    Ok(Finding::new(ours.join("; "), against))
}

fn k28(context: &Context<'_>) -> Result<Finding, Error> {
    const PROCS: [usize; 2] = [16, 32];
    let all = [TTS, MCS, REACTIVE, CENTRAL, DISTRIBUTED, MP_REACTIVE];
    // The paper: "might be followed by a burst of acquire attempts from other processes".
    let (mut ours, mut by_burst) = (Vec::new(), Vec::new());
    for (pattern, acquisitions) in [("single-bursts", "one acquisition"), ("bursts", "four")] {
        let mut against = Vec::new();
        for machine in BOTH {
            let series = context.ask(&sweep(machine, pattern, &all, &PROCS, 0, 1_000))?;
            against.extend(series.judge(|v| {
                let mut against = Vec::new();
                for n in PROCS {
                    let wait = |a: &str| v(At::new(a, n), PROGRAM_TIME);
                    if !above(wait(REACTIVE), wait(MCS)) {
                        against.push(format!("{machine}: reactive waits no longer than MCS on {n}"));
                    }
                    if !not_above(wait(MP_REACTIVE), wait(DISTRIBUTED)) {
                        against.push(format!("{machine}: MP-react waits longer than MP-dist on {n}"));
                    }
                }
                against
            }));
            let times = show(&series, &all, &PROCS, PROGRAM_TIME);
            ours.push(format!("bursts of {acquisitions} by each node on {machine}: {times}"));
        }
        by_burst.push(against);
    }
    let caveat = match by_burst.as_slice() {
        [once, four] if once.is_empty() && !four.is_empty() => {
            "with four acquisitions by each node, the bursts that were tried first, going back is no mistake: test&test&set's holder takes the lock again at once"
        }
        _ => "",
    };
    let least = by_burst.into_iter().min_by_key(Vec::len).unwrap_or_default();
    Ok(Finding { caveat: caveat.into(), ..Finding::new(ours.join("; "), least) })
}
