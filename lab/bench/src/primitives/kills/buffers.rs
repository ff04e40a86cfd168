//! A pool of buffers.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath::World;
use towpath::pool::{Buffer, Pool, Receiver as PoolReceiver, Sender as PoolSender};

use super::super::work;
use super::flows::{AWAY, BETWEEN, LEFT, Ledger, TWICE, is_away};
use super::{Attacked, Player, PrimitiveDamage};
use crate::structures::board::Board;
use towpath_host::Error;

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

    /// Returns whether the victim's stage has several participants: only the middle one
    /// does.
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
