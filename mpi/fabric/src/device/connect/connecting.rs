//! Connecting to a peer: through /proc, or else by a request to its descriptor listener.
//!
//! A request takes as long as the peer needs to make progress once. Meanwhile sends to it are
//! refused for now ([`Refusal::Again`]), and frames that must go out (answers) wait in its queue.

use std::io;

use crate::device::connect::address::Address;
use crate::device::connect::attach::AttachError;
use crate::device::connect::fd_message::Connection;
use crate::device::connect::fd_request::FdRequest;
use crate::device::endpoint::{Endpoint, EndpointCore};
use crate::device::link::Link;
use crate::device::operation::Refusal;
use crate::device::peer::{ConnectionState, Peer};
use crate::device::protocol::frame::Frame;
use crate::device::protocol::stream::Queued;

impl Peer {
    /// Connects to a peer for the first time. `quietly`: no send asked for it; says
    /// nothing if there is no way.
    fn find_connection(&mut self, own: &Address, quietly: bool) {
        let why = match own.can_reach(&self.address) {
            Err(why) => why.to_string(),
            Ok(()) if !self.is_foreign => match Link::join(&self.address, own) {
                Ok(link) => {
                    return self.open(link);
                }
                // Alive, and not to be looked into: hidden, or not to be traced.
                Err(AttachError::Open { pid, source })
                    if source.kind() == io::ErrorKind::PermissionDenied =>
                {
                    return self.ask(own, Some(AttachError::Open { pid, source }), quietly);
                }
                Err(why) => text(&why),
            },
            Ok(()) => return self.ask(own, None, quietly),
        };
        self.close_connection(&why, quietly);
    }

    fn open(&mut self, link: Link) {
        self.connection = ConnectionState::Open(Box::new(link.with(self.shared_line.as_ref())));
    }

    fn ask(&mut self, own: &Address, instead: Option<AttachError>, quietly: bool) {
        self.connection = ConnectionState::Asking(Box::new(FdRequest { connection: None, instead }));
        self.go_on_asking(own, quietly);
    }

    /// Takes the next step, if there is one to take.
    fn go_on_asking(&mut self, own: &Address, quietly: bool) {
        let ConnectionState::Asking(asking) = &mut self.connection else { return };
        match asking.step(own, &self.address) {
            Ok(None) => {}
            Ok(Some(link)) => self.open(link),
            Err(why) => {
                self.has_ended = matches!(&why, AttachError::Silent { source, .. } if is_gone(source));
                // A death is nothing to be said here: it is reported.
                let quietly = quietly || asking.connection.as_ref().is_some_and(Connection::is_dead);
                let why = text(asking.instead.as_ref().unwrap_or(&why));
                self.close_connection(&why, quietly);
            }
        }
    }

    fn close_connection(&mut self, why: &str, quietly: bool) {
        if !quietly {
            crate::remark!("towpath: can't reach process {}: {why}", self.address.pid);
        }
        self.connection = ConnectionState::Closed;
    }

    /// Returns whether a peer that is not seen under its pid is gone, as far as our own
    /// connection to it tells.
    pub(crate) fn is_lost(&mut self, own: &Address) -> bool {
        match &self.connection {
            // Only a connection can tell.
            ConnectionState::Untried => self.find_connection(own, true),
            ConnectionState::Asking(asking) if asking.connection.is_none() => self.go_on_asking(own, true),
            _ => {}
        }
        match &self.connection {
            ConnectionState::Asking(asking) => asking.connection.as_ref().is_some_and(Connection::is_lost),
            ConnectionState::Open(link) => link.is_lost(),
            ConnectionState::Untried | ConnectionState::Closed => self.has_ended,
        }
    }
}

fn text(why: &AttachError) -> String {
    match why {
        AttachError::Open { source, .. } | AttachError::Silent { source, .. }
            if source.raw_os_error() == Some(libc::EMFILE) =>
        {
            "this process has as many files open as it may, and each peer needs one or two (in another pid namespace five): raise the limit (`ulimit -n`)".into()
        }
        _ => why.to_string(),
    }
}

fn is_gone(why: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset};
    matches!(why.kind(), BrokenPipe | ConnectionRefused | ConnectionReset)
}

impl EndpointCore {
    /// Continues a connection that is not open.
    #[cold]
    pub(crate) fn connect<'p>(
        own: &Address,
        number: u32,
        peer: &'p mut Peer,
        busy: &mut Vec<u32>,
        to_itself: &mut bool,
    ) -> Result<&'p mut Peer, Refusal> {
        if peer.gone {
            return Err(Refusal::Unreachable);
        }
        if matches!(peer.connection, ConnectionState::Untried) {
            peer.find_connection(own, false);
            *to_itself |= peer.address == *own;
        }
        match peer.connection {
            ConnectionState::Open(_) => Ok(peer),
            ConnectionState::Asking(_) => {
                // From now on every turn asks.
                if !busy.contains(&number) {
                    busy.push(number);
                }
                Err(Refusal::Again)
            }
            ConnectionState::Untried | ConnectionState::Closed => Err(Refusal::Unreachable),
        }
    }

    /// Queues an answer to a peer that has not answered yet itself. It is among the busy
    /// ones.
    #[cold]
    pub(crate) fn post_later(&mut self, to: u32, frame: Frame, bytes: &[u8]) {
        self.peers[to as usize].queue.push_back(Queued::Frame(frame, bytes.to_vec()));
    }

    /// Takes the next step of a request. Returns whether the connection is open.
    #[cold]
    pub(crate) fn ask_again(&mut self, to: u32) -> bool {
        let own = self.own;
        let peer = &mut self.peers[to as usize];
        peer.go_on_asking(&own, false);
        match peer.connection {
            ConnectionState::Open(_) => return true,
            ConnectionState::Asking(_) => self.busy.push(to),
            ConnectionState::Untried | ConnectionState::Closed => self.lose(to),
        }
        false
    }
}

impl Endpoint {
    /// Sends queued frames and streams, as far as there is space and connections are
    /// open.
    #[cold]
    pub(crate) fn push(&mut self) {
        self.core.push();
        let asks = |&to: &u32| matches!(self.core.peers[to as usize].connection, ConnectionState::Asking(_));
        if self.core.busy.iter().any(asks) {
            // They may be asking us.
            self.port.serve();
        }
    }
}
