//! Streams of one receiver as a subject.

use std::rc::Rc;

use towpath_channel::doorbell;
use towpath_channel::packet::{Form, MAX_ARGS};
use towpath_channel::path::PacketContent;
use towpath_channel::stream::{self, Ends, OPEN, STREAM_ARGS, Stream, StreamReceiver, StreamSender};
use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_sync::Spinning;

use crate::subjects::ENDLESS;
use towpath_schedules::Word;
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun};

/// Words of a stream: two of the longest records do not fit.
const WORDS: usize = 16;

/// Streams of thread 0, of which each other one takes one. Thread 0 sleeps when no record
/// is there.
pub(super) struct Streamed {
    streams: Vec<Rc<Stream<Explorer, WORDS>>>,
    news: Word,
    doorbell: Word,
    /// The fault: a receiver that wakes takes its mark back with a store, and with it the
    /// header that has come meanwhile.
    disarms_by_store: bool,
    plan: Plan,
}

type StreamIn = StreamReceiver<Rc<Stream<Explorer, WORDS>>>;

impl Streamed {
    pub(super) fn body(plan: &Plan, memory: &ExploredMemory, disarms_by_store: bool) -> Rc<dyn SubjectRun> {
        Rc::new(Streamed {
            streams: (1..plan.threads).map(|_| Rc::new(Stream::new(memory))).collect(),
            news: memory.word(Place::NewLine, 0),
            doorbell: memory.word(Place::NewLine, 0),
            disarms_by_store,
            plan: *plan,
        })
    }

    /// Sends a message, the first one in a stream that is free. Returns whether thread 0
    /// sleeps.
    fn send_one(&self, cpu: &Explorer, sender: &StreamSender<Rc<Stream<Explorer, WORDS>>>, n: u64) -> bool {
        let (args, tag) = ([n as u32; STREAM_ARGS], cpu.id() as u64);
        let out = PacketContent { form: Form::Short, handler: 0, tag, args: &args, aux: 0, source: 0 };
        if !sender.is_open() {
            let ends = Ends { endpoint: cpu.id() as u16, generation: 0, receiver_generation: 0 };
            let mut numbered = self.streams.iter().zip(0..);
            let opened = numbered.find_map(|(stream, number)| {
                sender.open(cpu, Rc::clone(stream), (&self.news, number), ends, &out, n)
            });
            return opened.expect("as many streams as senders");
        }
        let mut round = 0;
        loop {
            match sender.send(cpu, &out, n) {
                Ok(must_wake) => return must_wake,
                Err(stream::NoSpace) => sender.await_space(cpu, &Spinning, round),
            }
            round += 1;
        }
    }

    fn send(&self, cpu: &Explorer) {
        let sender = StreamSender::default();
        for n in 0..self.plan.ops as u64 {
            if self.send_one(cpu, &sender, n) {
                doorbell::wake(cpu, &self.doorbell);
            }
        }
    }

    /// Receives from the streams that were opened since the last look.
    fn attach(&self, cpu: &Explorer, receivers: &mut Vec<StreamIn>) {
        if !stream::has_news(cpu, &self.news) {
            return;
        }
        let numbers = stream::take_news(cpu, &self.news);
        for (stream, _) in self.streams.iter().zip(0..).filter(|(_, number)| numbers >> number & 1 != 0) {
            let owner = stream.owner(cpu);
            assert!(owner & OPEN != 0, "news of a stream that is open");
            receivers.push(StreamReceiver::new(cpu, Rc::clone(stream), owner));
        }
    }

    /// Takes the next record, if one is there. Returns its first argument.
    fn take(cpu: &Explorer, receiver: &StreamIn) -> Option<u64> {
        let record = receiver.look(cpu)?;
        let mut args = [0; MAX_ARGS];
        receiver.take(cpu, &record, &mut args);
        assert_eq!(record.header.args(), STREAM_ARGS, "a record's arguments");
        assert!(args[..STREAM_ARGS].iter().all(|arg| *arg == args[0]), "a record's parts");
        assert!(record.after == u64::from(args[0]) || args[0] == 0, "a record's ticket");
        receiver.done(cpu, &record);
        if receiver.has_space_to_say() {
            receiver.say_space(cpu, &Spinning);
        }
        Some(args[0].into())
    }

    fn receive(&self, cpu: &Explorer) {
        let (ops, mut receivers) = (self.plan.ops as u64, Vec::new());
        let mut taken = vec![0; self.plan.threads];
        while taken[1..].iter().any(|n| *n < ops) {
            self.attach(cpu, &mut receivers);
            let mut came = false;
            for receiver in &receivers {
                let from = receiver.tag() as usize;
                while let Some(n) = Self::take(cpu, receiver) {
                    assert_eq!(n, taken[from], "in order");
                    taken[from] += 1;
                    came = true;
                }
            }
            if !came {
                self.sleep(cpu, &receivers);
            }
        }
        assert!(receivers.iter().all(|receiver| receiver.look(cpu).is_none()), "no record comes twice");
    }

    fn sleep(&self, cpu: &Explorer, receivers: &[StreamIn]) {
        let count = doorbell::count(cpu, &self.doorbell);
        // No look after it: the exchanges have decided.
        if stream::arm_news(cpu, &self.news) && receivers.iter().all(|receiver| receiver.arm(cpu)) {
            cpu.park(&self.doorbell, count, ENDLESS);
        }
        stream::disarm_news(cpu, &self.news);
        for receiver in receivers {
            if self.disarms_by_store {
                // Relaxed: as in `disarm`.
                cpu.store(receiver.awaited(), 0, Ordering::Relaxed);
            } else {
                receiver.disarm(cpu);
            }
        }
    }
}

impl SubjectRun for Streamed {
    fn thread(&self, cpu: &Explorer) {
        if cpu.id() == 0 { self.receive(cpu) } else { self.send(cpu) }
    }
}
