//! Stacks of the model checker's threads, kept from one schedule to the next.
//!
//! loom gives each thread of each schedule a stack of its own: a mapping, a guard page at its
//! bottom, and the mapping's end when the thread ends. These take the kernel longer than the
//! checker takes for the schedule, and the kernel does them for one thread of a process at a time.
//! Programs that link this module get `mmap`, `mprotect` and `munmap` of their own: they keep a
//! stack that is given back, with its guard page, for the next request of its size by the same
//! thread. All other calls go to the kernel. A thread's stacks stay mapped after its end.

use std::cell::Cell;
use std::ffi::{c_int, c_long, c_void};

/// Maximum number of stacks that a thread keeps; loom's models have at most this many
/// threads, and the thread's own signal stack comes to it.
const KEPT: usize = 16;

/// A stack of this thread: in use, or kept for the next request.
#[derive(Clone, Copy)]
struct Stack {
    /// Address of its guard page; 0: there is no stack in this place.
    at: usize,
    /// Length with the guard page, in bytes.
    len: usize,
    is_kept: bool,
    /// True if its guard page is there already.
    is_guarded: bool,
}

const NONE: Stack = Stack { at: 0, len: 0, is_kept: false, is_guarded: false };

thread_local! {
    // Without a destructor: also used while a thread begins and ends.
    static STACKS: [Cell<Stack>; KEPT] = const { [const { Cell::new(NONE) }; KEPT] };
}

/// Changes the first stack of this thread that `fits`. Returns it as it was.
fn change(fits: impl Fn(Stack) -> bool, change: impl Fn(Stack) -> Stack) -> Option<Stack> {
    STACKS.with(|stacks| {
        let cell = stacks.iter().find(|cell| fits(cell.get()))?;
        Some(cell.replace(change(cell.get())))
    })
}

/// See mmap(2).
///
/// # Safety
///
/// As the system's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: usize,
    access: c_int,
    kind: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let is_stack = at.is_null() && kind == libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
    if is_stack && let Some(kept) = change(|s| s.is_kept && s.len == len, |s| Stack { is_kept: false, ..s }) {
        return kept.at as *mut c_void;
    }
    // SAFETY: the caller's own call, with the caller's guarantees.
    let made = unsafe { libc::syscall(libc::SYS_mmap, at, len, access, kind, file, offset) };
    if is_stack && made != -1 {
        let new = Stack { at: made as usize, len, is_kept: false, is_guarded: false };
        // The place of a stack at this address that another thread has unmapped; else a free one.
        change(|s| s.at == new.at, |_| new).or_else(|| change(|s| s.at == 0, |_| new));
    }
    made as *mut c_void
}

/// See mprotect(2).
///
/// # Safety
///
/// As the system's.
#[unsafe(no_mangle)]
unsafe extern "C" fn mprotect(at: *mut c_void, len: usize, access: c_int) -> c_int {
    let guards = access == libc::PROT_NONE;
    let of = |s: Stack| guards && s.at != 0 && s.at == at as usize && !s.is_kept;
    if change(of, |s| Stack { is_guarded: true, ..s }).is_some_and(|s| s.is_guarded) {
        return 0;
    }
    // SAFETY: the caller's own call, with the caller's guarantees.
    unsafe { libc::syscall(libc::SYS_mprotect, at, len, access as c_long) as c_int }
}

/// See munmap(2).
///
/// # Safety
///
/// As the system's.
#[unsafe(no_mangle)]
unsafe extern "C" fn munmap(at: *mut c_void, len: usize) -> c_int {
    let of = |s: Stack| s.at != 0 && s.at == at as usize && s.len == len && !s.is_kept && s.is_guarded;
    if change(of, |s| Stack { is_kept: true, ..s }).is_some() {
        return 0;
    }
    change(|s| s.at != 0 && s.at == at as usize, |_| NONE);
    // SAFETY: the caller's own call, with the caller's guarantees.
    unsafe { libc::syscall(libc::SYS_munmap, at, len) as c_int }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null_mut;

    const LEN: usize = 5 * 4096;
    const OPEN: c_int = libc::PROT_READ | libc::PROT_WRITE;

    fn new(kind: c_int) -> *mut c_void {
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let at = unsafe { libc::mmap(null_mut(), LEN, OPEN, libc::MAP_PRIVATE | kind, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at
    }

    fn guard(at: *mut c_void) {
        // SAFETY: a page of the caller's mapping, in which nothing lies yet.
        assert_eq!(unsafe { libc::mprotect(at, 4096, libc::PROT_NONE) }, 0);
    }

    fn free(at: *mut c_void) {
        // SAFETY: the caller's mapping, which is not used any more.
        assert_eq!(unsafe { libc::munmap(at, LEN) }, 0);
    }

    /// The access to the page at this address, as the kernel shows it; `None`: it is not
    /// mapped.
    fn access(at: *mut c_void) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().find_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let (from, to) = range.split_once('-')?;
            let [from, to] = [from, to].map(|n| usize::from_str_radix(n, 16).unwrap());
            (from..to).contains(&(at as usize)).then(|| rest[..4].to_string())
        })
    }

    fn with_stack(at: *mut c_void) -> *mut c_void {
        at.wrapping_byte_add(4096)
    }

    #[test]
    fn stack_that_is_given_back_is_the_next_one_with_its_guard() {
        let stack = libc::MAP_ANONYMOUS | libc::MAP_STACK;
        let [first, second] = [new(stack), new(stack)];
        [first, second].into_iter().for_each(guard);
        assert_ne!(first, second);
        free(first);
        assert_eq!(new(stack), first);
        guard(first);
        assert_eq!(
            (access(first).as_deref(), access(with_stack(first)).as_deref()),
            (Some("---p"), Some("rw-p"))
        );
        // SAFETY: eight bytes of the mapping behind its guard page.
        unsafe { with_stack(first).cast::<u64>().write(7) };
        [first, second].into_iter().for_each(free);
    }

    #[test]
    fn other_mappings_and_unguarded_stacks_go_to_the_kernel() {
        for kind in [libc::MAP_ANONYMOUS, libc::MAP_ANONYMOUS | libc::MAP_STACK] {
            let at = new(kind);
            assert_eq!(access(at).as_deref(), Some("rw-p"));
            free(at);
            let is_known = STACKS.with(|stacks| stacks.iter().any(|s| s.get().at == at as usize));
            assert!(!is_known, "{kind}");
        }
    }

    #[test]
    fn more_stacks_than_are_kept_go_back_to_the_kernel() {
        let all: Vec<_> = (0..KEPT + 4).map(|_| new(libc::MAP_ANONYMOUS | libc::MAP_STACK)).collect();
        all.iter().copied().for_each(guard);
        all.iter().copied().for_each(free);
        let kept =
            STACKS.with(|stacks| stacks.iter().filter(|s| s.get().is_kept && s.get().len == LEN).count());
        assert!((1..=KEPT).contains(&kept), "{kept}");
    }
}
