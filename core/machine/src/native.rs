//! The native machine: words are atomics, the processor costs nothing.
//!
//! This is the module of the room that needs `unsafe`: system calls on the address of a word, and
//! copies from and to raw shared memory.
#![allow(unsafe_code)]

use core::cell::{Cell as StdCell, UnsafeCell};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Instant;

use crate::capabilities::{FetchOp, KernelMutex, LlSc, LockOutcome, Prefetch, Scheduling};
use crate::heavy_fence;
use crate::link::Link;
use crate::native_bytes::NativeBytes;
use crate::processor::{Arena, FenceReach, Place, Processor};
use crate::slice_extension;
use crate::streaming::{copy_by_lines, copy_past_caches, store_by_lines};
use crate::word_copies;

/// The processor that really acts. Copy it freely; it holds nothing but its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Native {
    id: u32,
}

/// Shorter copies for another processor go through the caches: at this length both ways
/// took the same time.
const FAR: usize = 8 << 10;

/// Maximum number of threads of one process with a number of their own
/// ([`Native::current`]).
const THREADS_PER_PROCESS: u32 = 8;

static PROCESS_BASE: AtomicU32 = AtomicU32::new(0);
static THREADS_TAKEN: AtomicU64 = AtomicU64::new(0);

/// Number that no thread has.
const NONE: u32 = u32::MAX;

/// A thread's number, given back at its end.
struct ThreadNumber(u32);

impl Drop for ThreadNumber {
    fn drop(&mut self) {
        THREAD_NUMBER.set(NONE);
        if self.0 < 64 {
            THREADS_TAKEN.fetch_and(!(1 << self.0), Ordering::Relaxed);
        }
    }
}

thread_local! {
    /// The number, for fast reading: without a destructor, an access asks for no state.
    static THREAD_NUMBER: StdCell<u32> = const { StdCell::new(NONE) };
    static GIVEN_BACK_AT_END: ThreadNumber = ThreadNumber(take_thread_number());
}

/// Takes a number for the calling thread.
#[cold]
fn number_thread() -> u32 {
    // A thread whose destructors have run already gets another one, which is not given back.
    let number = GIVEN_BACK_AT_END.try_with(|it| it.0).unwrap_or_else(|_| take_overflow_number());
    THREAD_NUMBER.set(number);
    number
}

impl Native {
    /// A processor with the given number. The caller chooses numbers that are unique
    /// among those that contend for the same object (see [`Processor::id`]).
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// assert_eq!(Native::with_id(3).id(), 3);
    /// ```
    #[inline(always)]
    pub const fn with_id(id: u32) -> Self {
        Native { id }
    }

    /// The calling thread's processor: a number from 0 to 63 that no other living thread
    /// of this process has (freed when the thread ends), plus this process's base
    /// ([`Native::set_process_base`]). A 65th thread gets number 64 and more.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// assert_eq!(Native::current().id(), Native::current().id(), "of one thread");
    /// ```
    #[inline]
    pub fn current() -> Self {
        Native { id: PROCESS_BASE.load(Ordering::Relaxed) + Self::of_thread().id }
    }

    /// The calling thread's processor, counted from 0 whatever this process's base is:
    /// for what only threads of this process use.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// let other = std::thread::spawn(|| Native::of_thread().id());
    /// let mine = Native::of_thread().id();
    /// # let _ = (other.join(), mine);
    /// ```
    #[inline]
    pub fn of_thread() -> Self {
        match THREAD_NUMBER.get() {
            NONE => Native { id: number_thread() },
            id => Native { id },
        }
    }

    /// Returns whether the system grants the calling thread longer time slices
    /// ([`Scheduling::stay`]): Linux 7.0 or later, not switched off, with a libc that registers the
    /// thread's area.
    ///
    /// ```
    /// println!("longer time slices: {}", towpath_machine::Native::can_stay());
    /// ```
    pub fn can_stay() -> bool {
        slice_extension::is_there()
    }

    /// The calling thread's processor in a world in which this process is participant
    /// `participant`: as [`Native::current`], whatever other worlds the process has entered since.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// let first = (3 * Native::threads_per_process()) as usize;
    /// assert!(Native::of_participant(3).id() >= first);
    /// ```
    #[inline]
    pub fn of_participant(participant: u32) -> Self {
        Native { id: participant * THREADS_PER_PROCESS + Self::of_thread().id }
    }

    /// Sets the number from which this process's threads count, so that numbers are
    /// unique among the processes of a world: process `p` counts from `p ×
    /// Native::threads_per_process()`.
    ///
    /// ```
    /// use towpath_machine::{Native, Processor};
    ///
    /// Native::set_process_base(2);
    /// assert!(Native::current().id() >= (2 * Native::threads_per_process()) as usize);
    /// # Native::set_process_base(0);
    /// ```
    pub fn set_process_base(participant: u32) {
        PROCESS_BASE.store(participant * THREADS_PER_PROCESS, Ordering::Relaxed);
    }

    /// Number of threads of one process that have numbers apart from those of every other
    /// process in a world.
    ///
    /// ```
    /// assert!(towpath_machine::Native::threads_per_process() > 1);
    /// ```
    pub const fn threads_per_process() -> u32 {
        THREADS_PER_PROCESS
    }

    /// A zeroed word that is not in shared memory, for locks between threads.
    ///
    /// ```
    /// use std::sync::atomic::AtomicU64;
    /// use towpath_machine::Native;
    ///
    /// static COUNT: AtomicU64 = Native::word(7);
    /// assert_eq!(COUNT.load(std::sync::atomic::Ordering::Relaxed), 7);
    /// ```
    #[inline]
    pub const fn word(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }

    /// The pause instruction's length in picoseconds, measured once per process.
    ///
    /// ```
    /// println!("a pause takes {} ps", towpath_machine::Native::pause_ps());
    /// ```
    pub fn pause_ps() -> u32 {
        static PAUSE_PS: AtomicU32 = AtomicU32::new(0);
        match PAUSE_PS.load(Ordering::Relaxed) {
            0 => {
                // The shortest of five, so that a preemption in one of them does not count.
                let ps = (0..5)
                    .map(|_| {
                        let start = Instant::now();
                        for _ in 0..200 {
                            core::hint::spin_loop();
                        }
                        start.elapsed().as_nanos() as u64 * 1000 / 200
                    })
                    .min()
                    .unwrap_or(1)
                    .clamp(100, 1_000_000) as u32;
                PAUSE_PS.store(ps, Ordering::Relaxed);
                ps
            }
            ps => ps,
        }
    }
}

fn take_overflow_number() -> u32 {
    static OVERFLOW: AtomicU32 = AtomicU32::new(64);
    OVERFLOW.fetch_add(1, Ordering::Relaxed)
}

fn take_thread_number() -> u32 {
    loop {
        let taken = THREADS_TAKEN.load(Ordering::Relaxed);
        let n = (!taken).trailing_zeros();
        if n == 64 {
            return take_overflow_number();
        }
        if THREADS_TAKEN.compare_exchange(taken, taken | 1 << n, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            return n;
        }
    }
}

impl Processor for Native {
    type Word = AtomicU64;
    type Cell = AtomicU64;
    type Bytes = NativeBytes;

    #[inline(always)]
    fn id(&self) -> usize {
        self.id as usize
    }
    #[inline(always)]
    fn load(&self, word: &AtomicU64, order: Ordering) -> u64 {
        word.load(order)
    }
    #[inline(always)]
    fn store(&self, word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value, order);
    }
    #[inline(always)]
    fn swap(&self, word: &AtomicU64, value: u64, order: Ordering) -> u64 {
        word.swap(value, order)
    }
    #[inline(always)]
    fn compare_exchange(
        &self,
        word: &AtomicU64,
        old: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        word.compare_exchange(old, new, success, failure)
    }
    #[inline(always)]
    fn fetch_add(&self, word: &AtomicU64, delta: u64, order: Ordering) -> u64 {
        word.fetch_add(delta, order)
    }
    #[inline(always)]
    fn fetch_or(&self, word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        word.fetch_or(bits, order)
    }
    #[inline(always)]
    fn fetch_and(&self, word: &AtomicU64, mask: u64, order: Ordering) -> u64 {
        word.fetch_and(mask, order)
    }
    #[inline(always)]
    fn fence(&self, order: Ordering) {
        // A locked access to one's own stack orders as MFENCE does, in half the time.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if order == Ordering::SeqCst {
            // SAFETY: changes nothing but flags, which it says; and not said to leave memory alone,
            // so the compiler moves no access across it.
            unsafe { core::arch::asm!("lock or dword ptr [rsp], 0") };
            return;
        }
        fence(order);
    }
    fn fences_asymmetrically(&self, reach: FenceReach) -> bool {
        heavy_fence::is_prepared(reach)
    }
    #[inline(always)]
    fn light_fence(&self, order: Ordering) {
        self.compiler_fence(order);
    }
    fn heavy_fence(&self, order: Ordering, reach: FenceReach) {
        self.fence(order);
        heavy_fence::reach_others(reach);
        self.fence(order);
    }
    fn patient_fence(&self, order: Ordering) {
        self.fence(order);
        heavy_fence::wait_for_others();
        self.fence(order);
    }
    #[inline(always)]
    fn store_bytes(&self, to: &[AtomicU64], from: &[u8]) {
        word_copies::store(self, to, from);
    }
    #[inline(always)]
    fn load_bytes(&self, from: &[AtomicU64], to: &mut [u8]) {
        word_copies::load(self, from, to);
    }
    // A datum is read and written as a relaxed atomic: as cheap as a plain access, and no undefined
    // behaviour when another process misbehaves.
    #[inline(always)]
    fn read(&self, cell: &AtomicU64) -> u64 {
        cell.load(Ordering::Relaxed)
    }
    #[inline(always)]
    fn write(&self, cell: &AtomicU64, value: u64) {
        cell.store(value, Ordering::Relaxed);
    }
    #[inline(always)]
    fn copy_in(&self, to: &NativeBytes, at: usize, from: &[u8]) {
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        // SAFETY: in bounds (checked above) of memory that `NativeBytes::from_raw`'s caller keeps
        // mapped, and `from` can't overlap it, since no Rust reference to those bytes exists.
        unsafe { store_by_lines(from.as_ptr(), to.base.as_ptr().add(at), from.len()) }
    }
    #[inline]
    fn copy_away(&self, to: &NativeBytes, at: usize, from: &[u8]) {
        if from.len() < FAR {
            return self.copy_in(to, at, from);
        }
        assert!(at <= to.len && from.len() <= to.len - at, "copy beyond the end of shared bytes");
        // SAFETY: as in `copy_in`: in bounds of memory that stays mapped, and no overlap.
        unsafe { copy_past_caches(from.as_ptr(), to.base.as_ptr().add(at), from.len()) }
    }
    #[inline(always)]
    fn copy_out(&self, from: &NativeBytes, at: usize, to: &mut [u8]) {
        assert!(at <= from.len && to.len() <= from.len - at, "copy beyond the end of shared bytes");
        // SAFETY: in bounds (checked above) of memory that `NativeBytes::from_raw`'s caller keeps
        // mapped, and `to` can't overlap it, since no Rust reference to those bytes exists.
        unsafe { copy_by_lines(from.base.as_ptr().add(at), to.as_mut_ptr(), to.len()) }
    }

    #[inline]
    fn spin_until(
        &self,
        word: &AtomicU64,
        order: Ordering,
        budget: u64,
        mut done: impl FnMut(u64) -> bool,
    ) -> Result<u64, u64> {
        let value = word.load(order);
        if done(value) {
            return Ok(value);
        }
        if budget == 0 {
            return Err(value);
        }
        let mut probes = budget * 1000 / u64::from(Native::pause_ps()) + 1;
        loop {
            core::hint::spin_loop();
            let value = word.load(order);
            if done(value) {
                return Ok(value);
            }
            probes -= 1;
            if probes == 0 {
                return Err(value);
            }
        }
    }

    fn delay(&self, ns: u64) {
        for _ in 0..ns * 1000 / u64::from(Native::pause_ps()) + 1 {
            core::hint::spin_loop();
        }
    }

    #[inline]
    fn work(&self, ns: u64) {
        let end = self.now() + ns;
        while self.now() < end {}
    }

    #[inline]
    fn now(&self) -> u64 {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `t` is a valid place for the result; CLOCK_MONOTONIC always exists.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
}

/// A process-shared, robust `pthread_mutex_t`, in place.
#[repr(C, align(64))]
pub struct NativeKernelMutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a pthread mutex is made to be used from several threads through its address.
unsafe impl Send for NativeKernelMutex {}
// SAFETY: libc orders what the threads that share it do.
unsafe impl Sync for NativeKernelMutex {}

impl core::fmt::Debug for NativeKernelMutex {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("NativeKernelMutex")
    }
}

impl Default for NativeKernelMutex {
    /// A mutex between threads: not robust, so on no thread's list.
    fn default() -> Self {
        NativeKernelMutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

fn outcome(code: i32) -> LockOutcome {
    match code {
        0 => LockOutcome::Acquired,
        libc::EOWNERDEAD => LockOutcome::OwnerDied,
        libc::EBUSY => LockOutcome::Busy,
        _ => LockOutcome::NotRecoverable,
    }
}

impl KernelMutex for Native {
    type Mutex = NativeKernelMutex;

    unsafe fn mutex_init(mutex: &NativeKernelMutex) {
        let mut attributes = core::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        // SAFETY: `attributes` is initialised by the first call before the others use it and
        // destroyed last; no thread uses the mutex yet, and it stays where it is while it is held
        // (the caller's promises).
        unsafe {
            libc::pthread_mutexattr_init(attributes.as_mut_ptr());
            libc::pthread_mutexattr_setpshared(attributes.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutexattr_setrobust(attributes.as_mut_ptr(), libc::PTHREAD_MUTEX_ROBUST);
            libc::pthread_mutex_init(mutex.0.get(), attributes.as_ptr());
            libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
        }
    }

    fn mutex_lock(&self, mutex: &NativeKernelMutex) -> LockOutcome {
        // SAFETY: a mutex at every time, by `default` or by `mutex_init`. Only one that
        // `mutex_init` made is put on the thread's list of robust mutexes, and that one stays where
        // it is while it is held (the promise to `mutex_init`). One by `default` is nothing but its
        // words.
        outcome(unsafe { libc::pthread_mutex_lock(mutex.0.get()) })
    }

    fn mutex_try_lock(&self, mutex: &NativeKernelMutex) -> LockOutcome {
        // SAFETY: as in `mutex_lock`: a mutex, which stays where it is if it is on a list.
        outcome(unsafe { libc::pthread_mutex_trylock(mutex.0.get()) })
    }

    fn mutex_make_consistent(&self, mutex: &NativeKernelMutex) {
        // SAFETY: as in `mutex_lock`: a mutex, which stays where it is if it is on a list; a wrong
        // state is an error code, not a fault.
        unsafe { libc::pthread_mutex_consistent(mutex.0.get()) };
    }

    fn mutex_unlock(&self, mutex: &NativeKernelMutex) {
        // SAFETY: as in `mutex_lock`: a mutex, which stays where it is if it is on a list. A robust
        // one checks its owner; for one by `default` the trait asks the caller to hold it.
        unsafe { libc::pthread_mutex_unlock(mutex.0.get()) };
    }
}

impl FetchOp for Native {}

/// Requests to Linux, which does not say which threads run.
///
/// Since version 7.0 it lets a thread that asks for it run on for a while, where libc has
/// registered the thread's area (glibc since 2.35).
impl Scheduling for Native {
    fn is_preempted(&self, _id: usize) -> bool {
        false
    }
    #[inline]
    fn stay(&self, on: bool) {
        slice_extension::stay(on);
    }
}

thread_local! {
    /// Word that this thread linked last.
    static LINKED: StdCell<Link> = const { StdCell::new(Link::NONE) };
}

impl LlSc for Native {
    fn load_linked(&self, word: &AtomicU64) -> u64 {
        let link = Link::to(self, word);
        LINKED.set(link);
        link.value()
    }
    fn store_conditional(&self, word: &AtomicU64, value: u64) -> bool {
        LINKED.replace(Link::NONE).store(self, word, value)
    }
    fn validate(&self, word: &AtomicU64) -> bool {
        LINKED.get().stands(self, word)
    }
}

impl Prefetch for Native {
    #[inline(always)]
    fn prefetch_exclusive(&self, word: &AtomicU64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint: it never faults and changes no value. PREFETCHW decodes as
        // a no-op where unsupported.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) word.as_ptr(), options(nostack, preserves_flags, readonly))
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
    }
    #[inline(always)]
    fn prefetch_shared(&self, word: &AtomicU64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: a prefetch is a hint: it never faults and changes no value.
        unsafe {
            core::arch::x86_64::_mm_prefetch(word.as_ptr() as *const i8, core::arch::x86_64::_MM_HINT_T0)
        };
        #[cfg(not(target_arch = "x86_64"))]
        let _ = word;
    }
}

/// Makes words and data for threads of one process: in place, by value. [`Arena::bytes`]
/// leaks its memory, since a view has no owner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heap;

impl Arena<Native> for Heap {
    #[inline]
    fn word(&self, _place: Place, value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }
    fn cell(&self, _place: Place, value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }
    fn bytes(&self, len: usize) -> NativeBytes {
        let bytes: &'static mut [u8] = Box::leak(vec![0u8; len].into_boxed_slice());
        NativeBytes { base: NonNull::from(bytes).cast(), len }
    }
}
