//! Word of a queue in which senders say that they have opened a stream ([`super`]).
//!
//! A bit for each stream, set by its sender, and two of the receiver: it sleeps, or it wants no
//! more streams.

use towpath_machine::{Ordering, Processor};

/// Part of the word: the receiver sleeps.
pub(super) const NEWS_SLEEP: u64 = 1 << 63;
/// Part of the word: the receiver wants no more streams.
pub(super) const REFUSED: u64 = 1 << 62;

/// Returns whether senders have opened streams since the last look.
#[inline(always)]
pub fn has_news<P: Processor>(cpu: &P, news: &P::Word) -> bool {
    // Relaxed: looked at again by (M12).
    cpu.load(news, Ordering::Relaxed) & !(REFUSED | NEWS_SLEEP) != 0
}

/// Takes the numbers of the streams that were opened: one in each bit.
pub fn take_news<P: Processor>(cpu: &P, news: &P::Word) -> u64 {
    // (M12) Acquire: the owner words are there; pairs with the Release (M11) in
    // `StreamSender::open`.
    let before = cpu.fetch_and(news, REFUSED, Ordering::Acquire);
    if before & REFUSED == 0 { before & !NEWS_SLEEP } else { 0 }
}

/// Refuses all streams from now on. Returns the numbers of those that were opened before.
pub fn refuse<P: Processor>(cpu: &P, news: &P::Word) -> u64 {
    // (M12) Acquire: the owner words are there; pairs with the Release (M11) in
    // `StreamSender::open`.
    let before = cpu.swap(news, REFUSED, Ordering::Acquire);
    if before & REFUSED == 0 { before & !NEWS_SLEEP } else { 0 }
}

/// Says in a queue's word of streams that its receiver will sleep. `false`: a stream was
/// opened.
pub fn arm_news<P: Processor>(cpu: &P, news: &P::Word) -> bool {
    // Relaxed: it orders nothing; it and the sender's exchange (M11) are on one word, so one of the
    // two sees the other.
    match cpu.compare_exchange(news, 0, NEWS_SLEEP, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(now) => now & REFUSED != 0 || now == NEWS_SLEEP,
    }
}

/// Takes that back.
pub fn disarm_news<P: Processor>(cpu: &P, news: &P::Word) {
    // Relaxed: at worst a sender wakes in vain.
    let _ = cpu.compare_exchange(news, NEWS_SLEEP, 0, Ordering::Relaxed, Ordering::Relaxed);
}
