//! Long transfers out of the sender's memory, between processes.
//!
//! They arrive, or come back when a receiver is killed; one that is stopped gets them later, and
//! one that does not poll gets them through blocks.
//!
//! Where the system does not permit one process to read another's memory, all of it goes through
//! blocks, and the tests say so.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use towpath_am::{Endpoint, Name, Payload, Status, Tag, Token, WorldConfig};
use towpath_machine::Random;
use towpath_shm::{ParticipantId, RemoteBytes, World};
use towpath_testkit::{Child, Choice, shared_words, watchdog};

const SENDER: u32 = 0;
const RECEIVER: u32 = 1;
/// Handler of a transfer, and of its answer.
const TAKE: u8 = 1;
const ANSWER: u8 = 2;
/// Bytes of a transfer.
const LEN: usize = 100_000;

type Page = &'static [AtomicU64];
/// Words of the page: the receiver's name, transfers that it has handled, its orders.
const NAME: usize = 0;
const HANDLED: usize = 1;
const ORDER: usize = 2;

fn world() -> World {
    let config = WorldConfig { endpoints: 2, ..WorldConfig::new(2) };
    World::create(&config.spec(None)).unwrap()
}

fn enter(world: &World, rank: u32) -> (World, Endpoint) {
    let world = world.reopen().unwrap();
    world.enter(Some(rank)).unwrap();
    let endpoint = Endpoint::with_private_segment(&world, 2 * LEN).unwrap();
    (world, endpoint)
}

/// Contents of the transfer of that number.
fn contents(number: u32) -> Vec<u8> {
    (0..LEN as u32).map(|i| (i.wrapping_mul(7) ^ number.wrapping_mul(13)) as u8).collect()
}

/// Checks a transfer that has arrived; returns its number.
fn check(message: &Token<'_>) -> u32 {
    let number = message.args()[0];
    let offset = u64::from(number % 7);
    assert_eq!(message.payload(), Payload::Long { offset, len: LEN as u64 });
    let mut bytes = vec![0; LEN];
    message.segment().read(offset, &mut bytes);
    assert!(bytes == contents(number), "the bytes of transfer {number}");
    number
}

/// A receiver in a process of its own.
///
/// It polls while its orders are 0, sleeps while they are 1, and ends at 2.
fn receiver(world: &World, page: Page) -> Child {
    page.iter().for_each(|word| word.store(0, SeqCst));
    let child = Child::fork(|| {
        let (_world, endpoint) = enter(world, RECEIVER);
        endpoint.set_handler(TAKE, move |message| {
            let number = check(message);
            assert_eq!(u64::from(number), page[HANDLED].fetch_add(1, SeqCst), "in order, each once");
            message.reply(ANSWER, &[number]).unwrap();
        });
        page[NAME].store(endpoint.name().to_bits(), SeqCst);
        while page[ORDER].load(SeqCst) != 2 {
            if page[ORDER].load(SeqCst) == 0 {
                endpoint.poll();
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
    while page[NAME].load(SeqCst) == 0 {
        assert!(!child.has_ended(), "the receiver can't begin");
        std::thread::yield_now();
    }
    child
}

/// The sender: this process, with the numbers of its messages that came back.
struct Sender {
    world: World,
    endpoint: Endpoint,
    answered: Arc<AtomicU64>,
    returned: Arc<AtomicU64>,
    gone: Arc<AtomicBool>,
}

impl Sender {
    fn new(world: &World) -> Sender {
        let (world, endpoint) = enter(world, SENDER);
        let (answered, returned) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let gone = Arc::new(AtomicBool::new(false));
        let (count, back, end) = (answered.clone(), returned.clone(), gone.clone());
        endpoint.set_handler(ANSWER, move |_| _ = count.fetch_add(1, SeqCst));
        endpoint.set_handler(0, move |message| {
            let status = message.returned().map(|returned| returned.status);
            assert!(matches!(status, Some(Status::Unreachable | Status::BadEndpoint)), "{status:?}");
            back.fetch_add(1, SeqCst);
            end.store(true, SeqCst);
        });
        Sender { world, endpoint, answered, returned, gone }
    }

    fn map(&self, page: Page) {
        self.endpoint.map(0, Name::from_bits(page[NAME].load(SeqCst)), Tag::ALL).unwrap();
    }

    fn send(&self, number: u32) {
        let bytes = contents(number);
        self.endpoint.request_long(0, TAKE, &[number], &bytes, u64::from(number % 7)).unwrap();
    }
}

/// Returns whether the system permits reading a child's memory.
fn is_permitted(world: &World, page: Page) -> bool {
    let (ours, _endpoint) = enter(world, SENDER);
    let child = receiver(world, page);
    let permitted = {
        let id = ours.participant(RECEIVER).unwrap();
        // A forked child has this process's memory at the same addresses.
        let at = page.as_ptr().addr() as u64 + 8 * NAME as u64;
        let proof = page[NAME].load(SeqCst);
        let mut byte = [0];
        let right = ours.read_remote(id, RemoteBytes { address: at, proof_at: at, proof }, &mut byte);
        let wrong = RemoteBytes { address: at, proof_at: at, proof: proof + 1 };
        assert!(!ours.read_remote(id, wrong, &mut byte), "without the proof it is another process");
        let unmapped = RemoteBytes { address: 8, proof_at: at, proof };
        assert!(!ours.read_remote(id, unmapped, &mut byte), "nothing is there");
        let other = ParticipantId { generation: id.generation + 1, ..id };
        let bytes = RemoteBytes { address: at, proof_at: at, proof };
        assert!(!ours.read_remote(other, bytes, &mut byte), "another participant");
        right
    };
    page[ORDER].store(2, SeqCst);
    child.kill();
    permitted
}

fn transfers_arrive_in_order(page: Page, permitted: bool) {
    let world = world();
    let sender = Sender::new(&world);
    let child = receiver(&world, page);
    sender.map(page);
    // On a busy machine the receiver seldom comes in time, so until one was copied straight out of
    // this process. On a very busy one it never does; that transfers are taken at all is asserted
    // in `kill_every_step`, where the sender is stepped.
    let mut count = 0;
    while count < 300 || count < 2_000 && permitted && sender.endpoint.offers_taken() == 0 {
        sender.send(count);
        count += 1;
    }
    sender.endpoint.poll_until(|| sender.answered.load(SeqCst) == u64::from(count));
    assert_eq!(page[HANDLED].load(SeqCst), u64::from(count));
    let taken = sender.endpoint.offers_taken();
    println!("{:<40}{count:>8}{taken:>8}", "transfers arrive in order");
    page[ORDER].store(2, SeqCst);
    child.kill();
}

fn receiver_that_does_not_poll_gets_blocks(page: Page) {
    let world = world();
    let sender = Sender::new(&world);
    let child = receiver(&world, page);
    sender.map(page);
    page[ORDER].store(1, SeqCst);
    std::thread::sleep(Duration::from_millis(5));
    let taken = sender.endpoint.offers_taken();
    // Fits into the blocks.
    (0..2).for_each(|number| sender.send(number));
    assert_eq!((page[HANDLED].load(SeqCst), sender.endpoint.offers_taken()), (0, taken), "it sleeps");
    page[ORDER].store(0, SeqCst);
    sender.endpoint.poll_until(|| sender.answered.load(SeqCst) == 2);
    println!("{:<40}{:>8}{:>8}", "receiver that does not poll", 2, 0);
    page[ORDER].store(2, SeqCst);
    child.kill();
}

/// Receivers that are killed at random.
///
/// Each message was handled, or comes back; the one that was being handled may do both.
fn killed_receivers(page: Page, rounds: u64) {
    let mut random = Random::new(7);
    let (mut sent, mut taken) = (0, 0);
    for round in 0..rounds {
        watchdog::at(round);
        let world = world();
        let sender = Sender::new(&world);
        let child = receiver(&world, page);
        sender.map(page);
        let pid = child.pid();
        let after = Duration::from_micros(random.below(2_000));
        let killer = Child::fork(|| {
            std::thread::sleep(after);
            // SAFETY: a child of this process's parent, which has not waited for it.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        });
        let mut number = 0;
        while !sender.gone.load(SeqCst) {
            sender.send(number);
            number += 1;
            sender.endpoint.poll();
        }
        let end = Instant::now() + Duration::from_secs(5);
        let both = || page[HANDLED].load(SeqCst) + sender.returned.load(SeqCst);
        while both() < u64::from(number) && Instant::now() < end {
            sender.endpoint.poll();
            sender.endpoint.recover();
        }
        let both = both();
        assert!(
            (u64::from(number)..=u64::from(number) + 1).contains(&both),
            "{number} sent, {} handled, {} came back",
            page[HANDLED].load(SeqCst),
            sender.returned.load(SeqCst)
        );
        sent += number;
        taken += sender.endpoint.offers_taken();
        drop(killer);
        child.kill();
        sender.world.check_deaths();
    }
    println!("{:<40}{sent:>8}{taken:>8}", format!("{rounds} receivers killed"));
}

/// A receiver that is stopped is not dead: its messages arrive when it goes on.
fn stopped_receivers(page: Page, rounds: u64) {
    let world = world();
    let sender = Sender::new(&world);
    let child = receiver(&world, page);
    sender.map(page);
    let pid = child.pid();
    let stopper = Child::fork(|| {
        let mut random = Random::new(8);
        for _ in 0..rounds {
            std::thread::sleep(Duration::from_micros(random.below(1_000)));
            // SAFETY: a child of this process's parent, which has not waited for it.
            unsafe { libc::kill(pid as i32, libc::SIGSTOP) };
            std::thread::sleep(Duration::from_millis(2));
            // SAFETY: a child of this process's parent, which has not waited for it.
            unsafe { libc::kill(pid as i32, libc::SIGCONT) };
        }
    });
    let mut number = 0;
    while !stopper.has_ended() {
        sender.send(number);
        number += 1;
    }
    sender.endpoint.poll_until(|| sender.answered.load(SeqCst) == u64::from(number));
    assert_eq!((page[HANDLED].load(SeqCst), sender.returned.load(SeqCst)), (u64::from(number), 0));
    println!(
        "{:<40}{number:>8}{:>8}",
        format!("receiver stopped {rounds} times"),
        sender.endpoint.offers_taken()
    );
    page[ORDER].store(2, SeqCst);
    child.kill();
}

/// Two processes that send each other long requests, and answer with long replies.
///
/// None waits for ever for the other.
fn both_ways_at_once(page: Page) {
    const COUNT: u32 = 100;
    page.iter().for_each(|word| word.store(0, SeqCst));
    let world = world();
    let run = |rank: u32| {
        let (_world, endpoint) = enter(&world, rank);
        let replies = Rc::new(Cell::new(0));
        let answers = Arc::new(AtomicU64::new(0));
        let (heard, seen) = (Arc::new(AtomicU64::new(0)), answers.clone());
        let count = heard.clone();
        endpoint.set_handler(TAKE, move |message| {
            count.fetch_add(1, SeqCst);
            message.reply_long(ANSWER, &[], &contents(1), 0).unwrap();
        });
        endpoint.set_handler(ANSWER, move |_| _ = seen.fetch_add(1, SeqCst));
        page[rank as usize].store(endpoint.name().to_bits(), SeqCst);
        while page[1 - rank as usize].load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        let other = Name::from_bits(page[1 - rank as usize].load(SeqCst));
        endpoint.map(0, other, Tag::ALL).unwrap();
        for number in 0..COUNT {
            endpoint.request_long(0, TAKE, &[number], &contents(number), 0).unwrap();
        }
        let all = |count: &AtomicU64| count.load(SeqCst) == u64::from(COUNT);
        endpoint.poll_until(|| all(&answers) && all(&heard));
        replies.set(endpoint.offers_taken());
        page[2 + rank as usize].store(1 + replies.get(), SeqCst);
        while page[3 - rank as usize].load(SeqCst) == 0 {
            endpoint.poll();
        }
        replies.get()
    };
    let other = Child::fork(|| _ = run(1));
    let taken = run(0);
    while !other.has_ended() {
        std::thread::yield_now();
    }
    assert!(other.has_ended_well(), "the other process has failed");
    println!("{:<40}{:>8}{taken:>8}", "both ways at once", 2 * COUNT);
}

fn main() {
    let choice = Choice::from_arguments();
    let page = shared_words(8);
    let rounds = if choice.every() { 2_000 } else { 60 };
    watchdog::begin("permission".into(), 60);
    let permitted = is_permitted(&world(), page);
    if !permitted {
        println!("the system does not permit reading other processes' memory: all goes through blocks");
    }
    println!("{:<40}{:>8}{:>8}", "case", "sent", "taken");
    type Case = (&'static str, fn(Page, bool, u64));
    let cases: [Case; 5] = [
        ("order", |page, permitted, _| transfers_arrive_in_order(page, permitted)),
        ("asleep", |page, _, _| receiver_that_does_not_poll_gets_blocks(page)),
        ("killed", |page, _, rounds| killed_receivers(page, rounds)),
        ("stopped", |page, _, rounds| stopped_receivers(page, rounds)),
        ("both", |page, _, _| both_ways_at_once(page)),
    ];
    let mut count = 0;
    for (name, case) in cases.into_iter().filter(|(name, _)| choice.includes(&[name])) {
        watchdog::begin(name.into(), if choice.every() { 600 } else { 60 });
        case(page, permitted, rounds);
        count += 1;
    }
    println!("test result: ok. {count} passed; 0 failed");
}
