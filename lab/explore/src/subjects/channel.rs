//! The channel: ring, shared line, answer line, stream, doorbell, wake pipe, and the
//! queue of many senders under each claim.
//!
//! Thread 0 receives, all others send to it; each checks what it gets. A message that can be read
//! before it is written, or overwritten before it is read, is a race; a receiver that sleeps on
//! although a message is there has lost a wake-up.

mod many_senders;
mod owners;
mod stream;
mod suspected;
mod talks;
mod watched;

use std::rc::Rc;

use towpath_channel::claim::Algorithm;
use towpath_channel::doorbell::Doorbell;
use towpath_channel::packet::{Form, Header, Slot};
use towpath_channel::ring::{Ring, RingMemory, RingReceiver, RingSender};
use towpath_channel::shared_line::SharedLine;
use towpath_machine::{Arena, Ordering, Park, Place, Processor};

use many_senders::ManySenders;
use owners::{AnnouncedRun, AwayRun, HandledRun, OwnedQueue};
use stream::Streamed;
use suspected::SuspectedLock;
use talks::Talks;
use watched::{Stray, WatchedQueue};

use super::queue_memory::ExploredQueueMemory;
use super::{BUDGET, ENDLESS, ExploredMember};
use towpath_schedules::Word;
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Slots of a ring: few, so that it gets full.
const SLOTS: usize = 2;
/// Descriptor of the wake pipe.
const PIPE: u32 = 7;
/// Packets of a queue: enough for all messages. (Waiting for space counts on timeouts.)
const PACKETS: usize = 16;

/// All that can be explored of the channel.
pub fn all(cases: &mut Vec<Case>) {
    let case = |name: &str, about: &str, kind: fn(&Plan, &ExploredMemory) -> Rc<dyn SubjectRun>| {
        Case::new(name, about, move |plan: &Plan, memory: &ExploredMemory| Ok(kind(plan, memory)))
    };
    cases.push(case("channel/ring", "each sender's messages once, whole and in order", |plan, memory| {
        Rings::body(plan, memory, Sleep::Spins)
    }));
    cases.push(case(
        "channel/shared-line",
        "answers and streams, once, whole and in order",
        |plan, memory| {
            Rc::new(PairOfMessages {
                pairs: (1..plan.threads).map(|_| RingPair::new(memory)).collect(),
                plan: *plan,
            })
        },
    ));
    cases.push(case(
        "channel/answer-line",
        "questions and answers, once and whole; sleeping ends are woken",
        |plan, memory| Talks::body(plan, memory, false),
    ));
    cases.push(case(
        "channel/stream",
        "records of each sender, more than fit, once, whole and in order; the receiver is woken",
        |plan, memory| Streamed::body(plan, memory, false),
    ));
    cases.push(case("channel/doorbell", "a sleeping receiver is woken for each message", |plan, memory| {
        Rings::body(plan, memory, Sleep::Doorbell { looks: true })
    }));
    cases.push(case("channel/wake-pipe", "the same through a pipe", |plan, memory| {
        Rings::body(plan, memory, Sleep::Pipe { empties_first: true })
    }));
    for algorithm in Algorithm::ALL {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            if (plan.threads - 1) * plan.ops > PACKETS {
                return Err(format!("has {PACKETS} packets: take fewer threads or operations"));
            }
            Ok(Rc::new(ManySenders::new(plan, memory, algorithm)))
        };
        let about = "each sender's messages once, whole and in order; sleepers are woken";
        cases.push(Case::new(format!("channel/{}", algorithm.name()), about, make));
    }
    for algorithm in [Algorithm::Ticket, Algorithm::Posix, Algorithm::LockFree, Algorithm::Towpath] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(WatchedQueue::new(plan, memory, algorithm)))
        };
        let about = "few packets: each sender's messages once, and nothing is lost with the dead";
        let endures_deaths = matches!(algorithm, Algorithm::LockFree | Algorithm::Towpath);
        let name = format!("channel/watched-{}", algorithm.name());
        cases.push(Case { endures_deaths, ..Case::new(name, about, make) });
    }
    for algorithm in [Algorithm::Ticket, Algorithm::LockFree] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(WatchedQueue::new(plan, memory, algorithm).reborn(memory)))
        };
        let about = "senders that have just begun are not taken for their predecessors";
        cases.push(Case::new(format!("channel/reborn-{}", algorithm.name()), about, make));
    }
    for (algorithm, stray, of) in [
        (Algorithm::Towpath, Stray::Progress, "progress"),
        (Algorithm::LockFree, Stray::Progress, "progress"),
        (Algorithm::LockFree, Stray::Packet, "packet"),
        (Algorithm::Ticket, Stray::Packet, "packet"),
        (Algorithm::Towpath, Stray::Tail, "tail"),
    ] {
        let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
            Ok(Rc::new(WatchedQueue::new(plan, memory, algorithm).damaged(stray)))
        };
        let name = format!("channel/damaged-{of}-{}", algorithm.name());
        cases.push(Case::new(name, "a word with nonsense is repaired, or the queue closed", make));
    }
    cases.push(case(
        "channel/announced",
        "an owner waits for senders, or they are stopped",
        |plan, memory| Rc::new(AnnouncedRun::new(plan, memory)),
    ));
    cases.push(case("channel/away", "a receiver that is away can be called", |plan, memory| {
        Rc::new(AwayRun(OwnedQueue::new(plan, memory)))
    }));
    cases.push(case("channel/handled", "a gateway learns what was handled", |plan, memory| {
        Rc::new(HandledRun { queue: OwnedQueue::new(plan, memory), stands_still: false })
    }));
    cases.push(case(
        "channel/passed-over",
        "a gateway takes no message for handled that was passed over",
        |plan, memory| Rc::new(HandledRun { queue: OwnedQueue::new(plan, memory), stands_still: true }),
    ));
    let make = |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads * plan.ops > suspected::PACKETS {
            return Err(format!("has {} packets: take fewer threads or operations", suspected::PACKETS));
        }
        Ok(Rc::new(SuspectedLock::new(plan, memory)))
    };
    let about = "senders ask whether a sound lock is damaged, and none gives it up";
    cases.push(Case::new("channel/suspected-lock", about, make));
}

/// Handshakes that are wrong on purpose.
pub fn planted(cases: &mut Vec<Case>) {
    let about = "wrong on purpose";
    cases.push(Case::new(
        "planted/doorbell-without-a-second-look",
        about,
        |plan: &Plan, memory: &ExploredMemory| {
            Ok(Rings::body(plan, memory, Sleep::Doorbell { looks: false }))
        },
    ));
    cases.push(Case::new(
        "planted/answer-line-disarmed-for-both",
        about,
        |plan: &Plan, memory: &ExploredMemory| Ok(Talks::body(plan, memory, true)),
    ));
    cases.push(Case::new(
        "planted/stream-disarmed-by-a-store",
        about,
        |plan: &Plan, memory: &ExploredMemory| Ok(Streamed::body(plan, memory, true)),
    ));
    cases.push(Case::new("planted/pipe-emptied-late", about, |plan: &Plan, memory: &ExploredMemory| {
        Ok(Rings::body(plan, memory, Sleep::Pipe { empties_first: false }))
    }));
}

/// A ring in the explored memory.
#[derive(Clone)]
struct ExploredRing(Rc<Ring<Explorer, SLOTS>>);

impl RingMemory<SLOTS> for ExploredRing {
    type Cpu = Explorer;
    fn ring(&self) -> &Ring<Explorer, SLOTS> {
        &self.0
    }
}

impl ExploredRing {
    fn new(memory: &ExploredMemory) -> ExploredRing {
        ExploredRing(Rc::new(Ring::new(memory)))
    }
}

type Out = RingSender<ExploredRing, SLOTS>;
type In = RingReceiver<ExploredRing, SLOTS>;

fn fill(cpu: &Explorer, slot: &Slot<Explorer>, value: u64) -> Header {
    cpu.write(&slot.tag, value);
    cpu.write(&slot.args[1], value);
    Header::new(Form::Short, 0, 4, 0)
}

fn read(cpu: &Explorer, slot: &Slot<Explorer>) -> u64 {
    let (tag, value) = (cpu.read(&slot.tag), cpu.read(&slot.args[1]));
    assert_eq!(tag, value, "a message's two halves");
    value
}

/// Sends through a slot; waits for one that is empty.
fn send_in_slot(cpu: &Explorer, out: &mut Out, value: u64) {
    loop {
        let progress = &out.memory().0.control.progress;
        // Relaxed: before the ring looks itself.
        let seen = cpu.load(progress, Ordering::Relaxed);
        if out.send_in_slot(cpu, None, |_, _, slot, _| Some(fill(cpu, slot, value))) {
            return;
        }
        let progress = &out.memory().0.control.progress;
        let _ = cpu.spin_until(progress, Ordering::Relaxed, ENDLESS, |now| now != seen);
    }
}

fn take(cpu: &Explorer, into: &mut In) -> Option<u64> {
    let found = into.next(cpu)?;
    Some(into.deliver(cpu, found, |_, slot, _, _| read(cpu, slot)))
}

/// A receiver's way to wait.
#[derive(Clone, Copy)]
enum Sleep {
    /// Spinning on one ring after the other.
    Spins,
    /// Sleeping on the doorbell. The fault: without looking once more.
    Doorbell { looks: bool },
    /// Sleeping on a pipe. The fault: emptying it after it was armed.
    Pipe { empties_first: bool },
}

/// A ring for each sender.
struct Rings {
    rings: Vec<ExploredRing>,
    doorbell: Doorbell<Explorer>,
    /// Number of bytes in the pipe.
    pipe: Word,
    sleep: Sleep,
    plan: Plan,
}

impl Rings {
    fn body(plan: &Plan, memory: &ExploredMemory, sleep: Sleep) -> Rc<dyn SubjectRun> {
        Rc::new(Rings {
            rings: (1..plan.threads).map(|_| ExploredRing::new(memory)).collect(),
            doorbell: Doorbell::new(memory),
            pipe: memory.word(Place::NewLine, 0),
            sleep,
            plan: *plan,
        })
    }

    fn send(&self, cpu: &Explorer) {
        let mut out = Out::new(self.rings[cpu.id() - 1].clone(), 0);
        for n in 0..self.plan.ops as u64 {
            send_in_slot(cpu, &mut out, n);
            if self.doorbell.is_armed(cpu) {
                self.doorbell.wake(cpu, |pipe| {
                    assert_eq!(pipe, u64::from(PIPE) + 1, "the number of the pipe");
                    // (P1) SeqCst: a system call; pairs with (P2).
                    cpu.fetch_add(&self.pipe, 1, Ordering::SeqCst);
                    cpu.wake(&self.pipe, u32::MAX);
                });
            }
        }
    }

    fn receive(&self, cpu: &Explorer) {
        let mut rings: Vec<_> = self.rings.iter().map(|ring| (In::new(ring.clone()), 0)).collect();
        if let Sleep::Pipe { .. } = self.sleep {
            self.doorbell.set_pipe(cpu, PIPE);
        }
        let ops = self.plan.ops as u64;
        if let Sleep::Spins = self.sleep {
            for (ring, n) in &mut rings {
                while *n < ops {
                    let found = ring.find(cpu, ENDLESS).expect("an endless wait");
                    assert_eq!(ring.deliver(cpu, found, |_, slot, _, _| read(cpu, slot)), *n, "in order");
                    *n += 1;
                }
            }
        }
        while rings.iter().any(|(_, n)| *n < ops) {
            let mut came = false;
            for (ring, n) in &mut rings {
                while let Some(value) = take(cpu, ring) {
                    assert_eq!(value, *n, "in order");
                    *n += 1;
                    came = true;
                }
            }
            if !came {
                self.sleep(cpu, || rings.iter().any(|(ring, _)| ring.is_ready(cpu)));
            }
        }
        assert!(rings.iter().all(|(ring, _)| !ring.is_ready(cpu)), "no message comes twice");
    }

    fn sleep(&self, cpu: &Explorer, is_ready: impl Fn() -> bool) {
        match self.sleep {
            Sleep::Spins => {}
            Sleep::Doorbell { looks } => {
                let count = self.doorbell.arm(cpu);
                if !(looks && is_ready()) {
                    cpu.park(&self.doorbell.count, count, ENDLESS);
                }
                self.doorbell.disarm(cpu);
            }
            Sleep::Pipe { empties_first } => {
                // The kernel's part is one step each. (P2) SeqCst: a system call; pairs with (P1).
                let empty = || cpu.swap(&self.pipe, 0, Ordering::SeqCst);
                if empties_first {
                    empty();
                }
                self.doorbell.arm_pipe(cpu);
                let is_ready = is_ready();
                if !empties_first {
                    empty();
                }
                if !is_ready {
                    cpu.park(&self.pipe, 0, ENDLESS);
                }
            }
        }
    }
}

impl SubjectRun for Rings {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() == 0 { self.receive(cpu) } else { self.send(cpu) }
    }
}

/// Two rings and their line: there, and back to thread 0.
struct RingPair {
    there: ExploredRing,
    back: ExploredRing,
}

impl RingPair {
    fn new(memory: &ExploredMemory) -> RingPair {
        RingPair { there: ExploredRing::new(memory), back: ExploredRing::new(memory) }
    }
}

/// Two messages at a time from thread 0 to each other one, and two answers.
///
/// Of each two the line carries the first.
struct PairOfMessages {
    pairs: Vec<RingPair>,
    plan: Plan,
}

/// An end of a pair.
struct LineEnd {
    line: Rc<SharedLine<ExploredRing>>,
    place: ExploredRing,
    out: Out,
    into: In,
    sent: u64,
    taken: u64,
}

impl LineEnd {
    fn new(pair: &RingPair, first: bool) -> LineEnd {
        let (out, into) = if first { (&pair.there, &pair.back) } else { (&pair.back, &pair.there) };
        let line = SharedLine::new(first);
        let (mut out, mut into) = (Out::new(out.clone(), 0), In::new(into.clone()));
        out.share(&line);
        into.share(&line);
        LineEnd { line, place: pair.there.clone(), out, into, sent: 0, taken: 0 }
    }

    fn send_two(&mut self, cpu: &Explorer) {
        let n = self.sent;
        assert!(self.out.send_in_line(cpu, |slot| fill(cpu, slot, n)), "it is this end's turn");
        assert!(!self.line.is_ours());
        send_in_slot(cpu, &mut self.out, n + 1);
        self.sent += 2;
    }

    fn take_two(&mut self, cpu: &Explorer) {
        let end = self.taken + 2;
        while self.taken < end {
            match take(cpu, &mut self.into) {
                Some(n) => {
                    assert_eq!(n, self.taken, "in order");
                    self.taken += 1;
                }
                // The first of two comes through the line, the second through a slot.
                None => {
                    let into = &self.into;
                    let header = match end - self.taken {
                        2 => &self.place.0.control.shared.header,
                        _ => &into.memory().0.slot(self.taken / 2).header,
                    };
                    let _ = cpu.spin_until(header, Ordering::Relaxed, ENDLESS, |_| into.is_ready(cpu));
                }
            }
        }
    }
}

impl SubjectRun for PairOfMessages {
    fn thread(&self, cpu: &Explorer) {
        let rounds = self.plan.ops.div_ceil(2);
        if cpu.id() != 0 {
            let mut end = LineEnd::new(&self.pairs[cpu.id() - 1], false);
            for _ in 0..rounds {
                end.take_two(cpu);
                end.send_two(cpu);
            }
            return;
        }
        let mut ends: Vec<_> = self.pairs.iter().map(|pair| LineEnd::new(pair, true)).collect();
        for _ in 0..rounds {
            ends.iter_mut().for_each(|end| end.send_two(cpu));
            ends.iter_mut().for_each(|end| end.take_two(cpu));
        }
        assert!(ends.iter().all(|end| !end.into.is_ready(cpu)), "no message comes twice");
    }
}
