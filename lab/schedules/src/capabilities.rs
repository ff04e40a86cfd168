//! Capabilities of a thread of the machine beyond reading and writing.

use towpath_machine::{
    Dcas, FetchOp, KernelMutex, LlSc, LockOutcome, Ordering, Park, Prefetch, RollBack, Scheduling,
};

use crate::fault::Fault;
use crate::footprint::TouchedObject;
use crate::machine::{MutexState, Word};
use crate::pending::{Gate, Other, Pending, WordAccess};
use crate::processor::{Explorer, KernelLock};
use crate::thread::Life;
use crate::trace::show;

impl Park for Explorer {
    fn park(&self, word: &Word, expected: u64, timeout_ns: u64) {
        let asleep = self.step("park", word, WordAccess::Kernel, Other::Spurious, |inner| {
            let value = inner.old_value(word.0);
            // Early for no reason, as it may be.
            let asleep = !inner.ends_otherwise(self.index) && value as u32 == expected as u32;
            // Relaxed: the kernel orders its comparison after earlier wakes of the word, no more.
            inner.read_word(self.index, word.0, Ordering::Relaxed);
            inner.changes += u64::from(asleep);
            inner.footprint.touch(TouchedObject::Word(word.0), true);
            let name = inner.name_of(TouchedObject::Word(word.0));
            inner.line(self.index, "park", || {
                (name, format!("{}: {}", show(value), if asleep { "falls asleep" } else { "does not sleep" }))
            });
            let steps = inner.steps;
            if let Some(t) = inner.threads.get_mut(self.index) {
                (t.woken, t.asleep) = (false, steps);
            }
            asleep
        });
        if !asleep {
            return;
        }
        let gate = Gate::Woken { word: word.0, expected };
        let sleep = Pending::open("sleep", TouchedObject::Word(word.0));
        let pending = Pending { gate, other: Other::SleepEnds, ns: timeout_ns, ..sleep };
        self.turn(pending, |inner| {
            inner.footprint.touch(TouchedObject::Word(word.0), false);
            let what = if inner.ends_otherwise(self.index) { "time is over" } else { "wakes up" };
            inner.line(self.index, what, Default::default);
        });
    }
    /// Wakes sleepers in the order in which they fell asleep.
    fn wake(&self, word: &Word, count: u32) -> u32 {
        self.step("wake", word, WordAccess::Latest, Other::None, |inner| {
            inner.footprint.touch(TouchedObject::Word(word.0), true);
            inner.tell_kernel(self.index, word.0);
            let mut woken = 0;
            while woken < count {
                let sleepers = inner.threads.iter_mut().filter(|t| {
                    t.life == Life::Alive
                        && !t.woken
                        && matches!(t.pending.gate, Gate::Woken { word: on, .. } if on == word.0)
                });
                let Some(sleeper) = sleepers.min_by_key(|t| t.asleep) else { break };
                sleeper.woken = true;
                woken += 1;
            }
            inner.changes += u64::from(woken);
            let name = inner.name_of(TouchedObject::Word(word.0));
            inner.line(self.index, "wake", || (name, format!("{woken} woken")));
            woken
        })
    }
    fn yield_now(&self) {
        self.give_way("yield", 1_000);
    }
}

impl LlSc for Explorer {
    fn load_linked(&self, word: &Word) -> u64 {
        // (C1) SeqCst: a reservation, in one total order with the conditional stores (C2).
        let order = Ordering::SeqCst;
        self.step("load_linked", word, WordAccess::Load(order), Other::None, |inner| {
            // An overwritten value cannot be reserved.
            let is_stale = inner.is_stale(word.0);
            if let Some(t) = inner.threads.get_mut(self.index) {
                t.linked = (!is_stale).then_some(word.0);
            }
            self.access(inner, "load_linked", word.0, (order, order), |_| None)
        })
    }
    /// Fails if another thread has written the word since, whatever it holds now.
    fn store_conditional(&self, word: &Word, value: u64) -> bool {
        self.step("store_conditional", word, WordAccess::Latest, Other::Spurious, |inner| {
            // At rest there is no thread that could have taken the reservation.
            let linked = inner.threads.get_mut(self.index).is_none_or(|t| t.linked.take() == Some(word.0));
            let succeeds = linked && !inner.ends_otherwise(self.index);
            // (C2) SeqCst: pairs with (C1), and with itself. Relaxed: a failure writes nothing, and
            // (C1) has read.
            let orders = (Ordering::SeqCst, Ordering::Relaxed);
            self.access(inner, "store_conditional", word.0, orders, |_| succeeds.then_some(value));
            succeeds
        })
    }
    fn validate(&self, word: &Word) -> bool {
        self.step("validate", word, WordAccess::Latest, Other::None, |inner| {
            // (C3) SeqCst: reads the word again, pairs with (C2).
            let orders = (Ordering::SeqCst, Ordering::SeqCst);
            self.access(inner, "validate", word.0, orders, |_| None);
            inner.threads.get(self.index).is_none_or(|t| t.linked == Some(word.0))
        })
    }
}

impl FetchOp for Explorer {}

impl Dcas for Explorer {
    fn dcas(&self, words: [&Word; 2], old: [u64; 2], new: [u64; 2]) -> bool {
        let [a, b] = words.map(|w| w.0);
        assert_ne!(a, b, "DCAS takes two different words");
        self.step("dcas", words[0], WordAccess::Latest, Other::None, |inner| {
            let succeeds = inner.words[a].value() == old[0] && inner.words[b].value() == old[1];
            // (C9) AcqRel, and Acquire of both words below and of a failure: a DCAS that sees a
            // value sees what was written before it; pairs with the AcqRel of the DCAS that wrote
            // it, (C9).
            let orders = (Ordering::AcqRel, Ordering::Acquire);
            // Both reads first: what either word's value released orders what both writes release.
            for word in [a, b] {
                inner.read_word(self.index, word, Ordering::Acquire);
            }
            self.access(inner, "dcas", a, orders, |_| succeeds.then_some(new[0]));
            self.access(inner, "dcas", b, orders, |_| succeeds.then_some(new[1]));
            if succeeds {
                inner.join_writes([a, b]);
            }
            succeeds
        })
    }
}

impl Explorer {
    /// A store in a section that the system knows, unless it rolls the thread back
    /// instead, or has. `change` says what becomes of the section.
    fn store_known(
        &self,
        what: &'static str,
        word: &Word,
        value: impl FnOnce(u64) -> u64,
        change: impl FnOnce(&mut Option<(usize, Option<(usize, u64)>)>, u64),
    ) -> bool {
        self.step(what, word, WordAccess::Latest, Other::Spurious, |inner| {
            if inner.ends_otherwise(self.index) {
                inner.roll_back(self.index);
            }
            // At rest no thread is switched out.
            if inner.threads.get(self.index).is_some_and(|t| t.section.is_none()) {
                return false;
            }
            let old = inner.words[word.0].value();
            // (C10) Release: publishes the stores of the section; pairs with the Acquire (C11) of
            // the next holder in `take`.
            self.put(inner, what, word, value(old), Ordering::Release);
            if let Some(t) = inner.threads.get_mut(self.index) {
                change(&mut t.section, old);
            }
            true
        })
    }
}

/// The system may switch a holder out before any of its stores. While it is switched out
/// all others see the lock taken; that they see it free from some instant on is what the roll-back
/// does.
impl RollBack for Explorer {
    fn take(&self, lock: &Word) -> bool {
        self.step("take", lock, WordAccess::Latest, Other::None, |inner| {
            // (C11) Acquire: pairs with the Release (C10) by which the lock became free. Relaxed: a
            // failure gives no right to the data.
            let orders = (Ordering::Acquire, Ordering::Relaxed);
            let old = self.access(inner, "take", lock.0, orders, |v| v.is_multiple_of(2).then(|| v + 1));
            let taken = old.is_multiple_of(2);
            if taken && let Some(t) = inner.threads.get_mut(self.index) {
                t.section = Some((lock.0, None));
            }
            taken
        })
    }
    fn store_tentatively(&self, word: &Word, value: u64) -> bool {
        self.store_known(
            "store_tentatively",
            word,
            |_| value,
            |section, old| {
                if let Some((_, tentative)) = section {
                    *tentative = Some((word.0, old));
                }
            },
        )
    }
    fn store_finally(&self, word: &Word, value: u64) -> bool {
        self.store_known(
            "store_finally",
            word,
            |_| value,
            |section, _| {
                if let Some((_, tentative)) = section {
                    *tentative = None;
                }
            },
        )
    }
    fn free(&self, lock: &Word) -> bool {
        self.store_known("free", lock, |count| count + 1, |section, _| *section = None)
    }
}

impl Scheduling for Explorer {
    /// The dead and the sleeping; and any other thread too, now and then, since all but
    /// one stand still.
    fn is_preempted(&self, id: usize) -> bool {
        let pending =
            Pending { other: Other::Spurious, ..Pending::open("is_preempted", TouchedObject::Nothing) };
        self.turn(pending, |inner| {
            inner.footprint.all = true;
            let stands = inner.threads.get(id).is_some_and(|t| {
                t.life == Life::Dead || matches!(t.pending.gate, Gate::Woken { .. }) && !t.woken
            });
            let preempted = inner.ends_otherwise(self.index) || stands;
            inner.line(self.index, "is_preempted", || (format!("thread {id}"), preempted.to_string()));
            preempted
        })
    }
}

impl Prefetch for Explorer {
    fn prefetch_exclusive(&self, _word: &Word) {}
    fn prefetch_shared(&self, _word: &Word) {}
}

impl Explorer {
    fn mutex(&self, mutex: &KernelLock) -> usize {
        *mutex.0.get_or_init(|| {
            let mut inner = self.memory.0.inner.borrow_mut();
            inner.mutexes.push(MutexState::default());
            inner.mutexes.len() - 1
        })
    }

    fn take_mutex(&self, what: &'static str, mutex: usize, gate: Gate) -> LockOutcome {
        let object = TouchedObject::Mutex(mutex);
        self.turn(Pending { gate, ..Pending::open(what, object) }, |inner| {
            let state = &mut inner.mutexes[mutex];
            let outcome = match (state.lost, state.owner, state.inconsistent) {
                (true, ..) => LockOutcome::NotRecoverable,
                (_, Some(_), _) => LockOutcome::Busy,
                (_, None, true) => LockOutcome::OwnerDied,
                (_, None, false) => LockOutcome::Acquired,
            };
            if matches!(outcome, LockOutcome::Acquired | LockOutcome::OwnerDied) {
                state.owner = Some(self.id);
            }
            let released = state.released.clone();
            if inner.current.is_some() {
                // The new owner sees what the last one did.
                inner.acquire(self.index, &released);
            }
            inner.footprint.touch(object, true);
            let name = inner.name_of(object);
            inner.line(self.index, what, || (name, format!("{outcome:?}")));
            outcome
        })
    }
}

impl KernelMutex for Explorer {
    type Mutex = KernelLock;

    fn mutex_lock(&self, mutex: &KernelLock) -> LockOutcome {
        let mutex = self.mutex(mutex);
        self.take_mutex("mutex_lock", mutex, Gate::Free { mutex })
    }
    fn mutex_try_lock(&self, mutex: &KernelLock) -> LockOutcome {
        self.take_mutex("mutex_try_lock", self.mutex(mutex), Gate::Open)
    }
    fn mutex_make_consistent(&self, mutex: &KernelLock) {
        let mutex = self.mutex(mutex);
        let object = TouchedObject::Mutex(mutex);
        let pending = Pending::open("mutex_make_consistent", object);
        self.turn(pending, |inner| {
            inner.mutexes[mutex].inconsistent = false;
            inner.footprint.touch(object, true);
            let name = inner.name_of(object);
            inner.line(self.index, "mutex_make_consistent", || (name, String::new()));
        });
    }
    fn mutex_unlock(&self, mutex: &KernelLock) {
        let mutex = self.mutex(mutex);
        let object = TouchedObject::Mutex(mutex);
        let pending = Pending::open("mutex_unlock", object);
        self.turn(pending, |inner| {
            if inner.mutexes[mutex].owner != Some(self.id) {
                let text = format!("processor {} unlocks mutex {mutex}, which it does not hold", self.id);
                inner.fail(Fault::Broken, text);
                return;
            }
            if inner.current.is_some() {
                // (C12) Release: publishes the owner's writes; the next owner pairs with it.
                inner.mutexes[mutex].released = inner.release(self.index, Ordering::Release);
            }
            let state = &mut inner.mutexes[mutex];
            (state.lost, state.owner) = (state.inconsistent, None);
            inner.changes += 1;
            inner.threads.iter_mut().for_each(|t| t.futile = 0);
            inner.footprint.touch(object, true);
            let name = inner.name_of(object);
            inner.line(self.index, "mutex_unlock", || (name, String::new()));
        });
    }
}
