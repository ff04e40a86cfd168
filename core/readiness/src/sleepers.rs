//! The thread that sleeps on words for those that must not block: it wakes their tasks.
//!
//! It sleeps on the words of its sleepers and on one of its own, with which it is called when there
//! is a new one. `futex_waitv` says that one was woken, not that no other was: so the thread
//! compares them all, by a wait of no time, which reads the word in the kernel. A word whose memory
//! is gone makes the kernel refuse; its sleeper is woken like one whose word has changed.
//!
//! A thread takes 127 sleepers; for more there are more threads. They are never joined: they end
//! with the process, and sleep when there is nothing to sleep on. A child after a fork starts its
//! own.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::task::Waker;
use core::time::Duration;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use rustix::io::Errno;
use rustix::thread::{Timespec, futex};
use towpath_machine::{Native, Park};
use towpath_sync::Asleep;

/// Number of sleepers of a thread: one word less than `futex_waitv` takes.
const MOST: usize = 127;

/// Sleep of a task. Dropped, it ends.
#[derive(Debug)]
pub struct SleepRegistration {
    thread: Arc<SleeperThread>,
    number: u64,
}

#[derive(Debug)]
struct SleeperThread {
    sleepers: Mutex<Vec<Sleeper>>,
    /// Changes, and is woken, when the thread is to look at its sleepers again.
    call: AtomicU64,
}

#[derive(Debug)]
struct Sleeper {
    number: u64,
    asleep: Asleep,
    until: Instant,
    waker: Waker,
}

/// Threads of the process of that pid.
static THREADS: Mutex<(u32, Vec<Arc<SleeperThread>>)> = Mutex::new((0, Vec::new()));
static NUMBERS: AtomicU64 = AtomicU64::new(0);

impl SleepRegistration {
    /// Wakes the task once when the word differs or its waiters are woken, but after that
    /// time at the latest.
    ///
    /// # Errors
    ///
    /// The system's: no thread can be started.
    pub fn new(asleep: Asleep, turn: Duration, waker: Waker) -> io::Result<SleepRegistration> {
        // Relaxed: only unique.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let mut sleeper = Sleeper { number, asleep, until: Instant::now() + turn, waker };
        let mut threads = lock(&THREADS);
        let pid = std::process::id();
        if threads.0 != pid {
            // A child has no thread of its parent's.
            *threads = (pid, Vec::new());
        }
        for thread in &threads.1 {
            match thread.take_on(sleeper) {
                None => return Ok(SleepRegistration { thread: thread.clone(), number }),
                Some(refused) => sleeper = refused,
            }
        }
        let thread = Arc::new(SleeperThread { sleepers: Mutex::new(vec![sleeper]), call: AtomicU64::new(0) });
        let run = thread.clone();
        std::thread::Builder::new().name("towpath-sleeper".into()).spawn(move || run.run())?;
        threads.1.push(thread.clone());
        Ok(SleepRegistration { thread, number })
    }

    /// Returns whether the task has not been woken yet.
    pub fn is_asleep(&self) -> bool {
        lock(&self.thread.sleepers).iter().any(|sleeper| sleeper.number == self.number)
    }
}

impl Drop for SleepRegistration {
    fn drop(&mut self) {
        // The thread may go on sleeping on the word until it is called: that harms no one.
        let mut sleepers = lock(&self.thread.sleepers);
        let place = sleepers.iter().position(|sleeper| sleeper.number == self.number);
        let sleeper = place.map(|place| sleepers.swap_remove(place));
        // A waker may drop a task, with another registration.
        drop(sleepers);
        drop(sleeper);
    }
}

impl SleeperThread {
    /// Takes a sleeper on, unless it has too many.
    fn take_on(&self, sleeper: Sleeper) -> Option<Sleeper> {
        let mut sleepers = lock(&self.sleepers);
        if sleepers.len() >= MOST {
            return Some(sleeper);
        }
        sleepers.push(sleeper);
        drop(sleepers);
        // Relaxed: the lock orders the list; the kernel compares the word.
        self.call.fetch_add(1, Ordering::Relaxed);
        Native::with_id(0).wake(&self.call, 1);
        None
    }

    fn run(&self) {
        loop {
            // Relaxed: as in `take_on`. Read before the list.
            let called = self.call.load(Ordering::Relaxed);
            let (words, next) = self.wake_those_due();
            sleep_on(&self.call, called, &words, next);
        }
    }

    /// Wakes the tasks whose words differ or whose time is over. Returns the words of the
    /// others, and the time of the next one.
    fn wake_those_due(&self) -> (Vec<Asleep>, Option<Instant>) {
        let mut sleepers = lock(&self.sleepers);
        let now = Instant::now();
        let due = |sleeper: &mut Sleeper| sleeper.until <= now || differs(sleeper.asleep);
        let woken: Vec<Waker> = sleepers.extract_if(.., due).map(|sleeper| sleeper.waker).collect();
        let words = sleepers.iter().map(|sleeper| sleeper.asleep).collect();
        let next = sleepers.iter().map(|sleeper| sleeper.until).min();
        drop(sleepers);
        woken.into_iter().for_each(Waker::wake);
        (words, next)
    }
}

/// The word, which may be gone: only for the kernel.
pub fn word_of(asleep: Asleep) -> *const AtomicU64 {
    core::ptr::with_exposed_provenance(asleep.address)
}

/// Returns whether the word holds another value than the sleeper saw, or is gone.
fn differs(asleep: Asleep) -> bool {
    const NO_TIME: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the address is only given to the kernel, by `futex::wait`, which reads it itself and
    // refuses one that is not mapped; the program reads nothing there. It is aligned, being half of
    // a word.
    let word = unsafe { AtomicU32::from_ptr(Native::futex_of(word_of(asleep))) };
    futex::wait(word, futex::Flags::empty(), asleep.expected, Some(&NO_TIME)) != Err(Errno::TIMEDOUT)
}

/// Sleeps until one of the words differs or is woken, the thread is called, or that time.
fn sleep_on(call: &AtomicU64, called: u64, words: &[Asleep], until: Option<Instant>) {
    let own = core::iter::once((core::ptr::from_ref(call), called as u32));
    let theirs = words.iter().map(|asleep| (word_of(*asleep), asleep.expected));
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_nanos() as u64);
    // If a word is gone, or differs, its sleeper is woken in the next round.
    if !Native::with_id(0).park_on_addresses(own.chain(theirs), left.unwrap_or(u64::MAX)) {
        // Looks again soon.
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// The lists are whole after each statement: a panic in between has spoilt nothing.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Wake;

    use super::*;

    /// Long enough that a test which relies on it stands still.
    const HOUR: Duration = Duration::from_secs(3600);

    struct Note(mpsc::Sender<u64>, u64);

    impl Wake for Note {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(self.1);
        }
    }

    /// Number of the next sleeper that was woken; the watchdog of a test.
    fn next(woken: &mpsc::Receiver<u64>) -> Result<u64, mpsc::RecvTimeoutError> {
        woken.recv_timeout(Duration::from_secs(60))
    }

    fn at(word: &AtomicU64) -> Asleep {
        Asleep { address: word.as_ptr().addr(), expected: word.load(Ordering::Relaxed) as u32 }
    }

    #[test]
    fn each_of_150_sleepers_is_woken_by_its_word_alone() {
        let words: Vec<AtomicU64> = (0..150).map(AtomicU64::new).collect();
        let (notes, woken) = mpsc::channel();
        let sleep = |(word, number): (&AtomicU64, u64)| {
            SleepRegistration::new(at(word), HOUR, Arc::new(Note(notes.clone(), number)).into()).unwrap()
        };
        let registrations: Vec<_> = words.iter().zip(0..).map(sleep).collect();
        assert!(registrations.iter().all(SleepRegistration::is_asleep));
        for (number, word) in words.iter().enumerate().rev() {
            word.fetch_add(1, Ordering::Relaxed);
            Native::with_id(0).wake(word, u32::MAX);
            assert_eq!(next(&woken), Ok(number as u64));
            assert!(!registrations[number].is_asleep());
        }
    }

    #[test]
    fn a_sleeper_whose_word_has_changed_already_is_woken() {
        let word = AtomicU64::new(1);
        let (notes, woken) = mpsc::channel();
        let asleep = Asleep { expected: 2, ..at(&word) };
        let _registration = SleepRegistration::new(asleep, HOUR, Arc::new(Note(notes, 7)).into()).unwrap();
        assert_eq!(next(&woken), Ok(7));
    }

    #[test]
    fn a_sleeper_is_woken_when_its_time_is_over() {
        let word = AtomicU64::new(1);
        let (notes, woken) = mpsc::channel();
        let turn = Duration::from_millis(2);
        let _registration = SleepRegistration::new(at(&word), turn, Arc::new(Note(notes, 7)).into()).unwrap();
        assert_eq!(next(&woken), Ok(7));
    }

    #[test]
    fn sleeper_without_memory_is_woken_and_holds_up_no_other() {
        let (notes, woken) = mpsc::channel();
        let gone = Asleep { address: 4096, expected: 0 };
        let word = AtomicU64::new(1);
        let _other =
            SleepRegistration::new(at(&word), HOUR, Arc::new(Note(notes.clone(), 1)).into()).unwrap();
        let _gone = SleepRegistration::new(gone, HOUR, Arc::new(Note(notes, 2)).into()).unwrap();
        assert_eq!(next(&woken), Ok(2));
        word.store(2, Ordering::Relaxed);
        Native::with_id(0).wake(&word, 1);
        assert_eq!(next(&woken), Ok(1));
    }

    #[test]
    fn a_dropped_registration_wakes_no_task() {
        let words = [AtomicU64::new(1), AtomicU64::new(1)];
        let (notes, woken) = mpsc::channel();
        let sleep = |number: usize| {
            let note = Arc::new(Note(notes.clone(), number as u64));
            SleepRegistration::new(at(&words[number]), HOUR, note.into()).unwrap()
        };
        let (first, _second) = (sleep(0), sleep(1));
        drop(first);
        for word in &words {
            word.store(2, Ordering::Relaxed);
            Native::with_id(0).wake(word, 1);
        }
        assert_eq!(next(&woken), Ok(1));
    }
}
