//! Type-stable memory, and structures in it that threads, processes and their signal
//! handlers share: no lock, no allocation after they are made, no descriptor lost when a process
//! dies.
//!
//! **Between processes of a world**: [`open`] gives a [`Handle`] on the structure of that name,
//! with the methods that one expects. [`in_world`] names the structures and their sizes.
//!
//! ```no_run
//! use towpath::World;
//! use towpath::structures::nonblocking;
//!
//! # fn main() -> Result<(), towpath::Error> {
//! let world = World::join()?;
//! // Up to 255 keys, up to 8 participants: processes, or threads of them.
//! let table = nonblocking::open::<nonblocking::in_world::HashMap<256, 8>>(&world, "prices")?;
//! table.insert(7, 19).expect("room for one key");
//! assert_eq!(table.get(7), Ok(Some(19)));
//! # Ok(())
//! # }
//! ```
//!
//! **In signal handlers**: a clone of the thread's handle; it may interrupt the same
//! operation on the same structure ([`SignalEndpoint`](crate::SignalEndpoint)).
//!
//! **After a death**: no participant waits for the dead, and their operations have happened or have
//! not. The descriptors that they had in their hands are missing until a survivor calls
//! [`Handle::recover`], or a successor takes their place ([`open`]). A value that a dead process
//! had popped is gone with it.
//!
//! **Between threads**, at any size: the structures themselves, made with `new`; each of their
//! operations takes an `Actor`, the participant that acts ([`towpath_structures::dcas::Actor`]).
#![allow(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use towpath_machine::{Concurrent, Native, Object, TypeText};
use towpath_structures::InPlace;
use towpath_structures::dcas::{Actor, DoubleCas};
use towpath_sync::locks::Robust;
use towpath_sync::{Mutex, Spinning};

pub use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, Audit, DependencyMap, Fifo, HarrisMichaelList, HashMap, HeldNode, Inventory, List,
    PageMap, Pool, PriorityQueue, Recover, StableError, Stack, ValoisList,
};

use crate::{Error, ParticipantId, Shared, World};

/// Structures as they lie in a world: with `N` descriptors, of which one is never
/// used (and one more in a [`Fifo`]), for at most `E` participants at a time, over
/// [`Guerraoui`](towpath_structures::dcas::Guerraoui)'s DCAS.
///
/// A descriptor takes 64 bytes (80 in a [`HashMap`], with its bucket), a participant 1,280, and a
/// world has 64 KiB for all its shared objects, unless it is made with more
/// ([`WorldConfig::object_bytes`](crate::WorldConfig::object_bytes), `towpath run --objects 16M`).
pub mod in_world {
    use towpath_machine::Native;
    use towpath_structures::InPlace;
    use towpath_structures::dcas::Guerraoui;

    macro_rules! in_world {
        ($($structure:ident)*) => {$(
            #[doc = concat!("See [`nonblocking::", stringify!($structure), "`](super::", stringify!($structure), ").")]
            pub type $structure<const N: usize, const E: usize> =
                super::$structure<Native, Guerraoui<Native, InPlace<N, E>>, InPlace<N, E>>;
        )*};
    }

    in_world!(Stack Fifo ArrayStack ArrayFifo List HashMap PriorityQueue DependencyMap);

    /// See [`nonblocking::PageMap`](super::PageMap); with `A × B × C` pages, and `N` − 1
    /// tables.
    pub type PageMap<
        const N: usize,
        const E: usize,
        const A: usize = 8,
        const B: usize = 8,
        const C: usize = 64,
    > = super::PageMap<Native, Guerraoui<Native, InPlace<N, E>>, InPlace<N, E>, A, B, C>;
}

/// Structure that [`open`] opens.
pub trait Openable: Concurrent + Object + Send + Recover<Native> {
    /// Number of participants that it is for.
    const PARTICIPANTS: usize;
    /// Type of the roster: a word for each participant.
    type Roster: Concurrent + AsRef<[AtomicU64]>;
}

/// Structure in a world, with the places of its participants.
///
/// **Crashes.** A place is taken and given back under a robust lock, by one store each; the places
/// of the dead are free after the next [`Handle::recover`]. A dead holder of the lock leaves
/// nothing half done.
#[repr(C)]
struct Placed<T: Openable> {
    /// Owner of each place: a participant's bits, or 0.
    roster: T::Roster,
    /// Lock of participants that take a place or look after the dead; not for operations.
    turn: Mutex<AtomicU64, Robust<Native, 4>>,
    structure: T,
}

// SAFETY: `repr(C)`, made of plain values and a mutex of one; all zero is an empty structure
// without users; the text names the structure's type.
unsafe impl<T: Openable> Object for Placed<T> {
    const NAMES_USERS: bool = true;

    fn describe(f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "structure v2<{}>", TypeText::<T>::default())
    }
}

/// The structure that a handle refers to.
fn placed<T: Openable>(shared: &Shared<Placed<T>>) -> &Placed<T> {
    // SAFETY: aligned, mapped as long as the handle lives; any bits are a `Placed`, its words are
    // atomic, and its mutex is locked by `in_turn` only.
    unsafe { shared.as_ptr().as_ref() }
}

/// A structure in a world, as one participant uses it. A clone is the same participant:
/// it is for signal handlers of the same thread. Other threads open it for themselves. When the
/// last clone is dropped, the place is free.
pub struct Handle<T: Openable>(Arc<HandlePlace<T>>);

struct HandlePlace<T: Openable> {
    world: World,
    placed: Shared<Placed<T>>,
    number: usize,
    /// The process that has taken it. A child that is forked from it drops copies.
    process: u32,
}

impl<T: Openable> Drop for HandlePlace<T> {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            return;
        }
        // (H1) Release: pairs with the Acquire (H2) in `open` of the next owner of the place.
        placed(&self.placed).roster.as_ref()[self.number].store(0, Ordering::Release);
    }
}

impl<T: Openable> Clone for Handle<T> {
    fn clone(&self) -> Self {
        Handle(self.0.clone())
    }
}

impl<T: Openable> core::fmt::Debug for Handle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Handle").field("participant", &self.0.number).finish_non_exhaustive()
    }
}

/// Opens the structure of that name in a world, making it (empty) if there is none, and
/// takes one of its places for the calling thread. Recovers what was left by the dead whose place
/// it takes.
///
/// # Errors
///
/// [`Error::NotInitialised`] if the process has not entered the world; [`Error::Resource`] if all
/// places are taken; [`Error::World`] if the world has no room for it, or something else of this
/// name; [`Error::BadWorld`] if its memory makes no sense.
///
/// ```
/// use towpath::structures::nonblocking::{self, in_world};
///
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// // Up to 15 values, up to 2 participants.
/// let jobs = nonblocking::open::<in_world::Fifo<16, 2>>(&world, "jobs")?;
/// jobs.push(7)?;
/// assert_eq!(jobs.pop()?, Some(7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn open<T: Openable>(world: &World, name: &str) -> Result<Handle<T>, Error> {
    let me = world
        .entered()
        .ok_or_else(|| Error::NotInitialised("this process has not entered the world".into()))?;
    let shared: Shared<Placed<T>> = world.shared(name, |placed: &Placed<T>| placed.turn.prepare())?;
    let placed = placed(&shared);
    let roster = placed.roster.as_ref();
    let most = roster.len();
    let number = in_turn(world, placed, || {
        // (H2) Acquire: pairs with the Release (H1) of the last owner, and with (H3).
        let owner = |place: &AtomicU64| place.load(Ordering::Acquire);
        let places = || roster.iter();
        let number = places()
            .position(|place| owner(place) == 0)
            .or_else(|| places().position(|place| is_dead(world, owner(place))))
            .ok_or_else(|| {
                Error::Resource(format!(
                    "all {most} places of {name:?} are taken: make it for more participants, or drop handles"
                ))
            })?;
        // (H3) Release: from here on it is the caller's, and survivors recover it if the caller
        // dies; pairs with the Acquire (H2).
        roster[number].store(me.to_bits(), Ordering::Release);
        // Descriptors that others move just now are put down soon.
        while recover(placed, number, |p| p == number)?.pending > 0 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(number)
    })?;
    let process = std::process::id();
    Ok(Handle(Arc::new(HandlePlace { world: world.clone(), placed: shared, number, process })))
}

fn is_dead(world: &World, owner: u64) -> bool {
    owner != 0 && !world.is_alive(ParticipantId::from_bits(owner))
}

/// Acts in turn: a place is not taken while a survivor takes its last owner for dead.
fn in_turn<T: Openable, R>(
    world: &World,
    placed: &Placed<T>,
    act: impl FnOnce() -> Result<R, Error>,
) -> Result<R, Error> {
    // SAFETY: it lies in the world's memory and is locked here only; the callers hold a handle on
    // an object that names its users (`Placed`).
    let mut turn = unsafe { world.lock(&placed.turn) }.map_err(|error| Error::BadWorld(error.to_string()))?;
    if turn.owner_died() {
        turn.make_consistent(); // There is nothing that it could have half done.
    }
    act()
}

fn recover<T: Openable>(
    placed: &Placed<T>,
    me: usize,
    is_dead: impl Fn(usize) -> bool,
) -> Result<Audit, Error> {
    let cpu = Native::with_id(me as u32);
    let actor = Actor { cpu: &cpu, wait: &Spinning, me };
    placed.structure.recover(&actor, is_dead).map_err(|error| Error::BadWorld(error.to_string()))
}

impl<T: Openable> Handle<T> {
    /// Returns the number of this participant of the structure.
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let stack = nonblocking::open::<in_world::Stack<16, 2>>(&world, "stack")?;
    /// assert!(stack.participant() < 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn participant(&self) -> usize {
        self.0.number
    }

    #[inline(always)]
    fn act<R>(&self, act: impl FnOnce(&T, &Actor<'_, Native, Spinning>) -> R) -> R {
        let me = self.0.number;
        let cpu = Native::with_id(me as u32);
        act(&placed(&self.0.placed).structure, &Actor { cpu: &cpu, wait: &Spinning, me })
    }

    /// Frees the descriptors that the dead had in their hands, and their places. Any
    /// participant may do that at any time, while the others go on (except those that recover,
    /// too, or open: they wait). Call it again if something is [`Audit::pending`].
    ///
    /// # Errors
    ///
    /// [`Error::BadWorld`] if the memory makes no sense.
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let stack = nonblocking::open::<in_world::Stack<16, 2>>(&world, "stack")?;
    /// assert_eq!(stack.recover()?.pending, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn recover(&self) -> Result<Audit, Error> {
        let HandlePlace { world, placed: shared, number, .. } = &*self.0;
        let placed = placed(shared);
        in_turn(world, placed, || {
            // (H2) Acquire: pairs with the Release (H1), (H3) of owners.
            let roster = placed.roster.as_ref();
            let dead: Vec<bool> =
                roster.iter().map(|place| is_dead(world, place.load(Ordering::Acquire))).collect();
            let audit = recover(placed, *number, |p| dead[p])?;
            if audit.pending == 0 {
                for (place, _) in roster.iter().zip(&dead).filter(|(_, dead)| **dead) {
                    // (H1) Release: pairs with the Acquire (H2) of the next owner.
                    place.store(0, Ordering::Release);
                }
            }
            Ok(audit)
        })
    }

    /// Returns the numbers of descriptors that are free, and that are in the structure:
    /// see [`Recover::inventory`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let stack = nonblocking::open::<in_world::Stack<16, 2>>(&world, "stack")?;
    /// stack.push(7)?;
    /// assert_eq!(stack.inventory()?.reachable, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inventory(&self) -> Result<Inventory, StableError> {
        self.act(|structure, actor| structure.inventory(actor))
    }
}

macro_rules! handle {
    ($($structure:ident { $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $example:literal;)* })*) => {$(
        impl<D: DoubleCas<Native> + Concurrent + Object, const N: usize, const E: usize> Openable
            for $structure<Native, D, InPlace<N, E>>
        {
            const PARTICIPANTS: usize = E;
            type Roster = [AtomicU64; E];
        }

        #[doc = concat!("A [`", stringify!($structure), "`] in a world.")]
        impl<D: DoubleCas<Native> + Concurrent + Object, const N: usize, const E: usize>
            Handle<$structure<Native, D, InPlace<N, E>>>
        {
            $(
                #[doc = concat!("See [`", stringify!($structure), "::", stringify!($name), "`].")]
                ///
                /// # Errors
                ///
                /// See [`StableError`].
                ///
                /// ```
                /// # use towpath::structures::nonblocking::{self, in_world};
                /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
                /// # world.enter(None)?;
                #[doc = concat!(
                    "type Shared = in_world::", stringify!($structure), "<16, 2>; // for 2 participants"
                )]
                /// let shared = nonblocking::open::<Shared>(&world, "shared")?;
                #[doc = $example]
                /// # Ok::<(), Box<dyn std::error::Error>>(())
                /// ```
                pub fn $name(&self, $($argument: $type),*) -> Result<$result, StableError> {
                    self.act(|structure, actor| structure.$name(actor $(, $argument)*))
                }
            )*
        }
    )*};
}

handle! {
    Stack {
        fn push(value: u64) -> () = "shared.push(7)?;";
        fn pop() -> Option<u64> = "assert_eq!(shared.pop()?, None);";
    }
    Fifo {
        fn push(value: u64) -> () = "shared.push(7)?;";
        fn pop() -> Option<u64> = "assert_eq!(shared.pop()?, None);";
    }
    ArrayStack {
        fn push(value: u64) -> () = "shared.push(7)?;";
        fn pop() -> Option<u64> = "assert_eq!(shared.pop()?, None);";
    }
    ArrayFifo {
        fn push(value: u64) -> () = "shared.push(7)?;";
        fn pop() -> Option<u64> = "assert_eq!(shared.pop()?, None);";
    }
    List {
        fn insert(key: u64, value: u64) -> Option<u64> = "assert_eq!(shared.insert(7, 19)?, None);";
        fn remove(key: u64) -> Option<u64> = "assert_eq!(shared.remove(7)?, None);";
        fn get(key: u64) -> Option<u64> = "assert_eq!(shared.get(7)?, None);";
        fn for_each(from: u64, each: impl FnMut(u64, u64) -> bool) -> bool
            = "shared.for_each(0, |key, value| {\n    println!(\"{key}: {value}\");\n    true // go on\n})?;";
    }
    HashMap {
        fn insert(key: u64, value: u64) -> Option<u64> = "assert_eq!(shared.insert(7, 19)?, None);";
        fn insert_evicting(key: u64, value: u64, write_back: impl FnMut(u64, u64)) -> Option<u64>
            = "shared.insert_evicting(7, 19, |key, value| println!(\"evicted {key}: {value}\"))?;";
        fn remove(key: u64) -> Option<u64> = "assert_eq!(shared.remove(7)?, None);";
        fn get(key: u64) -> Option<u64> = "assert_eq!(shared.get(7)?, None);";
        fn for_each(each: impl FnMut(u64, u64) -> bool) -> bool
            = "shared.for_each(|key, value| {\n    println!(\"{key}: {value}\");\n    true // go on\n})?;";
    }
    PriorityQueue {
        fn insert(priority: u64, value: u64) -> () = "shared.insert(3, 19)?;";
        fn pop() -> Option<(u64, u64)> = "assert_eq!(shared.pop()?, None);";
        fn pop_due(now: u64) -> Option<(u64, u64)>
            = "shared.insert(3, 19)?;\nassert_eq!(shared.pop_due(2)?, None); // not before 3";
        fn remove(priority: u64, value: u64) -> bool = "assert!(!shared.remove(3, 19)?);";
        fn first() -> Option<(u64, u64)> = "assert_eq!(shared.first()?, None);";
    }
    DependencyMap {
        fn insert(object: u64, dependent: u64) -> bool = "assert!(shared.insert(1, 7)?);";
        fn remove(object: u64, dependent: u64) -> bool = "assert!(!shared.remove(1, 7)?);";
        fn remove_any(object: u64) -> Option<u64> = "assert_eq!(shared.remove_any(1)?, None);";
        fn contains(object: u64, dependent: u64) -> bool = "assert!(!shared.contains(1, 7)?);";
        fn for_each(object: u64, each: impl FnMut(u64) -> bool) -> bool
            = "shared.for_each(1, |dependent| {\n    println!(\"{dependent}\");\n    true // go on\n})?;";
    }
}

impl<D, const N: usize, const E: usize, const A: usize, const B: usize, const C: usize> Openable
    for PageMap<Native, D, InPlace<N, E>, A, B, C>
where
    D: DoubleCas<Native> + Concurrent + Object,
{
    const PARTICIPANTS: usize = E;
    type Roster = [AtomicU64; E];
}

/// A [`PageMap`] in a world.
impl<D, const N: usize, const E: usize, const A: usize, const B: usize, const C: usize>
    Handle<PageMap<Native, D, InPlace<N, E>, A, B, C>>
where
    D: DoubleCas<Native> + Concurrent + Object,
{
    /// See [`PageMap::map`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let pages = nonblocking::open::<in_world::PageMap<16, 2>>(&world, "pages")?;
    /// assert_eq!(pages.map(70, 5)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn map(&self, page: u64, frame: u64) -> Result<Option<u64>, StableError> {
        self.act(|pages, actor| pages.map(actor, page, frame))
    }

    /// See [`PageMap::unmap`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let pages = nonblocking::open::<in_world::PageMap<16, 2>>(&world, "pages")?;
    /// assert_eq!(pages.unmap(70)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unmap(&self, page: u64) -> Result<Option<u64>, StableError> {
        self.act(|pages, actor| pages.unmap(actor, page))
    }

    /// See [`PageMap::get`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let pages = nonblocking::open::<in_world::PageMap<16, 2>>(&world, "pages")?;
    /// assert_eq!(pages.get(70)?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get(&self, page: u64) -> Result<Option<u64>, StableError> {
        self.act(|pages, actor| pages.get(actor, page))
    }

    /// See [`PageMap::unload`].
    ///
    /// # Errors
    ///
    /// See [`StableError`].
    ///
    /// ```
    /// # use towpath::structures::nonblocking::{self, in_world};
    /// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
    /// # world.enter(None)?;
    /// let pages = nonblocking::open::<in_world::PageMap<16, 2>>(&world, "pages")?;
    /// pages.unload(70, |page, frame| println!("page {page} was in frame {frame}"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unload(&self, page: u64, write_back: impl FnMut(u64, u64)) -> Result<bool, StableError> {
        self.act(|pages, actor| pages.unload(actor, page, write_back))
    }
}
