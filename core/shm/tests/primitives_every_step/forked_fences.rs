//! Asymmetric fences between two processes, one forked when the other was prepared for
//! them: the child is registered as its parent is, and of their stores one is seen.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use towpath_machine::{FenceReach, Native, Processor};
use towpath_testkit::{Child, pin, pin_to, refuse_call, shared_words, two_cores};

/// Number of times that each side stores and looks.
const ROUNDS: u64 = 10_000;
/// Number of lines whose stores keep back those of the light side.
const BURDEN: usize = 40;
/// Maximum number of cores that are looked at.
const CORES: usize = 64;
const REACH: FenceReach = FenceReach::Processes;
/// Command of `membarrier` that asks for registrations; since Linux 6.3.
const GET_REGISTRATIONS: libc::c_int = 1 << 9;
/// Value of the answer: fences of other processes reach this one.
const REGISTER_GLOBAL_EXPEDITED: u32 = 1 << 2;

/// Side of the fence.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Light,
    Heavy,
}

/// Words of both sides, a line each.
struct Words(&'static [AtomicU64]);

impl Words {
    fn new() -> Words {
        Words(shared_words(8 * (4 + BURDEN) + 1 + ROUNDS as usize))
    }

    fn stored(&self, side: Side) -> &AtomicU64 {
        &self.0[8 * side as usize]
    }

    fn ended(&self, side: Side) -> &AtomicU64 {
        &self.0[8 * (2 + side as usize)]
    }

    /// The sides that saw the other's store in a round: a bit each.
    fn seen(&self, round: u64) -> &AtomicU64 {
        &self.0[8 * (4 + BURDEN) + round as usize]
    }

    /// Stores to lines that the other side has.
    ///
    /// The light side's next store waits in its core behind these.
    fn burden(&self, round: u64) {
        (0..BURDEN).for_each(|line| self.0[8 * (4 + line)].store(round, Relaxed));
    }

    fn play(&self, me: Side, other: Side) {
        let cpu = Native::with_id(0);
        for round in 1..=ROUNDS {
            if me == Side::Light {
                self.burden(round);
            } else {
                // At another moment of the light side's each time.
                (0..8 * (round % 64)).for_each(|n| {
                    std::hint::black_box(n);
                });
            }
            self.stored(me).store(round, Relaxed);
            match me {
                Side::Light => cpu.light_fence(SeqCst),
                Side::Heavy => cpu.heavy_fence(SeqCst, REACH),
            }
            if self.stored(other).load(Relaxed) >= round {
                self.seen(round).fetch_or(1 << me as u32, SeqCst);
            }
            if me == Side::Heavy {
                self.burden(round);
            }
            self.ended(me).store(round, SeqCst);
            let mut looks = 0;
            while self.ended(other).load(SeqCst) < round {
                looks += 1;
                if looks % 64 == 0 {
                    std::thread::yield_now();
                }
            }
        }
    }
}

/// Returns whether fences of other processes reach this one, if the system says that.
fn is_registered() -> Option<bool> {
    // SAFETY: a question about this process, which takes no memory.
    let answer = unsafe { libc::syscall(libc::SYS_membarrier, GET_REGISTRATIONS, 0, 0) };
    u32::try_from(answer).ok().map(|registered| registered & REGISTER_GLOBAL_EXPEDITED != 0)
}

/// Number of rounds in which neither side saw the other's store.
fn missed(child: Side, parent: Side, there: usize) -> usize {
    let words = Words::new();
    let other = Child::fork(|| {
        pin(there);
        assert_ne!(is_registered(), Some(false), "a child is registered as its parent");
        words.play(child, parent);
    });
    words.play(parent, child);
    while !other.has_ended() {
        std::thread::yield_now();
    }
    assert!(other.has_ended_well(), "the child failed");
    (1..=ROUNDS).filter(|&round| words.seen(round).load(SeqCst) == 0).count()
}

/// A process that can make no heavy fences any more says so.
fn refused_fences_are_told() {
    let sandboxed = Child::fork(|| {
        let cpu = Native::with_id(0);
        // In a sandbox, where the system has such ones.
        if refuse_call(libc::SYS_membarrier).is_ok() {
            cpu.heavy_fence(SeqCst, REACH);
            assert!(!cpu.fences_asymmetrically(REACH), "it goes on as if it reached the others");
        }
    });
    while !sandboxed.has_ended() {
        std::thread::yield_now();
    }
    assert!(sandboxed.has_ended_well(), "the sandboxed child failed");
}

/// Plays both sides in either process.
pub fn hold_between_processes() {
    if !Native::with_id(0).fences_asymmetrically(REACH) {
        println!("the system makes no asymmetric fences between processes");
        return;
    }
    assert_ne!(is_registered(), Some(false));
    refused_fences_are_told();
    let [core, _] = two_cores();
    pin_to(&(0..CORES).collect::<Vec<_>>());
    let [here, there] = two_cores();
    pin(here);
    for (child, parent) in [(Side::Light, Side::Heavy), (Side::Heavy, Side::Light)] {
        assert_eq!(missed(child, parent, there), 0, "rounds in which no store was seen");
    }
    // As `share_cases` has it.
    pin(core);
    println!("{:<40}{:>6} rounds", "fences of a forked process", 2 * ROUNDS);
}
