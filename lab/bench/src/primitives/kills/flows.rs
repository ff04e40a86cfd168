//! Queues, broadcast rings and pools: all that is sent arrives, once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath::pool::{Buffer, Pool, Receiver as PoolReceiver, Sender as PoolSender};
use towpath::{TransferError, World};

use super::super::work;
use super::{Attacked, KilledKind, Player, PrimitiveDamage};
use crate::structures::board::Board;
use towpath_host::Error;
use towpath_host::process::SharedRow;

/// Nanoseconds of work between two values of a sender.
const BETWEEN: u64 = 4000;
/// Maximum number of values of a sender in one batch.
const MOST_VALUES: u64 = 1 << 22;
/// Words of the board: number of values that came twice.
const TWICE: usize = 2;

/// Values of one sender that were certainly sent, and those that arrived: a bit each.
struct Ledger {
    sent: SharedRow<AtomicU64>,
    arrived: SharedRow<AtomicU64>,
}

// Relaxed, all: counts; the queue orders what it carries.
impl Ledger {
    fn new() -> Result<Ledger, Error> {
        let row = || SharedRow::row(MOST_VALUES as usize / 64);
        Ok(Ledger { sent: row()?, arrived: row()? })
    }

    /// Returns whether the bit was set before.
    fn set(row: &SharedRow<AtomicU64>, number: u64) -> Option<bool> {
        let word = row.get(number as usize / 64)?;
        let bit = 1u64 << (number % 64);
        Some(word.fetch_or(bit, Relaxed) & bit != 0)
    }

    /// Number of values that were sent and did not arrive.
    fn missing(&self) -> u64 {
        let words = self.sent.iter().zip(self.arrived.iter());
        words
            .map(|(sent, arrived)| u64::from((sent.load(Relaxed) & !arrived.load(Relaxed)).count_ones()))
            .sum()
    }

    /// A value has arrived.
    fn arrives(&self, number: u64, board: &Board<'_>) {
        match Ledger::set(&self.arrived, number) {
            Some(false) => {}
            Some(true) => {
                board.token(TWICE).fetch_add(1, Relaxed);
            }
            None => {
                board.inconsistent().fetch_add(1, Relaxed);
            }
        }
    }
}

/// Numbers of a sender. One that a dead sender may have sent is not used again.
impl Player<'_> {
    fn next_number(&self) -> Result<u64, String> {
        let next = self.board.intent(self.me);
        let number = next.load(Relaxed);
        next.store(number + 1, Relaxed);
        if number < MOST_VALUES { Ok(number) } else { Err("there are too many values to remember".into()) }
    }
}

/// Returns whether the other side is only away until its successor comes.
fn is_away(error: TransferError) -> bool {
    matches!(error, TransferError::Disconnected | TransferError::PeerDied { .. })
}

const fn is_taken(error: &TransferError) -> bool {
    matches!(error, TransferError::Taken { .. })
}

/// Time until a participant looks again for the other side.
const AWAY: Duration = Duration::from_micros(200);

/// Values through a queue, from senders to receivers.
pub(super) struct Values {
    kind: KilledKind,
    procs: usize,
    ledgers: Vec<Ledger>,
}

/// Number of places.
const PLACES: usize = 64;
/// First bit of a value's sender.
const SENDER: u32 = 48;

impl Values {
    /// Values of a queue of that kind between so many.
    pub(super) fn new(kind: KilledKind, procs: usize) -> Result<Values, Error> {
        let ledgers = (0..procs).map(|_| Ledger::new()).collect::<Result<_, _>>()?;
        Ok(Values { kind, procs, ledgers })
    }

    /// Number of receivers, which are the first.
    fn receivers(&self) -> usize {
        if self.kind == KilledKind::Mpmc { self.procs / 2 } else { 1 }
    }

    fn arrives(&self, value: u64, board: &Board<'_>) {
        match self.ledgers.get((value >> SENDER) as usize) {
            Some(ledger) => ledger.arrives(value & ((1 << SENDER) - 1), board),
            None => {
                board.inconsistent().fetch_add(1, Relaxed);
            }
        }
    }

    fn send(
        &self,
        player: &Player<'_>,
        send: impl Fn(u64) -> Result<(), TransferError>,
    ) -> Result<(), String> {
        while !player.has_ended() {
            let number = player.next_number()?;
            loop {
                match send((player.me as u64) << SENDER | number) {
                    Ok(()) => break,
                    Err(error) if is_away(error) && player.has_ended() => return Ok(()),
                    Err(error) if is_away(error) => std::thread::sleep(AWAY),
                    Err(error) => return Err(error.to_string()),
                }
            }
            Ledger::set(&self.ledgers[player.me].sent, number);
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    /// `receive` hands each value over before it is completed.
    fn receive(
        &self,
        player: &Player<'_>,
        receive: impl Fn(&dyn Fn(u64)) -> Result<(), TransferError>,
    ) -> Result<(), String> {
        let arrives = |value| self.arrives(value, &player.board);
        loop {
            match receive(&arrives) {
                Ok(()) => player.is_done(),
                Err(error) if is_away(error) && player.has_ended() => return Ok(()),
                Err(error) if is_away(error) => std::thread::sleep(AWAY),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

/// Opens the queue of a kind, with or without leases.
macro_rules! with_queue {
    ($values:ident, $world:expr, |$queue:ident| leased $leased:expr, plain $plain:expr) => {
        match $values.kind {
            KilledKind::Spsc => {
                let $queue = $world.spsc::<u64>("values", PLACES).map_err(|e| e.to_string())?;
                $plain
            }
            KilledKind::Mpsc => {
                let $queue = $world.mpsc::<u64>("values", PLACES).map_err(|e| e.to_string())?;
                $leased
            }
            _ => {
                let $queue = $world.mpmc::<u64>("values", PLACES).map_err(|e| e.to_string())?;
                $leased
            }
        }
    };
}

impl Attacked for Values {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let is_sender = player.me >= self.receivers();
        with_queue!(self, player.world, |queue|
            leased if is_sender {
                let sender = player.opened(is_taken, || queue.sender())?;
                self.send(player, |value| sender.send(value))
            } else {
                let receiver = player.opened(is_taken, || queue.receiver())?;
                self.receive(player, |arrives| {
                    let lease = receiver.receive_leased()?;
                    arrives(*lease);
                    lease.complete();
                    Ok(())
                })
            },
            plain if is_sender {
                let sender = player.opened(is_taken, || queue.sender())?;
                self.send(player, |value| sender.send(value))
            } else {
                let receiver = player.opened(is_taken, || queue.receiver())?;
                self.receive(player, |arrives| receiver.receive().map(arrives))
            }
        )
    }

    /// One side needs one of the other.
    fn is_independent(&self, victim: usize, _: usize) -> bool {
        let receivers = self.receivers();
        let of_its_side = if victim < receivers { receivers } else { self.procs - receivers };
        of_its_side > 1
    }

    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        // The values of dead receivers.
        with_queue!(self, world, |queue|
            leased {
                let receiver = queue.receiver().map_err(|e| e.to_string())?;
                while let Ok(lease) = receiver.receive_leased_timeout(LEFT) {
                    self.arrives(*lease, board);
                    lease.complete();
                }
            },
            plain {
                let receiver = queue.receiver().map_err(|e| e.to_string())?;
                while let Ok(value) = receiver.receive_timeout(LEFT) {
                    self.arrives(value, board);
                }
            }
        );
        // A value may have gone with a receiver that had no lease, and one may come twice whose
        // receiver died before it was completed.
        let unknown: u64 = kills[..self.receivers()].iter().sum();
        let gone = if self.kind == KilledKind::Spsc { unknown } else { 0 };
        let missing: u64 = self.ledgers.iter().map(Ledger::missing).sum();
        damage.lost += missing.saturating_sub(gone);
        damage.duplicated += board.token(TWICE).load(Relaxed).saturating_sub(unknown);
        Ok(())
    }
}

/// Time-out of the values and buffers that are left.
const LEFT: Duration = Duration::from_millis(50);

/// RingMessages through a broadcast ring; the first participant writes.
pub(super) struct RingMessages;

/// Size of the ring, in bytes.
const RING: usize = 1 << 14;

/// Beginning of a message.
#[derive(Clone, Copy, PartialEq)]
struct MessageHead {
    /// Its number.
    number: u64,
    /// Number after the last one that was certainly sent before the writer's life.
    sent_before: u64,
    /// The first number of the writer's life: those between may have been sent.
    first: u64,
}

impl MessageHead {
    /// The message: its head, and bytes that follow from its number.
    fn message(self) -> Vec<u8> {
        let number = self.number;
        let longest = if number % 97 == 96 { 3 * RING } else { RING / 16 };
        let mut bytes = vec![number as u8; 24 + (number * 7919) as usize % longest];
        for (at, word) in [number, self.sent_before, self.first].into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn of(bytes: &[u8]) -> Option<MessageHead> {
        let word = |at: usize| bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        Some(MessageHead { number: word(0)?, sent_before: word(8)?, first: word(16)? })
    }

    /// Number of messages from `wanted` on that a reader should have got before.
    fn lost_since(self, wanted: u64) -> u64 {
        let before = self.number.min(self.sent_before).saturating_sub(wanted);
        before + self.number.saturating_sub(wanted.max(self.first))
    }
}

impl RingMessages {
    fn write(player: &Player<'_>) -> Result<(), String> {
        let ring = player.world.broadcast("messages", RING).map_err(|e| e.to_string())?;
        let mut writer = player.opened(is_taken, || ring.writer())?;
        // Number after the last one that was certainly sent.
        let sent = player.board.present(0);
        let sent_before = sent.load(Relaxed);
        let first = player.board.intent(0).load(Relaxed);
        while !player.has_ended() {
            let number = player.next_number()?;
            let head = MessageHead { number, sent_before, first };
            writer.send(&head.message()).map_err(|e| e.to_string())?;
            sent.store(number + 1, Relaxed);
            player.is_done();
            work(BETWEEN);
        }
        writer.close();
        Ok(())
    }

    fn read(player: &Player<'_>) -> Result<(), String> {
        let ring = player.world.broadcast("messages", RING).map_err(|e| e.to_string())?;
        let mut reader = ring.reader().map_err(|e| e.to_string())?;
        let mut next: Option<u64> = None;
        loop {
            match reader.receive() {
                Ok(bytes) => {
                    let Some(head) = MessageHead::of(&bytes) else {
                        player.finds_inconsistent();
                        continue;
                    };
                    let number = head.number;
                    if *bytes != head.message()[..] {
                        player.finds_inconsistent();
                    }
                    let wanted = next.unwrap_or(number);
                    if number < wanted {
                        player.board.token(TWICE).fetch_add(1, Relaxed);
                    }
                    player.board.lost().fetch_add(head.lost_since(wanted), Relaxed);
                    next = Some(number + 1);
                    player.board.present(player.me).store(number + 1, Relaxed);
                    player.is_done();
                }
                Err(TransferError::Closed) => return Ok(()),
                Err(error) if is_away(error) && player.has_ended() => return Ok(()),
                Err(error) if is_away(error) => std::thread::sleep(AWAY),
                Err(error) => return Err(error.to_string()),
            }
        }
    }
}

impl Attacked for RingMessages {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        if player.me == 0 { RingMessages::write(player) } else { RingMessages::read(player) }
    }

    /// Readers need the writer, and not each other.
    fn is_independent(&self, victim: usize, _: usize) -> bool {
        victim != 0
    }

    fn count(
        &self,
        _: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let next = |me: usize| board.present(me).load(Relaxed);
        damage.lost += (1..kills.len()).filter(|&me| next(me) < next(0)).count() as u64;
        damage.duplicated += board.token(TWICE).load(Relaxed);
        Ok(())
    }
}

/// Buffers of a pool through two stages; the first participant fills, the last takes out.
pub(super) struct Buffers {
    procs: usize,
    ledger: Ledger,
}

/// Number of buffers.
const BUFFERS: usize = 8;
/// Size of a buffer, in bytes.
const BUFFER: usize = 4096;

struct Stages {
    pool: Pool,
    names: [&'static str; 2],
}

impl Stages {
    fn of(world: &World) -> Result<Stages, String> {
        let pool = world.pool("buffers", BUFFERS, BUFFER).map_err(|e| e.to_string())?;
        Ok(Stages { pool, names: ["raw", "ready"] })
    }

    fn sender(&self, stage: usize) -> Result<PoolSender, String> {
        let stage = self.pool.stage(self.names[stage], BUFFERS).map_err(|e| e.to_string())?;
        stage.sender().map_err(|e| e.to_string())
    }

    fn receiver(&self, stage: usize) -> Result<PoolReceiver, String> {
        let stage = self.pool.stage(self.names[stage], BUFFERS).map_err(|e| e.to_string())?;
        stage.receiver().map_err(|e| e.to_string())
    }
}

/// Second word of a buffer that the middle stage has seen: it may be written twice.
const fn answer(number: u64) -> u64 {
    number.wrapping_mul(number) ^ 0x5555
}

/// Sends; returns `false` if the end has come meanwhile.
fn pass(player: &Player<'_>, sender: &PoolSender, buffer: Buffer) -> Result<bool, String> {
    let mut buffer = buffer;
    loop {
        match sender.send(buffer) {
            Ok(()) => return Ok(true),
            Err(unsent) if is_away(unsent.error) && player.has_ended() => return Ok(false),
            Err(unsent) if is_away(unsent.error) => {
                buffer = unsent.value;
                std::thread::sleep(AWAY);
            }
            Err(unsent) => return Err(unsent.error.to_string()),
        }
    }
}

/// Next buffer of a stage; `None` if all senders have ended.
fn next(player: &Player<'_>, receiver: &PoolReceiver) -> Result<Option<Buffer>, String> {
    loop {
        match receiver.receive() {
            Ok(buffer) => return Ok(Some(buffer)),
            Err(error) if is_away(error) && player.has_ended() => return Ok(None),
            Err(error) if is_away(error) => std::thread::sleep(AWAY),
            Err(error) => return Err(error.to_string()),
        }
    }
}

impl Buffers {
    /// Buffers between so many participants, three at least.
    pub(super) fn new(procs: usize) -> Result<Buffers, Error> {
        Ok(Buffers { procs, ledger: Ledger::new()? })
    }

    fn fill(&self, player: &Player<'_>, stages: &Stages) -> Result<(), String> {
        let sender = stages.sender(0)?;
        while !player.has_ended() {
            let mut buffer = stages.pool.take().map_err(|e| e.to_string())?;
            let number = player.next_number()?;
            let words = buffer.values_mut::<u64>();
            words.fill(0);
            words[0] = number;
            if !pass(player, &sender, buffer)? {
                break;
            }
            Ledger::set(&self.ledger.sent, number);
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn takes_out(&self, board: &Board<'_>, buffer: &Buffer) {
        let words = buffer.values::<u64>();
        if words[1] != answer(words[0]) {
            board.inconsistent().fetch_add(1, Relaxed);
        }
        self.ledger.arrives(words[0], board);
    }
}

fn answer_in_place(buffer: &mut Buffer) {
    let words = buffer.values_mut::<u64>();
    words[1] = answer(words[0]);
}

impl Attacked for Buffers {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let stages = Stages::of(&player.world)?;
        if player.me == 0 {
            return self.fill(player, &stages);
        }
        let is_last = player.me + 1 == self.procs;
        let receiver = stages.receiver(usize::from(is_last))?;
        let sender = if is_last { None } else { Some(stages.sender(1)?) };
        while let Some(mut buffer) = next(player, &receiver)? {
            match &sender {
                Some(sender) => {
                    answer_in_place(&mut buffer);
                    if !pass(player, sender, buffer)? {
                        break;
                    }
                }
                None => self.takes_out(&player.board, &buffer),
            }
            player.is_done();
        }
        Ok(())
    }

    /// Only the middle stage has several participants.
    fn is_independent(&self, victim: usize, _: usize) -> bool {
        victim != 0 && victim + 1 != self.procs && self.procs > 3
    }

    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let stages = Stages::of(world)?;
        let (raw, ready) = (stages.receiver(0)?, stages.receiver(1)?);
        while let Ok(mut buffer) = raw.receive_timeout(LEFT) {
            answer_in_place(&mut buffer);
            self.takes_out(board, &buffer);
        }
        while let Ok(buffer) = ready.receive_timeout(LEFT) {
            self.takes_out(board, &buffer);
        }
        damage.lost += self.ledger.missing();
        let unknown: u64 = kills[1..].iter().sum();
        damage.duplicated += board.token(TWICE).load(Relaxed).saturating_sub(unknown);
        let again = |_| stages.pool.take_timeout(Duration::from_secs(1));
        let free: Vec<Buffer> = (0..BUFFERS).map_while(|n| again(n).ok()).collect();
        damage.leaked += (stages.pool.count().saturating_sub(free.len())) as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_between_two_writers_may_be_missing() {
        let head = |number| MessageHead { number, sent_before: 10, first: 11 };
        assert_eq!(head(11).lost_since(11), 0, "the next one");
        assert_eq!(head(11).lost_since(10), 0, "its predecessor died with it");
        assert_eq!(head(11).lost_since(8), 2, "two that were sent");
        assert_eq!(head(14).lost_since(10), 3, "three of this life");
        assert_eq!(head(14).lost_since(12), 2);
        assert_eq!(MessageHead::of(&head(96).message()).unwrap().first, 11);
    }

    #[test]
    fn values_that_are_missing_or_come_twice_are_counted() {
        let memory = Board::memory().unwrap();
        let board = Board::new(&memory).unwrap();
        let ledger = Ledger::new().unwrap();
        for number in [1, 2, 70] {
            Ledger::set(&ledger.sent, number);
        }
        [2, 3, 2].into_iter().for_each(|number| ledger.arrives(number, &board));
        assert_eq!((ledger.missing(), board.token(TWICE).load(Relaxed)), (2, 1));
        ledger.arrives(MOST_VALUES, &board);
        assert_eq!(board.inconsistent().load(Relaxed), 1);
    }
}
