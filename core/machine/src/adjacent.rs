//! Two words that lie beside each other, changed by one instruction: CMPXCHG16B on
//! x86-64, CASP on AArch64, where the processor has it.
//!
//! # Safety
//!
//! The instruction is executed only after the processor was asked whether it has it, on 16 aligned
//! bytes that two references to words cover. Both architectures guarantee that it and accesses to
//! either word are atomic with each other.
#![allow(unsafe_code)]

use core::sync::atomic::AtomicU64;

use crate::capabilities::Cas2;
use crate::native::Native;

/// Returns whether the second word follows the first, and both lie in 16 aligned bytes.
fn are_adjacent(words: [&AtomicU64; 2]) -> bool {
    let [first, second] = words.map(|word| core::ptr::from_ref(word).addr());
    first.is_multiple_of(16) && second == first + 8
}

impl Cas2 for Native {
    fn cas2(&self, words: [&AtomicU64; 2], old: [u64; 2], new: [u64; 2]) -> Option<bool> {
        (arch::is_there() && are_adjacent(words)).then(|| {
            // SAFETY: the processor has the instruction; the words are adjacent and aligned.
            unsafe { arch::cas2(words[0], old, new) }
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod arch {
    use core::sync::atomic::AtomicU64;

    pub fn is_there() -> bool {
        std::arch::is_x86_feature_detected!("cmpxchg16b")
    }

    /// # Safety
    ///
    /// The processor has the instruction; the word is aligned to 16 bytes, and followed by another
    /// one.
    pub unsafe fn cas2(first: &AtomicU64, old: [u64; 2], new: [u64; 2]) -> bool {
        let done: u8;
        // SAFETY: 16 aligned bytes that are only accessed atomically, as the caller promises. A
        // locked instruction acquires and releases: a processor that loads one of the values with
        // Acquire sees what came before. RBX, in which the instruction wants the first new value,
        // is the compiler's: it gets it back.
        unsafe {
            core::arch::asm!(
                "xchg rsi, rbx",
                "lock cmpxchg16b xmmword ptr [rdi]",
                "sete r8b",
                "mov rbx, rsi",
                in("rdi") first.as_ptr(),
                inout("rsi") new[0] => _,
                inout("rax") old[0] => _,
                inout("rdx") old[1] => _,
                in("rcx") new[1],
                out("r8b") done,
                options(nostack),
            );
        }
        done != 0
    }
}

#[cfg(target_arch = "aarch64")]
mod arch {
    use core::sync::atomic::AtomicU64;

    pub fn is_there() -> bool {
        std::arch::is_aarch64_feature_detected!("lse")
    }

    /// # Safety
    ///
    /// The processor has the instruction; the word is aligned to 16 bytes, and followed by another
    /// one.
    pub unsafe fn cas2(first: &AtomicU64, old: [u64; 2], new: [u64; 2]) -> bool {
        let (low, high): (u64, u64);
        // SAFETY: 16 aligned bytes that are only accessed atomically, as the caller promises.
        // CASPAL acquires and releases: as on x86-64. The registers are pairs that begin with an
        // even one.
        unsafe {
            core::arch::asm!(
                ".arch_extension lse",
                "caspal x0, x1, x2, x3, [{at}]",
                at = in(reg) first.as_ptr(),
                inout("x0") old[0] => low,
                inout("x1") old[1] => high,
                in("x2") new[0],
                in("x3") new[1],
                options(nostack),
            );
        }
        [low, high] == old
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod arch {
    use core::sync::atomic::AtomicU64;

    pub fn is_there() -> bool {
        false
    }

    /// # Safety
    ///
    /// Never called: [`is_there`] is `false`.
    pub unsafe fn cas2(_: &AtomicU64, _: [u64; 2], _: [u64; 2]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[repr(align(16))]
    struct Aligned([AtomicU64; 4]);

    #[test]
    fn both_change_or_neither() {
        // Not moved out of it: then it would be aligned to eight bytes only.
        let aligned = Aligned([1, 2, 3, 4].map(AtomicU64::new));
        let words = &aligned.0;
        let cpu = Native::with_id(0);
        if !arch::is_there() {
            return assert_eq!(cpu.cas2([&words[0], &words[1]], [1, 2], [5, 6]), None);
        }
        assert_eq!(cpu.cas2([&words[0], &words[1]], [1, 9], [5, 6]), Some(false));
        assert_eq!(cpu.cas2([&words[0], &words[1]], [9, 2], [5, 6]), Some(false));
        assert_eq!(cpu.cas2([&words[0], &words[1]], [1, 2], [5, u64::MAX]), Some(true));
        // Not aligned, not neighbours, in the wrong order.
        for (a, b) in [(1, 2), (0, 2), (1, 0), (0, 0)] {
            assert_eq!(cpu.cas2([&words[a], &words[b]], [0; 2], [0; 2]), None);
        }
        assert_eq!(words.each_ref().map(|word| word.load(Relaxed)), [5, u64::MAX, 3, 4]);
    }
}
