//! Double compare-and-swap and advisory locks, as Greenwald & Cheriton §6 propose them,
//! and the counts of active threads of Allemany & Felten.
//!
//! * **LLP and SCP** (their Figure 3): both words are loaded and linked (LL, LLP) and compared;
//!   then both are stored, if neither line has been lost since (SCP, SC). The first store waits for
//!   the second; with what the cache lacks of the right to write the lines, the bus is taken once
//!   for both. A processor that loses a line in between begins anew: only a difference of values is
//!   a failure. Another one has then written, so the others make progress.
//! * **CAS2** (Motorola 68040): one instruction, past the cache, that holds the bus from the first
//!   read to the last write.
//! * **Cload**: a load that takes the line's advisory lock, or fails if another processor has it.
//!   Any store to the line gives it up, and so does the loss of the copy that took it; ordinary
//!   loads and stores don't look at it.

use crate::engine::Engine;
use crate::machine::Machine;
use crate::memory::copy;
use crate::parameters::CAS2;
use crate::request::{NONE, Op, Request, Want};
use crate::task::{DcasStage, Double};
use crate::thread::Permit;

impl Engine {
    /// A thread's double compare-and-swap, from its beginning.
    pub fn new_double(&self, words: [u32; 2], old: [u64; 2], new: [u64; 2]) -> Double {
        let stage = if self.p.dcas == CAS2 { DcasStage::Locked } else { DcasStage::First };
        Double { stage, words, old, new, seen: [0; 2] }
    }

    /// Ends a double compare-and-swap.
    fn is_double(&mut self, t: usize, stored: bool) -> bool {
        let thread = &mut self.threads[t];
        self.cpus[thread.cpu].reservation = NONE;
        thread.clock += self.p.dcas_cost + self.p.instructions;
        self.counters.double_exchanges += 1;
        self.counters.failed_double_exchanges += u64::from(!stored);
        stored
    }

    /// A load of that line was performed just now: whether it takes the advisory lock.
    pub fn take_advisory(&mut self, t: usize, word: u32) -> bool {
        let line = self.memory.line_of(word);
        let mine = self.threads[t].cpu as u16 + 1;
        let locked = &mut self.memory.marks[line].locked;
        self.counters.advisory_loads += 1;
        if *locked != 0 && *locked != mine {
            self.counters.advisory_refusals += 1;
            return false;
        }
        *locked = mine;
        true
    }
}

impl Machine {
    /// Gets on with it. Returns whether it has stored; `None` if the thread must stop
    /// first.
    pub fn double(&mut self, t: usize) -> Option<bool> {
        loop {
            let Double { stage, words, old, new, .. } = self.engine.threads[t].double;
            let cpu = self.engine.threads[t].cpu;
            let lines = words.map(|word| self.engine.memory.line_of(word));
            match stage {
                DcasStage::First | DcasStage::Second => {
                    let i = usize::from(stage == DcasStage::Second);
                    if !self.may(t, words[i], Op::Load) {
                        return None;
                    }
                    let seen = self.engine.perform(t, words[i], Op::Load, self.engine.p.linked);
                    self.engine.threads[t].double.seen[i] = seen;
                    let it = &mut self.engine.cpus[cpu];
                    if stage == DcasStage::First {
                        // An interrupt that waits for this access loses the reservation at once.
                        it.reservation =
                            if self.engine.threads[t].stolen == 0 { lines[0] as u32 } else { NONE };
                        self.engine.threads[t].double.stage = DcasStage::Second;
                        continue;
                    }
                    it.second = lines[1] as u32;
                    if self.engine.threads[t].double.seen != old {
                        return Some(self.engine.is_double(t, false));
                    }
                    self.engine.threads[t].double.stage = DcasStage::Stores;
                }
                DcasStage::Stores => {
                    let granted = self.engine.permit(t)? == Permit::Granted;
                    let stands = if granted {
                        !self.engine.threads[t].failed
                    } else {
                        let it = &self.engine.cpus[cpu];
                        [it.reservation as usize, it.second as usize] == lines
                    };
                    if !stands {
                        self.engine.counters.double_retries += 1;
                        self.engine.threads[t].double.stage = DcasStage::First;
                        continue;
                    }
                    if !granted
                        && lines.iter().any(|&line| self.engine.memory.copy(line, cpu) != copy::MODIFIED)
                    {
                        let request = Request::new(Want::Both, Op::Store(new[0]), lines[0], words[0]);
                        self.ask(t, cpu, Request { second: lines[1] as u32, ..request });
                        return None;
                    }
                    for (word, new) in words.into_iter().zip(new) {
                        self.engine.perform(t, word, Op::Store(new), self.engine.p.conditional);
                    }
                    return Some(self.engine.is_double(t, true));
                }
                DcasStage::Locked => {
                    if self.engine.permit(t)? == Permit::Granted {
                        let stored = self.engine.threads[t].result != 0;
                        return Some(self.engine.is_double(t, stored));
                    }
                    let request = Request::new(Want::Locked, Op::Store(new[0]), lines[0], words[0]);
                    self.ask(t, cpu, Request { second: lines[1] as u32, ..request });
                    return None;
                }
            }
        }
    }
}
