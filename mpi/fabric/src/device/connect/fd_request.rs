//! The way to a peer: through /proc where that leads there, else by asking at its door.
//!
//! Asking takes as long as the other needs to make progress once. Meanwhile sends to it are refused
//! for now ([`Refusal::Again`]), and what must go out (answers) waits in its queue.

use std::io;

use crate::device::connect::address::Address;
use crate::device::connect::attach::{AttachError, Segment};
use crate::device::connect::fd_message::Connection;
use crate::device::endpoint::{Core, Endpoint, Refusal};
use crate::device::link::Link;
use crate::device::peer::{Peer, Queued, Way};
use crate::device::protocol::frame::{Kind, WORDS};

/// At a peer's door.
#[derive(Debug)]
pub struct Asking {
    /// None while too many others knock.
    connection: Option<Connection>,
    /// Why the usual way does not lead there.
    instead: Option<AttachError>,
}

impl Peer {
    /// Looks for a way that was not tried yet. `quietly`: nobody wants to send; says
    /// nothing if there is none.
    fn find_way(&mut self, own: &Address, quietly: bool) {
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
        self.close_way(&why, quietly);
    }

    fn open(&mut self, link: Link) {
        self.way = Way::Open(Box::new(link.with(self.conversation.as_ref())));
    }

    fn ask(&mut self, own: &Address, instead: Option<AttachError>, quietly: bool) {
        self.way = Way::Asking(Box::new(Asking { connection: None, instead }));
        self.go_on_asking(own, quietly);
    }

    /// Takes the next step, if there is one to take.
    fn go_on_asking(&mut self, own: &Address, quietly: bool) {
        let Way::Asking(asking) = &mut self.way else { return };
        match asking.step(own, &self.address) {
            Ok(None) => {}
            Ok(Some(link)) => self.open(link),
            Err(why) => {
                self.has_ended = matches!(&why, AttachError::Silent { source, .. } if is_gone(source));
                // A death is nothing to be said here: it is reported.
                let quietly = quietly || asking.connection.as_ref().is_some_and(Connection::is_dead);
                let why = text(asking.instead.as_ref().unwrap_or(&why));
                self.close_way(&why, quietly);
            }
        }
    }

    fn close_way(&mut self, why: &str, quietly: bool) {
        if !quietly {
            crate::remark!("towpath: can't reach process {}: {why}", self.address.pid);
        }
        self.way = Way::Closed;
    }

    /// Whether one that is not seen under its pid is gone, as far as our own connection
    /// to it tells.
    pub(crate) fn is_lost(&mut self, own: &Address) -> bool {
        match &self.way {
            // Only a connection can tell.
            Way::Untried => self.find_way(own, true),
            Way::Asking(asking) if asking.connection.is_none() => self.go_on_asking(own, true),
            _ => {}
        }
        match &self.way {
            Way::Asking(asking) => asking.connection.as_ref().is_some_and(Connection::is_lost),
            Way::Open(link) => link.is_lost(),
            Way::Untried | Way::Closed => self.has_ended,
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

impl Asking {
    fn step(&mut self, own: &Address, to: &Address) -> Result<Option<Link>, AttachError> {
        let silent = |source| AttachError::Silent { pid: to.pid, source };
        if self.connection.is_none() {
            let opened = Connection::open(own, to).and_then(|c| c.give(&own.to_bytes(), &[]).map(|()| c));
            match opened {
                Ok(connection) => self.connection = Some(connection),
                Err(why) if why.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(why) => return Err(silent(why)),
            }
        }
        let Some(connection) = &self.connection else { return Ok(None) };
        let Some(answer) = connection.take().map_err(silent)? else {
            // A child of the dead may have inherited its door: nobody will answer.
            return if connection.is_lost() {
                Err(silent(io::ErrorKind::ConnectionReset.into()))
            } else {
                Ok(None)
            };
        };
        let nonsense = || silent(io::ErrorKind::InvalidData.into());
        let (number, file) = answer.number_and_file().ok_or_else(nonsense)?;
        let number = u32::try_from(number).map_err(|_| nonsense())?;
        let segment = Segment::given(to, file)?;
        let Some(connection) = self.connection.take() else { return Ok(None) };
        Link::visit(segment, number, connection, to, own).map(Some)
    }
}

impl Core {
    /// What is to be done with a way that is not open.
    #[cold]
    pub(crate) fn open_way<'p>(
        own: &Address,
        number: u32,
        peer: &'p mut Peer,
        busy: &mut Vec<u32>,
        to_itself: &mut bool,
    ) -> Result<&'p mut Peer, Refusal> {
        if peer.gone {
            return Err(Refusal::Unreachable);
        }
        if matches!(peer.way, Way::Untried) {
            peer.find_way(own, false);
            *to_itself |= peer.address == *own;
        }
        match peer.way {
            Way::Open(_) => Ok(peer),
            Way::Asking(_) => {
                // From now on every turn asks.
                if !busy.contains(&number) {
                    busy.push(number);
                }
                Err(Refusal::Again)
            }
            Way::Untried | Way::Closed => Err(Refusal::Unreachable),
        }
    }

    /// An answer to a peer whose door has not opened yet. It is among the busy ones.
    #[cold]
    pub(crate) fn post_later(&mut self, to: u32, kind: Kind, tag: u64, words: [u64; WORDS], bytes: &[u8]) {
        let frame = Queued::Frame { kind, tag, words, bytes: bytes.to_vec() };
        self.peers[to as usize].queue.push_back(frame);
    }

    /// Asks again at a door. Whether the way is open.
    #[cold]
    pub(crate) fn ask_again(&mut self, to: u32) -> bool {
        let own = self.own;
        let peer = &mut self.peers[to as usize];
        peer.go_on_asking(&own, false);
        match peer.way {
            Way::Open(_) => return true,
            Way::Asking(_) => self.busy.push(to),
            Way::Untried | Way::Closed => self.lose(to),
        }
        false
    }
}

impl Endpoint {
    /// Sends what waits, as far as there is space and as doors are open.
    #[cold]
    pub(crate) fn push(&mut self) {
        self.core.push();
        let asks = |&to: &u32| matches!(self.core.peers[to as usize].way, Way::Asking(_));
        if self.core.busy.iter().any(asks) {
            // They may be asking us.
            self.port.serve();
        }
    }
}
