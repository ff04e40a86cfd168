//! Descriptors that go from one process to another through a Unix socket (`SCM_RIGHTS`),
//! between processes of one user.
#![allow(unsafe_code)]

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Maximum number of descriptors that go at a time.
const FILES: usize = 2;

/// Passes bytes and up to two descriptors, at once or not at all.
///
/// # Errors
///
/// The system's: the other end is gone, or (if the socket does not block) has not taken what came
/// before. `InvalidInput`: too many descriptors.
pub fn give(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes bytes and descriptors from the other end: their number, and the descriptors,
/// which are not inherited.
///
/// # Errors
///
/// The system's; among them that nothing has come, if the socket does not block.
pub fn take(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let most = bytes.len();
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((message.bytes.min(most), files.flatten().collect()))
}

/// Refuses a connection whose other end is another user's, as the kernel says
/// (`SO_PEERCRED`), whatever the user is called in its namespace. Its pid does not matter: a
/// process that has none here has pid 0.
///
/// # Errors
///
/// `PermissionDenied`; or the system's.
pub fn same_user(socket: impl AsFd) -> io::Result<()> {
    let other: libc::ucred = option(socket.as_fd(), libc::SO_PEERCRED)?;
    if other.uid == rustix::process::geteuid().as_raw() {
        Ok(())
    } else {
        Err(io::Error::new(io::ErrorKind::PermissionDenied, "the other end of the socket is another user's"))
    }
}

/// An option of a socket, which is a number or some of them.
///
/// By hand: rustix has no credentials with the pid 0, which the kernel gives for a process that has
/// no pid in this namespace, and does not know `SO_PEERPIDFD`.
///
/// # Errors
///
/// The system's.
pub fn option<T: Numbers>(socket: BorrowedFd<'_>, which: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: a place of that size for the value, which is a number or some of them: so any bytes
    // are one, and zeros.
    unsafe {
        let at = value.as_mut_ptr().cast();
        if libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, which, at, &mut len) != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(value.assume_init())
    }
}

/// Values of socket options: any bytes are one of these.
pub trait Numbers: Copy + private::Sealed {}
impl Numbers for libc::c_int {}
impl Numbers for libc::ucred {}

mod private {
    pub trait Sealed {}
    impl Sealed for libc::c_int {}
    impl Sealed for libc::ucred {}
}
