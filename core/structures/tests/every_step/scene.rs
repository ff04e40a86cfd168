//! Memory that the victim, its handlers and the survivors share, and their calls.
#![allow(unsafe_code)]

use std::mem::size_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};

use towpath_machine::{Concurrent, Native, Processor};
use towpath_structures::dcas::Actor;
use towpath_structures::nonblocking::{Audit, StableError};
use towpath_sync::{Abandoned, Spinning, Waiting};
use towpath_testkit::{mark, shared_words};

use crate::acts::{Act, InSegment};
use crate::history::Call;
use crate::models::Out;

/// The participants' numbers. The victim's handlers have its own.
pub const VICTIM: usize = 0;
pub const SURVIVOR: usize = 1;
pub const OTHER: usize = 2;

/// Maximum number of calls that one process writes down.
const CALLS: usize = 48;

/// A call, written down.
#[repr(C)]
struct Record {
    act: AtomicU64,
    invoked: AtomicU64,
    /// 0 while it has not.
    responded: AtomicU64,
    /// 1 nothing, 2 a value, 3 no room, more: an error.
    kind: AtomicU64,
    value: AtomicU64,
}

// SAFETY: `repr(C)`, made of atomics.
unsafe impl Concurrent for Record {}

/// All that is shared.
#[repr(C)]
pub struct Shared<T> {
    pub subject: T,
    /// Act of the victim.
    pub act: AtomicU64,
    /// Acts of its handlers: the first one half, and the one that interrupts that one the
    /// other.
    pub script: [AtomicU64; 6],
    /// Counts beginnings and ends of calls.
    clock: AtomicU64,
    count: AtomicU64,
    records: [Record; CALLS],
}

// SAFETY: `repr(C)`, made of plain values.
unsafe impl<T: Concurrent> Concurrent for Shared<T> {}

/// Wait of survivors: none. No other process takes a step meanwhile, so that a structure
/// that is lock-free lets them through after a few attempts.
pub struct Never;

impl<P: Processor> Waiting<P> for Never {
    fn parks(&self) -> bool {
        false
    }
    fn wait_until(
        &self,
        _cpu: &P,
        _word: &P::Word,
        _done: impl FnMut(u64) -> bool,
    ) -> Result<u64, Abandoned> {
        panic!("a survivor waits")
    }
    fn back_off(&self, _cpu: &P, round: u32) -> Result<(), Abandoned> {
        assert!(round < 8, "a survivor fails again and again, and no other process does anything");
        Ok(())
    }
    fn attempts_before_queueing(&self, _cpu: &P) -> u32 {
        0
    }
    fn wait_turn(&self, _cpu: &P, _word: &P::Word, _seen: u64, _round: u32, _turn: u64) {
        panic!("a survivor waits for its turn")
    }
    fn release(&self, _cpu: &P, _word: &P::Word, _value: u64) {
        panic!("a survivor has something to release")
    }
    fn release_some(&self, _cpu: &P, _word: &P::Word, _value: u64, _count: u32) {
        panic!("a survivor has something to release")
    }
}

/// Performs an act. The dead are those that `is_dead` says.
pub fn perform<T: InSegment, W: Waiting<Native>>(
    subject: &T,
    wait: &W,
    me: usize,
    act: Act,
    is_dead: impl Fn(usize) -> bool,
) -> Result<Option<u64>, StableError> {
    let cpu = Native::with_id(me as u32);
    let actor = Actor { cpu: &cpu, wait, me };
    match act {
        Act::Op(op) => subject.act(&actor, op),
        Act::More(which) => subject.more(&actor, which),
        Act::Recover => subject.recover(&actor, is_dead).map(|_| None),
    }
}

impl<T: InSegment> Shared<T> {
    /// Makes a new value, in memory that children share.
    pub fn new() -> &'static Shared<T> {
        let words = shared_words(size_of::<Self>().div_ceil(8));
        // SAFETY: mapped, zeroed, aligned to a page, long enough and never unmapped; all-zero bytes
        // are a valid value of a plain type.
        unsafe { &*words.as_ptr().cast::<Self>() }
    }

    /// Bytes of the structure. Only while no process acts.
    pub fn save(&self) -> Vec<u8> {
        let bytes = std::ptr::from_ref(&self.subject).cast::<u8>();
        // SAFETY: the structure's own bytes, to which no process writes now.
        unsafe { std::slice::from_raw_parts(bytes, size_of::<T>()) }.to_vec()
    }

    /// Restores the structure as it was saved, and forgets all calls. Only while no
    /// process acts.
    pub fn restore(&self, saved: &[u8]) {
        assert_eq!(saved.len(), size_of::<T>());
        // SAFETY: a plain structure, made of atomics (interior mutability), which no other process
        // looks at now; the bytes are a former value of it.
        unsafe {
            let bytes = std::ptr::from_ref(&self.subject).cast_mut().cast::<u8>();
            std::ptr::copy_nonoverlapping(saved.as_ptr(), bytes, saved.len());
        }
        self.script
            .iter()
            .chain([&self.act, &self.clock, &self.count])
            .for_each(|word| word.store(0, SeqCst));
        for record in &self.records {
            for word in [&record.act, &record.invoked, &record.responded] {
                word.store(0, SeqCst);
            }
        }
    }

    /// Bytes of the structure and of the calls. Only while no process acts.
    pub fn save_all(&self) -> Vec<u8> {
        // SAFETY: plain memory to which no process writes now.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast::<u8>(), size_of::<Self>()) }
            .to_vec()
    }

    /// Restores structure and calls. Only while no process acts.
    pub fn restore_all(&self, saved: &[u8]) {
        assert_eq!(saved.len(), size_of::<Self>());
        // SAFETY: a plain scene, made of atomics, at which no process looks now; the bytes are a
        // former value of it.
        unsafe {
            let bytes = std::ptr::from_ref(self).cast_mut().cast::<u8>();
            std::ptr::copy_nonoverlapping(saved.as_ptr(), bytes, saved.len());
        }
    }

    /// Performs an act and writes down when, and its result.
    pub fn call<W: Waiting<Native>>(
        &self,
        wait: &W,
        me: usize,
        act: Act,
        is_dead: impl Fn(usize) -> bool,
    ) -> Result<(), StableError> {
        let record = &self.records[self.count.fetch_add(1, SeqCst) as usize % CALLS];
        record.act.store(act.encode(), SeqCst);
        record.invoked.store(self.clock.fetch_add(1, SeqCst) + 1, SeqCst);
        let done = perform(&self.subject, wait, me, act, is_dead);
        let (kind, value) = match done {
            Ok(None) => (1, 0),
            Ok(Some(value)) => (2, value),
            Err(StableError::Exhausted) => (3, 0),
            Err(error) => (4 + error as u64, 0),
        };
        record.kind.store(kind, SeqCst);
        record.value.store(value, SeqCst);
        record.responded.store(self.clock.fetch_add(1, SeqCst) + 1, SeqCst);
        done.map(|_| ())
    }

    /// Calls so far. An error other than "no room" is one.
    pub fn calls(&self) -> Result<Vec<Call>, String> {
        let count = self.count.load(SeqCst) as usize;
        assert!(count <= CALLS, "{count} calls");
        // One that was not begun is none.
        self.records[..count].iter().filter(|r| r.invoked.load(SeqCst) != 0).map(call).collect()
    }

    /// Checks that the descriptors that are free and those in the structure are all there
    /// are.
    pub fn is_complete(&self) -> Result<(), String> {
        let cpu = Native::with_id(SURVIVOR as u32);
        let actor = Actor { cpu: &cpu, wait: &Never, me: SURVIVOR };
        match self.subject.inventory(&actor) {
            Ok(inventory) if inventory.free + inventory.reachable == inventory.all => Ok(()),
            other => Err(format!("{other:?}")),
        }
    }

    /// Ends, as a survivor, the operations of the dead, and frees their descriptors.
    pub fn recover(&self, me: usize, is_dead: impl Fn(usize) -> bool) -> Result<Audit, StableError> {
        let cpu = Native::with_id(me as u32);
        self.subject.recover(&Actor { cpu: &cpu, wait: &Never, me }, is_dead)
    }
}

fn call(record: &Record) -> Result<Call, String> {
    let act = Act::decode(record.act.load(SeqCst)).ok_or("a call of nothing")?;
    let invoked = record.invoked.load(SeqCst);
    let end = record.responded.load(SeqCst);
    let out = match record.kind.load(SeqCst) {
        _ if end == 0 => return Ok(Call { act, invoked, responded: None }),
        1 => Out::Is(None),
        2 => Out::Is(Some(record.value.load(SeqCst))),
        3 => Out::Full,
        other => return Err(format!("{act:?}: error {}", other - 4)),
    };
    Ok(Call { act, invoked, responded: Some((end, out)) })
}

/// Scene that the victim's handlers work on, in the victim.
static WORK: AtomicPtr<()> = AtomicPtr::new(null_mut());

/// Performs half of the script. Then the victim stands at a mark.
extern "C" fn handler<T: InSegment>(signal: libc::c_int) {
    // SAFETY: set before the handler was installed, to a mapping of this type that is never
    // unmapped.
    let shared = unsafe { &*WORK.load(SeqCst).cast::<Shared<T>>() };
    let half = if signal == libc::SIGUSR1 { 0..3 } else { 3..6 };
    for act in shared.script[half].iter().filter_map(|word| Act::decode(word.load(SeqCst))) {
        // Written down, whatever came of it.
        let _ = shared.call(&Spinning, VICTIM, act, |p| p == OTHER);
    }
    mark();
}

/// The victim's life: a mark, an act, a mark, and so on.
pub fn live<T: InSegment>(shared: &'static Shared<T>, me: usize) -> Result<(), Box<dyn std::error::Error>> {
    WORK.store(std::ptr::from_ref(shared).cast_mut().cast(), SeqCst);
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: the action is all zero but for the handler, which is of the right type and calls
        // only what may be called in a handler.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler::<T> as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigaction(signal, &action, null_mut());
        }
    }
    loop {
        mark();
        if let Some(act) = Act::decode(shared.act.load(SeqCst)) {
            let _ = shared.call(&Spinning, me, act, |p| p == OTHER);
        }
    }
}
