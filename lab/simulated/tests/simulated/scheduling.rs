//! The operating system: no thread is forgotten, whatever it does when its time slice
//! ends; time goes forward; stolen cycles are stolen.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::{Arena, FetchOp, LlSc, Ordering::Relaxed, Park, Place, Processor, Scheduling};
use towpath_sim::{Parameters, Simulation, Stuck, machines};
use towpath_sync::{Policy, Surroundings, Wait, Waiting};

fn origin(changes: &[&str]) -> Parameters {
    let mut p = machines::by_name("origin2000").unwrap();
    for change in changes {
        p.set_from_text(change).unwrap();
    }
    p
}

const SHORT: [&str; 2] = ["os.switch=1us", "os.quantum=10us"];

#[test]
fn a_spinner_whose_slice_ended_within_an_access_gives_way() {
    // The other thread of the processor, behind it in the queue, is the one that it waits for. Many
    // phases: in some the slice ends during the spinner's miss.
    for policy in ["os.policy=time-sharing", "os.policy=gang"] {
        for seed in 0..200 {
            let p = origin(&[&SHORT[..], &[policy, "network.first_router=3us"]].concat());
            let mut s = Simulation::new(&p, 8, seed);
            let word = s.arena().word(Place::Home(3), 0);
            s.spawn(0, 0, move |cpu| {
                let _ = cpu.spin_until(&word, Relaxed, u64::MAX, |v| v == 1);
            });
            s.spawn(0, 1, move |cpu| cpu.store(&word, 1, Relaxed));
            // A second program, so that gang scheduling has something to do.
            s.spawn_in_job(1, 0, 1, |cpu| cpu.work(50_000));
            s.run().unwrap_or_else(|e| panic!("{policy}, seed {seed}: {e}"));
        }
    }
}

#[test]
fn threads_of_one_program_share_a_processor_in_a_gang() {
    // The other program has ended long ago.
    let p = origin(&[&SHORT[..], &["os.policy=gang"]].concat());
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn_in_job(0, 0, 1, |cpu| cpu.work(1));
    s.spawn(0, 0, move |cpu| {
        cpu.work(200_000);
        let _ = cpu.spin_until(&word, Relaxed, u64::MAX, |v| v == 1);
    });
    s.spawn(0, 1, move |cpu| {
        cpu.work(200_000);
        cpu.store(&word, 1, Relaxed);
    });
    s.run().unwrap();
}

#[test]
fn thread_that_only_misses_is_preempted_too() {
    // One thread reads nothing but new lines, each of which takes longer than a time slice.
    let p = origin(&["os.switch=1us", "os.quantum=2us", "network.first_router=3us"]);
    let mut s = Simulation::new(&p, 8, 1);
    let words: Vec<_> = (0..400).map(|_| s.arena().word(Place::Home(3), 0)).collect();
    let end = Rc::new(Cell::new(0));
    let here = Rc::clone(&end);
    s.spawn(0, 0, move |cpu| {
        words.iter().for_each(|word| {
            cpu.load(word, Relaxed);
        })
    });
    s.spawn(0, 1, move |cpu| {
        cpu.work(50_000);
        here.set(cpu.now());
    });
    let outcome = s.run().unwrap();
    assert!(outcome.counters.preemptions > 30, "{:?}", outcome.counters);
    assert!(end.get() < outcome.time / 1000 / 2, "{} of {} ns", end.get(), outcome.time / 1000);
}

#[test]
fn an_interrupted_operation_at_memory_keeps_its_result() {
    // Interrupts, time slices and operations at memory at once: each thread's results are its own.
    let p = origin(&[&SHORT[..], &["os.interrupt_every=3us", "os.interrupt_cost=2.5us"]].concat());
    let mut s = Simulation::new(&p, 2, 4);
    let words = [s.arena().word(Place::AtMemory(0), 0), s.arena().word(Place::AtMemory(0), 1 << 32)];
    for (i, word) in words.into_iter().cycle().take(4).enumerate() {
        s.spawn(i / 2, i, move |cpu| {
            let mut last = None;
            for _ in 0..300 {
                let value = cpu.fetch_increment(&word);
                assert_eq!(value >> 32, (i % 2) as u64, "it is this word's");
                assert!(last < Some(value));
                last = Some(value);
            }
        });
    }
    s.run().unwrap();
}

#[test]
fn a_wake_before_the_sleep_is_kept_and_time_goes_forward() {
    let p = origin(&["os.block=50us", "os.wake=0", "os.switch=1us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::Home(0), 0);
    let (begin, end) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (b, e) = (Rc::clone(&begin), Rc::clone(&end));
    s.spawn(0, 0, move |cpu| {
        b.set(cpu.now());
        cpu.park(&word, 0, u64::MAX);
        e.set(cpu.now());
    });
    s.spawn(1, 1, move |cpu| {
        cpu.work(5_000);
        assert_eq!(cpu.wake(&word, 1), 1, "it is in the middle of its system call");
    });
    s.run().unwrap();
    assert!(end.get() >= begin.get() + 50_000, "{} to {} ns", begin.get(), end.get());
}

#[test]
fn a_processor_that_lets_go_of_a_thread_is_busy_with_that_first() {
    // While the first thread goes to sleep (50 us), the second wakes up; it must wait for the
    // processor.
    let p = origin(&["os.block=50us", "os.wake=1us", "os.switch=1us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let words = [s.arena().word(Place::Home(0), 0), s.arena().word(Place::Home(0), 0)];
    let (asleep, awake) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (a, b) = (Rc::clone(&asleep), Rc::clone(&awake));
    s.spawn(0, 0, move |cpu| {
        cpu.park(&words[0], 0, u64::MAX);
        b.set(cpu.now());
    });
    s.spawn(0, 1, move |cpu| {
        cpu.work(100_000);
        a.set(cpu.now());
        cpu.park(&words[1], 0, 10_000);
    });
    s.spawn(1, 2, move |cpu| {
        while asleep.get() == 0 || cpu.now() < asleep.get() + 5_000 {
            cpu.load(&words[0], Relaxed);
            cpu.work(1_000);
        }
        cpu.wake(&words[0], 1);
        cpu.work(1_000_000);
    });
    let outcome = s.run().unwrap();
    assert!(awake.get() >= 150_000, "{} ns, {:?}", awake.get(), outcome.counters);
}

#[test]
fn interrupts_steal_cycles_and_reservations() {
    let p = origin(&["os.interrupt_every=100us", "os.interrupt_cost=30us"]);
    let mut s = Simulation::new(&p, 1, 1);
    let word = s.arena().word(Place::Home(0), 0);
    let lost = Rc::new(Cell::new(0));
    let here = Rc::clone(&lost);
    s.spawn(0, 0, move |cpu| {
        for _ in 0..100 {
            cpu.load_linked(&word);
            cpu.work(70_000);
            here.set(here.get() + u64::from(!cpu.store_conditional(&word, 1)));
        }
    });
    let outcome = s.run().unwrap();
    let interrupts = outcome.counters.interrupts;
    assert!((95..=105).contains(&interrupts), "{interrupts} in {} ns", outcome.time / 1000);
    let work = outcome.time / 1000 - 30_000 * interrupts;
    assert!((7_000_000..7_070_000).contains(&work), "{work} ns of work");
    // About every interrupt comes into the work, and costs a reservation.
    assert!((60..=100).contains(&lost.get()), "{}", lost.get());
}

#[test]
fn a_miss_may_lose_the_reservation() {
    for (reservation, stored) in [("line", true), ("no-miss", false)] {
        let p = origin(&[&format!("processor.reservation={reservation}")]);
        let mut s = Simulation::new(&p, 1, 1);
        let words = [s.arena().word(Place::Home(0), 0), s.arena().word(Place::Home(0), 0)];
        s.spawn(0, 0, move |cpu| {
            cpu.load_linked(&words[0]);
            cpu.load(&words[1], Relaxed);
            assert_eq!(cpu.store_conditional(&words[0], 1), stored);
            // Now both are there.
            cpu.load_linked(&words[0]);
            cpu.load(&words[1], Relaxed);
            assert!(cpu.store_conditional(&words[0], 1));
        });
        s.run().unwrap();
    }
}

#[test]
fn preempted_flags_say_which_thread_runs() {
    let p = origin(&SHORT);
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let here = Rc::clone(&seen);
    for id in 0..2 {
        s.spawn(0, id, move |cpu| {
            cpu.work(500_000);
            cpu.load(&word, Relaxed);
        });
    }
    s.spawn(1, 2, move |cpu| {
        assert!(!cpu.is_preempted(2) && !cpu.is_preempted(77), "itself, and no thread");
        for _ in 0..500 {
            cpu.work(1_900);
            here.borrow_mut().push([0, 1].map(|id| cpu.is_preempted(id)));
        }
    });
    s.run().unwrap();
    let count = |flags| seen.borrow().iter().filter(|&&f| f == flags).count();
    assert_eq!(count([false, false]), 0, "one processor, two threads");
    let (first, second) = (count([false, true]), count([true, false]));
    assert!(first > 180 && second > 180, "{first} and {second} of 500");
}

#[test]
fn thread_that_only_looks_for_ever_is_stuck() {
    for way in 0..3 {
        let p = origin(&[]);
        let mut s = Simulation::new(&p, 1, 1);
        let word = s.arena().word(Place::NewLine, 0);
        s.spawn_all(move |cpu| {
            while cpu.load(&word, Relaxed) == 0 {
                match way {
                    0 => cpu.delay(10_000),
                    1 => cpu.yield_now(),
                    _ => {
                        let _ = cpu.spin_until(&word, Relaxed, 50_000, |v| v == 1);
                    }
                }
            }
        });
        let error = s.run().unwrap_err();
        assert!(matches!(error, Stuck::Deadlock(_)), "{error}");
    }
    let p = origin(&[]);
    let mut s = Simulation::new(&p, 1, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn_all(move |cpu| while cpu.load(&word, Relaxed) == 0 {});
    assert!(matches!(s.run_until(1_000_000), Err(Stuck::Limit(_))));
}

#[test]
fn times_beyond_all_bounds_end_the_run() {
    let p = origin(&[]);
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn_all(move |cpu| {
        for _ in 0..10 {
            cpu.work(u64::MAX);
            cpu.delay(u64::MAX);
            cpu.store(&word, 1, Relaxed);
            cpu.park(&word, 1, u64::MAX);
        }
    });
    assert!(matches!(s.run(), Err(Stuck::Limit(_))));
}

#[test]
fn a_home_serves_the_own_node_first() {
    // Processors 0 and 1 sit at the home, 2 to 31 come from afar: with `local-first` the near ones
    // don't wait for them.
    let share = |service: &str| {
        let p = origin(&[&format!("directory.service={service}"), "fetch_op.occupancy=1us"]);
        let mut s = Simulation::new(&p, 32, 1);
        let word = s.arena().word(Place::AtMemory(0), 0);
        let near = Rc::new(Cell::new(0));
        for i in 0..32 {
            let near = Rc::clone(&near);
            s.spawn(i, i, move |cpu| {
                while cpu.now() < 500_000 {
                    cpu.fetch_increment(&word);
                    near.set(near.get() + u64::from(i < 2));
                }
            });
        }
        s.run().unwrap();
        near.get()
    };
    let (fair, local) = (share("fifo"), share("local-first"));
    assert!((25..=40).contains(&fair) && local > 450, "{fair} and {local} of 500");
}

#[test]
fn processors_begin_with_any_of_their_threads() {
    // Two programs on 64 processors that share time: at the start neither has them all, or nearly
    // all.
    for seed in 0..20 {
        let mut s = Simulation::new(&origin(&["os.quantum=1ms"]), 64, seed);
        let first = Rc::new(RefCell::new(Vec::new()));
        for job in 0..2 {
            for processor in 0..64 {
                let first = Rc::clone(&first);
                s.spawn_in_job(processor, processor, job, move |cpu| {
                    let start = cpu.now();
                    cpu.work(2_000_000);
                    first.borrow_mut().push((start, job));
                });
            }
        }
        s.run().unwrap();
        let at_once = first.borrow().iter().filter(|f| f.0 == 0).map(|f| f.1).collect::<Vec<_>>();
        let of_one = at_once.iter().filter(|&&job| job == 0).count();
        assert_eq!(at_once.len(), 64);
        assert!(
            (12..=52).contains(&of_one),
            "seed {seed}: {of_one} of 64 processors begin with the first program"
        );
    }
}

#[test]
fn a_program_that_ends_leaves_the_rest_of_its_slice_to_the_next() {
    let p = origin(&["os.policy=gang", "os.quantum=1s", "os.switch=10us"]);
    let mut s = Simulation::new(&p, 4, 1);
    for job in 0..3 {
        for processor in 0..4 {
            s.spawn_in_job(processor, processor, job, |cpu| cpu.work(100_000));
        }
    }
    let outcome = s.run().unwrap();
    // Three times the work, two switches, and no waiting for the end of a slice.
    assert_eq!(outcome.time, 320_000_000);
}

#[test]
fn a_gang_keeps_its_processors_while_its_threads_sleep() {
    // The thread of the program whose turn it is sleeps: its processor is idle, though the other
    // program's thread could run there.
    let p = origin(&["os.policy=gang", "os.quantum=1ms", "os.switch=10us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn_in_job(0, 0, 0, move |cpu| cpu.park(&word, 0, 300_000));
    s.spawn_in_job(1, 1, 0, |cpu| cpu.work(400_000));
    let start = Rc::new(Cell::new(0));
    let here = Rc::clone(&start);
    s.spawn_in_job(0, 0, 1, move |cpu| here.set(cpu.now()));
    s.run().unwrap();
    assert_eq!(start.get(), 410_000, "when the first program has ended, and a switch later");
}

#[test]
fn a_woken_thread_queues_up_behind_the_others() {
    let p = origin(&["os.quantum=100us", "os.switch=1us"]);
    let mut s = Simulation::new(&p, 2, 1);
    let word = s.arena().word(Place::NewLine, 0);
    let order = Rc::new(RefCell::new(Vec::new()));
    let (a, b, c) = (Rc::clone(&order), Rc::clone(&order), Rc::clone(&order));
    // On one processor: a sleeper, and two that compute for longer than a slice.
    s.spawn(0, 0, move |cpu| {
        cpu.park(&word, 0, u64::MAX);
        a.borrow_mut().push("woken");
    });
    s.spawn(0, 1, move |cpu| {
        cpu.work(450_000);
        cpu.validate(&word);
        b.borrow_mut().push("computed");
    });
    s.spawn(0, 2, move |cpu| {
        cpu.work(450_000);
        cpu.validate(&word);
        c.borrow_mut().push("computed");
    });
    s.spawn(1, 3, move |cpu| {
        cpu.work(320_000);
        cpu.store(&word, 1, Relaxed);
        assert_eq!(cpu.wake(&word, 1), 1);
    });
    let outcome = s.run().unwrap();
    assert_eq!(*order.borrow(), ["woken", "computed", "computed"]);
    // It gets the processor at the end of a slice, not before.
    assert!(outcome.counters.preemptions >= 4, "{:?}", outcome.counters);
}

#[test]
fn sleepers_are_woken_one_after_the_other() {
    let p = origin(&["os.wake=5us", "os.system_call=2us", "os.switch=1us"]);
    let mut s = Simulation::new(&p, 8, 1);
    s.without_jitter();
    let word = s.arena().word(Place::NewLine, 0);
    let (woken, waker) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new((0, 0))));
    for processor in 1..8 {
        let woken = Rc::clone(&woken);
        s.spawn(processor, processor, move |cpu| {
            cpu.park(&word, 0, u64::MAX);
            woken.borrow_mut().push(cpu.now());
        });
    }
    let here = Rc::clone(&waker);
    s.spawn(0, 0, move |cpu| {
        cpu.work(100_000);
        cpu.store(&word, 1, Relaxed);
        // Until the store has left its buffer.
        cpu.work(1_000);
        let start = cpu.now();
        assert_eq!(cpu.wake(&word, u32::MAX), 7);
        here.set((start, cpu.now()));
    });
    s.run().unwrap();
    let (start, end) = waker.get();
    assert_eq!(end - start, 14_000, "two microseconds for each");
    let mut woken = woken.borrow().clone();
    woken.sort_unstable();
    let expected: Vec<u64> = (0..7).map(|i| start + 5_000 + 1_000 + i * 2_000).collect();
    assert_eq!(woken, expected);
}

#[test]
fn yielding_costs_a_call_if_alone_and_a_switch_if_not() {
    let p = origin(&["os.switch=10us", "os.system_call=1us"]);
    for (others, cost) in [(0, 1_000), (1, 11_000)] {
        let mut s = Simulation::new(&p, 1, 3);
        let times = Rc::new(RefCell::new(Vec::new()));
        for id in 0..=others {
            let times = Rc::clone(&times);
            s.spawn(0, id, move |cpu| {
                times.borrow_mut().push(cpu.now());
                cpu.yield_now();
                times.borrow_mut().push(cpu.now());
            });
        }
        s.run().unwrap();
        let times = times.borrow();
        assert!(times.windows(2).all(|w| w[1] - w[0] == cost || w[1] - w[0] == 10_000), "{times:?}");
        assert_eq!(times[1] - times[0], cost, "{times:?}");
    }
}

/// Surroundings of a wait that can't end any more.
struct Hopeless;

impl Surroundings for Hopeless {
    fn abandoned(&self) -> bool {
        true
    }
}

#[test]
fn waiter_that_yields_to_one_that_computes_asks_for_deaths_soon() {
    // A yield takes as long as the other's time slice: a few of them are the millisecond after
    // which a waiter asks.
    let p = origin(&["os.switch=1us", "os.quantum=200us"]);
    let mut s = Simulation::new(&p, 1, 1);
    let word = s.arena().word(Place::NewLine, 0);
    let asked = Rc::new(Cell::new(0));
    let here = Rc::clone(&asked);
    s.spawn(0, 0, move |cpu| {
        let wait = Wait { policy: Policy::SpinThenYield, around: &Hopeless, budget: 2_000 };
        assert!(wait.wait_until(cpu, &word, |value| value == 1).is_err());
        here.set(cpu.now());
    });
    s.spawn(0, 1, |cpu| cpu.work(100_000_000));
    s.run().unwrap();
    assert!((1_000_000..2_000_000).contains(&asked.get()), "{} ns", asked.get());
}

/// Measures 25 µs of computing with two threads on a processor and slices of 10 µs, by
/// one that asks to stay (or that another processor keeps), over many phases: the least and the
/// most. Returns also whether the other thread's turn always came right after the first had let go.
fn twenty_five(kept: bool, grace: &str) -> (u64, u64, bool) {
    let p = origin(&["os.switch=1us", "os.quantum=10us", grace]);
    let (mut least, mut most, mut gives_way) = (u64::MAX, 0, true);
    for seed in 0..40 {
        let mut s = Simulation::new(&p, 2, seed);
        let words = [0, 1].map(|_| s.arena().word(Place::NewLine, 0));
        // When it has computed, when it goes on after letting go; and the other thread's steps.
        let times = Rc::new(Cell::new((0, 0, 0)));
        let steps = Rc::new(RefCell::new(Vec::new()));
        let (here, there) = (Rc::clone(&times), Rc::clone(&steps));
        s.spawn(0, 0, move |cpu| {
            if kept {
                cpu.store(&words[0], 1, Relaxed);
                let _ = cpu.spin_until(&words[0], Relaxed, u64::MAX, |v| v == 2);
            } else {
                cpu.stay(true);
            }
            let start = cpu.now();
            cpu.work(25_000);
            cpu.stay(true);
            let end = cpu.now();
            cpu.stay(false);
            cpu.load(&words[0], Relaxed);
            here.set((end - start, end, cpu.now()));
        });
        s.spawn(0, 1, move |cpu| {
            for _ in 0..200 {
                cpu.work(500);
                cpu.load(&words[1], Relaxed);
                there.borrow_mut().push(cpu.now());
            }
        });
        if kept {
            s.spawn(1, 2, move |cpu| {
                let _ = cpu.spin_until(&words[0], Relaxed, u64::MAX, |v| v == 1);
                while !cpu.keep(0) {
                    cpu.work(500);
                }
                assert!(!cpu.keep(1), "it does not run");
                assert!(cpu.keep(77), "no such thread");
                cpu.store(&words[0], 2, Relaxed);
            });
        }
        s.run().unwrap();
        let (took, end, on) = times.get();
        (least, most) = (least.min(took), most.max(took));
        gives_way &= on > end + 9_000 && steps.borrow().iter().any(|t| (end..end + 3_000).contains(t));
    }
    (least, most, gives_way)
}

#[test]
fn thread_that_asks_to_stay_stays_but_not_for_ever() {
    for kept in [false, true] {
        // Its slice has ended, since it is shorter: when it lets go, the other's turn comes at
        // once.
        let (least, most, gives_way) = twenty_five(kept, "os.grace=100us");
        assert!(least >= 25_000 && most < 25_100, "kept: {kept}, {least} to {most}");
        assert!(gives_way, "kept: {kept}");
        let (least, most, _) = twenty_five(kept, "os.grace=0");
        assert!(least > 30_000 && most > 45_000, "preempted, more than once: {least} to {most}");
        let (least, most, _) = twenty_five(kept, "os.grace=4us");
        assert!(least > 30_000, "longer than a slice and the grace together: {least} to {most}");
    }
}
