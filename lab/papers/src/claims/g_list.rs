//! Paper G §7.2: the ordered list under four algorithms (Figures 5 to 7).

use std::rc::Rc;

use towpath_machine::{AdvisoryLoad, Arena, Place, Processor};
use towpath_sim::{Sim, Simulation, machines};

use super::context::{At, Series, within};
use super::{Claim, Context, Finding, TIE, below, not_above};
use crate::sim::Run;
use crate::sim::Sweep;
use crate::sim::list::{ListPlan, Locked, run_as};
use towpath_host::Error;
use towpath_report::format::{digits, percent};
use towpath_report::record::Metric;
use towpath_report::record::metrics::{ACTIVE_CHANGES, BUS_HELD, COMPLETION_CYCLES, HIT_RATE, NODES_PASSED};

const CLOAD: &str = "dcas-cload";
const COUNT: &str = "dcas-active-count";
const CAS: &str = "cas-valois";
const SPIN: &str = "spin-lock";
const ALL: [&str; 4] = [CLOAD, COUNT, CAS, SPIN];
/// Controls that let one process at a time change the list.
const SERIAL: [&str; 3] = [CLOAD, COUNT, SPIN];

/// Processors that the figures are drawn for.
const PROCS: [usize; 11] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16];
const PAIRS: u64 = 10_000;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "G4",
        what: "A pair of insertion and deletion takes about 400 cycles without interference (DCAS/Cload, one processor, work 20)",
        paper: "400",
        tolerance: "± 25 %",
        input: true,
        simulated: g4,
        native: None,
    },
    Claim {
        id: "G5",
        what: "One processor: 10,000 pairs take 10,000 times what a pair and the work take, at work 20 and at work 2000",
        paper: "4.2 M, 24 M cycles (by arithmetic)",
        tolerance: "± 25 %",
        // Its first half is G4's run, and the second one is that and the work.
        input: true,
        simulated: g5,
        native: None,
    },
    Claim {
        id: "G6",
        what: "On one processor more than 99 % of the accesses hit, under all four algorithms",
        paper: "> 99 %",
        tolerance: "≥ 99 %",
        input: false,
        simulated: g6,
        native: None,
    },
    Claim {
        id: "G7",
        what: "Figure 5: on more than one processor everything takes significantly longer, since the nodes migrate",
        paper: "significantly larger",
        tolerance: "2 processors ÷ 1 ≥ 1.3, all four",
        input: false,
        simulated: g7,
        native: None,
    },
    Claim {
        id: "G8",
        what: "Figure 5: DCAS/Cload, DCAS/A&F and the spin lock degrade comparably; DCAS/A&F suffers from traffic on its count",
        paper: "order",
        tolerance: "slowdowns within a factor 2 of each other; DCAS/A&F above DCAS/Cload from 2 processors on, ties within 3 %",
        // That waiters of DCAS/A&F pause was chosen by it: spinning on the count they slow down by
        // 2.8 on 16 processors.
        input: true,
        simulated: g8,
        native: None,
    },
    Claim {
        id: "G9",
        what: "Figure 5: DCAS is substantially better than CAS alone on up to 16 processors, whose walks get longer with more processes",
        paper: "substantially better",
        tolerance: "DCAS/Cload ≤ 0.7 × CAS from 2 processors on; CAS passes more nodes on 16 than on 2",
        input: false,
        simulated: g9,
        native: None,
    },
    Claim {
        id: "G10",
        what: "Figure 6: with work 2000 the non-concurrent algorithms speed up to 4 or 5 processors; then the list is the limit",
        paper: "4 or 5",
        tolerance: "the fewest processors within 5 % of the best time: 4 to 6",
        input: false,
        simulated: g10,
        native: None,
    },
    Claim {
        id: "G11",
        what: "Figure 6: both DCAS variants are comparable to the spin lock, and significantly better than CAS",
        paper: "order",
        tolerance: "within 20 % of the spin lock, and below CAS, on every number of processors",
        input: false,
        simulated: g11,
        native: None,
    },
    Claim {
        id: "G12",
        what: "Figure 7: with 3 processes on each processor spin locks are not competitive; DCAS is only slightly affected by preemption",
        paper: "order",
        tolerance: "4, 8, 16 processors: spin ≥ 2 × DCAS; each DCAS ≤ 1.3 × its time with 1 process on each",
        input: false,
        simulated: g12,
        native: None,
    },
    Claim {
        id: "G13",
        what: "Figure 7: the mean of CAS is mostly unaffected, its variance rises",
        paper: "(not shown)",
        tolerance: "8 processors, 20 seeds or more: mean ≤ 1.3 ×, standard deviation > 1.03 × that with 1 process on each",
        input: false,
        simulated: g13,
        native: None,
    },
    Claim {
        id: "G14",
        what: "Figure 7: with many processes DCAS/A&F beats DCAS/Cload, whose waiters are delayed by preempted holders",
        paper: "order",
        tolerance: "16 processors; ties within 3 %",
        input: false,
        simulated: g14,
        native: None,
    },
    Claim {
        id: "G15",
        what: "An advisory lock does not stop a waiter on its holder's own processor",
        paper: "does not prevent progress",
        tolerance: "exact",
        input: false,
        simulated: g15,
        native: None,
    },
];

fn question(work: u64, per_processor: usize, procs: &[usize], algorithms: &[&'static str]) -> Sweep {
    let question = Sweep::on("list", "paradigm", algorithms, procs);
    let ns = work * question.run.machine.cycle / 1000;
    Sweep { per_processor: vec![per_processor], ..question.work(ns, 0.2).operations(PAIRS) }
}

fn figure_5(context: &Context<'_>) -> Result<Series, Error> {
    context.ask(&question(20, 1, &PROCS, &ALL))
}

fn figure_6(context: &Context<'_>) -> Result<Series, Error> {
    context.ask(&question(2000, 1, &PROCS, &ALL))
}

/// Numbers of processors with many processes on each.
const FEW: [usize; 4] = [1, 4, 8, 16];

fn figure_7(context: &Context<'_>) -> Result<Series, Error> {
    context.ask(&question(2000, 3, &FEW, &ALL))
}

fn show(series: &Series, metric: Metric, procs: &[usize], algorithms: &[&str]) -> String {
    let of = |algorithm: &&str| {
        let values = procs.iter().map(|&n| {
            let value = series.median(At::new(algorithm, n), metric);
            let text = if metric == COMPLETION_CYCLES { millions(value) } else { digits(value) };
            format!("{n}: {text}")
        });
        format!("{algorithm} {}", values.collect::<Vec<_>>().join(", "))
    };
    algorithms.iter().map(of).collect::<Vec<_>>().join("; ")
}

fn millions(cycles: f64) -> String {
    format!("{} M", digits(cycles / 1e6))
}

fn plot(series: &Series, title: &str) -> String {
    series.plot(&format!("{title}: cycles until the last process is done"), COMPLETION_CYCLES, millions)
}

fn pair(series: &Series, work: f64) -> f64 {
    series.median(At::new(CLOAD, 1), COMPLETION_CYCLES) / PAIRS as f64 - work
}

fn g4(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_5(context)?;
    let against = series.judge(|v| {
        within("a pair", v(At::new(CLOAD, 1), COMPLETION_CYCLES) / PAIRS as f64 - 20.0, 400.0, 0.25)
    });
    let others = ALL[1..].iter().map(|a| {
        let cycles = series.median(At::new(a, 1), COMPLETION_CYCLES) / PAIRS as f64 - 20.0;
        format!("{a} {}", digits(cycles))
    });
    let others = others.collect::<Vec<_>>().join(", ");
    Ok(Finding::new(format!("{} cycles ({others})", digits(pair(&series, 20.0))), against))
}

fn g5(context: &Context<'_>) -> Result<Finding, Error> {
    let (short, long) = (figure_5(context)?, figure_6(context)?);
    let one = At::new(CLOAD, 1);
    let mut against = short.judge(|v| within("at work 20", v(one, COMPLETION_CYCLES), 4.2e6, 0.25));
    against.extend(long.judge(|v| within("at work 2000", v(one, COMPLETION_CYCLES), 24e6, 0.25)));
    let [a, b] = [&short, &long].map(|s| millions(s.median(one, COMPLETION_CYCLES)));
    Ok(Finding::new(format!("{a}, {b}"), against))
}

fn g6(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_5(context)?;
    let against = series.judge(|v| {
        let rates = ALL.iter().map(|a| (a, v(At::new(a, 1), HIT_RATE)));
        rates.filter(|r| r.1.is_nan() || r.1 < 0.99).map(|(a, r)| format!("{a}: {}", percent(r))).collect()
    });
    let ours = ALL.map(|a| format!("{a} {:.2} %", 100.0 * series.median(At::new(a, 1), HIT_RATE)));
    Ok(Finding::new(ours.join(", "), against))
}

fn g7(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_5(context)?;
    let against = series.judge(|v| {
        let factor = |a: &str| v(At::new(a, 2), COMPLETION_CYCLES) / v(At::new(a, 1), COMPLETION_CYCLES);
        let low = ALL.iter().map(|a| (a, factor(a))).filter(|f| f.1.is_nan() || f.1 < 1.3);
        low.map(|(a, f)| format!("{a} takes {} times as long on 2 as on 1", digits(f))).collect()
    });
    let plot = plot(&series, "G figure 5, work 20, 1 process on each processor");
    let factors = |changes: &[&str]| -> Result<String, Error> {
        let asked = changes.iter().fold(question(20, 1, &[1, 2], &ALL), |asked, change| asked.set(change));
        let changed = context.ask_once(&asked)?;
        let factor = |a: &str| {
            let [one, two] = [1, 2].map(|n| changed.median(At::new(a, n), COMPLETION_CYCLES));
            format!("{a} {}", digits(two / one))
        };
        Ok(ALL.map(factor).join(", "))
    };
    let because = format!(
        "not explained: a pair has 400 cycles and a line comes from memory in 10 (both are the paper's), so that the few lines of a list of two migrate for a small part of a pair's time. Two processors take these times what one takes without the calibrated instructions: {}; with memory four times as slow: {}",
        factors(&["processor.instructions=0"])?,
        factors(&["bus.memory=1600ns", "bus.write=1600ns", "bus.write_back=1600ns"])?,
    );
    let ours = show(&series, COMPLETION_CYCLES, &[1, 2], &ALL);
    Ok(Finding::new(ours, against).because(&because).with([plot]))
}

fn g8(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_5(context)?;
    let against = series.judge(|v| {
        let mut against = Vec::new();
        for n in PROCS.into_iter().skip(1) {
            let time = |a: &str| v(At::new(a, n), COMPLETION_CYCLES);
            let slower = SERIAL.map(|a| time(a) / v(At::new(a, 1), COMPLETION_CYCLES));
            let least = slower.iter().copied().fold(f64::INFINITY, f64::min);
            let most = slower.iter().copied().fold(0.0, f64::max);
            if least.is_nan() || most.is_nan() || most > 2.0 * least {
                let all = SERIAL.iter().zip(slower).map(|(a, s)| format!("{a} × {}", digits(s)));
                against.push(format!("on {n} processors: {}", all.collect::<Vec<_>>().join(", ")));
            }
            if time(COUNT).is_nan() || below(time(COUNT), time(CLOAD)) {
                let (count, cload) = (millions(time(COUNT)), millions(time(CLOAD)));
                against.push(format!("on {n} processors {COUNT} takes {count}, {CLOAD} {cload}"));
            }
        }
        against
    });
    let bus = show(&series, BUS_HELD, &[2, 16], &SERIAL);
    let ours = format!(
        "{} (part of the time in which the bus is held: {bus})",
        show(&series, COMPLETION_CYCLES, &[2, 8, 16], &SERIAL)
    );
    Ok(Finding::new(ours, against))
}

fn g9(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_5(context)?;
    let against = series.judge(|v| {
        let mut against = Vec::new();
        for n in PROCS.into_iter().skip(1) {
            let ratio = v(At::new(CLOAD, n), COMPLETION_CYCLES) / v(At::new(CAS, n), COMPLETION_CYCLES);
            if ratio.is_nan() || ratio > 0.7 {
                against.push(format!("on {n} processors DCAS ÷ CAS is {}", digits(ratio)));
            }
        }
        let nodes = [2, 16].map(|n| v(At::new(CAS, n), NODES_PASSED));
        if nodes[1] <= nodes[0] {
            against.push(format!("{} nodes on 2 processors, {} on 16", digits(nodes[0]), digits(nodes[1])));
        }
        against
    });
    let nodes = show(&series, NODES_PASSED, &[2, 16], &[CLOAD, CAS]);
    let times = show(&series, COMPLETION_CYCLES, &[2, 4, 8, 16], &[CLOAD, CAS]);
    Ok(Finding::new(format!("{times}; nodes that an operation passes: {nodes}"), against))
}

/// The fewest processors whose time is within 5 % of the best.
fn knee(time: impl Fn(usize) -> f64) -> usize {
    let best = PROCS.iter().map(|&n| time(n)).fold(f64::INFINITY, f64::min);
    PROCS.into_iter().find(|&n| time(n) <= 1.05 * best).unwrap_or(0)
}

fn g10(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_6(context)?;
    let against = series.judge(|v| {
        let knees = SERIAL.map(|a| (a, knee(|n| v(At::new(a, n), COMPLETION_CYCLES))));
        let off = knees.iter().filter(|(_, n)| !(4..=6).contains(n));
        off.map(|(a, n)| format!("{a} speeds up to {n} processors")).collect()
    });
    let knees = SERIAL.map(|a| {
        let n = knee(|n| series.median(At::new(a, n), COMPLETION_CYCLES));
        let after = series.median(At::new(a, 16), COMPLETION_CYCLES) / PAIRS as f64;
        format!("{a} up to {n} processors, {} cycles a pair on 16", digits(after))
    });
    let plot = plot(&series, "G figure 6, work 2000, 1 process on each processor");
    Ok(Finding::new(knees.join("; "), against).with([plot]))
}

fn g11(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_6(context)?;
    let against = series.judge(|v| {
        let mut against = Vec::new();
        for n in PROCS {
            let time = |a: &str| v(At::new(a, n), COMPLETION_CYCLES);
            for a in [CLOAD, COUNT] {
                let to_spin = time(a) / time(SPIN);
                if to_spin.is_nan() || (to_spin - 1.0).abs() > 0.2 {
                    against.push(format!(
                        "on {n} processors {a} takes {} times as long as the spin lock",
                        digits(to_spin)
                    ));
                }
                let to_cas = time(a) / time(CAS);
                if to_cas.is_nan() || to_cas > 1.0 - TIE {
                    against
                        .push(format!("on {n} processors {a} takes {} times as long as CAS", digits(to_cas)));
                }
            }
        }
        against
    });
    // How much of the difference is the lock's back-off, whose bound the paper does not give.
    let mut shorter = Vec::new();
    for bound in [4096, 1024, 256] {
        let run = run_of(2000, 8);
        let cycle = run.machine.cycle / 1000;
        let plan = |plan: ListPlan| ListPlan { longest_pause: bound * cycle, ..plan };
        let measured = run_as::<Locked<Sim>>(&run, plan)?;
        let cycles = measured.values.iter().find(|v| v.0 == COMPLETION_CYCLES).map_or(f64::NAN, |v| v.1);
        shorter.push(format!("{bound}: {}", millions(cycles)));
    }
    let because = format!(
        "not explained: DCAS/Cload is too good. A lock lies free while its waiters pause (for up to 4096 cycles; estimated), but that is the smaller part; on 8 processors with other bounds {}",
        shorter.join(", ")
    );
    Ok(Finding::new(show(&series, COMPLETION_CYCLES, &[1, 4, 8, 16], &ALL), against).because(&because))
}

/// A run with one process on each processor.
fn run_of(work: u64, procs: usize) -> Run {
    let question = question(work, 1, &[procs], &[SPIN]);
    Run { procs, ..question.run }
}

fn g12(context: &Context<'_>) -> Result<Finding, Error> {
    let (one, three) = (figure_6(context)?, figure_7(context)?);
    let many = &FEW[1..];
    let mut against = three.judge(|v| {
        let mut against = Vec::new();
        for &n in many {
            for a in [CLOAD, COUNT] {
                let spin = v(At::new(SPIN, n), COMPLETION_CYCLES) / v(At::new(a, n), COMPLETION_CYCLES);
                if spin.is_nan() || spin < 2.0 {
                    against.push(format!(
                        "on {n} processors the spin lock takes only {} times as long as {a}",
                        digits(spin)
                    ));
                }
            }
        }
        against
    });
    for &n in many {
        for a in [CLOAD, COUNT] {
            let [before, after] = [&one, &three].map(|s| s.median(At::new(a, n), COMPLETION_CYCLES));
            if after.is_nan() || after > 1.3 * before {
                let factor = digits(after / before);
                against.push(format!(
                    "on {n} processors {a} takes {factor} times as long with 3 processes on each"
                ));
            }
        }
    }
    let lengths = show(&three, NODES_PASSED, many, &[CLOAD]);
    let before = show(&one, NODES_PASSED, many, &[CLOAD]);
    let plot = plot(&three, "G figure 7, work 2000, 3 processes on each processor");
    let ours = format!(
        "{}; nodes that an operation passes: {lengths}; with 1 process on each: {before}",
        show(&three, COMPLETION_CYCLES, many, &ALL)
    );
    let because = "the elements of three times as many processes are in the list, preempted ones' too, so each operation passes more nodes: see ours. How long the paper's lists are, or whether they are ordered, is not given";
    Ok(Finding::new(ours, against).because(because).with([plot]))
}

/// Mean and standard deviation.
fn spread(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n - 1.0)).sqrt())
}

fn g13(context: &Context<'_>) -> Result<Finding, Error> {
    // A variance needs more runs than an order.
    let many = context.with_seeds(context.seeds_or(20));
    let of = |per_processor| -> Result<(f64, f64), Error> {
        let series = many.ask(&question(2000, per_processor, &[8], &[CAS]))?;
        Ok(spread(series.each(At::new(CAS, 8), COMPLETION_CYCLES)))
    };
    let (one, three) = (of(1)?, of(if context.own_sabotage() == 0 { 3 } else { 1 })?);
    let mut against = Vec::new();
    if three.0.is_nan() || three.0 > 1.3 * one.0 {
        against.push(format!("the mean is {} times as large", digits(three.0 / one.0)));
    }
    if three.1.is_nan() || not_above(three.1, one.1) {
        against.push("the standard deviation does not rise".into());
    }
    let text = |(mean, deviation): (f64, f64)| format!("{} ± {}", millions(mean), millions(deviation));
    Ok(Finding::new(
        format!("{} with 1 process on each processor, {} with 3", text(one), text(three)),
        against,
    ))
}

fn g14(context: &Context<'_>) -> Result<Finding, Error> {
    let series = figure_7(context)?;
    let against = series.judge(|v| {
        let ratio = v(At::new(COUNT, 16), COMPLETION_CYCLES) / v(At::new(CLOAD, 16), COMPLETION_CYCLES);
        if ratio <= 1.0 + TIE {
            Vec::new()
        } else {
            vec![format!("{COUNT} takes {} times as long", digits(ratio))]
        }
    });
    let changes = series.median(At::new(COUNT, 16), ACTIVE_CHANGES);
    let ours = format!(
        "{} ({} changes of the count by the system for each pair)",
        show(&series, COMPLETION_CYCLES, &[16], &[CLOAD, COUNT]),
        digits(changes)
    );
    let mut sweep = Vec::new();
    for quantum in ["100us", "1600us"] {
        let asked = question(2000, 3, &[16], &[CLOAD, COUNT]).set(&format!("os.quantum={quantum}"));
        let other = context.ask_once(&asked)?;
        sweep.push(format!("{quantum}: {}", show(&other, COMPLETION_CYCLES, &[16], &[CLOAD, COUNT])));
    }
    let because = format!(
        "not explained: the count's line costs every operation two transactions more, whatever a slice is (400 µs are 10,000 cycles; estimated). With slices of {}",
        sweep.join("; ")
    );
    Ok(Finding::new(ours, against).because(&because))
}

fn g15(context: &Context<'_>) -> Result<Finding, Error> {
    let machine = machines::by_name("paradigm").expect("a machine that comes with Towpath");
    let long = 4 * machine.quantum / 1000;
    let (mut own, mut other) = (0, 0);
    // The processors of the first case: the holder's own, or another one beside it.
    let first = if context.own_sabotage() == 0 { 1 } else { 2 };
    for seed in 1..=u64::from(context.seeds()) {
        // Two processes that take the lock and are preempted with it: on one processor, and on two.
        for (processors, refused) in [(first, &mut own), (2, &mut other)] {
            let mut simulation = Simulation::new(&machine, processors, seed);
            let word = Rc::new(simulation.arena().word(Place::NewLine, 0));
            for id in 0..2 {
                let word = Rc::clone(&word);
                simulation.spawn(id % processors, id, move |cpu| {
                    cpu.advisory_load(&word);
                    cpu.work(long);
                });
            }
            let outcome = simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
            *refused += outcome.counters.advisory_refusals;
        }
    }
    let mut against = Vec::new();
    if own != 0 {
        against.push(format!("{own} of {} waiters were refused on the holder's processor", context.seeds()));
    }
    if other != u64::from(context.seeds()) {
        against.push(format!("{other} of {} waiters were refused on another processor", context.seeds()));
    }
    let ours =
        format!("refused on the holder's processor: {own}, on another one: {other} of {}", context.seeds());
    Ok(Finding::new(ours, against))
}
