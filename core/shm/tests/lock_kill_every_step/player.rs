//! The acts of the victim and of the survivors.

use std::error::Error;
use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use towpath_machine::{Native, Park};
use towpath_shm::World;
use towpath_sync::{Deadline, LockError, Mutex, MutexGuard, Policy, Surroundings, Wait};
use towpath_testkit::mark;

use crate::subject::Found::{Abandoned, Consistent, OwnerDied, Poisoned};
use crate::subject::{Found, JUDGE, OTHER, Subject, VICTIM};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// No other process wants the lock.
    Alone,
    /// The victim holds the lock, the other waits for it; only changing and unlocking are
    /// stepped. (Stepping takes longer than a lease of `robust`, so it hands over.)
    Awaited,
    /// Place of the victim behind this process, which lets go while it waits; the other
    /// comes later.
    Behind,
    /// Awaited, and the other waits too before we let go.
    Between,
    /// A process died holding the lock before, and the victim repairs its data.
    Repairing,
}

/// Progress of the victim, as it says itself in `progress`.
pub const AWAY: u64 = 0;
pub const LOCKING: u64 = 1;
pub const HOLDING: u64 = 2;
pub const UNLOCKING: u64 = 3;
pub const DONE: u64 = 4;

/// The data: equal when consistent.
pub type Data = [AtomicU64; 2];

/// The scene in shared memory.
#[repr(C)]
pub struct Scene<L> {
    pub mutex: Mutex<Data, L>,
    /// Changed under the lock, not atomically.
    pub visits: AtomicU64,
    /// Identities, by rank.
    pub identities: [AtomicU64; 4],
    pub progress: AtomicU64,
    /// The victim may begin.
    pub go: AtomicU64,
    /// The other's: its orders (number, times, whether to repair), the results that it
    /// has done, what it found, how often.
    pub order: AtomicU64,
    pub taken: AtomicU64,
    pub answered: AtomicU64,
    pub answer: [AtomicU64; 4],
}

/// A process's view of its world.
pub struct Around<'a, L> {
    pub world: &'a World,
    pub scene: &'a Scene<L>,
    pub oversubscribed: bool,
}

impl<L: Subject> Surroundings for Around<'_, L> {
    fn oversubscribed(&self) -> bool {
        self.oversubscribed
    }
    fn identity(&self) -> u32 {
        self.world.surroundings().identity()
    }
    fn is_alive(&self, identity: u32) -> bool {
        self.world.surroundings().is_alive(identity)
    }
    fn deaths(&self) -> u64 {
        self.world.surroundings().deaths()
    }
    fn asleep(&self, asleep: bool) {
        self.world.surroundings().asleep(asleep);
    }
}

/// One participant's means: each has one of its own.
pub struct Player<'a, L> {
    around: &'a Around<'a, L>,
    wait: Wait<'a>,
}

impl<'a, L: Subject> Player<'a, L> {
    pub fn enter(around: &'a Around<'a, L>, policy: Policy, rank: u32) -> Player<'a, L> {
        around.world.enter(Some(rank)).unwrap();
        around.scene.identities[rank as usize].store(around.identity().into(), SeqCst);
        Player { around, wait: Wait { policy, around, budget: 200 } }
    }

    pub fn lock(&self) -> Result<MutexGuard<'a, Data, L>, LockError> {
        let rank = self.around.world.rank();
        // SAFETY: all lock it so, each as a participant of one world, which says which of them
        // live; each process has one thread.
        unsafe {
            self.around.scene.mutex.lock_between(Native::of_participant(rank), self.wait, Deadline::NEVER)
        }
    }

    /// Takes the lock, looks at the data, changes or repairs it, and lets go.
    pub fn visit(&self, repair: bool) -> Found {
        let result = self.lock();
        let found = match &result {
            Ok(guard) if guard.owner_died() => OwnerDied,
            Ok(_) => Consistent,
            Err(LockError::Abandoned) => Abandoned,
            Err(LockError::Poisoned) => Poisoned,
            Err(error) => unreachable!("{error}"),
        };
        let mut guard = result.ok();
        if let Some(guard) = &mut guard {
            let [first, second] = &**guard;
            let value = first.load(Relaxed);
            if found == Consistent {
                assert_eq!(
                    value,
                    second.load(Relaxed),
                    "changed in part, and no error said that an owner died"
                );
                first.store(value + 1, Relaxed);
                (0..20).for_each(|_| spin_loop());
                let visits = &self.around.scene.visits;
                visits.store(black_box(visits.load(Relaxed)) + 1, Relaxed);
                assert_eq!(first.load(Relaxed), value + 1, "two at a time");
                second.store(value + 1, Relaxed);
            } else if repair {
                second.store(value, Relaxed);
                guard.make_consistent();
            }
        }
        drop(guard);
        found
    }

    /// The other survivor: visits as ordered, for ever.
    pub fn serve(&self) {
        let (scene, cpu) = (self.around.scene, Native::current());
        let mut seen = 0;
        loop {
            let order = scene.order.load(SeqCst);
            if order == seen {
                cpu.park(&scene.order, seen, 10_000_000);
                continue;
            }
            seen = order;
            scene.taken.store(order, SeqCst);
            let mut counts = [0; 4];
            (0..order >> 1 & 0xff).for_each(|_| counts[self.visit(order & 1 == 1) as usize] += 1);
            for (count, word) in counts.iter().zip(&scene.answer) {
                word.store(*count, SeqCst);
            }
            scene.answered.store(order, SeqCst);
            cpu.wake(&scene.answered, 1);
        }
    }

    /// The victim, from its birth to its end.
    pub fn suffer(&self, act: Act) -> Result<(), Box<dyn Error>> {
        let scene = self.around.scene;
        // Work that is done only once in a process is done before the act.
        Native::pause_ps();
        for rank in [JUDGE, VICTIM, OTHER] {
            self.around.is_alive(scene.identities[rank as usize].load(SeqCst) as u32);
        }
        let early = act == Act::Awaited;
        if !early {
            mark();
        }
        scene.progress.store(LOCKING, SeqCst);
        let mut guard = self.lock()?;
        scene.progress.store(HOLDING, SeqCst);
        if early {
            while scene.go.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            mark();
        }
        let died = guard.owner_died();
        let value = guard[0].load(Relaxed);
        guard[0].store(value + 1, SeqCst);
        guard[1].store(value + 1, SeqCst);
        if died != (act == Act::Repairing) {
            return Err(format!("told {died}").into());
        }
        if died {
            guard.make_consistent();
        }
        scene.progress.store(UNLOCKING, SeqCst);
        drop(guard);
        scene.progress.store(DONE, SeqCst);
        mark();
        Ok(())
    }
}
