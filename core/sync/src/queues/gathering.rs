//! Decision of an end of a queue, before it waits, to let values or room gather first.
//!
//! An end that follows the other one closely takes the line on which that one works, for each
//! value: both then go at the pace at which a line travels. If it pauses first, about as long as a
//! context switch takes, it finds many values, or much room, on lines that the other end has left.
//! (Giacomoni, Moseley & Vachharajani 2008 call that temporal slipping.)
//!
//! Where senders may be many, a pause leaves the core to another end first, [`YIELDS`] times: ends
//! that share a core change places there, and no line moves. If there are more ends than cores, one
//! sender at a time sends, and the others rest, asleep: one that finds no room while another one
//! waits for it, and one that meets another one at an entry soon after two senders met. A receiver
//! that waits for values wakes one of them; otherwise the rest lasts a turn.
//!
//! A sender that finds no room pauses always: it has nothing to lose while the receiver is behind.
//! A receiver pauses as long as it is worth it: after [`EVERY`] waits it tries, and then goes on as
//! long as [`WORTH`] values come between one pause and the next. So a receiver of single values,
//! which another thread waits to see answered, hardly ever pauses. Small queues do without.

use towpath_machine::{Ordering, Processor};

use crate::{Deadline, Waiting};

/// Number of values between two pauses of a receiver that make them worth it.
const WORTH: u32 = 32;
/// Number of waits after which a receiver tries whether a pause is worth it.
const EVERY: u64 = 255;
/// Number of slots below which no end pauses.
const LEAST_SLOTS: usize = 64;
/// Maximum number of yields in a pause where senders may be many.
pub(super) const YIELDS: u32 = 8;
/// Maximum number of values, or places, that end a pause.
const MOST: usize = 128;

/// Number of values, or places, that gather in a queue of so many slots before a wait by
/// that deadline; `None`: the end waits at once.
#[inline]
pub(super) fn batch(slots: usize, deadline: Deadline) -> Option<usize> {
    let may_pause = slots >= LEAST_SLOTS && deadline != Deadline::PAST && deadline != Deadline::ONE_TURN;
    may_pause.then(|| (slots / 4).min(MOST))
}

/// Decides whether a receiver pauses that has received `number` values, and finds none.
///
/// `hint`: a word of the receiver's own: the number at its last pause, or above it the number of
/// waits until it tries a pause.
pub(super) fn is_worth_it<P: Processor>(cpu: &P, hint: &P::Word, number: u64) -> bool {
    // Relaxed, both: a hint of the receivers.
    let seen = cpu.load(hint, Ordering::Relaxed);
    let gathered = (number as u32).wrapping_sub(seen as u32);
    let (pauses, next) = match seen >> 32 {
        0 if gathered < WORTH => (false, EVERY << 32),
        0 | 1 => (true, u64::from(number as u32)),
        waits => (false, (waits - 1) << 32),
    };
    cpu.store(hint, next, Ordering::Relaxed);
    pauses
}

/// Pauses until a word differs from its present value, but not longer than so many yields
/// and a context switch take. After the deadline it does not begin another yield.
pub(super) fn pause<P: Processor, W: Waiting<P>>(
    cpu: &P,
    wait: &W,
    word: &P::Word,
    yields: u32,
    deadline: Deadline,
) {
    // Relaxed, both: the caller looks again.
    let seen = cpu.load(word, Ordering::Relaxed) & !crate::PARKED;
    for _ in 0..yields {
        wait.rest(cpu);
        if cpu.load(word, Ordering::Relaxed) & !crate::PARKED != seen || deadline.is_over(cpu) {
            return;
        }
    }
    wait.watch(cpu, word, seen);
}

/// Decides whether a sender that finds no room waits for it; otherwise it rests.
///
/// `first`: a word of the senders: one more than the next ticket when the first of them began to
/// wait, or 0. `place`: what the caller wrote there, or 0. A word of long ago, by the next ticket,
/// counts as 0: its sender was killed, or is stopped.
pub(super) fn is_first<P: Processor>(
    cpu: &P,
    first: &P::Word,
    place: &mut u64,
    next: u64,
    slots: usize,
) -> bool {
    // Relaxed, both: a hint.
    let seen = cpu.load(first, Ordering::Relaxed);
    if seen != 0 && seen == *place {
        return true;
    }
    let mine = next.wrapping_add(1);
    if seen != 0 && mine.wrapping_sub(seen) < 2 * slots as u64 {
        return false;
    }
    let is_first = cpu.compare_exchange(first, seen, mine, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first {
        *place = mine;
    }
    is_first
}

/// Notes that the sender that wrote `place` in [`is_first`] waits no more.
pub(super) fn is_first_no_more<P: Processor>(cpu: &P, first: &P::Word, place: u64) {
    // Relaxed, both: a hint.
    if place != 0 && cpu.load(first, Ordering::Relaxed) == place {
        cpu.store(first, 0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use super::*;
    use crate::Abandoned;
    use towpath_machine::Native;

    type Word = <Native as Processor>::Word;

    const CPU: Native = Native::with_id(0);

    #[test]
    fn small_queues_and_attempts_do_not_pause() {
        assert_eq!(batch(63, Deadline::NEVER), None);
        assert_eq!(batch(64, Deadline::NEVER), Some(16));
        assert_eq!(batch(1 << 16, Deadline::NEVER), Some(128));
        assert_eq!(batch(64, Deadline::PAST), None);
        assert_eq!(batch(64, Deadline::ONE_TURN), None);
    }

    #[test]
    fn receiver_of_single_values_pauses_hardly_ever() {
        let hint = Native::word(0);
        let pauses = (0..10 * EVERY).filter(|&number| is_worth_it(&CPU, &hint, number)).count();
        assert_eq!(pauses, 9);
    }

    #[test]
    fn receiver_pauses_while_values_gather() {
        let hint = Native::word(0);
        assert!(!is_worth_it(&CPU, &hint, 0));
        let mut number = 0;
        let tried = (1..).find(|_| is_worth_it(&CPU, &hint, number));
        assert_eq!(tried, Some(EVERY));
        for _ in 0..100 {
            number += u64::from(WORTH);
            assert!(is_worth_it(&CPU, &hint, number));
        }
        assert!(!is_worth_it(&CPU, &hint, number + 1), "one value only came meanwhile");
    }

    #[test]
    fn one_sender_waits_and_others_rest_until_it_is_long_gone() {
        let first = Native::word(0);
        let is_first = |place: &mut u64, next| is_first(&CPU, &first, place, next, 64);
        let [mut one, mut other] = [0, 0];
        assert!(is_first(&mut one, 100));
        assert!(!is_first(&mut other, 100), "another one waits");
        assert!(is_first(&mut one, 300) && !is_first(&mut other, 227));
        assert!(is_first(&mut other, 228), "it has not sent for two rounds");
        assert!(!is_first(&mut one, 228));
        is_first_no_more(&CPU, &first, one);
        assert!(!is_first(&mut one, 230), "the place is another one's");
        is_first_no_more(&CPU, &first, other);
        assert!(is_first(&mut one, 230));
    }

    /// Way of waiting that counts its rests, each of which takes a millisecond.
    struct Resting(Cell<u32>);

    impl Waiting<Native> for Resting {
        fn parks(&self) -> bool {
            false
        }
        fn wait_until(&self, _: &Native, _: &Word, _: impl FnMut(u64) -> bool) -> Result<u64, Abandoned> {
            Err(Abandoned)
        }
        fn back_off(&self, _: &Native, _: u32) -> Result<(), Abandoned> {
            Err(Abandoned)
        }
        fn attempts_before_queueing(&self, _: &Native) -> u32 {
            0
        }
        fn wait_turn(&self, _: &Native, _: &Word, _: u64, _: u32, _: u64) {}
        fn rest(&self, _: &Native) {
            self.0.set(self.0.get() + 1);
            std::thread::sleep(Duration::from_millis(1));
        }
        fn release(&self, _: &Native, _: &Word, _: u64) {}
        fn release_some(&self, _: &Native, _: &Word, _: u64, _: u32) {}
    }

    #[test]
    fn pause_begins_no_yield_after_the_deadline() {
        let rests = |deadline| {
            let (wait, word) = (Resting(Cell::new(0)), Native::word(0));
            pause(&CPU, &wait, &word, YIELDS, deadline);
            wait.0.get()
        };
        assert_eq!(rests(Deadline::NEVER), YIELDS);
        assert_eq!(rests(Deadline::after(&CPU, 1_000)), 1);
        assert_eq!(rests(Deadline::after(&CPU, u64::MAX / 2)), YIELDS);
    }

    #[test]
    fn number_wraps_around_in_the_hint() {
        let hint = Native::word(0);
        let before = u64::from(u32::MAX) - 7;
        assert!(is_worth_it(&CPU, &hint, before));
        assert!(is_worth_it(&CPU, &hint, before + u64::from(WORTH)));
        assert!(!is_worth_it(&CPU, &hint, before + u64::from(WORTH) + 1));
    }
}
