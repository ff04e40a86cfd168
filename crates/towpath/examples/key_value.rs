//! A key-value server: rank 0 keeps the pairs, the others put and get them by active messages.
//!
//! ```text
//! towpath run -n 4 target/release/examples/key_value
//! ```

use std::collections::HashMap;
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

/// How many pairs each client stores.
const PAIRS: u32 = 1000;

fn main() -> Result<(), towpath::Error> {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    if world.rank() == 0 { serve(&endpoint, world.size() - 1) } else { use_it(&endpoint, world.rank()) }
}

fn serve(endpoint: &Endpoint, clients: u32) -> Result<(), towpath::Error> {
    let pairs = Arc::new(Mutex::new(HashMap::new()));
    let store = pairs.clone();
    endpoint.set_handler(PUT, move |request| {
        let &[key, value] = request.args() else { return };
        store.lock().expect("no handler panics").insert(key, value);
        request.reply(STORED, &[]).expect("a request can be replied to once");
    });
    let find = pairs.clone();
    endpoint.set_handler(GET, move |request| {
        let &[key] = request.args() else { return };
        let found = find.lock().expect("no handler panics").get(&key).copied();
        let answer = match &found {
            Some(value) => [1, *value],
            None => [0, 0],
        };
        request.reply(FOUND, &answer).expect("a request can be replied to once");
    });
    let done = Arc::new(AtomicU32::new(0));
    let count = done.clone();
    endpoint.set_handler(DONE, move |_| {
        count.fetch_add(1, Relaxed);
    });
    endpoint.world().barrier(endpoint.config().waiting)?; // open for business
    endpoint.poll_until(|| done.load(Relaxed) == clients);
    println!("the server holds {} pairs", pairs.lock().expect("no handler panics").len());
    Ok(())
}

fn use_it(endpoint: &Endpoint, me: u32) -> Result<(), towpath::Error> {
    let replies = Arc::new(AtomicU32::new(0));
    let right = Arc::new(AtomicU32::new(0));
    let stored = replies.clone();
    endpoint.set_handler(STORED, move |_| {
        stored.fetch_add(1, Relaxed);
    });
    let (answered, matching) = (replies.clone(), right.clone());
    endpoint.set_handler(FOUND, move |reply| {
        // Replies come in the order of our requests: this one is for key number `replies - PAIRS`.
        let n = answered.fetch_add(1, Relaxed) - PAIRS;
        let expected: &[u32] = if n < PAIRS { &[1, n * n] } else { &[0, 0] };
        if reply.args() == expected {
            matching.fetch_add(1, Relaxed);
        }
    });
    endpoint.world().barrier(endpoint.config().waiting)?;
    let server = endpoint.name_of_rank(0).expect("the server has an endpoint: it has passed the barrier");
    endpoint.map(0, server, towpath::Tag::ALL)?;

    let key = |n: u32| me << 16 | n;
    for n in 0..PAIRS {
        endpoint.request(0, PUT, &[key(n), n * n])?;
    }
    endpoint.poll_until(|| replies.load(Relaxed) == PAIRS);
    for n in 0..=PAIRS {
        endpoint.request(0, GET, &[key(n)])?; // the last one does not exist
    }
    endpoint.poll_until(|| replies.load(Relaxed) == 2 * PAIRS + 1);
    println!("rank {me}: {} of {} answers are right", right.load(Relaxed), PAIRS + 1);
    endpoint.request(0, DONE, &[])?;
    Ok(())
}
