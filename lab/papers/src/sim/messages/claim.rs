//! A claim algorithm that was chosen by name, over its own lock if it has one: one type,
//! so that everything above it is compiled once.

use std::rc::Rc;

use towpath_am::claim::{Claim, LockFree, Locked, Towpath};
use towpath_am::packet::Header;
use towpath_am::queue::{Census, ClaimError, Queue, Receiver, Sender};
use towpath_sim::{Sim, SimArena, SimWord};
use towpath_sync::locks::{Mcs, Posix, TestAndSet, TestAndTestAndSet, Ticket, TicketTwoLines};
use towpath_sync::{Lock, WaitForSpace};

use super::algorithm::MessageAlgorithm;
use super::indicator::IndicatorLock;

/// The paper's: no sender dies.
type Under<L> = Locked<Rc<L>, false>;
/// Ours: survivors learn the intent of a dead sender.
type MortalUnder<L> = Locked<Rc<L>>;

/// The claim of one queue.
pub enum AnyClaim {
    TestAndSet(Under<TestAndSet<Sim>>),
    TestAndTestAndSet(Under<TestAndTestAndSet<Sim>>),
    Ticket(Under<Ticket<Sim>>),
    TicketTwoLines(Under<TicketTwoLines<Sim>>),
    Anderson(Under<IndicatorLock>),
    Mcs(Under<Mcs<Sim, 64>>),
    Posix(Under<Posix<Sim>>),
    LockFree(LockFree),
    Towpath(Towpath),
    MortalTicket(MortalUnder<Ticket<Sim>>),
    MortalPosix(MortalUnder<Posix<Sim>>),
}

impl AnyClaim {
    /// The algorithm's claim of a new queue. `mortal`: processes may die.
    ///
    /// # Panics
    ///
    /// If they may, under a lock that no test kills them under.
    pub fn new(algorithm: MessageAlgorithm, arena: &SimArena, mortal: bool) -> AnyClaim {
        fn under<L: Lock<Sim>, const MORTAL: bool>(arena: &SimArena) -> Locked<Rc<L>, MORTAL> {
            Locked(Rc::new(L::new(arena)))
        }
        use towpath_am::Algorithm as Known;
        match algorithm {
            MessageAlgorithm::Known(Known::Ticket) if mortal => AnyClaim::MortalTicket(under(arena)),
            MessageAlgorithm::Known(Known::Posix) if mortal => AnyClaim::MortalPosix(under(arena)),
            MessageAlgorithm::Known(Known::LockFree) => AnyClaim::LockFree(LockFree),
            MessageAlgorithm::Known(Known::Towpath) => AnyClaim::Towpath(Towpath),
            other if mortal => panic!("no process may die under {}", other.name()),
            MessageAlgorithm::Known(Known::TestAndSet) => AnyClaim::TestAndSet(under(arena)),
            MessageAlgorithm::Known(Known::TestAndTestAndSet) => AnyClaim::TestAndTestAndSet(under(arena)),
            MessageAlgorithm::Known(Known::Ticket) => AnyClaim::Ticket(under(arena)),
            MessageAlgorithm::Known(Known::Anderson) => AnyClaim::Anderson(under(arena)),
            MessageAlgorithm::Known(Known::Mcs) => AnyClaim::Mcs(under(arena)),
            MessageAlgorithm::Known(Known::Posix) => AnyClaim::Posix(under(arena)),
            MessageAlgorithm::TicketTwoLines => AnyClaim::TicketTwoLines(under(arena)),
        }
    }
}

/// The trait's methods, handed on: each with its arguments, and `<W>` if one of them is a
/// way of waiting.
macro_rules! hand_on {
    ($(fn $name:ident $(<$w:ident>)? ($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $name $(<$w: WaitForSpace<Sim>>)? (&self, $($argument: $type),*) $(-> $result)? {
            match self {
                AnyClaim::TestAndSet(claim) => claim.$name($($argument),*),
                AnyClaim::TestAndTestAndSet(claim) => claim.$name($($argument),*),
                AnyClaim::Ticket(claim) => claim.$name($($argument),*),
                AnyClaim::TicketTwoLines(claim) => claim.$name($($argument),*),
                AnyClaim::Anderson(claim) => claim.$name($($argument),*),
                AnyClaim::Mcs(claim) => claim.$name($($argument),*),
                AnyClaim::Posix(claim) => claim.$name($($argument),*),
                AnyClaim::LockFree(claim) => Claim::<Sim>::$name(claim, $($argument),*),
                AnyClaim::Towpath(claim) => Claim::<Sim>::$name(claim, $($argument),*),
                AnyClaim::MortalTicket(claim) => claim.$name($($argument),*),
                AnyClaim::MortalPosix(claim) => claim.$name($($argument),*),
            }
        })*
    };
}

type Q<'a> = Queue<'a, Sim>;

/// Every method, also those that the trait provides: an algorithm may have its own.
impl Claim<Sim> for AnyClaim {
    hand_on! {
        fn claim<W>(q: &Q<'_>, sender: &mut Sender, cpu: &Sim, wait: &W, intent: &SimWord) -> Result<u64, ClaimError>;
        fn anticipate(q: &Q<'_>, cpu: &Sim, ticket: u64);
        fn give_up(sender: &mut Sender, cpu: &Sim, intent: &SimWord);
        fn claim_block<W>(q: &Q<'_>, sender: &mut Sender, cpu: &Sim, wait: &W, intent: &SimWord) -> Result<usize, ClaimError>;
        fn publish(q: &Q<'_>, sender: &mut Sender, cpu: &Sim, parks: bool, intent: &SimWord, ticket: u64, header: Header) -> bool;
        fn is_unlocked<W>(cpu: &Sim, wait: &W) -> bool;
        fn is_ready(q: &Q<'_>, header: Header, ticket: u64) -> bool;
        fn is_ready_late(q: &Q<'_>, header: Header, ticket: u64, head: u64) -> bool;
        fn undelivered(q: &Q<'_>, cpu: &Sim, header: Header, ticket: u64) -> Option<u64>;
        fn release(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, ticket: u64);
        fn release_late(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, ticket: u64);
        fn flush<W>(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, wait: &W);
        fn await_space<W>(q: &Q<'_>, sender: &Sender, cpu: &Sim, wait: &W, round: u32);
        fn fall_asleep(q: &Q<'_>, receiver: &Receiver, cpu: &Sim) -> bool;
        fn wake_up(q: &Q<'_>, cpu: &Sim);
        fn resolve_head(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, census: &dyn Census, overdue: bool) -> bool;
        fn resolve_late(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, census: &dyn Census) -> bool;
        fn sweep_packets(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim, census: &dyn Census);
        fn overdraws() -> bool;
        fn heal(q: &Q<'_>, receiver: &mut Receiver, cpu: &Sim) -> bool;
        fn packets_in_use(q: &Q<'_>, receiver: &Receiver, cpu: &Sim) -> u64;
    }
}
