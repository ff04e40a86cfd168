//! The write-once protocol (Goodman, ISCA 1983), as Greenwald & Cheriton's simulations
//! have it: the effect of a transaction on caches and memory, and its length.
//!
//! | state | here | reads | writes |
//! | --- | --- | --- | --- |
//! | Invalid | no copy | a line from memory | a line from memory, then as Valid |
//! | Valid | `SHARED` | hit | the word goes through to memory, which invalidates the other copies; then Reserved |
//! | Reserved | `MODIFIED`, mark not `dirty` | hit | hit; then Dirty |
//! | Dirty | `MODIFIED`, mark `dirty` | hit | hit |
//!
//! Another processor's read makes Reserved Valid; a Dirty line goes back to memory first, in the
//! same transaction, and is then Valid. The other caches see a transaction when it begins; its
//! requester has its line when it ends. The kind of a request is decided when it gets the bus: an
//! upgrade whose copy has gone meanwhile is a write miss.

use crate::engine::Engine;
use crate::event_queue::Time;
use crate::memory::{LineState, copy};
use crate::request::{NONE, Want};

/// Serves a request that has got the bus. Returns for how long it holds the bus.
pub(super) fn serve(e: &mut Engine, cpu: usize) -> Time {
    let request = &mut e.cpus[cpu].request;
    request.served = true;
    let (line, second, prefetch) = (request.line as usize, request.second as usize, request.prefetch);
    match request.want {
        Want::Fetch => {
            e.operate_at_memory(cpu);
            e.p.bus_memory
        }
        Want::Read => read(e, cpu, line),
        Want::Exclusive | Want::Upgrade => {
            let missing = e.memory.copy(line, cpu) == copy::INVALID;
            let fetched = if missing { read(e, cpu, line) } else { 0 };
            fetched + write_through(e, cpu, line, prefetch)
        }
        Want::Conditional | Want::Both => {
            let lines = [line, second];
            let lines = if second == NONE as usize || second == line { &lines[..1] } else { &lines };
            if lines.iter().any(|&line| e.memory.copy(line, cpu) == copy::INVALID) {
                // The controller has seen its line go while it waited, and does not take the
                // bus.
                e.cpus[cpu].request.failed = true;
                return 0;
            }
            let mut length = 0;
            for &line in lines {
                if e.memory.copy(line, cpu) != copy::MODIFIED {
                    length += write_through(e, cpu, line, false);
                }
            }
            length
        }
        Want::Locked => locked_double(e, cpu, [line, second]),
    }
}

/// Reads a line from memory; a cache that has it alone shares it from now on.
fn read(e: &mut Engine, cpu: usize, line: usize) -> Time {
    let back = take_back(e, line, cpu);
    e.counters.misses[usize::from(back != 0)] += 1;
    e.memory.lines[line].state = LineState::Shared;
    e.memory.add_sharer(line, cpu);
    back + e.p.bus_memory
}

/// Makes a line that another cache has alone a shared one, and memory right. Returns for
/// how long that holds the bus.
pub(super) fn take_back(e: &mut Engine, line: usize, but: usize) -> Time {
    let it = e.memory.lines[line];
    let owner = usize::from(it.owner);
    if it.state != LineState::Exclusive || owner == but || e.memory.copy(line, owner) != copy::MODIFIED {
        return 0;
    }
    e.counters.interventions += 1;
    e.counters.interventions_received += 1;
    e.memory.set_copy(line, owner, copy::SHARED);
    e.memory.add_sharer(line, owner);
    e.memory.lines[line].state = LineState::Shared;
    if !std::mem::take(&mut e.memory.marks[line].dirty) {
        return 0;
    }
    e.counters.from_caches += 1;
    e.counters.write_backs += 1;
    e.p.bus_write_back
}

/// A word goes through to memory: its line is the writer's alone.
fn write_through(e: &mut Engine, cpu: usize, line: usize, prefetch: bool) -> Time {
    drop_copies(e, line, cpu);
    let it = &mut e.memory.lines[line];
    it.state = LineState::Exclusive;
    it.owner = cpu as u16;
    e.memory.add_sharer(line, cpu);
    let mark = &mut e.memory.marks[line];
    (mark.dirty, mark.through) = (false, !prefetch);
    e.counters.write_throughs += 1;
    e.p.bus_write
}

/// All caches but one lose a line.
pub(super) fn drop_copies(e: &mut Engine, line: usize, but: usize) {
    for cpu in (0..e.cpus.len()).filter(|&cpu| cpu != but) {
        if e.memory.copy(line, cpu) != copy::INVALID {
            e.snoop_away(line, cpu);
        }
    }
    e.memory.clear_sharers(line);
    e.memory.lines[line].state = LineState::Shared;
}

/// A double compare-and-swap in memory: no cache has the lines afterwards if it has
/// written them.
fn locked_double(e: &mut Engine, cpu: usize, lines: [usize; 2]) -> Time {
    let Some(t) = e.cpus[cpu].current else { return 0 };
    let double = e.threads[t].double;
    let distinct = if lines[0] == lines[1] { &lines[..1] } else { &lines };
    let mut length = 0;
    for &line in distinct {
        length += take_back(e, line, NONE as usize) + e.p.bus_memory;
        e.counters.misses[0] += 1;
    }
    let holds = |i: usize| e.memory.values[double.words[i] as usize] == double.old[i];
    let succeeds = holds(0) && holds(1);
    if succeeds {
        for &line in distinct {
            drop_copies(e, line, NONE as usize);
            e.memory.marks[line].locked = 0;
        }
        for (word, new) in double.words.into_iter().zip(double.new) {
            e.memory.values[word as usize] = new;
            e.counters.write_throughs += 1;
            length += e.p.bus_write;
        }
        e.progress = e.now;
    }
    e.cpus[cpu].request.result = u64::from(succeeds);
    length
}

/// Evicts a line from a cache. Returns whether it has to go back to memory.
pub(super) fn evict(e: &mut Engine, line: usize, cpu: usize) -> bool {
    let owns = e.memory.copy(line, cpu) == copy::MODIFIED;
    e.invalidate(line, cpu);
    e.memory.remove_sharer(line, cpu);
    if !owns {
        return false;
    }
    e.memory.lines[line].state = LineState::Shared;
    let dirty = std::mem::take(&mut e.memory.marks[line].dirty);
    e.counters.write_backs += u64::from(dirty);
    dirty
}
