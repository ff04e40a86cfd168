//! `avalanche`: latencies, hops, blocking homes; messages, their interrupts and costs.

use std::cell::RefCell;
use std::rc::Rc;

use towpath_machine::{Arena, Ordering::Relaxed, Place, Processor};
use towpath_sim::{Counters, Parameters, Reception, Sim, SimWord, Simulation};

use crate::support::{machine, simulation};

type Step = (usize, fn(&Sim, &SimWord));

fn load(cpu: &Sim, word: &SimWord) {
    cpu.load(word, Relaxed);
}
fn store(cpu: &Sim, word: &SimWord) {
    cpu.store(word, 1, Relaxed);
}

/// Lets processors access a word at home 0 one after the other. Returns cycles and counts
/// of each.
fn accesses(p: &Parameters, processors: usize, steps: &[Step]) -> Vec<(u64, Counters)> {
    let mut s = simulation(p, processors);
    let word = s.arena().word(Place::Home(0), 0);
    let results = Rc::new(RefCell::new(vec![Default::default(); steps.len()]));
    let cycle = p.cycle;
    for (n, &(processor, step)) in steps.iter().enumerate() {
        let results = Rc::clone(&results);
        s.spawn(processor, n, move |cpu| {
            cpu.work(1_000_000 * (n as u64 + 1));
            let (start, before) = (cpu.clock(), cpu.counters());
            step(cpu, &word);
            let took = cpu.clock() - start;
            cpu.await_all();
            results.borrow_mut()[n] = (took / cycle, cpu.counters().since(&before));
        });
    }
    s.run().unwrap();
    results.take()
}

trait AwaitAll {
    fn await_all(&self);
}

impl AwaitAll for Sim {
    /// Lets the consequences of an access come to their end.
    fn await_all(&self) {
        self.work(100_000);
    }
}

#[test]
fn local_accesses_take_1_and_58_cycles() {
    let p = machine("avalanche", &[]);
    let all = accesses(&p, 4, &[(0, load), (0, load), (0, store)]);
    assert_eq!([all[0].0, all[1].0], [58, 1]);
    assert!(all.iter().all(|(_, c)| c.messages == 0));
}

#[test]
fn transactions_take_up_to_four_hops() {
    for (name, switch) in [("avalanche", 6), ("avalanche-slow", 178)] {
        let p = machine(name, &[]);
        let all = accesses(&p, 4, &[(1, load), (2, store), (3, load), (0, load)]);
        let hops: Vec<u64> = all.iter().map(|(_, c)| c.messages).collect();
        assert_eq!(hops, [2, 4, 4, 0], "{name}");
        let own: Vec<u64> = accesses(&p, 4, &[(1, store), (0, load)]).iter().map(|a| a.1.messages).collect();
        assert_eq!(own, [2, 2], "{name}");
        // Bus, three controllers with the block at the home, bus, and the access itself.
        assert_eq!(all[0].0, 4 + 30 + 58 + 58 + 4 + 1 + 2 * switch);
        // As that, with home, owner and home again.
        assert_eq!(all[2].0, 4 + 30 + 30 + 58 + 2 + 58 + 58 + 4 + 1 + 4 * switch);
    }
}

#[test]
fn home_blocks_a_line_until_all_have_answered() {
    let p = machine("avalanche", &[]);
    let readers = 8;
    let mut s = simulation(&p, 16);
    let word = s.arena().word(Place::Home(0), 0);
    for processor in 1..=readers {
        s.spawn(processor, processor, move |cpu| {
            cpu.load(&word, Relaxed);
        });
    }
    let times = Rc::new(RefCell::new([0; 2]));
    for (n, wait) in [(0, 100_000), (1, 100_300)] {
        let times = Rc::clone(&times);
        s.spawn(10 + n, 10 + n, move |cpu| {
            cpu.work(wait);
            cpu.fetch_add(&word, 1, Relaxed);
            times.borrow_mut()[n] = cpu.clock();
        });
    }
    let outcome = s.run().unwrap();
    let [first, second] = *times.borrow();
    assert!(second > first, "the second one waits at the home: {first}, {second}");
    assert_eq!(outcome.counters.invalidations, readers as u64);
    assert_eq!(outcome.counters.interventions, 1);
}

/// Lets eight processors take lines at home 0 from eight others at one time.
///
/// Returns when the last one has its line.
fn all_at_one_home(p: &Parameters) -> u64 {
    let mut s = simulation(p, 17);
    let end = Rc::new(RefCell::new(0));
    for n in 0..8 {
        let word = s.arena().word(Place::Home(0), 0);
        s.spawn(1 + n, 1 + n, move |cpu| cpu.store(&word, 1, Relaxed));
        let end = Rc::clone(&end);
        s.spawn(9 + n, 9 + n, move |cpu| {
            cpu.work(100_000);
            cpu.load(&word, Relaxed);
            let mut end = end.borrow_mut();
            *end = cpu.clock().max(*end);
        });
    }
    s.run().unwrap();
    (end.take() - 100_000_000) / p.cycle
}

#[test]
fn transactions_of_one_home_wait_for_each_other() {
    let [one, two, any] = [1, 2, 0]
        .map(|n| all_at_one_home(&machine("avalanche-slow", &[&format!("directory.transactions={n}")])));
    // Seven wait for those before them: to an owner and back, a switch each way.
    assert!(one > any + 7 * 2 * 176, "{one} cycles, {any} without a limit");
    assert!((any..one).contains(&two), "{two}");
}

/// Sends a message from node 0 to node 1, whose handler answers it.
fn ping(p: &Parameters, reception: Reception, inside: bool) -> (u64, u64, Counters) {
    let mut s = simulation(p, 2);
    let ends = Rc::new(RefCell::new([0; 2]));
    s.set_handler(move |kernel, arrival| {
        if kernel.node() == 1 {
            kernel.send(arrival.from, arrival.tag + 1, Reception::Polled);
        } else {
            assert_eq!(arrival.tag, 8);
            kernel.notify();
        }
    });
    let here = Rc::clone(&ends);
    s.spawn(0, 0, move |cpu| {
        cpu.work(100_000);
        let start = cpu.clock();
        cpu.call_kernel(|kernel| kernel.send(1, 7, reception));
        cpu.await_notification();
        here.borrow_mut()[0] = cpu.clock() - start;
    });
    let here = Rc::clone(&ends);
    s.spawn(1, 1, move |cpu| {
        cpu.mark_section(inside);
        cpu.work(1_000_000);
        cpu.counters();
        here.borrow_mut()[1] = cpu.clock() - 1_000_000_000;
    });
    let outcome = s.run().unwrap();
    let [answer, stolen] = ends.borrow().map(|ps| ps / p.cycle);
    (answer, stolen, outcome.counters)
}

#[test]
fn answer_by_the_kernel_takes_1400_or_1744_cycles() {
    for (name, cycles) in [("avalanche", 1400), ("avalanche-slow", 1744)] {
        let (answer, stolen, counters) = ping(&machine(name, &[]), Reception::Interrupt, false);
        // The waiter's polls are 10 cycles apart.
        assert!((cycles..cycles + 20).contains(&answer), "{name}: {answer}");
        assert_eq!(stolen, 828 + 100, "{name}");
        assert_eq!((counters.sent, counters.messages, counters.message_interrupts), (2, 2, 1));
    }
}

#[test]
fn handler_in_the_user_s_process_costs_a_signal_more() {
    let [kernel, user] = ["kernel", "user"].map(|handler| {
        ping(&machine("avalanche", &[&format!("message.handler={handler}")]), Reception::Interrupt, false)
    });
    assert_eq!(user.0 - kernel.0, 3500);
    assert_eq!(user.1 - kernel.1, 3500);
}

#[test]
fn interrupts_inside_critical_sections_are_counted() {
    let p = machine("avalanche", &[]);
    for inside in [false, true] {
        let (_, _, counters) = ping(&p, Reception::Interrupt, inside);
        assert_eq!((counters.message_interrupts, counters.interrupts_inside), (1, u64::from(inside)));
    }
    let (_, stolen, counters) = ping(&p, Reception::Polled, true);
    assert_eq!((stolen, counters.message_interrupts), (0, 0), "a polled message interrupts nothing");
}

#[test]
fn messages_of_one_sender_arrive_in_order() {
    let p = machine("avalanche", &[]);
    let mut s = Simulation::new(&p, 8, 3);
    let last = Rc::new(RefCell::new([0; 8]));
    s.set_handler(move |_, arrival| {
        let last = &mut last.borrow_mut()[arrival.from];
        assert_eq!(arrival.tag, *last + 1);
        *last = arrival.tag;
    });
    for processor in 1..8 {
        s.spawn(processor, processor, move |cpu| {
            for tag in 1..=50 {
                cpu.call_kernel(|kernel| kernel.send(0, tag, Reception::Interrupt));
            }
        });
    }
    s.spawn(0, 0, |cpu| cpu.work(1_000_000));
    let outcome = s.run().unwrap();
    assert!(outcome.counters.message_interrupts <= 7 * 50);
}

#[test]
fn thread_without_a_notification_is_stuck() {
    let mut s = simulation(&machine("avalanche", &[]), 2);
    s.set_handler(|_, _| {});
    s.spawn(0, 0, |cpu| cpu.await_notification());
    assert!(matches!(s.run(), Err(towpath_sim::Stuck::Deadlock(_))));
}

#[test]
fn messages_and_their_machine_go_together() {
    let error = |text: &str| towpath_sim::machines::from_text("my.toml", text).unwrap_err().to_string();
    let kernel = "like = \"origin2000\"\n[message]\nhandler = \"kernel\"\n";
    assert!(error(kernel).contains("these parameters have no value: message.system_call"));
    assert!(error("like = \"avalanche\"\nnetwork.topology = \"hypercube\"").contains("no value"));
    assert!(error("like = \"avalanche\"\nprocessor.per_node = 2").contains("`processor.per_node` is 1"));
    assert!(error("like = \"avalanche\"\ndirectory.protocol = \"forwarding\"").contains("carries messages"));
}
