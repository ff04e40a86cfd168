//! Memory for a structure that processes share, and the structure in it.

use towpath_machine::{Concurrent, Native};
use towpath_shm::Memory;
use towpath_structures::InPlace;
use towpath_structures::dcas::{DoubleCas, Guerraoui, Harris, Locked};
use towpath_structures::nonblocking::{
    Fifo, HarrisMichaelList, HashMap, List, PriorityQueue, Stack, ValoisList,
};
use towpath_sync::Lock;
use towpath_sync::locks::{Robust, TestAndTestAndSet};

use super::board::ALL;
use super::chains::{AsFifo, AsHashMap, AsList, AsPriorityQueue, AsStack};
use super::subject::Subject;
use super::under_lock::UnderLock;
use super::{Structure, StructureAlgorithm};
use towpath_host::Error;

/// Numbers of descriptors that a pool can have: sizes of objects in a segment are known
/// to the compiler.
pub const POOLS: [u32; 2] = [4_096, 100_000];

/// A DCAS's memory per participant; it has none per descriptor.
type Places = InPlace<1, ALL>;
type View = fn(&Memory) -> Result<&dyn Subject, Error>;

/// A structure in memory of its own.
pub struct Room {
    memory: Memory,
    view: View,
}

impl Room {
    /// Makes an empty structure with room for `pool` items.
    pub fn new(structure: Structure, algorithm: StructureAlgorithm, pool: u32) -> Result<Room, Error> {
        let made = if pool <= POOLS[0] {
            of::<4_097>(structure, algorithm)
        } else {
            of::<100_001>(structure, algorithm)
        };
        let Some((bytes, view)) = made else {
            let text = format!("{} has no {} that processes could share", algorithm.name(), structure.name());
            return Err(Error::NotAvailable(text));
        };
        let memory = Memory::anonymous(bytes).map_err(|e| Error::Other(Box::new(e)))?;
        Ok(Room { memory, view })
    }

    /// The structure.
    pub fn subject(&self) -> Result<&dyn Subject, Error> {
        (self.view)(&self.memory)
    }
}

fn view<T: Subject + Concurrent>(memory: &Memory) -> Result<&dyn Subject, Error> {
    let all = memory.slice::<T>(0, 1).map_err(|e| Error::Other(Box::new(e)))?;
    Ok(&all[0])
}

fn place<T: Subject + Concurrent>() -> (u64, View) {
    (size_of::<T>() as u64, view::<T>)
}

fn over<D: DoubleCas<Native> + Concurrent, const N: usize>(structure: Structure) -> (u64, View) {
    match structure {
        Structure::Stack => place::<Stack<Native, D, InPlace<N, ALL>>>(),
        Structure::Fifo => place::<Fifo<Native, D, InPlace<N, ALL>>>(),
        Structure::List => place::<List<Native, D, InPlace<N, ALL>>>(),
        Structure::HashMap => place::<HashMap<Native, D, InPlace<N, ALL>>>(),
        Structure::PriorityQueue => place::<PriorityQueue<Native, D, InPlace<N, ALL>>>(),
    }
}

fn under<L: Lock<Native> + Concurrent, const N: usize>(structure: Structure) -> (u64, View) {
    match structure {
        Structure::Stack => place::<UnderLock<AsStack, L, InPlace<N, ALL>>>(),
        Structure::Fifo => place::<UnderLock<AsFifo, L, InPlace<N, ALL>>>(),
        Structure::List => place::<UnderLock<AsList, L, InPlace<N, ALL>>>(),
        Structure::HashMap => place::<UnderLock<AsHashMap, L, InPlace<N, ALL>>>(),
        Structure::PriorityQueue => place::<UnderLock<AsPriorityQueue, L, InPlace<N, ALL>>>(),
    }
}

fn of<const N: usize>(structure: Structure, algorithm: StructureAlgorithm) -> Option<(u64, View)> {
    Some(match algorithm {
        StructureAlgorithm::Guerraoui => over::<Guerraoui<Native, Places>, N>(structure),
        StructureAlgorithm::Harris => over::<Harris<Native, Places>, N>(structure),
        StructureAlgorithm::Locked => over::<Locked<Native, Places>, N>(structure),
        StructureAlgorithm::Robust => under::<Robust<Native>, N>(structure),
        StructureAlgorithm::TestAndTestAndSet => under::<TestAndTestAndSet<Native>, N>(structure),
        StructureAlgorithm::HarrisMichael if structure == Structure::List => {
            place::<HarrisMichaelList<Native, InPlace<N, ALL>>>()
        }
        StructureAlgorithm::Valois if structure == Structure::List => {
            place::<ValoisList<Native, InPlace<N, ALL>>>()
        }
        _ => return None,
    })
}
