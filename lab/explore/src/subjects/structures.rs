//! The structures of type-stable memory over each DCAS, and DCAS itself.
//!
//! Not [`Bershad`]'s, whose readers see what never was (those of [`RolledBack`] look twice): that
//! is what `planted/bershad-readers` shows (G19); and a list in memory that is not type-stable is
//! [`towpath_structures::planted::ListRetyped`] (G18). Guerraoui's DCAS has two descriptors for
//! each participant here, so that they are used again.

use std::rc::Rc;

use towpath_machine::{Arena, Place, Processor};
use towpath_schedules::harness::{Both, Case, Container, Order, Roles, entries, exchange, lookups, swapping};
use towpath_schedules::{
    ExploredMemory, Explorer, KeyedObject, KeyedResult, Lookup, Map, Plan, Priorities, Set, SubjectRun,
    Transferred, Word,
};
use towpath_structures::Boxed;
use towpath_structures::dcas::{
    Actor, Bershad, Change, DcasError, DoubleCas, Guerraoui, GuerraouiVariant, Hardware, Harris, Locked,
    RolledBack,
};
use towpath_structures::nonblocking::{
    ArrayFifo, ArrayStack, DependencyMap, Fifo, HarrisMichaelList, HashMap, List, PageMap, PriorityQueue,
    StableError, Stack,
};
use towpath_sync::{Policy, Wait};

use super::{BUDGET, ExploredMember};

/// The families.
pub const FAMILIES: [&str; 11] = [
    "dcas",
    "stack",
    "fifo",
    "array-stack",
    "array-fifo",
    "list",
    "hash-map",
    "priority-queue",
    "page-map",
    "dependency-map",
    super::REPAIR,
];

/// Number of values for which a stack or a queue has room.
pub(super) const ROOM: usize = 4;

pub(super) struct Shrunk;

impl GuerraouiVariant for Shrunk {
    const PLACES: usize = 2;
}

pub(super) type Small = Guerraoui<Explorer, Boxed, Shrunk>;

/// Calls an operation on an object with keys.
macro_rules! by_key {
    ($it:expr, $actor:expr, $lookup:expr) => {
        match $lookup {
            Lookup::Insert(key, value) => $it.insert($actor, key, value),
            Lookup::Remove(key) => $it.remove($actor, key),
            Lookup::Get(key) => $it.get($actor, key),
        }
    };
}

/// All of them: right ones by family, then the planted faults.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    over::<Small>(cases, policy);
    over::<Harris<Explorer>>(cases, policy);
    over::<Hardware<Explorer>>(cases, policy);
    over::<Locked<Explorer>>(cases, policy);
    pair::<RolledBack<Explorer>>(cases, policy, "dcas/bershad-os");
    list_of::<RolledBack<Explorer>, true>(cases, policy, "list", "bershad-os");
    keyed(cases, policy, "list", "harris-michael", false, Map { replaces: false }, |memory, plan| {
        let list = HarrisMichaelList::<Explorer>::new(memory, entries(plan), plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| by_key!(list, actor, lookup)
    });
    cases.sort_by_key(|case| {
        let family = case.name.split('/').next().unwrap_or_default();
        FAMILIES.iter().position(|f| *f == family).unwrap_or(0)
    });
    pair::<Bershad<Explorer>>(cases, policy, "planted/bershad-readers");
    list_of::<Hardware<Explorer>, false>(cases, policy, "planted", "list-retyped");
}

fn over<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    pair::<D>(cases, policy, &format!("dcas/{}", D::NAME));
    containers::<D>(cases, policy);
    list_of::<D, true>(cases, policy, "list", D::NAME);
    maps::<D>(cases, policy);
}

pub(super) fn actor<R>(
    policy: Policy,
    cpu: &Explorer,
    act: impl FnOnce(&Actor<'_, Explorer, Wait>) -> R,
) -> R {
    let around = ExploredMember::new(cpu);
    let wait = Wait { policy, around: &around, budget: BUDGET };
    act(&Actor { cpu, wait: &wait, me: cpu.id() })
}

fn about(right: &str, blocking: bool) -> String {
    if blocking { right.into() } else { format!("{right}; no thread waits for the dead") }
}

pub(super) struct WordsSubject<D> {
    pub words: Vec<Word>,
    pub dcas: D,
    pub policy: Policy,
}

impl<D: DoubleCas<Explorer>> Both for WordsSubject<D> {
    fn read(&self, cpu: &Explorer, which: usize) -> u64 {
        let read = actor(self.policy, cpu, |me| self.dcas.read(me, &self.words[..], which as u32));
        read.unwrap_or_else(|error| panic!("read: {error}"))
    }
    fn write_third(&self, cpu: &Explorer, value: u64) {
        match actor(self.policy, cpu, |me| self.dcas.write(me, &self.words[..], 2, value)) {
            // As in `swap`.
            Err(DcasError::Abandoned) => {}
            other => other.unwrap_or_else(|error| panic!("write: {error}")),
        }
    }
    fn swap(&self, cpu: &Explorer, old: [u64; 2], new: [u64; 2]) -> bool {
        let change = |i: usize| Change { word: i as u32, old: old[i], new: new[i] };
        let done = actor(self.policy, cpu, |me| self.dcas.dcas(me, &self.words[..], [change(0), change(1)]));
        match done {
            // The dead thread held the lock: no other makes progress.
            Err(DcasError::Abandoned) => false,
            other => other.unwrap_or_else(|error| panic!("swap: {error}")),
        }
    }
}

fn pair<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy, name: &str) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let words = (0..3).map(|_| memory.word(Place::NewLine, 0)).collect();
        let words = WordsSubject { words, dcas: D::new(memory, plan.threads), policy };
        Ok(swapping(plan, memory, words, Roles::AllSwap, None))
    };
    let planted = name.starts_with("planted/");
    let about = if planted { "wrong on purpose".into() } else { about("linearizable", D::BLOCKING) };
    cases.push(Case { endures_deaths: !D::BLOCKING && !planted, ..Case::new(name, about, make) });
}

pub(super) struct StructureSubject<T> {
    pub it: T,
    pub policy: Policy,
}

macro_rules! container {
    ($structure:ident) => {
        impl<D: DoubleCas<Explorer>> Container for StructureSubject<Rc<$structure<Explorer, D>>> {
            fn put(&self, cpu: &Explorer, value: u64) -> Transferred {
                match actor(self.policy, cpu, |me| self.it.push(me, value)) {
                    Ok(()) => Transferred::Done,
                    Err(StableError::Exhausted) => Transferred::Full,
                    Err(error) => panic!("push: {error}"),
                }
            }
            fn take(&self, cpu: &Explorer) -> Transferred {
                match actor(self.policy, cpu, |me| self.it.pop(me)) {
                    Ok(Some(value)) => Transferred::Value(value),
                    Ok(None) => Transferred::Empty,
                    Err(error) => panic!("pop: {error}"),
                }
            }
        }
    };
}

container!(Stack);
container!(Fifo);
container!(ArrayStack);
container!(ArrayFifo);

fn containers<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    macro_rules! case {
        ($structure:ident, $name:literal, $order:ident, $ends:literal) => {
            let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
                let it = Rc::new($structure::<Explorer, D>::new(memory, ROOM, plan.threads));
                Ok(exchange(plan, memory, StructureSubject { it, policy }, Order::$order, ROOM, 1))
            };
            let about = about(concat!("linearizable, ", $ends), D::BLOCKING);
            let name = format!("{}/{}", $name, D::NAME);
            cases.push(Case { endures_deaths: !D::BLOCKING, ..Case::new(name, about, make) });
        };
    }
    case!(Stack, "stack", Lifo, "last in first out");
    case!(Fifo, "fifo", Fifo, "first in first out");
    case!(ArrayStack, "array-stack", Lifo, "last in first out");
    case!(ArrayFifo, "array-fifo", Fifo, "first in first out");
}

/// A case of lookups; `make` makes the object and says how it acts.
fn keyed<A>(
    cases: &mut Vec<Case>,
    policy: Policy,
    family: &str,
    name: &str,
    blocking: bool,
    specification: impl Into<KeyedObject>,
    make: impl Fn(&ExploredMemory, &Plan) -> A + 'static,
) where
    A: Fn(&Actor<'_, Explorer, Wait>, Lookup) -> Result<Option<u64>, StableError> + 'static,
{
    let specification = specification.into();
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        let act = make(memory, plan);
        let act = move |cpu: &Explorer, lookup| match actor(policy, cpu, |me| act(me, lookup)) {
            Ok(answer) => answer.map_or(KeyedResult::Nothing, KeyedResult::Value),
            Err(StableError::Exhausted) => KeyedResult::Full,
            Err(error) => panic!("{lookup:?}: {error}"),
        };
        Ok(lookups(plan, memory, specification, act))
    };
    let planted = family == "planted";
    let about = if planted { "wrong on purpose".into() } else { about("linearizable", blocking) };
    let name = format!("{family}/{name}");
    cases.push(Case { endures_deaths: !blocking && !planted, ..Case::new(name, about, make) });
}

fn list_of<D: DoubleCas<Explorer>, const STABLE: bool>(
    cases: &mut Vec<Case>,
    policy: Policy,
    family: &str,
    name: &str,
) {
    keyed(cases, policy, family, name, D::BLOCKING, Map { replaces: false }, |memory, plan| {
        let list = List::<Explorer, D, Boxed, STABLE>::new(memory, entries(plan), plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| by_key!(list, actor, lookup)
    });
}

fn maps<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy) {
    let (name, blocking) = (D::NAME, D::BLOCKING);
    let map = Map { replaces: true };
    keyed(cases, policy, "hash-map", name, blocking, map, |memory, plan| {
        let map = HashMap::<Explorer, D>::new(memory, 2 * entries(plan), 2, plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| by_key!(map, actor, lookup)
    });
    keyed(cases, policy, "priority-queue", name, blocking, Priorities, |memory, plan| {
        let queue = PriorityQueue::<Explorer, D>::new(memory, entries(plan), plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| match lookup {
            Lookup::Insert(priority, value) => queue.insert(actor, priority, value).map(|()| None),
            Lookup::Remove(_) => Ok(queue.pop(actor)?.map(|(_, value)| value)),
            Lookup::Get(_) => Ok(queue.first(actor)?.map(|(_, value)| value)),
        }
    });
    keyed(cases, policy, "page-map", name, blocking, map, |memory, plan| {
        // Keys 1 to 3: two pages of one region, one of another.
        let map = PageMap::<Explorer, D, Boxed, 1, 2, 2>::new(memory, 2 + plan.threads, plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| match lookup {
            Lookup::Insert(page, frame) => map.map(actor, page, frame),
            Lookup::Remove(page) => map.unmap(actor, page),
            Lookup::Get(page) => map.get(actor, page),
        }
    });
    // Of each object one dependent.
    keyed(cases, policy, "dependency-map", name, blocking, Set, |memory, plan| {
        let map = DependencyMap::<Explorer, D>::new(memory, 2 * entries(plan), 2, plan.threads);
        move |actor: &Actor<'_, Explorer, Wait>, lookup| {
            let was_there = match lookup {
                Lookup::Insert(object, _) => !map.insert(actor, object, 7)?,
                Lookup::Remove(object) => map.remove(actor, object, 7)?,
                Lookup::Get(object) => map.contains(actor, object, 7)?,
            };
            Ok(was_there.then_some(1))
        }
    });
}
