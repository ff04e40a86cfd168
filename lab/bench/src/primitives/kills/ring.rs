//! A broadcast ring.

use std::sync::atomic::Ordering::Relaxed;

use towpath::{TransferError, World};

use super::super::work;
use super::flows::{AWAY, BETWEEN, TWICE, is_away, is_taken};
use super::{Attacked, Player, PrimitiveDamage};
use crate::structures::board::Board;

/// Messages through a broadcast ring; the first participant writes.
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
}
