//! Data under locks: two words that are equal whenever no holder changes them.

use std::sync::atomic::Ordering::Relaxed;

use towpath::{LockError, World};

use super::super::work;
use super::{Attacked, Player, PrimitiveDamage};
use crate::structures::board::Board;

/// Nanoseconds of work between the two words' changes, and between operations.
const INSIDE: u64 = 2000;
const BETWEEN: u64 = 1000;

/// Changes the second word after the first one, with work between. They were equal.
fn change(pair: &mut [u64; 2], player: &Player<'_>) {
    if pair[0] != pair[1] {
        player.finds_inconsistent();
        complete(pair);
    }
    pair[0] += 1;
    work(INSIDE);
    // As a compiler must not join the two.
    std::hint::black_box(&mut *pair)[1] += 1;
}

/// Completes the change of a dead holder.
fn complete(pair: &mut [u64; 2]) {
    pair[1] = pair[0];
}

/// Compares the data with the changes that ended: one more for each death may have begun.
fn compare(value: u64, ended: u64, kills: &[u64], damage: &mut PrimitiveDamage) {
    let begun = ended + kills.iter().sum::<u64>();
    damage.lost += ended.saturating_sub(value);
    damage.inconsistent += value.saturating_sub(begun);
}

/// Two words under a mutex.
pub(super) struct LockedPair;

impl Attacked for LockedPair {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let mutex = player.world.mutex("pair", [0u64; 2]).map_err(|e| e.to_string())?;
        while !player.has_ended() {
            let mut guard = match mutex.lock() {
                Ok(guard) => guard,
                Err(LockError::OwnerDied { guard, .. }) => guard.repair(complete),
                Err(error) => return Err(error.to_string()),
            };
            change(&mut guard, player);
            drop(guard);
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let mutex = world.mutex("pair", [0u64; 2]).map_err(|e| e.to_string())?;
        let value = match mutex.lock() {
            Ok(guard) => guard[0],
            Err(LockError::OwnerDied { guard, .. }) => guard.repair(complete)[0],
            Err(error) => return Err(error.to_string()),
        };
        // Relaxed: all have ended.
        let ended = (0..kills.len()).map(|me| board.done(me).load(Relaxed)).sum();
        compare(value, ended, kills, damage);
        Ok(())
    }
}

/// Operations on a readers–writer lock of which one writes.
const WRITES: u64 = 4;

/// Two words under a readers–writer lock.
pub(super) struct ReadPair;

impl Attacked for ReadPair {
    fn act(&self, player: &Player<'_>) -> Result<(), String> {
        let lock = player.world.rw_lock("pair", [0u64; 2]).map_err(|e| e.to_string())?;
        for number in player.me as u64.. {
            if player.has_ended() {
                break;
            }
            if number.is_multiple_of(WRITES) {
                let mut guard = match lock.write() {
                    Ok(guard) => guard,
                    Err(LockError::OwnerDied { guard, .. }) => guard.repair(complete),
                    Err(error) => return Err(error.to_string()),
                };
                change(&mut guard, player);
                drop(guard);
                player.count();
            } else {
                match lock.read() {
                    Ok(guard) => {
                        let first = guard[0];
                        work(INSIDE);
                        if std::hint::black_box(&*guard) != &[first; 2] {
                            player.finds_inconsistent();
                        }
                    }
                    Err(LockError::OwnerDied { guard, .. }) => drop(guard.repair(complete)),
                    Err(error) => return Err(error.to_string()),
                }
            }
            player.is_done();
            work(BETWEEN);
        }
        Ok(())
    }

    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String> {
        let lock = world.rw_lock("pair", [0u64; 2]).map_err(|e| e.to_string())?;
        let value = match lock.write() {
            Ok(guard) => guard[0],
            Err(LockError::OwnerDied { guard, .. }) => guard.repair(complete)[0],
            Err(error) => return Err(error.to_string()),
        };
        // Relaxed: all have ended.
        let ended = (0..kills.len()).map(|me| board.present(me).load(Relaxed)).sum();
        compare(value, ended, kills, damage);
        Ok(())
    }
}
