//! Every barrier under every waiting policy.

use towpath_machine::{Arena, Event, Place, Processor};
use towpath_sync::{Barrier, Wait, for_each_barrier};

use crate::machine::{Machine, Schedule, Sequential};
use crate::waits;

const ROUNDS: u64 = 3;
const SEEDS: u64 = 16;

/// Lets each processor write its datum before the barrier and read the others'
/// afterwards: the race check finds one that passes too early. Returns the number of sleeps until
/// the time was over.
fn meet<B: Barrier<Sequential>>(
    participants: usize,
    wait: &Wait<'_>,
    schedule: Schedule,
) -> Result<u64, String> {
    let machine = Machine::new(schedule);
    let barrier = B::new(&*machine, participants);
    let data: Vec<_> = (0..participants).map(|_| machine.cell(Place::NewLine, 0)).collect();
    machine.run(participants, |cpu| {
        for round in 1..=ROUNDS {
            cpu.write(&data[cpu.id()], round);
            barrier.wait(cpu, cpu.id(), wait).expect("no thread dies here");
            data.iter().for_each(|d| assert_eq!(cpu.read(d), round, "passes too early"));
            barrier.wait(cpu, cpu.id(), wait).expect("no thread dies here");
            cpu.note(Event::Acquired(0));
        }
    })?;
    Ok(machine.overslept(None))
}

fn meets<B: Barrier<Sequential>>() {
    for seed in 0..SEEDS {
        for participants in [1, 3, 8] {
            for stops in [false, true] {
                let schedule = Schedule { seed, stops };
                for (wait, policy) in waits() {
                    let overslept = meet::<B>(participants, &wait, schedule)
                        .unwrap_or_else(|e| panic!("{} under {policy}: {e}", B::NAME));
                    // If no processor is stopped, a sleeper that was not woken was forgotten.
                    assert!(
                        stops || overslept == 0,
                        "{} under {policy}: a wake-up was lost: {schedule:?}",
                        B::NAME
                    );
                }
            }
        }
    }
}

#[test]
fn no_participant_passes_a_barrier_before_all_have_arrived() {
    for_each_barrier!([atomics ll_sc fetch_op] Sequential, 8 => meets());
}
