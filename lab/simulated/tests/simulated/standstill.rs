//! Slow machines are not stuck, however slow; stuck ones are found, however slow.

use towpath_machine::{Arena, Ordering::Relaxed, Park, Place, Processor};
use towpath_sim::parameters::Unit;
use towpath_sim::{Outcome, Parameters, Simulation, Stuck, machines};

/// Latencies may be so long.
const LONGEST: &str = "1s";

/// A machine with one change, if it allows that.
fn changed(name: &str, change: &str) -> Option<Parameters> {
    let mut machine = machines::by_name(name).unwrap();
    // Refused requests that come again every 100 ns make the host's time long, and no difference.
    let _ = machine.set_from_text("directory.retry=100us");
    machine.set_from_text(change).ok().map(|()| machine)
}

/// Four processors take turns, and read a while before they pass it on: by spinning, by
/// looking now and then, and by sleeping.
fn take_turns(machine: &Parameters) -> Result<Outcome, Stuck> {
    let mut s = Simulation::new(machine, 4, 1);
    let turn = s.arena().word(Place::NewLine, 0);
    let count = s.arena().word(Place::NewLine, 0);
    let read: [_; 20] = std::array::from_fn(|_| s.arena().word(Place::NewLine, 0));
    s.spawn_all(move |cpu| {
        for round in 0..3 {
            let mine = 4 * round + cpu.id() as u64;
            match cpu.id() {
                0 | 1 => {
                    let _ = cpu.spin_until(&turn, Relaxed, u64::MAX, |v| v == mine);
                }
                2 => while cpu.spin_until(&turn, Relaxed, 100_000_000, |v| v == mine).is_err() {},
                _ => loop {
                    let now = cpu.load(&turn, Relaxed);
                    if now == mine {
                        break;
                    }
                    cpu.park(&turn, now, u64::MAX);
                },
            }
            assert!(read.iter().all(|word| cpu.load(word, Relaxed) == 0));
            cpu.store(&count, mine, Relaxed);
            cpu.store(&turn, mine + 1, Relaxed);
            cpu.wake(&turn, 4);
        }
    });
    s.run()
}

#[test]
fn latencies_of_a_second_are_no_deadlock() {
    let mut tried = 0;
    for name in machines::names() {
        let times = machines::by_name(name).unwrap().describe();
        for time in times.iter().filter(|p| p.unit == Unit::Time && !p.name.starts_with("os.")) {
            let Some(machine) = changed(name, &format!("{}={LONGEST}", time.name)) else { continue };
            if let Err(stuck) = take_turns(&machine) {
                panic!("{} of {LONGEST} on {name}: {stuck}", time.name);
            }
            tried += 1;
        }
    }
    assert!(tried > 60, "{tried}");
}

#[test]
fn system_calls_of_an_hour_are_no_deadlock() {
    for name in machines::names() {
        for time in ["os.block", "os.wake", "os.system_call", "os.mutex"] {
            let Some(machine) = changed(name, &format!("{time}=1_000s")) else { panic!("{time} on {name}") };
            if let Err(stuck) = take_turns(&machine) {
                panic!("{time} of an hour on {name}: {stuck}");
            }
        }
        let mut machine = machines::by_name(name).unwrap();
        machine.set_from_text("os.quantum=5_000s").unwrap();
        machine.set_from_text("os.switch=3_600s").unwrap();
        // The one that has to write has not been let onto its processor for hours.
        let mut s = Simulation::new(&machine, 1, 1);
        let word = s.arena().word(Place::NewLine, 0);
        for n in 0..2 {
            s.spawn(0, n, move |cpu| {
                let _ = cpu.spin_until(&word, Relaxed, u64::MAX, |v| v == 1);
            });
        }
        s.spawn(0, 2, move |cpu| cpu.store(&word, 1, Relaxed));
        if let Err(stuck) = s.run() {
            panic!("switches of an hour on {name}: {stuck}");
        }
    }
}

#[test]
fn deadlock_of_a_slow_machine_is_found() {
    for (name, change) in [
        ("origin2000", "network.hop=1s"),
        ("origin2000", "processor.load=1s"),
        ("epyc-milan", "memory.near=1s"),
        ("enterprise5000", "bus.memory=1s"),
        ("paradigm", "bus.memory=1s"),
        ("sx4", "memory.latency=1s"),
        ("epyc-milan", "os.quantum=3_600s"),
        ("epyc-milan", "os.wake=3_600s"),
    ] {
        let machine = changed(name, change).unwrap();
        // Spinning, sleeping, and looking now and then for what never comes; one processor has two
        // threads.
        let mut s = Simulation::new(&machine, 3, 1);
        let word = s.arena().word(Place::NewLine, 0);
        let spin = move |cpu: &towpath_sim::Sim| {
            let _ = cpu.spin_until(&word, Relaxed, u64::MAX, |v| v == 1);
        };
        s.spawn(0, 0, spin);
        s.spawn(0, 1, spin);
        s.spawn(1, 2, move |cpu| {
            while cpu.load(&word, Relaxed) == 0 {
                cpu.park(&word, 0, u64::MAX);
            }
        });
        s.spawn(2, 3, move |cpu| {
            while cpu.load(&word, Relaxed) == 0 {
                cpu.delay(10_000_000);
            }
        });
        let error = s.run().unwrap_err();
        let Stuck::Deadlock(text) = &error else { panic!("{change}: {error}") };
        assert!(
            text.contains("processor 2") && text.contains("thread 0 on processor 0 "),
            "{change}: {text}"
        );
        let says = |words: &str| text.lines().any(|line| line.contains(words));
        assert!(
            says("processor 1 sleeps at word ") || says("processor 1 waits for memory"),
            "{change}: {text}"
        );
    }
}

#[test]
fn limit_within_a_long_access_is_no_deadlock() {
    let machine = changed("epyc-milan", "processor.load=1s").unwrap();
    let mut s = Simulation::new(&machine, 1, 1);
    let word = s.arena().word(Place::NewLine, 0);
    s.spawn_all(move |cpu| while cpu.load(&word, Relaxed) == 0 {});
    assert!(matches!(s.run_until(50_000_000_000_000), Err(Stuck::Limit(_))));
}
