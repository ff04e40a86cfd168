//! The ladder of Gropp & Lusk 1997 (Sections 4 to 7): MPICH's shared-memory device with
//! System V semaphores, with packet slots for each pair, with test&set locks, and with both.
//!
//! Written once for any machine: natively it is what `towpath bench ladder` measures. Messages go
//! by the paper's three protocols (Section 3): **short** in the control packet, **eager** through
//! memory from a shared pool, **rendezvous** in pieces through that memory once the receiver is
//! ready.
//!
//! `cyclic.rs`, `chosen.rs` and `distributed.rs` are the refinements of the slots that Section 9
//! proposes, `printed.rs` the figures with their slips; `sim/ladder/` runs all of it on simulated
//! machines.
//!
//! These are baselines, in the form in which the paper describes them: a process that dies in the
//! middle stops its partners.

mod chosen;
mod cyclic;
mod device;
mod distributed;
mod locked;
mod ours;
mod plain;

mod pool;
mod printed;

mod slots;

pub use chosen::{Chosen, Given};
pub use cyclic::Cyclic;
pub use device::{Device, EAGER_BELOW, SHORT_BELOW};
pub use distributed::{MailboxPair, Mailboxes};
pub use locked::{LockedQueues, PACKETS, Packet, QueueEnds};
pub use ours::{INLINE, Ours, RingBytes};

pub use pool::{Pool, PoolTable};
pub use printed::{Indices, Printed};

pub use slots::{LadderSlot, Slots};

use towpath_machine::{Ordering, Processor};
use towpath_sync::{Lock, Waiting};

/// A version of the device: the paper's four, and ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// System V semaphores around queues and pool (Section 4).
    SystemV,
    /// Packet slots without locks, System V semaphores around the pool (Section 5).
    SlotsSystemV,
    /// Test&set locks around queues and pool (Section 6).
    TestAndSet,
    /// Packet slots without locks, test&set locks around the pool (Section 7).
    SlotsTestAndSet,
    /// Towpath's own device for MPIs.
    Towpath,
}

impl Version {
    /// All of them, as the paper climbs.
    pub const ALL: [Version; 5] = [
        Version::SystemV,
        Version::SlotsSystemV,
        Version::TestAndSet,
        Version::SlotsTestAndSet,
        Version::Towpath,
    ];

    /// Name in the records.
    pub const fn name(self) -> &'static str {
        match self {
            Version::SystemV => "sysv",
            Version::SlotsSystemV => "slots-sysv",
            Version::TestAndSet => "tas",
            Version::SlotsTestAndSet => "slots-tas",
            Version::Towpath => "towpath",
        }
    }
}

/// Description of a control packet beside its payload: three words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketEnvelope {
    /// Kind, in the low byte, and the message's tag above.
    pub kind: u64,
    /// The message's length, or the piece's.
    pub len: u64,
    /// Offset of the data in the pool.
    pub at: u64,
}

/// Transport of control packets from one process to another.
pub trait ControlPackets<P: Processor> {
    /// Sends one; waits for space.
    fn send<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, envelope: PacketEnvelope, payload: &[u8]);
    /// Takes the next message that is there for `me`, with its payload in `buffer`
    /// (as much as fits). `None`: there is none.
    fn receive(
        &self,
        cpu: &P,
        wait: &impl Waiting<P>,
        me: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, PacketEnvelope)>;
    /// Waits a little for one from the expected process: the `round`-th time in a row.
    fn wait_for<W: Waiting<P>>(&self, cpu: &P, wait: &W, route: Route, round: u32);
}

/// Sender and receiver of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The sender.
    pub from: usize,
    /// The receiver.
    pub to: usize,
}

/// Mutual exclusion, as queues and pool need it.
pub trait LadderLock<P: Processor> {
    /// Enters.
    fn enter<W: Waiting<P>>(&self, cpu: &P, wait: &W);
    /// Leaves.
    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W);
}

/// A lock of `sync` without anything to hold.
impl<P: Processor, L: Lock<P, Held = ()>> LadderLock<P> for &L {
    fn enter<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        // No waiter is told of deaths here, so no wait is ever given up.
        self.lock(cpu, wait).expect("a lock that no holder abandons");
    }
    fn leave<W: Waiting<P>>(&self, cpu: &P, wait: &W) {
        self.unlock(cpu, wait, ());
    }
}

/// Maximum time of a waiter's turn, in nanoseconds.
const TURN: u64 = 100_000;

/// Waits for a word to differ, for a turn. Only for policies that don't park so early.
///
/// The word's writer stores to it and wakes no sleeper, and its readers take a sleeper's mark for a
/// part of the value. The round that the policy is told is 0 or 1: `Spin`, `SpinThenYield` and
/// `Adaptive` spin or yield then. `SpinThenPark` and `Park` would park, for up to `TURN`. Natively
/// the ladder waits by `Adaptive`, in surroundings that tell of no slow rounds, on simulated
/// machines by `Spin`.
fn wait_a_little<P: Processor, W: Waiting<P>>(cpu: &P, wait: &W, word: &P::Word, seen: u64, round: u32) {
    wait.wait_turn(cpu, word, seen, round.min(1), TURN);
}

/// Reads a flag that another process sets.
fn is_raised<P: Processor>(cpu: &P, flag: &P::Word) -> bool {
    // (F1) Acquire: the setter's earlier writes are there; pairs with the Release (F2) in `raise`.
    cpu.load(flag, Ordering::Acquire) != 0
}

/// Sets a flag.
fn raise<P: Processor>(cpu: &P, flag: &P::Word) {
    // (F2) Release: pairs with the Acquire (F1) in `is_raised`.
    cpu.store(flag, 1, Ordering::Release);
}
