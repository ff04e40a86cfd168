//! A listener: where peers connect.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::{Error, Key, Link};

/// Time that a peer has for the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Listener on one address. Nothing else is listened on.
#[derive(Debug)]
pub struct Listener {
    listener: TcpListener,
    address: SocketAddr,
    key: Key,
    purpose: String,
}

/// Peer that has connected, and has not yet shown that it has the key.
#[derive(Debug)]
pub struct Incoming {
    stream: TcpStream,
    peer: SocketAddr,
    key: Key,
    purpose: String,
}

impl Listener {
    /// Listens on an address; port 0 is any free one.
    ///
    /// `purpose`: the use of its links; peers with another one are refused.
    ///
    /// # Errors
    ///
    /// [`Error::CannotListen`].
    pub fn bind(address: SocketAddr, key: &Key, purpose: &str) -> Result<Listener, Error> {
        let listener = TcpListener::bind(address).map_err(|error| Error::CannotListen(address, error))?;
        let address = listener.local_addr().map_err(|error| Error::CannotListen(address, error))?;
        Ok(Listener { listener, address, key: key.clone(), purpose: purpose.into() })
    }

    /// Address that is listened on, with its port.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for a peer.
    ///
    /// Its handshake ([`Incoming::handshake`]) may be left to another thread, so that a slow peer
    /// does not hold up others.
    ///
    /// # Errors
    ///
    /// [`Error::CannotListen`] if the system refuses; a peer that is gone at once is passed over.
    pub fn accept(&self) -> Result<Incoming, Error> {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    let (key, purpose) = (self.key.clone(), self.purpose.clone());
                    return Ok(Incoming { stream, peer, key, purpose });
                }
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(Error::CannotListen(self.address, error)),
            }
        }
    }
}

impl Incoming {
    /// Completes the handshake.
    ///
    /// # Errors
    ///
    /// [`Error::NotOurs`] if the peer has another key; [`Error::Unreachable`] if it does not
    /// answer within five seconds.
    pub fn handshake(self) -> Result<Link, Error> {
        Link::accept(self.stream, self.peer, &self.key, &self.purpose, HANDSHAKE)
    }

    /// Address of the peer.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

/// Returns whether an error concerns one peer, and not the listener.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::ConnectionAborted)
        || error.kind() == io::ErrorKind::ConnectionReset
}
