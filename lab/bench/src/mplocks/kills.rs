//! Holders that are killed, and the time until the next one has the lock.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::measure::{LockPlay, MpLockBench};
use super::players::LockPlayer;
use super::plays::{PlayBoard, now};
use super::{LockAlgorithm, LockState};
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{Child, fork_on, wait};

/// Time-out of a step, beyond the lease of a server.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time from the waiter's request to the kill: the request has come to where it waits.
const BEFORE: Duration = Duration::from_millis(3);

/// The holder, which is killed, or the waiter.
struct KillPart<'a> {
    board: &'a PlayBoard,
    holds: bool,
}

impl LockPlay for KillPart<'_> {
    fn play(&self, player: &impl LockPlayer) -> Result<(), String> {
        // Relaxed, here and below: marks, whose order in one process the lock's messages or words
        // keep, and times that are compared much later.
        let turn = self.board.turn();
        if self.holds {
            return player.hold(|| {
                turn.store(1, Ordering::Relaxed);
                loop {
                    std::thread::sleep(PATIENCE);
                }
            });
        }
        while turn.load(Ordering::Relaxed) == 0 {
            player.serve();
            std::thread::yield_now();
        }
        self.board.waits().store(1, Ordering::Relaxed);
        player.hold(|| self.board.time().store(now(), Ordering::Relaxed))
    }
}

/// Kills holders, each of a lock of its own, and returns the times until the waiter had
/// it, in milliseconds.
pub fn next_grants(
    arena: &MpLockBench,
    algorithm: LockAlgorithm,
    run: &Circumstances<'_>,
) -> Result<Vec<f64>, Error> {
    let rounds = run.settings.runs.max(1);
    let count = run.settings.kills / rounds + u32::from(run.round < run.settings.kills % rounds);
    // Kills that were asked for are all made, however long it takes.
    let all = run.settings.structures.kills.is_some();
    let (begun, mut times) = (Instant::now(), Vec::new());
    while times.is_empty() || (times.len() as u32) < count && (all || begun.elapsed() < run.limit) {
        times.push(next_grant(arena, algorithm)?);
    }
    Ok(times)
}

fn next_grant(arena: &MpLockBench, algorithm: LockAlgorithm) -> Result<f64, Error> {
    let (board, world) = (PlayBoard::new()?, arena.world(algorithm, 2)?);
    let process = |me: usize| {
        fork_on(None, || {
            let play = KillPart { board: &board, holds: me == 0 };
            i32::from(arena.with_player(algorithm, LockState::Killed, me, world.as_ref(), &play).is_err())
        })
    };
    let (holder, mut waiter) = (process(0)?, process(1)?);
    let until = |what: &str, waiter: &mut Child, done: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !done() {
            let ended = waiter.try_wait().map_err(|e| Error::system("waiting for a process", e))?;
            if ended.is_some() && !done() {
                return Err(Error::NotAvailable(format!("the waiter ended while it waited for {what}")));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Error::Stuck {
                    seconds: PATIENCE.as_secs(),
                    place: format!("waiting for {what}"),
                });
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    };
    until("the waiter to wait", &mut waiter, &|| board.waits().load(Ordering::Relaxed) != 0)?;
    std::thread::sleep(BEFORE);
    let killed = now();
    holder.kill();
    until("the next grant", &mut waiter, &|| board.time().load(Ordering::Relaxed) != 0)?;
    let granted = board.time().load(Ordering::Relaxed);
    wait(&mut waiter, Instant::now() + PATIENCE)?;
    Ok(granted.saturating_sub(killed) as f64 / 1e6)
}
