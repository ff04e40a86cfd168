//! A world that survives: rank 1 dies in the middle of its work; the others notice, get
//! their messages to it back, and finish.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/survivors
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use towpath::{Endpoint, Status, World};

const RETURNED: u8 = 0; // handler 0 gets what could not be delivered
const WORK: u8 = 1;
const RESULT: u8 = 2;

/// Number of requests that each rank sends to each other one.
const REQUESTS: u32 = 10_000;
/// Number of requests after which rank 1 dies.
const FATAL: u32 = 2_500;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    let (me, ranks) = (world.rank(), world.size());

    let handled = Arc::new(AtomicU32::new(0));
    let work = handled.clone();
    endpoint.set_handler(WORK, move |request| {
        if me == 1 && work.fetch_add(1, Relaxed) == FATAL {
            std::process::abort(); // as a crash would: no farewell, nothing cleaned up
        }
        let &[n] = request.args() else { return };
        // Without an answer the requester goes on waiting; a rank that dies gets none.
        let _ = request.reply(RESULT, &[n.wrapping_mul(n)]);
    });
    let results = Arc::new(AtomicU32::new(0));
    let back = Arc::new(AtomicU32::new(0));
    let strange = Arc::new(AtomicU32::new(0));
    let (r, b, s) = (results.clone(), back.clone(), strange.clone());
    endpoint.set_handler(RESULT, move |_| {
        r.fetch_add(1, Relaxed);
    });
    endpoint.set_handler(RETURNED, move |message| {
        // Handler 0 only gets what came back, and here only for that reason, unless memory is
        // damaged.
        let Some(why) = message.returned() else { return };
        if why.status != Status::Unreachable {
            s.fetch_add(1, Relaxed);
        }
        // Our replies to its last requests come back as well: no peer waits for those.
        if why.operation.is_request() {
            b.fetch_add(1, Relaxed);
        }
    });

    endpoint.map_world()?;
    endpoint.barrier()?;
    for n in 0..REQUESTS {
        for rank in (0..ranks).filter(|&rank| rank != me) {
            endpoint.request(rank as usize, WORK, &[n])?;
        }
        endpoint.poll();
    }
    // Every request is answered, or it comes back: nothing is lost, whatever rank 1 was doing when
    // it died.
    let all = (ranks - 1) * REQUESTS;
    endpoint.poll_until(|| results.load(Relaxed) + back.load(Relaxed) >= all);
    writeln!(
        std::io::stdout(),
        "rank {me}: {} results, {} requests came back as unreachable",
        results.load(Relaxed),
        back.load(Relaxed)
    )?;
    // The others may still want answers from us.
    let quiet = std::time::Instant::now();
    endpoint.poll_until(|| quiet.elapsed().as_millis() > 500);
    match strange.load(Relaxed) {
        0 => Ok(()),
        n => Err(format!("rank {me}: {n} messages came back though their receivers live").into()),
    }
}
