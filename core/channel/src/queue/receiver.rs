//! Receiver of a queue: its private state, and its repairs after deaths.

use towpath_machine::{Ordering, Processor};
use towpath_sync::PARKED;

use super::{Arrival, CLOSED, Queue, TICKET};
use crate::census::Census;
use crate::claim::Claim;
use crate::packet::{Header, block_owner};

/// A place whose turn has passed without a message: its sender may be stopped, or dead.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// The ticket (`lock-free`: any ticket of the place).
    pub ticket: u64,
    /// Number of messages that may still come there out of turn.
    pub owed: u32,
    /// Number of members, from the first on, that are known not to own it.
    pub cleared: usize,
}

impl Late {
    /// Returns whether no member owns it. `owns`: whether a member may. A member that
    /// once did not never will: its next ticket is another one.
    ///
    /// ```
    /// use towpath_channel::queue::Late;
    ///
    /// let mut late = Late { ticket: 9, owed: 1, cleared: 0 };
    /// assert!(!late.is_ownerless(3, |member| member == 1));
    /// assert_eq!(late.cleared, 1); // member 0 is not asked again
    /// assert!(late.is_ownerless(3, |_| false));
    /// ```
    pub fn is_ownerless(&mut self, members: usize, mut owns: impl FnMut(usize) -> bool) -> bool {
        while self.cleared < members && !owns(self.cleared) {
            self.cleared += 1;
        }
        self.cleared >= members
    }
}

/// The receiver's private state for one queue.
#[derive(Debug, Default)]
pub struct Receiver {
    /// The next ticket to deliver.
    pub head: u64,
    /// The head that was last published (`towpath`).
    pub published: u64,
    /// Places passed over, whose message may still come.
    pub late: Vec<Late>,
    /// Per place, the first ticket that may use it again; empty if all may (`towpath`).
    pub valid_from: Vec<u64>,
    /// The head that has been waiting for a claimed packet, and since when.
    pub stalled: Option<(u64, u64)>,
}

/// Maximum number of tickets out beyond the packets that there are, if the algorithm
/// overdraws.
const OVERDRAWN: i64 = 4096;

impl Receiver {
    /// The next message, if one has arrived. Call [`Receiver::done`] after handling it.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(receiver.next(&Towpath, &q, &cpu).is_none());
    /// let ticket = send(&q, &mut sender, &intent).expect("it is empty");
    /// let arrival = receiver.next(&Towpath, &q, &cpu).expect("it has come");
    /// assert_eq!((arrival.ticket, arrival.header.handler()), (ticket, 1));
    /// # }
    /// ```
    #[inline(always)]
    pub fn next<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P) -> Option<Arrival> {
        if !self.late.is_empty() || !self.valid_from.is_empty() {
            return self.next_carefully(c, q, cpu);
        }
        // (Q1) Acquire: pairs with the Release (Q2) of the publication in the claim algorithms.
        let header = Header(cpu.load(&q.slot(self.head).header, Ordering::Acquire));
        c.is_ready(q, header, self.head).then_some(Arrival { ticket: self.head, header, late: false })
    }

    #[cold]
    fn next_carefully<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
    ) -> Option<Arrival> {
        self.next_from(c, q, cpu, 0, |_| false)
    }

    /// Returns the next message at a ticket or after it, for a receiver that takes
    /// messages before it has handled those that it took before.
    ///
    /// `has_taken`: whether it has taken the message of a ticket whose turn has passed. Messages
    /// are [`done`](Receiver::done) in the order in which they were taken.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let tickets = [(); 2].map(|()| send(&q, &mut sender, &intent).expect("there is room"));
    /// let second = receiver.next_from(&Towpath, &q, &cpu, tickets[0] + 1, |_| true);
    /// assert_eq!(second.map(|it| it.ticket), Some(tickets[1])); // the first is not handled yet
    /// # }
    /// ```
    pub fn next_from<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        from: u64,
        has_taken: impl Fn(u64) -> bool,
    ) -> Option<Arrival> {
        self.skip_void(q);
        let end = self.head + q.len();
        let is_void =
            |ticket: &u64| self.valid_from.get(q.index(*ticket)).is_some_and(|valid| ticket < valid);
        let ticket = (from.max(self.head)..end).find(|ticket| !is_void(ticket));
        let next = ticket.and_then(|ticket| {
            // (Q1) Acquire: pairs with the Release (Q2).
            let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Acquire));
            c.is_ready(q, header, ticket).then_some(Arrival { ticket, header, late: false })
        });
        // Only now the late ones: if the next message was sent after a late one by the same
        // endpoint, then the late one is visible here and goes first.
        let next_place = next.map(|next| q.index(next.ticket));
        self.find_late(c, q, cpu, next_place, has_taken).or(next)
    }

    /// Returns a message whose turn has passed, if one is there. `but`: a place whose
    /// message is in its turn now. `has_taken`: which tickets are passed over.
    fn find_late<P: Processor, C: Claim<P>>(
        &self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        but: Option<usize>,
        has_taken: impl Fn(u64) -> bool,
    ) -> Option<Arrival> {
        for late in &self.late {
            if but == Some(q.index(late.ticket)) || has_taken(late.ticket) {
                continue;
            }
            // (Q1) Acquire: pairs with the Release (Q2).
            let header = Header(cpu.load(&q.slot(late.ticket).header, Ordering::Acquire));
            if c.is_ready_late(q, header, late.ticket, self.head) {
                return Some(Arrival { ticket: late.ticket, header, late: true });
            }
        }
        None
    }

    /// Returns whether a message is there whose turn has passed.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// send(&q, &mut sender, &intent).expect("it is empty");
    /// assert!(!receiver.has_late(&Towpath, &q, &cpu)); // it is in its turn
    /// # }
    /// ```
    #[cold]
    pub fn has_late<P: Processor, C: Claim<P>>(&self, c: &C, q: &Queue<'_, P>, cpu: &P) -> bool {
        self.find_late(c, q, cpu, None, |_| false).is_some()
    }

    /// Passes over tickets that no sender will use.
    fn skip_void<P: Processor>(&mut self, q: &Queue<'_, P>) {
        while self.valid_from.get(q.index(self.head)).is_some_and(|&valid| self.head < valid) {
            self.head += 1;
        }
    }

    /// Ends the delivery: the packet may be reused, when the algorithm comes round to
    /// saying so.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// for _ in 0..3 * q.len() {
    ///     send(&q, &mut sender, &intent).expect("there is room");
    ///     let arrival = receiver.next(&Towpath, &q, &cpu).expect("it has come");
    ///     receiver.done(&Towpath, &q, &cpu, arrival); // its packet is used again
    ///     Towpath.flush(&q, &mut receiver, &cpu, &Spinning);
    /// }
    /// # }
    /// ```
    #[inline(always)]
    pub fn done<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P, arrival: Arrival) {
        if arrival.late {
            return self.done_late(c, q, cpu, arrival);
        }
        self.head = arrival.ticket + 1;
        q.show_consumed(cpu, self.head);
        c.release(q, self, cpu, arrival.ticket);
    }

    #[cold]
    fn done_late<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P, arrival: Arrival) {
        c.release_late(q, self, cpu, arrival.ticket);
    }

    /// Returns whether tickets were claimed that have not been delivered.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
    /// assert!(receiver.next(&Towpath, &q, &cpu).is_none() && receiver.behind(&q, &cpu));
    /// # }
    /// ```
    #[inline]
    pub fn behind<P: Processor>(&self, q: &Queue<'_, P>, cpu: &P) -> bool {
        // (Q4) Acquire: pairs with the Release (T1), (F1), (C5) of the claims on the tail, so that
        // the claimer's intent is visible too.
        (1..=q.len() as i64 + OVERDRAWN).contains(&self.ahead(cpu.load(&q.control.tail, Ordering::Acquire)))
    }

    /// Number of tickets that a tail is ahead of the head.
    #[inline]
    fn ahead(&self, tail: u64) -> i64 {
        (tail & TICKET).wrapping_sub(self.head) as i64
    }

    /// Takes care of events that polls don't see: heads that don't come, places of the
    /// dead. Call it now and then while nothing arrives, and after deaths. Returns whether
    /// something was repaired or passed over.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// Towpath.claim(&q, &mut sender, &cpu, &Spinning, &intent).expect("it is empty");
    /// let census = One { intent: &intent, lives: false }; // and dies
    /// receiver.look_after(&Towpath, &q, &cpu, &census); // waits for its packet a while
    /// cpu.work(2 * STALL);
    /// assert!(receiver.look_after(&Towpath, &q, &cpu, &census)); // and passes over it
    /// let mut successor = Sender::new(0, 2, 0);
    /// let ticket = send(&q, &mut successor, &intent).expect("there is room");
    /// assert_eq!(receiver.next(&Towpath, &q, &cpu).map(|it| it.ticket), Some(ticket));
    /// # }
    /// ```
    pub fn look_after<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        census: &dyn Census,
    ) -> bool {
        let mut changed = false;
        if self.next(c, q, cpu).is_some() || !self.behind(q, cpu) {
            self.stalled = None;
        } else {
            let now = cpu.now();
            let since = match self.stalled {
                Some((head, since)) if head == self.head => since,
                _ => now,
            };
            self.stalled = Some((self.head, since));
            if c.resolve_head(q, self, cpu, census, now.saturating_sub(since) >= census.patience()) {
                self.stalled = None;
                changed = true;
            }
        }
        changed | c.resolve_late(q, self, cpu, census)
    }

    /// Repairs words of the queue over which a faulty process may have written, as far as
    /// the receiver knows better; closes the queue if it doesn't. Call it now and
    /// then while nothing arrives. Returns whether it changed something.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert!(!receiver.heal(&Towpath, &q, &cpu));
    /// cpu.store(&q.control.tail, 1 << 40, Ordering::Relaxed); // a faulty process writes there
    /// assert!(receiver.heal(&Towpath, &q, &cpu));
    /// assert_eq!(send(&q, &mut sender, &intent), Err(ClaimError::Closed));
    /// # }
    /// ```
    pub fn heal<P: Processor, C: Claim<P>>(&mut self, c: &C, q: &Queue<'_, P>, cpu: &P) -> bool {
        // Relaxed: only whether the number makes sense.
        let tail = cpu.load(&q.control.tail, Ordering::Relaxed);
        // The head passes void tickets before they are drawn.
        let len = q.len() as i64;
        let most = if c.overdraws() { len + OVERDRAWN } else { len };
        if !(-len..=most).contains(&self.ahead(tail)) && tail & CLOSED == 0 {
            // The tickets that are out are not known. Relaxed: a sender that sees the bit only
            // stops.
            cpu.fetch_or(&q.control.tail, CLOSED, Ordering::Relaxed);
            return true;
        }
        // Relaxed: our own word.
        if cpu.load(&q.control.consumed, Ordering::Relaxed) & !PARKED != self.head {
            q.show_consumed(cpu, self.head);
        }
        c.heal(q, self, cpu)
    }

    /// Frees places that the dead had claimed and not published. Call it after a death,
    /// when every published message of the dead has been delivered or is still in the queue.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// let block = Towpath.claim_block(&q, &mut sender, &cpu, &Spinning, &intent);
    /// assert_eq!(receiver.in_use(&Towpath, &q, &cpu), (0, 1));
    /// let census = One { intent: &intent, lives: false }; // and dies
    /// receiver.sweep(&Towpath, &q, &cpu, &census);
    /// assert!(block.is_ok() && receiver.in_use(&Towpath, &q, &cpu) == (0, 0));
    /// # }
    /// ```
    pub fn sweep<P: Processor, C: Claim<P>>(
        &mut self,
        c: &C,
        q: &Queue<'_, P>,
        cpu: &P,
        census: &dyn Census,
    ) {
        let orphan = |owner: u64| {
            let (endpoint, generation) = (owner as u16, (owner >> 16) as u16);
            owner != 0
                && (owner != block_owner(endpoint, generation)
                    || !census.alive(endpoint, generation)
                    || !census.holds_block(endpoint, q.id))
        };
        // First the suspects, then the packets: a block whose owner is dead by now, or holds none
        // by now, can't be published any more, so if no packet names it, none will. (B3) Acquire:
        // pairs with the Release (B1) of the claim, whose owner word we read, or its fence (I3).
        let suspects: Vec<usize> = (0..q.blocks.len())
            .filter(|&b| orphan(cpu.load(&q.blocks[b].owner, Ordering::Acquire)))
            .collect();
        if !suspects.is_empty() {
            // Relaxed, here and below: what the suspects' owners published is known, with their
            // deaths or by their intents (I5).
            let tail = cpu.load(&q.control.tail, Ordering::Relaxed) & TICKET;
            let mut named = vec![false; q.blocks.len()];
            let late = self.late.iter().map(|late| late.ticket);
            for ticket in (self.head..tail.min(self.head + q.len())).chain(late) {
                let header = Header(cpu.load(&q.slot(ticket).header, Ordering::Relaxed));
                if c.is_ready(q, header, ticket)
                    && header.has_block()
                    && let Some(named) = named.get_mut(header.block())
                {
                    *named = true;
                }
            }
            for block in suspects.into_iter().filter(|&b| !named[b]) {
                q.free_block(cpu, block);
            }
        }
        c.sweep_packets(q, self, cpu, census);
    }

    /// Numbers of packets and of blocks in use, for audits of an idle queue: both 0 if
    /// nothing is lost.
    ///
    /// ```
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/doc/queue.rs"));
    /// # fn main() {
    /// # let (memory, cpu, intent) = (Memory::new(), Native::current(), Native::word(0));
    /// # let (q, mut sender, mut receiver) =
    /// #     (memory.queue(), Sender::new(0, 1, 0), Receiver::default());
    /// assert_eq!(receiver.in_use(&Towpath, &q, &cpu), (0, 0));
    /// Towpath.claim_block(&q, &mut sender, &cpu, &Spinning, &intent).expect("there are two");
    /// assert_eq!(receiver.in_use(&Towpath, &q, &cpu), (0, 1));
    /// # }
    /// ```
    pub fn in_use<P: Processor, C: Claim<P>>(&self, c: &C, q: &Queue<'_, P>, cpu: &P) -> (u64, u64) {
        // Relaxed: an audit of a queue at rest.
        let blocks = q.blocks.iter().filter(|b| cpu.load(&b.owner, Ordering::Relaxed) != 0).count() as u64;
        (c.packets_in_use(q, self, cpu), blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::Late;
    use crate::queue::intent::*;

    #[test]
    fn a_place_without_owners_is_free_for_any_number_of_members() {
        for members in [1, 127, 128, 129, 1024] {
            for owner in [0, members / 2, members - 1] {
                let mut late = Late { ticket: 5, owed: 1, cleared: 0 };
                for _ in 0..3 {
                    assert!(!late.is_ownerless(members, |m| m == owner), "{owner} of {members}");
                }
                assert!(late.is_ownerless(members, |_| false));
            }
        }
    }

    #[test]
    fn intents_name_queue_phase_and_ticket() {
        let w = encode(7, CLAIMED, 1 << 40);
        assert!(may_own(w, 7, 1 << 40) && !may_own(w, 7, 3) && !may_own(w, 6, 1 << 40));
        assert!(may_own(encode(7, CLAIMING, 0), 7, 99));
        assert_eq!(phase(encode(0, LOCKING, 0), 0), Some(LOCKING));
        assert_eq!(phase(0, 0), None);
    }
}
