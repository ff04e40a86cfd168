//! The structures of paper G in shared memory, and their rivals, under load: throughput
//! and tail latency, with participants that are stopped or killed meanwhile.
//!
//! `mod.rs` says which structures and algorithms there are; `subject.rs` what they have in common,
//! over DCAS and compare-and-swap; `chains.rs` and `under_lock.rs` the same structures under locks;
//! `peers.rs` those of other crates (threads only). `board.rs` is what participants and supervisor
//! share, `work.rs` what a participant does. `crew.rs` starts, stops and kills participants;
//! `load.rs` measures, `kills.rs` kills; `shown.rs` makes tables and plots.

pub(crate) mod board;
mod chains;
mod crew;
mod halt;
mod kills;
mod load;
mod peers;
mod room;
pub(crate) mod shown;
mod subject;
mod under_lock;
mod work;

pub use board::MOST;
pub use kills::{Damage, kills};
pub use load::{Load, throughput};
pub use room::POOLS;

/// A structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Structure {
    /// Last in, first out.
    Stack,
    /// First in, first out.
    Fifo,
    /// Keys in order, with deletion from the middle.
    List,
    /// Keys in buckets.
    HashMap,
    /// The least first.
    PriorityQueue,
}

impl Structure {
    /// All of them.
    pub const ALL: [Structure; 5] =
        [Structure::Stack, Structure::Fifo, Structure::List, Structure::HashMap, Structure::PriorityQueue];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Structure::Stack => "stack",
            Structure::Fifo => "fifo",
            Structure::List => "list",
            Structure::HashMap => "hash-map",
            Structure::PriorityQueue => "priority-queue",
        }
    }

    /// The structure of that name.
    pub fn from_name(name: &str) -> Option<Structure> {
        Structure::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Returns whether it has keys, by which it is read: the others only give and take.
    pub const fn has_keys(self) -> bool {
        matches!(self, Structure::List | Structure::HashMap)
    }
}

/// The reason why no thread is killed.
const NOT_ALONE: &str = "a thread cannot be killed without the others of its process";

/// The algorithm of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StructureAlgorithm {
    /// Structure over Guerraoui, Kogan, Marathe and Zablotchi's DCAS: ours.
    Guerraoui,
    /// Structure over Harris, Fraser and Pratt's DCAS.
    Harris,
    /// Structure over a DCAS under a table of locks.
    Locked,
    /// Structure under our lock for processes that may die.
    Robust,
    /// Structure under a test&test&set lock with back-off.
    TestAndTestAndSet,
    /// Structure under the crate parking_lot's mutex; threads.
    ParkingLot,
    /// Compare-and-swap only: Harris and Michael's list.
    HarrisMichael,
    /// Compare-and-swap only, with counted references: Valois's list.
    Valois,
    /// The crates crossbeam-skiplist and crossbeam-queue; threads.
    Crossbeam,
    /// The crate dashmap; threads.
    DashMap,
}

impl StructureAlgorithm {
    /// All of them, in the order in which tables show them.
    pub const ALL: [StructureAlgorithm; 10] = [
        StructureAlgorithm::Guerraoui,
        StructureAlgorithm::Harris,
        StructureAlgorithm::HarrisMichael,
        StructureAlgorithm::Valois,
        StructureAlgorithm::Locked,
        StructureAlgorithm::Robust,
        StructureAlgorithm::TestAndTestAndSet,
        StructureAlgorithm::ParkingLot,
        StructureAlgorithm::Crossbeam,
        StructureAlgorithm::DashMap,
    ];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            StructureAlgorithm::Guerraoui => "guerraoui",
            StructureAlgorithm::Harris => "harris",
            StructureAlgorithm::Locked => "locked",
            StructureAlgorithm::Robust => "robust",
            StructureAlgorithm::TestAndTestAndSet => "test-and-test-and-set",
            StructureAlgorithm::ParkingLot => "parking-lot",
            StructureAlgorithm::HarrisMichael => "harris-michael",
            StructureAlgorithm::Valois => "valois",
            StructureAlgorithm::Crossbeam => "crossbeam",
            StructureAlgorithm::DashMap => "dashmap",
        }
    }

    /// The algorithm of that name.
    pub fn from_name(name: &str) -> Option<StructureAlgorithm> {
        StructureAlgorithm::ALL.into_iter().find(|a| a.name() == name)
    }

    /// Returns whether there is such a structure.
    pub const fn offers(self, structure: Structure) -> bool {
        match self {
            StructureAlgorithm::HarrisMichael | StructureAlgorithm::Valois => {
                matches!(structure, Structure::List)
            }
            StructureAlgorithm::Crossbeam => {
                matches!(structure, Structure::Fifo | Structure::List | Structure::PriorityQueue)
            }
            StructureAlgorithm::DashMap => matches!(structure, Structure::HashMap),
            _ => true,
        }
    }

    /// The reason why none of its participants can be killed and recovered from, if there
    /// is one.
    pub const fn cannot_recover(self) -> Option<&'static str> {
        match self {
            StructureAlgorithm::ParkingLot | StructureAlgorithm::Crossbeam | StructureAlgorithm::DashMap => {
                Some(NOT_ALONE)
            }
            StructureAlgorithm::Valois => {
                Some("what a dead participant refers to is never free again: there is nothing to recover by")
            }
            _ => None,
        }
    }

    /// Returns whether processes cannot share its memory.
    pub const fn threads_only(self) -> bool {
        matches!(
            self,
            StructureAlgorithm::ParkingLot | StructureAlgorithm::Crossbeam | StructureAlgorithm::DashMap
        )
    }
}

/// The kind of participants that share a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharing {
    /// Processes.
    Processes,
    /// Threads of one process.
    Threads,
}

impl Sharing {
    /// Both, in the order in which tables of primitives show them.
    pub const ALL: [Sharing; 2] = [Sharing::Threads, Sharing::Processes];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Sharing::Processes => "processes",
            Sharing::Threads => "threads",
        }
    }
}

/// A structure under an algorithm, shared by processes or threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contest {
    /// The structure.
    pub structure: Structure,
    /// The algorithm.
    pub algorithm: StructureAlgorithm,
    /// The kind of participants.
    pub sharing: Sharing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_every_structure_has_rivals() {
        assert!(Structure::ALL.iter().all(|s| Structure::from_name(s.name()) == Some(*s)));
        assert!(StructureAlgorithm::ALL.iter().all(|a| StructureAlgorithm::from_name(a.name()) == Some(*a)));
        for structure in Structure::ALL {
            let rivals = StructureAlgorithm::ALL.iter().filter(|a| a.offers(structure)).count();
            assert!(rivals >= 6, "{structure:?}");
        }
        assert!(
            !StructureAlgorithm::DashMap.offers(Structure::Stack)
                && !StructureAlgorithm::HarrisMichael.offers(Structure::Fifo)
        );
    }
}
