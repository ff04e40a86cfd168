//! A key-value server: rank 0 keeps the pairs, the others put and get them by active
//! messages.
//!
//! ```text
//! towpath run -n 4 target/release/examples/key_value
//! ```

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use towpath::{Endpoint, World};

// Handlers of the server …
const PUT: u8 = 1; // key, value
const GET: u8 = 2; // key
const DONE: u8 = 3;
// … and of its clients.
const STORED: u8 = 1;
const FOUND: u8 = 2; // 1, value; or 0

/// Number of pairs that each client stores.
const PAIRS: u32 = 1000;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    if world.rank() == 0 { serve(&endpoint, world.size() - 1) } else { use_it(&endpoint, world.rank()) }
}

fn serve(endpoint: &Endpoint, clients: u32) -> Outcome {
    let pairs = Arc::new(Mutex::new(HashMap::new()));
    let store = pairs.clone();
    endpoint.set_handler(PUT, move |request| {
        // A request that makes no sense gets no answer; and whether the client still lives to get
        // one is its own affair.
        let &[key, value] = request.args() else { return };
        let Ok(mut pairs) = store.lock() else { return };
        pairs.insert(key, value);
        let _ = request.reply(STORED, &[]);
    });
    let find = pairs.clone();
    endpoint.set_handler(GET, move |request| {
        let &[key] = request.args() else { return };
        let Ok(pairs) = find.lock() else { return };
        let answer = match pairs.get(&key) {
            Some(value) => [1, *value],
            None => [0, 0],
        };
        let _ = request.reply(FOUND, &answer);
    });
    let done = Arc::new(AtomicU32::new(0));
    let count = done.clone();
    endpoint.set_handler(DONE, move |_| {
        count.fetch_add(1, Relaxed);
    });
    endpoint.barrier()?; // open for business
    endpoint.poll_until(|| done.load(Relaxed) >= clients);
    let held = pairs.lock().map_err(|_| "a handler has panicked")?.len();
    writeln!(std::io::stdout(), "the server holds {held} pairs")?;
    Ok(())
}

fn use_it(endpoint: &Endpoint, me: u32) -> Outcome {
    let replies = Arc::new(AtomicU32::new(0));
    let right = Arc::new(AtomicU32::new(0));
    let stored = replies.clone();
    endpoint.set_handler(STORED, move |_| {
        stored.fetch_add(1, Relaxed);
    });
    let (answered, matching) = (replies.clone(), right.clone());
    endpoint.set_handler(FOUND, move |reply| {
        // Replies come in the order of our requests: this one is for key number `replies - PAIRS`.
        let Some(n) = answered.fetch_add(1, Relaxed).checked_sub(PAIRS) else { return };
        let expected = if n < PAIRS { [1, n * n] } else { [0, 0] };
        if reply.args() == expected {
            matching.fetch_add(1, Relaxed);
        }
    });
    endpoint.barrier()?;
    let server = endpoint.name_of_rank(0).ok_or("the server has no endpoint")?;
    endpoint.map(0, server, towpath::Tag::ALL)?;

    let key = |n: u32| me << 16 | n;
    for n in 0..PAIRS {
        endpoint.request(0, PUT, &[key(n), n * n])?;
    }
    endpoint.poll_until(|| replies.load(Relaxed) >= PAIRS);
    for n in 0..=PAIRS {
        endpoint.request(0, GET, &[key(n)])?; // the last one does not exist
    }
    endpoint.poll_until(|| replies.load(Relaxed) > 2 * PAIRS);
    endpoint.request(0, DONE, &[])?;
    writeln!(std::io::stdout(), "rank {me}: {} of {} answers are right", right.load(Relaxed), PAIRS + 1)?;
    Ok(())
}
