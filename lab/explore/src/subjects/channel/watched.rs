//! The queue of many senders, with few packets and blocks, and senders that die.
//!
//! Thread 0 receives, and looks after the queue.
//!
//! Whatever keeps the receiver waiting counts as overdue at once, so slow senders are passed over
//! as well as dead ones. Each sender's messages come once, whole and in order; of a dead one those
//! up to some point. Messages have blocks in turns. At the end the receiver finds all packets and
//! blocks free.

use std::cell::{Cell, RefCell};

use towpath_channel::claim::{Algorithm, Any, Claim};
use towpath_channel::packet::{FREE, Form, Header, SKIPPED};
use towpath_channel::path::{
    FIRST_QUOTA, PacketContent, Piece, ReceivePath, SendPath, WhileFull, free_afterwards,
};
use towpath_channel::queue::{Arrival, Census, Queue, Receiver, Sender, read_intent};
use towpath_machine::{Arena, Ordering, Place, Processor};
use towpath_sync::{Policy, Spinning, Surroundings, Wait};

use super::super::queue_memory::ExploredQueueMemory;
use super::super::{BUDGET, ExploredMember, PAUSE};
use towpath_schedules::Word;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Packets, and blocks of so many bytes: few, so that all are in use.
const PACKETS: usize = 4;
const BLOCKS: usize = 2;
const BLOCK_SIZE: usize = 8;

/// Word over which a faulty process writes nonsense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stray {
    /// Progress as senders know it.
    Progress,
    /// The header of the next packet.
    Packet,
    /// The next ticket. No sender can go on.
    Tail,
}

/// A queue, its receiver (thread 0), and its senders.
pub(super) struct WatchedQueue {
    memory: ExploredQueueMemory,
    algorithm: Algorithm,
    /// Two for each thread: of packets, of blocks.
    intents: Vec<Word>,
    /// Set by a sender that has sent all.
    ended: Vec<Word>,
    /// Generation of each sender, which it shows when it begins; if they are not 0.
    generations: Option<Vec<Word>>,
    /// Word that is damaged after the first message.
    stray: Option<Stray>,
    plan: Plan,
}

/// Census of the threads.
struct ExploredCensus<'a> {
    watched: &'a WatchedQueue,
    cpu: &'a Explorer,
}

impl Census for ExploredCensus<'_> {
    fn endpoints(&self) -> usize {
        self.watched.plan.threads
    }
    fn load_intent(&self, endpoint: u16, word: usize) -> u64 {
        read_intent(self.cpu, &self.watched.intents[2 * usize::from(endpoint) + word])
    }
    fn generation(&self, endpoint: u16) -> Option<u16> {
        let Some(words) = &self.watched.generations else { return Some(0) };
        // Relaxed: the word that names the generation orders it.
        Some(self.cpu.load(&words[usize::from(endpoint)], Ordering::Relaxed) as u16)
    }
    fn owner_lives(&self, endpoint: u16) -> bool {
        ExploredMember::new(self.cpu).is_alive(u32::from(endpoint) + 1)
    }
    fn patience(&self) -> u64 {
        0
    }
}

/// A sender waits for space until the receiver has made some, or is dead.
#[derive(Clone, Copy)]
struct Waits<'a>(&'a Explorer);

impl WhileFull for Waits<'_> {
    fn is_gone(&self) -> bool {
        !ExploredMember::new(self.0).is_alive(1)
    }
    fn poll(&self) -> usize {
        0
    }
    fn pause(&self, _round: u32) {
        self.0.delay(PAUSE);
    }
    fn look_around(&self) -> bool {
        true
    }
}

impl WatchedQueue {
    pub fn new(plan: &Plan, memory: &ExploredMemory, algorithm: Algorithm) -> WatchedQueue {
        let word = |_| memory.word(Place::NewLine, 0);
        WatchedQueue {
            memory: ExploredQueueMemory::new(memory, PACKETS, BLOCKS, BLOCK_SIZE),
            algorithm,
            intents: (0..2 * plan.threads).map(word).collect(),
            ended: (0..plan.threads).map(word).collect(),
            generations: None,
            stray: None,
            plan: *plan,
        }
    }

    fn send(&self, cpu: &Explorer, claim: &Any<'_, Explorer>) {
        if let Some(words) = &self.generations {
            // Relaxed: the claims order it.
            cpu.store(&words[cpu.id()], 1, Ordering::Relaxed);
        }
        let generation = u16::from(self.generations.is_some());
        let (queue, sender) =
            (self.memory.queue(0), RefCell::new(Sender::new(cpu.id() as u16, generation, 0)));
        let [intent, block_intent] = [0, 1].map(|n| &self.intents[2 * cpu.id() + n]);
        let route = SendPath { queue: &queue, claim, sender: &sender, intent, block_intent };
        let around = ExploredMember::new(cpu);
        let wait = Wait { policy: Policy::Spin, around: &around, budget: BUDGET };
        for n in 0..self.plan.ops as u64 {
            let args = [n as u32];
            let source = cpu.id() as u32;
            let out = PacketContent { form: Form::Short, handler: 0, tag: n, args: &args, aux: 0, source };
            let bytes = n.to_le_bytes();
            let piece = Piece { bytes: &bytes, offset: 0, whole: (0, 0), away: false };
            let piece = (n as usize + cpu.id()).is_multiple_of(2).then_some(piece);
            // The receiver is dead, or the lock's holder, and the queue is closed.
            if route.send(cpu, &out, piece, true, &wait, Waits(cpu)).is_err() {
                break;
            }
        }
        // (W1) Release: after the messages; pairs with the Acquire (W2).
        cpu.store(&self.ended[cpu.id()], 1, Ordering::Release);
    }

    /// The queue with senders that succeed others.
    pub fn reborn(self, memory: &ExploredMemory) -> WatchedQueue {
        let generations = (0..self.plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect();
        WatchedQueue { generations: Some(generations), ..self }
    }

    /// The queue with a word that is damaged.
    pub fn damaged(self, stray: Stray) -> WatchedQueue {
        WatchedQueue { stray: Some(stray), ..self }
    }

    /// Writes nonsense, in the name of a faulty process.
    fn damage(&self, cpu: &Explorer, stray: Stray, receiver: &Receiver) {
        let queue = self.memory.queue(0);
        // Relaxed, all: the process follows no protocol.
        match stray {
            Stray::Progress => {
                let before = receiver.head.saturating_sub(2 * PACKETS as u64);
                cpu.store(&queue.control.head, before, Ordering::Relaxed);
                cpu.store(&queue.control.consumed, before, Ordering::Relaxed);
            }
            Stray::Packet => {
                let word = &queue.slot(receiver.head).header;
                let nonsense = Header(0).with_state(SKIPPED + 1).0;
                // Not over a packet that a sender has.
                let _ = cpu.compare_exchange(word, FREE, nonsense, Ordering::Relaxed, Ordering::Relaxed);
            }
            Stray::Tail => {
                cpu.fetch_add(&queue.control.tail, 1 << 20, Ordering::Relaxed);
            }
        }
    }

    fn deliver(&self, cpu: &Explorer, queue: &Queue<'_, Explorer>, arrival: Arrival, taken: &mut [u64]) {
        let from = arrival.header.source() as usize;
        let tag = cpu.read(&queue.slot(arrival.ticket).tag);
        assert_eq!(tag, taken[from], "in order, from {from}");
        if arrival.header.has_block() {
            let _free = free_afterwards(queue, cpu, arrival.header);
            let mut bytes = [0; BLOCK_SIZE];
            cpu.copy_out(&queue.bytes, queue.block_at(arrival.header.block()), &mut bytes);
            assert_eq!(u64::from_le_bytes(bytes), tag, "the bytes of a message, from {from}");
        }
        taken[from] += 1;
    }

    /// Returns whether this sender has sent all, or is dead.
    fn is_over(&self, cpu: &Explorer, sender: usize) -> bool {
        // (W2) Acquire: the messages; pairs with the Release (W1).
        cpu.load(&self.ended[sender], Ordering::Acquire) != 0
            || !ExploredMember::new(cpu).is_alive(sender as u32 + 1)
    }

    fn receive(&self, cpu: &Explorer, claim: &Any<'_, Explorer>) {
        let (queue, quota) = (self.memory.queue(0), Cell::new(FIRST_QUOTA));
        let receiver = RefCell::new(Receiver::default());
        let inbox = ReceivePath { queue: &queue, claim, receiver: &receiver, quota: &quota };
        let census = ExploredCensus { watched: self, cpu };
        let mut taken = vec![0; self.plan.threads];
        let mut stray = self.stray;
        loop {
            // Asked first: what they have sent is there.
            let over = (1..self.plan.threads).all(|sender| self.is_over(cpu, sender));
            let came = inbox.poll(
                cpu,
                || Spinning,
                |arrival| {
                    self.deliver(cpu, &queue, arrival, &mut taken);
                    0
                },
            );
            if came > 0 {
                continue;
            }
            let mut mine = receiver.borrow_mut();
            if taken.iter().any(|taken| *taken > 0)
                && let Some(stray) = stray.take()
            {
                self.damage(cpu, stray, &mine);
            }
            let changed = mine.look_after(claim, &queue, cpu, &census);
            let is_whole = !mine.behind(&queue, cpu) && mine.late.is_empty();
            if over && !changed && is_whole && mine.next(claim, &queue, cpu).is_none() {
                break;
            }
            // Blocks of the dead may be all that there are.
            mine.sweep(claim, &queue, cpu, &census);
            let heals = mine.heal(claim, &queue, cpu);
            assert!(!heals || self.stray.is_some(), "words that no sender has damaged");
            // As an endpoint does: the head may have passed places without a delivery. A flush of a
            // queue as short as this one shows the head each time, and would hide that it was not
            // healed.
            if self.stray.is_none() {
                claim.flush(&queue, &mut mine, cpu, &Spinning);
            }
            drop(mine);
            cpu.delay(PAUSE);
        }
        for (sender, taken) in taken.iter().enumerate().skip(1) {
            let lives = ExploredMember::new(cpu).is_alive(sender as u32 + 1);
            let must_come = lives && self.stray != Some(Stray::Tail);
            assert!(!must_come || *taken == self.plan.ops as u64, "all messages, from {sender}");
        }
        let mut mine = receiver.borrow_mut();
        mine.sweep(claim, &queue, cpu, &census);
        if self.stray.is_some() {
            return;
        }
        assert!(!mine.heal(claim, &queue, cpu), "words that no sender has damaged");
        assert_eq!(mine.in_use(claim, &queue, cpu), (0, 0), "packets and blocks that are lost");
    }
}

impl SubjectRun for WatchedQueue {
    fn thread(&self, cpu: &Explorer) {
        let claim = self.memory.locks.choose(self.algorithm);
        if cpu.id() == 0 { self.receive(cpu, &claim) } else { self.send(cpu, &claim) }
    }
}
