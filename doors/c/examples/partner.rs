//! Partner of `checks/share.c`: shares a named world's objects with that program in C.
//!
//! `partner WORLD ROUNDS`: adds to the mutex's value, answers each message of a queue, dies
//! with the mutex.

use std::error::Error;

use towpath_shm::World;
use towpath_sync::LockError;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or("WORLD is missing")?;
    let rounds: u64 = arguments.next().ok_or("ROUNDS is missing")?.parse()?;
    let world = World::open(&name)?;
    world.enter(None)?;
    let (balance, changed) = (world.mutex("balance", 0u64)?, world.condvar("changed")?);
    let (questions, answers) =
        (world.mpmc::<[u64; 2]>("questions", 4)?, world.mpmc::<[u64; 2]>("answers", 4)?);
    let (questions, answers) = (questions.receiver()?, answers.sender()?);
    let mut news = world.broadcast("news", 4096)?.reader()?;
    world.event("ready")?.set();
    for _ in 0..rounds {
        match balance.lock() {
            Ok(mut guard) => *guard += 1,
            Err(LockError::OwnerDied { guard, .. }) => *guard.assume_consistent() += 1,
            Err(other) => return Err(other.into()),
        }
        changed.notify_all();
    }
    for _ in 0..rounds {
        let [number, value] = questions.receive()?;
        answers.send([number, value * value])?;
    }
    if *news.receive()? != *b"the end" {
        return Err("other news were expected".into());
    }
    let mut guard = balance.lock()?;
    *guard += 1;
    // The C program finds its owner dead.
    std::process::abort();
}
