//! State of a connection in the kernel: `TCP_INFO`.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// Number of attempts in a row that the peer's host has not answered: data, or probes.
pub fn unanswered(stream: &TcpStream) -> u8 {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: `info` has room for `length` bytes, and both live through the call.
    let failed = unsafe {
        let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
        libc::getsockopt(stream.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &mut length)
    };
    if failed != 0 {
        return 0;
    }
    // SAFETY: a structure of integers; the kernel has written a prefix, and the rest is zero.
    let info = unsafe { info.assume_init() };
    info.tcpi_retransmits.max(info.tcpi_probes)
}
