//! A lock by message: every rank adds to an account under a lock whose tokens the account
//! checks, as a resource beyond the reach of locks would. Shared objects are a host's own: with
//! `--hosts` there is an account on each.
//!
//! ```text
//! towpath run -n 4 target/release/examples/locks_by_message
//! ```
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath::World;
use towpath::mplock::{Error, Manager};

/// Number of deposits of each rank.
const DEPOSITS: u64 = 1000;

fn main() -> Result<(), Error> {
    let world = World::join()?;
    let account = world.shared::<[AtomicU64; 2]>("account", |_| ())?; // balance, largest token
    let [balance, largest] = &*account;
    let manager = Manager::new(&world)?; // one in each rank: some locks are at home here
    let lock = manager.lock("account");
    for _ in 0..DEPOSITS {
        let mut guard = lock.acquire()?;
        if guard.previous_owner_died() {
            guard.make_consistent(); // after a repair: here there is none to make
        }
        // A holder that was delayed until another one had the lock would be refused here.
        let token = guard.token().get();
        assert!(largest.swap(token, Relaxed) < token, "a stale token");
        balance.store(balance.load(Relaxed) + 1, Relaxed);
    }
    manager.barrier()?; // serves the other ranks until all are here
    println!("rank {}: the balance is {}", world.rank(), balance.load(Relaxed));
    Ok(())
}
