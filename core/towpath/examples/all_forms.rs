//! A ring in which each rank sends the next one messages of all forms, and gets back four
//! that can't be delivered, with their reasons. One text for one host and for several:
//!
//! ```text
//! towpath run -n 4 target/release/examples/all_forms
//! towpath run --hosts localhost:2,other:2 target/release/examples/all_forms
//! ```

use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use towpath::{Endpoint, Payload, Status, Tag, World};

const RETURNED: u8 = 0; // handler 0 gets what could not be delivered
const TAKE: u8 = 1;
const ANSWER: u8 = 2;
const NONE: u8 = 3; // no rank has this handler

/// Number of rounds: each is a short, a medium and a long message.
const ROUNDS: u32 = 20;
/// Number of bytes of a long message.
const LONG: usize = 1 << 20;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Number that handlers count up.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

fn main() -> Outcome {
    let world = World::join()?;
    let endpoint = Endpoint::with_private_segment(&world, LONG)?;
    let (me, ranks) = (world.rank(), world.size());
    endpoint.set_tag(Tag(7));

    let (taken, wrong) = (Count::default(), Count::default());
    let (t, w) = (taken.clone(), wrong.clone());
    endpoint.set_handler(TAKE, move |message| {
        let &[round] = message.args() else { return w.add() };
        let (first, len) = match message.payload() {
            Payload::None => (round as u8, 0),
            Payload::Medium(bytes) => (bytes[0], bytes.len()),
            Payload::Long { offset, len } => {
                let mut bytes = [0; 1];
                message.segment().read(offset + len - 1, &mut bytes);
                (bytes[0], len as usize)
            }
        };
        let expected = [0, 1000, LONG][t.get() as usize % 3];
        if first != round as u8 || len != expected || t.get() / 3 != round {
            w.add(); // changed, or not in order
        }
        t.add();
        // Its requester waits for it, or is dead.
        let _ = message.reply(ANSWER, &[round]);
    });
    let answers = Count::default();
    let a = answers.clone();
    endpoint.set_handler(ANSWER, move |_| a.add());
    let back: Arc<Mutex<Vec<Status>>> = Arc::default();
    let b = back.clone();
    endpoint.set_handler(RETURNED, move |message| {
        let Some(why) = message.returned() else { return };
        b.lock().unwrap_or_else(PoisonError::into_inner).push(why.status);
    });
    let statuses = || back.lock().unwrap_or_else(PoisonError::into_inner).clone();

    endpoint.map_world()?;
    let next = ((me + 1) % ranks) as usize;
    let name = endpoint.mapping(next).ok_or("the next rank has no endpoint")?.0;
    endpoint.map(next, name, Tag(7))?;
    let stranger = ranks as usize;
    endpoint.map(stranger, name, Tag(8))?;
    endpoint.request(stranger, TAKE, &[0])?;
    endpoint.request(next, NONE, &[])?;
    endpoint.request_long(next, TAKE, &[0], &[0; 8], 2 * LONG as u64)?;
    endpoint.request_long(next, TAKE, &[0], &[0; 8], LONG as u64 - 4)?;
    let expected = [Status::BadTag, Status::BadHandler, Status::BadSegmentOffset, Status::BadLength];
    let bytes = vec![0; LONG];
    for round in 0..ROUNDS {
        endpoint.request(next, TAKE, &[round])?;
        endpoint.request_medium(next, TAKE, &[round], &[round as u8; 1000])?;
        let mut bytes = bytes.clone();
        bytes[LONG - 1] = round as u8;
        endpoint.request_long(next, TAKE, &[round], &bytes, 0)?;
    }
    endpoint.poll_until(|| answers.get() == 3 * ROUNDS && statuses().len() == expected.len());
    endpoint.barrier()?;
    let here = if world.is_local(next as u32) { "here" } else { "on another host" };
    writeln!(
        std::io::stdout(),
        "rank {me}: {} messages from the rank before, {} answers from rank {next} {here}, {} came back",
        taken.get(),
        answers.get(),
        statuses().len()
    )?;
    if statuses() != expected {
        return Err(format!("rank {me}: came back as {:?}, not {expected:?}", statuses()).into());
    }
    match wrong.get() {
        0 => Ok(()),
        n => Err(format!("rank {me}: {n} messages were not as they were sent").into()),
    }
}
