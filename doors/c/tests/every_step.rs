//! Kills of a process after instruction k of calls as C makes them.
//!
//! A survivor does not hang, and is told where data may be half changed.
//!
//! `cargo test -p towpath-c --test every_step -- every` does it for every k; in the ordinary tests
//! k grows by half of it at a time. The steps below the calls, under contention, are the business
//! of `towpath-shm`'s tests; here the handles' own steps matter.
#![allow(unsafe_code)]

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

use towpath_c::fault::Fault;
use towpath_c::mutex::*;
use towpath_c::queue::*;
use towpath_c::rw_lock::*;
use towpath_c::semaphore::*;
use towpath_testkit::{Choice, Victim, mark, shared_words, watchdog};

const ROOM: usize = 1 << 16;
const LONG: u64 = 20_000_000_000;
const USERS: u32 = 3;
/// Parts of a change, of which a survivor must not see some alone.
const PARTS: u64 = 64;

/// Memory of a play, which a fork shares.
type At = *mut c_void;

/// A handle that `open` makes.
fn opened<T>(open: impl FnOnce(Option<&mut MaybeUninit<*mut T>>) -> c_int) -> &'static T {
    let mut place = MaybeUninit::uninit();
    assert_eq!(open(Some(&mut place)), 0);
    // SAFETY: written by the call; not null after success; never closed.
    unsafe { &*place.assume_init() }
}

/// A mutex, or lock, opened as a user: by the survivor, which makes it, or by the victim.
macro_rules! user {
    ($function:ident($($more:expr),*), $at:expr) => {
        // SAFETY: the memory stays mapped, and was zeroed before the first call.
        opened(|out| unsafe { $function($at, ROOM, USERS, $($more,)* out) })
    };
}

/// Changes a value in parts.
fn change(value: *mut u64) {
    for _ in 0..PARTS {
        // SAFETY: of this lock's holder.
        unsafe { value.write_volatile(value.read_volatile() + 1) };
    }
}

/// Looks at the value as a survivor that got this answer; makes it whole.
fn look(value: *mut u64, answer: c_int, consistent: impl FnOnce() -> c_int) {
    // SAFETY: of this lock's holder.
    let parts = unsafe { value.read_volatile() };
    if answer == Fault::OWNERDEAD.number() {
        // SAFETY: of this lock's holder.
        unsafe { value.write_volatile(parts.next_multiple_of(PARTS)) };
        assert_eq!(consistent(), 0);
    } else {
        assert_eq!((answer, parts % PARTS), (0, 0), "half-changed data must be told");
    }
}

fn mutex_victim(at: At) {
    let mutex = user!(tp_mutex_open_or_init(), at);
    mark();
    assert_eq!(tp_mutex_lock(Some(mutex)), 0);
    change(tp_mutex_value(Some(mutex)));
    assert_eq!(tp_mutex_unlock(Some(mutex)), 0);
    mark();
}

fn mutex_survivor(at: At) {
    let mutex = user!(tp_mutex_open_or_init(), at);
    let answer = tp_mutex_timedlock(Some(mutex), LONG);
    look(tp_mutex_value(Some(mutex)), answer, || tp_mutex_consistent(Some(mutex)));
    assert_eq!(tp_mutex_unlock(Some(mutex)), 0);
    assert_eq!(tp_mutex_trylock(Some(mutex)), 0);
}

fn writing_victim(at: At) {
    let lock = user!(tp_rwlock_open_or_init(), at);
    mark();
    assert_eq!(tp_rwlock_write(Some(lock), LONG), 0);
    change(tp_rwlock_value(Some(lock)));
    assert_eq!(tp_rwlock_write_unlock(Some(lock)), 0);
    mark();
}

fn reading_victim(at: At) {
    let lock = user!(tp_rwlock_open_or_init(), at);
    mark();
    let mut reading = MaybeUninit::uninit();
    assert_eq!(tp_rwlock_read(Some(lock), LONG, Some(&mut reading)), 0);
    // SAFETY: written by the call; of this lock and thread.
    assert_eq!(unsafe { tp_rwlock_read_unlock(Some(lock), Some(reading.assume_init_mut())) }, 0);
    mark();
}

fn rw_survivor(at: At) {
    let lock = user!(tp_rwlock_open_or_init(), at);
    let answer = tp_rwlock_write(Some(lock), LONG);
    look(tp_rwlock_value(Some(lock)), answer, || tp_rwlock_consistent(Some(lock)));
    assert_eq!(tp_rwlock_write_unlock(Some(lock)), 0);
    assert_eq!(tp_rwlock_read(Some(lock), 0, Some(&mut MaybeUninit::uninit())), 0);
}

fn permit_victim(at: At) {
    let semaphore = user!(tp_sem_open_or_init(1), at);
    mark();
    assert_eq!(tp_sem_wait(Some(semaphore), LONG), 0);
    assert_eq!(tp_sem_release(Some(semaphore)), 0);
    mark();
}

fn permit_survivor(at: At) {
    let semaphore = user!(tp_sem_open_or_init(1), at);
    assert_eq!(tp_sem_wait(Some(semaphore), LONG), 0);
    assert_eq!(tp_sem_wait(Some(semaphore), 0), Fault::TIMEDOUT.number(), "there is one permit");
}

fn sending_victim(at: At) {
    let queue = user!(tp_queue_open_or_init(0, 16, 4), at);
    let sender = opened(|out| tp_sender_open(Some(queue), out));
    mark();
    let message = [7u64, 7];
    // SAFETY: a message.
    assert_eq!(unsafe { tp_sender_send(Some(sender), message.as_ptr().cast(), LONG) }, 0);
    mark();
}

fn sending_survivor(at: At) {
    let queue = user!(tp_queue_open_or_init(0, 16, 4), at);
    let receiver = opened(|out| tp_receiver_open(Some(queue), out));
    let mut message = [0u64; 2];
    // SAFETY: room for a message.
    let mut receive = || unsafe { tp_receiver_receive(Some(receiver), message.as_mut_ptr().cast(), LONG) };
    let mut answer = receive();
    if answer == 0 {
        answer = receive();
        assert_eq!(message, [7, 7]);
    }
    assert_eq!(answer, Fault::PEERDIED.number());
}

/// Name, the victim, and the survivor, which comes after its death.
type Play = (&'static str, fn(At), fn(At));

const PLAYS: &[Play] = &[
    ("mutex", mutex_victim, mutex_survivor),
    ("writing", writing_victim, rw_survivor),
    ("reading", reading_victim, rw_survivor),
    ("permit", permit_victim, permit_survivor),
    ("sending", sending_victim, sending_survivor),
];

fn main() {
    let choice = Choice::from_arguments();
    let words = shared_words(ROOM / 8);
    let at: At = words.as_ptr().cast_mut().cast();
    for &(name, act, survive) in PLAYS.iter().filter(|play| choice.includes(&[play.0])) {
        watchdog::begin(format!("{name} by C's calls"), if choice.every() { 600 } else { 60 });
        let (mut steps, mut kills, mut complete) = (0, 0, false);
        while !complete {
            watchdog::at(steps);
            // Relaxed: the fork orders them.
            words.iter().for_each(|word| word.store(0, std::sync::atomic::Ordering::Relaxed));
            let mut victim = Victim::fork(|| {
                act(at);
                Ok(())
            });
            victim.reach_mark();
            complete = victim.run(steps, |_, _| ());
            victim.kill();
            survive(at);
            kills += 1;
            steps = choice.after(steps);
        }
        println!("{name:<12}{kills:>6} kills, {steps:>6} steps");
    }
}
