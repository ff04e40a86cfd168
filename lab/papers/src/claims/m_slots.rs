//! Paper M §5 and §9: the packet slots, their needs of the machine, and their refinements
//! (M12 to M16, M18, M19).

use std::collections::BTreeMap;

use towpath_sim::{Parameters, machines};

use super::context::rising;
use super::{Claim, Context, Finding, above, not_above};
use crate::ladder::Indices;
use crate::sim::ladder::faults::{self, ExchangeOutcome, Fault, SlotsForm, exchange};
use crate::sim::ladder::refined::{BURST, Empty, Polled, Remote, bursts, distributed, latency};
use towpath_host::Error;
use towpath_report::format::{digits, nanoseconds};
use towpath_report::stats::percentile;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "M12",
        what: "Slots for each pair need no lock; a receiver has to poll one for each other process, so latency grows with their number",
        paper: "linear",
        tolerance: "rises from 2 to 32 processes, and in each doubling from 4 on by what the whole rise says, within a factor 2",
        input: false,
        simulated: m12,
        native: None,
    },
    Claim {
        id: "M13",
        what: "Without the macros that go past the cache, a process can look at a stale bit for ever, or read stale data",
        paper: "hangs",
        tolerance: "exact: the protocol is right in every run, and with any one macro made ordinary C in none",
        input: false,
        simulated: m13,
        native: None,
    },
    Claim {
        id: "M14",
        what: "Without synchronisation the bit can be seen before the data; with it, never",
        paper: "seen; not seen",
        tolerance: "exact: stale data in some runs without it at either end, in none with it",
        input: false,
        simulated: m14,
        native: None,
    },
    Claim {
        id: "M15",
        what: "Several slots for each pair, used cyclically: a sender backs off only if all of them are full",
        paper: "no back-off",
        tolerance: "order: the more slots, the fewer packets wait; with one for each packet of a burst, none",
        input: false,
        simulated: m15,
        native: None,
    },
    Claim {
        id: "M16",
        what: "Slots for the partners that talk most and one locked queue for all others keep polling bounded",
        paper: "bounded",
        tolerance: "order: above 4 processes latency doesn't grow (3 %), while with slots for all it does",
        input: false,
        simulated: m16,
        native: None,
    },
    Claim {
        id: "M18",
        what: "In distributed memory, with the slot at the receiver and its \"empty\" at the sender, both poll their own memory",
        paper: "0 remote reads",
        tolerance: "exact",
        input: false,
        simulated: m18,
        native: None,
    },
    Claim {
        id: "M19",
        what: "Figures 2 and 3 index the slots in different orders, clearly a slip; `pkt->ready = 0` is set in the sender's own copy",
        paper: "slots[dest][myid], slots[i][myid]",
        tolerance: "exact: as printed it hangs, with one order it is right; without the assignment it is wrong",
        input: false,
        simulated: m19,
        native: None,
    },
];

fn sx4() -> Parameters {
    machines::by_name("sx4").expect("a machine that comes with Towpath")
}

fn stuck(stuck: towpath_sim::Stuck) -> Error {
    Error::NotAvailable(stuck.to_string())
}

fn median(all: &[f64]) -> f64 {
    percentile(all, 50.0).unwrap_or(f64::NAN)
}

const PROCS: [usize; 5] = [2, 4, 8, 16, 32];

/// The latencies on each number of processes, for each seed.
fn latencies(context: &Context<'_>, procs: &[usize], polled: Polled) -> Result<Vec<Vec<f64>>, Error> {
    (1..=u64::from(context.seeds()))
        .map(|seed| procs.iter().map(|&p| latency(&sx4(), p, polled, seed).map_err(stuck)).collect())
        .collect()
}

/// Medians over the seeds.
fn medians(all: &[Vec<f64>]) -> Vec<f64> {
    (0..all[0].len()).map(|i| median(&all.iter().map(|row| row[i]).collect::<Vec<_>>())).collect()
}

fn show(procs: &[usize], latencies: &[f64]) -> String {
    procs
        .iter()
        .zip(latencies)
        .map(|(p, l)| format!("{p}: {}", nanoseconds(*l)))
        .collect::<Vec<_>>()
        .join(", ")
}

fn m12(context: &Context<'_>) -> Result<Finding, Error> {
    let polled = if context.own_sabotage() == 0 { Polled::All } else { Polled::Chosen(2) };
    let all = latencies(context, &PROCS, polled)?;
    let mut against = Vec::new();
    for row in &all {
        let names: Vec<String> = PROCS.iter().map(|p| format!("{p} processes")).collect();
        let values: Vec<(&str, f64)> = names.iter().map(String::as_str).zip(row.iter().copied()).collect();
        against.extend(rising("latency", &values));
        let slope = |a: usize, b: usize| (row[b] - row[a]) / (PROCS[b] - PROCS[a]) as f64;
        let whole = slope(0, PROCS.len() - 1);
        for n in 1..PROCS.len() - 1 {
            let part = slope(n, n + 1) / whole;
            if !(0.5..=2.0).contains(&part) {
                let (from, to) = (PROCS[n], PROCS[n + 1]);
                against.push(format!(
                    "from {from} to {to} it rises {} times as fast as on the whole",
                    digits(part)
                ));
            }
        }
    }
    Ok(Finding::new(show(&PROCS, &medians(&all)), against))
}

/// Runs of each fault for each seed of the claim's.
const RUNS: u64 = 20;

/// The outcomes of a fault in all runs.
fn outcomes(context: &Context<'_>, form: SlotsForm, fault: Fault) -> BTreeMap<ExchangeOutcome, u64> {
    let mut all = BTreeMap::new();
    for seed in 1..=u64::from(context.seeds()) * RUNS {
        *all.entry(exchange(&sx4(), form, fault, seed)).or_default() += 1;
    }
    all
}

fn describe(all: &BTreeMap<ExchangeOutcome, u64>) -> String {
    let word = |(outcome, n): (&ExchangeOutcome, &u64)| match outcome {
        ExchangeOutcome::Right => format!("{n} right"),
        ExchangeOutcome::Stale => format!("{n} stale"),
        ExchangeOutcome::Hangs => format!("{n} hang"),
    };
    all.iter().map(word).collect::<Vec<_>>().join(", ")
}

/// The protocol as it should be, which must be right in all runs.
fn in_place(context: &Context<'_>, text: &mut Vec<String>, against: &mut Vec<String>) {
    let all = outcomes(context, SlotsForm::Slots, faults::NONE);
    text.push(format!("{}: {}", faults::NONE.what, describe(&all)));
    if all.keys().any(|o| *o != ExchangeOutcome::Right) {
        against.push(format!("with {}: {}", faults::NONE.what, describe(&all)));
    }
}

fn m13(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut text, mut against) = (Vec::new(), Vec::new());
    in_place(context, &mut text, &mut against);
    for fault in faults::ORDINARY {
        let all = outcomes(context, SlotsForm::Slots, fault);
        text.push(format!("without {}: {}", fault.what, describe(&all)));
        if all.contains_key(&ExchangeOutcome::Right) {
            against.push(format!("without {}: {}", fault.what, describe(&all)));
        }
    }
    Ok(Finding::new(text.join("; "), against))
}

fn m14(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut text, mut against) = (Vec::new(), Vec::new());
    in_place(context, &mut text, &mut against);
    for fault in faults::UNORDERED {
        let all = outcomes(context, SlotsForm::Slots, fault);
        text.push(format!("{}: {}", fault.what, describe(&all)));
        if !all.contains_key(&ExchangeOutcome::Stale) {
            against.push(format!("{}: no stale data", fault.what));
        }
    }
    Ok(Finding::new(text.join("; "), against))
}

fn m15(context: &Context<'_>) -> Result<Finding, Error> {
    let depths = if context.own_sabotage() == 0 { [1, 2, 4, BURST] } else { [1; 4] };
    let (mut against, mut waited, mut sending) = (Vec::new(), Vec::new(), Vec::new());
    for seed in 1..=u64::from(context.seeds()) {
        let all: Result<Vec<_>, Error> =
            depths.iter().map(|&d| bursts(&sx4(), d, seed).map_err(stuck)).collect();
        let all = all?;
        let falls = all.windows(2).all(|w| w[1].waited < w[0].waited);
        if !falls || all[depths.len() - 1].waited != 0.0 {
            against.push(format!(
                "with seed {seed} the parts that wait are {:?}",
                all.iter().map(|b| b.waited).collect::<Vec<_>>()
            ));
        }
        waited.push(all.iter().map(|b| b.waited).collect::<Vec<_>>());
        sending.push(all.iter().map(|b| b.sending).collect::<Vec<_>>());
    }
    let one = |((depth, waited), sending): ((&usize, f64), f64)| {
        format!("{depth}: {} % wait, {} for each packet", digits(waited * 100.0), nanoseconds(sending))
    };
    let text = depths.iter().zip(medians(&waited)).zip(medians(&sending)).map(one);
    Ok(Finding::new(format!("slots for a pair {}", text.collect::<Vec<_>>().join("; ")), against))
}

fn m16(context: &Context<'_>) -> Result<Finding, Error> {
    let procs = [4, 8, 16, 32];
    let few = if context.own_sabotage() == 0 { Polled::Chosen(2) } else { Polled::All };
    let few = latencies(context, &procs, few)?;
    let all = latencies(context, &procs, Polled::All)?;
    let mut against = Vec::new();
    for (few, all) in few.iter().zip(&all) {
        for (n, p) in procs.iter().enumerate().skip(1) {
            if above(few[n], few[0]) {
                against.push(format!(
                    "with 2 slots latency is {} among {p}, {} among {}",
                    nanoseconds(few[n]),
                    nanoseconds(few[0]),
                    procs[0]
                ));
            }
            if not_above(all[n], all[n - 1]) {
                against.push(format!("with slots for all latency does not grow up to {p}"));
            }
        }
    }
    let (few, all) = (show(&procs, &medians(&few)), show(&procs, &medians(&all)));
    Ok(Finding::new(format!("2 slots and a queue: {few}; slots for all: {all}"), against))
}

fn m18(context: &Context<'_>) -> Result<Finding, Error> {
    let origin = machines::by_name("origin2000").expect("a machine that comes with Towpath");
    let mut against = Vec::new();
    let (mut ours, mut other) = (Remote::default(), Remote::default());
    for seed in 1..=u64::from(context.seeds()) {
        let empty = if context.own_sabotage() == 0 { Empty::AtTheSender } else { Empty::AtTheReceiver };
        ours = distributed(&origin, empty, seed).map_err(stuck)?;
        other = distributed(&origin, Empty::AtTheReceiver, seed).map_err(stuck)?;
        if ours.reads != 0 {
            against.push(format!("{} remote reads", ours.reads));
        }
        if other.reads < other.packets {
            against.push(format!("with both flags at the receiver only {} remote reads", other.reads));
        }
    }
    let text = format!(
        "{} remote reads for {} packets (by operations at memory of the Origin2000); with both flags at the receiver {}",
        ours.reads, ours.packets, other.reads
    );
    Ok(Finding::new(text, against))
}

fn m19(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut text, mut against) = (Vec::new(), Vec::new());
    for (what, indices, ready, expected) in [
        ("as printed", Indices::Printed, 0, Some(ExchangeOutcome::Hangs)),
        ("with one order of indices", Indices::Corrected, 0, Some(ExchangeOutcome::Right)),
        ("that, without `pkt->ready = 0`, for packets that are passed on", Indices::Corrected, 1, None),
    ] {
        let all = outcomes(context, SlotsForm::Figures(indices, ready), faults::NONE);
        text.push(format!("{what}: {}", describe(&all)));
        let right = match expected {
            Some(outcome) => all.keys().all(|o| *o == outcome),
            None => all.keys().any(|o| *o != ExchangeOutcome::Right),
        };
        if !right {
            against.push(format!("{what}: {}", describe(&all)));
        }
    }
    Ok(Finding::new(text.join("; "), against))
}
