//! Single-word protocols: a header's state, handles, a signal's thread, a host's events.
//!
//! One text for all machines: natively the words are a segment's or a process's; the laboratory
//! explores them.
//!
//! **Source.** Our own.
//!
//! **Fields.** A header's state: its maker, once. `me` and `handles` ([`Handles`]): threads of one
//! process. A signal's thread: from 0 to `TAKEN` by compare-and-swap, then its owner. Events and
//! doorbell of a gateway: added to by any process of the host.
//!
//! **Progress.** Wait-free, but [`Handles::close`], which is lock-free.
//!
//! **Crashes.** A maker that dies before (H1) leaves a header that is not ready. A process that
//! dies between the two additions of [`tell_gateway`] leaves the gateway asleep; the process that
//! notes the death tells the gateway of it.
//!
//! **Memory.** These words.

use towpath_machine::{Ordering, Park, Processor};

/// Makes a header valid that no other process reads before.
pub fn publish_header<P: Processor>(cpu: &P, state: &P::Word, ready: u64) {
    // (H1) Release: all other words of the header; pairs with the Acquire (H2).
    cpu.store(state, ready, Ordering::Release);
}

/// State of a header. If it is ready, the header's words may be read Relaxed.
pub fn header_state<P: Processor>(cpu: &P, state: &P::Word) -> u64 {
    // (H2) Acquire: pairs with the Release (H1).
    cpu.load(state, Ordering::Acquire)
}

/// Words by which open handles prevent their process from leaving.
///
/// Those on objects that name their users.
#[derive(Clone, Copy, Debug)]
pub struct Handles<'a, P: Processor> {
    /// The participant that the process is, or 0.
    pub me: &'a P::Word,
    /// Number of open handles.
    pub handles: &'a P::Word,
}

impl<P: Processor> Handles<'_, P> {
    /// Opens a handle. The participant that is loaded afterwards has not left, or is 0.
    pub fn open(&self, cpu: &P) {
        // Relaxed: the fence orders it.
        cpu.fetch_add(self.handles, 1, Ordering::Relaxed);
        // (U1) SeqCst: between the count and later loads of `me`, which either see that the process
        // has left, or the leaving sees this handle; pairs with the fence (U2) in `leave`.
        cpu.fence(Ordering::SeqCst);
    }

    /// Closes a handle. A fork clears the count: the child's copies are not counted.
    pub fn close(&self, cpu: &P) {
        // Relaxed: the exchange compares.
        let mut open = cpu.load(self.handles, Ordering::Relaxed);
        while let Some(fewer) = open.checked_sub(1) {
            // (U3) Release: what was done by this handle comes before the leaving that it no longer
            // prevents; pairs with the Acquire (U4).
            match cpu.compare_exchange(self.handles, open, fewer, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => open = now,
            }
        }
    }

    /// Leaves, unless handles are open. Returns the participant that the process was.
    ///
    /// # Errors
    ///
    /// The number of open handles.
    pub fn leave(&self, cpu: &P) -> Result<u64, u64> {
        // Relaxed: written by this process's own call of `enter`; the fence orders it.
        let participant = cpu.swap(self.me, 0, Ordering::Relaxed);
        // (U2) SeqCst: between the change of `me` and the look at the handles; pairs with the fence
        // (U1) in `open`.
        cpu.fence(Ordering::SeqCst);
        // (U4) Acquire: what was done by handles comes before; pairs with the Release (U3) in
        // `close`.
        match cpu.load(self.handles, Ordering::Acquire) {
            0 => Ok(participant),
            open => {
                // Relaxed: written by this process's own calls; nothing was left, so nothing is
                // handed on.
                cpu.store(self.me, participant, Ordering::Relaxed);
                Err(open)
            }
        }
    }
}

/// A signal's thread while it is being prepared.
const TAKEN: u64 = u64::MAX;

/// Takes a signal for the calling thread. `false`: another thread has it.
///
/// [`give_signal`] says the thread's number later.
pub fn take_signal<P: Processor>(cpu: &P, thread: &P::Word) -> bool {
    // (I1) Acquire: pairs with the Release (I3) of the thread that had it before; Relaxed if it
    // fails: nothing is read.
    cpu.compare_exchange(thread, 0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

/// Says which thread a signal interrupts: the caller.
pub fn give_signal<P: Processor>(cpu: &P, thread: &P::Word, me: u64) {
    // (I2) Release: what the handler needs, before; pairs with the signal's coming, on the same
    // thread.
    cpu.store(thread, me, Ordering::Release);
}

/// Gives a signal back, which interrupts no thread from now on.
pub fn leave_signal<P: Processor>(cpu: &P, thread: &P::Word) {
    // (I3) Release: pairs with the Acquire (I1) of the thread that takes it next.
    cpu.store(thread, 0, Ordering::Release);
}

/// Number of events of a host.
pub fn host_events<P: Processor>(cpu: &P, events: &P::Word) -> u64 {
    // (G2) Acquire: the event comes before; pairs with the Release (G1).
    cpu.load(events, Ordering::Acquire)
}

/// Wakes a host's gateway, so that it looks for the caller's change.
pub fn tell_gateway<P: Park>(cpu: &P, events: &P::Word, doorbell: &P::Word) {
    // (G1) Release, both: the caller's change comes before; pairs with the Acquire (G2), and
    // with that with which the gateway reads its doorbell before it looks for the last time.
    cpu.fetch_add(events, 1, Ordering::Release);
    cpu.fetch_add(doorbell, 1, Ordering::Release);
    cpu.wake(doorbell, u32::MAX);
}
