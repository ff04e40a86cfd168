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

/// An instruction of a sequence, and the cycles for which it waits for the one before it.
type Step = (&'static str, u32);

/// Figure 2's last step without synchronisation: the predecessor's link is stored.
///
/// The value is in a register, and so is all that the search found.
const UNLINK: [Step; 1] = [("store the element's successor to (p)", 0)];

/// Figure 2 on a 68040, whose CAS2 compares and stores registers.
///
/// (M68000 Family Programmer's Reference Manual: `CAS2 Dc1:Dc2,Du1:Du2,(Rn1):(Rn2)`.)
const DELETION_68040: [Step; 5] = [
    ("MOVE.L (list.version),D0", 0),
    ("MOVE.L D0,D1", 0),
    ("ADDQ.L #1,D1", 0),
    ("CAS2.L D0:D2,D1:D3,(A0):(A1)", 0),
    ("BNE retry", 0),
];

/// Figure 2 with Figure 3's DCAS, on an R4000 with LLP and SCP.
///
/// A no-op follows each branch. A register that a load or an SC fills can be used two cycles later,
/// for which the processor waits (MIPS R4000 User's Manual, A.4: "the hardware interlocks"; the two
/// cycles from memory).
const DELETION_R4000: [Step; 12] = [
    ("LW T4,(T0)", 0),
    ("ADDIU U0,T4,1", 0),
    ("LL T3,(T1)", 0),
    ("LLP T2,(T0)", 0),
    ("BNE T2,V0,FAIL", 2),
    ("NOP", 0),
    ("BNE T3,V1,FAIL", 0),
    ("NOP", 0),
    ("SCP U0,(T0)", 0),
    ("SC U1,(T1)", 0),
    ("BLEZ U1,FAIL", 2),
    ("NOP", 0),
];

/// Lock and unlock on an R4000: a test-and-set of LL and SC, and a store.
///
/// The first as in the User's Manual, with OR in the place of ADD.
const LOCK_R4000: [Step; 7] = [
    ("LL T1,(T0)", 0),
    ("BNE T1,0,L1", 2),
    ("ORI T2,T1,1", 0),
    ("SC T2,(T0)", 0),
    ("BEQ T2,0,L1", 2),
    ("NOP", 0),
    ("SW 0,(T0)", 0),
];

/// Cycles of a SYNC: Figure 4's 26 for LLP/SCP without the 16 instructions of §7.1.
const SYNC: u32 = 26 - 16;

/// Instruction times of a sequence: an instruction takes one.
fn times(steps: &[Step]) -> u32 {
    steps.iter().map(|&(_, wait)| 1 + wait).sum()
}

/// Instruction times on an R4000: added to a deletion by LLP/SCP, and of lock and unlock.
///
/// Each SC brings a SYNC.
fn counted() -> [f64; 2] {
    [times(&DELETION_R4000) - times(&UNLINK), times(&LOCK_R4000)].map(|own| f64::from(own + SYNC))
}

/// The machine with an instruction time of one cycle and nothing around accesses, so that
/// what is added is counted in instructions that refer to memory.
fn bare() -> Parameters {
    let mut machine = machines::by_name("paradigm").expect("a machine that comes with Towpath");
    for change in ["processor.instructions=0", "processor.dcas=cas2"] {
        machine.set_from_text(change).expect("a parameter and its value");
    }
    machine
}

/// Time that a DCAS by CAS2 adds to a deletion, and time of the spin lock, in cycles.
fn overheads() -> Result<[f64; 2], Error> {
    let machine = bare();
    let [_, versioned] = alone::<Versioned<Sim, Advisory>>(&machine, 10)?;
    let [_, locked] = alone::<Locked<Sim>>(&machine, 10)?;
    // A lock that is free costs a test, a CAS and a store; what is left is the deletion.
    let lock = (2 * machine.load + machine.rmw) as f64 / machine.cycle as f64;
    Ok([versioned - (locked - lock), lock])
}

fn g1(_: &Context<'_>) -> Result<Finding, Error> {
    let [pair, lock] = counted();
    let [one, _] = overheads()?;
    let mut against = within("DCAS by CAS2", one, 114.0, 0.25);
    against.extend(within("DCAS by LLP/SCP", pair, 26.0, 0.25));
    against.push(
        "no source says what the R3000's lock is made of (of SGI's, hardware of its own was part)".into(),
    );
    against.extend(within("the R4000's lock", lock, 24.0, 0.25));
    let ours = format!(
        "{}, {}, –, {} (CAS2 simulated; both of the R4000 counted: {} and {} instructions, {} and {} cycles of waiting for loads and SCs, and a SYNC of {SYNC}, which is Figure 4's 26 less §7.1's 16)",
        digits(one),
        digits(pair),
        digits(lock),
        DELETION_R4000.len() - UNLINK.len(),
        LOCK_R4000.len(),
        times(&DELETION_R4000) as usize - DELETION_R4000.len(),
        times(&LOCK_R4000) as usize - LOCK_R4000.len(),
    );
    let places = [
        ("DCAS by CAS2 on the 68040", Some(one), 114.0),
        ("DCAS by LLP/SCP", Some(pair), 26.0),
        ("lock and unlock on the R3000", None, 70.0),
        ("lock and unlock on the R4000", Some(lock), 24.0),
    ]
    .map(|(name, ours, paper)| (name.to_string(), ours.map(Into::into), Some(paper)));
    let title = "What synchronising a deletion adds, in instruction times (G figure 4)";
    let plot = bars_beside(title, &places, digits);
    let because = "what CAS2 takes is simulated by §7.2's costs (17 cycles more than the references for a DCAS), not by the 68040's microcode, whose table of times we have not found; §7.1's 3.5 µs are 87.5 of its clocks";
    Ok(Finding::new(ours, against).because(because).with([plot]))
}

fn g2(_: &Context<'_>) -> Result<Finding, Error> {
    let [one, lock] = overheads()?;
    let ours = format!(
        "a DCAS past the cache costs {} times what the spin lock costs, in simulated cycles (the paper's 3.5 ÷ 2.1 is 1.67)",
        digits(one / lock)
    );
    let why = "measured on the 68040, whose instructions and on-chip cache are not simulated; its CAS2 past the cache is (processor.dcas=cas2)";
    Ok(Finding { ours, ..Finding::not_checkable(why) })
}

fn g3(context: &Context<'_>) -> Result<Finding, Error> {
    let against = |added: usize| match added.abs_diff(4) {
        0..=2 => Vec::new(),
        _ => vec![format!("it adds {added} instructions")],
    };
    let is_counted = |step: &&Step| context.own_sabotage() == 0 || step.0.starts_with("CAS2");
    let added = DELETION_68040.iter().filter(is_counted).count() - UNLINK.len();
    let names: Vec<&str> = DELETION_68040.iter().map(|step| step.0).collect();
    let ours = format!(
        "{added}: {} in the place of a store (Figure 2 written by hand for the 68040, on which the Cache Kernel ran; the paper's 4 was known)",
        names.join("; ")
    );
    Ok(Finding::new(ours, against(added)))
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

fn g17(context: &Context<'_>) -> Result<Finding, Error> {
    let sources = [
        include_str!("../sim/list/valois.rs"),
        include_str!("../sim/list/versioned.rs"),
        include_str!("../sim/list/locked.rs"),
    ];
    let [cas, dcas, sequential] = sources.map(|s| lines(s) as f64);
    let [cas, dcas, sequential] = match context.own_sabotage() {
        1 => [dcas, dcas, sequential],
        2 => [cas, dcas, dcas],
        _ => [cas, dcas, sequential],
    };
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
    fn instructions_of_sequences_are_counted_with_their_waiting() {
        assert_eq!(times(&[("LL", 0), ("BNE", 2)]), 4);
        assert_eq!(counted(), [f64::from(16 - 1 + SYNC), f64::from(11 + SYNC)]);
    }

    #[test]
    fn code_is_counted_and_nothing_else() {
        let source =
            "use x;\n// begin: here\nfn f() {\n    // why\n    let a = 1;\n\n    }\n}\n// end\nfn g() {}\n";
        assert_eq!(lines(source), 2);
        assert!(g17(&Context::new(1, 1, &())).unwrap().ours.contains(": "));
    }
}
