//! Permission to count the processor's cycles.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// Checks that this process may count its own cycles, outside the kernel.
///
/// # Errors
///
/// The system's: not found on a (virtual) machine without counters, permission denied by
/// `/proc/sys/kernel/perf_event_paranoid` or a container.
pub fn may_count_cycles() -> io::Result<()> {
    /// Words of `struct perf_event_attr` in its first published size.
    const WORDS: usize = 8;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    // Type 0: hardware, then the size; configuration 0: cycles; flags: neither kernel (bit 5) nor
    // hypervisor (bit 6); all else 0. The type is the first half of its word in either byte order
    // only because it is 0, so the size is stored as a half.
    let mut attributes = [0u32; 2 * WORDS];
    attributes[1] = (size_of::<u64>() * WORDS) as u32;
    let flags = 1u64 << 5 | 1 << 6;
    attributes[10..12].copy_from_slice(&[flags as u32, (flags >> 32) as u32]);
    // SAFETY: the attributes are as long as their size says and outlive the call.
    let opened =
        unsafe { libc::syscall(libc::SYS_perf_event_open, attributes.as_ptr(), 0, -1, -1, CLOSE_ON_EXEC) };
    if opened < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    drop(unsafe { OwnedFd::from_raw_fd(opened as i32) });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_yes_or_an_error_that_the_kernel_documents() {
        let Err(error) = may_count_cycles() else { return };
        // Of the documented errors these depend on the machine and not on the attributes.
        let known = [libc::ENOENT, libc::EACCES, libc::EPERM, libc::ENOSYS, libc::EOPNOTSUPP, libc::ENODEV];
        assert!(error.raw_os_error().is_some_and(|e| known.contains(&e)), "{error}");
    }
}
