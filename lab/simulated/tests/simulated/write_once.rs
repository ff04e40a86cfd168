//! The atomic bus with write-once caches, and the capabilities of its processors and
//! operating system: costs, states, refusals.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{
    ActiveThreads, AdvisoryLoad, Arena, Dcas, LlSc, Ordering::Relaxed, Park, Place, Processor, RollBack,
};
use towpath_sim::{Counters, Parameters, Sim, SimWord, Simulation, machines};

/// A cycle, in picoseconds.
const CYCLE: u64 = 40_000;

/// Makes the machine without the instructions around accesses, so that only an access's
/// own time is seen.
fn machine(changes: &[&str]) -> Parameters {
    let mut p = machines::by_name("paradigm").unwrap();
    for change in ["processor.instructions=0"].iter().chain(changes) {
        p.set_from_text(change).unwrap();
    }
    p
}

type Step = fn(&Sim, &[SimWord; 3]);

/// Lets each processor do its steps at its turn, one after another. Returns the time of
/// each, in cycles, and its counts. The first two words share a line.
fn walk(p: &Parameters, steps: &[(usize, Step)]) -> Vec<(u64, Counters)> {
    let mut s = Simulation::new(p, 4, 1);
    s.without_jitter();
    let words = [Place::NewLine, Place::SameLine, Place::NewLine].map(|place| s.arena().word(place, 0));
    let found = Rc::new(RefCell::new(vec![(0, Counters::default()); steps.len()]));
    for processor in 0..4 {
        let mine: Vec<(usize, Step)> = steps
            .iter()
            .enumerate()
            .filter_map(|(i, &(actor, step))| (actor == processor).then_some((i, step)))
            .collect();
        let found = Rc::clone(&found);
        s.spawn(processor, processor, move |cpu| {
            for (i, step) in mine {
                cpu.compute((i as u64 + 1) * 1000 * CYCLE - cpu.clock());
                let (start, before) = (cpu.clock(), cpu.counters());
                step(cpu, &words);
                found.borrow_mut()[i] = ((cpu.clock() - start) / CYCLE, cpu.counters().since(&before));
            }
        });
    }
    s.run().unwrap();
    found.take()
}

fn load(cpu: &Sim, words: &[SimWord; 3]) {
    cpu.load(&words[0], Relaxed);
}
fn store(cpu: &Sim, words: &[SimWord; 3]) {
    cpu.store(&words[0], cpu.now(), Relaxed);
}
fn exchange(cpu: &Sim, words: &[SimWord; 3]) {
    let value = cpu.load(&words[0], Relaxed);
    assert!(cpu.compare_exchange(&words[0], value, value + 1, Relaxed, Relaxed).is_ok());
}

#[test]
fn a_line_goes_through_the_states_of_write_once() {
    let steps: [(usize, Step); 13] = [
        (0, load),  // Invalid to Valid: a line from memory.
        (0, load),  // A hit.
        (1, load),  // Two are Valid.
        (0, store), // Valid to Reserved: a word through to memory, the other one is Invalid.
        (1, load),  // Reserved to Valid: memory is right, and no cache supplies anything.
        (0, store), // And again.
        (0, store), // Reserved to Dirty: a hit.
        (0, store), // A hit.
        (1, load),  // Dirty to Valid: back to memory first.
        (1, load),  // A hit.
        (2, store), // A write miss: a line from memory, then a word through.
        (2, store), // Dirty.
        (3, store), // A write miss on another cache's Dirty line: back to memory, from memory, a word through.
    ];
    let found = walk(&machine(&[]), &steps);
    let cycles: Vec<u64> = found.iter().map(|f| f.0).collect();
    assert_eq!(cycles, [11, 1, 11, 11, 11, 11, 1, 1, 21, 1, 21, 1, 31]);
    let counts = |of: fn(&Counters) -> u64| found.iter().map(|f| of(&f.1)).collect::<Vec<_>>();
    assert_eq!(counts(|c| c.write_throughs), [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(counts(|c| c.write_backs), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(counts(|c| c.invalidations), [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 2, 0, 1]);
    assert_eq!(counts(|c| c.all_misses()), [1, 0, 1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 1]);
    assert_eq!(counts(|c| c.bus_held / CYCLE), [10, 0, 10, 10, 10, 10, 0, 0, 20, 0, 20, 0, 30]);
}

#[test]
fn an_evicted_dirty_line_goes_back_and_a_reserved_one_does_not() {
    // One set of two lines; three lines.
    let p = machine(&["cache.size=32"]);
    for (writes, backs) in [(1, 0), (2, 1)] {
        let mut s = Simulation::new(&p, 1, 1);
        let words: [SimWord; 3] = std::array::from_fn(|_| s.arena().word(Place::NewLine, 0));
        s.spawn(0, 0, move |cpu| {
            for _ in 0..writes {
                cpu.store(&words[0], 7, Relaxed);
            }
            cpu.load(&words[1], Relaxed);
            cpu.load(&words[2], Relaxed);
            assert_eq!(cpu.load(&words[0], Relaxed), 7);
        });
        let counters = s.run().unwrap().counters;
        assert_eq!(counters.write_backs, backs, "{writes} writes");
        assert_eq!(counters.evictions, 2);
    }
}

#[test]
fn the_bus_serves_at_its_occupancy() {
    // Every processor writes a line of its own that the next one has just read: nothing but the bus
    // is the limit.
    let p = machine(&[]);
    let mut s = Simulation::new(&p, 16, 1);
    let word = s.arena().word(Place::NewLine, 0);
    let each = 200;
    s.spawn_all(move |cpu| (0..each).for_each(|_| cpu.store(&word, cpu.id() as u64, Relaxed)));
    let outcome = s.run().unwrap();
    // Each time a miss of a line that is not Dirty, since its first write went through: 20 cycles.
    let (time, least) = (outcome.time / CYCLE, 16 * each as u64 * 20);
    assert!((least * 98 / 100..least * 102 / 100).contains(&time), "{time} cycles, not {least}");
    assert!(outcome.counters.bus_held <= outcome.time);
}

/// Measures an operation of processor 0, in cycles, once its cache has all lines.
fn warm(p: &Parameters, act: Step) -> u64 {
    walk(p, &[(0, act), (0, act), (0, act)])[2].0
}

#[test]
fn atomic_operations_cost_what_the_paper_says() {
    let p = machine(&[]);
    let reference = warm(&p, store);
    assert_eq!(reference, 1);
    // A load and a CAS: 9 cycles more than a reference.
    assert_eq!(warm(&p, exchange), 1 + reference + 9);
    // Two loads, two stores, and 17.
    let double: Step = |cpu, words| {
        let old = [cpu.load(&words[0], Relaxed), cpu.load(&words[2], Relaxed)];
        assert!(cpu.dcas([&words[0], &words[2]], old, [old[0] + 1, old[1] + 1]));
    };
    assert_eq!(warm(&p, double), 2 + 4 + 17);
    let cload: Step = |cpu, words| {
        cpu.advisory_load(&words[0]).unwrap();
    };
    assert_eq!(warm(&p, cload), 2);
    // The same instruction past the cache holds the bus: two lines from memory, two words to
    // memory.
    assert_eq!(warm(&machine(&["processor.dcas=cas2"]), double), 2 * 11 + 2 * 20 + 17);
    // The instructions around an access are charged to a DCAS once.
    let p = machine(&["processor.instructions=120ns"]);
    assert_eq!((warm(&p, load), warm(&p, double)), (1 + 3, 2 * 4 + 4 + 17 + 3));
}

#[test]
fn a_dcas_takes_the_bus_once_for_both_lines() {
    let double: Step = |cpu, words| {
        let old = [cpu.load(&words[0], Relaxed), cpu.load(&words[2], Relaxed)];
        assert!(cpu.dcas([&words[0], &words[2]], old, [1, 1]));
    };
    let found = walk(&machine(&[]), &[(0, double), (0, double), (1, double)]);
    let counts: Vec<_> = found.iter().map(|f| (f.1.bus_transactions, f.1.write_throughs)).collect();
    // Two lines, then both words; nothing; two lines, both words.
    assert_eq!(counts, [(3, 2), (0, 0), (3, 2)]);
}

/// Many processors move numbers between words by DCAS, on lines of their own and on
/// common ones; the sum must stay.
fn transfers(p: &Parameters, procs: usize, copies: usize, seed: u64) -> Counters {
    const WORDS: u64 = 5;
    let mut s = Simulation::new(p, procs, seed);
    let place = |i| if i == 1 { Place::SameLine } else { Place::NewLine };
    let words: Rc<Vec<SimWord>> = Rc::new((0..WORDS).map(|i| s.arena().word(place(i), 1000)).collect());
    let ended = Rc::new(Cell::new(0));
    for id in 0..procs * copies {
        let (words, ended) = (Rc::clone(&words), Rc::clone(&ended));
        s.spawn(id % procs, id, move |cpu| {
            for _ in 0..60 {
                let i = cpu.random().below(WORDS) as usize;
                let j = (i + 1 + cpu.random().below(WORDS - 1) as usize) % WORDS as usize;
                loop {
                    let old = [cpu.load(&words[i], Relaxed), cpu.load(&words[j], Relaxed)];
                    if cpu.dcas([&words[i], &words[j]], old, [old[0] - 1, old[1] + 1]) {
                        break;
                    }
                }
                // Others by themselves, in between.
                cpu.fetch_add(&words[i], 1, Relaxed);
                cpu.work(cpu.random().below(2_000));
            }
            ended.set(ended.get() + 1);
            if ended.get() == procs * copies {
                let sum: u64 = words.iter().map(|w| cpu.load(w, Relaxed)).sum();
                assert_eq!(sum, WORDS * 1000 + 60 * (procs * copies) as u64);
            }
        });
    }
    s.run().unwrap().counters
}

#[test]
fn a_dcas_is_atomic() {
    let mut retried = 0;
    for kind in ["processor.dcas=llp-scp", "processor.dcas=cas2"] {
        for tiny in ["cache.size=64KiB", "cache.size=32"] {
            for (procs, copies) in [(1, 1), (1, 3), (2, 1), (5, 2), (16, 1), (16, 3)] {
                let p = machine(&[kind, tiny, "os.quantum=20us", "os.switch=1us"]);
                let counters = transfers(&p, procs, copies, 3);
                let successes = counters.double_exchanges - counters.failed_double_exchanges;
                assert_eq!(successes, 60 * (procs * copies) as u64, "{kind} {tiny} {procs} × {copies}");
                retried += counters.double_retries;
            }
        }
    }
    assert!(retried > 100, "lines are lost between the loads and the stores: {retried}");
}

#[test]
fn an_advisory_lock_is_held_until_a_store_to_the_line() {
    let take: Step = |cpu, words| assert!(cpu.advisory_load(&words[0]).is_some(), "at {} ns", cpu.now());
    let refused: Step = |cpu, words| assert!(cpu.advisory_load(&words[1]).is_none(), "at {} ns", cpu.now());
    let steps: [(usize, Step); 12] = [
        (0, take),
        (1, refused), // The same line, another word.
        (0, take),    // It has it itself.
        (1, load),    // Ordinary accesses don't look at it, and loads don't give it up.
        (2, refused),
        (1, store), // Any store to the line does, whosoever.
        (2, take),
        (0, refused),
        (2, store),
        (0, take),
        (1, |cpu, words| cpu.store(&words[2], 1, Relaxed)), // Another line.
        (1, refused),
    ];
    let found = walk(&machine(&[]), &steps);
    assert_eq!(found.iter().map(|f| f.1.advisory_refusals).sum::<u64>(), 4);
    // On any machine that declares it.
    let mut origin = machines::by_name("origin2000").unwrap();
    origin.set_from_text("processor.advisory=line").unwrap();
    walk(&origin, &steps);
}

#[test]
fn an_advisory_lock_does_not_stop_the_holders_own_processor() {
    // G15: the holder was preempted, and the thread that runs instead gets on.
    let p = machine(&["os.quantum=20us", "os.switch=1us"]);
    let mut s = Simulation::new(&p, 1, 1);
    let word = s.arena().word(Place::NewLine, 5);
    for id in 0..2 {
        s.spawn(0, id, move |cpu| {
            assert_eq!(cpu.advisory_load(&word), Some(5));
            cpu.work(100_000);
        });
    }
    let counters = s.run().unwrap().counters;
    assert_eq!((counters.advisory_loads, counters.advisory_refusals), (2, 0));
    assert!(counters.preemptions >= 2);
}

#[test]
fn the_system_takes_threads_that_do_not_run_off_their_count() {
    let p = machine(&["os.quantum=40us", "os.switch=8us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let count = s.arena().word(Place::NewLine, 0);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let here = Rc::clone(&seen);
    // Takes turns with one that is in no count.
    s.spawn(0, 0, move |cpu| {
        assert!(cpu.enter(&count, 1));
        assert!(!cpu.enter(&count, 1), "one is enough");
        cpu.work(400_000);
        cpu.leave(&count);
    });
    s.spawn(0, 1, |cpu| cpu.work(400_000));
    s.spawn(1, 2, move |cpu| {
        for _ in 0..600 {
            here.borrow_mut().push(cpu.load(&count, Relaxed));
            cpu.work(1_000);
        }
        // It counts only threads that run.
        while !cpu.enter(&count, 1) {
            cpu.work(1_000);
        }
        cpu.leave(&count);
        cpu.work(1_000_000);
        assert_eq!(cpu.load(&count, Relaxed), 0);
    });
    let counters = s.run().unwrap().counters;
    let seen = seen.borrow();
    assert!(seen.iter().all(|&n| n <= 1), "{seen:?}");
    let changes = seen.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(changes >= 8, "it is counted while it runs and not while it doesn't: {seen:?}");
    assert!(counters.active_changes >= 8 && counters.active_changes.is_multiple_of(2), "{counters:?}");
    // A sleeper does not run either.
    let mut s = Simulation::new(&p, 1, 1);
    let (count, doorbell) = (s.arena().word(Place::NewLine, 0), s.arena().word(Place::NewLine, 0));
    s.spawn(0, 0, move |cpu| {
        assert!(cpu.enter(&count, 1));
        cpu.park(&doorbell, 0, 10_000);
        assert_eq!(cpu.load(&count, Relaxed), 1);
        cpu.leave(&count);
        assert_eq!(cpu.load(&count, Relaxed), 0);
    });
    assert_eq!(s.run().unwrap().counters.active_changes, 2);
}

#[test]
fn a_holder_switched_out_with_a_known_lock_is_rolled_back() {
    let p = machine(&["os.quantum=40us", "os.switch=8us"]);
    // Where the holder is when its time slice ends, and what the other one finds then.
    for (stage, found) in [(0, [10, 20]), (1, [10, 20]), (2, [11, 21])] {
        let mut s = Simulation::new(&p, 1, 1);
        let lock = s.arena().word(Place::NewLine, 0);
        let words = [10, 20].map(|value| s.arena().word(Place::NewLine, value));
        s.spawn(0, 0, move |cpu| {
            while !cpu.take(&lock) {}
            assert!(!cpu.take(&lock), "a thread has one at a time");
            let mut standing = true;
            for step in 0..2 {
                if step == stage {
                    cpu.work(100_000);
                }
                standing &= match step {
                    0 => cpu.store_tentatively(&words[0], 11),
                    _ => cpu.store_finally(&words[1], 21),
                };
            }
            assert_eq!(standing, stage == 2, "it is told, at its next step");
            if stage == 2 {
                cpu.work(100_000);
            }
            assert!(!cpu.free(&lock), "the system has freed it");
            let now = [&words[0], &words[1], &lock].map(|word| cpu.load(word, Relaxed));
            assert_eq!(now, [found[0], found[1], 2]);
            // And then it goes like the first time.
            assert!(cpu.take(&lock) && cpu.store_tentatively(&words[0], 12) && cpu.free(&lock));
            assert_eq!([&words[0], &lock].map(|word| cpu.load(word, Relaxed)), [12, 4]);
        });
        s.spawn(0, 1, move |cpu| {
            // The second slice is this one's at the latest, and the first one may be.
            cpu.work(45_000);
            while cpu.load(&lock, Relaxed) == 0 {
                cpu.work(1_000);
            }
            let now = [&words[0], &words[1], &lock].map(|word| cpu.load(word, Relaxed));
            assert_eq!(now, [found[0], found[1], 2], "stage {stage}");
            cpu.work(200_000);
        });
        let counters = s.run().unwrap().counters;
        assert_eq!(counters.roll_backs, 1);
    }
    // A thread that ends with it is rolled back, too.
    let mut s = Simulation::new(&p, 1, 1);
    let (lock, word) = (s.arena().word(Place::NewLine, 0), s.arena().word(Place::NewLine, 7));
    s.spawn(0, 0, move |cpu| assert!(cpu.take(&lock) && cpu.store_tentatively(&word, 8)));
    s.spawn(0, 1, move |cpu| {
        cpu.work(500_000);
        assert_eq!([&lock, &word].map(|word| cpu.load(word, Relaxed)), [2, 7]);
    });
    assert_eq!(s.run().unwrap().counters.roll_backs, 1);
}

#[test]
fn the_systems_changes_of_a_count_are_transactions_on_the_bus() {
    let p = machine(&["os.quantum=40us", "os.switch=8us"]);
    let run = |counted: bool| {
        let mut s = Simulation::new(&p, 1, 1);
        let count = s.arena().word(Place::NewLine, 0);
        for id in 0..2 {
            s.spawn(0, id, move |cpu| {
                if counted && id == 0 {
                    assert!(cpu.enter(&count, 9));
                }
                cpu.work(400_000);
                if counted && id == 0 {
                    cpu.leave(&count);
                }
            });
        }
        s.run().unwrap()
    };
    let (without, with) = (run(false), run(true));
    assert_eq!((without.counters.bus_transactions, without.counters.active_changes), (0, 0));
    // A read and a write through for each, and those of the thread itself: a read, two words.
    let changes = with.counters.active_changes;
    assert!(changes >= 8, "{changes}");
    assert!(with.counters.bus_held >= changes * 20 * CYCLE, "{:?}", with.counters);
    assert!(with.time > without.time);
}

#[test]
fn load_linked_and_store_conditional_work_here_too() {
    let linked: Step = |cpu, words| {
        let value = cpu.load_linked(&words[0]);
        assert!(cpu.store_conditional(&words[0], value + 1));
        assert!(!cpu.store_conditional(&words[0], value + 1), "once");
    };
    let found = walk(&machine(&[]), &[(0, linked), (0, linked), (1, linked)]);
    assert_eq!(found.iter().map(|f| f.0).collect::<Vec<_>>(), [23, 3, 33]);
}

#[test]
fn machine_without_it_says_so() {
    let on = |name: &str, act: fn(&Sim, [&SimWord; 2])| {
        let p = machines::by_name(name).unwrap();
        let mut s = Simulation::new(&p, 1, 1);
        let words = [(); 2].map(|()| s.arena().word(Place::NewLine, 0));
        s.spawn(0, 0, move |cpu| act(cpu, words.each_ref()));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| s.run())).unwrap_err();
        panic.downcast_ref::<String>().cloned().unwrap_or_default()
    };
    for name in ["origin2000", "enterprise5000", "sx4"] {
        let text = on(name, |cpu, words| {
            cpu.advisory_load(words[0]);
        });
        assert!(
            text.starts_with(&format!("{name} has no advisory locks: give it `processor.advisory`")),
            "{text}"
        );
        let text = on(name, |cpu, words| {
            cpu.enter(words[0], 1);
        });
        assert!(text.contains("set `os.active_counts`"), "{text}");
        let text = on(name, |cpu, words| {
            cpu.take(words[0]);
        });
        assert!(text.contains("set `os.roll_back`"), "{text}");
        let text = on(name, |cpu, words| {
            cpu.dcas(words, [0; 2], [1; 2]);
        });
        assert!(text.starts_with(&format!("{name} has no DCAS: give it `processor.dcas`")), "{text}");
    }
    let error = |text: &str| machines::from_text("my.toml", text).unwrap_err().to_string();
    assert_eq!(
        error("like = \"origin2000\"\nprocessor.dcas = \"llp-scp\"\n"),
        "my.toml, line 2: `processor.dcas` needs a bus that a processor can hold for two lines: set `fabric` to \"bus\" and `bus.protocol` to \"write-once\", or leave it \"none\""
    );
    assert!(
        error("like = \"sx4\"\nprocessor.advisory = \"line\"")
            .contains("line 2: `processor.advisory` is a bit of")
    );
    assert!(
        error("like = \"enterprise5000\"\nos.active_counts = \"yes\"")
            .contains("line 2: `os.active_counts` needs a bus")
    );
    assert!(error("like = \"paradigm\"\ncache.ways = 1").contains("`cache.ways` is at least 2"));
    assert!(
        error("like = \"enterprise5000\"\nbus.protocol = \"write-once\"")
            .contains("bus.write, bus.write_back")
    );
    assert!(error("like = \"paradigm\"\nprocessor.dcas = \"casn\"").contains("one of none, llp-scp, cas2"));
}
