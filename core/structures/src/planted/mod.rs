//! Queues, a DCAS and a list that are **wrong on purpose**: never use them. They are
//! there to be found, by the schedule explorer and by the experiments on what a paper printed.
//!
//! The faults of the lists show only when a node is used again, and node 0, with which a list
//! begins, never is: let a value through before the search.
//!
//! | name | what is wrong | what comes of it |
//! | --- | --- | --- |
//! | [`MichaelScottNoRecheck`] | the ends are not read again after the link behind them | empty, though a value is in the whole time; values lost |
//! | [`MichaelScottUncounted`] | pointers have no counts (ABA) | values lost or found twice |
//! | [`FetchOpArrayAsPrinted`] | Figure 1 of Nikolopoulos & Papatheodorou 1999, letter by letter | values are not found again, even one after the other |
//! | [`ListRetyped`] | entries that were taken out become something else at once: their memory is not type-stable | a participant on its way through the list follows a word that is no link |
//! | [`GuerraouiUntagged`] | words do not count their changes (ABA) | a word gets the new value of an operation that was completed long ago |

mod fetch_op_array_as_printed;

pub use fetch_op_array_as_printed::FetchOpArrayAsPrinted;

use crate::Boxed;
use crate::dcas::{self, Guerraoui};
use crate::nonblocking::List;
use crate::queues::{MichaelScott, MichaelScottVariant};
use towpath_sync::Atomics;

/// Marks the text without the second look at the ends.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoRecheck;

impl MichaelScottVariant for NoRecheck {
    const NAME: &'static str = "planted/michael-scott-no-recheck";
    const RECHECKS: bool = false;
}

/// Marks the text without counts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uncounted;

impl MichaelScottVariant for Uncounted {
    const NAME: &'static str = "planted/michael-scott-uncounted";
    const COUNTS: bool = false;
}

/// Michael and Scott's queue without lines E7 and D5: a dequeuer can combine an old head
/// with a new tail that is the same node in a later life, and find nothing behind it. Three
/// operations of another one in the middle of its own are enough: with one value in the queue, an
/// enqueue, a dequeue and an enqueue.
pub type MichaelScottNoRecheck<P, M = Atomics, S = Boxed> = MichaelScott<P, M, S, NoRecheck>;

/// Michael and Scott's queue without counts: an enqueuer can link its node behind a tail
/// that was taken out meanwhile, or was taken from the pool again and is not linked yet.
pub type MichaelScottUncounted<P, M = Atomics, S = Boxed> = MichaelScott<P, M, S, Uncounted>;

/// Greenwald and Cheriton's list in memory that is not type-stable (G18): readers have no
/// lock, and find out by the version that the list has changed, but only after they have followed a
/// link.
pub type ListRetyped<P, D, S = Boxed> = List<P, D, S, false>;

/// Marks the text without tags.
#[derive(Clone, Copy, Debug, Default)]
pub struct Untagged;

impl dcas::GuerraouiVariant for Untagged {
    const NAME: &'static str = "planted/guerraoui-untagged";
    const TAGS: bool = false;
}

/// Guerraoui, Kogan, Marathe and Zablotchi's DCAS whose words do not count their changes:
/// a word that has been changed back is marked once more by a participant that is late, after the
/// operation has succeeded, and so gets its new value a second time.
pub type GuerraouiUntagged<P, S = Boxed> = Guerraoui<P, S, Untagged>;
