//! The doorbell's handshake under the model checker, with a ring: no wake-up is lost; and
//! the proof that fences, orderings and the order of the steps are needed: without one of them, a
//! message comes and its receiver sleeps on. Sleepers never time out here, so that is a deadlock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use loom::thread;

use towpath_channel::doorbell::Doorbell;
use towpath_channel::packet::{Form, Header};
use towpath_channel::ring::{Ring, RingMemory, RingReceiver, RingSender};
use towpath_machine::{Arena, LoomArena, Ordering, Park, Place, Processor};
use towpath_testkit::{model, preemptions};

use crate::weakened::{Missing, Weakened, Word};

const SLOTS: usize = 2;

/// A receiver's memory: a ring for each sender, its doorbell, and its wake pipe.
struct Receiver {
    rings: Vec<Ring<Weakened, SLOTS>>,
    doorbell: Doorbell<Weakened>,
    /// Number of bytes in the pipe.
    pipe: Word,
}

#[derive(Clone)]
struct Memory(Arc<Receiver>, usize);

impl RingMemory<SLOTS> for Memory {
    type Cpu = Weakened;
    fn ring(&self) -> &Ring<Weakened, SLOTS> {
        &self.0.rings[self.1]
    }
}

impl Receiver {
    fn new(senders: usize) -> Arc<Receiver> {
        let arena = LoomArena { parking: true };
        Arc::new(Receiver {
            rings: (0..senders).map(|_| Ring::new(&LoomArena::default())).collect(),
            doorbell: Doorbell::new(&arena),
            pipe: Arena::<Weakened>::word(&arena, Place::NewLine, 0),
        })
    }

    /// The kernel's part: a pipe is written, emptied and polled in one step each.
    fn write(&self, cpu: &Weakened) {
        kernel(cpu).fetch_add(&self.pipe, 1, Ordering::SeqCst);
        kernel(cpu).wake(&self.pipe, 1);
    }
    fn empty(&self, cpu: &Weakened) {
        kernel(cpu).swap(&self.pipe, 0, Ordering::SeqCst);
    }
    fn poll(&self, cpu: &Weakened) {
        kernel(cpu).park(&self.pipe, 0, u64::MAX);
    }
}

/// The processor, in a system call: it leaves out nothing.
fn kernel(cpu: &Weakened) -> Weakened {
    Weakened { missing: Missing::Nothing, ..*cpu }
}

/// A receiver's way to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    /// Sleep on the doorbell.
    Count,
    /// Sleep on the wake pipe.
    Pipe,
}

/// A planted fault of the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// No look after it has armed the doorbell.
    LooksBefore,
}

/// A model. Threads 1 and up each send so many messages; thread 0 receives them all.
#[derive(Clone, Copy)]
struct Case {
    sleep: Sleep,
    senders: usize,
    each: u64,
    sender: Missing,
    receiver: Missing,
    fault: Fault,
}

impl Case {
    fn of(sleep: Sleep) -> Case {
        let (sender, receiver) = (Missing::Nothing, Missing::Nothing);
        Case { sleep, senders: 1, each: 2, sender, receiver, fault: Fault::None }
    }

    fn run(self) {
        let allowed = if self.senders == 1 { 3 } else { preemptions(2, 3) };
        model(allowed, move || {
            let shared = Receiver::new(self.senders);
            let threads: Vec<_> = (0..self.senders)
                .map(|n| {
                    let memory = Memory(Arc::clone(&shared), n);
                    thread::spawn(move || self.send(memory))
                })
                .collect();
            self.receive(&shared);
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    fn send(self, memory: Memory) {
        let (cpu, shared) = (Weakened::new(memory.1 + 1, self.sender), Arc::clone(&memory.0));
        let mut out = RingSender::<_, SLOTS>::new(memory, 0);
        for n in 0..self.each {
            let sent = out.send_in_slot(&cpu, None, |_, _, slot, _| {
                cpu.write(&slot.args[0], n);
                Some(Header::new(Form::Short, 0, 2, 0))
            });
            assert!(sent);
            if shared.doorbell.is_armed(&cpu) {
                shared.doorbell.wake(&cpu, |_| shared.write(&cpu));
            }
        }
    }

    fn receive(self, shared: &Arc<Receiver>) {
        let cpu = Weakened::new(0, self.receiver);
        let mut rings: Vec<_> = (0..self.senders)
            .map(|n| (RingReceiver::<_, SLOTS>::new(Memory(Arc::clone(shared), n)), 0))
            .collect();
        while rings.iter().any(|(_, taken)| *taken < self.each) {
            let mut found = false;
            for (ring, taken) in &mut rings {
                if let Some(message) = ring.next(&cpu) {
                    let n = ring.deliver(&cpu, message, |_, slot, _, _| cpu.read(&slot.args[0]));
                    assert_eq!(n, *taken);
                    *taken += 1;
                    found = true;
                }
            }
            if !found {
                let is_ready =
                    || self.fault != Fault::LooksBefore && rings.iter().any(|(r, _)| r.is_ready(&cpu));
                self.fall_asleep(&cpu, shared, is_ready);
            }
        }
    }

    fn fall_asleep(self, cpu: &Weakened, shared: &Receiver, is_ready: impl Fn() -> bool) {
        match self.sleep {
            Sleep::Count => {
                let count = shared.doorbell.arm(cpu);
                if !is_ready() {
                    cpu.park(&shared.doorbell.count, count, u64::MAX);
                }
                shared.doorbell.disarm(cpu);
            }
            Sleep::Pipe => {
                shared.empty(cpu);
                shared.doorbell.arm_pipe(cpu);
                if !is_ready() {
                    shared.poll(cpu);
                }
            }
        }
    }

    fn fails(self) -> bool {
        catch_unwind(AssertUnwindSafe(|| self.run())).is_err()
    }
}

#[test]
fn a_sleeper_on_the_count_is_woken_for_each_message() {
    Case::of(Sleep::Count).run();
    Case { senders: 2, each: 1, ..Case::of(Sleep::Count) }.run();
}

#[test]
fn a_sleeper_on_the_pipe_is_woken_for_each_message() {
    Case::of(Sleep::Pipe).run();
    Case { senders: 2, each: 1, ..Case::of(Sleep::Pipe) }.run();
}

/// (W1), on either side.
#[test]
fn without_a_full_fence_a_wake_up_is_lost() {
    for sleep in [Sleep::Count, Sleep::Pipe] {
        let case = Case::of(sleep);
        assert!(Case { sender: Missing::Fence, ..case }.fails(), "the sender's, {sleep:?}");
        assert!(Case { receiver: Missing::Fence, ..case }.fails(), "the receiver's, {sleep:?}");
    }
}

#[test]
fn a_message_without_its_orderings_is_a_race() {
    for sleep in [Sleep::Count, Sleep::Pipe] {
        let case = Case::of(sleep);
        assert!(Case { sender: Missing::Release, ..case }.fails(), "(S1), {sleep:?}");
        assert!(Case { receiver: Missing::Acquire, ..case }.fails(), "(S2), {sleep:?}");
    }
}

#[test]
fn a_step_left_out_loses_a_wake_up() {
    for sleep in [Sleep::Count, Sleep::Pipe] {
        assert!(Case { fault: Fault::LooksBefore, ..Case::of(sleep) }.fails(), "{sleep:?}");
    }
    assert!(Case { sender: Missing::Wake, ..Case::of(Sleep::Count) }.fails());
}
