//! Ranks that ask each other until one of them is gone: kill one, or cut the network
//! between two hosts, and see that each question is answered or comes back.
//!
//! ```text
//! towpath run -n 4 --on-death=report target/release/examples/questions
//! towpath run --hosts localhost:2,other:2 --on-death=report target/release/examples/questions
//! ```
//!
//! An argument gives the number of seconds after which the ranks stop in any case.

use std::cell::Cell;
use std::io::Write;
use std::rc::Rc;
use std::time::{Duration, Instant};

use towpath::{Endpoint, Error, Status, World, WorldError};

const RETURNED: u8 = 0; // handler 0 gets what could not be delivered
const QUESTION: u8 = 1;
const ANSWER: u8 = 2;

/// Maximum number of questions without an answer.
const OPEN: u32 = 100;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let seconds = std::env::args().nth(1).map_or(Ok(60), |text| text.parse())?;
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    let (me, ranks) = (world.rank(), world.size());

    endpoint.set_handler(QUESTION, |question| {
        let &[n] = question.args() else { return };
        let _ = question.reply(ANSWER, &[n.wrapping_mul(n)]);
    });
    // Of this thread alone, as the endpoint is.
    let counts: [Rc<Cell<u32>>; 3] = Default::default();
    let [answered, back, wrong] = counts.clone();
    endpoint.set_local_handler(ANSWER, move |_| answered.set(answered.get() + 1));
    endpoint.set_local_handler(RETURNED, move |message| {
        let Some(why) = message.returned() else { return };
        // Answers to the dead come back, too.
        if why.operation.is_request() {
            back.set(back.get() + 1);
        }
        if why.status != Status::Unreachable {
            wrong.set(wrong.get() + 1);
        }
    });
    let [answered, back, wrong] = &counts;

    endpoint.map_world()?;
    endpoint.barrier()?;
    writeln!(std::io::stdout(), "rank {me} asks (process {})", std::process::id())?;
    let (start, mut asked) = (Instant::now(), 0u32);
    while start.elapsed() < Duration::from_secs(seconds) && world.deaths() == 0 {
        for rank in (0..ranks).filter(|&rank| rank != me) {
            endpoint.request(rank as usize, QUESTION, &[asked])?;
            asked += 1;
        }
        endpoint.poll_until(|| asked - answered.get().min(asked) <= OPEN || world.deaths() > 0);
    }
    endpoint.poll_until(|| answered.get() + back.get() >= asked);
    // The others may still want answers: until all that are left have theirs.
    while let Err(Error::World(WorldError::MemberDied { .. })) = endpoint.barrier() {}
    let dead: Vec<u32> = (0..ranks).filter(|&rank| world.has_died(rank)).collect();
    writeln!(
        std::io::stdout(),
        "rank {me}: {asked} questions, {} answers, {} came back; dead: {dead:?}",
        answered.get(),
        back.get()
    )?;
    match wrong.get() {
        0 => Ok(()),
        n => Err(format!("rank {me}: {n} messages came back although their receivers live").into()),
    }
}
