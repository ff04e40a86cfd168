//! A process's world, as its environment names it.
//!
//! By name, by an inherited descriptor, or by the socket at which the launcher gives the descriptor
//! away (`handover.rs`).
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use rustix::io::fcntl_dupfd_cloexec;

use crate::passing::{self, same_user};
use crate::segment::inode_of;
use crate::{Error, variables};

fn ask(name: &str) -> io::Result<OwnedFd> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    same_user(&socket)?;
    socket.set_read_timeout(Some(Duration::from_secs(10)))?;
    let (_, mut files) = passing::take(&socket, &mut [0])?;
    files.pop().ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the launcher gave no descriptor"))
}

/// This process's world, as the environment describes it.
#[derive(Debug)]
pub(crate) struct LaunchPlace {
    pub rank: u32,
    pub name: Option<String>,
    descriptor: Option<RawFd>,
    inode: Option<(u64, u64)>,
    socket: Option<String>,
}

/// Reads the environment.
pub(crate) fn from_environment() -> Result<LaunchPlace, Error> {
    fn number<T: std::str::FromStr>(variable: &'static str, text: &str) -> Result<T, Error> {
        text.parse().map_err(|_| Error::BadEnvironment { variable, value: text.to_owned() })
    }
    let get = |variable| std::env::var(variable).ok().filter(|v| !v.is_empty());
    let rank = number(variables::RANK, &get(variables::RANK).ok_or(Error::NotLaunched)?)?;
    let inode = match get(variables::WORLD_INODE) {
        None => None,
        Some(text) => {
            let (device, inode) = text.split_once(':').ok_or_else(|| Error::BadEnvironment {
                variable: variables::WORLD_INODE,
                value: text.clone(),
            })?;
            Some((number(variables::WORLD_INODE, device)?, number(variables::WORLD_INODE, inode)?))
        }
    };
    let descriptor = get(variables::WORLD_FD).map(|text| number(variables::WORLD_FD, &text)).transpose()?;
    let (name, socket) = (get(variables::WORLD), get(variables::WORLD_SOCKET));
    if name.is_none() && descriptor.is_none() && socket.is_none() {
        return Err(Error::NotLaunched);
    }
    Ok(LaunchPlace { rank, name, descriptor, inode, socket })
}

impl LaunchPlace {
    /// Returns whether a file can be the world for which this process was started: a name
    /// may lead to another one by now.
    pub fn allows(&self, file: BorrowedFd<'_>) -> bool {
        self.inode.is_none() || self.is_it(file)
    }

    fn is_it(&self, file: BorrowedFd<'_>) -> bool {
        inode_of(file).is_ok_and(|inode| Some(inode) == self.inode)
    }

    /// The world's descriptor: the inherited one if it still leads there, else the
    /// launcher's.
    pub fn receive(&self) -> Result<OwnedFd, Error> {
        let is_it = |fd: BorrowedFd<'_>| self.is_it(fd);
        if let Some(raw) = self.descriptor.filter(|&raw| raw >= 0) {
            // SAFETY: used only for calls that fail if it isn't open; if it is by now something
            // else, `is_it` says so.
            let inherited = unsafe { BorrowedFd::borrow_raw(raw) };
            // A copy: the inherited one stays for this process's own children.
            if is_it(inherited)
                && let Ok(own) = fcntl_dupfd_cloexec(inherited, 3)
            {
                return Ok(own);
            }
        }
        let descriptor = self.descriptor.map_or_else(|| "(none)".to_owned(), |raw| raw.to_string());
        let gone = |source| Error::LauncherGone { descriptor: descriptor.clone(), source };
        let socket = self.socket.as_deref().ok_or_else(|| gone(io::ErrorKind::NotFound.into()))?;
        let given = ask(socket).map_err(gone)?;
        if is_it(given.as_fd()) {
            Ok(given)
        } else {
            Err(gone(io::Error::new(io::ErrorKind::InvalidData, "it gave another world's descriptor")))
        }
    }
}
