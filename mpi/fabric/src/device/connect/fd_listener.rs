//! Descriptor listener: an abstract Unix socket at which an endpoint gives its memory
//! away. Processes that can't open it through /proc, because they live in another pid namespace or
//! may not look into each other's, ask here ([`fd_message`](crate::device::connect::fd_message)).
//!
//! ```text
//! visitor   its address                               when it has connected
//! owner     the visitor's number, and the segment     when it makes progress
//!           the wake pipe's two ends                  when it has one, or makes one
//! visitor   a nonce, and a ring                       before it offers it in the shared queue
//! ```
//!
//! **Progress.** There is no thread for this: the owner looks here when it looks after its peers
//! (every ten milliseconds while it waits), and at every turn while it is a visitor elsewhere
//! itself. So two that ask each other at the same moment serve each other. Nothing blocks; a
//! visitor's sends are refused for now until its turn has come.
//!
//! **A death.** The connection stays as long as both live: when it is lost, so is the visitor
//! ([`liveness`](crate::device::liveness)), and its places in the segment, which it has taken under
//! its number, are free again. The owner's death takes the socket's name along: nothing is left
//! behind.
//!
//! **Memory.** One descriptor for the socket; per visitor two (the connection, a pidfd). **Don't
//! use it** between processes that share /proc: that way needs no progress of the owner.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::device::connect::address::Address;
use crate::device::connect::fd_message::{Connection, accept, listen};
use crate::device::connect::layout::VISITOR;
use crate::device::wake_pipe::WakePipe;

/// A visitor: a process that has connected.
#[derive(Debug)]
struct Visitor {
    number: u32,
    /// Known once it has been served.
    address: Option<Address>,
    connection: Connection,
}

/// An endpoint's descriptor listener.
#[derive(Debug)]
pub struct FdListener {
    own: Address,
    listener: OwnedFd,
    visitors: RefCell<Vec<Visitor>>,
    next: Cell<u32>,
}

impl FdListener {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// The system's: then only processes that see this one in /proc can send to it.
    pub fn open(own: Address) -> io::Result<FdListener> {
        Ok(FdListener { own, listener: listen(&own)?, visitors: RefCell::default(), next: Cell::new(0) })
    }

    /// Serves the visitors that have connected.
    pub fn serve(&self, segment: BorrowedFd<'_>, pipe: Option<&WakePipe>) {
        let mut visitors = self.visitors.borrow_mut();
        while let Some(connection) = accept(self.listener.as_fd()) {
            let number = self.next.get();
            self.next.set((number + 1) % VISITOR);
            visitors.push(Visitor { number, address: None, connection });
        }
        visitors.retain_mut(|visitor| visitor.address.is_some() || self.admit(visitor, segment, pipe));
    }

    /// Returns whether a visitor that has not sent its address may stay.
    fn admit(&self, visitor: &mut Visitor, segment: BorrowedFd<'_>, pipe: Option<&WakePipe>) -> bool {
        let Visitor { number, address, connection } = visitor;
        let said = match connection.take() {
            Ok(Some(message)) => message,
            // It has not said it yet.
            Ok(None) => return !connection.is_lost(),
            Err(_) => return false,
        };
        *address = said.bytes().and_then(|bytes| Address::from_bytes(&bytes));
        let fits = address.is_some_and(|address| self.own.can_reach(&address).is_ok());
        if !fits || connection.give(&u64::from(*number).to_le_bytes(), &[segment]).is_err() {
            return false;
        }
        if let Some(pipe) = pipe {
            pass(connection, pipe);
        }
        true
    }

    /// Passes the owner's new wake pipe to the visitors that are connected.
    pub fn pass(&self, pipe: &WakePipe) {
        for visitor in self.visitors.borrow().iter().filter(|visitor| visitor.address.is_some()) {
            pass(&visitor.connection, pipe);
        }
    }

    /// Addresses of the visitors that have gone since the last call.
    pub fn lost(&self) -> Vec<Address> {
        let mut lost = Vec::new();
        self.visitors.borrow_mut().retain(|visitor| {
            let is_lost = visitor.connection.is_lost();
            lost.extend(visitor.address.filter(|_| is_lost));
            !is_lost
        });
        lost
    }

    /// Returns whether the visitor of this number is still connected.
    pub fn is_here(&self, number: u32) -> bool {
        self.visitors.borrow().iter().any(|visitor| visitor.number == number)
    }

    /// Looks for a visitor of this address: `Some` if it is connected, with the ring that
    /// it has passed with this nonce.
    pub fn ring(&self, of: &Address, nonce: u64) -> Option<Option<OwnedFd>> {
        let visitors = self.visitors.borrow();
        let visitor = visitors.iter().find(|visitor| visitor.address.as_ref() == Some(of))?;
        while let Ok(Some(message)) = visitor.connection.take() {
            if let Some((number, file)) = message.number_and_file()
                && number == nonce
            {
                return Some(Some(file));
            }
        }
        Some(None)
    }
}

/// Passes the wake pipe to a visitor. One that does not get it (its connection is full,
/// or it is gone) can't wake the owner: the sleeper's timer does without.
fn pass(to: &Connection, pipe: &WakePipe) {
    let _ = to.give(&[0; 8], &pipe.ends());
}
