//! A ring of requests: every rank greets the next one and waits for the answer.
//!
//! ```text
//! towpath run -n 4 target/release/examples/hello
//! ```

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::channel;

use towpath::{Endpoint, World};

const GREETING: u8 = 1;
const ANSWER: u8 = 2;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    let (me, ranks) = (world.rank(), world.size());

    // What handlers have to say is printed afterwards: a handler that waits for a terminal holds up
    // others.
    let (say, said) = channel();
    let greeted = say.clone();
    endpoint.set_handler(GREETING, move |greeting| {
        let &[from] = greeting.args() else { return };
        let _ = greeted.send(match greeting.reply(ANSWER, &[me]) {
            Ok(()) => Ok(format!("rank {me} of {ranks}: rank {from} says hello")),
            Err(error) => Err(format!("rank {me}: no reply to rank {from}: {error}")),
        });
    });
    let answers = Arc::new(AtomicU32::new(0));
    let answered = answers.clone();
    endpoint.set_handler(ANSWER, move |answer| {
        let &[from] = answer.args() else { return };
        let _ = say.send(Ok(format!("rank {me} of {ranks}: rank {from} has answered")));
        answered.fetch_add(1, Relaxed);
    });

    let everybody = Leaving::announce(&endpoint);
    endpoint.map_world()?; // entry r of the translation table leads to rank r
    endpoint.request(((me + 1) % ranks) as usize, GREETING, &[me])?;
    endpoint.poll_until(|| answers.load(Relaxed) >= 1);

    // Whoever greets us may come later: nobody leaves before everybody has been answered.
    everybody.leave(&endpoint)?;
    for line in said.try_iter() {
        writeln!(std::io::stdout(), "{}", line?)?;
    }
    Ok(())
}

/// A barrier that goes on answering (`World::barrier` does not poll): rank 0 counts those
/// who are ready and then lets all go.
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

    fn leave(&self, endpoint: &Endpoint) -> Outcome {
        let (me, ranks) = (endpoint.world().rank(), endpoint.world().size());
        endpoint.request(0, READY, &[])?;
        if me == 0 {
            endpoint.poll_until(|| self.ready.load(Relaxed) >= ranks);
            for rank in 0..ranks {
                endpoint.request(rank as usize, GO, &[])?;
            }
        }
        endpoint.poll_until(|| self.go.load(Relaxed) == 1);
        Ok(())
    }
}
