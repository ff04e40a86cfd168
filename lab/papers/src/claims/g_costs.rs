//! Paper G §5.3, §7.1, §7.3: costs of the operations by themselves, and of the code for
//! its writers.

use towpath_sim::{Parameters, Sim, machines};

use super::context::{bars_beside, within, within_factor};
use super::{Claim, Context, Finding};
use crate::sim::list::{Advisory, Locked, Versioned, alone};
use towpath_host::Error;
use towpath_report::format::digits;

pub(super) const CLAIMS: &[Claim] = &[
    Claim {
        id: "G1",
        what: "Figure 4: what synchronising a deletion adds: DCAS by CAS2 114 instruction times, by LLP/SCP 26, a lock on the R3000 70, on the R4000 24",
        paper: "114, 26, 70, 24",
        tolerance: "± 25 %",
        input: false,
        simulated: g1,
        native: None,
    },
    Claim {
        id: "G2",
        what: "68040: synchronisation by CAS2 takes 3.5 µs, by a spin lock 2.1 µs, by a queue lock 3.4 µs",
        paper: "3.5, 2.1, 3.4 µs",
        tolerance: "none: reported only",
        input: false,
        simulated: g2,
        native: None,
    },
    Claim {
        id: "G3",
        what: "Non-blocking synchronisation adds 4 instructions to a deletion from a priority queue",
        paper: "4",
        tolerance: "± 2",
        input: false,
        simulated: g3,
        native: None,
    },
    Claim {
        id: "G16",
        what: "27 % of the Cache Kernel's critical sections use DCAS, the others CAS",
        paper: "27 %",
        tolerance: "none",
        input: false,
        simulated: g16,
        native: None,
    },
    Claim {
        id: "G17",
        what: "Lines of code of the linked list: CAS 110, DCAS 38, sequential 25 (CAS ÷ DCAS 2.9, DCAS ÷ sequential 1.5)",
        paper: "2.9, 1.5",
        tolerance: "within a factor 2",
        input: false,
        simulated: g17,
        native: None,
    },
];

/// The machine with an instruction time of one cycle and nothing around accesses, so that
/// what is added is counted in instructions that refer to memory.
fn bare(change: &str) -> Parameters {
    let mut machine = machines::by_name("paradigm").expect("a machine that comes with Towpath");
    for change in ["processor.instructions=0", change] {
        machine.set_from_text(change).expect("a parameter and its value");
    }
    machine
}

/// Time of a deletion under DCAS and under the spin lock, less the time of its own code,
/// in cycles.
fn overheads(dcas: &str) -> Result<[f64; 2], Error> {
    let machine = bare(dcas);
    let [_, versioned] = alone::<Versioned<Sim, Advisory>>(&machine, 10)?;
    let [_, locked] = alone::<Locked<Sim>>(&machine, 10)?;
    // A lock that is free costs a test, a CAS and a store; what is left is the deletion.
    let lock = (2 * machine.load + machine.rmw) as f64 / machine.cycle as f64;
    Ok([versioned - (locked - lock), lock])
}

fn g1(_: &Context<'_>) -> Result<Finding, Error> {
    let [pair, lock] = overheads("processor.dcas=llp-scp")?;
    let [one, _] = overheads("processor.dcas=cas2")?;
    let mut against = within("DCAS by CAS2", one, 114.0, 0.25);
    against.extend(within("DCAS by LLP/SCP", pair, 26.0, 0.25));
    against.push("the R3000's lock, a system call or a bus of its own, is not modelled".into());
    against.extend(within("the R4000's lock", lock, 24.0, 0.25));
    let ours = format!("{}, {}, –, {}", digits(one), digits(pair), digits(lock));
    let places = [
        ("DCAS by CAS2 on the 68040", Some(one), 114.0),
        ("DCAS by LLP/SCP", Some(pair), 26.0),
        ("lock and unlock on the R3000", None, 70.0),
        ("lock and unlock on the R4000", Some(lock), 24.0),
    ]
    .map(|(name, ours, paper)| (name.to_string(), ours.map(Into::into), Some(paper)));
    let title = "What synchronising a deletion adds, in instruction times (G figure 4)";
    let plot = bars_beside(title, &places, digits);
    let because = "the simulated costs are those that §7.2 gives (17 cycles more than the references for a DCAS, 9 for a CAS), not those of the machines of Figure 4: nothing of the R4000's no-ops and SYNC in a lock, nor of the 68040's microcode, is in them";
    Ok(Finding::new(ours, against).because(because).with([plot]))
}

fn g2(_: &Context<'_>) -> Result<Finding, Error> {
    let [one, lock] = overheads("processor.dcas=cas2")?;
    let ours = format!(
        "a DCAS past the cache costs {} times what the spin lock costs, in simulated cycles (the paper's 3.5 ÷ 2.1 is 1.67)",
        digits(one / lock)
    );
    let why = "measured on the 68040, whose instructions and on-chip cache are not simulated; its CAS2 past the cache is (processor.dcas=cas2)";
    Ok(Finding { ours, ..Finding::not_checkable(why) })
}

fn g3(_: &Context<'_>) -> Result<Finding, Error> {
    Ok(Finding::not_checkable(
        "the simulator executes no instructions. By our source (sim/list/versioned.rs) a deletion also reads the version, adds one to it, tests the DCAS and may go back; the DCAS stands where a store would",
    ))
}

fn g16(_: &Context<'_>) -> Result<Finding, Error> {
    Ok(Finding::not_checkable("a count of the Cache Kernel's source, which we do not have"))
}

/// Lines of code between `// begin` and `// end`: neither empty nor comments nor braces
/// alone.
fn lines(source: &str) -> usize {
    let body = source.lines().skip_while(|l| !l.trim().starts_with("// begin"));
    body.take_while(|l| l.trim() != "// end")
        .map(str::trim)
        .filter(|l| !l.starts_with("//") && l.chars().any(|c| c.is_alphanumeric()))
        .count()
}

fn g17(_: &Context<'_>) -> Result<Finding, Error> {
    let sources = [
        include_str!("../sim/list/valois.rs"),
        include_str!("../sim/list/versioned.rs"),
        include_str!("../sim/list/locked.rs"),
    ];
    let [cas, dcas, sequential] = sources.map(|s| lines(s) as f64);
    let mut against = within_factor("CAS ÷ DCAS", cas / dcas, 110.0 / 38.0, 2.0);
    against.extend(within_factor("DCAS ÷ sequential", dcas / sequential, 38.0 / 25.0, 2.0));
    let ours = format!(
        "{cas}, {dcas}, {sequential}: {}, {} (counted in our own sources of insertion and deletion, without comments and lone braces; the FIFO queues' 37 and 24 lines are not compared)",
        digits(cas / dcas),
        digits(dcas / sequential)
    );
    Ok(Finding::new(ours, against))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_counted_and_nothing_else() {
        let source =
            "use x;\n// begin: here\nfn f() {\n    // why\n    let a = 1;\n\n    }\n}\n// end\nfn g() {}\n";
        assert_eq!(lines(source), 2);
        assert!(g17(&Context::new(1, 1, &())).unwrap().ours.contains(": "));
    }
}
