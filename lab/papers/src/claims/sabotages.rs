//! Sabotage of each claim that is recorded as reproduced.
//!
//! Some keep within a claim's tolerance: of an order in which a tie counts as none, algorithms that
//! are alike are noticed by no claim. The line says so; beside it stand the order turned, and each
//! pair of neighbours exchanged.

use super::sabotage::Sabotage;
use super::sabotage::SabotageChange::{
    self, Alike, Counts, Exchanged, Included, Instead, Model, Times, Turned,
};
use super::sabotage::SeriesField::{Algorithms, Disciplines, Lengths, Participants, Ways};
use towpath_report::record::metrics::{INTERRUPTS_INSIDE, OF_COPY_RATE, TIME_PER_OPERATION as TIME};

/// Sabotage, by the claim's number: the change, and its words.
const ALL: &[(&str, SabotageChange, &str)] = &[
    ("G3", Model(1), "a deletion without a version and a retry"),
    ("G6", Turned(Participants), "the number of processors with the least rate in the place of one"),
    ("G9", Alike(Algorithms), "all algorithms alike"),
    ("G10", Alike(Participants), "curves that are flat"),
    ("G13", Model(1), "one process on each processor in both runs"),
    ("G15", Model(1), "the waiter on another processor in both runs"),
    ("G17", Counts(1), "CAS's code as long as DCAS's"),
    ("G17", Counts(2), "the sequential code as long as DCAS's"),
    ("G18", Included, "memory whose entries become something else"),
    ("G19", Included, "readers that take no lock"),
    ("G20", Included, "a spin lock in the place of DCAS"),
    ("K1", Model(1), "MP-cent in the place of each protocol by message"),
    ("K3", Model(1), "the manager in the kernel in both runs"),
    ("K5", Alike(Participants), "parts that are the same on any number of nodes"),
    ("K8", Alike(Algorithms), "all locks alike"),
    ("K13", Alike(Algorithms), "all locks alike"),
    ("K15", Alike(Algorithms), "all locks alike"),
    ("K17", Alike(Algorithms), "all locks alike"),
    ("K19", Alike(Algorithms), "all locks alike"),
    ("K19", Alike(Participants), "a gap that stays"),
    ("K21", Alike(Algorithms), "all locks alike"),
    ("K23", Alike(Algorithms), "all locks alike"),
    ("K25", Alike(Algorithms), "all protocols alike"),
    ("K25", Times(INTERRUPTS_INSIDE, 10.0), "ten times as many interrupts"),
    ("K26", Alike(Algorithms), "both protocols alike"),
    ("K27", Model(1), "managers on all nodes in both runs"),
    ("K28", Alike(Algorithms), "all locks alike"),
    ("L3", Alike(Algorithms), "all algorithms alike"),
    ("L3", Turned(Algorithms), "their order turned"),
    ("L3", Exchanged("test-and-set", "ticket"), "test&set and ticket exchanged"),
    ("L3", Exchanged("ticket", "lock-free"), "ticket and lock-free exchanged"),
    ("L3", Exchanged("test-and-set", "anderson"), "test&set and Anderson exchanged"),
    ("L3", Exchanged("anderson", "lock-free"), "Anderson and lock-free exchanged"),
    ("L4", Alike(Algorithms), "all algorithms alike"),
    ("L5", Times(OF_COPY_RATE, 0.5), "half the rate"),
    ("L6", Times(TIME, 1.1), "messages of the stress test that take a tenth longer"),
    ("L9", Alike(Participants), "as many requests in a poll with one writer as with seven"),
    ("L9", Instead(Algorithms, "lock-free", "ticket"), "a ticket lock in the place of lock-free"),
    ("L13", Alike(Algorithms), "both locks alike"),
    ("L13", Turned(Algorithms), "their order turned"),
    ("L15", Instead(Algorithms, "lock-free", "ticket"), "a ticket lock in the place of lock-free"),
    ("L19", Included, "receivers that do not poll, and packets claimed before blocks"),
    ("M2", Alike(Lengths), "latencies that are flat"),
    ("M3", Alike(Lengths), "bandwidths that are flat"),
    ("M4", Instead(Algorithms, "slots-sysv", "sysv"), "semaphores in the place of slots"),
    ("M5", Alike(Lengths), "bandwidths that are flat"),
    ("M5", Included, "slots that take no memory"),
    ("M7", Instead(Algorithms, "slots-tas", "tas"), "test&set locks in the place of slots"),
    ("M8", Instead(Algorithms, "slots-tas", "sysv"), "semaphores in the place of slots"),
    ("M10", Alike(Algorithms), "all versions alike"),
    ("M11", Alike(Algorithms), "all versions alike"),
    ("M12", Model(1), "two slots and a queue in the place of slots for all"),
    ("M13", Included, "each macro made ordinary C"),
    ("M14", Included, "no synchronisation at either end"),
    ("M15", Model(1), "one slot in all runs"),
    ("M16", Model(1), "slots for all in both runs"),
    ("M17", Counts(1), "two copies in both runs"),
    ("M18", Model(1), "both flags at the receiver"),
    ("M19", Included, "indices as printed, and no assignment"),
    ("N4", Instead(Algorithms, "fetch-op", "ll-sc"), "LL/SC in the place of fetch-ops"),
    ("N5", Instead(Algorithms, "ll-sc", "fetch-op"), "fetch-ops in the place of LL/SC"),
    ("N5", Alike(Participants), "a curve that is flat"),
    ("N6", Instead(Algorithms, "ll-sc", "fetch-op"), "fetch-ops in the place of LL/SC"),
    ("N6", Alike(Participants), "a curve that is flat"),
    ("N9", Alike(Algorithms), "both counters alike"),
    ("N10", Model(1), "no work"),
    ("N11", Alike(Algorithms), "all queues alike"),
    ("N11", Turned(Algorithms), "their order turned"),
    (
        "N11",
        Exchanged("two-ended/anderson/ll-sc", "two-ended/ticket/ll-sc"),
        "queue lock and ticket exchanged",
    ),
    (
        "N11",
        Exchanged("two-ended/ticket/ll-sc", "two-ended/test-and-set/ll-sc"),
        "ticket and test&set exchanged",
    ),
    (
        "N12",
        Instead(Algorithms, "two-ended/test-and-set/ll-sc", "two-ended/anderson/ll-sc"),
        "the queue lock in the place of test&set",
    ),
    ("N15", Alike(Algorithms), "all queues alike"),
    ("N15", Turned(Algorithms), "their order turned"),
    (
        "N15",
        Exchanged("michael-scott/ll-sc", "prakash-lee-johnson/ll-sc"),
        "Michael and Scott's, and Prakash's exchanged",
    ),
    ("N15", Exchanged("prakash-lee-johnson/ll-sc", "valois/ll-sc"), "Prakash's and Valois's exchanged"),
    ("N17", Alike(Algorithms), "all queues alike"),
    ("N17", Turned(Algorithms), "their order turned"),
    ("N18", Alike(Algorithms), "all queues alike"),
    ("N18", Turned(Algorithms), "their order turned"),
    ("N19", Alike(Algorithms), "all queues alike"),
    ("N19", Turned(Algorithms), "their order turned"),
    ("N19", Exchanged("two-ended/hybrid-queue", "two-ended/ticket/fetch-op"), "hybrid and ticket exchanged"),
    (
        "N19",
        Exchanged("two-ended/ticket/fetch-op", "two-ended/test-and-set/fetch-op"),
        "ticket and test&set exchanged",
    ),
    ("N20", Alike(Algorithms), "all queues alike"),
    (
        "N20",
        Instead(Algorithms, "fetch-op-tickets", "michael-scott/ll-sc"),
        "Michael and Scott's queue in its place",
    ),
    ("N21", Model(1), "test&set in the place of queue locks"),
    ("N23", Instead(Algorithms, "mcs-tree", "centralized/fetch-op"), "fetch-ops in the place of the trees"),
    ("N23", Instead(Algorithms, "mcs-tree", "centralized/ll-sc"), "LL/SC in the place of the trees"),
    ("N26", Alike(Ways), "all queues alike"),
    ("N26", Turned(Ways), "their order turned"),
    ("N31", Alike(Disciplines), "both disciplines alike"),
    ("N31", Turned(Disciplines), "their order turned"),
    ("N34", Model(1), "a processor that no other thread gets"),
    ("N35", Included, "the queue as printed"),
];

/// Returns the sabotage of a claim.
pub(super) fn of(id: &str) -> impl Iterator<Item = Sabotage> + '_ {
    ALL.iter().filter(move |it| it.0 == id).map(|&(_, change, words)| Sabotage { change, words })
}

#[cfg(test)]
mod tests {
    use super::super::{claims, recorded};

    #[test]
    fn each_claim_recorded_as_reproduced_has_its_sabotage() {
        for claim in claims() {
            let is_reproduced = recorded(claim.id) == Some("reproduced");
            let all: Vec<_> = super::of(claim.id).collect();
            assert_eq!(is_reproduced, !all.is_empty(), "{} has {} kinds of sabotage", claim.id, all.len());
            assert!(all.iter().all(|sabotage| sabotage.words.len() > 3), "{}", claim.id);
        }
        let known = |id: &str| claims().iter().any(|claim| claim.id == id);
        assert!(super::ALL.iter().all(|it| known(it.0)));
    }
}
