//! The crash test: a world under load, whose members are killed at random instants and
//! replaced.
//!
//! Every member sends numbered requests of all forms to every other, and replies to what it gets. A
//! supervisor outside the world kills a random one, tells the world (as `towpath run` does), waits
//! until the survivors go on and until all that the victim had certainly sent to survivors has
//! arrived there, and starts a successor. The numbers of a link (one incarnation of a sender to one
//! of a receiver) are consecutive, so that its receiver sees a loss as a gap and a repetition as a
//! step back; what was sent last has no successor to show the gap, and is compared with the
//! sender's own count.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use towpath::{Algorithm, Endpoint, Name, Payload, Policy, Tag, World, WorldConfig};

use crate::transport::{Crash, Run};
use towpath_host::Error;
use towpath_host::process::{Child, SharedPages, fork_on, wait};

/// How many members.
const MEMBERS: usize = 8;
/// Small blocks, so that a transfer has several.
const BLOCK: u32 = 1024;
const LONG: usize = 2500;
/// How long anything may take that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

const SHORT: u8 = 1;
const MEDIUM: u8 = 2;
const STORED: u8 = 3;
const REPLY: u8 = 4;

/// The words that members and supervisor share.
struct Board {
    pages: SharedPages,
}

impl Board {
    fn new() -> Result<Board, Error> {
        Ok(Board { pages: SharedPages::new(4 * MEMBERS * MEMBERS + 4 * MEMBERS + 8)? })
    }
    fn link(&self, table: usize, from: usize, to: usize) -> &AtomicU64 {
        self.pages.word(table * MEMBERS * MEMBERS + from * MEMBERS + to)
    }
    /// Sender's side: how many of a link's messages were certainly published, and to
    /// which incarnation.
    fn sent(&self, from: usize, to: usize) -> &AtomicU64 {
        self.link(0, from, to)
    }
    fn sent_to(&self, from: usize, to: usize) -> &AtomicU64 {
        self.link(1, from, to)
    }
    /// Receiver's side: how many have arrived, and from which incarnation.
    fn arrived(&self, from: usize, to: usize) -> &AtomicU64 {
        self.link(2, from, to)
    }
    fn arrived_from(&self, from: usize, to: usize) -> &AtomicU64 {
        self.link(3, from, to)
    }
    fn member(&self, table: usize, member: usize) -> &AtomicU64 {
        self.pages.word(4 * MEMBERS * MEMBERS + table * MEMBERS + member)
    }
    /// The name of a member's present incarnation.
    fn name(&self, member: usize) -> &AtomicU64 {
        self.member(0, member)
    }
    /// The newest epoch of which a survivor's message has arrived.
    fn seen(&self, member: usize) -> &AtomicU64 {
        self.member(1, member)
    }
    /// 1: sends no more; 2: has audited.
    fn finished(&self, member: usize) -> &AtomicU64 {
        self.member(2, member)
    }
    fn leaked(&self, member: usize) -> &AtomicU64 {
        self.member(3, member)
    }
    fn word(&self, n: usize) -> &AtomicU64 {
        self.pages.word(4 * MEMBERS * MEMBERS + 4 * MEMBERS + n)
    }
    /// How many kills there have been.
    fn epoch(&self) -> &AtomicU64 {
        self.word(0)
    }
    /// 1: send no more; 2: audit and leave.
    fn stop(&self) -> &AtomicU64 {
        self.word(1)
    }
    fn lost(&self) -> &AtomicU64 {
        self.word(2)
    }
    fn duplicated(&self) -> &AtomicU64 {
        self.word(3)
    }
    /// A message came back although its destination lives: a queue was closed.
    fn closed(&self) -> &AtomicU64 {
        self.word(4)
    }
    fn damaged(&self) -> &AtomicU64 {
        self.word(5)
    }
}

// All words of the board: Acquire and Release (or stronger), so that a count is never newer than
// what it counts.
fn read(word: &AtomicU64) -> u64 {
    word.load(Ordering::Acquire)
}
fn write(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Release);
}
fn bump(word: &AtomicU64, by: u64) {
    word.fetch_add(by, Ordering::AcqRel);
}

/// The bytes of message number `seq`.
fn filler(seq: u32, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |n| (n as u32).wrapping_mul(7).wrapping_add(seq) as u8)
}

/// A member's part, until it is killed or told to stop.
fn member(world: &World, rank: usize, board: &'static Board, seed: u64) -> Result<(), towpath::Error> {
    world.enter(Some(rank as u32))?;
    let endpoint = Endpoint::with_private_segment(world, MEMBERS * LONG)?;
    // Which of the others have turned out to be dead or closed, by name.
    let gone: Arc<Mutex<Vec<Name>>> = Arc::default();
    let came_back = gone.clone();
    endpoint.set_handler(0, move |message| {
        if let (Some(returned), Ok(mut gone)) = (message.returned(), came_back.lock()) {
            gone.push(returned.destination);
        }
    });
    endpoint.set_handler(REPLY, |_| {});
    // Arguments: number, epoch, the sender's rank.
    let receive = move |message: &towpath::Token<'_>| {
        let &[seq, epoch, from] = message.args() else { return bump(board.damaged(), 1) };
        let from = (from as usize).min(MEMBERS - 1);
        let source = message.source().to_bits();
        let mut expected = read(board.arrived(from, rank));
        if read(board.arrived_from(from, rank)) != source {
            write(board.arrived(from, rank), 0);
            write(board.arrived_from(from, rank), source);
            expected = 0;
        }
        let number = u64::from(seq);
        if number < expected {
            return bump(board.duplicated(), 1);
        }
        bump(board.lost(), number - expected);
        write(board.arrived(from, rank), number + 1);
        board.seen(rank).fetch_max(u64::from(epoch), Ordering::AcqRel);
        let right = match message.payload() {
            Payload::None => true,
            Payload::Medium(bytes) => bytes.iter().copied().eq(filler(seq, bytes.len())),
            Payload::Long { offset, len } => {
                let mut bytes = [0; LONG];
                message.segment().read(offset, &mut bytes);
                len == LONG as u64 && bytes.into_iter().eq(filler(seq, LONG))
            }
        };
        if !right {
            bump(board.damaged(), 1);
        }
        if seq % 4 == 0 {
            // A request is replied to once: this can't fail; a requester that is gone by now does
            // not count.
            let _ = message.reply(REPLY, &[seq]);
        }
    };
    for handler in [SHORT, MEDIUM, STORED] {
        endpoint.set_handler(handler, receive);
    }
    for other in 0..MEMBERS {
        // What our predecessor has got and sent is no concern of ours: all links begin anew.
        write(board.arrived_from(other, rank), 0);
        write(board.sent(rank, other), 0);
    }
    write(board.name(rank), endpoint.name().to_bits());

    let mut links: HashMap<usize, (Name, u32)> = HashMap::new();
    let mut random = seed | 1;
    let mut burst = 0u32;
    while read(board.stop()) == 0 {
        for name in gone.lock().map(|mut gone| std::mem::take(&mut *gone)).unwrap_or_default() {
            let Some((&to, _)) = links.iter().find(|(_, link)| link.0 == name) else { continue };
            links.remove(&to);
            if endpoint.name_of_rank(to as u32) == Some(name) {
                bump(board.closed(), 1);
            }
        }
        for to in (0..MEMBERS).filter(|&to| to != rank) {
            if !links.contains_key(&to)
                && let Some(name) = endpoint.name_of_rank(to as u32)
                && endpoint.map(to, name, Tag::ALL).is_ok()
            {
                write(board.sent(rank, to), 0);
                write(board.sent_to(rank, to), name.to_bits());
                links.insert(to, (name, 0));
            }
        }
        for (&to, (_, seq)) in &mut links {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let args = [*seq, read(board.epoch()) as u32, rank as u32];
            match random % 32 {
                0 => {
                    let bytes: Vec<u8> = filler(*seq, LONG).collect();
                    endpoint.request_long(to, STORED, &args, &bytes, (rank * LONG) as u64)?;
                }
                1..=4 => {
                    let bytes: Vec<u8> = filler(*seq, (random >> 8) as usize % BLOCK as usize).collect();
                    endpoint.request_medium(to, MEDIUM, &args, &bytes)?;
                }
                _ => endpoint.request(to, SHORT, &args)?,
            }
            *seq += 1;
            write(board.sent(rank, to), u64::from(*seq));
        }
        endpoint.poll();
        burst += 1;
        if burst.is_multiple_of(8) {
            // More members than cores: let the others have their turn before the time slice ends.
            std::thread::yield_now();
        }
    }
    write(board.finished(rank), 1);
    endpoint.poll_until(|| read(board.stop()) == 2);
    endpoint.recover();
    while endpoint.poll() > 0 {}
    let audit = endpoint.audit();
    let leaked = audit.request_packets + audit.request_blocks + audit.reply_packets + audit.reply_blocks;
    write(board.leaked(rank), leaked);
    write(board.finished(rank), 2);
    Ok(())
}

/// The world and its members, seen by the supervisor.
struct Storm {
    world: World,
    board: &'static Board,
    members: Vec<Child>,
    seed: u64,
    placement: Vec<Option<usize>>,
}

impl Storm {
    fn start(&mut self, rank: usize) -> Result<Child, Error> {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (world, board, seed) = (&self.world, self.board, self.seed >> 16);
        write(board.name(rank), 0);
        fork_on(self.placement[rank], || match member(world, rank, board, seed) {
            Ok(()) => 0,
            Err(error) => {
                towpath_report::console::remark(format_args!("member {rank}: {error}"));
                3
            }
        })
    }

    /// Waits for something that must come, with a look at whether everybody is still
    /// there.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) -> Result<(), Error> {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > PATIENCE {
                let place = format!("waiting for {what} after {} kills", read(self.board.epoch()));
                return Err(Error::Stuck { seconds: PATIENCE.as_secs(), place });
            }
            if read(self.board.closed()) > 0 {
                return Err(Error::NotAvailable(format!(
                    "after {} kills one died holding the lock of a living endpoint's queue, which this algorithm cannot repair: the queue was closed, and its senders were told",
                    read(self.board.epoch())
                )));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// What a link's sender certainly published and its receiver has not got, if both
    /// ends are still (or were, at the sender's death) those of the link.
    fn missing(&self, from: usize, to: usize) -> u64 {
        let b = self.board;
        let (sender, receiver) = (read(b.name(from)), read(b.name(to)));
        let sent = read(b.sent(from, to));
        if sender == 0 || receiver == 0 || sent == 0 || read(b.sent_to(from, to)) != receiver {
            return 0;
        }
        if read(b.arrived_from(from, to)) != sender {
            return sent;
        }
        sent.saturating_sub(read(b.arrived(from, to)))
    }

    fn kill(&mut self, victim: usize, result: &mut Crash) -> Result<(), Error> {
        let board = self.board;
        let at = Instant::now();
        self.members[victim].kill();
        // The epoch after the kill: a message that carries it was sent by a survivor.
        let epoch = read(board.epoch()) + 1;
        write(board.epoch(), epoch);
        let pid = self.members[victim].pid() as u32;
        wait(&mut self.members[victim], Instant::now() + PATIENCE)?;
        self.world.process_ended(victim as u32, pid, true);
        let others: Vec<usize> = (0..MEMBERS).filter(|&m| m != victim).collect();
        self.until("the survivors to go on", || others.iter().all(|&m| read(board.seen(m)) >= epoch))?;
        result.recovery_us.push(at.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        let missing = || others.iter().map(|&m| self.missing(victim, m)).sum::<u64>();
        self.until("the victim's last messages", || missing() == 0 || start.elapsed() > PATIENCE / 4)?;
        result.lost += missing();
        result.kills += 1;
        self.members[victim] = self.start(victim)?;
        Ok(())
    }
}

/// Runs the test.
pub fn run(algorithm: Algorithm, policy: Policy, kills: u32, run: &Run<'_>) -> Result<Crash, Error> {
    let config = WorldConfig {
        algorithm,
        waiting: policy,
        packets: 128,
        blocks: 8,
        block_size: BLOCK,
        ..WorldConfig::new(MEMBERS as u32)
    };
    let world = towpath::create(None, &config).map_err(|e| Error::Other(Box::new(e)))?;
    // Handlers need it for as long as the process lives; one small mapping for each test.
    let board: &'static Board = Box::leak(Box::new(Board::new()?));
    let placement = (0..MEMBERS).map(|n| run.placement.core_for(n, MEMBERS)).collect();
    let mut storm = Storm { world, board, members: Vec::new(), seed: run.seed, placement };
    for rank in 0..MEMBERS {
        let child = storm.start(rank)?;
        storm.members.push(child);
    }
    storm.until("all members to be there", || (0..MEMBERS).all(|m| read(board.name(m)) != 0))?;
    let mut result = Crash::default();
    for _ in 0..kills {
        storm.seed =
            storm.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let random = storm.seed >> 33;
        let victim = random as usize % MEMBERS;
        // Mostly while it is at work, sometimes while it starts.
        storm.until("the victim", || read(board.name(victim)) != 0 || random.is_multiple_of(64))?;
        std::thread::sleep(Duration::from_micros(random / 64 % 2000));
        storm.kill(victim, &mut result)?;
    }
    storm.until("all members to be there", || (0..MEMBERS).all(|m| read(board.name(m)) != 0))?;
    write(board.stop(), 1);
    storm.until("all members to stop sending", || (0..MEMBERS).all(|m| read(board.finished(m)) >= 1))?;
    let pairs = || (0..MEMBERS).flat_map(|a| (0..MEMBERS).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let missing = || pairs().map(|(a, b)| storm.missing(a, b)).sum::<u64>();
    let start = Instant::now();
    storm.until("the last messages", || missing() == 0 || start.elapsed() > PATIENCE / 4)?;
    result.lost += missing() + read(board.lost());
    // A message with the wrong contents is as good as lost.
    result.lost += read(board.damaged());
    result.duplicated = read(board.duplicated());
    write(board.stop(), 2);
    for child in &mut storm.members {
        wait(child, Instant::now() + PATIENCE)?;
    }
    result.leaked_slots = (0..MEMBERS).map(|m| read(board.leaked(m))).sum();
    Ok(result)
}
