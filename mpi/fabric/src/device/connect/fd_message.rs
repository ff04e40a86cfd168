//! Descriptors between processes that can't use each other's /proc: passed through a Unix
//! socket (`SCM_RIGHTS`), one datagram each (`SOCK_SEQPACKET`).
//!
//! **A death** is seen at the connection: it hangs up, and where the kernel has them (Linux 6.5) a
//! pidfd of its other end (`SO_PEERPIDFD`) says so too. The pidfd also knows if a child of the dead
//! process has inherited the socket. Neither needs a pid that means something here.
//!
//! **Trust.** Only with processes of the same user, as the kernel says (`SO_PEERCRED`), whatever
//! they call that user in their namespaces. Nothing here blocks.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use towpath_shm::passing::{self, option, same_user};

use crate::device::connect::address::{Address, FIRST_USERS};

/// The longest datagram.
const BYTES: usize = 64;
/// Socket option for a pidfd of the peer.
/// Libc does not have it for every system; the number is one on all that Towpath runs on.
const SO_PEERPIDFD: libc::c_int = 77;

/// A datagram with descriptors.
#[derive(Debug)]
pub struct FdMessage {
    bytes: [u8; BYTES],
    len: usize,
    /// The descriptors.
    pub files: Vec<OwnedFd>,
}

impl FdMessage {
    /// The bytes, if there are as many.
    pub fn bytes<const N: usize>(&self) -> Option<[u8; N]> {
        self.bytes[..self.len].try_into().ok()
    }

    /// A number and one descriptor.
    pub fn number_and_file(mut self) -> Option<(u64, OwnedFd)> {
        let number = self.bytes().map(u64::from_le_bytes)?;
        (self.files.len() == 1).then(|| self.files.pop())?.map(|file| (number, file))
    }
}

/// A connection to another process of the same user.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    pidfd: Option<OwnedFd>,
}

/// Name of an endpoint's descriptor listener.
/// It is unique, since the nonce is random, and gone with the last descriptor of the socket.
fn name(of: &Address) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("towpath-fi.{:016x}", of.nonce).as_bytes())?)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

/// Opens the socket at which others can ask for an endpoint's descriptors.
///
/// # Errors
///
/// The system's, or users can't be told apart here: the overflow user (65534) of a user namespace
/// may be any user outside.
pub fn listen(own: &Address) -> io::Result<OwnedFd> {
    tells_users_apart(own)?;
    let listener = socket()?;
    rustix::net::bind(&listener, &name(own)?)?;
    rustix::net::listen(&listener, libc::SOMAXCONN)?;
    Ok(listener)
}

/// Accepts the next connection, and turns other users away; `None` if there is none.
pub fn accept(listener: BorrowedFd<'_>) -> Option<Connection> {
    loop {
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                if let Ok(connection) = Connection::of(socket) {
                    return Some(connection);
                }
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
            // None, or no descriptor left: a visitor can wait.
            Err(_) => return None,
        }
    }
}

fn tells_users_apart(own: &Address) -> io::Result<()> {
    if own.uid == overflow_user() && own.user_space != FIRST_USERS {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "a user without a number of its own in this user namespace can't be told from others",
        ));
    }
    Ok(())
}

/// User that stands for all users without a number in a user namespace.
fn overflow_user() -> u32 {
    let text = std::fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65534)
}

impl Connection {
    /// Sends to the endpoint of this address. `WouldBlock`: so many want that too that
    /// one has to try again. `ConnectionRefused`: it is not there any more.
    ///
    /// # Errors
    ///
    /// The system's, or it is another user's.
    pub fn open(own: &Address, to: &Address) -> io::Result<Connection> {
        tells_users_apart(own)?;
        let socket = socket()?;
        rustix::net::connect(&socket, &name(to)?)?;
        Connection::of(socket)
    }

    fn of(socket: OwnedFd) -> io::Result<Connection> {
        same_user(&socket)?;
        let pidfd = match option::<libc::c_int>(socket.as_fd(), SO_PEERPIDFD) {
            // SAFETY: a new descriptor, which the kernel has given to this process alone.
            Ok(fd) => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
            Err(why) => match why.raw_os_error() {
                Some(libc::ESRCH | libc::EINVAL) => return Err(io::ErrorKind::ConnectionRefused.into()),
                // No such option, or no descriptor left: then the hang-up has to do.
                _ => None,
            },
        };
        Ok(Connection { socket, pidfd })
    }

    /// Returns whether the process at the other end is known to be dead.
    pub fn is_dead(&self) -> bool {
        self.pidfd.as_ref().is_some_and(|pidfd| is_marked(pidfd, PollFlags::IN))
    }

    /// Returns whether the other end is gone. Messages that it had passed before can
    /// still be taken.
    pub fn is_lost(&self) -> bool {
        // A hang-up is told unasked.
        self.is_dead() || is_marked(&self.socket, PollFlags::empty())
    }

    /// Passes bytes and descriptors, at once or not at all.
    ///
    /// # Errors
    ///
    /// The system's: the other end is gone, or has not taken what came before.
    pub fn give(&self, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
        passing::give(&self.socket, bytes, files)
    }

    /// Takes the next message; `None` if none has come.
    ///
    /// # Errors
    ///
    /// Nothing will come any more.
    pub fn take(&self) -> io::Result<Option<FdMessage>> {
        let mut message = FdMessage { bytes: [0; BYTES], len: 0, files: Vec::new() };
        match passing::take(&self.socket, &mut message.bytes) {
            Ok((len, files)) => (message.len, message.files) = (len, files),
            Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(why) => return Err(why),
        }
        // No datagram of ours is empty.
        if message.len == 0 { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(Some(message)) }
    }
}

/// Returns whether a descriptor has one of these events, or a hang-up or an error.
fn is_marked(fd: &OwnedFd, events: PollFlags) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut [PollFd::new(fd, events)], Some(&now)).is_ok_and(|marked| marked > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn ends() -> (OwnedFd, Address, Connection, Connection) {
        let own = Address { nonce: nonce(), ..Address::here(0, 0).unwrap() };
        let listener = listen(&own).unwrap();
        assert!(accept(listener.as_fd()).is_none());
        let out = Connection::open(&own, &own).unwrap();
        let into = accept(listener.as_fd()).unwrap();
        (listener, own, out, into)
    }

    fn nonce() -> u64 {
        let mut bytes = [0; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap();
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn descriptors_arrive_in_order_with_what_was_said_of_them() {
        let (_listener, _, out, into) = ends();
        assert!(into.take().unwrap().is_none());
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        out.give(&7u64.to_le_bytes(), &[reader.as_fd()]).unwrap();
        out.give(&[1; 64], &[reader.as_fd(), writer.as_fd()]).unwrap();
        let (number, file) = into.take().unwrap().unwrap().number_and_file().unwrap();
        assert_eq!(number, 7);
        writer.write_all(b"x").unwrap();
        let mut byte = [0];
        std::fs::File::from(file).read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
        let both = into.take().unwrap().unwrap();
        assert_eq!((both.files.len(), both.bytes()), (2, Some([1; 64])));
        assert!(both.bytes::<8>().is_none() && both.number_and_file().is_none());
        writer.write_all(b"y").unwrap();
        reader.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
    }

    #[test]
    fn closed_end_is_missed_on_both_sides() {
        let (listener, own, out, into) = ends();
        assert!(!out.is_lost() && !into.is_lost());
        out.give(&[5; 8], &[]).unwrap();
        drop(out);
        assert!(into.is_lost());
        // A message that was passed before is there all the same.
        assert_eq!(into.take().unwrap().unwrap().bytes(), Some([5; 8]));
        assert!(into.take().is_err());
        let waiting = Connection::open(&own, &own).unwrap();
        assert!(!waiting.is_lost());
        drop(listener);
        assert!(waiting.is_lost());
        let refused = Connection::open(&own, &own).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }
}
