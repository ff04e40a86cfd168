//! Looking twice: reads and peeks that find nothing new, for the sake of MPIs that have
//! other ways to receive and look there in between.

/// Gate of reads: has a program look at its own affairs before it finds frames that have
/// come.
///
/// MPICH sends messages to itself through memory of its own, and looks there after it has looked at
/// its completion queue and counters here. A rank that was put off its core right after it sent
/// something (by the receiver that it has woken, say) would find the answer, and what others did
/// then, before its own earlier message to itself: `mpi4py.util.sync` has its ranks wait for ever
/// if that happens. So the first read of a completion queue after an untagged send or a one-sided
/// operation, which is what one-sided MPI is made of, finds nothing new, and the reads of counters
/// before that neither.
#[derive(Debug, Default)]
pub struct ReadGate {
    calls: u64,
    was_first: bool,
    counters: u32,
}

/// Number of reads of counters that may be empty before a program is taken for one that
/// reads nothing else.
const COUNTERS: u32 = 3;

impl ReadGate {
    /// Returns whether a read of a completion queue should find nothing new. `calls`:
    /// number of such operations so far.
    pub fn hides(&mut self, calls: u64) -> bool {
        self.counters = 0;
        let before = core::mem::replace(&mut self.calls, calls);
        // Not twice running: a program that starts something between any two reads makes
        // progress too.
        self.was_first = calls != before && !self.was_first;
        self.was_first
    }

    /// Returns whether a read of a counter should find nothing new.
    pub fn hides_from_counter(&mut self, calls: u64) -> bool {
        if calls == self.calls || self.counters >= COUNTERS {
            return false;
        }
        self.counters += 1;
        true
    }
}

/// Gate of peeks: a peek for a message from any source finds another process's at the
/// second look.
///
/// MPICH probes its own memory, where messages to itself are, and then here; what it has sent to
/// itself meanwhile it sees only when it has made progress. If the probe finds a message of another
/// process here that came earlier, the receive from any source that follows gets the message to
/// itself, which is now visible, with the other one's length: `MPI_Dist_graph_create` does so.
/// After a peek that found nothing MPICH makes progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct PeekGate {
    calls: u64,
    was_empty: bool,
}

impl PeekGate {
    /// Returns whether a peek for a message from any source should find nothing. That is
    /// so if none before it was empty, at least not since the program started something. `calls`:
    /// operations so far.
    pub fn hides(&mut self, calls: u64) -> bool {
        let before = self.was_empty && self.calls == calls;
        *self = PeekGate { calls, was_empty: true };
        !before
    }

    /// A peek has found a message.
    pub fn found(&mut self) {
        self.was_empty = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peek_with_a_result_comes_after_an_empty_one() {
        let mut look = PeekGate::default();
        assert!(look.hides(0) && !look.hides(0));
        look.found();
        assert!(look.hides(0) && look.hides(1) && !look.hides(1) && !look.hides(1));
    }

    #[test]
    fn the_first_look_finds_nothing_new_but_the_second_does() {
        let mut gate = ReadGate::default();
        assert!(!gate.hides(0));
        assert!(gate.hides_from_counter(1) && gate.hides(1) && !gate.hides_from_counter(1) && !gate.hides(1));
        // Something started between any two reads.
        let found = (2..100).filter(|&calls| !gate.hides(calls)).count();
        assert!(found > 40);
        // Nothing but counters read.
        let found = (100..200).filter(|&calls| !gate.hides_from_counter(calls)).count();
        assert!(found > 90);
    }
}
