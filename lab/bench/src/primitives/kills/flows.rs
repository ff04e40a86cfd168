//! Queues, broadcast rings and pools: all that is sent arrives, once.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath::{TransferError, World};

use super::super::work;
use super::{Attacked, KilledKind, Player, PrimitiveDamage};
use crate::structures::board::Board;
use towpath_host::Error;
use towpath_host::process::SharedRow;

/// Nanoseconds of work between two values of a sender.
pub(super) const BETWEEN: u64 = 4000;
/// Maximum number of values of a sender in one batch.
pub(super) const MOST_VALUES: u64 = 1 << 22;
/// Words of the board: number of values that came twice.
pub(super) const TWICE: usize = 2;

/// Values of one sender that were certainly sent, and those that arrived: a bit each.
pub(super) struct Ledger {
    pub(super) sent: SharedRow<AtomicU64>,
    pub(super) arrived: SharedRow<AtomicU64>,
}

// Relaxed, all: counts; the queue orders what it carries.
impl Ledger {
    pub(super) fn new() -> Result<Ledger, Error> {
        let row = || SharedRow::row(MOST_VALUES as usize / 64);
        Ok(Ledger { sent: row()?, arrived: row()? })
    }

    /// Returns whether the bit was set before.
    pub(super) fn set(row: &SharedRow<AtomicU64>, number: u64) -> Option<bool> {
        let word = row.get(number as usize / 64)?;
        let bit = 1u64 << (number % 64);
        Some(word.fetch_or(bit, Relaxed) & bit != 0)
    }

    /// Number of values that were sent and did not arrive.
    pub(super) fn missing(&self) -> u64 {
        let words = self.sent.iter().zip(self.arrived.iter());
        words
            .map(|(sent, arrived)| u64::from((sent.load(Relaxed) & !arrived.load(Relaxed)).count_ones()))
            .sum()
    }

    /// A value has arrived.
    pub(super) fn arrives(&self, number: u64, board: &Board<'_>) {
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
    pub(super) fn next_number(&self) -> Result<u64, String> {
        let next = self.board.intent(self.me);
        let number = next.load(Relaxed);
        next.store(number + 1, Relaxed);
        if number < MOST_VALUES { Ok(number) } else { Err("there are too many values to remember".into()) }
    }
}

/// Returns whether the other side is only away until its successor comes.
pub(super) fn is_away(error: TransferError) -> bool {
    matches!(error, TransferError::Disconnected | TransferError::PeerDied { .. })
}

pub(super) const fn is_taken(error: &TransferError) -> bool {
    matches!(error, TransferError::Taken { .. })
}

/// Time until a participant looks again for the other side.
pub(super) const AWAY: Duration = Duration::from_micros(200);

/// Values through a queue, from senders to receivers.
pub(super) struct Values {
    kind: KilledKind,
    procs: usize,
    ledgers: Vec<Ledger>,
}

/// Number of places.
pub(super) const PLACES: usize = 64;
/// First bit of a value's sender.
pub(super) const SENDER: u32 = 48;

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
            KilledKind::PerSender => {
                let $queue = $world.per_sender::<u64>("values", PLACES).map_err(|e| e.to_string())?;
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
        let has_leases = !matches!(self.kind, KilledKind::Spsc | KilledKind::PerSender);
        let gone = if has_leases { 0 } else { unknown };
        let missing: u64 = self.ledgers.iter().map(Ledger::missing).sum();
        damage.lost += missing.saturating_sub(gone);
        damage.duplicated += board.token(TWICE).load(Relaxed).saturating_sub(unknown);
        Ok(())
    }
}

/// Time-out of the values and buffers that are left.
pub(super) const LEFT: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

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
