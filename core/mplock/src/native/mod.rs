//! Locks by message between the ranks of a world: the state machines, carried by an
//! endpoint's messages.
//!
//! | file | contents |
//! | --- | --- |
//! | `manager.rs` | the API of a rank's manager |
//! | `lock.rs`, `guard.rs` | locks and their holders |
//! | `hold.rs` | the time for which a lock is kept while others wait |
//! | `lending.rs` | locks that two ranks use in turns meanwhile |
//! | `serve.rs` | messages and deaths to state machines: the rules of recovery |
//! | `progress.rs` | the thread that serves while the process computes, and its turns |
//! | `homes.rs` | the locks whose home a rank is |
//! | `members.rs` | the ranks that are there, and the epoch |
//! | `post.rs` | messages that wait for space at their receiver |
//! | `traffic.rs` | the number of messages |
//! | `codec.rs`, `identity.rs` | messages as arguments; names as hashes |

mod codec;
mod error;
mod guard;
mod hold;
mod homes;
mod identity;
mod lending;
mod lock;
mod manager;
mod members;
mod post;
mod progress;
mod serve;
mod traffic;

/// Messages about locks as words, and homes by hashing.
///
/// For carriers of the state machines other than [`Manager`]: Towpath's own. No stable interface.
#[doc(hidden)]
pub mod wire {
    pub use super::codec::{LetterContent, LetterWords, decode, encode};
    pub use super::identity::Identity;
}

pub use error::Error;
pub use guard::Guard;
pub use hold::HoldBudget;
pub use lock::Lock;
pub use manager::Manager;
pub use progress::Progress;
pub use traffic::LockTraffic;
