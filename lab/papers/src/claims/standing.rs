//! Values without a published source that a claim's verdict hangs on.

/// Claims on counts that no time changes.
const COUNTS: [&str; 17] = [
    "G15", "G17", "G18", "G19", "G20", "K1", "L15", "L19", "M13", "M14", "M18", "M19", "N4", "N21", "N23",
    "N34", "N35",
];

/// Claims that hang on a value of their own.
const OWN: [(&str, &str); 17] = [
    ("G1", "§7.2's costs of a CAS2; the R4000's two cycles from a load to its use (from memory)"),
    ("G3", "a sequence of instructions written by hand, with the paper's number known"),
    (
        "K5",
        "the numbering of spark98's mesh (sf10's levels, and blocks within them, of which half and double are tried); for busy locks an instruction's time (Table 4 on 4 nodes)",
    ),
    (
        "K16",
        "the homes of pages (with all at the first node it fails); one transaction at a time of a home, and one home of all locks in shared memory (input K18)",
    ),
    ("L3", "the store buffer's eight entries (from memory); with four it fails"),
    ("L8", "the part of o_r that a poll takes: 25 to 75 % are tried"),
    ("L9", "the part of o_r that a poll takes: 25 to 75 % are tried"),
    (
        "L10",
        "the pause between two attempts at a spin lock, of which 12 to 36 ns are tried, and a send's instructions within the rounding of Table 1; that the mutex is handed over (published)",
    ),
    ("L17", "the patience of a receiver (a millisecond; scaled with the time slice)"),
    ("N3", "both processors of a node count an intervention, which has no source"),
    ("N7", "the time of a fetch-op at its home, chosen for it"),
    (
        "N12",
        "the bound of back-off, the time of the instructions under way and a retry's, of which half and double are tried; where lines lie (published)",
    ),
    ("N13", "the order in which a home serves; where lines lie (published): at the nodes in turn it fails"),
    ("N17", "where lines lie (published)"),
    ("N18", "where lines lie (published): at the nodes in turn it fails"),
    (
        "N19",
        "stores in a row whose lines come at one time (published); the time of the instructions under way and a retry's, of which half and double are tried; the time of a poll at memory, chosen for N7",
    ),
    ("N22", "the time of a fetch-op at its home, with which it was known"),
];

/// Returns the values besides published ones that a claim's verdict depends on.
pub(super) fn depends_on(id: &str) -> &'static str {
    if let Some((_, text)) = OWN.iter().find(|it| it.0 == id) {
        return text;
    }
    if COUNTS.contains(&id) {
        return "nothing that was estimated: it counts what the algorithm and the protocol do";
    }
    match &id[..1] {
        "G" => {
            "an access's instructions (input G4); slices of 10,000 cycles, switches of 200, pauses of at most 4,096 (estimated)"
        }
        "K" => {
            "occupancy of controllers, width of links, blocks of 128 bytes (estimated); one transaction at a time of a home, and one home of all locks in shared memory (input K18); the interrupt's time (input K2); in programs an instruction's time (Table 4 on 4 nodes)"
        }
        "L" => {
            "instructions of the message path (o_s and o_r of test&set), an upgrade's 150 ns (estimated), the store buffer's eight entries (from memory)"
        }
        "M" => {
            "what a semaphore, a flush and MPICH's own instructions take (inputs M1, M6, M9); latencies of memory (estimated)"
        }
        _ => {
            "the order in which a home serves (chosen for N1 and N2), occupancies (estimated); the time of the instructions under way and a retry's, of which half and double are tried; in multiprogrammed runs a switch's 10 µs"
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn standing_names_claims_that_there_are() {
        let all = super::super::claims();
        let known = |id: &str| all.iter().any(|claim| claim.id == id);
        assert!(super::COUNTS.iter().chain(super::OWN.iter().map(|it| &it.0)).all(|id| known(id)));
        assert!(all.iter().all(|claim| super::depends_on(claim.id).len() > 10));
    }
}
