//! Identity of named objects: kind, version, parameters, size and alignment; a mismatch
//! is an error that names both.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

use towpath::machine::{Native, OwnLine, TypeText};
use towpath::structures::nonblocking::{self, HarrisMichaelList, ValoisList, in_world};
use towpath::structures::{InPlace, queues};
use towpath::sync::barriers::Dissemination;
use towpath::sync::locks::{Posix, Robust, Ticket, TicketTwoLines};
use towpath::{Error, Mutex, Object, Plain, World, WorldConfig, WorldError};

fn world() -> World {
    let config = WorldConfig { object_bytes: 4 << 20, ..WorldConfig::new(2) };
    let world = towpath::create(None, &config).unwrap();
    world.enter(None).unwrap();
    world
}

fn text<T: Object>() -> String {
    TypeText::<T>::default().to_string()
}

/// Opens a name as another type than it has: the error must name both types.
fn refused<Created: Object, Opened: Object>(world: &World) {
    let name = format!("o{}", world_objects());
    world.shared::<Created>(&name, |_| ()).unwrap();
    world.shared::<Created>(&name, |_| unreachable!("it exists")).unwrap();
    match world.shared::<Opened>(&name, |_| ()) {
        Err(error @ WorldError::OtherType { .. }) => {
            let said = error.to_string();
            assert!(said.contains(&text::<Created>()) && said.contains(&text::<Opened>()), "{said}");
        }
        other => panic!("{} opened as {}: {other:?}", text::<Created>(), text::<Opened>()),
    }
}

fn world_objects() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    COUNT.fetch_add(1, SeqCst)
}

#[test]
fn other_types_of_the_same_size_are_refused() {
    type M = Mutex<[AtomicU64; 8]>;
    const LINES: usize = size_of::<M>() / 64;
    let world = world();
    refused::<M, [OwnLine<AtomicU64>; LINES]>(&world);
    refused::<[OwnLine<AtomicU64>; LINES], M>(&world);
    refused::<AtomicU64, [AtomicU32; 2]>(&world);
    refused::<[AtomicU64; 2], [[AtomicU64; 1]; 2]>(&world);
    refused::<OwnLine<AtomicU64>, OwnLine<AtomicU32>>(&world);
    refused::<Mutex<[AtomicU64; 2], Robust<Native, 4>>, Mutex<[AtomicU64; 2], Robust<Native, 5>>>(&world);
    refused::<Mutex<AtomicU64, Posix<Native>>, Mutex<AtomicU64, TicketTwoLines<Native>>>(&world);
    refused::<Ticket<Native>, TicketTwoLines<Native>>(&world);
    type Room = InPlace<8, 2>;
    refused::<HarrisMichaelList<Native, Room>, ValoisList<Native, Room>>(&world);
    refused::<queues::FetchOpArray<Native, Room>, queues::FetchOpTickets<Native, Room>>(&world);
    refused::<Dissemination<Native, 4>, [AtomicU64; 4]>(&world);
}

#[test]
fn structures_of_the_same_size_are_refused() {
    let world = world();
    let stack = nonblocking::open::<in_world::Stack<6, 2>>(&world, "jobs").unwrap();
    (1..=3).for_each(|job| stack.push(job).unwrap());
    let Err(Error::World(error)) = nonblocking::open::<in_world::Fifo<5, 2>>(&world, "jobs") else {
        panic!("a stack opened as a queue")
    };
    let said = error.to_string();
    assert!(said.contains("stack v1<6, 2") && said.contains("fifo v1<5, 2"), "{said}");
    assert!(nonblocking::open::<in_world::ArrayStack<6, 2>>(&world, "jobs").is_err());
    assert!(nonblocking::open::<in_world::Stack<6, 3>>(&world, "jobs").is_err());
    // The former object is untouched, and found by the right type.
    let again = nonblocking::open::<in_world::Stack<6, 2>>(&world, "jobs").unwrap();
    assert_eq!((again.pop(), stack.pop(), again.pop()), (Ok(Some(3)), Ok(Some(2)), Ok(Some(1))));
}

/// A text that does not fit into a slot is told apart from another one that begins like
/// it.
#[test]
fn long_type_texts_are_told_apart() {
    #[repr(transparent)]
    struct Long<const LAST: char>(AtomicU64);
    // SAFETY: `repr(transparent)` around an atomic; its text names its parameter.
    #[allow(unsafe_code)]
    unsafe impl<const LAST: char> Object for Long<LAST> {
        fn describe(f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{}{LAST}", "x".repeat(300))
        }
    }
    let world = world();
    world.shared::<Long<'a'>>("long", |_| ()).unwrap();
    world.shared::<Long<'a'>>("long", |_| ()).unwrap();
    assert!(matches!(world.shared::<Long<'b'>>("long", |_| ()), Err(WorldError::OtherType { .. })));
}

#[derive(Plain, Clone, Copy, Debug, Default, PartialEq)]
#[repr(C)]
struct Account {
    /// A doc comment is an attribute, too.
    pub balance: i64,
    pub(crate) limits: [u32; 2],
    r#type: (u16, u16),
    unused: [u8; 4],
}

#[derive(Plain, Clone, Copy, Default)]
#[repr(transparent)]
struct Cents(u64);

#[derive(Plain, Clone, Copy)]
#[repr(C)]
struct Pair<A, B: Copy = u32, const N: usize = 1>(pub (A, A), [B; N])
where
    A: Clone;

#[derive(Plain)]
#[repr(C)]
struct Nothing;

#[test]
fn derived_type_names_its_fields_and_their_types() {
    assert_eq!(text::<Cents>(), "Cents {u64}");
    assert_eq!(text::<Nothing>(), "Nothing {}");
    assert_eq!(text::<Pair<u64, u32, 2>>(), "Pair {(u64, u64), [u32; 2]}");
    let account = "Account {balance: i64, limits: [u32; 2], r#type: (u16, u16), unused: [u8; 4]}";
    assert_eq!(text::<Account>(), account);
    assert_eq!(text::<[Account; 2]>(), format!("[{account}; 2]"));
}

#[test]
fn derived_value_under_a_lock_keeps_its_fields() {
    let world = world();
    let accounts = world.mutex("accounts", [Account::default(); 3]).unwrap();
    accounts.lock().unwrap()[1].balance = -5;
    let again = world.mutex("accounts", [Account::default(); 3]).unwrap();
    assert_eq!(again.lock().unwrap()[1], Account { balance: -5, ..Account::default() });
    let first = Pair::<u8, u8>((1, 2), [3]);
    world.rw_lock("pair", first).unwrap().write().unwrap().1[0] += 7;
    assert_eq!(world.rw_lock("pair", first).unwrap().read().unwrap().1, [10]);
    // The same fields under another name.
    refused::<Mutex<Cents>, Mutex<u64>>(&world);
}

#[test]
fn large_value_needs_little_more_stack_than_its_size() {
    const BYTES: usize = 1 << 20;
    let make = || {
        let config = WorldConfig { object_bytes: 4 << 20, ..WorldConfig::new(1) };
        let world = towpath::create(None, &config).unwrap();
        world.enter(None).unwrap();
        let table = world.mutex("table", [7u8; BYTES]).unwrap();
        table.lock().unwrap()[5] += 1;
        let prices = world.rw_lock("prices", [7u8; BYTES]).unwrap();
        assert_eq!((table.lock().unwrap()[5], prices.read().unwrap()[BYTES - 1]), (8, 7));
    };
    // Two values at this function's call sites, and half of one more.
    let thread = std::thread::Builder::new().stack_size(2 * BYTES + BYTES / 2);
    thread.spawn(make).unwrap().join().unwrap();
}
