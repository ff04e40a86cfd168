//! Ranks of the tests: this program once more, started by the launchers.
//!
//! `RANK_DOES` says what. A rank that fails ends with an exit code other than 0; one that has
//! something to say begins its line with `rank`.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath::machine::Random;
use towpath::mplock::Manager;
use towpath::{Endpoint, Error, Operation, Payload, Policy, Status, World, WorldError};

const RETURNED: u8 = 0;
const COUNT: u8 = 1; // counts
const ASK: u8 = 2; // replies to `ANSWER`
const ANSWER: u8 = 3;
const ASK_WRONG: u8 = 4; // replies to a handler that no rank has
const ASK_LONG: u8 = 5; // replies with bytes
const NONE: u8 = 9;

/// Packets of a queue of such a world (`--packets`).
pub const PACKETS: u32 = 16;

/// The command for a rank that does this.
pub fn program(does: &str) -> Vec<String> {
    let test = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let does = format!("RANK_DOES={does}");
    let words = ["env", &does, &test, "run_hosts::ranks::rank", "--exact", "--ignored", "--nocapture"];
    words.map(str::to_owned).to_vec()
}

#[test]
#[ignore = "what the launchers of the other tests start"]
fn rank() {
    let does = std::env::var("RANK_DOES").expect("started by a launcher");
    let world = World::join().unwrap();
    match &*does {
        "barrier" => stand_at_barriers(&world),
        "manager-barrier" => stand_at_managers_barriers(&world),
        "full" => fill_queues(&world),
        "closed" => close_before_senders(&world),
        "rejected" => reply_to_no_handler(&world),
        "talk" => talk(&world),
        other => panic!("{other}?"),
    }
}

/// Number that handlers count up.
#[derive(Clone, Default)]
struct Count(Arc<AtomicU32>);

impl Count {
    fn set(&self, endpoint: &Endpoint, handler: u8) {
        let count = self.0.clone();
        endpoint.set_handler(handler, move |_| {
            count.fetch_add(1, Relaxed);
        });
    }

    fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// Writes a line that a test reads, whole.
fn say(text: &str) {
    // Not what the test's frame captures; the test that reads it misses what is lost.
    #[allow(clippy::disallowed_methods)]
    std::io::stdout().write_all(format!("{text}\n").as_bytes()).unwrap();
}

/// Rank 0 has its queue filled twice over by two hosts, and waits without polling.
fn stand_at_barriers(world: &World) {
    let endpoint = Endpoint::new(world).unwrap();
    let count = Count::default();
    count.set(&endpoint, COUNT);
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    for round in 1..=10 {
        if world.rank() > 0 {
            (0..PACKETS).for_each(|_| endpoint.request(0, COUNT, &[]).unwrap());
        }
        world.barrier(Policy::default()).unwrap();
        if world.rank() == 0 {
            endpoint.poll_until(|| count.get() == round * 2 * PACKETS);
        }
        endpoint.barrier().unwrap();
    }
}

/// The managers' barrier handles messages that were sent before it.
fn stand_at_managers_barriers(world: &World) {
    let manager = Manager::new(world).unwrap();
    let endpoint = manager.endpoint().unwrap();
    let count = Count::default();
    count.set(endpoint, COUNT);
    let lock = manager.lock("of all hosts");
    manager.barrier().unwrap();
    for round in 1..=10 {
        if world.rank() > 0 {
            (0..PACKETS).for_each(|_| endpoint.request(0, COUNT, &[]).unwrap());
        }
        manager.barrier().unwrap();
        // Those in the queue when it ended are found by a poll.
        while manager.poll() > 0 {}
        assert!(world.rank() > 0 || count.get() == round * 2 * PACKETS, "{} in {round}", count.get());
        drop(lock.acquire().unwrap());
        manager.barrier().unwrap();
    }
}

/// Messages that came back: why, which operation, its first argument.
type Back = Arc<Mutex<Vec<(Status, Operation, u32)>>>;

/// Has handler 0 note messages that come back.
fn note_returned(endpoint: &Endpoint) -> Back {
    let back = Back::default();
    let note = back.clone();
    endpoint.set_handler(RETURNED, move |message| {
        let why = message.returned().unwrap();
        note.lock().unwrap().push((why.status, why.operation, message.args()[0]));
    });
    back
}

/// Rank 0 does not poll while two hosts fill its queue: each gets as many messages out
/// as a queue takes, and all arrive in order once it polls.
fn fill_queues(world: &World) {
    let endpoint = Endpoint::new(world).unwrap();
    let back = note_returned(&endpoint);
    let seen: Arc<Mutex<HashMap<u32, u32>>> = Arc::default();
    let note = seen.clone();
    endpoint.set_handler(COUNT, move |message| {
        let &[from, n] = message.args() else { panic!("two arguments") };
        let mut seen = note.lock().unwrap();
        let next = seen.entry(from).or_default();
        assert_eq!(n, *next, "from {from}");
        *next += 1;
        if let Payload::Medium(bytes) = message.payload() {
            assert_eq!(bytes, [n as u8; 700]);
        }
    });
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    // From here on rank 0 does not poll.
    world.barrier(Policy::default()).unwrap();
    let me = world.rank();
    let mut sent = 0;
    if me > 0 {
        loop {
            let result = match me {
                1 => endpoint.try_request(0, COUNT, &[me, sent]),
                _ => endpoint.try_request_medium(0, COUNT, &[me, sent], &[sent as u8; 700]),
            };
            match result {
                Ok(()) => sent += 1,
                Err(Error::NotSent) => break,
                Err(other) => panic!("{other}"),
            }
        }
        assert!(sent <= PACKETS && (me != 1 || sent == PACKETS), "{sent} of rank {me}");
    }
    world.barrier(Policy::default()).unwrap();
    if me > 0 {
        // Some more wait for space, which comes as rank 0 polls.
        (sent..sent + 100).for_each(|n| endpoint.request(0, COUNT, &[me, n]).unwrap());
    } else {
        endpoint.poll_until(|| {
            let seen = seen.lock().unwrap();
            let of = |rank| seen.get(&rank).copied().unwrap_or(0);
            of(1) == PACKETS + 100 && of(2) > 100
        });
    }
    endpoint.barrier().unwrap();
    assert_eq!(*back.lock().unwrap(), []);
}

/// Rank 0 closes its endpoint with messages in its queue, and at its gateway: each is
/// answered or comes back with the reason.
fn close_before_senders(world: &World) {
    let endpoint = Endpoint::new(world).unwrap();
    let back = note_returned(&endpoint);
    let answers = Count::default();
    answers.set(&endpoint, ANSWER);
    let handled = Count::default();
    let note = handled.0.clone();
    endpoint.set_handler(ASK, move |message| {
        note.fetch_add(1, Relaxed);
        message.reply(ANSWER, &[0]).unwrap();
    });
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    // From here on rank 0 does not poll.
    world.barrier(Policy::default()).unwrap();
    if world.rank() == 0 {
        world.barrier(Policy::default()).unwrap();
        // Some are handled, the rest is in the queue, or waits for space.
        while handled.get() == 0 {
            endpoint.poll();
        }
        drop(endpoint);
        world.barrier(Policy::default()).unwrap();
        return;
    }
    (0..PACKETS).for_each(|n| endpoint.request(0, ASK, &[n]).unwrap());
    world.barrier(Policy::default()).unwrap();
    let returned = || back.lock().unwrap().len() as u32;
    endpoint.poll_until(|| answers.get() + returned() >= PACKETS);
    assert_eq!(answers.get() + returned(), PACKETS);
    for (expected, &(status, operation, n)) in (answers.get()..).zip(back.lock().unwrap().iter()) {
        assert_eq!((status, operation, n), (Status::BadEndpoint, Operation::RequestShort, expected));
    }
    // Messages that are sent after the end come back, too.
    endpoint.request_medium(0, ASK, &[77], b"late").unwrap();
    endpoint.poll_until(|| answers.get() + returned() > PACKETS);
    assert_eq!(back.lock().unwrap().last(), Some(&(Status::BadEndpoint, Operation::RequestMedium, 77)));
    world.barrier(Policy::default()).unwrap();
}

/// Replies that their requester has no handler for come back to the replier.
fn reply_to_no_handler(world: &World) {
    let endpoint = Endpoint::new(world).unwrap();
    let back = note_returned(&endpoint);
    endpoint.set_handler(ASK_WRONG, |message| {
        let n = message.args()[0];
        match n % 2 {
            0 => message.reply(NONE, &[n]).unwrap(),
            _ => message.reply_medium(NONE, &[n], b"bytes").unwrap(),
        }
    });
    endpoint.map_world().unwrap();
    endpoint.barrier().unwrap();
    if world.rank() > 0 {
        (0..40).for_each(|n| endpoint.request(0, ASK_WRONG, &[n]).unwrap());
    } else {
        endpoint.poll_until(|| back.lock().unwrap().len() == 80);
        for &(status, operation, n) in back.lock().unwrap().iter() {
            let expected = [Operation::ReplyShort, Operation::ReplyMedium][n as usize % 2];
            assert_eq!((status, operation), (Status::ReplyRejected, expected));
        }
    }
    endpoint.barrier().unwrap();
    assert_eq!(back.lock().unwrap().len(), if world.rank() == 0 { 80 } else { 0 });
}

/// Requests of a rank that are neither answered nor returned, with their receivers.
type Open = Arc<Mutex<HashMap<u32, u32>>>;

/// Time for which a rank waits for the end of its requests before it says which are open.
const PATIENCE: Duration = Duration::from_secs(40);

/// Ranks ask each other at random until one is gone, and then wait until each of their
/// requests was answered or has come back.
fn talk(world: &World) {
    let endpoint = Endpoint::new(world).unwrap();
    let (me, ranks) = (world.rank(), world.size());
    let open = Open::default();
    endpoint.set_handler(ASK, |message| message.reply(ANSWER, message.args()).unwrap());
    endpoint.set_handler(ASK_LONG, |message| {
        let Payload::Medium(bytes) = message.payload() else { panic!("bytes") };
        message.reply_medium(ANSWER, message.args(), bytes).unwrap();
    });
    let settled = open.clone();
    endpoint.set_handler(ANSWER, move |message| {
        settled.lock().unwrap().remove(&message.args()[0]);
    });
    let settled = open.clone();
    endpoint.set_handler(RETURNED, move |message| {
        let why = message.returned().unwrap();
        assert_eq!(why.status, Status::Unreachable, "{:?}", why.operation);
        if why.operation.is_request() {
            settled.lock().unwrap().remove(&message.args()[0]);
        }
    });
    let mapped = endpoint.map_world();
    assert!(matches!(mapped, Ok(()) | Err(Error::World(WorldError::MemberDied { .. }))), "{mapped:?}");
    let _ = endpoint.barrier();
    // On a line of its own, whatever the test's frame has begun.
    say(&format!("\nrank {me} asks (process {})", std::process::id()));
    let mut random = Random::new(u64::from(std::process::id()));
    let mut asked = 0u32;
    let begun = Instant::now();
    let mut after_death = 0;
    while after_death < 200 && begun.elapsed() < PATIENCE {
        after_death += u32::from(world.deaths() > 0);
        let to = random.below(u64::from(ranks)) as u32;
        if endpoint.mapping(to as usize).is_none() {
            continue;
        }
        open.lock().unwrap().insert(asked, to);
        match random.below(3) {
            0 => endpoint.request_medium(to as usize, ASK_LONG, &[asked], &[7; 900]).unwrap(),
            _ => endpoint.request(to as usize, ASK, &[asked]).unwrap(),
        }
        asked += 1;
        if random.below(20) == 0 {
            endpoint.poll_until(|| open.lock().unwrap().len() < 200 || world.deaths() > 0);
        }
    }
    let begun = Instant::now();
    endpoint.poll_until(|| open.lock().unwrap().is_empty() || begun.elapsed() > PATIENCE);
    let dead: Vec<u32> = (0..ranks).filter(|&rank| world.has_died(rank)).collect();
    assert!(open.lock().unwrap().is_empty(), "rank {me}, without {dead:?}: {:?}", open.lock().unwrap());
    // The others may still want answers.
    while let Err(Error::World(WorldError::MemberDied { .. })) = endpoint.barrier() {}
    say(&format!("\nrank {me}: {asked} requests are settled; dead: {dead:?}"));
}
