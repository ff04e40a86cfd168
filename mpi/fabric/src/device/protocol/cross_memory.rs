//! One copy instead of two: out of the sender's memory into the receiver's buffer
//! (`process_vm_readv`), where the system permits it.
#![allow(unsafe_code)]

use crate::device::resource::buffers::Buffer;

/// Copies `len` bytes at an address of another process into a buffer.
///
/// # Errors
///
/// The system's error: mostly EPERM (ptrace limits, other namespaces) or ESRCH.
pub fn read(pid: u32, from: usize, to: &Buffer, len: usize) -> Result<(), i32> {
    let mut done = 0;
    for (at, size) in to.range(0, len) {
        let mut copied = 0;
        while copied < size {
            let local = libc::iovec { iov_base: (at + copied) as *mut _, iov_len: size - copied };
            let remote = libc::iovec { iov_base: (from + done) as *mut _, iov_len: size - copied };
            // SAFETY: the local range is part of a buffer that its caller keeps until the
            // completion; the remote one is read by the kernel, which checks it.
            let n = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
            if n <= 0 {
                return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO));
            }
            copied += n as usize;
            done += n as usize;
        }
    }
    Ok(())
}
