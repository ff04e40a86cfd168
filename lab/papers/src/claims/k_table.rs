//! Paper K: the machine (K2, K4), and the costs of an acquisition (K1, K3).

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_mplock::Protocol;
use towpath_sim::{Parameters, Simulation, machines};

use super::context::within;
use super::{Claim, Context, Finding};
use crate::sim::mplocks::{Cost, HomePlacement, Scheme, State, acquisition};
use std::cell::Cell;
use std::rc::Rc;
use towpath_host::Error;
use towpath_report::format::digits;
use towpath_report::stats::percentile;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "K1",
        what: "Table 1: hops and interrupts of an acquisition in the states local idle, remote idle, remote busy",
        paper: "T&T&S 0, 8, 12; MCS and reactive 0, 4, 12; MP-cent N/A, 2h+1i, 2h+1i; MP-dist 0, 3h+2i, 1h; MP-react 0, 2h+1i, 1h",
        tolerance: "by message exact; in shared memory, whatever the homes, never more, and the value reached",
        input: false,
        simulated: k1,
        native: None,
    },
    Claim {
        id: "K2",
        what: "An acquisition by two hops takes 1400 cycles with fast switches, 1700 with slow ones",
        paper: "1400, 1700",
        tolerance: "± 25 %",
        // The time of an interrupt is derived from it.
        input: true,
        simulated: k2,
        native: None,
    },
    Claim {
        id: "K3",
        what: "A lock manager in the user's process, reached by a signal of 3500 cycles, is slower than one in the kernel",
        paper: "slower",
        tolerance: "remote idle, MP-dist and MP-cent; beyond 3 %",
        input: false,
        simulated: k3,
        native: None,
    },
    Claim {
        id: "K4",
        what: "Local memory answers in 58 cycles, the cache in 1",
        paper: "58, 1",
        tolerance: "exact",
        // Both are parameters.
        input: true,
        simulated: k4,
        native: None,
    },
];

fn machine(name: &str) -> Parameters {
    machines::by_name(name).expect("a machine that comes with Towpath")
}

/// The cell of Table 1 as text.
fn text(cost: Cost) -> String {
    if cost.interrupts == 0 {
        format!("{}h", cost.hops)
    } else {
        format!("{}h+{}i", cost.hops, cost.interrupts)
    }
}

/// Hops in shared memory, by state; interrupts are none.
const SHARED: [(Scheme, [u64; 3]); 3] =
    [(Scheme::TestAndTestAndSet, [0, 8, 12]), (Scheme::Mcs, [0, 4, 12]), (Scheme::Reactive, [0, 4, 12])];

/// Hops and interrupts of a cell, if the table has it.
type HopsAndInterrupts = Option<(u64, u64)>;

/// Hops and interrupts by message, by state; the first of MP-cent is not in the table.
const MESSAGES: [(Protocol, [HopsAndInterrupts; 3]); 3] = [
    (Protocol::Central, [None, Some((2, 1)), Some((2, 1))]),
    (Protocol::Distributed, [Some((0, 0)), Some((3, 2)), Some((1, 0))]),
    (Protocol::Reactive, [Some((0, 0)), Some((2, 1)), Some((1, 0))]),
];

fn k1(context: &Context<'_>) -> Result<Finding, Error> {
    let machine = machine("avalanche");
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for (scheme, table) in SHARED {
        let mut cells = Vec::new();
        for (state, value) in State::ALL.into_iter().zip(table) {
            let mut most = 0;
            for homes in [
                HomePlacement::InTurn,
                HomePlacement::From(3),
                HomePlacement::From(4),
                HomePlacement::From(1),
            ] {
                for contended in [false, true] {
                    let cost = acquisition(&machine, scheme, state, homes, contended, 1)?;
                    most = most.max(cost.hops);
                }
            }
            cells.push(format!("{most}h"));
            if most != value {
                against.push(format!("{}, {}: up to {most} hops, not {value}", scheme.name(), state.name()));
            }
        }
        ours.push(format!("{} {}", scheme.name(), cells.join(", ")));
    }
    for (protocol, table) in MESSAGES {
        let protocol = if context.own_sabotage() == 0 { protocol } else { Protocol::Central };
        let scheme = Scheme::Message(protocol);
        let mut cells = Vec::new();
        for (state, value) in State::ALL.into_iter().zip(table) {
            for seed in 1..=u64::from(context.seeds()) {
                let cost = acquisition(&machine, scheme, state, HomePlacement::From(3), false, seed)?;
                if seed == 1 {
                    cells.push(text(cost));
                }
                if value.is_some_and(|value| value != (cost.hops, cost.interrupts)) {
                    against.push(format!("{}, {}: {}", scheme.name(), state.name(), text(cost)));
                }
            }
        }
        ours.push(format!("{} {}", scheme.name(), cells.join(", ")));
    }
    let because = "reactive reads its flag and then changes it while few want it, as T&T&S does, so its worst case there is T&T&S's; the paper's 4 hops are those of its queue";
    Ok(Finding::new(ours.join("; "), against).because(because))
}

/// The median time of an acquisition over the seeds, in cycles.
fn cycles(
    context: &Context<'_>,
    machine: &Parameters,
    protocol: Protocol,
    state: State,
) -> Result<f64, Error> {
    let each: Result<Vec<f64>, Error> = (1..=u64::from(context.seeds()))
        .map(|seed| {
            let scheme = Scheme::Message(protocol);
            acquisition(machine, scheme, state, HomePlacement::From(3), false, seed).map(|cost| cost.cycles)
        })
        .collect();
    Ok(percentile(&each?, 50.0).unwrap_or(f64::NAN))
}

fn k2(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for (name, value) in [("avalanche", 1400.0), ("avalanche-slow", 1700.0)] {
        let found = cycles(context, &machine(name), Protocol::Central, State::RemoteIdle)?;
        ours.push(digits(found));
        against.extend(within(name, found, value, 0.25));
    }
    Ok(Finding::new(ours.join(", "), against))
}

fn k3(context: &Context<'_>) -> Result<Finding, Error> {
    let (mut ours, mut against) = (Vec::new(), Vec::new());
    for name in ["avalanche", "avalanche-slow"] {
        let mut user = machine(name);
        if context.own_sabotage() == 0 {
            user.set_from_text("message.handler=user").map_err(|e| Error::NotAvailable(e.to_string()))?;
        }
        for protocol in [Protocol::Central, Protocol::Distributed] {
            let in_kernel = cycles(context, &machine(name), protocol, State::RemoteIdle)?;
            let in_user = cycles(context, &user, protocol, State::RemoteIdle)?;
            let scheme = Scheme::Message(protocol).name();
            ours.push(format!(
                "{name}, {scheme}: {} instead of {} cycles",
                digits(in_user),
                digits(in_kernel)
            ));
            if !super::above(in_user, in_kernel) {
                against.push(format!("{name}, {scheme}: not slower"));
            }
        }
    }
    let [user, kernel] = ["user", "kernel"].map(|handler| {
        let mut machine = machine("avalanche");
        machine
            .set_from_text(&format!("message.handler={handler}"))
            .map_err(|e| Error::NotAvailable(e.to_string()))?;
        cycles(context, &machine, Protocol::Distributed, State::LocalIdle)
    });
    let local = format!("acquired again at the same node: {} instead of {}", digits(user?), digits(kernel?));
    Ok(Finding::new(format!("{}; {local}", ours.join("; ")), against))
}

fn k4(_: &Context<'_>) -> Result<Finding, Error> {
    let machine = machine("avalanche");
    let mut simulation = Simulation::new(&machine, 4, 1);
    simulation.without_jitter();
    let word = simulation.arena().word(Place::Home(0), 0);
    let found: Rc<Cell<[u64; 2]>> = Rc::default();
    let (result, cycle) = (Rc::clone(&found), machine.cycle);
    simulation.spawn(0, 0, move |cpu| {
        let load = || {
            let start = cpu.clock();
            cpu.load(&word, Relaxed);
            (cpu.clock() - start) / cycle
        };
        result.set([load(), load()]);
    });
    simulation.run().map_err(|stuck| Error::NotAvailable(stuck.to_string()))?;
    let [memory, cache] = found.get();
    let against = if [memory, cache] == [58, 1] { Vec::new() } else { vec!["they differ".into()] };
    Ok(Finding::new(format!("{memory}, {cache}"), against))
}
