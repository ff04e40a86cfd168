//! Shows that the native machine costs nothing: locking and unlocking the generic ticket
//! lock executes the same instructions as one that is written by hand for atomics and nothing else.
//!
//! `cargo run --release -p towpath-sync --example zero_cost`: steps (ptrace) through one
//! uncontended lock and unlock of each, prints both, and fails if they differ in more than the
//! choice of registers and the distance of jumps. `tests/native/cost.rs` runs it.

use towpath_machine::{Heap, Native};
use towpath_sync::locks::Ticket;
use towpath_sync::{Lock, Spinning};

/// Lock of the library, and the processor that a thread keeps.
#[repr(C)]
struct Thread {
    lock: Ticket<Native>,
    cpu: Native,
}

/// The lock of the library.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn zero_cost_generic(thread: &Thread) {
    let Thread { lock, cpu } = thread;
    if let Ok(held) = lock.lock(cpu, &Spinning) {
        lock.unlock(cpu, &Spinning, held);
    }
}

/// Ticket lock written by hand for one machine.
mod by_hand {
    use std::sync::atomic::{AtomicU64, Ordering};

    // The orderings are those of `src/locks/ticket.rs`: (1) Acquire when the lock is had pairs with
    // (2) Release when it is let go; the number orders nothing.

    /// All bits but the highest, which says that a waiter is parked.
    const VALUE: u64 = u64::MAX >> 1;

    #[derive(Default)]
    #[repr(C, align(64))]
    pub struct Ticket {
        next: AtomicU64,
        serving: AtomicU64,
    }

    impl Ticket {
        /// Waits until the number is served.
        #[cold]
        #[inline(never)]
        fn wait(&self, number: u64, serving: u64) -> bool {
            for _ in serving..number {
                std::hint::spin_loop();
            }
            while self.serving.load(Ordering::Acquire) & VALUE != number {
                std::hint::spin_loop();
            }
            true
        }
    }

    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern "C" fn zero_cost_by_hand(lock: &Ticket) {
        let number = lock.next.fetch_add(1, Ordering::Relaxed);
        let serving = lock.serving.load(Ordering::Acquire) & VALUE;
        if serving == number || lock.wait(number, serving) {
            lock.serving.store(number + 1, Ordering::Release);
        }
    }

    /// Lock with one load too many, which the comparison must find.
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern "C" fn zero_cost_one_load_more(lock: &Ticket) {
        let number = lock.next.fetch_add(1, Ordering::Relaxed);
        let serving = lock.serving.load(Ordering::Acquire) & VALUE;
        if serving == number || lock.wait(number, serving) {
            lock.serving.store(number + 1, Ordering::Release);
            lock.next.load(Ordering::Relaxed);
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod steps {
    use std::io::Error;

    /// More than any of the functions takes, and than calling it does.
    const LIMIT: u32 = 100_000;

    fn wait_for(child: libc::pid_t) {
        let mut status = 0;
        // SAFETY: `status` is a valid place; the child is ours and not yet reaped.
        let pid = unsafe { libc::waitpid(child, &mut status, 0) };
        assert!(pid == child && libc::WIFSTOPPED(status), "the child does not stop: {status:#x}");
    }

    fn step(child: libc::pid_t) -> libc::user_regs_struct {
        // SAFETY: the child is ours, traced and stopped.
        let result = unsafe { libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0) };
        assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
        wait_for(child);
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        // SAFETY: the child is ours, traced and stopped, and the kernel fills in all of `registers`
        // if it returns 0, which is checked before they are used.
        unsafe {
            let result = libc::ptrace(libc::PTRACE_GETREGS, child, 0, registers.as_mut_ptr());
            assert_eq!(result, 0, "ptrace: {}", Error::last_os_error());
            registers.assume_init()
        }
    }

    /// The instructions that one call executes from the function's first to its return,
    /// with their bytes.
    pub fn of<T>(function: extern "C" fn(&T), argument: &T) -> Vec<Vec<u8>> {
        let start = function as usize as u64;
        // SAFETY: this process has one thread. The child calls only ptrace, raise, the function and
        // _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: none of them has preconditions here: our parent is there, and traces us from
            // now on.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            function(argument);
            // SAFETY: ends the child without running what belongs to the parent.
            unsafe { libc::_exit(0) }
        }
        assert!(child > 0, "fork: {}", Error::last_os_error());
        wait_for(child);
        let mut places = Vec::new();
        let mut back = None;
        for _ in 0..LIMIT {
            let registers = step(child);
            if Some(registers.rip) == back {
                break;
            }
            if registers.rip == start {
                // SAFETY: reads a word of the stopped child's stack: where the call returns to.
                let word = unsafe { libc::ptrace(libc::PTRACE_PEEKTEXT, child, registers.rsp, 0) };
                back = Some(word as u64);
            }
            if back.is_some() {
                places.push(registers.rip);
            }
        }
        let mut status = 0;
        // SAFETY: our own child, which is stopped and not yet reaped; `status` is a valid place.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, &mut status, 0);
        }
        assert!(!places.is_empty(), "the child has not called the function");
        let length = |i: usize| match places.get(i + 1).map(|next| next.wrapping_sub(places[i])) {
            Some(length @ 1..=15) => length as usize,
            _ => 1, // A jump, a call or the return: the opcode says which.
        };
        (0..places.len())
            // SAFETY: the instruction that the child has executed lies at the same place in the
            // parent's code, all of it.
            .map(|i| unsafe { std::slice::from_raw_parts(places[i] as *const u8, length(i)) }.to_vec())
            .collect()
    }

    /// Essence of an instruction: opcode, width, form of address and immediate values,
    /// without the registers' numbers and the distance of jumps.
    pub fn essence(instruction: &[u8]) -> Vec<u8> {
        let prefixes = instruction.iter().take_while(|b| matches!(b, 0x66 | 0xf0 | 0xf2 | 0xf3)).count();
        let (mut essence, mut rest) = (instruction[..prefixes].to_vec(), &instruction[prefixes..]);
        if let [rex @ 0x40..=0x4f, more @ ..] = rest {
            essence.push(rex & 0x08);
            rest = more;
        }
        match rest {
            // push, pop.
            [op @ 0x50..=0x5f, ..] => essence.push(op & !7),
            // mov of an immediate.
            [op @ 0xb8..=0xbf, value @ ..] => {
                essence.push(op & !7);
                essence.extend(value);
            }
            // Jumps and calls.
            [op @ (0x70..=0x7f | 0xe8 | 0xe9 | 0xeb), ..] => essence.push(*op),
            [0x0f, op @ 0x80..=0x8f, ..] => essence.extend([0x0f, *op]),
            [0x0f, op, form, more @ ..] => {
                essence.extend([0x0f, *op, form & 0xc0]);
                essence.extend(more);
            }
            // The register's number is part of the opcode.
            [
                op @ (0x80..=0x83 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe | 0xff),
                form,
                more @ ..,
            ] => {
                essence.extend([*op, form & 0xf8]);
                essence.extend(more);
            }
            [op, form, more @ ..] => {
                essence.extend([*op, form & 0xc0]);
                essence.extend(more);
            }
            short => essence.extend(short),
        }
        essence
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
fn main() {
    use std::hint::black_box;

    let print = |name: &str, instructions: &[Vec<u8>]| {
        println!("{name}: {} instructions", instructions.len());
        for bytes in instructions {
            println!("    {}", bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" "));
        }
    };
    let essence = |steps: &[Vec<u8>]| steps.iter().map(|i| steps::essence(i)).collect::<Vec<_>>();
    let lock = by_hand::Ticket::default();
    let generic = steps::of(
        black_box(zero_cost_generic),
        &Thread { lock: Ticket::new(&Heap), cpu: Native::with_id(0) },
    );
    let by_hand = steps::of(black_box(by_hand::zero_cost_by_hand), &lock);
    let one_more = steps::of(black_box(by_hand::zero_cost_one_load_more), &lock);
    print("generic", &generic);
    print("by hand", &by_hand);
    assert_eq!(one_more.len(), by_hand.len() + 1, "a load more is an instruction more");
    assert_ne!(essence(&one_more), essence(&by_hand));
    if essence(&generic) != essence(&by_hand) {
        println!("They differ: the native machine costs something.");
        std::process::exit(1);
    }
    println!("The same: the native machine costs nothing.");
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
fn main() {
    let _ = (zero_cost_generic, by_hand::zero_cost_by_hand, by_hand::zero_cost_one_load_more);
    println!("Not compared: stepping is written for Linux on x86-64.");
}
