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
///
/// ```
/// use towpath_channel::stream::has_news;
/// use towpath_machine::Native;
///
/// let cpu = Native::current();
/// assert!(!has_news(&cpu, &Native::word(0)) && has_news(&cpu, &Native::word(0b100)));
/// ```
#[inline(always)]
pub fn has_news<P: Processor>(cpu: &P, news: &P::Word) -> bool {
    // Relaxed: looked at again by (M12).
    cpu.load(news, Ordering::Relaxed) & !(REFUSED | NEWS_SLEEP) != 0
}

/// Takes the numbers of the streams that were opened: one in each bit.
///
/// ```
/// use towpath_channel::stream::{has_news, take_news};
/// use towpath_machine::Native;
///
/// let (cpu, news) = (Native::current(), Native::word(0b101)); // streams 0 and 2 were opened
/// assert_eq!(take_news(&cpu, &news), 0b101);
/// assert!(!has_news(&cpu, &news));
/// ```
pub fn take_news<P: Processor>(cpu: &P, news: &P::Word) -> u64 {
    // (M12) Acquire: the owner words are there; pairs with the Release (M11) in
    // `StreamSender::open`.
    let before = cpu.fetch_and(news, REFUSED, Ordering::Acquire);
    if before & REFUSED == 0 { before & !NEWS_SLEEP } else { 0 }
}

/// Refuses all streams from now on. Returns the numbers of those that were opened before.
///
/// ```
/// use towpath_channel::stream::{refuse, take_news};
/// use towpath_machine::Native;
///
/// let (cpu, news) = (Native::current(), Native::word(0b1));
/// assert_eq!(refuse(&cpu, &news), 0b1); // was opened before
/// assert_eq!(take_news(&cpu, &news), 0); // none later
/// ```
pub fn refuse<P: Processor>(cpu: &P, news: &P::Word) -> u64 {
    // (M12) Acquire: the owner words are there; pairs with the Release (M11) in
    // `StreamSender::open`.
    let before = cpu.swap(news, REFUSED, Ordering::Acquire);
    if before & REFUSED == 0 { before & !NEWS_SLEEP } else { 0 }
}

/// Says in a queue's word of streams that its receiver will sleep. `false`: a stream was
/// opened.
///
/// ```
/// use towpath_channel::stream::arm_news;
/// use towpath_machine::Native;
///
/// let cpu = Native::current();
/// assert!(arm_news(&cpu, &Native::word(0))); // it may sleep
/// assert!(!arm_news(&cpu, &Native::word(0b1))); // a stream was opened: it looks there first
/// ```
pub fn arm_news<P: Processor>(cpu: &P, news: &P::Word) -> bool {
    // Relaxed: it orders nothing; it and the sender's exchange (M11) are on one word, so one of the
    // two sees the other.
    match cpu.compare_exchange(news, 0, NEWS_SLEEP, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => true,
        Err(now) => now & REFUSED != 0 || now == NEWS_SLEEP,
    }
}

/// Takes that back.
///
/// ```
/// use towpath_channel::stream::{arm_news, disarm_news};
/// use towpath_machine::Native;
///
/// let (cpu, news) = (Native::current(), Native::word(0));
/// arm_news(&cpu, &news);
/// disarm_news(&cpu, &news);
/// assert_eq!(news.into_inner(), 0); // no sender wakes the receiver
/// ```
pub fn disarm_news<P: Processor>(cpu: &P, news: &P::Word) {
    // Relaxed: at worst a sender wakes in vain.
    let _ = cpu.compare_exchange(news, NEWS_SLEEP, 0, Ordering::Relaxed, Ordering::Relaxed);
}
