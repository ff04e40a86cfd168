//! Messages between processors: system calls that send, a handler in each kernel, and
//! notifications that waiters poll.
//!
//! A message carries a number, which the program that simulates explains. It is *polled*, if its
//! receiver waits for it: then it costs its receiver nothing but its polls. Otherwise it is an
//! *interrupt*, which takes the receiver's processor from the running thread, also within a
//! critical section. Both are handed to the machine's handler ([`crate::Simulation::set_handler`])
//! in the order of their arrival; what the handler sends leaves, and what it notifies is notified,
//! when the interrupt is over. The parameters `message.*` say how long each part takes.

use std::rc::Rc;

use crate::event_queue::{EventKind, FOREVER, Time};
use crate::machine::Machine;
use crate::parameters::{NO_MESSAGES, USER};
use crate::processor::Sim;
use crate::request::NONE;
use crate::thread::Doing;

/// Reception of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reception {
    /// An interrupt of its receiver's processor.
    Interrupt,
    /// Polls of a receiver that waits for it.
    Polled,
}

/// Message that has reached its receiver's node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrivedMessage {
    /// Node of the sender.
    pub from: usize,
    /// Number that the sender gave it.
    pub tag: u64,
    /// Reception that the sender chose.
    pub reception: Reception,
}

/// Kernel of a node while it handles a message or a system call: collects its messages.
#[derive(Debug)]
pub struct NodeKernel {
    node: usize,
    sent: Vec<(usize, u64, Reception)>,
    notifies: bool,
}

impl NodeKernel {
    fn new(node: usize) -> NodeKernel {
        NodeKernel { node, sent: Vec::new(), notifies: false }
    }

    /// Number of its node.
    pub fn node(&self) -> usize {
        self.node
    }

    /// Sends a message to another node.
    pub fn send(&mut self, to: usize, tag: u64, reception: Reception) {
        self.sent.push((to, tag, reception));
    }

    /// Notifies the thread on this node that waits ([`Sim::await_notification`]).
    pub fn notify(&mut self) {
        self.notifies = true;
    }
}

/// Handler of messages that arrive.
type Handler = Rc<dyn Fn(&mut NodeKernel, ArrivedMessage)>;

#[derive(Clone, Copy, Debug)]
struct SentMessage {
    from: usize,
    to: usize,
    tag: u64,
    reception: Reception,
}

/// Messages under way, and the kernels' state.
#[derive(Default)]
pub(crate) struct Messages {
    handler: Option<Handler>,
    envelopes: Vec<SentMessage>,
    free: Vec<usize>,
    /// Time until which each node's kernel is busy.
    busy: Vec<Time>,
    /// Time that each node's kernel has taken.
    taken: Vec<Time>,
    /// True for each node whose thread is notified and has not seen it.
    notified: Vec<bool>,
    /// True for each node whose thread is in a critical section.
    inside: Vec<bool>,
}

impl std::fmt::Debug for Messages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Messages({} under way)", self.envelopes.len() - self.free.len())
    }
}

impl Messages {
    pub fn new(processors: usize) -> Self {
        Messages {
            busy: vec![0; processors],
            taken: vec![0; processors],
            notified: vec![false; processors],
            inside: vec![false; processors],
            ..Messages::default()
        }
    }

    pub fn set_handler(&mut self, handler: impl Fn(&mut NodeKernel, ArrivedMessage) + 'static) {
        self.handler = Some(Rc::new(handler));
    }

    /// Returns the node that a message under way goes to.
    pub fn receiver(&self, number: usize) -> usize {
        self.envelopes[number].to
    }
}

impl Machine {
    /// Handles an event of a processor's message.
    pub fn on_message_event(&mut self, kind: EventKind, a: usize) {
        match kind {
            EventKind::Depart => {
                let SentMessage { from, to, .. } = self.engine.messages.envelopes[a];
                let at = self.interconnect.carry(&self.engine, self.engine.now, from, to);
                self.engine.events.push(at, EventKind::Deliver, a, 0);
            }
            EventKind::Deliver => self.message_arrives(a),
            _ => self.notified(a),
        }
    }

    fn message_arrives(&mut self, number: usize) {
        let e = &mut self.engine;
        e.progress = e.progress.max(e.now);
        let SentMessage { from, to, tag, reception } = e.messages.envelopes[number];
        e.messages.free.push(number);
        let Some(handler) = e.messages.handler.clone() else { return };
        let mut kernel = NodeKernel::new(to);
        handler(&mut kernel, ArrivedMessage { from, tag, reception });
        let now = e.now;
        if reception == Reception::Polled {
            return self.perform(&kernel, now, 0);
        }
        let signal = if e.p.messages == USER { e.p.message_signal } else { 0 };
        let begin = now.max(e.messages.busy[to]);
        let handled = e.p.message_interrupt + signal;
        let cost = handled + kernel.sent.len() as Time * e.p.message_send;
        e.messages.busy[to] = begin + cost;
        e.counters.message_interrupts += 1;
        e.counters.interrupts_inside += u64::from(e.messages.inside[to]);
        e.counters.kernel_time += cost;
        e.messages.taken[to] += cost;
        self.steal(to, cost);
        self.perform(&kernel, begin + handled, self.engine.p.message_send);
    }

    /// Sends the messages that a kernel has collected, and notifies, from that time on.
    fn perform(&mut self, kernel: &NodeKernel, mut at: Time, send: Time) {
        let e = &mut self.engine;
        for &(to, tag, reception) in &kernel.sent {
            at += send;
            let envelope = SentMessage { from: kernel.node, to, tag, reception };
            e.counters.sent += 1;
            let number = match e.messages.free.pop() {
                Some(number) => {
                    e.messages.envelopes[number] = envelope;
                    number
                }
                None => {
                    e.messages.envelopes.push(envelope);
                    e.messages.envelopes.len() - 1
                }
            };
            e.events.push(at + e.p.message_interface, EventKind::Depart, number, 0);
        }
        if kernel.notifies {
            e.events.push(at, EventKind::Notify, kernel.node, 0);
        }
    }

    fn notified(&mut self, cpu: usize) {
        let e = &mut self.engine;
        e.messages.notified[cpu] = true;
        let Some(t) = e.cpus[cpu].current else { return };
        if e.threads[t].doing == Doing::Spinning && e.cpus[cpu].spinning == NONE {
            e.stop_spinning(t);
            e.until(t);
        }
    }
}

impl Sim {
    /// Executes a light-weight system call about messages on the thread's own node.
    ///
    /// # Panics
    ///
    /// If the machine has no messages.
    pub fn call_kernel<R>(&self, act: impl FnOnce(&mut NodeKernel) -> R) -> R {
        self.await_turn();
        let machine = &mut *self.machine.borrow_mut();
        let e = &mut machine.engine;
        assert!(e.p.messages != NO_MESSAGES, "{} has no messages: give it `message.handler`", e.p.name);
        let node = e.threads[self.thread].cpu;
        let mut kernel = NodeKernel::new(node);
        let result = act(&mut kernel);
        // A manager in the user's process is called without entering the kernel, unless it sends.
        let is_call = e.p.messages != USER || !kernel.sent.is_empty();
        let call = if is_call { e.p.message_call } else { e.p.message_poll };
        let begin = e.threads[self.thread].clock.max(e.messages.busy[node]);
        let cost = call + kernel.sent.len() as Time * e.p.message_send;
        e.threads[self.thread].clock = begin + cost;
        e.counters.kernel_time += cost;
        e.messages.taken[node] += cost;
        e.progress = e.progress.max(begin);
        let send = e.p.message_send;
        machine.perform(&kernel, begin + call, send);
        result
    }

    /// Waits until this node is notified: polls the notification, and takes it back.
    pub fn await_notification(&self) {
        loop {
            self.await_turn();
            let is_there = {
                let e = &mut *self.engine();
                let node = e.threads[self.thread].cpu;
                e.threads[self.thread].clock += e.p.message_poll;
                let is_there = std::mem::take(&mut e.messages.notified[node]);
                if !is_there {
                    e.wait_for_line(self.thread, NONE, FOREVER);
                }
                is_there
            };
            if is_there {
                return;
            }
            self.stop();
        }
    }

    /// Returns the time of this node's kernel so far, in picoseconds.
    ///
    /// It is that of system calls about messages, and of interrupts by them.
    pub fn kernel_time(&self) -> Time {
        let e = &*self.engine();
        e.messages.taken[e.threads[self.thread].cpu]
    }

    /// Number of the node that the thread runs on, where a node has one processor.
    pub fn node(&self) -> usize {
        self.engine().threads[self.thread].cpu
    }

    /// Stops until all that happens before this thread's clock has happened.
    pub fn await_now(&self) {
        self.await_turn();
    }

    /// Tells whether the thread is in a critical section, so that interrupts there are
    /// counted.
    pub fn mark_section(&self, inside: bool) {
        let e = &mut *self.engine();
        let node = e.threads[self.thread].cpu;
        e.messages.inside[node] = inside;
    }
}
