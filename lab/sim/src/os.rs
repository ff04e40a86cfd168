//! The operating system: the assignment of processors to threads.
//!
//! Threads stay on their processors. A processor with several has a queue; a time slice ends at the
//! next boundary between accesses, a computation is cut there. Under time sharing each processor
//! begins with any of its threads and its slices have a phase of their own; a thread that is woken
//! queues up behind the others; under flat gang scheduling the whole machine changes from program
//! to program at once, and a processor whose thread of the program sleeps is idle. A switch loses
//! the reservation of a load-linked. Under time sharing a thread that asks not to be preempted runs
//! on when its slice ends, until it lets go, for as long as the machine's `os.grace` at most.
//!
//! A thread that is in a count of active threads (Allemany & Felten 1992) is taken off it when it
//! is switched out, and added again before it goes on, by updates that hold the bus. One that holds
//! a lock that the system knows (Bershad 1993) is rolled back when it is switched out or ends: what
//! it has stored tentatively is put back and the lock freed, by such updates too, before the next
//! one runs.

use crate::event_queue::{EventKind, Time};
use crate::machine::Machine;
use crate::parameters::GANG;
use crate::request::{NONE, Op};
use crate::thread::Doing;

impl Machine {
    /// The machine starts: every processor begins with the first of its threads.
    pub fn start(&mut self) {
        let gang = self.gang();
        for cpu in 0..self.engine.memory.processors {
            if gang {
                self.dispatch(cpu, 0, None);
            } else {
                // A random thread and a random phase, so that processors neither switch at once nor
                // begin with the same program.
                let queue = &mut self.engine.cpus[cpu].queue;
                if queue.len() > 1 {
                    queue.rotate_left(self.engine.random.below(queue.len() as u64) as usize);
                }
                let first = 1 + self.engine.random.below(self.engine.p.quantum);
                self.dispatch(cpu, 0, Some(first));
            }
            if self.engine.p.interrupt_every != 0 {
                let first = 1 + self.engine.random.below(self.engine.p.interrupt_every);
                self.engine.events.push(first, EventKind::Interrupt, cpu, 0);
            }
        }
        if gang {
            self.engine.events.push(self.engine.p.quantum, EventKind::Quantum, NONE as usize, 0);
        }
    }

    fn gang(&self) -> bool {
        self.engine.p.policy == GANG && self.engine.jobs > 1
    }

    /// Returns whether the scheduler lets the thread's program run now.
    fn may_run(&self, t: usize) -> bool {
        !self.gang() || self.engine.threads[t].job == self.engine.active_job
    }

    /// Lets the next thread of a free processor go on at that time.
    pub fn dispatch(&mut self, cpu: usize, at: Time, slice: Option<Time>) {
        let Some(i) =
            (0..self.engine.cpus[cpu].queue.len()).find(|&i| self.may_run(self.engine.cpus[cpu].queue[i]))
        else {
            return;
        };
        let it = &mut self.engine.cpus[cpu];
        let Some(t) = it.queue.remove(i) else { return };
        it.current = Some(t);
        it.reservation = NONE;
        let at = at.max(it.free);
        it.slice = it.slice.wrapping_add(1);
        if it.threads > 1 && !(self.engine.p.policy == GANG && self.engine.jobs > 1) {
            let length = slice.unwrap_or(self.engine.p.quantum);
            self.engine.events.push(at + length, EventKind::Quantum, cpu, it.slice as usize);
        }
        let thread = &mut self.engine.threads[t];
        thread.clock = at + std::mem::take(&mut thread.left);
        match thread.counted {
            Some(word) => {
                thread.doing = Doing::Counted;
                self.engine.counters.active_changes += 1;
                self.interconnect.change(&mut self.engine, cpu, word, Op::Add(1));
            }
            None => self.engine.until(t),
        }
    }

    /// The system has changed a word: for the thread that goes on now, or on behalf of
    /// the one that was switched out.
    pub fn changed(&mut self, cpu: usize) {
        match self.engine.cpus[cpu].current {
            None => {
                self.engine.cpus[cpu].in_system = false;
                self.switch(cpu, self.engine.now);
            }
            Some(t) => {
                let thread = &mut self.engine.threads[t];
                thread.clock = thread.clock.max(self.engine.now);
                self.engine.until(t);
            }
        }
    }

    /// Returns whether a thread waits for the processor and may have it.
    fn has_another(&self, cpu: usize) -> bool {
        self.engine.cpus[cpu].queue.iter().any(|&t| self.may_run(t))
    }

    fn switch(&mut self, cpu: usize, at: Time) {
        if self.engine.cpus[cpu].in_system {
            return;
        }
        if let Some((word, op)) = self.engine.cpus[cpu].chores.pop_front() {
            self.engine.cpus[cpu].in_system = true;
            return self.interconnect.change(&mut self.engine, cpu, word, op);
        }
        if self.has_another(cpu) {
            self.engine.counters.switches += 1;
            self.dispatch(cpu, at + self.engine.p.switch, None);
        }
    }

    pub fn slice_ends(&mut self, cpu: usize, slice: u32) {
        if cpu == NONE as usize {
            self.next_program();
        } else if self.engine.cpus[cpu].slice == slice {
            if self.engine.cpus[cpu].queue.is_empty() {
                // No thread to switch to: another slice.
                let it = &mut self.engine.cpus[cpu];
                it.slice = it.slice.wrapping_add(1);
                self.engine.events.push(
                    self.engine.now + self.engine.p.quantum,
                    EventKind::Quantum,
                    cpu,
                    it.slice as usize,
                );
            } else if self.is_to_stay(cpu) {
                // Until it lets go, but no longer than this.
                self.engine.cpus[cpu].overdue = true;
                self.engine.events.push(
                    self.engine.now + self.engine.p.grace,
                    EventKind::Quantum,
                    cpu,
                    slice as usize,
                );
            } else {
                self.preempt(cpu);
            }
        }
    }

    /// Returns whether a processor's thread may run on though its time slice has ended:
    /// once, for a while.
    fn is_to_stay(&self, cpu: usize) -> bool {
        let it = &self.engine.cpus[cpu];
        let asked = it.current.is_some_and(|t| self.engine.threads[t].stays || self.engine.threads[t].kept);
        asked && self.engine.p.grace != 0 && !it.overdue
    }

    /// The thread asks not to be preempted, or no longer. Returns whether it must stop:
    /// its time slice has ended.
    pub fn stay(&mut self, t: usize, on: bool) -> bool {
        let thread = &mut self.engine.threads[t];
        thread.stays = on;
        thread.kept &= !on;
        let (cpu, at) = (thread.cpu, thread.clock);
        if on || thread.kept || !self.engine.cpus[cpu].overdue {
            return false;
        }
        self.engine.counters.preemptions += 1;
        self.leave(cpu, t, Doing::Queued, at);
        self.engine.cpus[cpu].queue.push_back(t);
        self.switch(cpu, at);
        true
    }

    /// Asks that a thread not be preempted. Returns whether it is not already, or about
    /// to be.
    pub fn keep(&mut self, t: usize) -> bool {
        let thread = &mut self.engine.threads[t];
        let gone = matches!(thread.doing, Doing::Queued | Doing::Parked(_) | Doing::Done);
        if gone || self.engine.cpus[thread.cpu].preempt {
            return false;
        }
        thread.kept = true;
        true
    }

    /// Flat gang scheduling: the whole machine goes over to the next program that has not
    /// ended.
    fn next_program(&mut self) {
        self.change_program();
        self.engine.events.push(
            self.engine.now + self.engine.p.quantum,
            EventKind::Quantum,
            NONE as usize,
            0,
        );
    }

    /// Returns whether a program has not ended.
    fn is_left(&self, job: usize) -> bool {
        self.engine.threads.iter().any(|t| t.job == job && t.doing != Doing::Done)
    }

    fn change_program(&mut self) {
        let next = (1..=self.engine.jobs)
            .map(|i| (self.engine.active_job + i) % self.engine.jobs)
            .find(|&job| self.is_left(job));
        if let Some(job) = next {
            let is_another = job != self.engine.active_job;
            self.engine.active_job = job;
            for cpu in 0..self.engine.memory.processors {
                match self.engine.cpus[cpu].current {
                    // Threads of one program on one processor take turns too.
                    Some(_) if is_another || self.has_another(cpu) => self.preempt(cpu),
                    Some(_) => {}
                    None => self.switch(cpu, self.engine.now),
                }
            }
        }
    }

    /// The current thread has to give way, now or when its access is complete.
    pub fn preempt(&mut self, cpu: usize) {
        let Some(t) = self.engine.cpus[cpu].current else { return };
        let now = self.engine.now;
        match self.engine.threads[t].doing {
            Doing::Until => {
                let thread = &mut self.engine.threads[t];
                thread.left = thread.clock.saturating_sub(now);
            }
            Doing::Spinning => {
                self.engine.threads[t].has_spun(self.engine.progress);
                self.engine.stop_spinning(t);
            }
            _ => {
                self.engine.cpus[cpu].preempt = true;
                return;
            }
        }
        self.engine.counters.preemptions += 1;
        self.leave(cpu, t, Doing::Queued, now);
        self.engine.cpus[cpu].queue.push_back(t);
        self.switch(cpu, now);
    }

    /// The thread's processor is free from that time on.
    fn leave(&mut self, cpu: usize, t: usize, doing: Doing, free: Time) {
        let thread = &mut self.engine.threads[t];
        thread.doing = doing;
        thread.generation = thread.generation.wrapping_add(1);
        let counted = thread.counted.filter(|_| doing != Doing::Done);
        let section = thread.section.take();
        let it = &mut self.engine.cpus[cpu];
        if let Some(section) = section {
            self.engine.counters.roll_backs += 1;
            it.chores.extend(section.tentative.map(|(word, old)| (word, Op::Store(old))));
            it.chores.push_back((section.lock, Op::Add(1)));
        }
        if let Some(word) = counted {
            self.engine.counters.active_changes += 1;
            it.chores.push_back((word, Op::Add(u64::MAX)));
        }
        it.current = None;
        it.reservation = NONE;
        it.free = free;
        it.slice = it.slice.wrapping_add(1);
        it.preempt = false;
        it.overdue = false;
    }

    /// The thread sleeps on a word until woken or until the time is over.
    pub fn park(&mut self, t: usize, word: u32, timeout: Time) {
        self.engine.counters.blocks += 1;
        let cpu = self.engine.threads[t].cpu;
        let at = self.engine.threads[t].clock + self.engine.p.block;
        // A waker that comes before that must wait until it sleeps.
        self.engine.threads[t].clock = at;
        self.engine.threads[t].deadline = at.saturating_add(timeout);
        self.leave(cpu, t, Doing::Parked(word), at);
        self.engine.parked.push((word, t));
        let generation = self.engine.threads[t].generation;
        self.engine.events.push(at.saturating_add(timeout), EventKind::Ready, t, generation as usize);
        self.switch(cpu, at);
    }

    /// Wakes the first threads that sleep on the word, one after the other: each takes
    /// the waker as long as a system call. Returns how many.
    pub fn wake(&mut self, t: usize, word: u32, count: u32) -> u32 {
        let first = self.engine.threads[t].clock + self.engine.p.wake;
        let mut woken = 0;
        while woken < count {
            let Some(i) = self.engine.parked.iter().position(|&(w, _)| w == word) else { break };
            let (_, sleeper) = self.engine.parked.remove(i);
            let at = first + u64::from(woken) * self.engine.p.system_call;
            woken += 1;
            let thread = &mut self.engine.threads[sleeper];
            thread.generation = thread.generation.wrapping_add(1);
            let generation = thread.generation;
            let at = at.max(thread.clock);
            thread.deadline = at;
            self.engine.events.push(at, EventKind::Ready, sleeper, generation as usize);
        }
        woken
    }

    /// A sleeper can run again.
    pub fn ready(&mut self, t: usize, generation: u32) {
        let thread = &mut self.engine.threads[t];
        if thread.generation != generation {
            return;
        }
        // It may come by itself: its time is over.
        if let Some(i) = self.engine.parked.iter().position(|&(_, sleeper)| sleeper == t) {
            self.engine.parked.remove(i);
        }
        let thread = &mut self.engine.threads[t];
        thread.doing = Doing::Queued;
        let cpu = thread.cpu;
        self.engine.cpus[cpu].queue.push_back(t);
        if self.engine.cpus[cpu].current.is_none() {
            self.switch(cpu, self.engine.now);
        }
    }

    /// The thread lets another one run, if there is one. Returns whether it must stop.
    pub fn give_way(&mut self, t: usize) -> bool {
        let cpu = self.engine.threads[t].cpu;
        if !self.has_another(cpu) {
            self.engine.threads[t].clock += self.engine.p.system_call;
            return false;
        }
        let at = self.engine.threads[t].clock + self.engine.p.system_call;
        self.leave(cpu, t, Doing::Queued, at);
        self.engine.cpus[cpu].queue.push_back(t);
        self.switch(cpu, at);
        true
    }

    /// The thread has ended.
    pub fn ended(&mut self, t: usize) {
        let cpu = self.engine.threads[t].cpu;
        self.engine.now = self.engine.now.max(self.engine.threads[t].clock);
        self.engine.progress = self.engine.now;
        self.engine.unfinished -= 1;
        self.engine.cpus[cpu].threads -= 1;
        self.leave(cpu, t, Doing::Done, self.engine.now);
        if self.gang() && !self.is_left(self.engine.active_job) {
            // The next program has the rest of its slice.
            self.change_program();
        } else {
            self.switch(cpu, self.engine.now);
        }
    }

    pub fn interrupt(&mut self, cpu: usize) {
        self.engine.counters.interrupts += 1;
        self.engine.events.push(
            self.engine.now + self.engine.p.interrupt_every,
            EventKind::Interrupt,
            cpu,
            0,
        );
        self.steal(cpu, self.engine.p.interrupt_cost);
    }

    /// Takes a processor's time from its running thread.
    pub fn steal(&mut self, cpu: usize, cost: Time) {
        self.engine.cpus[cpu].reservation = NONE;
        let Some(t) = self.engine.cpus[cpu].current else { return };
        match self.engine.threads[t].doing {
            Doing::Until => {
                self.engine.threads[t].clock += cost;
                self.engine.until(t);
            }
            Doing::Spinning => {
                // It looks again when the interrupt is over.
                self.engine.stop_spinning(t);
                self.engine.threads[t].clock += cost;
                self.engine.until(t);
            }
            _ => self.engine.threads[t].stolen += cost,
        }
    }
}
