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
use towpath_machine::Random;

use crate::shared::{CrashBoard, MEMBERS};
use crate::transport::{Circumstances, Crash};
use towpath_host::Error;
use towpath_host::process::{Child, SharedRow, fork_on, wait};

/// Small blocks, so that a transfer has several.
const BLOCK: u32 = 1024;
const LONG: usize = 2500;
/// Time-out of steps that should take milliseconds.
const PATIENCE: Duration = Duration::from_secs(20);

const SHORT: u8 = 1;
const MEDIUM: u8 = 2;
const STORED: u8 = 3;
const REPLY: u8 = 4;

// All words of the board are read and written so that a count is never newer than what it counts.
fn read(word: &AtomicU64) -> u64 {
    // (X1) Acquire: what the writer did before is there; pairs with the Release (X2) in `write` and
    // with (X3).
    word.load(Ordering::Acquire)
}
fn write(word: &AtomicU64, value: u64) {
    // (X2) Release: pairs with the Acquire (X1) in `read`.
    word.store(value, Ordering::Release);
}
fn bump(word: &AtomicU64, by: u64) {
    // (X3) AcqRel: counts of several members in one order; pairs with the Acquire (X1) in `read`.
    word.fetch_add(by, Ordering::AcqRel);
}

/// The bytes of message number `seq`.
fn filler(seq: u32, len: usize) -> impl Iterator<Item = u8> {
    (0..len).map(move |n| (n as u32).wrapping_mul(7).wrapping_add(seq) as u8)
}

/// A member's part, until it is killed or told to stop.
fn member(world: &World, rank: usize, board: &'static CrashBoard, seed: u64) -> Result<(), towpath::Error> {
    world.enter(Some(rank as u32))?;
    let endpoint = Endpoint::with_private_segment(world, MEMBERS * LONG)?;
    // Destinations that have turned out to be dead or closed, by name.
    let gone: Arc<Mutex<Vec<Name>>> = Arc::default();
    let came_back = gone.clone();
    endpoint.set_handler(0, move |message| {
        if let (Some(returned), Ok(mut gone)) = (message.returned(), came_back.lock()) {
            gone.push(returned.destination);
        }
    });
    endpoint.set_handler(REPLY, |_| {});
    for handler in [SHORT, MEDIUM, STORED] {
        endpoint.set_handler(handler, move |message| receive(board, rank, message));
    }
    for other in 0..MEMBERS {
        // The links of the predecessor end here: all begin anew.
        write(&board.link(other, rank).arrived_from, 0);
        write(&board.link(rank, other).sent, 0);
    }
    write(&board.members[rank].name, endpoint.name().to_bits());
    let mut sender =
        MemberLinks { endpoint: &endpoint, rank, board, links: HashMap::new(), random: Random::new(seed) };
    let mut burst = 0u32;
    while read(&board.stop) == 0 {
        sender.unlink(gone.lock().map(|mut gone| std::mem::take(&mut *gone)).unwrap_or_default());
        sender.link();
        sender.send()?;
        endpoint.poll();
        burst += 1;
        if burst.is_multiple_of(8) {
            // More members than cores: let the others have their turn before the time slice ends.
            std::thread::yield_now();
        }
    }
    write(&board.members[rank].finished, 1);
    endpoint.poll_until(|| read(&board.stop) == 2);
    endpoint.recover();
    while endpoint.poll() > 0 {}
    let audit = endpoint.audit();
    let leaked = audit.request_packets + audit.request_blocks + audit.reply_packets + audit.reply_blocks;
    write(&board.members[rank].leaked, leaked);
    write(&board.members[rank].finished, 2);
    Ok(())
}

/// Checks a message that has arrived at `rank`. Its arguments: number, epoch, the
/// sender's rank.
fn receive(board: &CrashBoard, rank: usize, message: &towpath::Token<'_>) {
    let &[seq, epoch, from] = message.args() else { return bump(&board.damaged, 1) };
    let link = board.link((from as usize).min(MEMBERS - 1), rank);
    let source = message.source().to_bits();
    let mut expected = read(&link.arrived);
    if read(&link.arrived_from) != source {
        write(&link.arrived, 0);
        write(&link.arrived_from, source);
        expected = 0;
    }
    let number = u64::from(seq);
    if number < expected {
        return bump(&board.duplicated, 1);
    }
    bump(&board.lost, number - expected);
    write(&link.arrived, number + 1);
    // (X3) AcqRel: as in `bump`; pairs with the Acquire (X1) in `read`.
    board.members[rank].seen.fetch_max(u64::from(epoch), Ordering::AcqRel);
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
        bump(&board.damaged, 1);
    }
    if seq % 4 == 0 {
        // A request is replied to once: this can't fail. A requester that is gone by now does not
        // count.
        let _ = message.reply(REPLY, &[seq]);
    }
}

/// A member's links to the others.
struct MemberLinks<'a> {
    endpoint: &'a Endpoint,
    rank: usize,
    board: &'a CrashBoard,
    /// Incarnation of each destination, and the number of the next message to it, by
    /// rank.
    links: HashMap<usize, (Name, u32)>,
    random: Random,
}

impl MemberLinks<'_> {
    /// Forgets links to incarnations whose messages came back.
    fn unlink(&mut self, gone: Vec<Name>) {
        for name in gone {
            let Some((&to, _)) = self.links.iter().find(|(_, link)| link.0 == name) else { continue };
            self.links.remove(&to);
            if self.endpoint.name_of_rank(to as u32) == Some(name) {
                bump(&self.board.closed, 1);
            }
        }
    }

    /// Links to members that have a new incarnation.
    fn link(&mut self) {
        for to in (0..MEMBERS).filter(|&to| to != self.rank) {
            if !self.links.contains_key(&to)
                && let Some(name) = self.endpoint.name_of_rank(to as u32)
                && self.endpoint.map(to, name, Tag::ALL).is_ok()
            {
                let link = self.board.link(self.rank, to);
                write(&link.sent, 0);
                write(&link.sent_to, name.to_bits());
                self.links.insert(to, (name, 0));
            }
        }
    }

    /// Sends a message to each.
    fn send(&mut self) -> Result<(), towpath::Error> {
        let MemberLinks { endpoint, rank, board, links, random } = self;
        for (&to, (_, seq)) in links {
            let args = [*seq, read(&board.epoch) as u32, *rank as u32];
            match random.below(32) {
                0 => {
                    let bytes: Vec<u8> = filler(*seq, LONG).collect();
                    endpoint.request_long(to, STORED, &args, &bytes, (*rank * LONG) as u64)?;
                }
                1..=4 => {
                    let bytes: Vec<u8> = filler(*seq, random.below(BLOCK as u64) as usize).collect();
                    endpoint.request_medium(to, MEDIUM, &args, &bytes)?;
                }
                _ => endpoint.request(to, SHORT, &args)?,
            }
            *seq += 1;
            write(&board.link(*rank, to).sent, u64::from(*seq));
        }
        Ok(())
    }
}

/// The world and its members, seen by the supervisor.
struct SupervisedWorld {
    world: World,
    board: &'static CrashBoard,
    members: Vec<Child>,
    random: Random,
    placement: Vec<Option<usize>>,
}

impl SupervisedWorld {
    fn start(&mut self, rank: usize) -> Result<Child, Error> {
        let (world, board, seed) = (&self.world, self.board, self.random.word());
        write(&board.members[rank].name, 0);
        fork_on(self.placement[rank], || match member(world, rank, board, seed) {
            Ok(()) => 0,
            Err(error) => {
                towpath_report::console::remark(format_args!("member {rank}: {error}"));
                3
            }
        })
    }

    /// Waits for something that must come, and looks whether all members still exist.
    fn until(&self, what: &str, mut done: impl FnMut() -> bool) -> Result<(), Error> {
        let start = Instant::now();
        while !done() {
            if start.elapsed() > PATIENCE {
                let place = format!("waiting for {what} after {} kills", read(&self.board.epoch));
                return Err(Error::Stuck { seconds: PATIENCE.as_secs(), place });
            }
            if read(&self.board.closed) > 0 {
                return Err(Error::NotAvailable(format!(
                    "after {} kills one died holding the lock of a living endpoint's queue, which this algorithm cannot repair: the queue was closed, and its senders were told",
                    read(&self.board.epoch)
                )));
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }

    /// Number of messages that a link's sender certainly published and its receiver has
    /// not got, if both ends are still (or were, at the sender's death) those of the link.
    fn missing(&self, from: usize, to: usize) -> u64 {
        let b = self.board;
        let (sender, receiver) = (read(&b.members[from].name), read(&b.members[to].name));
        let sent = read(&b.link(from, to).sent);
        if sender == 0 || receiver == 0 || sent == 0 || read(&b.link(from, to).sent_to) != receiver {
            return 0;
        }
        if read(&b.link(from, to).arrived_from) != sender {
            return sent;
        }
        sent.saturating_sub(read(&b.link(from, to).arrived))
    }

    fn kill(&mut self, victim: usize, result: &mut Crash) -> Result<(), Error> {
        let board = self.board;
        let at = Instant::now();
        self.members[victim].kill();
        // The epoch after the kill: a message that carries it was sent by a survivor.
        let epoch = read(&board.epoch) + 1;
        write(&board.epoch, epoch);
        let pid = self.members[victim].pid() as u32;
        wait(&mut self.members[victim], Instant::now() + PATIENCE)?;
        self.world.process_ended(victim as u32, pid, true);
        let others: Vec<usize> = (0..MEMBERS).filter(|&m| m != victim).collect();
        self.until("the survivors to go on", || {
            others.iter().all(|&m| read(&board.members[m].seen) >= epoch)
        })?;
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
pub fn run(
    algorithm: Algorithm,
    policy: Policy,
    kills: u32,
    run: &Circumstances<'_>,
) -> Result<Crash, Error> {
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
    let board: &'static CrashBoard = &Box::leak(Box::new(SharedRow::row(1)?))[0];
    let placement = (0..MEMBERS).map(|n| run.placement.core_for(n, MEMBERS)).collect();
    let mut test =
        SupervisedWorld { world, board, members: Vec::new(), random: Random::new(run.seed), placement };
    for rank in 0..MEMBERS {
        let child = test.start(rank)?;
        test.members.push(child);
    }
    test.until("all members to be there", || (0..MEMBERS).all(|m| read(&board.members[m].name) != 0))?;
    let mut result = Crash::default();
    for _ in 0..kills {
        let victim = test.random.below(MEMBERS as u64) as usize;
        let while_it_starts = test.random.below(64) == 0;
        let delay = Duration::from_micros(test.random.below(2000));
        // Mostly while it is at work, sometimes while it starts.
        test.until("the victim", || read(&board.members[victim].name) != 0 || while_it_starts)?;
        std::thread::sleep(delay);
        test.kill(victim, &mut result)?;
    }
    test.until("all members to be there", || (0..MEMBERS).all(|m| read(&board.members[m].name) != 0))?;
    write(&board.stop, 1);
    test.until("all members to stop sending", || {
        (0..MEMBERS).all(|m| read(&board.members[m].finished) >= 1)
    })?;
    let pairs = || (0..MEMBERS).flat_map(|a| (0..MEMBERS).map(move |b| (a, b))).filter(|(a, b)| a != b);
    let missing = || pairs().map(|(a, b)| test.missing(a, b)).sum::<u64>();
    let start = Instant::now();
    test.until("the last messages", || missing() == 0 || start.elapsed() > PATIENCE / 4)?;
    result.lost += missing() + read(&board.lost);
    // A message with the wrong contents is as good as lost.
    result.lost += read(&board.damaged);
    result.duplicated = read(&board.duplicated);
    write(&board.stop, 2);
    for child in &mut test.members {
        wait(child, Instant::now() + PATIENCE)?;
    }
    result.leaked_slots = (0..MEMBERS).map(|m| read(&board.members[m].leaked)).sum();
    Ok(result)
}
