//! A condition variable whose waiter was killed (sourceware 21422): ours, and the
//! process-shared one of pthread, in the same steps. Ours must go on; pthread's outcome is printed.

use std::mem::size_of;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

use towpath_shm::{Shared, World, WorldSpec};
use towpath_sync::robust::Condvar;
use towpath_sync::{LockError, Mutex, MutexGuard};
use towpath_testkit::Child;

use super::LONG;

/// A number of tokens, for which processes wait.
trait Tokens {
    fn take(&self);
    fn put(&self);
}

struct Ours {
    tokens: Shared<Mutex<u64>>,
    more: Shared<Condvar>,
}

impl Ours {
    fn locked(&self) -> MutexGuard<'_, u64> {
        match self.tokens.lock_timeout(LONG) {
            Ok(guard) => guard,
            Err(LockError::OwnerDied { guard, .. }) => guard.assume_consistent(),
            Err(other) => panic!("{other}"),
        }
    }
}

impl Tokens for Ours {
    fn take(&self) {
        let mut tokens = self.locked();
        while *tokens == 0 {
            tokens = match self.more.wait(tokens) {
                Ok(guard) => guard,
                Err(LockError::OwnerDied { guard, .. }) => guard.assume_consistent(),
                Err(other) => panic!("{other}"),
            };
        }
        *tokens -= 1;
    }
    fn put(&self) {
        *self.locked() += 1;
        self.more.notify_one();
    }
}

#[repr(C)]
struct OfPthread {
    mutex: libc::pthread_mutex_t,
    more: libc::pthread_cond_t,
    tokens: u64,
}

struct Theirs(*mut OfPthread);

impl Theirs {
    fn new(words: &'static [AtomicU64]) -> Theirs {
        assert!(size_of::<OfPthread>() <= size_of_val(words));
        let at = words.as_ptr().cast_mut().cast::<OfPthread>();
        // SAFETY: the words are shared, zero, aligned to 8 bytes, and used by nothing else; the
        // attributes are initialized before they are used.
        unsafe {
            let mut of_mutex = std::mem::zeroed();
            libc::pthread_mutexattr_init(&mut of_mutex);
            libc::pthread_mutexattr_setpshared(&mut of_mutex, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(&mut of_mutex, libc::PTHREAD_MUTEX_ROBUST);
            assert_eq!(libc::pthread_mutex_init(&raw mut (*at).mutex, &of_mutex), 0);
            let mut of_cond = std::mem::zeroed();
            libc::pthread_condattr_init(&mut of_cond);
            libc::pthread_condattr_setpshared(&mut of_cond, libc::PTHREAD_PROCESS_SHARED);
            assert_eq!(libc::pthread_cond_init(&raw mut (*at).more, &of_cond), 0);
        }
        Theirs(at)
    }
}

impl Tokens for Theirs {
    fn take(&self) {
        // SAFETY: initialized above, and changed under the mutex.
        unsafe {
            libc::pthread_mutex_lock(&raw mut (*self.0).mutex);
            while (*self.0).tokens == 0 {
                libc::pthread_cond_wait(&raw mut (*self.0).more, &raw mut (*self.0).mutex);
            }
            (*self.0).tokens -= 1;
            libc::pthread_mutex_unlock(&raw mut (*self.0).mutex);
        }
    }
    fn put(&self) {
        // SAFETY: as in `take`.
        unsafe {
            libc::pthread_mutex_lock(&raw mut (*self.0).mutex);
            (*self.0).tokens += 1;
            libc::pthread_mutex_unlock(&raw mut (*self.0).mutex);
            libc::pthread_cond_signal(&raw mut (*self.0).more);
        }
    }
}

/// Waits for a child to end, at most so long.
fn ends_within(child: &Child, time: Duration) -> bool {
    let since = Instant::now();
    while !child.has_ended() {
        if since.elapsed() >= time {
            return false;
        }
        thread::sleep(Duration::from_micros(200));
    }
    assert!(child.has_ended_well(), "a child failed");
    true
}

fn falls_asleep(child: &Child) {
    while !child.is_asleep() {
        thread::sleep(Duration::from_micros(200));
    }
}

/// A waiter is killed; then tokens are put in for waiters that come later. `fork` runs
/// its argument in a process of the given number. Returns whether all went on.
fn go_on_after_a_killed_waiter(fork: &dyn Fn(u32, fn(&dyn Tokens)) -> Child, patience: Duration) -> bool {
    let killed = fork(1, |tokens| tokens.take());
    falls_asleep(&killed);
    killed.kill();
    let first = fork(2, |tokens| tokens.put());
    let taker = fork(3, |tokens| tokens.take());
    if !ends_within(&first, patience) || !ends_within(&taker, patience) {
        return false;
    }
    let waiter = fork(4, |tokens| tokens.take());
    falls_asleep(&waiter);
    let second = fork(5, |tokens| tokens.put());
    ends_within(&second, patience) && ends_within(&waiter, patience)
}

pub fn side_by_side() {
    let spec = WorldSpec { name: None, processes: 6, area_bytes: 0, object_bytes: 1 << 18, params: [0; 16] };
    let world = World::create(&spec).unwrap();
    let ours = |rank: u32, act: fn(&dyn Tokens)| {
        Child::fork(|| {
            let world = world.reopen().unwrap();
            world.enter(Some(rank)).unwrap();
            act(&Ours { tokens: world.mutex("m", 0).unwrap(), more: world.condvar("c").unwrap() });
        })
    };
    let of_ours = go_on_after_a_killed_waiter(&ours, LONG);

    let theirs = Theirs::new(towpath_testkit::shared_words(64));
    let of_theirs = go_on_after_a_killed_waiter(
        &|_, act| Child::fork(|| act(&Theirs(theirs.0))),
        Duration::from_millis(300),
    );
    let says = |goes_on: bool| if goes_on { "goes on" } else { "hangs" };
    println!("condvar with a killed waiter: ours {}, pthread's {}", says(of_ours), says(of_theirs));
    assert!(of_ours, "notifiers or waiters hang after the death of a waiter");
}
