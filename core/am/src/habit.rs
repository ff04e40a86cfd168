//! The packet that an endpoint is likely to send when a message of a peer's arrives: the
//! one after the last that it sent there.
//!
//! A receiver that polls has a copy of the line on which the next message to it will come, and
//! taking that copy away is most of what a message costs. Who is in the habit of answering begins
//! with that as soon as the question is there, and handles it meanwhile.
//!
//! It is a hint and never more: the ticket is claimed as ever, and may turn out to be another's.
//! Each hint in vain costs a peer that polls a miss; so an endpoint stops after two messages that
//! it did not answer, and where others send to the peer too it gives none: the next packet is
//! likely to be theirs.

/// How many messages may stay unanswered before the endpoint stops expecting to answer.
const CREDIT: u64 = 2;

/// The next message from the peer is the first since we sent to it: only then is it worth
/// while to note what we send. Who only sends pays a glance for it.
const HEARD: u64 = 1 << 3;

/// One word, made when there is time and read when there is none. Bits 0 to 1: how many
/// more messages may arrive before the endpoint stops expecting to answer; bit 2: whether it
/// answers by a reply; bit 3: [`HEARD`]; bits 4 to 63: the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Habit(u64);

impl Habit {
    /// Nothing known.
    pub const NONE: Habit = Habit(0);

    /// What to note after sending, if anything.
    #[inline(always)]
    pub fn after(self, reply: bool, sender: impl FnOnce() -> (bool, u64)) -> Option<Habit> {
        (self.0 & HEARD != 0).then(|| match sender() {
            (true, next) => Habit(next << 4 | u64::from(reply) << 2 | CREDIT),
            (false, _) => Habit::NONE,
        })
    }

    /// When a message arrives: whether the answer is likely to be a reply, and its
    /// ticket, if an answer is likely; and what to note then, if anything.
    #[inline(always)]
    pub fn heard(self) -> (Option<(bool, u64)>, Option<Habit>) {
        if self.0 & 3 != 0 {
            (Some((self.0 & 4 != 0, self.0 >> 4)), Some(Habit((self.0 | HEARD) - 1)))
        } else {
            (None, (self.0 & HEARD == 0).then_some(Habit(HEARD)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an endpoint does with a peer: hears something, or sends, alone or not.
    fn hear(habit: &mut Habit) -> Option<(bool, u64)> {
        let (answer, note) = habit.heard();
        *habit = note.unwrap_or(*habit);
        answer
    }

    fn send(habit: &mut Habit, reply: bool, alone: bool, next: u64) {
        *habit = habit.after(reply, || (alone, next)).unwrap_or(*habit);
    }

    #[test]
    fn who_answers_is_expected_to_do_so_twice_more_and_no_oftener() {
        for (reply, next) in [(false, 0), (true, 7), (true, (1 << 52) - 1)] {
            let mut habit = Habit::NONE;
            assert_eq!(hear(&mut habit), None);
            for _ in 0..3 {
                send(&mut habit, reply, true, next);
                assert_eq!(hear(&mut habit), Some((reply, next)));
            }
            assert_eq!(hear(&mut habit), Some((reply, next)));
            assert_eq!(hear(&mut habit), None);
            assert_eq!(hear(&mut habit), None);
            send(&mut habit, !reply, true, next);
            assert_eq!(hear(&mut habit), Some((!reply, next)));
        }
    }

    #[test]
    fn who_only_sends_only_listens_or_shares_the_queue_is_not() {
        let mut habit = Habit::NONE;
        for next in 0..5 {
            assert!(habit.after(false, || unreachable!("nothing was heard")).is_none());
            send(&mut habit, false, true, next);
        }
        assert_eq!(hear(&mut habit), None);
        assert_eq!(hear(&mut habit), None);
        send(&mut habit, true, false, 9);
        assert_eq!(hear(&mut habit), None);
    }
}
