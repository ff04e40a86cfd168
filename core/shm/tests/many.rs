//! Large worlds: 65,536 named objects, made by several processes that are killed
//! meanwhile; and 1,024 processes that meet, lose one of them, and leave.
//!
//! This process has one thread, since it forks and goes on.

use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use towpath_machine::Native;
use towpath_machine::Random;
use towpath_shm::{Error, World, WorldSpec};
use towpath_sync::Policy;
use towpath_testkit::{Child, shared_words, watchdog};

/// Number of objects, and of bytes that each takes with its record.
const OBJECTS: u64 = 65_536;
const EACH: u64 = 256 + 64;
/// Number of processes that make them, and of those that are killed at it.
const MAKERS: u32 = 4;
const KILLS: u32 = 60;

/// Number of processes that meet.
const MANY: u32 = 1024;

fn world(processes: u32, object_bytes: u64) -> World {
    let spec = WorldSpec { name: None, processes, area_bytes: 0, object_bytes, params: [0; 16] };
    World::create(&spec).unwrap()
}

/// An object of its number.
fn object(world: &World, number: u64) -> Result<(), Error> {
    let object = world.shared::<AtomicU64>(&format!("object-{number}"), |word| {
        assert_eq!(word.load(SeqCst), 0, "object {number} is not zeroed");
        word.store(number + 1, SeqCst);
    })?;
    assert_eq!(object.load(SeqCst), number + 1, "object {number} is another one");
    Ok(())
}

/// Makes all objects, from a place of its own on: those of others are there or are not.
fn make_all(world: &World, rank: u32, done: &AtomicU64) {
    world.enter(Some(rank)).unwrap();
    let first = OBJECTS / u64::from(MAKERS) * u64::from(rank);
    for i in 0..OBJECTS {
        object(world, (first + i) % OBJECTS).unwrap();
        done.fetch_add(1, SeqCst);
    }
}

fn objects_survive_kills() {
    watchdog::begin("65,536 objects".into(), 300);
    let world = world(MAKERS + 1, OBJECTS * EACH);
    world.enter(Some(MAKERS)).unwrap();
    let done = &shared_words(1)[0];
    let fork = |rank| Child::fork(|| make_all(&world, rank, done));
    let mut makers: Vec<Option<Child>> = (0..MAKERS).map(|rank| Some(fork(rank))).collect();
    let mut random = Random::new(18);
    for kill in 1..=KILLS {
        // The first pass of each makes objects; from then on they are mostly found.
        while done.load(SeqCst) < u64::from(kill) * (OBJECTS / u64::from(KILLS + 1)) {
            std::thread::yield_now();
        }
        let rank = random.below(u64::from(MAKERS)) as u32;
        if let Some(maker) = makers[rank as usize].take() {
            maker.kill();
        }
        world.check_deaths();
        makers[rank as usize] = Some(fork(rank));
    }
    for maker in makers.iter().flatten() {
        while !maker.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(maker.has_ended_well());
    }
    for number in 0..OBJECTS {
        let there = world.shared::<AtomicU64>(&format!("object-{number}"), |_| panic!("{number} is lost"));
        assert_eq!(there.unwrap().load(SeqCst), number + 1);
    }
    // No byte was lost to the dead: 16 KiB are left, which are for the first 64 records.
    let more = (OBJECTS..).take_while(|&number| object(&world, number).is_ok()).count() as u64;
    assert_eq!(more, (16 << 10) / EACH, "the heap leaks");
    assert!(world.deaths() >= 1, "none of {KILLS} was killed as a participant");
}

/// Returns whether this user can start so many processes more; says why not.
fn may_start(many: u64) -> bool {
    let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let running = std::fs::read_dir("/proc").map_or(0, |all| {
        all.flatten().filter(|e| e.file_name().to_string_lossy().parse::<u32>().is_ok()).count() as u64
    });
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let pids_max = number(&format!("/sys/fs/cgroup{group}/pids.max"));
    let own = getrlimit(Resource::Nproc).current;
    let limits = [
        ("ulimit -u", own.filter(|_| !rustix::process::geteuid().is_root())),
        ("/proc/sys/kernel/pid_max", number("/proc/sys/kernel/pid_max")),
        ("/proc/sys/kernel/threads-max", number("/proc/sys/kernel/threads-max")),
        ("the control group's pids.max", pids_max),
    ];
    for (what, limit) in limits {
        if limit.is_some_and(|limit| limit < running + many) {
            println!("SKIPPED: {what} forbids {many} processes beside the {running} that run: {limit:?}");
            return false;
        }
    }
    true
}

/// Makes room for a descriptor of each child, which children inherit.
///
/// Returns whether the hard limit allows that; prints the reason if not.
fn may_open(many: u64) -> bool {
    let limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|limit| limit < many) {
        println!("SKIPPED: the hard limit of open files forbids {many}: {:?}", limit.maximum);
        return false;
    }
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
    true
}

/// The act of each of the many.
fn meet(world: &World, rank: u32, met: &AtomicU64, go: &AtomicU64) {
    world.enter(Some(rank)).unwrap();
    world.barrier(Policy::Adaptive).unwrap();
    met.fetch_add(1, SeqCst);
    let next = world.participant((rank + 1) % MANY).expect("all are here");
    assert!(world.is_alive(next));
    let dies = MANY / 2;
    if rank == dies {
        // Killed here by the judge.
        loop {
            std::thread::park();
        }
    }
    match world.barrier(Policy::Adaptive) {
        Err(Error::MemberDied { rank }) if rank == dies => {}
        other => panic!("rank {rank}: {other:?}"),
    }
    assert!(world.has_died(dies) && world.deaths() == 1);
    // The next one is among the survivors.
    world.barrier(Policy::Adaptive).unwrap();
    go.fetch_add(1, SeqCst);
    world.leave().unwrap();
}

fn a_thousand_meet_and_lose_one() {
    if !may_start(u64::from(MANY) + 100) || !may_open(u64::from(MANY) + 500) {
        return;
    }
    watchdog::begin("1,024 processes".into(), 300);
    let begin = Instant::now();
    let world = world(MANY, 0);
    let [met, go] = [&shared_words(2)[0], &shared_words(2)[1]];
    let mut children: Vec<Child> =
        (0..MANY).map(|rank| Child::fork(|| meet(&world, rank, met, go))).collect();
    let wait_for = |counter: &AtomicU64, wanted: u32| {
        while counter.load(SeqCst) < u64::from(wanted) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    wait_for(met, MANY);
    println!("{MANY} processes have met after {:?}", begin.elapsed());
    let dies = MANY / 2;
    // The survivors find out by themselves: no message tells them.
    children.remove(dies as usize).kill();
    wait_for(go, MANY - 1);
    println!("and know of a death after {:?}", begin.elapsed());
    for child in &children {
        while !child.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(child.has_ended_well());
    }
    assert_eq!(world.deaths(), 1);
    let bytes = world.segment_bytes();
    assert!(bytes < 1 << 20, "a world of {MANY} without an area takes {bytes} bytes");
    drop(children);
    println!("and have left after {:?}", begin.elapsed());
}

fn main() -> io::Result<()> {
    Native::switch_cost();
    let tests: [(&str, fn()); 2] = [
        ("objects_survive_kills", objects_survive_kills),
        ("a_thousand_meet_and_lose_one", a_thousand_meet_and_lose_one),
    ];
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut count = 0;
    for (name, test) in tests {
        if wanted.is_empty() || wanted.iter().any(|w| name.contains(w.as_str())) {
            let begin = Instant::now();
            test();
            println!("test {name} ... ok ({:.1} s)", begin.elapsed().as_secs_f64());
            count += 1;
        }
    }
    println!("test result: ok. {count} passed; 0 failed");
    Ok(())
}
