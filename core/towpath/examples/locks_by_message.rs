//! A lock by message: every rank adds to an account, whose balance travels with the lock.
//!
//! So ranks of several hosts have one account: `towpath run --hosts` shows the same balance.
//!
//! ```text
//! towpath run -n 4 target/release/examples/locks_by_message
//! ```
use towpath::World;
use towpath::mplock::{Error, Fence, Guard, Manager};

/// Number of deposits of each rank.
const DEPOSITS: u64 = 1000;

/// Returns the balance that came with the lock.
fn balance(guard: &Guard<'_>) -> u64 {
    guard.data().try_into().map_or(0, u64::from_le_bytes)
}

fn main() -> Result<(), Error> {
    let world = World::join()?;
    let manager = Manager::new(&world)?; // one in each rank: some locks are at home here
    let (lock, fence) = (manager.lock("account"), Fence::default());
    for _ in 0..DEPOSITS {
        let mut guard = lock.acquire()?;
        if guard.previous_owner_died() {
            guard.make_consistent(); // after a repair: here there is none to make
        }
        // A resource beyond the reach of locks would refuse a holder that was delayed until
        // another one had the lock.
        fence.check(guard.token()).expect("tokens increase");
        guard.set_data(&(balance(&guard) + 1).to_le_bytes())?;
    }
    manager.barrier()?; // serves the other ranks until all are here
    println!("rank {}: the balance is {}", world.rank(), balance(&lock.acquire_shared()?));
    manager.barrier()
}
