//! Progress of a manager while its process computes: by a thread that serves.
//!
//! **Source.** MPI's word for the question which thread handles messages while none waits; Kuo,
//! Carter and Kuramkote had the kernel do it. The division of the sleep is `am`'s (`sleep.rs`).
//!
//! Under [`Progress::Poll`] a manager belongs to one thread, and a turn is a look at a field. Under
//! [`Progress::Thread`] two threads use it in turns, under a mutex: the process's own thread for
//! each of its calls, and for as long as it waits in one; the *progress thread* for as long as it
//! handles messages. It sleeps at the process's doorbell without the mutex.
//!
//! | step | own thread | progress thread |
//! | --- | --- | --- |
//! | 1 | takes the turn, for a call | reads the doorbell's count; if the own thread waits in its turn, goes on with step 4 |
//! | 2 | acts; may poll, send and wait (and says so), which leaves queues that are not armed | takes the turn, handles what has come, arms the queues |
//! | 3 | arms them again then, and handles what has come | gives the turn back |
//! | 4 | gives the turn back | sleeps while the count is that of step 1 |
//!
//! So whenever no thread has the turn, the queues are armed, or the progress thread is on its way
//! to arm them. One that finds the own thread waiting leaves the messages to it: the own thread
//! takes its word back before its last look in step 3, so it sees all that were counted in step 1,
//! and a later one changes the count.
//!
//! **Progress.** Blocking: one thread waits for the other's turn. **Fields.** All of
//! the manager's state: the thread that has the turn, but for the depth of turns and for the handle
//! of the thread, which are the own thread's.
//!
//! **What ends it.** The last handle of a manager, its locks' among them, ends the progress thread
//! and waits for it. A handler of the program's that panics there ends the thread, too: the manager
//! goes on as under `Poll` ([`Manager::progress`](super::Manager::progress)). The death of the
//! process ends both threads at once, and survivors see what they see of a process with one. A
//! child that is forked has no progress thread, and perhaps a mutex that no thread will unlock: it
//! drops its copies of locks and guards without an effect then, and panics in calls.
//!
//! **Memory.** A thread's stack. **Don't use it** in a process that waits for locks or polls most
//! of the time: each message then wakes two threads, and each call takes a mutex.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use towpath_am::{Endpoint, EndpointSleep};

use super::error::Error;
use super::serve::{LOOK, ManagerState};

/// Way in which a manager answers the other ranks while its process computes.
///
/// ```
/// # let world = towpath::create(None, &towpath::WorldConfig::new(1))?;
/// # world.enter(None)?;
/// use towpath::mplock::{Manager, Progress};
///
/// let manager = Manager::with_progress(&world, Progress::Thread)?;
/// assert_eq!(manager.progress(), Progress::Thread);
/// # Ok::<(), towpath::mplock::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Progress only when the process polls, waits or acquires.
    #[default]
    Poll,
    /// Progress at once: a thread of the manager's sleeps until a message comes, and
    /// handles it.
    Thread,
}

/// Part of a manager that its two threads use without the turn.
struct Turnstile {
    /// True if the progress thread is to end. The thread that has the mutex has the turn.
    ends: Mutex<bool>,
    /// True while the own thread waits in its turn, and serves. Taken for an instant.
    waits: Mutex<bool>,
    place: EndpointSleep,
}

impl Turnstile {
    fn take(&self) -> MutexGuard<'_, bool> {
        // A handler that panicked has left nothing half done that a later call would trip over.
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_waits(&self, waits: bool) {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner) = waits;
    }

    fn waits(&self) -> bool {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Turns at the state of a manager.
#[derive(Default)]
pub(crate) struct ManagerTurns {
    /// `None`: the state is one thread's.
    shared: Option<Arc<Turnstile>>,
    /// Number of turns of the own thread, one inside the other.
    depth: Cell<u32>,
    /// True if the own thread may have disarmed the queues.
    disarmed: Cell<bool>,
    /// True if the own thread has said that it waits.
    waits: Cell<bool>,
    thread: Cell<Option<JoinHandle<()>>>,
}

/// Turn of the process's own thread, until it is dropped.
pub(crate) struct ManagerTurn<'a>(Option<SharedTurn<'a>>);

struct SharedTurn<'a> {
    state: &'a ManagerState,
    /// `None` if this turn is inside another one.
    _mutex: Option<MutexGuard<'a, bool>>,
}

impl Drop for ManagerTurn<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(turn) = &self.0 {
            turn.state.end_turn();
        }
    }
}

impl ManagerTurns {
    /// Makes the turns of a manager with that endpoint.
    pub(crate) fn new(endpoint: &Endpoint, progress: Progress) -> Result<ManagerTurns, Error> {
        let shared = match progress {
            Progress::Poll => None,
            Progress::Thread => {
                let (ends, waits) = (Mutex::new(false), Mutex::new(false));
                Some(Arc::new(Turnstile { ends, waits, place: endpoint.sleep_place()? }))
            }
        };
        Ok(ManagerTurns { shared, ..ManagerTurns::default() })
    }

    /// Returns whether two threads may use the state.
    #[inline]
    pub(crate) fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Notes that a thread uses the endpoint. If it is the own one, it arms the queues
    /// when its turn ends.
    #[inline]
    pub(crate) fn note_use(&self) {
        if self.depth.get() > 0 {
            self.disarmed.set(true);
        }
    }

    /// Notes that a thread is about to wait in its turn: if it is the own one, the other
    /// one need not come for its messages.
    pub(crate) fn note_wait(&self) {
        self.note_use();
        if let Some(shared) = &self.shared
            && self.depth.get() > 0
            && !self.waits.replace(true)
        {
            shared.set_waits(true);
        }
    }

    /// Returns how the manager answers now.
    pub(crate) fn progress(&self) -> Progress {
        let thread = self.thread.take();
        let lives = thread.as_ref().is_some_and(|thread| !thread.is_finished());
        self.thread.set(thread);
        if lives { Progress::Thread } else { Progress::Poll }
    }

    /// Ends the progress thread, if there is one.
    fn stop(&self) {
        let (Some(thread), Some(shared)) = (self.thread.take(), &self.shared) else { return };
        *shared.take() = true;
        shared.place.wake();
        // One that has panicked has said so.
        let _ = thread.join();
    }
}

impl ManagerState {
    /// Takes the turn, for the process's own thread.
    ///
    /// # Panics
    ///
    /// In a forked child, if the parent's progress thread had the turn.
    #[inline]
    pub(crate) fn turn(&self) -> ManagerTurn<'_> {
        match &self.turns.shared {
            None => ManagerTurn(None),
            Some(shared) => match self.shared_turn(shared) {
                Some(turn) => turn,
                None => {
                    panic!("a forked child uses the lock manager of its parent: make one in each process")
                }
            },
        }
    }

    /// Takes the turn, or returns `None` where [`ManagerState::turn`] panics.
    #[inline]
    pub(crate) fn try_turn(&self) -> Option<ManagerTurn<'_>> {
        match &self.turns.shared {
            None => Some(ManagerTurn(None)),
            Some(shared) => self.shared_turn(shared),
        }
    }

    #[inline(never)]
    fn shared_turn<'a>(&'a self, shared: &'a Turnstile) -> Option<ManagerTurn<'a>> {
        let depth = self.turns.depth.get();
        let mutex = if depth > 0 {
            None
        } else {
            Some(match shared.ends.try_lock() {
                Ok(mutex) => mutex,
                Err(TryLockError::Poisoned(mutex)) => mutex.into_inner(),
                Err(TryLockError::WouldBlock) if self.is_forked() => return None,
                Err(TryLockError::WouldBlock) => shared.take(),
            })
        };
        self.turns.depth.set(depth + 1);
        Some(ManagerTurn(Some(SharedTurn { state: self, _mutex: mutex })))
    }

    /// Ends a turn of the own thread; the outermost leaves the queues armed.
    #[inline(never)]
    fn end_turn(&self) {
        let depth = self.turns.depth.get() - 1;
        if depth == 0 && self.turns.disarmed.take() {
            self.leave_armed();
        }
        self.turns.depth.set(depth);
    }

    fn leave_armed(&self) {
        let Some(shared) = &self.turns.shared else { return };
        if self.turns.waits.take() {
            // Before the last look for messages: those that come later bring the other thread here.
            shared.set_waits(false);
        }
        let limit = loop {
            if std::thread::panicking() {
                break None;
            }
            match self.endpoint.arm() {
                Some(limit) => break Some(limit),
                None => drop(self.serve()),
            }
        };
        // The progress thread looks again, where it must not sleep for long.
        if limit.is_none_or(|limit| limit < LOOK) {
            shared.place.wake();
        }
    }

    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }
}

/// Handle of a manager's state: the last one ends the progress thread.
#[derive(Clone)]
pub(crate) struct StateHandle(Rc<ManagerState>);

impl Deref for StateHandle {
    type Target = ManagerState;
    #[inline]
    fn deref(&self) -> &ManagerState {
        &self.0
    }
}

impl Drop for StateHandle {
    #[inline]
    fn drop(&mut self) {
        if self.turns.shared.is_some() && Rc::strong_count(&self.0) == 1 {
            self.end();
        }
    }
}

/// Pointer to the state of a manager, in the hands of its progress thread.
struct StatePointer(*const ManagerState);

// SAFETY: the progress thread uses the state only while it has the turn, which no two threads have
// at once, and the own thread uses it only in its turns; the mutex orders them. All of the state
// may move between threads together: of what it counts without atomics there are only the parts of
// its endpoint, which are reachable from that alone (it is in no bundle: `Manager::on`; it is not
// given out: `Manager::endpoint`; and handlers are `Send + Sync`). Cells of locks, which handles of
// the own thread refer to, too, are counted with atomics, and read and written in turns only.
unsafe impl Send for StatePointer {}

impl StateHandle {
    /// Starts the progress thread, where the manager is to have one.
    pub(crate) fn start(state: ManagerState) -> Result<StateHandle, Error> {
        let handle = StateHandle(Rc::new(state));
        if let Some(shared) = handle.turns.shared.clone() {
            let pointer = StatePointer(Rc::as_ptr(&handle.0));
            let thread = Builder::new().name("lock progress".into());
            let thread = thread.spawn(move || serve_until_end(&pointer, &shared)).map_err(Error::NoThread)?;
            handle.turns.thread.set(Some(thread));
        }
        Ok(handle)
    }

    #[cold]
    fn end(&self) {
        if self.is_forked() {
            // The thread is the parent's, and may have been in the middle of a change.
            std::mem::forget(self.turns.thread.take());
            std::mem::forget(self.0.clone());
        } else {
            self.turns.stop();
        }
    }
}

/// Life of the progress thread.
fn serve_until_end(state: &StatePointer, shared: &Turnstile) {
    let mut looked = Instant::now();
    loop {
        let count = shared.place.count();
        if shared.waits() {
            // It handles what has come by now, and arms the queues when its wait is over.
            shared.place.sleep(count, LOOK);
            continue;
        }
        let ends = shared.take();
        if *ends {
            return;
        }
        // SAFETY: the state lives until the last handle has ended this thread (`stop`), and this
        // thread has the turn; the reference is not used after it.
        let state = unsafe { &*state.0 };
        // Another process may be this rank now.
        if state.endpoint.world().entered().is_none() {
            return;
        }
        state.serve();
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            state.look(false);
            state.work();
        }
        let limit = state.endpoint.arm().map(|limit| limit.min(state.longest_rest()));
        drop(ends);
        if let Some(limit) = limit {
            shared.place.sleep(count, limit);
        }
    }
}
