//! Kills of processes that use primitives of a world, at random moments under load.
//!
//! Afterwards everything that was promised is counted.
//!
//! `kind.rs` says which primitives there are; `mod.rs` kills; `exclusion.rs`, `signals.rs`,
//! `flows.rs`, `ring.rs` and `buffers.rs` say what a participant does, and what must be true at
//! the end.

mod buffers;
mod damage;
mod exclusion;
mod flows;
mod kind;
mod ring;
mod signals;

pub use damage::PrimitiveDamage;
pub use kind::KilledKind;

use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use towpath::{World, WorldConfig};
use towpath_machine::{Native, Random};

use super::{rounds_per_ns, world_for};
use crate::structures::board::Board;
use crate::transport::Circumstances;
use towpath_host::Error;
use towpath_host::process::{Child, ChildState, fork_on, wait};

/// Number of kills after which all end and everything is counted.
pub const BATCH: u32 = 50;
/// Time after which a participant that does not get on hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Operations that a survivor ends after a kill before the next kill.
const GETS_ON: u64 = 3;
/// Exit code of a participant that gave up.
const GAVE_UP: i32 = 3;
/// Number of participants unless told otherwise.
pub const PROCS_KILLED: u32 = 4;

/// A participant at work.
struct Player<'a> {
    /// The world, which it has entered under its number.
    world: World,
    me: usize,
    procs: usize,
    board: Board<'a>,
}

// Relaxed, all here: counts and hints; the primitives order what they protect or carry.
impl Player<'_> {
    fn has_ended(&self) -> bool {
        self.board.end().load(Relaxed) != 0
    }

    /// An operation has ended.
    fn is_done(&self) {
        let done = self.board.done(self.me);
        done.store(done.load(Relaxed) + 1, Relaxed);
    }

    /// Adds one to a count of its own, which its successors continue.
    fn count(&self) {
        let count = self.board.present(self.me);
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    /// Something was there that should not be.
    fn finds_inconsistent(&self) {
        self.board.inconsistent().fetch_add(1, Relaxed);
    }

    /// Calls `open` until a dead predecessor's place is free.
    fn opened<R, E: ToString>(
        &self,
        is_taken: impl Fn(&E) -> bool,
        mut open: impl FnMut() -> Result<R, E>,
    ) -> Result<R, String> {
        let begun = Instant::now();
        loop {
            match open() {
                Err(error) if is_taken(&error) && begun.elapsed() < PATIENCE && !self.has_ended() => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                other => return other.map_err(|error| error.to_string()),
            }
        }
    }
}

/// Primitive under attack.
trait Attacked {
    /// Uses the primitive until the end.
    fn act(&self, player: &Player<'_>) -> Result<(), String>;

    /// Returns whether one gets on while another is dead and has no successor.
    fn is_independent(&self, victim: usize, other: usize) -> bool {
        let _ = (victim, other);
        true
    }

    /// Prepares for a kill: the victim's operations do not count from here on.
    fn before(&self, board: &Board<'_>, victim: usize) {
        let _ = (board, victim);
    }

    /// Counts damage after a kill of one at work that the independent ones have survived.
    fn after(&self, board: &Board<'_>, victim: usize, damage: &mut PrimitiveDamage) {
        let _ = (board, victim, damage);
    }

    /// Lets participants go on that would wait for ever after the end.
    fn release(&self, world: &World) -> Result<(), String> {
        let _ = world;
        Ok(())
    }

    /// Counts when all have ended. `kills`: for each participant.
    fn count(
        &self,
        world: &World,
        board: &Board<'_>,
        kills: &[u64],
        damage: &mut PrimitiveDamage,
    ) -> Result<(), String>;
}

/// Kills `count` of `procs` processes that use a primitive, one after the other, and
/// replaces each.
///
/// # Errors
///
/// Those of the system. Faults of the primitive are damage.
pub fn kill_users(
    kind: KilledKind,
    count: u32,
    procs: u32,
    run: &Circumstances<'_>,
) -> Result<PrimitiveDamage, Error> {
    let mut damage = PrimitiveDamage::default();
    let mut left = count;
    while left > 0 && !damage.has_damage() {
        let some = left.min(BATCH);
        let seed = run.seed.wrapping_add(u64::from(left) << 8);
        let run = Circumstances { seed, ..*run };
        let n = procs as usize;
        match kind {
            KilledKind::Mutex => batch(&exclusion::LockedPair, some, n, &run, &mut damage)?,
            KilledKind::RwLock => batch(&exclusion::ReadPair, some, n, &run, &mut damage)?,
            KilledKind::Semaphore => batch(&signals::Permits, some, n, &run, &mut damage)?,
            KilledKind::Condvar => batch(&signals::Items { procs: n }, some, n, &run, &mut damage)?,
            KilledKind::Event => batch(&signals::EventSettings { procs: n }, some, n, &run, &mut damage)?,
            KilledKind::Once => batch(&signals::Steps, some, n, &run, &mut damage)?,
            KilledKind::Barrier => batch(&signals::BarrierEpisodes { procs: n }, some, n, &run, &mut damage)?,
            KilledKind::Spsc | KilledKind::Mpsc | KilledKind::Mpmc | KilledKind::PerSender => {
                batch(&flows::Values::new(kind, n)?, some, n, &run, &mut damage)?;
            }
            KilledKind::Broadcast => batch(&ring::RingMessages, some, n, &run, &mut damage)?,
            KilledKind::Pool => batch(&buffers::Buffers::new(n)?, some, n, &run, &mut damage)?,
        }
        left -= some;
    }
    Ok(damage)
}

/// Reason for the end of a batch before its time.
enum BatchEnd {
    /// A participant did not get on.
    Hung,
    /// A participant gave up.
    GaveUp,
    /// The system refused.
    System(Error),
}

impl From<Error> for BatchEnd {
    fn from(error: Error) -> BatchEnd {
        BatchEnd::System(error)
    }
}

struct KillCrew<'a, A> {
    attacked: &'a A,
    world: &'a World,
    board: Board<'a>,
    cores: Vec<Option<usize>>,
    children: Vec<Option<Child>>,
    /// Number of kills of each.
    kills: Vec<u64>,
    /// Number of operations of each before its present life.
    begun: Vec<u64>,
    lives: u64,
}

impl<A: Attacked> KillCrew<'_, A> {
    fn procs(&self) -> usize {
        self.cores.len()
    }

    fn done(&self, me: usize) -> u64 {
        // Relaxed: a count.
        self.board.done(me).load(Relaxed)
    }

    fn start(&mut self, me: usize) -> Result<(), Error> {
        self.lives += 1;
        self.begun[me] = self.done(me);
        self.board.begin(me, self.lives);
        let (attacked, world, board) = (self.attacked, self.world, self.board);
        let procs = self.procs();
        self.children[me] = Some(fork_on(self.cores[me], || {
            let play = || {
                let world = world.reopen().map_err(|e| e.to_string())?;
                world.enter(Some(me as u32)).map_err(|e| e.to_string())?;
                attacked.act(&Player { world, me, procs, board })
            };
            match play() {
                Ok(()) => 0,
                Err(why) => {
                    // The reason of a child, whose exit code says that it gave up.
                    #[allow(clippy::disallowed_methods)]
                    let _ = writeln!(std::io::stderr(), "towpath: participant {me}: {why}");
                    GAVE_UP
                }
            }
        })?);
        Ok(())
    }

    /// Waits for something that must come.
    fn until(&self, mut is_true: impl FnMut(&Self) -> bool) -> Result<(), BatchEnd> {
        let begun = Instant::now();
        while !is_true(self) {
            let has_ended = |child: &Child| child.state() != ChildState::Alive;
            if self.children.iter().flatten().any(has_ended) {
                return Err(BatchEnd::GaveUp);
            }
            if begun.elapsed() > PATIENCE {
                return Err(BatchEnd::Hung);
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Waits until all of these have ended some operations more.
    fn until_they_get_on(&self, these: impl Fn(usize) -> bool) -> Result<(), BatchEnd> {
        let before: Vec<u64> = (0..self.procs()).map(|me| self.done(me)).collect();
        self.until(|crew| {
            (0..crew.procs()).filter(|&me| these(me)).all(|me| crew.done(me) >= before[me] + GETS_ON)
        })
    }

    /// Kills one at a random moment, looks at the others, and starts a successor.
    fn kill(&mut self, random: &mut Random, damage: &mut PrimitiveDamage) -> Result<(), BatchEnd> {
        let victim = random.below(self.procs() as u64) as usize;
        std::thread::sleep(Duration::from_micros(random.below(1500)));
        self.attacked.before(&self.board, victim);
        let at = Instant::now();
        if let Some(mut child) = self.children[victim].take() {
            child.signal(Signal::KILL);
            wait(&mut child, at + PATIENCE)?;
        }
        damage.kills += 1;
        self.kills[victim] += 1;
        self.board.over(victim);
        let was_at_work = self.done(victim) > self.begun[victim];
        let attacked = self.attacked;
        let independent = |other| other != victim && attacked.is_independent(victim, other);
        let has_independent = (0..self.procs()).any(independent);
        if has_independent {
            self.until_they_get_on(independent)?;
            damage.recovery_ms.push(at.elapsed().as_secs_f64() * 1e3);
            if was_at_work {
                attacked.after(&self.board, victim, damage);
            }
        }
        self.start(victim)?;
        // Mostly the successor is at work before the next kill, sometimes it starts.
        let starts = random.below(16) == 0 && has_independent;
        self.until_they_get_on(|me| me != victim || !starts)?;
        if !has_independent {
            damage.recovery_ms.push(at.elapsed().as_secs_f64() * 1e3);
        }
        Ok(())
    }

    /// Ends all, and waits for them.
    fn dismiss(&mut self) -> Result<(), BatchEnd> {
        // Relaxed: a hint.
        self.board.end().store(1, Relaxed);
        let deadline = Instant::now() + PATIENCE;
        while self.children.iter().flatten().any(|child| child.state() == ChildState::Alive) {
            if Instant::now() > deadline {
                return Err(BatchEnd::Hung);
            }
            self.attacked.release(self.world).map_err(|why| Error::Other(why.into()))?;
            std::thread::sleep(Duration::from_millis(1));
        }
        for mut child in self.children.drain(..).flatten() {
            if wait(&mut child, deadline)?.code != 0 {
                return Err(BatchEnd::GaveUp);
            }
        }
        Ok(())
    }
}

#[inline(never)]
fn batch<A: Attacked>(
    attacked: &A,
    count: u32,
    procs: usize,
    run: &Circumstances<'_>,
    damage: &mut PrimitiveDamage,
) -> Result<(), Error> {
    // Measured before there are participants that would each measure it.
    let _ = (Native::pause_ps(), Native::switch_cost(), rounds_per_ns());
    let memory = Board::memory()?;
    let board = Board::new(&memory)?;
    // One more, which counts.
    let mut config = WorldConfig::new(procs as u32 + 1);
    config.object_bytes = 4 << 20;
    let world = world_for(&config)?;
    let mut crew = KillCrew {
        attacked,
        world: &world,
        board,
        cores: (0..procs).map(|n| run.placement.core_for(n, procs)).collect(),
        children: (0..procs).map(|_| None).collect(),
        kills: vec![0; procs],
        begun: vec![0; procs],
        lives: 0,
    };
    let mut random = Random::stream(run.seed, 0);
    let mut play = || -> Result<(), BatchEnd> {
        (0..procs).try_for_each(|me| crew.start(me))?;
        crew.until_they_get_on(|_| true)?;
        for _ in 0..count {
            crew.kill(&mut random, damage)?;
        }
        // No process is forked from here on, so that this one may take part.
        world.enter(Some(procs as u32)).map_err(|e| Error::Other(Box::new(e)))?;
        crew.dismiss()
    };
    let played = play();
    let kills = std::mem::take(&mut crew.kills);
    drop(crew);
    match played {
        Ok(()) => {
            let counted = attacked.count(&world, &board, &kills, damage);
            counted.map_err(|why| Error::Other(why.into()))?;
        }
        Err(BatchEnd::System(error)) => return Err(error),
        Err(BatchEnd::Hung) => damage.hung += 1,
        Err(BatchEnd::GaveUp) => damage.inconsistent += 1,
    }
    // Relaxed: all have ended.
    damage.lost += board.lost().load(Relaxed);
    damage.inconsistent += board.inconsistent().load(Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::with_circumstances;

    #[test]
    fn no_primitive_breaks_its_promises() {
        with_circumstances(Duration::from_millis(20), |run| {
            for kind in KilledKind::ALL {
                let procs = [4, 2].into_iter().find(|&procs| kind.is_for(procs)).unwrap();
                // So that some die while they change data.
                let is_lock = matches!(kind, KilledKind::Mutex | KilledKind::RwLock);
                let kills = if is_lock { 32 } else { 8 };
                let damage = kill_users(kind, kills, procs, run).unwrap_or_else(|e| panic!("{kind:?}: {e}"));
                assert!(!damage.has_damage(), "{kind:?}: {damage:?}");
                let counts = (damage.kills, damage.recovery_ms.len());
                assert_eq!(counts, (kills.into(), kills as usize), "{kind:?}");
            }
        });
    }

    /// Mutex of which no owner says that it died, and a participant that stops.
    struct Forgetful {
        hangs: bool,
    }

    impl Attacked for Forgetful {
        fn act(&self, player: &Player<'_>) -> Result<(), String> {
            while !player.has_ended() {
                let is_behind = player.board.life(player.me).load(Relaxed) > player.procs as u64;
                if !(self.hangs && is_behind) {
                    player.is_done();
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            Ok(())
        }
        fn count(
            &self,
            _: &World,
            _: &Board<'_>,
            kills: &[u64],
            damage: &mut PrimitiveDamage,
        ) -> Result<(), String> {
            damage.lost += kills.iter().sum::<u64>();
            Ok(())
        }
    }

    #[test]
    fn damage_is_counted_and_ends_the_kills() {
        with_circumstances(Duration::from_millis(20), |run| {
            let mut damage = PrimitiveDamage::default();
            batch(&Forgetful { hangs: false }, 3, 2, run, &mut damage).unwrap();
            assert_eq!((damage.kills, damage.lost, damage.hung), (3, 3, 0));
            assert!(damage.has_damage());
        });
    }

    #[test]
    #[ignore = "waits until a participant counts as one that hangs"]
    fn participant_that_does_not_get_on_hangs() {
        with_circumstances(Duration::from_millis(20), |run| {
            let mut damage = PrimitiveDamage::default();
            batch(&Forgetful { hangs: true }, 3, 2, run, &mut damage).unwrap();
            assert_eq!(damage.hung, 1);
        });
    }
}
