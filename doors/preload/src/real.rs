//! Functions of libc's that this library stands before.
//!
//! Found by `dlsym` when they are first wanted, which may be before this library is initialised. It
//! allocates nothing when it finds them, and its own lock does not come through an entry.
#![allow(unsafe_code)]

use core::ffi::{CStr, c_int, c_uint, c_void};
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    clockid_t, pthread_barrier_t, pthread_barrierattr_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t,
    pthread_mutexattr_t, pthread_rwlock_t, pthread_rwlockattr_t, pthread_spinlock_t, sem_t, timespec,
};

/// Version of conditions that programs of x86-64 are linked with; an older one has
/// another layout.
const CONDITIONS: &CStr = c"GLIBC_2.3.2";

/// Address of a function, looked up once.
fn found(known: &AtomicPtr<c_void>, name: &'static CStr) -> *mut c_void {
    // Relaxed: each thread that looks it up finds the same.
    let address = known.load(Ordering::Relaxed);
    if address.is_null() { look_up(known, name) } else { address }
}

#[cold]
fn look_up(known: &AtomicPtr<c_void>, name: &'static CStr) -> *mut c_void {
    let mut address = ptr::null_mut();
    if name.to_bytes().starts_with(b"pthread_cond_") {
        // SAFETY: names that end with zero.
        address = unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), CONDITIONS.as_ptr()) };
    }
    if address.is_null() {
        // SAFETY: a name that ends with zero.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    }
    if address.is_null() {
        crate::text::give_up(name);
    }
    known.store(address, Ordering::Relaxed);
    address
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal($($argument:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        ///
        /// As libc's function of this name.
        pub unsafe fn $name($($argument: $type),*) -> c_int {
            static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            let address = found(&KNOWN, $symbol);
            // SAFETY: the function of this name has this signature. It may be cancelled, and then
            // unwinds.
            unsafe {
                core::mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> c_int>(address)(
                    $($argument),*
                )
            }
        }
    )*};
}

functions! {
    /// `pthread_mutex_init`.
    mutex_init = c"pthread_mutex_init"(mutex: *mut pthread_mutex_t, attributes: *const pthread_mutexattr_t);
    /// `pthread_mutex_destroy`.
    mutex_destroy = c"pthread_mutex_destroy"(mutex: *mut pthread_mutex_t);
    /// `pthread_mutex_lock`.
    mutex_lock = c"pthread_mutex_lock"(mutex: *mut pthread_mutex_t);
    /// `pthread_mutex_trylock`.
    mutex_trylock = c"pthread_mutex_trylock"(mutex: *mut pthread_mutex_t);
    /// `pthread_mutex_timedlock`.
    mutex_timedlock = c"pthread_mutex_timedlock"(mutex: *mut pthread_mutex_t, time: *const timespec);
    /// `pthread_mutex_clocklock`.
    mutex_clocklock = c"pthread_mutex_clocklock"(mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec);
    /// `pthread_mutex_unlock`.
    mutex_unlock = c"pthread_mutex_unlock"(mutex: *mut pthread_mutex_t);
    /// `pthread_cond_init`.
    cond_init = c"pthread_cond_init"(condition: *mut pthread_cond_t, attributes: *const pthread_condattr_t);
    /// `pthread_cond_destroy`.
    cond_destroy = c"pthread_cond_destroy"(condition: *mut pthread_cond_t);
    /// `pthread_cond_signal`.
    cond_signal = c"pthread_cond_signal"(condition: *mut pthread_cond_t);
    /// `pthread_cond_broadcast`.
    cond_broadcast = c"pthread_cond_broadcast"(condition: *mut pthread_cond_t);
    /// `pthread_cond_wait`.
    cond_wait = c"pthread_cond_wait"(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t);
    /// `pthread_cond_timedwait`.
    cond_timedwait = c"pthread_cond_timedwait"(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, time: *const timespec);
    /// `pthread_cond_clockwait`.
    cond_clockwait = c"pthread_cond_clockwait"(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, clock: clockid_t, time: *const timespec);
    /// `pthread_rwlock_init`.
    rwlock_init = c"pthread_rwlock_init"(lock: *mut pthread_rwlock_t, attributes: *const pthread_rwlockattr_t);
    /// `pthread_rwlock_destroy`.
    rwlock_destroy = c"pthread_rwlock_destroy"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_rdlock`.
    rwlock_rdlock = c"pthread_rwlock_rdlock"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_wrlock`.
    rwlock_wrlock = c"pthread_rwlock_wrlock"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_tryrdlock`.
    rwlock_tryrdlock = c"pthread_rwlock_tryrdlock"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_trywrlock`.
    rwlock_trywrlock = c"pthread_rwlock_trywrlock"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_unlock`.
    rwlock_unlock = c"pthread_rwlock_unlock"(lock: *mut pthread_rwlock_t);
    /// `pthread_rwlock_timedrdlock`.
    rwlock_timedrdlock = c"pthread_rwlock_timedrdlock"(lock: *mut pthread_rwlock_t, time: *const timespec);
    /// `pthread_rwlock_timedwrlock`.
    rwlock_timedwrlock = c"pthread_rwlock_timedwrlock"(lock: *mut pthread_rwlock_t, time: *const timespec);
    /// `pthread_rwlock_clockrdlock`.
    rwlock_clockrdlock = c"pthread_rwlock_clockrdlock"(lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec);
    /// `pthread_rwlock_clockwrlock`.
    rwlock_clockwrlock = c"pthread_rwlock_clockwrlock"(lock: *mut pthread_rwlock_t, clock: clockid_t, time: *const timespec);
    /// `pthread_barrier_init`.
    barrier_init = c"pthread_barrier_init"(barrier: *mut pthread_barrier_t, attributes: *const pthread_barrierattr_t, count: c_uint);
    /// `pthread_barrier_destroy`.
    barrier_destroy = c"pthread_barrier_destroy"(barrier: *mut pthread_barrier_t);
    /// `pthread_barrier_wait`.
    barrier_wait = c"pthread_barrier_wait"(barrier: *mut pthread_barrier_t);
    /// `sem_init`.
    sem_init = c"sem_init"(semaphore: *mut sem_t, shared: c_int, value: c_uint);
    /// `sem_destroy`.
    sem_destroy = c"sem_destroy"(semaphore: *mut sem_t);
    /// `sem_wait`.
    sem_wait = c"sem_wait"(semaphore: *mut sem_t);
    /// `sem_timedwait`.
    sem_timedwait = c"sem_timedwait"(semaphore: *mut sem_t, time: *const timespec);
    /// `sem_clockwait`.
    sem_clockwait = c"sem_clockwait"(semaphore: *mut sem_t, clock: clockid_t, time: *const timespec);
    /// `sem_trywait`.
    sem_trywait = c"sem_trywait"(semaphore: *mut sem_t);
    /// `sem_post`.
    sem_post = c"sem_post"(semaphore: *mut sem_t);
    /// `sem_getvalue`.
    sem_getvalue = c"sem_getvalue"(semaphore: *mut sem_t, value: *mut c_int);
    /// `pthread_spin_trylock`.
    spin_trylock = c"pthread_spin_trylock"(lock: *mut pthread_spinlock_t);
    /// `pthread_spin_unlock`.
    spin_unlock = c"pthread_spin_unlock"(lock: *mut pthread_spinlock_t);
}

/// Place of libc's variable that says whether the process has one thread.
static SINGLE_THREADED: AtomicPtr<u8> = AtomicPtr::new((&raw const NO).cast_mut());
/// Answer of a libc that does not say.
static NO: u8 = 0;

/// Looks for libc's variable.
pub fn find_single_threaded() {
    // SAFETY: a name that ends with zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) };
    if !found.is_null() {
        SINGLE_THREADED.store(found.cast(), Ordering::Relaxed);
    }
}

/// Returns whether the process has one thread: then libc's locks, too, do without atomic
/// exchanges.
#[inline(always)]
pub fn is_single_threaded() -> bool {
    // Relaxed: written before the program begins.
    let place = SINGLE_THREADED.load(Ordering::Relaxed);
    // SAFETY: libc's variable, or `NO`; libc changes it only while there is one thread, or with the
    // thread that is about to be.
    unsafe { place.read_volatile() != 0 }
}
