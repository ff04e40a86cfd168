//! Data under a mutex between processes, one of which is killed while it holds the mutex.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/accounts
//! ```

use towpath::{LockError, World};

/// Transfers that each rank makes.
const TRANSFERS: u64 = 100_000;
/// Transfer of rank 1 in whose middle it dies.
const FATAL: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = World::join()?;
    let table = world.mutex("accounts", [0u64; 2])?;
    for n in 0..TRANSFERS {
        // Waits for its turn, and never for a dead process.
        let mut accounts = match table.lock() {
            Ok(accounts) => accounts,
            Err(LockError::OwnerDied { rank: dead, guard }) => {
                println!("rank {}: {dead:?} died between two stores; balancing the accounts", world.rank());
                guard.repair(|[credited, debited]| *debited = *credited)
            }
            Err(other) => return Err(other.into()),
        };
        accounts[0] += 1;
        if world.rank() == 1 && n == FATAL {
            std::process::abort(); // as a crash would: the mutex stays locked
        }
        accounts[1] += 1;
    }
    let [credited, debited] = *table.lock()?;
    println!("rank {}: {credited} credited, {debited} debited", world.rank());
    Ok(())
}
