//! A random tester of the protocols, in the manner of gem5's Ruby tester: many processors
//! do random things to few words that share lines, and every value is checked.
//!
//! Threads run one after another in the order of simulated time, and a thread goes on at once after
//! its access was performed: so what it appends to the log right then is in the order of the
//! accesses. (No thread runs ahead here: `ahead.rs` compares threads that do with threads that do
//! not.) Checked are: every value read is the last one written to that word; accesses are performed
//! in the order of their clocks; a store-conditional succeeds only if no processor wrote since its
//! load-linked, a DCAS exactly if both words hold what was expected; operations at memory are
//! linearizable. In debug builds the engine checks itself beside that: one writer or many readers
//! at each completion, and at the end that every request was answered, every invalidation
//! acknowledged, and the directory covers the caches.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::{
    ActiveThreads, AdvisoryLoad, Arena, Dcas, FetchOp, LlSc, Ordering::Relaxed, Park, Place, Prefetch,
    Processor,
};
use towpath_sim::parameters::{CAS2, NO_DCAS};
use towpath_sim::{Counters, Parameters, Sim, SimWord, Simulation, machines};

/// Every operation on a cached word takes this, so that its clock before it is known.
const COST: u64 = 5_000;

fn machine(name: &str, changes: &[&str]) -> Parameters {
    let mut p = machines::by_name(name).unwrap();
    let costs = ["load", "store", "rmw", "load_linked", "store_conditional"];
    for cost in costs {
        p.set_from_text(&format!("processor.{cost}=5ns")).unwrap();
    }
    for cost in ["instructions", "dcas_cost", "advisory_cost"] {
        p.set_from_text(&format!("processor.{cost}=0")).unwrap();
    }
    for change in changes {
        p.set_from_text(change).unwrap();
    }
    p
}

/// Values of all words, by the log; and the time of the last access.
#[derive(Default)]
struct Log {
    values: Vec<u64>,
    last: u64,
    /// Operations at memory: begin, end, results.
    additions: Vec<Vec<(u64, u64, u64)>>,
    next: u64,
}

impl Log {
    /// An access that was performed just now.
    fn read(&mut self, cpu: &Sim, word: usize, value: u64) {
        self.read_before(cpu, COST, word, value);
    }

    /// One that was performed so long ago.
    fn read_before(&mut self, cpu: &Sim, before: u64, word: usize, value: u64) {
        let at = cpu.clock() - before;
        assert!(at >= self.last, "performed at {at} ps, after one at {} ps", self.last);
        self.last = at;
        assert_eq!(value, self.values[word], "word {word}, read by {cpu:?} at {at} ps");
    }

    fn write(&mut self, cpu: &Sim, word: usize, value: u64) {
        self.read(cpu, word, self.values[word]);
        self.values[word] = value;
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next << 8
    }
}

struct Work {
    /// `processor.dcas`.
    dcas: u64,
    cached: Vec<SimWord>,
    count: SimWord,
    at_memory: Vec<SimWord>,
    log: RefCell<Log>,
}

fn act(cpu: &Sim, work: &Work) {
    let pick = |n: usize| cpu.random().below(n as u64) as usize;
    let i = pick(work.cached.len());
    let word = &work.cached[i];
    let log = || work.log.borrow_mut();
    match pick(16) {
        0..=2 => {
            let value = cpu.load(word, Relaxed);
            log().read(cpu, i, value);
        }
        3 | 4 => {
            let value = log().fresh();
            cpu.store(word, value, Relaxed);
            log().write(cpu, i, value);
        }
        5 => {
            let value = log().fresh();
            let old = cpu.swap(word, value, Relaxed);
            log().read(cpu, i, old);
            log().write(cpu, i, value);
        }
        6 => {
            let old = cpu.fetch_add(word, 1, Relaxed);
            log().read(cpu, i, old);
            log().write(cpu, i, old.wrapping_add(1));
        }
        7 => {
            let guess = log().values[i];
            let value = log().fresh();
            let result = cpu.compare_exchange(word, guess, value, Relaxed, Relaxed);
            log().read(cpu, i, *result.as_ref().unwrap_or_else(|old| old));
            if result.is_ok() {
                assert_eq!(log().values[i], guess);
                log().write(cpu, i, value);
            }
        }
        8..=10 => {
            let old = cpu.load_linked(word);
            log().read(cpu, i, old);
            match pick(4) {
                0 => cpu.compute(cpu.random().below(2_000_000)),
                1 => {
                    let j = pick(work.cached.len());
                    let other = cpu.load(&work.cached[j], Relaxed);
                    log().read(cpu, j, other);
                }
                _ => {}
            }
            let value = log().fresh();
            if cpu.store_conditional(word, value) {
                assert_eq!(
                    log().values[i],
                    old,
                    "a processor wrote between load-linked and store-conditional"
                );
                log().write(cpu, i, value);
            }
        }
        11 => cpu.prefetch_shared(word),
        12 => cpu.prefetch_exclusive(word),
        13 => {
            let k = pick(work.at_memory.len());
            let begin = cpu.clock();
            let value = cpu.fetch_increment(&work.at_memory[k]);
            log().additions[k].push((begin, cpu.clock(), value));
        }
        14 => match pick(4) {
            0 => cpu.yield_now(),
            1 => {
                let value = log().values[i];
                cpu.park(word, value, 3_000);
            }
            2 => {
                cpu.wake(word, 2);
            }
            _ => {
                let _ = cpu.spin_until(word, Relaxed, 2_000, |v| v % 4 == 3).map(|v| assert_eq!(v % 4, 3));
            }
        },
        _ => {
            let most = if pick(8) == 0 { 3_000_000 } else { 50_000 };
            let ps = cpu.random().below(most);
            cpu.compute(ps);
        }
    }
}

/// Performs accesses that only some machines have.
fn act_more(cpu: &Sim, work: &Work) {
    let pick = |n: usize| cpu.random().below(n as u64) as usize;
    let n = work.cached.len();
    let i = pick(n);
    let log = || work.log.borrow_mut();
    match pick(8) {
        0..=4 => {
            let j = (i + 1 + pick(n - 1)) % n;
            let guess = [i, j].map(|w| log().values[w]);
            // Now and then one that can't be right.
            let guess = [guess[0] ^ u64::from(pick(8) == 0) << 63, guess[1]];
            let new = [(); 2].map(|()| log().fresh());
            let stored = cpu.dcas([&work.cached[i], &work.cached[j]], guess, new);
            let holds = [i, j].map(|w| log().values[w]) == guess;
            assert_eq!(stored, holds, "DCAS of words {i} and {j}, at {} ps", cpu.clock());
            if stored {
                let before = if work.dcas == CAS2 { 0 } else { 2 * COST };
                let log = &mut *log();
                log.read_before(cpu, before, i, guess[0]);
                (log.values[i], log.values[j]) = (new[0], new[1]);
            }
        }
        5 | 6 => {
            let value = cpu.advisory_load(&work.cached[i]);
            let seen = value.unwrap_or_else(|| log().values[i]);
            log().read(cpu, i, seen);
        }
        _ => {
            if cpu.enter(&work.count, 2) {
                if pick(2) == 0 {
                    cpu.compute(cpu.random().below(3_000_000));
                }
                cpu.leave(&work.count);
            }
        }
    }
}

fn torture(p: &Parameters, processors: usize, copies: usize, operations: usize, seed: u64) -> Counters {
    // The log is that of sequentially consistent memory.
    let mut p = p.clone();
    p.store_buffer = 0;
    let mut s = Simulation::new(&p, processors, seed);
    s.without_lead();
    let arena = s.arena();
    let place = |i: u32| if i.is_multiple_of(3) { Place::Home(i) } else { Place::SameLine };
    let work = Rc::new(Work {
        dcas: p.dcas,
        cached: (0..9).map(|i| arena.word(place(i), 0)).collect(),
        at_memory: (0..3).map(|i| arena.word(Place::AtMemory(i), 0)).collect(),
        count: arena.word(Place::NewLine, 0),
        log: RefCell::new(Log { values: vec![0; 9], additions: vec![Vec::new(); 3], ..Log::default() }),
    });
    for processor in 0..processors {
        for copy in 0..copies {
            let work = Rc::clone(&work);
            s.spawn_in_job(processor, processor * copies + copy, copy % 2, move |cpu| {
                for _ in 0..operations {
                    if work.dcas != NO_DCAS && cpu.random().below(3) == 0 {
                        act_more(cpu, &work);
                    } else {
                        act(cpu, &work);
                    }
                }
            });
        }
    }
    let outcome = s.run().unwrap_or_else(|e| panic!("{}, seed {seed}: {e}", p.name));
    for additions in &mut work.log.borrow_mut().additions {
        additions.sort_by_key(|a| a.2);
        let values: Vec<u64> = additions.iter().map(|a| a.2).collect();
        assert_eq!(values, (0..values.len() as u64).collect::<Vec<_>>(), "each value once");
        let mut earliest_end = u64::MAX;
        for &(begin, end, value) in additions.iter().rev() {
            earliest_end = earliest_end.min(end);
            assert!(
                begin <= earliest_end,
                "the addition that returned {value} began after a later one's end"
            );
        }
    }
    outcome.counters
}

/// The machines with a protocol; `incoherent.rs` tests the one without.
fn coherent() -> impl Iterator<Item = &'static str> {
    machines::names().filter(|name| *name != "sx4")
}

const SHARED: &[&str] = &["os.quantum=20us", "os.switch=1us", "os.block=1us", "os.wake=1us"];
const INTERRUPTED: &[&str] = &["os.interrupt_every=7us", "os.interrupt_cost=1us"];

#[test]
fn every_value_is_right_on_the_machines() {
    for name in coherent() {
        for (processors, seeds) in [(2, 12), (3, 12), (8, 6), (32, 2)] {
            let p = machine(name, &[]);
            if processors <= p.processors as usize {
                for seed in 0..seeds {
                    torture(&p, processors, 1, 400, seed);
                }
            }
        }
    }
}

#[test]
fn every_value_is_right_whatever_the_directory_does() {
    let mut all = Vec::new();
    for name in ["origin2000", "epyc-milan"] {
        for busy in ["nack", "queue"] {
            for service in ["fifo", "random", "local-first"] {
                for atomics in ["native", "ll-sc"] {
                    let changes = [
                        format!("directory.busy={busy}"),
                        format!("directory.service={service}"),
                        format!("processor.atomics={atomics}"),
                    ];
                    let p = machine(name, &changes.each_ref().map(String::as_str));
                    (0..4).for_each(|seed| all.push(torture(&p, 6, 1, 300, seed)));
                    all.push(torture(&p, 24, 1, 200, 9));
                }
            }
        }
    }
    let sum = |f: fn(&Counters) -> u64| all.iter().map(f).sum::<u64>();
    // The subject of the test does occur.
    assert!(sum(|c| c.refusals) > 1000 && sum(|c| c.overtaken) > 10 && sum(|c| c.failed_at_home) > 10);
    assert!(sum(|c| c.prefetches) > 1000 && sum(|c| c.interventions) > 1000);
}

#[test]
fn every_value_is_right_in_tiny_caches() {
    for (name, changes) in [
        ("enterprise5000", ["cache.ways=1", "cache.size=64"]),
        ("enterprise5000", ["cache.ways=2", "cache.size=128"]),
        ("origin2000", ["cache.ways=1", "cache.size=256"]),
        ("origin2000", ["cache.ways=2", "cache.size=256"]),
        ("epyc-milan", ["cache.ways=1", "cache.size=64"]),
        ("avalanche", ["cache.ways=1", "cache.size=256"]),
        ("paradigm", ["cache.ways=2", "cache.size=32"]),
        ("paradigm", ["processor.dcas=cas2", "cache.size=64"]),
    ] {
        let p = machine(name, &changes);
        for seed in 0..8 {
            let counters = torture(&p, 6, 1, 400, seed);
            assert!(counters.evictions > 0, "{name} {changes:?}");
        }
    }
}

#[test]
fn every_value_is_right_when_time_is_shared() {
    for name in coherent() {
        for policy in ["os.policy=time-sharing", "os.policy=gang"] {
            for interrupts in [&[][..], INTERRUPTED] {
                for reservation in ["processor.reservation=line", "processor.reservation=no-miss"] {
                    let changes = [SHARED, interrupts, &[policy, reservation]].concat();
                    let p = machine(name, &changes);
                    for (copies, seed) in [(1, 1), (2, 2), (3, 3), (3, 4)] {
                        let counters = torture(&p, 4, copies, 300, seed);
                        assert_eq!(counters.preemptions > 0, copies > 1, "{name} {changes:?} {copies}");
                        assert_eq!(counters.interrupts > 0, !interrupts.is_empty());
                    }
                }
            }
        }
    }
}

#[test]
fn every_value_is_right_in_strange_surroundings() {
    // Hardly any latency, or hardly anything but; many processors at a node; hardly any time
    // between interrupts.
    let quick: &[&str] = &[
        "network.processor_to_hub=0",
        "network.hub_to_processor=0",
        "network.first_router=0",
        "network.hop=0",
        "directory.latency=0",
        "directory.occupancy_data=0",
        "directory.occupancy_lookup=0",
        "directory.owner_access=0",
        "network.port_data=0",
        "network.port_request=0",
        "directory.retry=1ns",
    ];
    let slow: &[&str] =
        &["network.first_router=20us", "network.port_data=3us", "directory.occupancy_invalidation=2us"];
    let wide: &[&str] = &["processor.per_node=5", "network.nodes_per_router=1"];
    let busy: &[&str] = &["os.interrupt_every=1us", "os.interrupt_cost=0.9us"];
    for changes in [quick, slow, wide, busy] {
        for busy in ["directory.busy=nack", "directory.busy=queue"] {
            let p = machine("origin2000", &[changes, &[busy]].concat());
            for seed in 0..4 {
                torture(&p, 13, 1, 200, seed);
            }
        }
    }
    let bus: &[&str] = &[
        "bus.address=0",
        "bus.snoop=0",
        "bus.data=0",
        "bus.upgrade=0",
        "bus.memory=0",
        "bus.cache_to_cache=0",
    ];
    let slow: &[&str] =
        &["bus.memory=10us", "bus.cache_to_cache=3us", "memory.bank_busy=4us", "bus.data=1us"];
    for changes in [bus, slow] {
        let p = machine("enterprise5000", changes);
        for seed in 0..8 {
            torture(&p, 8, 1, 300, seed);
        }
    }
    let held: &[&str] = &["bus.memory=0", "bus.write=0", "bus.write_back=0"];
    let slow: &[&str] = &["bus.memory=10us", "bus.write=3us", "bus.write_back=1us"];
    for changes in [held, slow] {
        for dcas in ["processor.dcas=llp-scp", "processor.dcas=cas2"] {
            let p = machine("paradigm", &[changes, &[dcas]].concat());
            for seed in 0..6 {
                torture(&p, 8, 1, 300, seed);
            }
        }
    }
}
