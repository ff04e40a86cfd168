//! The whole packet queue under every claim algorithm and every waiting policy: three
//! senders, one receiver, four packets, two blocks.
//!
//! Endpoints are native, so the few lines with which they drive a queue are here again: `send` as
//! in `src/send.rs` (`Core::packet`, `Core::claim_with`), `receive` as in `src/deliver.rs` and
//! `src/bundle.rs`. Everything that they call is the library's own text.

use std::sync::Arc;

use towpath_channel::claim::{Algorithm, Any, Claim, Locks};
use towpath_channel::packet::{BlockHead, Extra, Form, Header, LINE_ARGS, MAX_ARGS, READY, READY_BULK, Slot};
use towpath_channel::packet::{block_owner, from_source_code, source_code};
use towpath_channel::queue::{Arrival, Census, ClaimError, Queue, QueueControl, Receiver, Sender};
use towpath_machine::{Arena, Event, Ordering, Park, Place, Processor};
use towpath_sync::{Wait, Waiting};

use crate::machine::{Bytes, Machine, Schedule, Sequential, Word};
use crate::{lines, spin, waits};

const SENDERS: usize = 3;
const RECEIVER: usize = SENDERS;
const MESSAGES: u64 = 12;
const SEEDS: u64 = 15;
const PACKETS: usize = 4;
const BLOCKS: usize = 2;
const BLOCK_SIZE: usize = 64;
/// The number of the queue in its world: not 0, so that a 0 where it should be is
/// noticed.
const QUEUE: u32 = 6;
const GENERATION: u64 = 1;
/// Maximum sleep of the receiver, in nanoseconds (`src/bundle.rs`).
const NAP: u64 = 50_000_000;

/// Contents of the shared memory.
struct Memory {
    control: QueueControl<Sequential>,
    locks: Locks<Sequential>,
    slots: Vec<Slot<Sequential>>,
    extras: Vec<Extra<Sequential>>,
    blocks: Vec<BlockHead<Sequential>>,
    bytes: Arc<Bytes>,
    /// Intent of each sender.
    intents: Vec<Word>,
    doorbell: Word,
}

impl Memory {
    fn new(machine: &Machine) -> Memory {
        let locks = Locks::new(machine);
        Memory {
            control: QueueControl::new(machine),
            locks,
            slots: (0..PACKETS).map(|_| Slot::new(machine)).collect(),
            extras: (0..PACKETS).map(|_| Extra::new(machine)).collect(),
            blocks: (0..BLOCKS).map(|_| BlockHead::new(machine)).collect(),
            bytes: Arc::new(machine.bytes(BLOCKS * BLOCK_SIZE)),
            intents: (0..SENDERS).map(|_| machine.word(Place::NewLine, 0)).collect(),
            doorbell: machine.word(Place::NewLine, 0),
        }
    }

    fn queue(&self) -> Queue<'_, Sequential> {
        Queue {
            id: QUEUE,
            control: &self.control,
            slots: &self.slots,
            extras: &self.extras,
            blocks: &self.blocks,
            bytes: self.bytes.clone(),
            block_size: BLOCK_SIZE,
        }
    }
}

/// Census in which all members live.
struct Members<'a> {
    memory: &'a Memory,
    cpu: &'a Sequential,
}

impl Census for Members<'_> {
    fn endpoints(&self) -> usize {
        SENDERS
    }
    fn load_intent(&self, endpoint: u16, _word: usize) -> u64 {
        self.cpu.load(&self.memory.intents[usize::from(endpoint)], Ordering::Acquire)
    }
    fn generation(&self, _endpoint: u16) -> Option<u16> {
        Some(GENERATION as u16)
    }
    fn owner_lives(&self, _endpoint: u16) -> bool {
        true
    }
    fn alive(&self, endpoint: u16, generation: u16) -> bool {
        assert!(usize::from(endpoint) < SENDERS && u64::from(generation) == GENERATION, "asks for no sender");
        true
    }
    fn holds_block(&self, _endpoint: u16, _queue: u32) -> bool {
        true
    }
}

/// Message `number` of a sender: its contents follow from the two.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Message {
    sender: usize,
    number: u64,
}

impl Message {
    fn form(self) -> Form {
        if (self.sender as u64 + self.number).is_multiple_of(3) { Form::Medium } else { Form::Short }
    }
    fn handler(self) -> u8 {
        self.number as u8
    }
    fn tag(self) -> u64 {
        (self.sender as u64) << 32 | self.number | 1 << 63
    }
    /// Arguments that fit on the packet's line, or more.
    fn args(self) -> Vec<u32> {
        let count = [2, 16, 0, 12, 13][(self.number % 5) as usize];
        (0..count).map(|i| self.number as u32 * 1000 + self.sender as u32 * 100 + i).collect()
    }
    fn payload(self) -> Vec<u8> {
        let len = [64, 1, 30, 0][(self.number % 4) as usize];
        (0..len).map(|i| (self.number * 7 + i) as u8 ^ (self.sender as u8) << 6).collect()
    }
}

/// Behaviour of the endpoints.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// A sender waits until there is space.
    Patient,
    /// A sender that finds no space gives up, does something else, and comes again: once
    /// for each message. Under `lock-free` it leaves a ticket behind, which a receiver passes over
    /// only after it has waited for it: senders that gave up again and again would draw tickets
    /// faster than that.
    Fickle,
    /// Publishes before it writes the payload: a planted fault.
    TooEarly,
}

/// A sender's end of the queue.
struct Out<'a, W> {
    memory: &'a Memory,
    q: Queue<'a, Sequential>,
    claim: Any<'a, Sequential>,
    cpu: &'a Sequential,
    wait: &'a W,
    sender: Sender,
    way: Way,
}

impl<W: Waiting<Sequential>> Out<'_, W> {
    fn intent(&self) -> &Word {
        &self.memory.intents[self.cpu.id()]
    }

    /// Claims a block, as `Route::send` does; there is no queue to poll here.
    fn claim_block(&mut self) -> Option<usize> {
        let mut round = 0;
        loop {
            let (q, cpu, intent) = (&self.q, self.cpu, &self.memory.intents[self.cpu.id()]);
            match self.claim.claim_block(q, &mut self.sender, cpu, self.wait, intent) {
                Ok(block) => return Some(block),
                Err(error) => self.full(error, &mut round)?,
            }
        }
    }

    fn claim_packet(&mut self) -> Option<u64> {
        let mut round = 0;
        loop {
            let (q, cpu, intent) = (&self.q, self.cpu, &self.memory.intents[self.cpu.id()]);
            match self.claim.claim(q, &mut self.sender, cpu, self.wait, intent) {
                Ok(ticket) => return Some(ticket),
                Err(error) => self.full(error, &mut round)?,
            }
        }
    }

    /// Waits for space, or gives up.
    fn full(&mut self, error: ClaimError, round: &mut u32) -> Option<()> {
        assert_eq!(error, ClaimError::Full, "no call closes the queue");
        if self.way == Way::Fickle && *round == 3 {
            self.claim.give_up(&mut self.sender, self.cpu, &self.memory.intents[self.cpu.id()]);
            return None;
        }
        self.claim.await_space(&self.q, &self.sender, self.cpu, self.wait, *round);
        *round += 1;
        Some(())
    }

    /// Sends, as `Route::send` does. Returns `false` if the message was not sent.
    fn send(&mut self, message: Message) -> bool {
        // Block first, then packet (L19).
        let mut block = None;
        if message.form() == Form::Medium {
            let Some(claimed) = self.claim_block() else { return false };
            block = Some(claimed);
            if self.way != Way::TooEarly {
                self.fill_block(claimed, message);
            }
        }
        let Some(ticket) = self.claim_packet() else {
            if let Some(block) = block {
                self.q.free_block(self.cpu, block);
            }
            return false;
        };
        let (cpu, slot, extra) = (self.cpu, self.q.slot(ticket), self.q.extra(ticket));
        let args = message.args();
        cpu.write(&slot.tag, message.tag());
        for (cell, pair) in slot.args.iter().chain(&extra.args).zip(args.chunks(2)) {
            cpu.write(cell, u64::from(pair[0]) | u64::from(*pair.get(1).unwrap_or(&0)) << 32);
        }
        let source = source_code(message.sender as u16, GENERATION);
        let header = Header::new(message.form(), message.handler(), args.len(), source);
        let header = match block {
            None => header.with_state(READY),
            Some(block) => header.with_block(block).with_state(READY_BULK),
        };
        let (parks, intent) = (self.wait.parks(), &self.memory.intents[cpu.id()]);
        let wake = self.claim.publish(&self.q, &mut self.sender, cpu, parks, intent, ticket, header);
        if let Some(block) = block
            && self.way == Way::TooEarly
        {
            self.fill_block(block, message);
        }
        if wake {
            // As `Core::ring`. Release: the publication comes before.
            cpu.fetch_add(&self.memory.doorbell, 1, Ordering::Release);
            cpu.wake(&self.memory.doorbell, u32::MAX);
        }
        true
    }

    fn fill_block(&self, block: usize, message: Message) {
        let (cpu, head, payload) = (self.cpu, &self.q.blocks[block], message.payload());
        // Relaxed: only we write it while the block is ours.
        let owner = cpu.load(&head.owner, Ordering::Relaxed);
        assert!(
            owner == block_owner(message.sender as u16, GENERATION as u16) || self.way == Way::TooEarly,
            "block {block} belongs to {owner:#x}"
        );
        cpu.write(&head.len, payload.len() as u64);
        cpu.copy_in(&self.q.bytes, self.q.block_at(block), &payload);
    }
}

/// The receiver's end of the queue.
struct In<'a, W> {
    memory: &'a Memory,
    q: Queue<'a, Sequential>,
    claim: Any<'a, Sequential>,
    cpu: &'a Sequential,
    wait: &'a W,
    receiver: Receiver,
    /// Number of the next message from each sender.
    next: [u64; SENDERS],
    slept: u64,
    late: u64,
}

impl<W: Waiting<Sequential>> In<'_, W> {
    /// Polls, as `Inbox::poll` does, three at a time.
    fn poll(&mut self) -> usize {
        let mut delivered = 0;
        while delivered < 3
            && let Some(arrival) = self.receiver.next(&self.claim, &self.q, self.cpu)
        {
            self.deliver(arrival);
            self.receiver.done(&self.claim, &self.q, self.cpu, arrival);
            delivered += 1;
        }
        if delivered > 0 {
            self.claim.flush(&self.q, &mut self.receiver, self.cpu, self.wait);
        }
        delivered
    }

    /// Exactly the message that is next from its sender, as it was sent.
    fn deliver(&mut self, arrival: Arrival) {
        let (cpu, header) = (self.cpu, arrival.header);
        let (slot, extra) = (self.q.slot(arrival.ticket), self.q.extra(arrival.ticket));
        let sender = usize::from(from_source_code(header.source()).0);
        assert!(sender < SENDERS, "a message without a sender: {header:?}");
        let message = Message { sender, number: self.next[sender] };
        let found = cpu.read(&slot.tag) & !(1 << 63);
        assert_eq!(found, message.tag() & !(1 << 63), "out of order, lost or twice: {message:?} was next");
        assert_eq!(header.source(), source_code(sender as u16, GENERATION));
        assert_eq!((header.form(), header.handler()), (Some(message.form()), message.handler()));
        let expected = message.args();
        assert_eq!(header.args(), expected.len(), "{message:?}");
        assert_eq!((LINE_ARGS / 2, MAX_ARGS / 2), (slot.args.len(), slot.args.len() + extra.args.len()));
        for (cell, pair) in slot.args.iter().chain(&extra.args).zip(expected.chunks(2)) {
            let both = cpu.read(cell);
            assert_eq!([both as u32, (both >> 32) as u32][..pair.len()], *pair, "{message:?}");
        }
        assert_eq!(header.has_block(), message.form() == Form::Medium);
        if header.has_block() {
            let block = header.block();
            let mut payload = vec![0; cpu.read(&self.q.blocks[block].len) as usize];
            cpu.copy_out(&self.q.bytes, self.q.block_at(block), &mut payload);
            assert_eq!(payload, message.payload(), "{message:?}");
            self.q.free_block(cpu, block);
        }
        self.next[sender] += 1;
        self.late += u64::from(arrival.late);
        cpu.note(Event::Message(message.number));
    }

    fn look_after(&mut self) {
        let members = Members { memory: self.memory, cpu: self.cpu };
        while self.receiver.look_after(&self.claim, &self.q, self.cpu, &members) {}
    }

    /// Waits, as `wait_for` of a bundle: spins a while, then sleeps where the policy
    /// does.
    fn idle(&mut self) {
        let (q, cpu, claim) = (&self.q, self.cpu, &self.claim);
        let head = &q.slot(self.receiver.head).header;
        // Relaxed: a probe; the poll looks properly.
        let before = cpu.load(head, Ordering::Relaxed);
        let _ = cpu.spin_until(head, Ordering::Relaxed, 3_000, |v| v != before);
        if self.receiver.next(claim, q, cpu).is_none() && self.wait.parks() {
            let doorbell = &self.memory.doorbell;
            // Acquire: before the last look at the queue.
            let rung = cpu.load(doorbell, Ordering::Acquire);
            if claim.fall_asleep(q, &self.receiver, cpu) && self.receiver.next(claim, q, cpu).is_none() {
                self.slept += 1;
                cpu.park(doorbell, rung, NAP);
            }
            claim.wake_up(q, cpu);
        }
        self.look_after();
    }

    fn done(&self) -> bool {
        self.next == [MESSAGES; SENDERS]
    }

    /// Receives everything, until nothing is in use any more. Returns how often it went
    /// to sleep, and how many messages came late.
    fn receive(mut self) -> (u64, u64) {
        while !self.done() {
            if self.poll() == 0 {
                self.idle();
            }
        }
        while self.receiver.in_use(&self.claim, &self.q, self.cpu) != (0, 0) {
            assert_eq!(self.poll(), 0, "one message too many");
            self.look_after();
            self.cpu.delay(20_000);
        }
        (self.slept, self.late)
    }
}

/// Counts of a run that went well.
#[derive(Debug, Default, PartialEq)]
struct Told {
    /// Number of sleeps of the receiver, and of those from which it was not woken.
    slept: u64,
    overslept: u64,
    /// Number of messages that came late, at a place that had been passed over.
    late: u64,
    /// Number of sends that were given up.
    refused: u64,
    trace: (u64, u64),
}

fn run(algorithm: Algorithm, wait: &Wait<'_>, schedule: Schedule, way: Way) -> Result<Told, String> {
    let machine = Machine::new(schedule);
    let memory = Memory::new(&machine);
    let counts = machine.run(SENDERS + 1, |cpu| {
        let (q, claim) = (memory.queue(), memory.locks.choose(algorithm));
        if cpu.id() == RECEIVER {
            let receiver = Receiver::default();
            let (memory, next) = (&memory, [0; SENDERS]);
            return In { memory, q, claim, cpu, wait, receiver, next, slept: 0, late: 0 }.receive();
        }
        let sender = Sender::new(cpu.id() as u16, GENERATION as u16, 0);
        let mut out = Out { memory: &memory, q, claim, cpu, wait, sender, way };
        let mut refused = 0;
        for number in 0..MESSAGES {
            out.way = way;
            while !out.send(Message { sender: cpu.id(), number }) {
                cpu.work(10_000);
                out.way = Way::Patient;
                refused += 1;
            }
            if number % 5 == 4 {
                cpu.work(50_000); // Time for the receiver to fall asleep.
            }
        }
        assert_eq!(cpu.load(out.intent(), Ordering::Relaxed), 0, "intends nothing any more");
        (refused, 0)
    })?;
    let overslept = machine.overslept(Some(&memory.doorbell));
    let (slept, late) = counts[RECEIVER];
    let refused = counts[..SENDERS].iter().map(|c| c.0).sum();
    Ok(Told { slept, overslept, late, refused, trace: machine.trace() })
}

/// Every algorithm under each seed, and each time under two of the six ways to wait: in
/// three seeds, under all of them.
fn run_all(first: u64, stops: bool, ways: &[Way], mut each: impl FnMut(Algorithm, Told, &str)) {
    for algorithm in Algorithm::ALL {
        for n in 0..SEEDS {
            let schedule = Schedule { seed: first + n, stops };
            let way = ways[n as usize % ways.len()];
            let mut told = |result: Result<Told, String>, policy: &str| {
                let what = format!("{} under {policy}, {way:?}", algorithm.name());
                each(algorithm, result.unwrap_or_else(|e| panic!("{what}: {e}")), &what);
            };
            for (wait, policy) in waits().skip(n as usize % 3).step_by(3) {
                told(run(algorithm, &wait, schedule, way), &policy);
            }
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_its_senders_order() {
    let mut slept = [0; 8];
    run_all(0, false, &[Way::Patient], |algorithm, told, what| {
        slept[algorithm as usize] += told.slept;
        assert_eq!(told.overslept, 0, "{what}: a message came and did not wake the receiver");
    });
    assert!(slept.iter().all(|&n| n > 0), "every receiver has slept: {slept:?}");
}

#[test]
fn messages_arrive_if_senders_give_up_and_come_again() {
    let mut refused = [0; 8];
    run_all(100, false, &[Way::Fickle], |algorithm, told, _| refused[algorithm as usize] += told.refused);
    assert!(refused.iter().all(|&n| n > 0), "every queue has been full: {refused:?}");
}

#[test]
fn every_queue_delivers_if_a_sender_is_stopped_for_a_while() {
    let mut late = [0; 8];
    run_all(200, true, &[Way::Patient, Way::Fickle], |algorithm, told, _| {
        late[algorithm as usize] += told.late;
    });
    // The locked ones wait for the holder of a packet.
    let expected = Algorithm::ALL.map(|a| !a.is_locked());
    assert_eq!(late.map(|n| n > 0), expected, "messages that came late: {late:?}");
}

#[test]
fn a_queue_lies_on_the_lines_that_it_asks_for() {
    assert_eq!(lines(Slot::<Sequential>::new), 1);
    assert_eq!(lines(BlockHead::<Sequential>::new), 1);
    assert_eq!(lines(QueueControl::<Sequential>::new), 6);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for algorithm in [Algorithm::Towpath, Algorithm::Posix, Algorithm::Mcs] {
        let (wait, _) = waits().last().expect("policies");
        let run = |seed| run(algorithm, &wait, Schedule { seed, stops: true }, Way::Fickle).unwrap();
        assert_eq!(run(5), run(5));
        assert_ne!(run(5).trace, run(6).trace);
    }
}

#[test]
fn a_message_that_is_published_too_early_is_found_out() {
    for algorithm in Algorithm::ALL {
        let found: Vec<String> = (0..16)
            .filter_map(|seed| run(algorithm, &spin(), Schedule { seed, stops: false }, Way::TooEarly).err())
            .collect();
        assert!(found.iter().any(|f| f.contains("race:")), "{}: {found:#?}", algorithm.name());
    }
}
