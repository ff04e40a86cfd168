//! Kills at random moments in operations, each followed by recovery while the others go
//! on; then everything is counted.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use towpath_machine::Random;
use towpath_structures::nonblocking::StableError;
use towpath_sync::Policy;

use super::board::{Board, BoardMember, BoardSurroundings, SUPERVISOR};
use super::crew::{Crew, PATIENCE};
use super::room::Room;
use super::subject::{StructureOp, Subject};
use super::work::{TAKING, WorkKind, check_keys, count_tokens, deal};
use super::{Contest, Structure};
use crate::transport::Circumstances;
use towpath_host::Error;

/// Number of kills after which all end and the contents are counted.
const BATCH: u32 = 50;

/// Damage by kills.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Damage {
    /// Number of kills.
    pub kills: u64,
    /// Number of items that an operation that had ended put in, and that can't be found.
    pub lost: u64,
    /// Descriptors that are neither free nor in the structure after recovery.
    pub leaked: u64,
    /// Number of items that came out twice, were there though they should not be, or had
    /// other contents; of descriptors in two places.
    pub inconsistent: u64,
    /// Time of each from the kill until all of its descriptors were recovered, in
    /// milliseconds.
    pub recovery_ms: Vec<f64>,
    /// Part of that, of each, before the system said that it was dead.
    pub death_ms: Vec<f64>,
}

impl Damage {
    /// Adds the damage by other kills.
    pub fn add(&mut self, other: Damage) {
        self.kills += other.kills;
        self.lost += other.lost;
        self.leaked += other.leaked;
        self.inconsistent += other.inconsistent;
        self.recovery_ms.extend(other.recovery_ms);
        self.death_ms.extend(other.death_ms);
    }
}

/// Kills `count` of `procs` processes at a structure with room for `pool` items, one
/// after the other, and replaces them.
///
/// # Errors
///
/// Why it could not be done; among others, that a dead one holds up all others.
pub fn kills(
    contest: Contest,
    count: u32,
    (procs, pool, policy): (usize, u32, Policy),
    run: &Circumstances<'_>,
) -> Result<Damage, Error> {
    if let Some(why) = contest.algorithm.cannot_recover() {
        return Err(Error::NotAvailable(why.into()));
    }
    let mut damage = Damage::default();
    let mut left = count;
    while left > 0 {
        let some = left.min(BATCH);
        let run = Circumstances { seed: run.seed.wrapping_add(u64::from(left) << 8), ..*run };
        batch(contest, some, (procs, pool, policy), &run, &mut damage)?;
        left -= some;
    }
    Ok(damage)
}

fn failed(source: StableError) -> Error {
    Error::Other(Box::new(source))
}

fn batch(
    contest: Contest,
    count: u32,
    (procs, pool, policy): (usize, u32, Policy),
    run: &Circumstances<'_>,
    damage: &mut Damage,
) -> Result<(), Error> {
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    let room = Room::new(contest.structure, contest.algorithm, pool)?;
    let subject = room.subject()?;
    // Relaxed: no other process is there yet.
    board.life(SUPERVISOR).store(1, Ordering::Relaxed);
    let around = BoardSurroundings::new(board, SUPERVISOR);
    let supervisor = BoardMember::new(&around, policy);
    use_all(subject, &supervisor, contest.structure).map_err(failed)?;
    if !contest.structure.has_keys() {
        deal(subject, &supervisor, &board, procs).map_err(failed)?;
    }
    let task = WorkKind { structure: contest.structure, reads: 0, seed: run.seed, recorded: true };
    let mut crew = Crew::start(contest, Some(&room), board, (procs, policy, task), run)?;
    let mut random = Random::stream(run.seed, 0);
    let mut died_taking = 0;
    let mut begun = vec![0; procs];
    for _ in 0..count {
        let victim = random.below(procs as u64) as usize;
        // Mostly while it is at work, sometimes while it starts.
        if random.below(64) != 0 {
            let from = begun[victim];
            let at_work = crew.until("the victim to get on", |crew| crew.done(victim) > from);
            at_work.map_err(|error| stands(error, damage.kills))?;
        }
        std::thread::sleep(Duration::from_micros(random.below(1500)));
        let at = Instant::now();
        crew.kill(victim)?;
        let dead = at.elapsed();
        damage.kills += 1;
        loop {
            let pending = subject.recover(&supervisor, &|p| p == victim);
            match pending.map_err(|error| stands(failed(error), damage.kills))? {
                0 => break,
                // Those that live move what is looked for.
                _ if at.elapsed() < PATIENCE / 4 => std::thread::yield_now(),
                _ => {
                    let place = "waiting for what the dead one had".into();
                    let seconds = at.elapsed().as_secs();
                    return Err(stands(Error::Stuck { seconds, place }, damage.kills));
                }
            }
        }
        damage.death_ms.push(dead.as_secs_f64() * 1e3);
        damage.recovery_ms.push(at.elapsed().as_secs_f64() * 1e3);
        // (P1b) Acquire: the dead participant's last intent; pairs with the Release (P2) in
        // `write`.
        died_taking += u64::from(board.intent(victim).load(Ordering::Acquire) == TAKING);
        begun[victim] = crew.done(victim);
        crew.replace(victim)?;
    }
    crew.dismiss().map_err(|error| stands(error, damage.kills))?;
    let inventory = subject.inventory(&supervisor).map_err(failed)?;
    let found = inventory.free + inventory.reachable;
    damage.leaked += inventory.all.saturating_sub(found) as u64;
    damage.inconsistent += u64::from(found > inventory.all);
    if contest.structure.has_keys() {
        (0..procs).try_for_each(|me| check_keys(subject, &supervisor, &board, me)).map_err(failed)?;
    } else {
        count_tokens(subject, &supervisor, &board, died_taking).map_err(failed)?;
    }
    // Relaxed: all have ended.
    damage.lost += board.lost().load(Ordering::Relaxed);
    damage.inconsistent += board.inconsistent().load(Ordering::Relaxed);
    Ok(())
}

/// The error for participants that stand still.
fn stands(error: Error, kills: u64) -> Error {
    match error {
        Error::Stuck { .. } | Error::Other(_) => Error::NotAvailable(format!(
            "after {kills} kills one died in an operation that all others wait for, which this algorithm cannot repair ({error})"
        )),
        other => other,
    }
}

/// Has every descriptor used once, so that those that are not in the structure are in the
/// free lists, where an audit must look for them.
fn use_all(subject: &dyn Subject, member: &BoardMember<'_>, structure: Structure) -> Result<(), StableError> {
    // Above all keys that participants have; from the last on, so that a list has each put in at
    // its beginning.
    const ABOVE: u64 = 1 << 24;
    let mut count = 0u64;
    loop {
        match subject.act(member, StructureOp::Put(ABOVE - count, 1)) {
            Ok(_) => count += 1,
            Err(StableError::Exhausted) => break,
            Err(error) => return Err(error),
        }
    }
    (0..count).rev().try_for_each(|n| {
        let key = if structure.has_keys() { ABOVE - n } else { 0 };
        subject.act(member, StructureOp::Take(key)).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::BenchSettings;
    use crate::structures::{POOLS, Sharing, StructureAlgorithm};
    use towpath_host::topology::{Pin, Placement};

    fn killed(structure: Structure, algorithm: StructureAlgorithm, count: u32) -> Result<Damage, Error> {
        let settings = BenchSettings::default();
        let placement = Placement::detect(Pin::No);
        let limit = Duration::from_millis(20);
        let run = Circumstances { settings: &settings, placement: &placement, round: 0, seed: 5, limit };
        let contest = Contest { structure, algorithm, sharing: Sharing::Processes };
        kills(contest, count, (3, POOLS[0], Policy::Adaptive), &run)
    }

    #[test]
    fn nothing_is_lost_of_any_structure() {
        for structure in Structure::ALL {
            for algorithm in [StructureAlgorithm::Guerraoui, StructureAlgorithm::Robust] {
                let damage = killed(structure, algorithm, 8)
                    .unwrap_or_else(|e| panic!("{structure:?} {algorithm:?}: {e}"));
                let counts = (damage.kills, damage.lost, damage.leaked, damage.inconsistent);
                assert_eq!(counts, (8, 0, 0, 0), "{structure:?} {algorithm:?}");
                assert_eq!(damage.recovery_ms.len(), 8);
            }
        }
    }

    #[test]
    fn what_cannot_be_killed_or_repaired_is_said() {
        let threads = killed(Structure::HashMap, StructureAlgorithm::DashMap, 1).unwrap_err().to_string();
        assert!(threads.contains("thread"), "{threads}");
        let stuck = Error::Stuck { seconds: 5, place: "here".into() };
        assert!(stands(stuck, 7).to_string().contains("after 7 kills"));
    }
}
