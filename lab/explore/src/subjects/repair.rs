//! Structures whose threads repair after deaths, and use nodes again soon.
//!
//! A thread that finds another one dead calls the structure's `recover`, between two of its own
//! operations, while others go on. At the end no node is lost: all are free. The operations are
//! those that make late readers meet a node's next life: some threads look up an entry, and others
//! move those around it.

mod successor;
mod walked;

use std::rc::Rc;

use towpath_machine::{Arena, Place};
use towpath_structures::dcas::{Bershad, DoubleCas, Guerraoui, Hardware, Harris, Locked, RolledBack};
use towpath_structures::nonblocking::{
    ArrayStack, Fifo, HarrisMichaelList, HashMap, List, Recover, StableError, Stack, ValoisList,
};
use towpath_structures::queues::{ConcurrentQueue, FetchOpArray, FetchOpTickets, MichaelScott};
use towpath_structures::queues::{PrakashLeeJohnson, Valois};
use towpath_structures::{Boxed, dcas::Actor};
use towpath_sync::{Policy, Surroundings, Wait};

use super::structures::{ROOM, Small, StructureSubject, WordsSubject, actor};
use super::{ExploredMember, QueueSubject, REPAIR};
use towpath_schedules::harness::{Care, Case, Container, Order, Roles, churn, entries, moves, swapping};
use towpath_schedules::{ExploredMemory, Explorer, KeyedResult, Lookup, Map, Plan, SubjectRun};

/// Number of repairs after which nothing may be pending, when no thread acts.
const ENOUGH: usize = 3;

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    words::<Small>(cases, policy, Roles::SomeLook, "guerraoui");
    words::<Guerraoui<Explorer>>(cases, policy, Roles::SomeLook, "guerraoui-of-16");
    words::<Harris<Explorer>>(cases, policy, Roles::SomeLook, "harris");
    words::<Harris<Explorer, Boxed, 2>>(cases, policy, Roles::SomeLook, "harris-of-2");
    words::<Harris<Explorer, Boxed, 2>>(cases, policy, Roles::AllSwap, "harris-all");
    words::<Small>(cases, policy, Roles::AllSwap, "guerraoui-all");
    words::<Hardware<Explorer>>(cases, policy, Roles::SomeLook, "hardware");
    words::<Locked<Explorer>>(cases, policy, Roles::SomeLook, "locked");
    words::<RolledBack<Explorer>>(cases, policy, Roles::SomeLook, "bershad-os");
    words::<Bershad<Explorer>>(cases, policy, Roles::Blind, "bershad");
    words::<Bershad<Explorer>>(cases, policy, Roles::Blind, "bershad-losing");
    successor::all(cases, policy);
    walked::all(cases, policy);
    cases.iter_mut().for_each(|case| case.extras.loses_stores |= case.name.ends_with("-losing"));
    structures::<Small>(cases, policy, "guerraoui");
    structures::<Harris<Explorer>>(cases, policy, "harris");
    structures::<Harris<Explorer, Boxed, 2>>(cases, policy, "harris-of-2");
    keyed(cases, policy, "list-harris-michael", Map { replaces: false }, |memory, plan| {
        Rc::new(HarrisMichaelList::<Explorer>::new(memory, entries(plan), plan.threads))
    });
    case(cases, "list-valois", false, move |plan, memory| {
        let list = ValoisList::<Explorer, Boxed>::new(memory, entries(plan), plan.threads);
        let act = move |cpu: &Explorer, lookup| answer(policy, cpu, |me| looked(&list, me, lookup));
        moves(plan, memory, Map { replaces: false }, act, None)
    });
    queue::<MichaelScott<Explorer>>(cases, policy, super::ROOM, "");
    queue::<PrakashLeeJohnson<Explorer>>(cases, policy, super::ROOM, "");
    queue::<Valois<Explorer>>(cases, policy, super::ROOM, "");
    queue::<FetchOpArray<Explorer>>(cases, policy, super::ROOM, "");
    queue::<FetchOpTickets<Explorer>>(cases, policy, super::ROOM, "");
    // With room for one value: full and empty in turns, and slots used again soon.
    queue::<FetchOpArray<Explorer>>(cases, policy, 1, "-of-1");
    queue::<FetchOpTickets<Explorer>>(cases, policy, 1, "-of-1");
}

fn case(
    cases: &mut Vec<Case>,
    name: &str,
    endures_deaths: bool,
    make: impl Fn(&Plan, &ExploredMemory) -> Rc<dyn SubjectRun> + 'static,
) {
    let about = match endures_deaths {
        true => "linearizable; the living repair, and nothing is lost",
        false => "linearizable",
    };
    let make = move |plan: &Plan, memory: &ExploredMemory| Ok(make(plan, memory));
    cases.push(Case { endures_deaths, ..Case::new(format!("{REPAIR}/{name}"), about, make) });
}

/// Returns whether a participant is dead, as a thread learns it.
pub(super) fn is_dead(cpu: &Explorer, participant: usize) -> bool {
    !ExploredMember::new(cpu).is_alive(participant as u32 + 1)
}

/// Repairs of a structure: one at a time, and at the end until nothing is pending.
///
/// Then no node is lost.
fn care<R: Recover<Explorer> + 'static>(it: &Rc<R>, policy: Policy) -> Care {
    let (repaired, inspected) = (it.clone(), it.clone());
    let once = move |it: &R, cpu: &Explorer| {
        let audit = actor(policy, cpu, |me| it.recover(me, |participant| is_dead(cpu, participant)));
        audit.unwrap_or_else(|error| panic!("recover: {error}"))
    };
    Care {
        repair: Box::new(move |cpu| {
            let _ = once(&repaired, cpu);
        }),
        inspect: Box::new(move |cpu| {
            let is_done = (0..ENOUGH).any(|_| once(&inspected, cpu).pending == 0);
            assert!(is_done, "suspects are pending though no thread acts");
            let inventory = actor(policy, cpu, |me| inspected.inventory(me));
            let inventory = inventory.unwrap_or_else(|error| panic!("inventory: {error}"));
            assert_eq!(inventory.free + inventory.reachable, inventory.all, "nodes, free and in it, of all");
        }),
    }
}

fn words<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy, roles: Roles, name: &str) {
    let endures = !D::BLOCKING;
    case(cases, &format!("dcas-{name}"), endures, move |plan, memory| {
        let words = (0..3).map(|_| memory.word(Place::NewLine, 0)).collect();
        let it = Rc::new(WordsSubject { words, dcas: D::new(memory, plan.threads), policy });
        let repaired = it.clone();
        let repair = move |cpu: &Explorer| {
            for dead in (0..repaired.dcas.participants()).filter(|p| is_dead(cpu, *p)) {
                let done = actor(policy, cpu, |me| repaired.dcas.recover(me, &repaired.words[..], dead));
                done.unwrap_or_else(|error| panic!("recover: {error}"));
            }
        };
        let care = Care { repair: Box::new(repair), inspect: Box::new(|_| {}) };
        swapping(plan, memory, it, roles, endures.then_some(care))
    });
}

fn container<C>(
    cases: &mut Vec<Case>,
    policy: Policy,
    name: String,
    order: Order,
    make: impl Fn(&ExploredMemory, &Plan) -> C + 'static,
) where
    C: Recover<Explorer> + 'static,
    StructureSubject<Rc<C>>: Container,
{
    case(cases, &name, true, move |plan, memory| {
        let it = Rc::new(make(memory, plan));
        let care = care(&it, policy);
        churn(plan, memory, StructureSubject { it, policy }, order, ROOM, Some(care))
    });
}

fn structures<D: DoubleCas<Explorer>>(cases: &mut Vec<Case>, policy: Policy, dcas: &str) {
    let name = |of: &str| format!("{of}-{dcas}");
    container(cases, policy, name("array-stack"), Order::Lifo, |memory, plan| {
        ArrayStack::<Explorer, D>::new(memory, ROOM, plan.threads)
    });
    container(cases, policy, name("stack"), Order::Lifo, |memory, plan| {
        Stack::<Explorer, D>::new(memory, ROOM, plan.threads)
    });
    container(cases, policy, name("fifo"), Order::Fifo, |memory, plan| {
        Fifo::<Explorer, D>::new(memory, ROOM, plan.threads)
    });
    keyed(cases, policy, &name("list"), Map { replaces: false }, |memory, plan| {
        Rc::new(List::<Explorer, D>::new(memory, entries(plan), plan.threads))
    });
    keyed(cases, policy, &name("hash-map"), Map { replaces: true }, |memory, plan| {
        Rc::new(HashMap::<Explorer, D>::new(memory, entries(plan), 2, plan.threads))
    });
}

/// An object with keys.
trait ByKey {
    fn insert(&self, actor: &Actor<'_, Explorer, Wait>, key: u64, value: u64) -> Looked;
    fn remove(&self, actor: &Actor<'_, Explorer, Wait>, key: u64) -> Looked;
    fn get(&self, actor: &Actor<'_, Explorer, Wait>, key: u64) -> Looked;
}

type Looked = Result<Option<u64>, StableError>;

macro_rules! by_key {
    ($([$($of:tt)*] $it:ty;)*) => { $(
        impl<$($of)*> ByKey for $it {
            fn insert(&self, actor: &Actor<'_, Explorer, Wait>, key: u64, value: u64) -> Looked {
                <$it>::insert(self, actor, key, value)
            }
            fn remove(&self, actor: &Actor<'_, Explorer, Wait>, key: u64) -> Looked {
                <$it>::remove(self, actor, key)
            }
            fn get(&self, actor: &Actor<'_, Explorer, Wait>, key: u64) -> Looked {
                <$it>::get(self, actor, key)
            }
        }
    )* };
}

by_key! {
    [D: DoubleCas<Explorer>] List<Explorer, D>;
    [D: DoubleCas<Explorer>] HashMap<Explorer, D>;
    [] HarrisMichaelList<Explorer>;
    [] ValoisList<Explorer, Boxed>;
}

fn looked(it: &impl ByKey, actor: &Actor<'_, Explorer, Wait>, lookup: Lookup) -> Looked {
    match lookup {
        Lookup::Insert(key, value) => it.insert(actor, key, value),
        Lookup::Remove(key) => it.remove(actor, key),
        Lookup::Get(key) => it.get(actor, key),
    }
}

fn answer(
    policy: Policy,
    cpu: &Explorer,
    act: impl FnOnce(&Actor<'_, Explorer, Wait>) -> Looked,
) -> KeyedResult {
    match actor(policy, cpu, act) {
        Ok(found) => found.map_or(KeyedResult::Nothing, KeyedResult::Value),
        Err(StableError::Exhausted) => KeyedResult::Full,
        Err(error) => panic!("{error}"),
    }
}

fn keyed<R: Recover<Explorer> + ByKey + 'static>(
    cases: &mut Vec<Case>,
    policy: Policy,
    name: &str,
    specification: Map,
    make: impl Fn(&ExploredMemory, &Plan) -> Rc<R> + 'static,
) {
    case(cases, name, true, move |plan, memory| {
        let it = make(memory, plan);
        let care = care(&it, policy);
        let act = move |cpu: &Explorer, lookup| answer(policy, cpu, |me| looked(&*it, me, lookup));
        moves(plan, memory, specification, act, Some(care))
    });
}

fn queue<Q: ConcurrentQueue<Explorer>>(cases: &mut Vec<Case>, policy: Policy, room: usize, of: &str) {
    let name = format!("queue-{}{of}", Q::NAME);
    case(cases, &name, !Q::BLOCKING, move |plan, memory| {
        let queue = Q::new(memory, room, plan.threads);
        churn(plan, memory, QueueSubject { queue, policy }, Order::Fifo, room, None)
    });
}
