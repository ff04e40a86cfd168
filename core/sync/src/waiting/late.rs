//! Adaptive waiting for calls that seldom wait.
#![allow(unsafe_code)]

use towpath_machine::{Park, Processor};

use super::wait::release;
use super::{Abandoned, Surroundings, Wait, Waiting};

/// Adaptive wait that is made of its surroundings only where a call waits.
///
/// A [`Wait`] has four words, of which one is read from the surroundings: a call that hands it to
/// its slow part stores them first, also where it does not wait. This one is the surroundings.
#[derive(Debug)]
#[repr(transparent)]
pub struct LateWait<S>(S);

impl<S: Surroundings> LateWait<S> {
    /// The way of waiting in these surroundings.
    ///
    /// ```
    /// use towpath_machine::Native;
    /// use towpath_sync::{Alone, LateWait, Waiting};
    ///
    /// let (cpu, word) = (Native::current(), Native::word(7));
    /// assert_eq!(LateWait::of(&Alone).wait_until(&cpu, &word, |value| value == 7), Ok(7));
    /// ```
    #[inline(always)]
    pub const fn of(around: &S) -> &Self {
        // SAFETY: transparent, so the memory of the one is that of the other, as long as it lives.
        unsafe { &*core::ptr::from_ref(around).cast() }
    }

    fn made(&self) -> Wait<'_> {
        Wait::adaptive(&self.0)
    }
}

/// Methods that a wait made for the purpose has.
macro_rules! made {
    ($(fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        fn $name(&self, $($arg: $type),*) $(-> $result)? {
            Waiting::<P>::$name(&self.made(), $($arg),*)
        }
    )*};
}

impl<P: Processor + Park, S: Surroundings> Waiting<P> for LateWait<S> {
    made! {
        fn wait_until(cpu: &P, word: &P::Word, done: impl FnMut(u64) -> bool) -> Result<u64, Abandoned>;
        fn wait_until_pausing(
            cpu: &P,
            word: &P::Word,
            doorbell: Option<&P::Word>,
            pause: impl FnMut(u64) -> u64,
            done: impl FnMut(u64) -> bool
        ) -> Result<u64, Abandoned>;
        fn wait_until_woken(
            cpu: &P,
            word: &P::Word,
            doorbell: &P::Word,
            done: impl FnMut(u64) -> bool
        ) -> Result<u64, Abandoned>;
        fn back_off(cpu: &P, round: u32) -> Result<(), Abandoned>;
        fn attempts_before_queueing(cpu: &P) -> u32;
        fn wait_turn(cpu: &P, word: &P::Word, seen: u64, round: u32, turn: u64);
        fn watch(cpu: &P, word: &P::Word, seen: u64) -> bool;
        fn pause(cpu: &P, attempt: u32) -> bool;
        fn keep_away(cpu: &P, round: u32);
        fn is_oversubscribed() -> bool;
        fn rest_after(users: usize) -> Option<u64>;
        fn rest(cpu: &P);
        fn wake_some(cpu: &P, word: &P::Word, count: u32) -> u32;
        fn release_and_wake(cpu: &P, word: &P::Word, doorbell: &P::Word, value: u64);
        fn release_some(cpu: &P, word: &P::Word, value: u64, count: u32);
    }

    #[inline(always)]
    fn parks(&self) -> bool {
        true
    }

    #[inline(always)]
    fn wake_all(&self, cpu: &P, word: &P::Word) {
        cpu.wake(word, u32::MAX);
    }

    #[inline(always)]
    fn identity(&self) -> u32 {
        self.0.identity()
    }

    fn is_alive(&self, identity: u32) -> bool {
        self.0.is_alive(identity)
    }

    fn rank_of(&self, identity: u32) -> Option<u32> {
        self.0.rank_of(identity)
    }

    #[inline(always)]
    fn release(&self, cpu: &P, word: &P::Word, value: u64) {
        release(true, cpu, word, value);
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicU64, Ordering};

    use towpath_machine::Native;

    use super::*;

    /// Surroundings of a process that is not alone.
    struct Ninth;

    impl Surroundings for Ninth {
        fn identity(&self) -> u32 {
            9
        }
        fn is_alive(&self, identity: u32) -> bool {
            identity == 9
        }
        fn rank_of(&self, identity: u32) -> Option<u32> {
            identity.checked_sub(2)
        }
        fn oversubscribed(&self) -> bool {
            true
        }
    }

    #[test]
    fn late_wait_answers_as_its_surroundings_do() {
        let late = LateWait::of(&Ninth);
        assert!(Waiting::<Native>::parks(late) && Waiting::<Native>::is_oversubscribed(late));
        assert_eq!((Waiting::<Native>::identity(late), Waiting::<Native>::rank_of(late, 9)), (9, Some(7)));
        assert!(Waiting::<Native>::is_alive(late, 9) && !Waiting::<Native>::is_alive(late, 8));
    }

    #[test]
    fn late_waiter_that_sleeps_is_woken() {
        let (cpu, late, word) = (Native::with_id(0), LateWait::of(&Ninth), AtomicU64::new(1));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: the mark of a waiter that sleeps.
                while word.load(Ordering::Relaxed) & super::super::PARKED == 0 {
                    cpu.yield_now();
                }
                late.release(&cpu, &word, 2);
            });
            assert_eq!(late.wait_until(&cpu, &word, |value| value == 2), Ok(2));
        });
    }
}
