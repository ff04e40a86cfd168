//! Semaphore, condition variable, event, once and barrier.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use towpath::{Condvar, EpisodeError, LockError, MutexGuard, Shared, World};
use towpath_sync::Unrepaired;
use towpath_sync::robust::Once;

use super::super::work;
use super::{Attacked, Player, PrimitiveDamage};
use crate::structures::board::Board;

/// Nanoseconds of work between operations.
const BETWEEN: u64 = 1000;

/// Permits of a semaphore, each of which one participant holds at a time.
pub(super) struct Permits;

/// Number of permits.
const PERMITS: u64 = 2;
/// Words of the board: bits of those that hold a permit; of those that were killed.
const HOLDERS: usize = 0;
const DEAD: usize = 1;

impl Attacked for Permits {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let semaphore = player.world.semaphore("permits", PERMITS).map_err(|e| e.to_string())?;
        let (holders, dead) = (player.board.token(HOLDERS), player.board.token(DEAD));
        let bit = 1u64 << player.me;
        // Relaxed, all: the semaphore orders them. The dead one's bit goes before its successor
        // counts.
        holders.fetch_and(!bit, Relaxed);
        dead.fetch_and(!bit, Relaxed);
        while !player.has_ended() {
            let permit = semaphore.acquire().map_err(|e| e.to_string())?;
            let holding = holders.fetch_or(bit, Relaxed) | bit;
            if u64::from((holding & !dead.load(Relaxed)).count_ones()) > PERMITS {
                player.finds_inconsistent();
            }
            work(300);
            holders.fetch_and(!bit, Relaxed);
            drop(permit);
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn before(&self, board: &Board<'_>, victim: usize) {
        // Relaxed: before the kill, so before its permit is another's.
        board.token(DEAD).fetch_or(1 << victim, Relaxed);
    }

    fn count(
        &self,
        world: &World,
        _: &Board<'_>,
        _: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let semaphore = world.semaphore("permits", PERMITS).map_err(|e| e.to_string())?;
        let again = |_| semaphore.acquire_timeout(Duration::from_secs(1));
        let permits: Vec<_> = (0..PERMITS).map(again).take_while(Result::is_ok).collect();
        damage.leaked += PERMITS - permits.len() as u64;
        damage.inconsistent += u64::from(semaphore.try_acquire().is_ok());
        Ok(())
    }
}

/// A number of items under a mutex: some participants put one in, the others take one
/// out and wait while there is none. A taker is notified only when there was none.
pub(super) struct Items {
    /// Number of participants.
    pub(super) procs: usize,
}

/// Maximum number of items.
const MOST_ITEMS: u64 = 64;

/// Puts in, or else takes out.
const fn puts(me: usize) -> bool {
    me.is_multiple_of(2)
}

/// Returns whether one gets on without the victim: it puts in, or another one does.
fn gets_on(procs: usize, victim: usize, other: usize) -> bool {
    puts(other) || (0..procs).any(|me| puts(me) && me != victim)
}

/// The guard of the items, repaired after a death.
fn repaired<'a>(
    locked: Result<MutexGuard<'a, u64>, LockError<Unrepaired<MutexGuard<'static, u64>>>>,
    more: &Shared<Condvar>,
) -> Result<MutexGuard<'a, u64>, String> {
    match locked {
        Ok(guard) => Ok(guard),
        Err(LockError::OwnerDied { guard, .. }) => {
            // The dead one may have owed a notification.
            more.notify_all();
            Ok(guard.assume_consistent())
        }
        Err(error) => Err(error.to_string()),
    }
}

impl Attacked for Items {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let items = player.world.mutex("items", 0u64).map_err(|e| e.to_string())?;
        let more = player.world.condvar("more").map_err(|e| e.to_string())?;
        while !player.has_ended() {
            let mut guard = repaired(items.lock(), &more)?;
            if puts(player.me) {
                if *guard < MOST_ITEMS {
                    *guard += 1;
                    if *guard == 1 {
                        more.notify_one();
                    }
                    drop(guard);
                    player.count();
                }
            } else {
                while *guard == 0 && !player.has_ended() {
                    guard = repaired(more.wait(guard), &more)?;
                }
                if *guard == 0 {
                    break;
                }
                *guard -= 1;
                if *guard > 0 {
                    more.notify_one();
                }
                drop(guard);
                player.count();
            }
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn is_independent(&self, victim: usize, other: usize) -> bool {
        gets_on(self.procs, victim, other)
    }

    fn release(&self, world: &World) -> Result<(), String> {
        world.condvar("more").map_err(|e| e.to_string())?.notify_all();
        Ok(())
    }

    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let items = world.mutex("items", 0u64).map_err(|e| e.to_string())?;
        let left = match items.lock() {
            Ok(guard) => *guard,
            Err(LockError::OwnerDied { guard, .. }) => *guard.assume_consistent(),
            Err(error) => return Err(error.to_string()),
        };
        // Relaxed: all have ended.
        let sum = |is_it: fn(usize) -> bool| -> u64 {
            (0..kills.len()).filter(|&me| is_it(me)).map(|me| board.present(me).load(Relaxed)).sum()
        };
        let (put, taken) = (sum(puts), sum(|me| !puts(me)));
        let unknown = kills.iter().sum::<u64>();
        damage.inconsistent += put.abs_diff(taken + left).saturating_sub(unknown);
        Ok(())
    }
}

/// An event that some participants set and reset, and that the others wait for.
pub(super) struct EventSettings {
    /// Number of participants.
    pub(super) procs: usize,
}

impl Attacked for EventSettings {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let event = player.world.event("settings").map_err(|e| e.to_string())?;
        while !player.has_ended() {
            if puts(player.me) {
                event.set();
                // A waiter goes on, also if it is reset at once.
                if event.reset() {
                    player.count();
                }
            } else {
                event.wait().map_err(|e| e.to_string())?;
            }
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn is_independent(&self, victim: usize, other: usize) -> bool {
        gets_on(self.procs, victim, other)
    }

    fn release(&self, world: &World) -> Result<(), String> {
        world.event("settings").map_err(|e| e.to_string())?.set();
        Ok(())
    }

    /// Compares settings with resets: there is one for each, but for the last setting.
    ///
    /// A dead process may not have counted its last reset.
    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let event = world.event("settings").map_err(|e| e.to_string())?;
        // Set by `release`, if not before; the number lies above the mark of that.
        event.set();
        let settings = event.count() >> 1;
        // Relaxed: all have ended.
        let resets = 1 + (0..kills.len()).map(|me| board.present(me).load(Relaxed)).sum::<u64>();
        damage.lost += resets.saturating_sub(settings);
        damage.inconsistent += settings.saturating_sub(resets + kills.iter().sum::<u64>());
        Ok(())
    }
}

/// Steps that are done one after the other, each by one participant.
pub(super) struct Steps;

/// Number of steps: more than are done until all is counted.
const STEPS: usize = 1 << 15;
/// Word of the board: 1 + the participant that is doing a step; 0: none.
const RUNNER: usize = 2;

impl Steps {
    fn open(world: &World) -> Result<Shared<[Once; STEPS]>, String> {
        world.shared("steps", |_| ()).map_err(|e| e.to_string())
    }

    fn done(steps: &Shared<[Once; STEPS]>) -> usize {
        (0..STEPS).find(|&step| !steps.at(step).is_done()).unwrap_or(STEPS)
    }
}

impl Attacked for Steps {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let steps = Self::open(&player.world)?;
        let runner = player.board.token(RUNNER);
        let me = player.me as u64 + 1;
        for step in Self::done(&steps).. {
            if player.has_ended() {
                break;
            }
            if step == STEPS {
                return Err(format!("{STEPS} steps are too few"));
            }
            let act = |dead: Option<u32>| {
                // Relaxed, all: the steps order them. A step begins when the one before is done.
                let before = runner.swap(me, Relaxed);
                if before != 0 && dead.is_none_or(|rank| before != u64::from(rank) + 1) {
                    player.finds_inconsistent();
                }
                std::thread::sleep(Duration::from_millis(1));
                player.count();
                runner.store(0, Relaxed);
            };
            steps.at(step).call(act).map_err(|e| e.to_string())?;
            player.is_done();
        }
        Ok(())
    }

    /// Each step was done once, and once more if its runner died before it could say so.
    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let done = Self::done(&Self::open(world)?) as u64;
        // Relaxed: all have ended.
        let acts: u64 = (0..kills.len()).map(|me| board.present(me).load(Relaxed)).sum();
        damage.lost += done.saturating_sub(acts);
        damage.duplicated += acts.saturating_sub(done + kills.iter().sum::<u64>());
        Ok(())
    }
}

/// Episodes of a barrier.
pub(super) struct BarrierEpisodes {
    /// Number of participants.
    pub(super) procs: usize,
}

/// First word of the board with the number of deaths that each had been told of.
const TOLD_BEFORE: usize = 64;

impl Attacked for BarrierEpisodes {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let open = || player.world.barrier_of("episodes", player.procs);
        let barrier = open().map_err(|e| e.to_string())?;
        while !player.has_ended() {
            match barrier.wait() {
                Ok(()) => player.is_done(),
                Err(EpisodeError::PeerDied { .. }) => player.count(),
                Err(error) => return Err(error.to_string()),
            }
            work(BETWEEN);
        }
        Ok(())
    }

    fn before(&self, board: &Board<'_>, _: usize) {
        for me in 0..self.procs {
            // Relaxed, here and below: counts.
            board.token(TOLD_BEFORE + me).store(board.present(me).load(Relaxed), Relaxed);
        }
    }

    /// Every survivor must have been told of the death of one that had arrived before.
    fn after(&self, board: &Board<'_>, victim: usize, damage: &mut PrimitiveDamage) {
        let told = |me: usize| board.present(me).load(Relaxed) > board.token(TOLD_BEFORE + me).load(Relaxed);
        damage.lost += (0..self.procs).filter(|&me| me != victim && !told(me)).count() as u64;
    }

    fn count(&self, _: &World, _: &Board<'_>, _: &[u64], _: &mut PrimitiveDamage) -> Result<(), String> {
        Ok(())
    }
}
