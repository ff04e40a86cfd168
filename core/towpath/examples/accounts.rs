//! Data under a mutex between processes, one of which is killed while it holds the mutex.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/accounts
//! ```

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use towpath::{Mutex, World};

/// Transfers that each rank makes.
const TRANSFERS: u64 = 100_000;
/// Transfer of rank 1 in whose middle it dies.
const FATAL: u64 = 50_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let world = World::join()?;
    let table = world.shared::<Mutex<[AtomicU64; 2]>>("accounts", Mutex::prepare)?;
    for n in 0..TRANSFERS {
        let mut accounts = table.lock()?; // waits for its turn, and never for a dead process
        if accounts.owner_died() {
            println!("rank {}: a holder died between two stores; balancing the accounts", world.rank());
            let credited = accounts[0].load(Relaxed);
            *accounts[1].get_mut() = credited;
            accounts.make_consistent();
        }
        *accounts[0].get_mut() += 1;
        if world.rank() == 1 && n == FATAL {
            std::process::abort(); // as a crash would: the mutex stays locked
        }
        *accounts[1].get_mut() += 1;
    }
    let accounts = table.lock()?;
    let [credited, debited] = [0, 1].map(|n: usize| accounts[n].load(Relaxed));
    println!("rank {}: {credited} credited, {debited} debited", world.rank());
    Ok(())
}
