//! System calls that the kernel refuses, as sandboxes have it.

use std::io;

/// Has the system refuse a call to the calling thread, with `EPERM`.
///
/// And to the threads and processes that it makes from now on.
///
/// # Errors
///
/// The system's, where it has no filters of calls.
pub fn refuse_call(number: libc::c_long) -> io::Result<()> {
    let step = |code: u32, jf, k| libc::sock_filter { code: code as u16, jt: 0, jf, k };
    let mut steps = [
        // The number of the call.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, number as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: both change what this thread may call; the filter, which the kernel copies, and its
    // steps are there during the call.
    let is_refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if is_refused { Ok(()) } else { Err(io::Error::last_os_error()) }
}
