//! Caches: lines that come and go, reservations, and waiters that spin.
//!
//! Whether a processor has a line is in `memory.rs` (`copies`); here are the sets of finite caches
//! (round robin within a set), reservations, and waiters that spin: they sleep until their line
//! goes.

use crate::engine::Engine;
use crate::event_queue::{EventKind, FOREVER, Time};
use crate::memory::copy;
use crate::request::NONE;
use crate::thread::{Doing, Permit};

impl Engine {
    /// A cache loses its copy.
    pub fn invalidate(&mut self, line: usize, cpu: usize) {
        self.memory.set_copy(line, cpu, copy::INVALID);
        self.lose(line, cpu);
    }

    /// A cache gives up its copy. Returns whether memory has to get it back.
    pub fn drop_copy(&mut self, line: usize, cpu: usize) -> bool {
        let owns = self.memory.copy(line, cpu) >= copy::OWNED;
        self.invalidate(line, cpu);
        owns
    }

    /// Follows the loss of a copy: its reservation is lost, and a waiter that spins on it
    /// looks again.
    pub fn lose(&mut self, line: usize, cpu: usize) {
        let now = self.now;
        let spin = self.p.spin;
        let it = &mut self.cpus[cpu];
        if it.reservation as usize == line || it.second as usize == line {
            it.reservation = NONE;
        }
        // An advisory lock is a bit of the copy that took it.
        if self.marks && usize::from(self.memory.marks[line].locked) == cpu + 1 {
            self.memory.marks[line].locked = 0;
        }
        if it.spinning as usize != line {
            return;
        }
        it.spinning = NONE;
        let Some(t) = it.current else { return };
        let thread = &mut self.threads[t];
        if thread.doing == Doing::Spinning {
            // The iterations until now, and the one that misses.
            let iterations = now.saturating_sub(thread.clock).div_ceil(spin);
            self.counters.hits += iterations;
            thread.clock += iterations * spin;
            self.until(t);
        }
    }

    /// A thread stops spinning for a reason that has nothing to do with the line: its
    /// iterations until now are charged.
    pub fn stop_spinning(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        self.cpus[thread.cpu].spinning = NONE;
        self.counters.hits += self.now.saturating_sub(thread.clock) / self.p.spin;
        thread.clock = thread.clock.max(self.now);
    }

    /// Finds a place for a line in a finite cache. Returns the line that has to leave it.
    pub fn make_room(&mut self, line: usize, cpu: usize) -> Option<usize> {
        if self.cpus[cpu].sets.is_empty() || self.memory.copy(line, cpu) != copy::INVALID {
            return None;
        }
        let ways = self.p.ways as usize;
        let it = &mut self.cpus[cpu];
        let set = line % it.next_way.len();
        let lines = &mut it.sets[set * ways..][..ways];
        let number = line as u32 + 1;
        let is_free = |&kept: &u32| kept == 0 || self.memory.copy(kept as usize - 1, cpu) == copy::INVALID;
        let own = lines.iter().position(|&kept| kept == number);
        let way = own.or_else(|| lines.iter().position(is_free)).unwrap_or_else(|| {
            let way = usize::from(it.next_way[set]);
            it.next_way[set] = ((way + 1) % ways) as u8;
            way
        });
        let victim = std::mem::replace(&mut lines[way], number);
        let leaves = victim != number && !is_free(&victim);
        leaves.then(|| victim as usize - 1)
    }

    // ---- spinners ----

    /// The thread goes on when the line that it has read may have changed, or at the
    /// deadline. Returns whether it must stop for that: not if the line is gone already.
    pub fn spin(&mut self, t: usize, word: u32, deadline: Time) -> bool {
        let line = self.memory.line_of(word);
        let cpu = self.threads[t].cpu;
        if self.memory.copy(line, cpu) == copy::INVALID {
            return false;
        }
        self.wait_for_line(t, line as u32, deadline);
        true
    }

    /// Lets the thread sleep until a change of the line wakes it, or until the deadline.
    pub fn wait_for_line(&mut self, t: usize, line: u32, deadline: Time) {
        self.cpus[self.threads[t].cpu].spinning = line;
        let thread = &mut self.threads[t];
        thread.doing = Doing::Spinning;
        thread.clock += std::mem::take(&mut thread.stolen);
        thread.generation = thread.generation.wrapping_add(1);
        thread.deadline = deadline;
        self.set_timer(t);
    }

    /// One timer per thread is enough: it is set again when it comes too early, instead
    /// of one for each time that the thread waits.
    fn set_timer(&mut self, t: usize) {
        let thread = &mut self.threads[t];
        let at = thread.deadline.max(thread.clock);
        if thread.deadline < FOREVER && at < thread.timer {
            thread.timer = at;
            self.events.push(at, EventKind::Timer, t, 0);
        }
    }

    pub fn timer(&mut self, t: usize) -> Option<usize> {
        let now = self.now;
        let thread = &mut self.threads[t];
        if thread.timer != now {
            // Another one was set for an earlier time.
            return None;
        }
        thread.timer = Time::MAX;
        if thread.doing != Doing::Spinning {
            return None;
        }
        if thread.deadline > now {
            self.set_timer(t);
            return None;
        }
        self.stop_spinning(t);
        let thread = &mut self.threads[t];
        thread.doing = Doing::Running;
        thread.permit = Permit::Turn;
        Some(t)
    }
}
