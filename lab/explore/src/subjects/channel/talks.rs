//! The answer line of two endpoints, both of which sleep.

use std::rc::Rc;

use towpath_channel::answer_line::{self, AnswerEnd, AnswerLine};
use towpath_channel::doorbell;
use towpath_channel::packet::{Form, MAX_ARGS};
use towpath_channel::path::PacketContent;
use towpath_machine::{Arena, Ordering, Park, Place, Processor};
use towpath_schedules::{ExploredMemory, Explorer, Plan, SubjectRun, Word};

use super::ENDLESS;

/// Questions of thread 0 to each other one, and their answers, in the answer line of the
/// two. Both ends sleep until a message comes.
pub(super) struct Talks {
    lines: Vec<Rc<AnswerLine<Explorer>>>,
    /// Doorbell of each thread.
    doorbells: Vec<Word>,
    /// The fault: an end that wakes takes back the other end's mark, too.
    disarms_both: bool,
    plan: Plan,
}

type TalkEnd = AnswerEnd<Rc<AnswerLine<Explorer>>>;

impl Talks {
    pub(super) fn body(plan: &Plan, memory: &ExploredMemory, disarms_both: bool) -> Rc<dyn SubjectRun> {
        Rc::new(Talks {
            lines: (1..plan.threads).map(|_| Rc::new(AnswerLine::new(memory))).collect(),
            doorbells: (0..plan.threads).map(|_| memory.word(Place::NewLine, 0)).collect(),
            disarms_both,
            plan: *plan,
        })
    }

    /// The end of this thread in its line with another one.
    fn end(&self, cpu: &Explorer, other: usize) -> TalkEnd {
        let line = Rc::clone(&self.lines[cpu.id().max(other) - 1]);
        AnswerEnd::new(Some(line), (cpu.id() as u16, 1), (other as u16, 1))
    }

    fn send(&self, cpu: &Explorer, end: &TalkEnd, other: usize, value: u64) {
        let args = [value as u32; 4];
        // Each second message is not short.
        let form = if value.is_multiple_of(2) { Form::Short } else { Form::LongStored };
        let out = PacketContent { form, handler: 0, tag: value, args: &args, aux: value, source: 0 };
        assert!(end.is_ours(), "it is this end's turn");
        if end.send(cpu, &out, cpu.id() != 0, 0) {
            doorbell::wake(cpu, &self.doorbells[other]);
        }
    }

    fn receive(&self, cpu: &Explorer, end: &TalkEnd, expected: u64) {
        let doorbell = &self.doorbells[cpu.id()];
        loop {
            if let Some(answer) = end.look(cpu) {
                let mut args = [0; MAX_ARGS];
                assert_eq!((end.take(cpu, &mut args), answer.header.args()), (expected, 4), "in order");
                assert_eq!(args[..4], [expected as u32; 4], "a message's parts");
                if answer.header.form() == Some(Form::LongStored) {
                    assert_eq!(answer_line::aux_of(&args), expected, "a message's word");
                }
                return;
            }
            let count = doorbell::count(cpu, doorbell);
            if end.arm(cpu) {
                cpu.park(doorbell, count, ENDLESS);
            }
            if self.disarms_both
                && let Some(header) = end.awaited()
            {
                // Relaxed: as in `disarm`.
                cpu.fetch_and(header, !answer_line::SLEEPS, Ordering::Relaxed);
            }
            end.disarm(cpu);
        }
    }
}

impl SubjectRun for Talks {
    fn thread(&self, cpu: &Explorer) {
        let rounds = self.plan.ops as u64;
        if cpu.id() != 0 {
            let end = self.end(cpu, 0);
            assert!(end.attach(cpu), "the end that does not begin looks at once");
            doorbell::wake(cpu, &self.doorbells[0]);
            for n in 0..rounds {
                self.receive(cpu, &end, n);
                self.send(cpu, &end, 0, n);
            }
            assert!(end.look(cpu).is_none(), "no message comes twice");
            return;
        }
        let ends: Vec<_> = (1..self.plan.threads).map(|other| (self.end(cpu, other), other)).collect();
        for (end, _) in &ends {
            loop {
                let count = doorbell::count(cpu, &self.doorbells[0]);
                if end.attach(cpu) {
                    break;
                }
                cpu.park(&self.doorbells[0], count, ENDLESS);
            }
        }
        for n in 0..rounds {
            ends.iter().for_each(|(end, other)| self.send(cpu, end, *other, n));
            ends.iter().for_each(|(end, _)| self.receive(cpu, end, n));
        }
    }
}
