//! The machine without cache coherence: its times, and the programs that go wrong on it
//! or don't.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use towpath_machine::Ordering::{self, Acquire, Relaxed, Release, SeqCst};
use towpath_machine::{Arena, Place, Processor};
use towpath_sim::{Macro, Macros, Parameters, Sim, SimArena, SimWord, Simulation, Stuck, machines};
use towpath_sync::locks::TestAndSet;
use towpath_sync::{Lock, Spinning};

fn sx4() -> Parameters {
    machines::by_name("sx4").unwrap()
}

/// Measures an operation on an idle machine, in nanoseconds.
fn time(what: impl FnOnce(&Sim, &SimWord) + 'static) -> f64 {
    let mut s = Simulation::new(&sx4(), 1, 1);
    s.without_jitter();
    let word = s.arena().word(Place::NewLine, 0);
    let result = Rc::new(Cell::new(0.0));
    let here = Rc::clone(&result);
    s.spawn(0, 0, move |cpu| {
        cpu.work(10_000);
        let start = cpu.clock();
        what(cpu, &word);
        here.set((cpu.clock() - start) as f64 / 1e3);
    });
    s.run().unwrap();
    result.get()
}

#[test]
fn the_machine_returns_its_latencies() {
    let load = |order| {
        move |cpu: &Sim, word: &SimWord| {
            cpu.load(word, order);
        }
    };
    assert_eq!(time(load(Relaxed)), 480.0, "past the cache");
    assert_eq!(time(load(Acquire)), 560.0, "and a synchronising instruction");
    assert_eq!(
        time(|cpu, word| {
            cpu.ordinary_load(word);
        }),
        496.0,
        "into the cache"
    );
    let hit = time(|cpu, word| {
        (0..10).for_each(|_| {
            cpu.ordinary_load(word);
        })
    });
    assert_eq!(hit, 496.0 + 9.0 * 16.0, "out of the cache");
    assert_eq!(time(|cpu, word| cpu.store(word, 1, Relaxed)), 8.0, "no processor waits for a store");
    let seen = time(|cpu, word| {
        cpu.store(word, 1, Relaxed);
        cpu.fence(SeqCst);
    });
    assert!((88.0..=1_080.0).contains(&seen), "but one may: {seen} ns");
    // Two synchronising instructions about the test&set.
    assert_eq!(
        time(|cpu, word| {
            cpu.swap(word, 1, Relaxed);
        }),
        720.0
    );
    assert_eq!(time(|cpu, _| cpu.flush_cache()), 10_080.0);
}

#[test]
fn long_moves_go_at_the_rate_of_memcpy() {
    for (bytes, part) in [(4 << 20, 0.001), (64 << 10, 0.05)] {
        let mut s = Simulation::new(&sx4(), 1, 1);
        let shared = s.arena().bytes(bytes);
        s.spawn(0, 0, move |cpu| {
            let (from, mut to) = ((0..bytes).map(|i| (i * 7) as u8).collect::<Vec<_>>(), vec![0; bytes]);
            for out in [false, true] {
                let start = cpu.clock();
                if out {
                    cpu.copy_out(&shared, 0, &mut to);
                } else {
                    cpu.copy_in(&shared, 0, &from);
                    // The stores of the last vectors are still under way.
                    cpu.work(2_000);
                }
                let ns = (cpu.clock() - start) as f64 / 1e3 - if out { 0.0 } else { 2_000.0 };
                let rate = bytes as f64 / ns;
                assert!((rate / 2.5 - 1.0).abs() < part, "{rate} GB/s");
            }
            assert!(from == to);
        });
        s.run().unwrap();
    }
}

#[test]
fn bytes_keep_their_values_whatever_their_places() {
    for (at, len) in [(0, 1), (3, 2), (7, 2), (5, 40), (8, 8), (1, 2047), (2040, 4000)] {
        let mut s = Simulation::new(&sx4(), 2, 1);
        let (shared, flag) = (s.arena().bytes(8192), s.arena().word(Place::NewLine, 0));
        s.spawn(0, 0, move |cpu| {
            cpu.copy_in(&shared, 0, &[0xee; 8192]);
            cpu.copy_in(&shared, at, &(0..len).map(|i| i as u8).collect::<Vec<_>>());
            cpu.store(&flag, 1, Release);
        });
        s.spawn(1, 1, move |cpu| {
            cpu.spin_until(&flag, Acquire, u64::MAX, |v| v == 1).unwrap();
            let (mut found, mut part) = (vec![0; 8192], vec![0; len]);
            cpu.copy_out(&shared, 0, &mut found);
            cpu.copy_out(&shared, at, &mut part);
            let right = |i: usize| if (at..at + len).contains(&i) { (i - at) as u8 } else { 0xee };
            assert!(found.iter().enumerate().all(|(i, &b)| b == right(i)), "{len} at {at}");
            assert!(part[..] == found[at..at + len]);
        });
        s.run().unwrap();
    }
}

#[test]
fn a_copy_in_the_cache_stays_as_it_is_for_ever() {
    // M13: a waiter that spins on it never sees the change; one that flushes its cache does.
    for flushes in [false, true] {
        let mut s = Simulation::new(&sx4(), 2, 1);
        let word = s.arena().word(Place::NewLine, 0);
        s.spawn(0, 0, move |cpu| {
            cpu.define_macros(Macros { look: Macro::Ordinary, ..Macros::default() });
            while cpu.spin_until(&word, Acquire, 1_000, |v| v == 1).is_err() {
                if flushes {
                    cpu.flush_cache();
                }
            }
        });
        s.spawn(1, 1, move |cpu| {
            cpu.work(5_000);
            cpu.store(&word, 1, Release);
        });
        match s.run() {
            Ok(outcome) => assert!(flushes && outcome.counters.flushes > 0),
            Err(stuck) => assert!(!flushes && matches!(stuck, Stuck::Deadlock(_)), "{stuck}"),
        }
    }
}

#[test]
fn stale_loads_are_counted() {
    let mut s = Simulation::new(&sx4(), 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn(0, 0, move |cpu| {
        let read = |cpu: &Sim| (cpu.ordinary_load(&word), cpu.counters().stale);
        assert_eq!(read(cpu), (0, 0));
        cpu.work(10_000);
        assert_eq!(read(cpu), (0, 1), "out of the cache");
        assert_eq!(cpu.load(&word, Relaxed), 1, "past it");
        cpu.flush_cache();
        assert_eq!(read(cpu), (1, 1));
    });
    s.spawn(1, 1, move |cpu| {
        cpu.work(5_000);
        cpu.store(&word, 1, Relaxed);
    });
    s.run().unwrap();
}

#[test]
fn an_ordinary_store_stays_in_the_cache_until_it_leaves() {
    // 64 KiB further on, a line takes another one's place.
    for (flushes, displaces) in [(false, false), (true, false), (false, true)] {
        let mut s = Simulation::new(&sx4(), 2, 1);
        let (word, far) = (s.arena().word(Place::NewLine, 0), s.arena().bytes(128 << 10));
        let done = s.arena().word(Place::NewLine, 0);
        s.spawn(0, 0, move |cpu| {
            cpu.ordinary_store(&word, 1);
            if flushes {
                cpu.flush_cache();
            }
            if displaces {
                cpu.define_macros(Macros { copy_out: Macro::Ordinary, ..Macros::default() });
                cpu.copy_out(&far, 0, &mut vec![0; 128 << 10]);
            }
            assert_eq!(cpu.ordinary_load(&word), 1, "its own it sees");
            cpu.store(&done, 1, Release);
        });
        s.spawn(1, 1, move |cpu| {
            cpu.spin_until(&done, Acquire, u64::MAX, |v| v == 1).unwrap();
            assert_eq!(cpu.load(&word, Relaxed) == 1, flushes || displaces);
        });
        s.run().unwrap();
    }
}

/// Lets all threads add to a common sum by ordinary loads and stores, under a test&set
/// lock. Returns the sum.
fn sum_under_a_lock(flushes: bool) -> u64 {
    let mut s = Simulation::new(&sx4(), 4, 3);
    let arena = s.arena();
    let (lock, sum) = (Rc::new(TestAndSet::<Sim>::new(&arena)), arena.word(Place::NewLine, 0));
    s.spawn_all(move |cpu| {
        for _ in 0..20 {
            let () = lock.lock(cpu, &Spinning).unwrap();
            if flushes {
                cpu.flush_cache();
            }
            let old = cpu.ordinary_load(&sum);
            cpu.ordinary_store(&sum, old + 1);
            if flushes {
                cpu.flush_cache();
            }
            lock.unlock(cpu, &Spinning, ());
            cpu.work(20_000);
        }
    });
    let last = Rc::new(Cell::new(0));
    let result = Rc::clone(&last);
    s.spawn(0, 9, move |cpu| {
        // Longer than all that the others do.
        cpu.work(100_000_000);
        cpu.flush_cache();
        result.set(cpu.load(&sum, SeqCst));
    });
    s.run().unwrap();
    last.get()
}

#[test]
fn a_general_lock_has_to_flush_the_cache() {
    assert_eq!(sum_under_a_lock(true), 80);
    assert!(sum_under_a_lock(false) < 80, "without it, sums get lost");
}

// ---- what may be seen ----

/// Program of one thread: its accesses to the words in some ordering, and the values that
/// it reads.
type Program = fn(&Sim, &[SimWord], [Ordering; 2]) -> Vec<u64>;

fn outcomes(programs: &'static [Program], orders: [Ordering; 2]) -> BTreeSet<Vec<u64>> {
    let mut seen = BTreeSet::new();
    let mut p = sx4();
    // Longer than the accesses themselves, so that all that may happen does.
    p.set_from_text("memory.window=4us").unwrap();
    for seed in 0..2000 {
        let mut s = Simulation::new(&p, programs.len(), seed);
        let second = if seed % 4 == 0 { Place::SameLine } else { Place::NewLine };
        let words = [Place::NewLine, second].map(|place| s.arena().word(place, 0));
        let read = Rc::new(RefCell::new(vec![Vec::new(); programs.len()]));
        for (i, program) in programs.iter().enumerate() {
            let read = Rc::clone(&read);
            s.spawn(i, i, move |cpu| {
                pause(cpu, 5_000);
                let found = program(cpu, &words, orders);
                read.borrow_mut()[i] = found;
            });
        }
        s.run().unwrap();
        seen.insert(read.take().concat());
    }
    seen
}

fn pause(cpu: &Sim, most: u64) {
    let ns = cpu.random().below(most);
    cpu.work(ns);
}

const WEAK: [Ordering; 2] = [Relaxed, Relaxed];
const RELEASE: [Ordering; 2] = [Acquire, Release];
const STRONG: [Ordering; 2] = [SeqCst, SeqCst];

const STORE_BUFFERING: &[Program] = &[
    |cpu, w, [load, store]| {
        cpu.store(&w[0], 1, store);
        vec![cpu.load(&w[1], load)]
    },
    |cpu, w, [load, store]| {
        cpu.store(&w[1], 1, store);
        vec![cpu.load(&w[0], load)]
    },
];

const MESSAGE: &[Program] = &[
    |cpu, w, [_, store]| {
        cpu.store(&w[0], 1, store);
        cpu.store(&w[1], 1, store);
        vec![]
    },
    |cpu, w, [load, _]| vec![cpu.load(&w[1], load), cpu.load(&w[0], load)],
];

const INDEPENDENT_READS: &[Program] = &[
    |cpu, w, [_, store]| {
        cpu.store(&w[0], 1, store);
        vec![]
    },
    |cpu, w, [_, store]| {
        cpu.store(&w[1], 1, store);
        vec![]
    },
    |cpu, w, [load, _]| vec![cpu.load(&w[0], load), cpu.load(&w[1], load)],
    |cpu, w, [load, _]| vec![cpu.load(&w[1], load), cpu.load(&w[0], load)],
];

const COHERENCE: &[Program] = &[
    |cpu, w, [_, store]| {
        cpu.store(&w[0], 1, store);
        cpu.store(&w[0], 2, store);
        vec![]
    },
    |cpu, w, [load, _]| vec![cpu.load(&w[0], load), cpu.load(&w[0], load)],
];

#[test]
fn what_is_not_ordered_is_reordered_and_what_is_ordered_is_not() {
    // M14: the flag before the data.
    let flag_first = vec![1, 0];
    assert!(outcomes(MESSAGE, WEAK).contains(&flag_first));
    assert!(!outcomes(MESSAGE, RELEASE).contains(&flag_first));
    // Either end alone is not enough.
    assert!(outcomes(MESSAGE, [Relaxed, Release]).contains(&flag_first));
    assert!(outcomes(MESSAGE, [Acquire, Relaxed]).contains(&flag_first));
    assert!(outcomes(STORE_BUFFERING, WEAK).contains(&vec![0, 0]));
    assert!(!outcomes(STORE_BUFFERING, STRONG).contains(&vec![0, 0]));
    assert!(outcomes(INDEPENDENT_READS, WEAK).contains(&vec![1, 0, 1, 0]));
    assert!(!outcomes(INDEPENDENT_READS, STRONG).contains(&vec![1, 0, 1, 0]));
    let backwards = |seen: BTreeSet<Vec<u64>>| seen.iter().any(|v| v[0] > v[1]);
    assert!(!backwards(outcomes(COHERENCE, WEAK)), "one word's values come in order, whatever is asked for");
    // Everything else does occur under any ordering.
    assert_eq!(outcomes(MESSAGE, STRONG), BTreeSet::from([vec![0, 0], vec![0, 1], vec![1, 1]]));
    assert_eq!(outcomes(STORE_BUFFERING, STRONG), BTreeSet::from([vec![0, 1], vec![1, 0], vec![1, 1]]));
}

/// A stream of random words, data and bytes that one thread writes and others read; then
/// a flag that says up to where all of it is written.
struct Stream {
    words: Vec<SimWord>,
    cells: Vec<towpath_sim::SimCell>,
    bytes: towpath_sim::SimBytes,
    flag: SimWord,
}

impl Stream {
    const N: usize = 6;

    fn new(arena: &SimArena) -> Self {
        let place = |n: usize| if n.is_multiple_of(3) { Place::NewLine } else { Place::SameLine };
        Stream {
            words: (0..Self::N).map(|n| arena.word(place(n), 0)).collect(),
            cells: (0..Self::N).map(|n| Arena::<Sim>::cell(arena, place(n), 0)).collect(),
            bytes: Arena::<Sim>::bytes(arena, 16 * Self::N),
            flag: arena.word(Place::NewLine, 0),
        }
    }

    fn write(&self, cpu: &Sim, value: u64) {
        for _ in 0..2 * Self::N {
            let n = cpu.random().below(3 * Self::N as u64) as usize;
            self.write_one(cpu, n, value);
        }
        (0..3 * Self::N).for_each(|n| self.write_one(cpu, n, value));
    }

    fn write_one(&self, cpu: &Sim, n: usize, value: u64) {
        match n / Self::N {
            0 => cpu.store(&self.words[n], value, Relaxed),
            1 => cpu.write(&self.cells[n - Self::N], value),
            _ => cpu.copy_in(&self.bytes, 16 * (n - 2 * Self::N), &value.to_le_bytes()),
        }
    }

    fn read_one(&self, cpu: &Sim, n: usize) -> u64 {
        match n / Self::N {
            0 => cpu.load(&self.words[n], Relaxed),
            1 => cpu.read(&self.cells[n - Self::N]),
            _ => {
                let mut bytes = [0; 8];
                cpu.copy_out(&self.bytes, 16 * (n - 2 * Self::N), &mut bytes);
                u64::from_le_bytes(bytes)
            }
        }
    }
}

#[test]
fn values_are_right_at_random() {
    // Values never run backwards, and a reader that has seen the flag sees what was written before
    // it: whatever else goes on.
    let mut old = 0;
    for (changes, seeds) in [
        (&[][..], 8),
        (&["memory.window=20us"], 4),
        (&["os.switch=1us", "os.quantum=30us", "os.interrupt_every=13us", "os.interrupt_cost=1us"], 4),
    ] {
        for seed in 0..seeds {
            let mut p = sx4();
            changes.iter().for_each(|c| p.set_from_text(c).unwrap());
            let mut s = Simulation::new(&p, 4, seed);
            let streams: Rc<Vec<Stream>> = Rc::new((0..2).map(|_| Stream::new(&s.arena())).collect());
            let missed = Rc::new(Cell::new(0));
            for me in 0..6 {
                let (streams, missed) = (Rc::clone(&streams), Rc::clone(&missed));
                s.spawn(me % 4, me, move |cpu| {
                    let mut last = vec![[0; 3 * Stream::N]; 2];
                    for round in 1..=60 {
                        if me < 2 {
                            streams[me].write(cpu, round);
                            cpu.store(&streams[me].flag, round, Release);
                            pause(cpu, 3_000);
                        }
                        let stream = cpu.random().below(2) as usize;
                        let until = cpu.load(&streams[stream].flag, Acquire);
                        for _ in 0..12 {
                            let n = cpu.random().below(3 * Stream::N as u64) as usize;
                            let value = streams[stream].read_one(cpu, n);
                            let before = std::mem::replace(&mut last[stream][n], value);
                            assert!(
                                value >= before && value >= until,
                                "{value} after {before}, flag {until}"
                            );
                            missed.set(missed.get() + u64::from(value == until));
                            assert!(stream != me || value == round, "its own it sees");
                        }
                    }
                });
            }
            s.run().unwrap();
            old += missed.get();
        }
    }
    assert!(old > 1000);
}

#[test]
fn updates_are_atomic_and_synchronise() {
    let mut s = Simulation::new(&sx4(), 8, 1);
    let arena = s.arena();
    let (word, all) = (arena.word(Place::NewLine, 0), arena.clone());
    let data: Rc<Vec<SimWord>> = Rc::new((0..8).map(|_| all.word(Place::NewLine, 0)).collect());
    // By ticket: whose it is, and what its owner had stored before it took it.
    let tickets: Rc<RefCell<Vec<(usize, u64)>>> = Rc::default();
    let taken = Rc::clone(&tickets);
    s.spawn_all(move |cpu| {
        for n in 1..=50 {
            cpu.store(&data[cpu.id()], n, Relaxed);
            let ticket = cpu.fetch_add(&word, 1, Relaxed);
            assert_eq!(ticket, taken.borrow().len() as u64, "each once, in order");
            taken.borrow_mut().push((cpu.id(), n));
            let earlier = cpu.random().below(ticket + 1) as usize;
            let (owner, stored) = taken.borrow()[earlier];
            assert!(cpu.load(&data[owner], Relaxed) >= stored, "the store before an earlier update");
            pause(cpu, 20_000);
        }
    });
    s.run().unwrap();
    assert_eq!(tickets.borrow().len(), 400);
}
