//! Handing a world over to the processes for which it was made.
//!
//! A named world travels by its name. An anonymous one is a descriptor: a child inherits it; and
//! since some programs close what they inherit before they start others (Python's subprocess does),
//! the launcher also gives it to any process of the same user that asks for it at an abstract Unix
//! socket.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::passing::{self, same_user};
use crate::segment::{directory, inode_of};
use crate::world::World;
use crate::{Error, variables};

/// Hands a world over to processes that are started for it. Keep it until they have
/// ended.
#[derive(Debug)]
pub struct Handover {
    world: World,
    inode: (u64, u64),
    server: Option<Server>,
}

/// The socket of an anonymous world.
#[derive(Debug)]
struct Server {
    name: String,
    listener: Arc<UnixListener>,
    /// The thread that answers there, if there is one.
    thread: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Handover {
    /// Gets ready to hand over; for an anonymous world, starts a thread that answers at a
    /// socket.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new(world: &World) -> Result<Self, Error> {
        let mut handover = Self::polled(world)?;
        if let Some(server) = &mut handover.server {
            server.start(world.clone())?;
        }
        Ok(handover)
    }

    /// Gets ready without a thread, unlike [`Handover::new`]: the caller polls
    /// [`Handover::socket`] and calls [`Handover::answer`].
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn polled(world: &World) -> Result<Self, Error> {
        let server = if world.name().is_none() { Some(Server::new()?) } else { None };
        Ok(Handover { world: world.clone(), inode: inode_of(world.file()?)?, server })
    }

    /// The socket of an anonymous world, which becomes readable when a process asks for
    /// the world there.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.server.as_ref().map(|s| s.listener.as_fd())
    }

    /// Answers processes that have asked, if no thread does. Does not wait.
    pub fn answer(&self) {
        let Some(server) = self.server.as_ref().filter(|s| s.thread.is_none()) else { return };
        // Whatever is left makes the socket readable again: there is other work between.
        for _ in 0..64 {
            let Ok((client, _)) = server.listener.accept() else { return };
            // A process that goes away without listening needs no answer.
            let _ = self.world.file().map(|file| give(&client, file));
        }
    }

    /// The descriptor that a child must inherit; `None` for a named world.
    pub fn descriptor(&self) -> Option<RawFd> {
        self.server.as_ref().and_then(|_| Some(self.world.file().ok()?.as_raw_fd()))
    }

    /// Variables for the environment of the process with this rank; `None`: the variable
    /// is taken out.
    pub fn variables(&self, rank: u32) -> Vec<(&'static str, Option<String>)> {
        let (device, inode) = self.inode;
        vec![
            (variables::RANK, Some(rank.to_string())),
            (variables::SIZE, Some(self.world.size().to_string())),
            (variables::WORLD, self.world.name().map(str::to_owned)),
            (variables::WORLD_FD, self.descriptor().map(|fd| fd.to_string())),
            (variables::WORLD_INODE, Some(format!("{device}:{inode}"))),
            (variables::WORLD_SOCKET, self.server.as_ref().map(|s| s.name.clone())),
        ]
    }

    /// Prepares a command to be started as that rank: environment and descriptor.
    pub fn prepare(&self, command: &mut Command, rank: u32) {
        for (variable, value) in self.variables(rank) {
            match value {
                Some(value) => command.env(variable, value),
                None => command.env_remove(variable),
            };
        }
        // Where worlds are must not depend on where a child goes.
        if std::env::var_os(variables::DIRECTORY).is_some_and(|named| !named.is_empty()) {
            command.env(variables::DIRECTORY, directory());
        }
        if let Some(descriptor) = self.descriptor() {
            let inherit = move || {
                // SAFETY: the descriptor is open: a copy of the one that `self.world`, which
                // outlives the spawning, owns.
                let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
                fcntl_setfd(descriptor, FdFlags::empty()).map_err(io::Error::from)
            };
            // SAFETY: the closure makes one system call: it neither allocates nor takes a lock.
            unsafe { command.pre_exec(inherit) };
        }
    }
}

impl Server {
    fn new() -> Result<Self, Error> {
        let mut random = [0u8; 8];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
            .map_err(Error::system("getting random bytes"))?;
        let name = format!("towpath.{}.{:016x}", std::process::id(), u64::from_ne_bytes(random));
        let address = SocketAddr::from_abstract_name(&name).map_err(Error::io("naming a socket"))?;
        let listener = UnixListener::bind_addr(&address).map_err(Error::io("making a socket"))?;
        listener.set_nonblocking(true).map_err(Error::io("setting up a socket"))?;
        Ok(Server { name, listener: Arc::new(listener), thread: None })
    }

    fn start(&mut self, world: World) -> Result<(), Error> {
        self.listener.set_nonblocking(false).map_err(Error::io("setting up a socket"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, listener) = (Arc::clone(&stop), Arc::clone(&self.listener));
        let serve = move || {
            while let Ok((client, _)) = listener.accept() {
                // Relaxed: the connection that made `accept` return came after the store.
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                // As in `answer`.
                let _ = world.file().map(|file| give(&client, file));
            }
        };
        let thread = std::thread::Builder::new()
            .name("towpath-handover".into())
            .spawn(serve)
            .map_err(Error::io("starting a thread (raise `ulimit -u` or `ulimit -v`)"))?;
        self.thread = Some((stop, thread));
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some((stop, thread)) = self.thread.take() else { return };
        // Relaxed: see `start`.
        stop.store(true, Ordering::Relaxed);
        let woken = SocketAddr::from_abstract_name(&self.name).and_then(|a| UnixStream::connect_addr(&a));
        if woken.is_ok() {
            let _ = thread.join();
        }
    }
}

fn give(client: &UnixStream, file: BorrowedFd<'_>) -> io::Result<()> {
    same_user(client)?;
    passing::give(client, b"t", &[file])
}
