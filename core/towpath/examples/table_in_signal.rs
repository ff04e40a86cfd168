//! A table filled by a handler that runs in a signal handler: rank 0 updates the table
//! all the time and never polls; the others put pairs into it by requests, which a real-time signal
//! brings.
//!
//! ```text
//! towpath run -n 4 target/release/examples/table_in_signal
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use towpath::structures::nonblocking;
use towpath::{Endpoint, SignalEndpoint, World};

/// Table of up to 400 keys, one participant: rank 0, with its signal handler.
type Table = nonblocking::in_world::HashMap<401, 1>;

const PUT: u8 = 1; // key, value
const STORED: u8 = 2;
const DONE: u8 = 3;

/// Number of pairs that each client stores, one by one, under keys that come again.
const PAIRS: u32 = 5_000;
const KEYS: u32 = 64;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    if world.rank() == 0 { compute(endpoint, &world) } else { fill(&endpoint, &world) }
}

fn compute(endpoint: Endpoint, world: &World) -> Outcome {
    let table = nonblocking::open::<Table>(world, "table")?;
    // The endpoints whose requests are handled in the signal.
    endpoint.map_world()?;
    let endpoint = SignalEndpoint::new(endpoint, 0)?; // SIGRTMIN
    let (put, gone) = (table.clone(), Arc::new(AtomicU32::new(0)));
    // SAFETY: it uses the request, a structure that is made for handlers, and a reply.
    unsafe {
        endpoint.set_signal_handler(PUT, move |request| {
            let &[key, value] = request.args() else { return };
            let stored = put.insert(key.into(), value.into()).is_ok();
            let _ = request.reply(STORED, &[stored.into()]);
        });
    }
    let count = gone.clone();
    // SAFETY: it touches an atomic.
    unsafe {
        endpoint.set_signal_handler(DONE, move |_| {
            count.fetch_add(1, Relaxed);
        });
    }
    world.barrier(Default::default())?; // open for business

    // The signal interrupts an update of the same table, more often than not.
    let mut updates = 0u64;
    while gone.load(Relaxed) < world.size() - 1 {
        let key = u64::from(KEYS * world.size()) + updates % 16;
        table.insert(key, updates)?;
        table.remove(key)?;
        updates += 1;
    }
    let mut pairs = 0;
    table.for_each(|_, _| {
        pairs += 1;
        true
    })?;
    writeln!(
        std::io::stdout(),
        "rank 0: {updates} updates of its own, {} signals; the others' pairs: {pairs}",
        endpoint.signals()
    )?;
    match KEYS * (world.size() - 1) {
        all if all == pairs => Ok(()),
        all => Err(format!("the table holds {pairs} of the others' pairs, not {all}").into()),
    }
}

fn fill(endpoint: &Endpoint, world: &World) -> Outcome {
    let stored = Arc::new(AtomicU32::new(0));
    let count = stored.clone();
    endpoint.set_handler(STORED, move |reply| {
        count.fetch_add(u32::from(reply.args() == [1]), Relaxed);
    });
    endpoint.map_world()?;
    world.barrier(Default::default())?;
    for number in 0..PAIRS {
        endpoint.request(0, PUT, &[world.rank() * KEYS + number % KEYS, number])?;
        endpoint.poll();
    }
    endpoint.poll_until(|| stored.load(Relaxed) >= PAIRS);
    endpoint.request(0, DONE, &[])?;
    let rank = world.rank();
    writeln!(std::io::stdout(), "rank {rank}: rank 0 has stored all of {PAIRS}, and has not polled once")?;
    Ok(())
}
