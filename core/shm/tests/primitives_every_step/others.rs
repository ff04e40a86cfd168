//! Plays of the semaphore, the once, the event, the barrier and the condition variable.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use towpath_shm::Shared;
use towpath_sync::robust::{Condvar, EpisodeError, Woken};
use towpath_sync::{LockError, Mutex};

use super::{Child, Hold, Holding, LONG, PATIENCE, PLAY, Play, Stage, mark, no_hold, nothing};

/// Milestone of a victim: its act is complete.
const DONE: u64 = 1;
/// Milestone of a victim: it has a permit.
const HELD: u64 = 2;

/// The words of a once's work, which are equal when it is whole.
type Work = [u64; 2];

fn semaphore_victim(stage: &Stage) {
    let semaphore = stage.world.semaphore("s", 2).unwrap();
    mark();
    let permit = semaphore.acquire().unwrap();
    stage.progress.store(HELD, SeqCst);
    drop(black_box(permit));
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn semaphore_stands_still(stage: &Stage) {
    let semaphore = stage.world.semaphore("s", 2).unwrap();
    let _one = semaphore.acquire_timeout(LONG).expect("the victim takes one of two");
    // The victim may have the other one; nothing is taken from it.
    if let Ok(second) = semaphore.try_acquire() {
        assert!(semaphore.try_acquire().is_err());
        drop(second);
    }
}

fn both_permits_are_there(stage: &Stage) {
    let semaphore = stage.world.semaphore("s", 2).unwrap();
    if stage.progress.load(SeqCst) == HELD {
        stage.told();
    }
    assert_eq!(semaphore.available(), 2);
    let both = [(); 2].map(|()| semaphore.acquire_timeout(LONG).expect("a permit was lost"));
    assert!(semaphore.try_acquire().is_err(), "a permit too many");
    drop(both);
    assert_eq!(semaphore.available(), 2);
}

/// Waits for the permit that the victim has, or the one that this process had.
fn semaphore_helper(stage: &Stage) {
    drop(stage.world.semaphore("s", 2).unwrap().acquire_timeout(LONG).expect("a permit was lost"));
}

fn semaphore_held(stage: &Stage) -> Hold {
    Holding::hold(stage.world.semaphore("s", 2).unwrap(), |semaphore| {
        [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()]
    })
}

fn once_victim(stage: &Stage) {
    let once = stage.world.once("o").unwrap();
    let work = stage.world.mutex::<Work>("w", [0; 2]).unwrap();
    mark();
    once.call(|dead| {
        assert_eq!(dead, None);
        // The mutex is never held for long enough to matter: the once is what excludes.
        work.lock().unwrap()[0] = 1;
        work.lock().unwrap()[1] = 1;
    })
    .unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn once_is_done(stage: &Stage) {
    let once = stage.world.once("o").unwrap();
    let work = stage.world.mutex::<Work>("w", [0; 2]).unwrap();
    let act = |dead: Option<u32>| {
        assert_ne!(stage.progress.load(SeqCst), DONE, "done twice");
        let mut work = match work.lock_timeout(LONG) {
            Ok(guard) => guard,
            Err(LockError::OwnerDied { guard, .. }) => guard.assume_consistent(),
            Err(other) => panic!("{other}"),
        };
        if *work != [0; 2] {
            assert_eq!(dead, Some(1), "done in part, and not told");
        }
        if dead.is_some() {
            stage.told();
        }
        *work = [1; 2];
    };
    once.call(act).unwrap();
    assert!(once.is_done());
    let work = match work.lock_timeout(LONG) {
        Ok(guard) => *guard,
        Err(LockError::OwnerDied { guard, .. }) => *guard.assume_consistent(),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(work, [1; 2]);
}

fn event_victim(stage: &Stage) {
    let event = stage.world.event("e").unwrap();
    mark();
    event.set();
    stage.progress.store(DONE, SeqCst);
    mark();
}

/// Waits for the event; the last one to set it is this process's parent.
fn event_helper(stage: &Stage) {
    stage.world.event("e").unwrap().wait_timeout(LONG).expect("the event was lost");
}

fn event_is_set(stage: &Stage) {
    let event = stage.world.event("e").unwrap();
    if stage.progress.load(SeqCst) == DONE {
        assert!(event.is_set());
    }
    if event.is_set() {
        stage.told();
    }
    event.set();
}

fn event_waiter(stage: &Stage) {
    let event = stage.world.event("e").unwrap();
    mark();
    event.wait().unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
}

/// Sets the event when it is dropped.
fn sets_the_event(stage: &Stage) -> Hold {
    struct Sets(towpath_shm::Shared<towpath_sync::robust::Event>);
    impl Drop for Sets {
        fn drop(&mut self) {
            self.0.set();
        }
    }
    Some(Box::new(Sets(stage.world.event("e").unwrap())))
}

fn event_goes_on(stage: &Stage) {
    let event = stage.world.event("e").unwrap();
    event.reset();
    assert!(event.wait_timeout(Duration::from_millis(1)).is_err());
    event.set();
    event.wait_timeout(LONG).unwrap();
}

fn barrier_victim(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    barrier.join().unwrap();
    mark();
    barrier.wait().unwrap();
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn barrier_leaver(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    barrier.join().unwrap();
    mark();
    assert!(barrier.leave());
    stage.progress.store(DONE, SeqCst);
    mark();
}

/// Arrives. Of a victim that has left it is not told.
fn barrier_left(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    match barrier.wait_timeout(LONG) {
        Ok(()) => {}
        Err(EpisodeError::PeerDied { rank: Some(1) }) if stage.progress.load(SeqCst) != DONE => stage.told(),
        Err(other) => panic!("{other}"),
    }
    barrier.wait_timeout(LONG).expect("alone");
}

/// Arrives twice. It is told once: in the first episode if the victim dies before it
/// arrives, or else in the second.
fn barrier_helper(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    let told = [(); 2].map(|()| match barrier.wait_timeout(LONG) {
        Ok(()) => false,
        Err(EpisodeError::PeerDied { rank }) => {
            assert_eq!(rank, Some(1));
            true
        }
        Err(other) => panic!("{other}"),
    });
    assert!(told[0] != told[1], "told {told:?}");
    if told[0] {
        assert_ne!(stage.progress.load(SeqCst), DONE, "it had passed");
        stage.told();
    }
    barrier.wait_timeout(LONG).expect("alone");
}

/// Lets two participants of the barrier die, in another process.
fn barrier_of_the_dead(stage: &Stage) -> Hold {
    let dead = Child::fork(|| {
        let world = stage.world.reopen().unwrap();
        world.enter(Some(2)).unwrap();
        let barrier = world.barrier_of("b", 2).unwrap();
        barrier.join().unwrap();
        std::thread::scope(|scope| scope.spawn(|| barrier.join().unwrap()).join().unwrap());
        // Neither leaves: no memory of this process is dropped.
        std::process::exit(0);
    });
    while !dead.has_ended() {
        std::thread::yield_now();
    }
    assert!(dead.has_ended_well());
    None
}

fn barrier_newcomer(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    mark();
    assert_eq!(barrier.wait_timeout(Duration::ZERO), Err(EpisodeError::TimedOut));
    mark();
}

/// Arrives in two threads, which wait for each other, and are told of no death: no
/// participant lived when they came.
fn barrier_begins_anew(stage: &Stage) {
    let barrier = stage.world.barrier_of("b", 2).unwrap();
    std::thread::scope(|scope| {
        let arrive = || {
            barrier.join().expect("no participant lives");
            barrier.wait_timeout(LONG).expect("both");
        };
        scope.spawn(arrive);
        arrive();
        assert_eq!(barrier.wait_timeout(Duration::ZERO), Err(EpisodeError::TimedOut), "two participants");
    });
}

/// A number of tokens in a mutex, and the condition variable that says that there are
/// more.
struct Tokens {
    number: Shared<Mutex<u64>>,
    more: Shared<Condvar>,
}

impl Tokens {
    fn open(stage: &Stage) -> Tokens {
        Tokens { number: stage.world.mutex("m", 0u64).unwrap(), more: stage.world.condvar("c").unwrap() }
    }

    /// Takes a token, or waits for one.
    fn take(&self) {
        let mut guard = match self.number.lock_timeout(LONG) {
            Ok(guard) => guard,
            Err(LockError::OwnerDied { guard, .. }) => guard.assume_consistent(),
            Err(other) => panic!("{other}"),
        };
        while *guard == 0 {
            guard = match self.more.wait_timeout(guard, LONG) {
                Ok((guard, woken)) => {
                    assert_eq!(woken, Woken::Notified, "the notification was lost with its waiter");
                    guard
                }
                Err(LockError::OwnerDied { guard, .. }) => guard.assume_consistent(),
                Err(other) => panic!("{other}"),
            };
        }
        *guard -= 1;
    }

    fn put(&self) {
        match self.number.lock_timeout(LONG) {
            Ok(mut guard) => *guard += 1,
            Err(LockError::OwnerDied { guard, .. }) => *guard.assume_consistent() += 1,
            Err(other) => panic!("{other}"),
        }
        self.more.notify_one();
    }

    fn left(&self) -> u64 {
        match self.number.lock_timeout(LONG) {
            Ok(guard) => *guard,
            Err(LockError::OwnerDied { guard, .. }) => *guard.assume_consistent(),
            Err(other) => panic!("{other}"),
        }
    }
}

fn condvar_waiter(stage: &Stage) {
    let tokens = Tokens::open(stage);
    mark();
    tokens.take();
    stage.progress.store(DONE, SeqCst);
    mark();
}

/// Notes of the helper.
const MAY_WAIT: u64 = 1;
const TOOK_ONE: u64 = 2;

/// Waits when the victim waits already.
fn condvar_helper(stage: &Stage) {
    let tokens = Tokens::open(stage);
    while stage.note.load(SeqCst) < MAY_WAIT {
        std::thread::sleep(Duration::from_micros(100));
    }
    tokens.take();
    stage.note.store(TOOK_ONE, SeqCst);
}

/// The thread that puts the first token in: a victim that stands still may have the
/// mutex.
static PUTTING: std::sync::Mutex<Option<JoinHandle<()>>> = std::sync::Mutex::new(None);

/// Hold that, when dropped, lets the helper wait behind the victim, and puts one token
/// in.
fn puts_a_token(stage: &Stage) -> Hold {
    struct Puts(Option<Tokens>, &'static AtomicU64);
    impl Drop for Puts {
        fn drop(&mut self) {
            let (Some(tokens), note) = (self.0.take(), self.1) else { return };
            let thread = std::thread::spawn(move || {
                note.store(MAY_WAIT, SeqCst);
                std::thread::sleep(Duration::from_millis(2));
                tokens.put();
            });
            *PUTTING.lock().unwrap() = Some(thread);
        }
    }
    Some(Box::new(Puts(Some(Tokens::open(stage)), stage.note)))
}

fn lets_the_helper_wait(stage: &Stage) -> Hold {
    stage.note.store(MAY_WAIT, SeqCst);
    None
}

/// Waits until the helper has the token that the victim did not take, without another
/// notification.
fn the_other_waiter_gets_it(stage: &Stage) {
    let thread = PUTTING.lock().unwrap().take();
    thread.expect("it was dropped").join().unwrap();
    let (tokens, since) = (Tokens::open(stage), Instant::now());
    while stage.note.load(SeqCst) != TOOK_ONE {
        if tokens.left() == 0
            && since.elapsed() > Duration::from_millis(20)
            && stage.note.load(SeqCst) != TOOK_ONE
        {
            // The victim took it.
            stage.told();
            return tokens.put();
        }
        assert!(since.elapsed() < LONG, "the notification was lost with its waiter");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn condvar_notifier(stage: &Stage) {
    let tokens = Tokens::open(stage);
    mark();
    tokens.put();
    stage.progress.store(DONE, SeqCst);
    mark();
}

fn a_token_comes(stage: &Stage) {
    // Whatever the victim did, one more is enough.
    Tokens::open(stage).put();
}

pub const PLAYS: &[Play] = &[
    Play {
        name: "semaphore acquire and release alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: semaphore_victim,
        helper: None,
        meanwhile: semaphore_stands_still,
        after: both_permits_are_there,
        is_told: true,
    },
    Play {
        name: "semaphore acquire behind others",
        patience: PATIENCE,
        hold: semaphore_held,
        victim: semaphore_victim,
        helper: Some(semaphore_helper),
        meanwhile: nothing,
        after: both_permits_are_there,
        is_told: true,
    },
    Play {
        name: "once alone",
        patience: PATIENCE,
        hold: no_hold,
        victim: once_victim,
        helper: None,
        meanwhile: nothing,
        after: once_is_done,
        is_told: true,
    },
    Play {
        name: "event set while another waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: event_victim,
        helper: Some(event_helper),
        meanwhile: nothing,
        after: event_is_set,
        is_told: true,
    },
    Play {
        name: "event wait",
        patience: PATIENCE,
        hold: sets_the_event,
        victim: event_waiter,
        helper: None,
        meanwhile: nothing,
        after: event_goes_on,
        is_told: false,
    },
    Play {
        name: "barrier while another waits",
        patience: PATIENCE,
        hold: no_hold,
        victim: barrier_victim,
        helper: Some(barrier_helper),
        meanwhile: nothing,
        after: nothing,
        is_told: true,
    },
    Play {
        name: "barrier of the dead",
        hold: barrier_of_the_dead,
        victim: barrier_newcomer,
        after: barrier_begins_anew,
        is_told: false,
        ..PLAY
    },
    Play { name: "barrier left", victim: barrier_leaver, after: barrier_left, ..PLAY },
    Play {
        name: "condvar wait beside another",
        patience: 10 * PATIENCE,
        hold: puts_a_token,
        victim: condvar_waiter,
        helper: Some(condvar_helper),
        meanwhile: nothing,
        after: the_other_waiter_gets_it,
        is_told: true,
    },
    Play {
        name: "condvar notify",
        patience: 10 * PATIENCE,
        hold: lets_the_helper_wait,
        victim: condvar_notifier,
        helper: Some(condvar_helper),
        meanwhile: nothing,
        after: a_token_comes,
        is_told: false,
    },
];
