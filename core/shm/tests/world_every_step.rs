//! Kills or stops a process after instruction k of making, opening, entering, leaving and
//! dropping a world by name: the next `create` or `open` works, what is left is listed and can be
//! removed, and nothing waits for the one that stands still. And of making a named object among
//! 200: it is there, prepared, or it is not, and no byte of the heap is lost.
//!
//! `cargo test -p towpath-shm --test world_every_step -- every` does it for every k (names of an
//! act, `kill` or `stop` choose among the cases; making one takes hours then). In the ordinary
//! tests k grows by a half at a time.
//!
//! This process is the tracer, the judge and the other user of the names; it has one thread.
#![allow(unsafe_code)]

use std::error::Error as StdError;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use towpath_machine::Native;
use towpath_shm::{Error, Leftover, World, WorldSpec, leftovers};
use towpath_testkit::{Child, Choice, KnownPath, Victim, mark, share_cases_among, shared_words, watchdog};

/// The name in question, and another one.
const NAME: &str = "canal";
const OTHER: &str = "river";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    /// Makes a world whose name is free.
    Create,
    /// Makes a world in the place of a dead one.
    Replace,
    /// Opens a world that the judge has entered.
    Open,
    /// Enters it.
    Enter,
    /// Leaves it.
    Leave,
    /// Drops the last handle of a world: the name goes.
    Drop,
    /// Makes a named object, where many are.
    Object,
}

const ACTS: [(Act, &str); 7] = [
    (Act::Object, "object"),
    (Act::Create, "create"),
    (Act::Replace, "replace"),
    (Act::Open, "open"),
    (Act::Enter, "enter"),
    (Act::Leave, "leave"),
    (Act::Drop, "drop"),
];

fn spec(name: &str) -> WorldSpec {
    WorldSpec { name: Some(name.into()), processes: 3, area_bytes: 4096, object_bytes: 0, params: [7; 16] }
}

/// Leftovers but those of the process that stands still: its locks may have kept them
/// from being removed.
fn dead() -> Vec<Leftover> {
    leftovers().unwrap().into_iter().filter(|world| !world.alive).collect()
}

/// The victim's act; between the marks it is stepped. Names that the judge has taken
/// meanwhile are no failure.
fn suffer(act: Act) -> Result<(), Box<dyn StdError>> {
    // Work that is done only once in a process is done before.
    Native::switch_cost();
    let world = match act {
        Act::Create | Act::Replace | Act::Open => None,
        Act::Enter => Some(World::open(NAME)?),
        Act::Leave | Act::Object => {
            let world = World::open(NAME)?;
            world.enter(Some(1))?;
            Some(world)
        }
        Act::Drop => Some(World::create(&spec(NAME))?),
    };
    mark();
    let outcome = match act {
        Act::Create | Act::Replace => World::create(&spec(NAME)).map(Some),
        Act::Open => World::open(NAME).map(Some),
        Act::Enter => world.as_ref().map_or(Ok(()), |w| w.enter(Some(1))).map(|()| None),
        Act::Leave => world.as_ref().map_or(Ok(()), World::leave).map(|()| None),
        Act::Object => world.as_ref().map_or(Ok(()), |w| make_object(w, "victims")).map(|()| None),
        Act::Drop => {
            drop(world);
            mark();
            return Ok(());
        }
    };
    mark();
    match outcome {
        Ok(_) | Err(Error::NameTaken { .. } | Error::NoSuchWorld { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A dead world of the name: its maker was killed.
fn leave_a_dead_world() {
    let made = &shared_words(1)[0];
    let child = Child::fork(|| {
        std::mem::forget(World::create(&spec(NAME)).unwrap());
        made.store(1, SeqCst);
        loop {
            std::thread::park();
        }
    });
    while made.load(SeqCst) == 0 {
        std::thread::yield_now();
    }
    child.kill();
    assert_eq!(dead().len(), 1, "a dead world is listed");
}

/// The state before an act: the world that the judge keeps meanwhile, if the act needs
/// one.
fn prepare(act: Act) -> Option<World> {
    match act {
        Act::Create | Act::Drop => None,
        Act::Replace => {
            leave_a_dead_world();
            None
        }
        Act::Open | Act::Enter | Act::Leave | Act::Object => {
            let world = World::create(&spec(NAME)).unwrap();
            world.enter(Some(0)).unwrap();
            if act == Act::Object {
                (0..MANY).for_each(|i| make_object(&world, &format!("object-{i}")).unwrap());
            }
            Some(world)
        }
    }
}

/// Number of objects that are there before the victim makes one, and of those for which a
/// world without a wish has memory: words, with their records.
const MANY: usize = 200;
const FULL: usize = (80 << 10) / (256 + 64);

/// A named object: a word that is 7 from the beginning.
fn make_object(world: &World, name: &str) -> Result<(), Error> {
    let object = world.shared::<AtomicU64>(name, |word| {
        assert_eq!(word.load(SeqCst), 0, "{name} is not zeroed");
        word.store(7, SeqCst);
    })?;
    assert_eq!(object.load(SeqCst), 7, "{name} is not prepared");
    Ok(())
}

/// All objects are there, and there is room for as many as if nothing had happened.
fn no_object_is_lost(world: &World) {
    let old = |i: usize| world.shared::<AtomicU64>(&format!("object-{i}"), |_| panic!("{i} is lost"));
    (0..MANY).for_each(|i| assert_eq!(old(i).unwrap().load(SeqCst), 7));
    make_object(world, "victims").unwrap();
    for i in MANY + 1..FULL {
        make_object(world, &format!("object-{i}")).expect("no byte of the heap is lost");
    }
    assert!(matches!(make_object(world, "too-many"), Err(Error::DirectoryFull { .. })));
}

/// The world of the judge works: it can be opened, and the victim's rank entered.
fn is_sound(ours: &World) {
    let again = World::open(NAME).unwrap();
    assert_eq!(again.params(), [7; 16]);
    again.enter(Some(1)).expect("the rank of the dead is free");
    assert!(again.is_alive(ours.me()) && ours.is_alive(again.me()));
    again.leave().unwrap();
}

/// Checks that all works after the victim's death, with or without a look at its
/// leftovers.
fn after_death(ours: Option<World>, clean: bool) {
    if let Some(ours) = &ours {
        is_sound(ours);
    }
    drop(ours);
    if clean {
        for world in dead() {
            assert_eq!(world.name, NAME);
            world.remove().expect("what is dead can be removed");
        }
        assert!(leftovers().unwrap().is_empty(), "nothing else is left");
    }
    let world = World::create(&spec(NAME)).expect("the name can be used");
    let opened = World::open(NAME).expect("the new world can be opened");
    opened.enter(None).unwrap();
    assert_eq!(opened.params(), [7; 16]);
    drop((opened, world));
    assert!(leftovers().unwrap().is_empty(), "the last one removes the name");
}

/// Checks that nothing waits for the victim while it stands still.
fn beside_a_stopped_one(act: Act, ours: Option<&World>) {
    leftovers().unwrap();
    if let (Act::Object, Some(ours)) = (act, ours) {
        ours.shared::<AtomicU64>("object-0", |_| panic!("it is lost")).expect("what is there is found");
    }
    drop(World::create(&spec(OTHER)).expect("another name"));
    if let Some(ours) = ours {
        let again = World::open(NAME).unwrap();
        again.enter(Some(2)).expect("another rank");
        assert!(ours.is_alive(again.me()));
        return;
    }
    match World::create(&spec(NAME)) {
        Ok(world) => {
            let opened = World::open(NAME).expect("a new world");
            drop((opened, world));
        }
        // It has the name, or is about to remove it.
        Err(Error::NameTaken { .. }) => match World::open(NAME) {
            Ok(world) => drop(world),
            Err(Error::NoSuchWorld { .. } | Error::BeingRemoved { .. }) => {}
            Err(error) => panic!("{error}"),
        },
        Err(error) => panic!("{error}"),
    }
}

fn case(act: Act, stop: bool, choice: &Choice) -> u64 {
    let (mut steps, mut rounds, mut path) = (0, 0, KnownPath::default());
    loop {
        watchdog::at(steps);
        let ours = prepare(act);
        let mut victim = Victim::fork(|| suffer(act));
        victim.reach_mark();
        let complete = victim.run_along(&mut path, steps);
        if stop && !complete {
            victim.halt();
            beside_a_stopped_one(act, ours.as_ref());
            // From the stop to its mark.
            victim.go_on();
            while !victim.at_mark() {
                std::thread::yield_now();
            }
        }
        victim.kill();
        if let Some(ours) = &ours {
            ours.check_deaths();
            if act == Act::Object {
                no_object_is_lost(ours);
            }
        }
        after_death(ours, rounds % 2 == 0);
        rounds += 1;
        if path.is_done(complete) {
            return rounds;
        }
        // Making a world takes a hundred thousand instructions: it looks at limits first.
        steps += if choice.every() { 1 } else { 1 + steps / 2 };
    }
}

fn main() {
    let choice = Choice::from_arguments();
    println!("{:<10}{:<8}{:>8}", "act", "how", "rounds");
    // Those that stand still keep the names' locks, and the judge waits for them.
    share_cases_among(2, |share| {
        let directory = PathBuf::from(format!("/dev/shm/towpath-every-step.{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        // SAFETY: this process has one thread, and nothing has read the environment yet.
        unsafe { std::env::set_var("TOWPATH_SHM_DIR", &directory) };
        Native::switch_cost();
        for (act, name) in ACTS {
            for (stop, how) in [(false, "kill"), (true, "stop")] {
                if choice.includes(&[name, how]) && share.takes_next() {
                    watchdog::begin(format!("{how} {name}"), if choice.every() { 1800 } else { 120 });
                    println!("{name:<10}{how:<8}{:>8}", case(act, stop, &choice));
                }
            }
        }
        std::fs::remove_dir(&directory).expect("nothing is left behind");
    });
}
