//! The ring from one writer to many readers.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use towpath_machine::Processor;
use towpath_sync::queues::{Broadcast, BroadcastHead, ReaderEnd, TransferError, WordLine, WriterEnd};
use towpath_sync::{Deadline, Policy, Wait};

use super::{BUDGET, ExploredMember};
use towpath_schedules::harness::Case;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Maximum number of readers.
const READERS: usize = 3;

/// Fault of a subject that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slip {
    None,
    /// The writer takes all for alive.
    LosesTheDead,
    /// A reader takes its copy without looking whether that is whole.
    TakesTorn,
    /// None, but readers leave after each message, and come again.
    ComesAgain,
}

/// All of them.
pub fn all(cases: &mut Vec<Case>, policy: Policy) {
    let about = "readers get all from when they came, in order; none waits for the dead";
    case(cases, "broadcast/holds-back", about, policy, false, Slip::None);
    let about = "no copy is torn; readers know how many they missed";
    case(cases, "broadcast/lossy", about, policy, true, Slip::None);
    let about = "readers that come again miss no message of before";
    case(cases, "broadcast/again", about, policy, true, Slip::ComesAgain);
}

/// Adds the subjects that are wrong on purpose.
pub fn planted(cases: &mut Vec<Case>, policy: Policy) {
    let about = "wrong on purpose";
    case(cases, "planted/broadcast-loses-the-dead", about, policy, false, Slip::LosesTheDead);
    case(cases, "planted/broadcast-takes-torn", about, policy, true, Slip::TakesTorn);
}

fn case(
    cases: &mut Vec<Case>,
    name: &'static str,
    about: &'static str,
    policy: Policy,
    lossy: bool,
    slip: Slip,
) {
    let make = move |plan: &Plan, memory: &ExploredMemory| -> Result<Rc<dyn SubjectRun>, String> {
        if plan.threads > READERS + 1 {
            return Err(format!("has places for {READERS} readers: take fewer threads"));
        }
        Ok(Rc::new(BroadcastRun::new(memory, plan, policy, lossy, slip)))
    };
    cases.push(Case {
        endures_deaths: !matches!(slip, Slip::TakesTorn | Slip::ComesAgain),
        ..Case::new(name, about, make)
    });
}

/// A writer that closes the ring at the end, a reader that was there before, and readers
/// that come when they like.
struct BroadcastRun {
    head: BroadcastHead<Explorer, READERS>,
    ring: Box<[WordLine<Explorer>]>,
    policy: Policy,
    lossy: bool,
    slip: Slip,
    plan: Plan,
    writer: RefCell<Option<WriterEnd>>,
    first: RefCell<Option<ReaderEnd>>,
    /// Number of messages that were sent for certain, as the host knows it.
    sent: Cell<u64>,
    /// True for readers that are about to leave, or have left.
    leaves: [Cell<bool>; READERS + 1],
}

impl BroadcastRun {
    fn new(memory: &ExploredMemory, plan: &Plan, policy: Policy, lossy: bool, slip: Slip) -> BroadcastRun {
        let run = BroadcastRun {
            head: BroadcastHead::in_arena(memory),
            // Eight words: a message of two fills half of them, one of three travels in pieces.
            ring: WordLine::row(memory, 1),
            policy,
            lossy,
            slip,
            plan: *plan,
            writer: RefCell::default(),
            first: RefCell::default(),
            sent: Cell::default(),
            leaves: Default::default(),
        };
        // A process that dies before it has come is not known.
        let cpu = memory.at_rest();
        let join = |me: u32, act: &mut dyn FnMut(Broadcast<'_, Explorer, READERS>, &Wait)| {
            let around = ExploredMember { dead: memory.dead(), told: memory.told(), me };
            act(run.ring(), &Wait { policy, around: &around, budget: BUDGET });
        };
        join(1, &mut |ring, wait| {
            *run.writer.borrow_mut() = ring.join_writer(&cpu, wait).ok();
        });
        join(2, &mut |ring, wait| {
            *run.first.borrow_mut() = ring.join_reader(&cpu, wait).ok();
        });
        run
    }

    fn ring(&self) -> Broadcast<'_, Explorer, READERS> {
        Broadcast::of(&self.head, &self.ring, self.lossy)
    }

    fn with<R>(&self, cpu: &Explorer, act: impl FnOnce(Broadcast<'_, Explorer, READERS>, &Wait) -> R) -> R {
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: self.policy, around: &around, budget: BUDGET };
        if self.slip == Slip::LosesTheDead {
            return act(self.ring(), &Wait { around: &super::robust::LosesTheDead::of(&around), ..wait });
        }
        act(self.ring(), &wait)
    }

    const fn number(&self) -> u64 {
        2 * self.plan.ops as u64
    }

    /// The words of a message: each third is long, if that is possible.
    fn message(&self, number: u64) -> Vec<u8> {
        let words = if number % 3 == 2 && !self.lossy { 3 } else { 1 + number % 2 };
        (0..words).flat_map(|k| (number << 8 | k).to_ne_bytes()).collect()
    }

    fn write(&self, cpu: &Explorer) {
        let Some(mut end) = self.writer.take() else { return };
        self.with(cpu, |ring, wait| {
            for number in 0..self.number() {
                let sent = ring.send(cpu, wait, &mut end, &self.message(number), Deadline::NEVER);
                assert_eq!(sent, Ok(()));
                self.sent.set(number + 1);
            }
            ring.close(cpu, wait);
        });
    }

    /// Number of the message.
    fn check(&self, message: &[u8]) -> u64 {
        let number = message.first_chunk().map_or(u64::MAX, |word| u64::from_ne_bytes(*word) >> 8);
        assert_eq!(message, self.message(number), "torn");
        number
    }

    /// Receives to the end. Gives room back once for two messages.
    fn read(&self, cpu: &Explorer, mut end: ReaderEnd, mut next: Option<u64>) {
        let mut message = Vec::new();
        self.with(cpu, |ring, wait| {
            for n in 0.. {
                let missed = match self.receive(cpu, ring, wait, &mut end, &mut message) {
                    Ok(missed) => missed,
                    Err(TransferError::Closed) => break,
                    Err(error) => {
                        assert!(matches!(error, TransferError::PeerDied { .. }), "{error}");
                        self.leaves[cpu.id()].set(true);
                        return ring.leave_reader(cpu, wait, &end);
                    }
                };
                let number = self.check(&message);
                assert!(next.is_none_or(|next| number == next + missed), "lost or twice");
                assert!(missed == 0 || self.lossy);
                next = Some(number + 1);
                if n % 2 == 1 {
                    ring.progress(cpu, wait, &end);
                }
            }
            assert!(next.is_none_or(|next| next == self.number()), "lost at the end");
            self.leaves[cpu.id()].set(true);
            ring.leave_reader(cpu, wait, &end);
        });
    }

    /// Receives messages, and leaves after each one.
    fn come_again(&self, cpu: &Explorer) {
        let (mut message, mut known) = (Vec::new(), 0);
        for _ in 0..=self.plan.ops {
            self.with(cpu, |ring, wait| {
                let Ok(mut end) = ring.join_reader(cpu, wait) else { return };
                if let Ok(missed) = ring.gather(cpu, wait, &mut end, &mut message, Deadline::NEVER) {
                    let number = self.check(&message);
                    assert!(number >= known + missed, "missed messages that came before it did");
                    known = number + 1;
                }
                ring.leave_reader(cpu, wait, &end);
            });
        }
    }

    fn receive(
        &self,
        cpu: &Explorer,
        ring: Broadcast<'_, Explorer, READERS>,
        wait: &Wait,
        end: &mut ReaderEnd,
        message: &mut Vec<u8>,
    ) -> Result<u64, TransferError> {
        if self.slip != Slip::TakesTorn {
            return ring.gather(cpu, wait, end, message, Deadline::NEVER);
        }
        let piece = ring.next(cpu, wait, end, Deadline::NEVER)?;
        message.resize(piece.bytes, 0);
        ring.copy(cpu, &piece, message);
        let missed = ring.missed(end, &piece);
        ring.pass(end, &piece);
        Ok(missed)
    }
}

impl SubjectRun for BroadcastRun {
    fn thread(&self, cpu: &Explorer) {
        match cpu.id() {
            0 => self.write(cpu),
            1 => {
                if let Some(end) = self.first.take() {
                    self.read(cpu, end, Some(0));
                }
            }
            _ if self.slip == Slip::ComesAgain => self.come_again(cpu),
            _ => {
                if let Ok(end) = self.with(cpu, |ring, wait| ring.join_reader(cpu, wait)) {
                    self.read(cpu, end, None);
                }
            }
        }
    }
    fn last(&self, cpu: &Explorer) {
        self.with(cpu, |ring, wait| {
            let lost = std::iter::from_fn(|| ring.lost_reader(cpu, wait)).count();
            let dead = (1..self.plan.threads).filter(|&id| cpu.is_dead(id)).count();
            assert!(lost <= dead, "told of {lost} deaths");
            // A late one may have died before it came.
            let is_known = self.plan.threads > 1 && cpu.is_dead(1) && !self.leaves[1].get();
            assert!(lost > 0 || !is_known, "not told of a death");
            assert_eq!(ring.readers(cpu), 0, "a dead reader stays");
            if !cpu.is_dead(0) {
                return;
            }
            // A successor goes on behind what was sent; a message that was half sent never comes.
            let mut reader = ring.join_reader(cpu, wait).expect("there is a place");
            let mut writer = ring.join_writer(cpu, wait).expect("its place is free");
            let mut message = Vec::new();
            for number in 0..2 {
                match ring.send(cpu, wait, &mut writer, &self.message(number), Deadline::PAST) {
                    Ok(()) => {}
                    Err(TransferError::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
                let missed = ring.receive(cpu, wait, &mut reader, &mut message, Deadline::PAST);
                assert_eq!((missed, self.check(&message)), (Ok(0), number));
            }
        });
    }
}
