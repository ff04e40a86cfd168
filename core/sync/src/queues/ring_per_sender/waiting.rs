//! Ends that wait: a sender for room in its ring, the receiver for a value of any.

use towpath_machine::{Ordering, Prefetch};

use super::{QueueDoorbell, RingPerSender};
use crate::queues::members::QueueSide;
use crate::queues::{ReceivedShape, SentWords, TransferError, gathering};
use crate::turns::{TURN, Turns};
use crate::{Deadline, Waiting};

impl<P: Prefetch, const N: usize> RingPerSender<'_, P, N> {
    #[cold]
    pub(super) fn send_slowly<T: SentWords, W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        value: &T,
        deadline: Deadline,
    ) -> Result<(), TransferError> {
        let ring = self.ring(self.seat);
        let (mut turns, mut armed) = (None, None);
        loop {
            self.head.members.check_receivers(cpu, wait)?;
            if let Some(sent) = self.try_send(cpu, wait, value) {
                return sent;
            }
            if turns.is_none() && gathering::batch(self.geometry.capacity(), deadline).is_some() {
                turns = Some(Turns::new(cpu, deadline, TURN));
                gathering::pause(cpu, wait, ring.head(), gathering::YIELDS, deadline);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            if self.head.members.is_time_to_ask(cpu, turns, deadline)
                && let Some(end) = self.head.members.end_of(cpu, wait, QueueSide::Receiver)
            {
                return Err(end);
            }
            self.sleep(cpu, wait, turns, &ring.doorbell(), &mut armed)?;
        }
    }

    #[cold]
    pub(super) fn receive_slowly<S: ReceivedShape, W: Waiting<P>>(
        self,
        cpu: &P,
        wait: &W,
        shape: &S,
        deadline: Deadline,
    ) -> Result<S::Value, TransferError> {
        if gathering::batch(self.geometry.capacity(), deadline).is_some() {
            self.look_out(cpu, wait, deadline);
        }
        let (mut turns, mut end, mut armed) = (None, None, None);
        loop {
            if let Some(value) = self.try_receive(cpu, wait, shape) {
                return Ok(value);
            }
            // It was over before the last look.
            if let Some(end) = end {
                return Err(end);
            }
            if self.head.members.is_closed(cpu) {
                self.end_rings(cpu);
                end = Some(TransferError::Closed);
                continue;
            }
            let turns = turns.get_or_insert_with(|| Turns::new(cpu, deadline, TURN));
            end = self.head.members.end_of_senders(cpu, wait, turns, deadline);
            if end.is_some() {
                continue;
            }
            self.sleep(cpu, wait, turns, &QueueDoorbell(&self.head.shared.doorbell), &mut armed)?;
        }
    }

    /// Looks, awake, until a value comes, about as long as a context switch takes.
    ///
    /// Where that is worth it, the core goes to the senders first: ends that share a core change
    /// places there, and no line moves.
    fn look_out<W: Waiting<P>>(&self, cpu: &P, wait: &W, deadline: Deadline) {
        // Relaxed: the receiver's own.
        let turned = cpu.load(&self.head.receiver.turned, Ordering::Relaxed);
        if gathering::is_worth_it(cpu, &self.head.receiver.hint, turned) {
            for _ in 0..gathering::YIELDS {
                wait.rest(cpu);
                if self.turn_to_next(cpu).is_some() || deadline.is_over(cpu) {
                    return;
                }
            }
        }
        let mut attempt = 0;
        while self.turn_to_next(cpu).is_none() && wait.pause(cpu, attempt) {
            attempt += 1;
        }
    }

    /// Sleeps for a turn, unless the caller has yet to look since it armed the doorbell.
    ///
    /// `armed`: the doorbell when the caller armed it.
    fn sleep<W: Waiting<P>>(
        &self,
        cpu: &P,
        wait: &W,
        turns: &mut Turns,
        doorbell: &QueueDoorbell<'_, P>,
        armed: &mut Option<u64>,
    ) -> Result<(), TransferError> {
        turns.next(cpu)?;
        let heard = doorbell.arm(cpu);
        if *armed != Some(heard) {
            *armed = Some(heard);
            self.fence_heavily(cpu);
            return Ok(());
        }
        Ok(turns.wait(cpu, wait, doorbell.0, heard)?)
    }
}
