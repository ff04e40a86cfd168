//! A ring of requests: every rank greets the next one and waits for the answer.
//!
//! ```text
//! towpath run -n 4 target/release/examples/hello
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use towpath::{Endpoint, World};

const GREETING: u8 = 1;
const ANSWER: u8 = 2;

fn main() -> Result<(), towpath::Error> {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    let (me, ranks) = (world.rank(), world.size());

    endpoint.set_handler(GREETING, move |greeting| {
        println!("rank {me} of {ranks}: rank {} says hello", greeting.args()[0]);
        if let Err(error) = greeting.reply(ANSWER, &[me]) {
            eprintln!("rank {me}: no reply: {error}");
        }
    });
    let answers = Arc::new(AtomicU32::new(0));
    let answered = answers.clone();
    endpoint.set_handler(ANSWER, move |answer| {
        println!("rank {me} of {ranks}: rank {} has answered", answer.args()[0]);
        answered.fetch_add(1, Relaxed);
    });

    let everybody = Leaving::announce(&endpoint);
    endpoint.map_world()?; // entry r of the translation table leads to rank r
    endpoint.request(((me + 1) % ranks) as usize, GREETING, &[me])?;
    endpoint.poll_until(|| answers.load(Relaxed) == 1);

    // Whoever greets us may come later: nobody leaves before everybody has been answered.
    everybody.leave(&endpoint)
}

/// A barrier that goes on answering (`World::barrier` does not poll): rank 0 counts those who are ready and then lets all go.
struct Leaving {
    ready: Arc<AtomicU32>,
    go: Arc<AtomicU32>,
}

const READY: u8 = 3;
const GO: u8 = 4;

impl Leaving {
    fn announce(endpoint: &Endpoint) -> Leaving {
        let (ready, go) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (count, flag) = (ready.clone(), go.clone());
        endpoint.set_handler(READY, move |_| {
            count.fetch_add(1, Relaxed);
        });
        endpoint.set_handler(GO, move |_| flag.store(1, Relaxed));
        Leaving { ready, go }
    }

    fn leave(&self, endpoint: &Endpoint) -> Result<(), towpath::Error> {
        let (me, ranks) = (endpoint.world().rank(), endpoint.world().size());
        endpoint.request(0, READY, &[])?;
        if me == 0 {
            endpoint.poll_until(|| self.ready.load(Relaxed) == ranks);
            for rank in 0..ranks {
                endpoint.request(rank as usize, GO, &[])?;
            }
        }
        endpoint.poll_until(|| self.go.load(Relaxed) == 1);
        Ok(())
    }
}
